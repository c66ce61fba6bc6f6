"""Sources of an Index: folders, lists of paths, catalogues, class folders and Index files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from readers.index import arrow_file, schema
from readers.index.arrow_file import ArrowFile
from readers.index.classes import category_ids_of, class_table, classes_of
from readers.index.containers.kinds import Tar
from readers.index.containers.tables import containers_table, has_tars, peeked
from readers.index.grouping.frames import Frames, frames_of
from readers.index.lists.coco import coco_table
from readers.index.paths.absolute import absolute, whole
from readers.index.rows.windows import window_size_of
from readers.index.scan import (
    ALL_SUFFIXES,
    SUFFIXES,
    find_files,
    folder_of,
    listed_files,
    object_table,
)
from readers.index.text_tables import read_csv
from readers.index.versions import with_versions
from readers.places.opener import Places
from readers.places.storage import Storage
from readers.places.urls import is_url

if TYPE_CHECKING:
    import pyarrow as pa

INDEX_SUFFIXES = (".parquet", arrow_file.SUFFIX)
"""Index files, see `Index.save`."""


class IndexSources:
    """Constructors of an Index from files; see `readers.index.table.Index`."""

    table: pa.Table
    _file: ArrowFile | None = None
    """The Index file, if the table is mapped from one."""

    def __init__(self, table: pa.Table) -> None:
        self.table = schema.checked(table)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels; () if the Index has none.

        They are stored in the metadata of the table, and so in an Index file.
        """
        return classes_of(self.table)

    @property
    def category_ids(self) -> tuple[int, ...]:
        """Ids of `classes` in the COCO file of `from_coco`, in the order of their labels; else ().

        ``index.category_ids[label]`` is the category_id for COCO's evaluation.
        """
        return category_ids_of(self.table)

    @property
    def window_size(self) -> tuple[int, int] | None:
        """(height, width) in pixels of the windows that `cutouts` or `each_window` made, else None.

        It is stored like `classes`, and not kept where columns ``y`` and ``x`` get other values.
        """
        return window_size_of(self.table)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts, if a sample consists of several files."""
        return schema.part_names(self.table)

    @property
    def frames(self) -> Frames:
        """Its `channels` and `offsets`, and the parts that these make."""
        return frames_of(self.table)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels of samples of several files; () for one channel without a name."""
        return self.frames.channels

    @property
    def offsets(self) -> tuple[str, ...]:
        """Times of the frames of a sequence minus that of their sample, e.g. ``-24min``; else ().

        They are stored like `classes`, with the `channels`.
        """
        return self.frames.offsets

    @classmethod
    def scan(
        cls,
        data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        suffixes: Sequence[str] = ALL_SUFFIXES,
        storage: Storage | None = None,
    ) -> Self:
        """Make or load an Index from a folder, a glob, a list of paths or a file that lists them.

        Parameters
        ----------
        data : path, or iterable of paths
            A folder (searched with its subfolders for `suffixes`), a glob (``**`` for any
            subfolders), one file, an Index file (``.parquet``, ``.arrow``), a catalogue
            (``.csv``), or an iterable of files, folders and globs, whose order is kept. Files of a
            folder or glob are sorted; of a folder the log counts other suffixes and hidden names
            (``.a.jpg``), which are left out. Or a URL, ``s3://bucket/prefix`` or ``gs://``: all
            objects below it, or a glob; ``https://``: one object. ``{0..9}`` stands for all these
            numbers. Of tars the samples make the rows, see `readers.index.table.Index.from_tar`; of
            a folder or prefix, if there are no other files of these suffixes.
        suffixes : sequence of str
            Suffixes to search a folder for, in lower case, with the dot.
        storage : Storage, optional
            How remote objects are requested.

        Returns
        -------
        Index
            With ``path``; of objects also ``file_bytes`` and ``etag``, their lengths and versions:
            an object that is another one when it is read is rejected. Listings have them; of each
            URL of a list or catalogue the first byte is requested, see
            `readers.index.table.Index.with_versions`.

        Raises
        ------
        FileNotFoundError
            If there is no such file or folder, or no file matches. Of several paths, those that end
            in one of `suffixes` are looked for when they are read.
        OSError
            If the objects cannot be listed, or those of all URLs not be read.
        ValueError
            If objects of such a URL cannot be read, or it holds a password; or among several paths
            is one of an Index file, a catalogue or a tar, or a URL of a prefix.
        """
        tars, places = Tar(image_suffixes=tuple(suffixes)), Places(storage or Storage())
        are_tars, data = peeked(data)
        if are_tars:
            return cls(containers_table(tars, data, places))
        if not isinstance(data, str | os.PathLike):
            paths = listed_files((os.fspath(path) for path in data), tuple(suffixes))
            return cls(with_versions(cls._of_paths(paths).table, places.storage))
        text = os.fspath(data)
        if text.endswith(INDEX_SUFFIXES) and os.path.isfile(text):
            return cls.load(text)
        if text.endswith(".csv") and os.path.isfile(text):
            return cls(with_versions(cls.from_csv(text).table, places.storage))
        try:
            if is_url(text):
                return cls(object_table(text, tuple(suffixes), places.storage))
            return cls._of_paths(find_files(text, tuple(suffixes)))
        except FileNotFoundError:
            if not has_tars(text, places):
                raise
        return cls(containers_table(tars, text, places))

    @classmethod
    def from_paths(cls, paths: Iterable[str | os.PathLike[str]]) -> Self:
        """Make an Index with one row per path, in the given order; paths are made absolute.

        No request is made: of URLs, `with_versions` notes the versions.

        Raises
        ------
        ValueError
            If one is not UTF-8, or a URL of which no objects can be read.
        """
        return cls._of_paths(whole(os.fspath(path)) for path in paths)

    @classmethod
    def _of_paths(cls, paths: Iterable[str]) -> Self:
        import pyarrow as pa

        return cls(pa.table({"path": schema.text_column(paths)}))

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Self:
        """Read a CSV catalogue with a header line and a column ``path``.

        Relative paths are relative to the catalogue's folder. No request is made: of URLs,
        `with_versions` notes the versions.

        Raises
        ------
        ValueError
            If it is no such file, or has no rows. It names the file and the line.

        Notes
        -----
        Columns have the types that PyArrow infers, but numbers that would lose something stay text:
        a column in which an integer has leading zeros (``007``), or would be another as a float, as
        beyond int64.
        """
        table = read_csv(path)
        if "path" not in table.column_names:
            raise ValueError(
                f"{os.fspath(path)}: expected a column 'path', got {table.column_names}"
            )
        if not table.num_rows:
            raise ValueError(f"{os.fspath(path)}: expected a row for each image, it has none")
        return cls._of_file(table, path)

    @classmethod
    def _of_file(cls, table: pa.Table, path: str | os.PathLike[str]) -> Self:
        try:
            return cls(absolute(table, folder_of(path)))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def from_class_folders(
        cls,
        folder: str | os.PathLike[str],
        *,
        classes: Sequence[str] | IndexSources | None = None,
        suffixes: Sequence[str] = SUFFIXES["jpeg"],
    ) -> Self:
        """Make an Index of a folder with one subfolder for each class, like ImageNet.

        Parameters
        ----------
        folder : path
            The folder.
        classes : sequence of str, or Index, optional
            Names of all classes in the order of their labels, or the Index of the training files,
            to keep the labels if a folder lacks a class. By default the sorted names of the
            subfolders that have files; a warning names the others.
        suffixes : sequence of str
            Suffixes to search for, in lower case, with the dot.

        Returns
        -------
        Index
            With ``label`` (int64, number of the class in `classes`) and ``class_name``; all names
            are its `classes`.

        Raises
        ------
        ValueError
            If a class folder is not among `classes`, or a file is beside the folders.
        """
        root = os.path.abspath(folder)
        paths = list(find_files(root, tuple(suffixes)))
        if isinstance(classes, IndexSources):
            if not classes.classes:
                raise ValueError(
                    f"classes={classes!r} has no class names: make it by Index.from_class_folders, "
                    "or dali-pipelines index --class_folders"
                )
            classes = classes.classes
        return cls(class_table(root, paths, classes))

    @classmethod
    def from_coco(cls, images: str | os.PathLike[str], annotations: str | os.PathLike[str]) -> Self:
        """Make an Index of images with boxes, from an annotation file of COCO (instances).

        Parameters
        ----------
        images : path
            Folder of the images; ``file_name`` is relative to it.
        annotations : path
            The JSON file, such as ``instances_train2017.json``.

        Returns
        -------
        Index
            One row for each image, in the order of the file, also for those without boxes. With
            ``image_id``; ``boxes``, a list of x1, y1, x2, y2 in pixels, float64; and ``labels``, a
            list of int64: places of the categories, in the order of their ids, from 0 on. Their
            names are its `classes`, their ids its `category_ids`. ``boxes_size`` is the height and
            width of the image in the file, null without them. The columns are for
            `readers.targets.boxes.Boxes`, which rejects images of another size.

        Raises
        ------
        FileNotFoundError
            If the file, the folder or an image is missing.
        ValueError
            If it is no such file, two images have one id or one file, or an annotation is of an
            unknown image or category, or has no bbox of four finite numbers, or an image has one of
            height and width alone, or makes no sense of them. It names the entry.

        Notes
        -----
        Boxes of crowds (``iscrowd``) and those without area are left out; the log counts them.
        Segmentations (polygons and run lengths) are not read: write them to mask files, e.g. by
        pycocotools, and name these in a column for `readers.targets.mask.Mask`. Two files number
        the same categories alike, whichever of them have boxes.
        """
        return cls(coco_table(os.fspath(images), os.fspath(annotations)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an Index file.

        Parameters
        ----------
        path : path
            A file written by `save`; or any Parquet file, or Arrow IPC file with the suffix
            ``.arrow``, whose table is an Index. Relative paths in it are relative to its folder.

        Raises
        ------
        ValueError
            If the file is damaged, or its table is not an Index.

        Notes
        -----
        An ``.arrow`` file written by `save` opens at once, whatever its number of rows: it is
        memory-mapped. While the Index is in use the file may be deleted or replaced by renaming,
        but not written to in place: reading a row then raises ReadError.
        """
        name = os.fspath(path)
        try:
            if not name.endswith(arrow_file.SUFFIX):
                import pyarrow.parquet as pq

                os.stat(name)  # for a missing file: pyarrow's message is the bare name
                table = pq.read_table(name)
            elif file := ArrowFile.open(name):
                index = cls.__new__(cls)  # checked when it was saved
                index.table, index._file = file.table, file
                return index
            else:
                table = arrow_file.read(name)
        except (ValueError, KeyError, NotImplementedError, OSError) as error:
            if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
                raise  # the file cannot be opened; all other errors mean bad content
            if name.endswith(".csv"):
                raise ValueError(f"{name}: a catalogue is read by Index.scan") from None
            raise ValueError(
                f"{name}: expected an Index file, but it is damaged, cut off or of another kind "
                f"({error}): make it again, with Index.save or dali-pipelines index"
            ) from error
        return cls._of_file(table, name)
