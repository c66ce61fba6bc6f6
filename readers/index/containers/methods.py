"""Indexes of the samples in containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from readers.index.containers.kinds import LMDB, RecordIO, Tar, TFRecord
from readers.index.containers.tables import Data, containers_table
from readers.index.sources import IndexSources
from readers.places.opener import Places
from readers.places.storage import Storage


def _places(storage: Storage | None) -> Places:
    return Places(storage or Storage())


class IndexContainers(IndexSources):
    """Constructors of an Index from containers; see `readers.index.table.Index`.

    Each makes a row for each image, in the order of the files, then of the images in them. Columns
    ``path``, ``offset`` and ``nbytes`` locate its bytes, so that any Reader reads it, windows too;
    ``file_bytes`` and ``etag`` are those of the container, and if it is changed its rows are
    rejected.
    """

    @classmethod
    def from_tar(
        cls, data: Data, *, image: str | None = None, storage: Storage | None = None
    ) -> Self:
        """Make an Index of the samples in tar files, as WebDataset packs them.

        `scan` does the same for a ``.tar``, a glob or list of them, or a folder of them.

        Parameters
        ----------
        data : path, or iterable of paths
            A tar, a glob, a folder, paths, or URLs of tars or of a prefix; ``{0000..0999}`` stands
            for all these numbers.
        image : str, optional
            Extension of the image of a sample, e.g. ``"left.jpg"``; by default the first suffix of
            `readers.index.scan.SUFFIXES` that one of its members has as its extension.
        storage : Storage, optional
            How remote objects are requested.

        Returns
        -------
        Index
            With ``key`` (text). Members with equal names up to the first dot of their base name
            are a sample; what follows is their extension. Short texts (``.cls``, ``.id``, ``.txt``
            and so on, at most 64 KiB) become columns with the name of their extension: int64 if all
            are integers, else text. Of ``.json`` each field becomes a column, e.g. ``json_width``;
            fields that hold lists or objects stay JSON, as text. Other images become columns for
            `readers.targets.mask.Mask`, e.g. ``seg_png_path``, ``seg_png_offset`` and
            ``seg_png_nbytes`` of members ``.seg.png``. What a sample lacks is null.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If none of the files can be read, or no sample has an image. A file cannot be read if it
            is not a tar, is compressed, has sparse members or two of one name, or a stale ``.idx``;
            beside others it is left out, and the log names it.

        Notes
        -----
        If no member of a tar has the suffix of an image as its whole extension, the names have dots
        of their own, like those of AIA: then each image is a sample, and members with the same name
        up to the suffix belong to it.

        Where wds2idx has written a file with the suffix ``.idx`` beside a tar, it is read in place
        of the headers of the tar, after some of these have been compared. The log counts what is
        left out: samples without an image, those with a text that is not UTF-8 or not JSON, what
        is behind the damage of a tar, and members that are neither images nor texts. Links to
        other members are samples or columns like these; the log counts those to what is not in the
        tar.
        """
        return cls(containers_table(Tar(image), data, _places(storage)))

    @classmethod
    def from_tfrecord(
        cls,
        data: Data,
        *,
        image: str = TFRecord.image,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        storage: Storage | None = None,
    ) -> Self:
        """Make an Index of the images in TFRecord files of ``tf.train.Example`` messages.

        Parameters
        ----------
        data : path, or iterable of paths
            A file, a glob, a folder (searched for ``.tfrecord``, ``.tfrecords`` and ``.tfrec``), or
            paths; ``{0000..0999}`` stands for all these numbers.
        image : str
            Feature that holds the encoded image.
        columns : sequence of str, or mapping of str to str, optional
            Features that become columns, by default all others. A mapping gives them other names.
        storage : Storage, optional
            How remote objects are requested.

        Returns
        -------
        Index
            With ``key``, the number of the record in its file. Features with one value become
            numbers or text, others lists; features that hold an image, or bytes that are no text,
            become e.g. ``mask_path``, ``mask_offset`` and ``mask_nbytes``. What a record lacks is
            null.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        KeyError
            If no record has a feature of `columns`.
        ModuleNotFoundError
            If google-crc32c is missing: install ``dali-pipelines[containers]``.
        ValueError
            If a file is compressed or of another kind, or no record has the image.

        Notes
        -----
        Files are read whole, and the checksums of their records are compared; ``.idx`` files are
        not needed. The log counts records without the image, those that are damaged or no Example,
        and files that are cut off or damaged so that no more records are found: all are left out.
        """
        wanted = columns
        if wanted is not None and not isinstance(wanted, Mapping):
            wanted = {name: name for name in wanted}
        table = containers_table(TFRecord(image, wanted), data, _places(storage))
        for feature, name in (wanted or {}).items():
            if not {name, f"{name}_path"} & set(table.column_names):
                raise KeyError(f"no record with an image has a feature {feature!r}")
        return cls(table)

    @classmethod
    def from_recordio(cls, data: Data, *, storage: Storage | None = None) -> Self:
        """Make an Index of the images in RecordIO files, as MXNet's im2rec packs them.

        Parameters
        ----------
        data : path, or iterable of paths
            A file, a glob, a folder (searched for ``.rec``), or paths.
        storage : Storage, optional
            How remote objects are requested.

        Returns
        -------
        Index
            With ``label``: int64 if all are integers, else floats; lists if a record has several.
            ``key`` is the id of the record. If there is a file with the suffix ``.idx`` beside it,
            rows are in its order, and ``key`` is what it says.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If a file is of another kind, or its ``.idx`` lists other records.

        Notes
        -----
        Records that hold the four bytes that separate records are stored in parts; they are left
        out, and the log counts them. So are damaged records, and what is behind the damage of a
        file where no more records can be found.
        """
        return cls(containers_table(RecordIO(), data, _places(storage)))

    @classmethod
    def from_lmdb(cls, data: Data, *, storage: Storage | None = None) -> Self:
        """Make an Index of the images in LMDB files: encoded, or in Caffe's Datum messages.

        Parameters
        ----------
        data : path, or iterable of paths
            A folder with ``data.mdb``, a file, a glob, or paths.
        storage : Storage, optional
            How remote objects are requested.

        Returns
        -------
        Index
            In the order of the keys, with ``key`` (text), and ``label`` (int64) of a Datum.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If a file is damaged, cut off or being written to, has several databases or several
            values of a key, or its Datums hold pixels that are not encoded.

        Notes
        -----
        Rows are spans of the file, so neither this nor reading needs the library lmdb, locks or a
        size of the map. The log counts values that are no images. After a write to the file its
        rows are rejected: make the Index again.
        """
        return cls(containers_table(LMDB(), data, _places(storage)))
