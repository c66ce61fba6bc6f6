"""The Index: an immutable table of samples, one row for each.

It is Parquet or Arrow on disk, and Arrow in memory. Its methods call functions in the modules of
this folder, which take and return tables. Reader processes do not import PyArrow: they see the
table as `readers.Columns`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload
from weakref import WeakValueDictionary

from numpy.typing import ArrayLike, NDArray

from readers.audio.reader import AudioReader
from readers.contract import Row
from readers.index import schema
from readers.index.arrow import pa
from readers.index.catalogue.cutouts import Cutouts, cutout_table
from readers.index.catalogue.nearest import with_nearest
from readers.index.catalogue.tables import Catalogue, Objects
from readers.index.classes import category_ids_of, class_table, classes_of
from readers.index.coco import coco_table
from readers.index.columns import SPAN, Columns
from readers.index.containers.kinds import LMDB, RecordIO, Tar, TFRecord
from readers.index.containers.tables import Data, containers_table, tfrecords_table
from readers.index.grouping.frames import Frames, frames_of
from readers.index.grouping.groups import Grouping, Missing
from readers.index.index_file import INDEX_SUFFIXES as INDEX_SUFFIXES
from readers.index.index_file import ArrowFile, read_index_file, reader_columns, write_index_file
from readers.index.paths import absolute, moved, whole
from readers.index.recordings import manifest_table, with_sound_facts
from readers.index.rows.joining import joined, replaced
from readers.index.rows.splitting import TimeBlocks, TimeOrder, split_rows
from readers.index.rows.values import RowValues
from readers.index.rows.weights import RunningWeights, running_weights
from readers.index.rows.where import matching, selected
from readers.index.rows.windows import plane_rows, window_rows, windows_of
from readers.index.scan import ALL_SUFFIXES, folder_of
from readers.index.scan import SUFFIXES as SUFFIXES
from readers.index.shown import as_html, as_text, rows_of
from readers.index.sources import csv_table, path_table, scanned_table
from readers.index.versions import with_versions
from readers.index.videos import clip_rows, with_video_facts
from readers.places.opener import LOCAL, Places
from readers.places.storage import Storage
from readers.sampling.row_window import Outside
from readers.values import check_bool, check_integer, check_number, is_integer
from readers.video.decoding import import_av

if TYPE_CHECKING:
    from astropy.units import Quantity

_ROWS_AT_A_TIME = 1024
"""Number of rows that an iteration converts to Python values at a time."""


class Index:
    """Immutable table of samples, one row each, with a column ``path`` and any other columns.

    Use `scan`, `load` or another class method to make one. Pass a table only if you need columns
    that these methods do not make.

    Parameters
    ----------
    table : pyarrow.Table
        ``path`` is text. Optional are the integers ``hdu`` (0 for the primary HDU, null for the
        first HDU with an image) and ``plane`` (0 for the first plane of an image with more than two
        axes, see `dali_pipelines.FitsReader`). If a sample consists of several files, called parts,
        their paths are in text columns ``path_{part}`` (null for a missing file), optionally with
        ``hdu_{part}`` and ``plane_{part}``. All other columns are yours: labels, times, keywords.
        Columns of string_view or binary_view become string or binary.

    Raises
    ------
    TypeError
        If it is not a ``pyarrow.Table``.
    ValueError
        If the table has no rows or no column ``path``, a path is missing, or a value of ``hdu`` or
        ``plane`` is not an integer.

    Notes
    -----
    Each image in a container (see `from_tar`) is a row, in the order of the files, and of the
    images in each file. The columns ``path``, ``offset`` and ``nbytes`` locate the bytes of the
    image, so any Reader can read it, or a window of it. ``file_bytes`` and ``etag`` describe the
    container: if it changes, its rows are rejected.
    """

    table: pa.Table
    _file: ArrowFile | None = None
    """The Index file, if the table is mapped from one."""

    def __init__(self, table: pa.Table) -> None:
        self.table = schema.checked(table)

    # ---- From files ------------------------------------------------------------------------------

    @classmethod
    def scan(
        cls,
        data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        suffixes: Sequence[str] = ALL_SUFFIXES,
        keys: Sequence[str] | None = None,
        storage: Storage | None = None,
    ) -> Self:
        """Make or load an Index from a folder, a glob, a list of paths or a file that lists them.

        Parameters
        ----------
        data : path, or iterable of paths
            A folder (searched with its subfolders for `suffixes`), a glob (``**`` for any
            subfolders), one file, an Index file (``.parquet``, ``.arrow``), a catalogue (``.csv``),
            or an iterable of files, folders and globs. The order of an iterable is kept; files of a
            folder or glob are sorted. In a folder, other suffixes and hidden names (``.a.jpg``) are
            ignored, and the log counts them. Or a URL: ``s3://bucket/prefix`` or
            ``gs://bucket/prefix`` for all objects below it, or with a glob; ``https://`` for one
            object. ``{0..9}`` means each of these numbers. Each sample of a tar becomes a row, see
            `from_tar`. Tars in a folder or prefix are read only if no other file there has one of
            the suffixes.
        suffixes : sequence of str
            Suffixes of the files to find in a folder, in lower case, with the dot.
        keys : sequence of str, optional
            Keywords of FITS headers, in any case. ``["T_OBS", "WAVELNTH"]`` makes columns ``t_obs``
            and ``wavelnth``. This reads the header of each image, so save the Index of a large
            archive. `dali_pipelines.with_keys` does the same with more settings.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            Index with ``path``, and a column for each of `keys`, null for a missing value. Remote
            objects also have their length ``file_bytes`` and version ``etag``: an object that
            changes before it is read is rejected. Lengths and versions come from the listing. For
            URLs in a list or catalogue they take a request for each object, see `with_versions`.

        Raises
        ------
        FileNotFoundError
            If there is no such file or folder, or no file matches. Paths in a list with one of the
            `suffixes` are not checked before they are read.
        OSError
            If the objects cannot be listed, or no URL of a list can be read.
        ValueError
            If a URL is not supported, or contains a password; if a list has the path of an Index
            file, a catalogue or a tar, or the URL of a prefix; if `keys` are not keywords, or a
            column for one of them exists.

        Examples
        --------
        ::

            index = Index.scan("archive")
            index = Index.scan("archive/2015/**/*.fits", keys=["T_OBS", "WAVELNTH"])
            index = Index.scan("s3://bucket/archive/", storage=Storage(anonymous=True))
        """
        storage = storage or Storage()
        if keys is not None:
            from readers.index.keywords import checked_keys, with_keywords  # astropy

            keys = checked_keys(keys)
        path = os.fspath(data) if isinstance(data, str | os.PathLike) else None
        if path is not None and os.path.isfile(path) and path.endswith(INDEX_SUFFIXES):
            index = cls.load(path)
        elif path is not None and os.path.isfile(path) and path.endswith(".csv"):
            index = cls.from_csv(path).with_versions(storage)
        else:
            index = cls(scanned_table(data, tuple(suffixes), Places(storage)))
        if keys is None:
            return index
        index = index.with_versions(storage)
        columns = index.columns().with_places(Places(storage))
        return cls(with_keywords(index.table, columns, keys))

    @classmethod
    def from_paths(cls, paths: Iterable[str | os.PathLike[str]]) -> Self:
        """Make an Index with a row for each path, in the given order. Paths become absolute.

        This makes no requests: `with_versions` adds the versions of URLs.

        Raises
        ------
        ValueError
            If a path is not UTF-8, or is a URL that is not supported.

        Examples
        --------
        ::

            index = Index.from_paths(["a.fits", "b.fits"])
        """
        return cls(path_table(whole(os.fspath(path)) for path in paths))

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Self:
        """Read a CSV catalogue with a header line and a column ``path``.

        Relative paths are relative to the catalogue's folder. This makes no requests:
        `with_versions` adds the versions of URLs.

        Raises
        ------
        ValueError
            If it is not a CSV file, or has no rows. The message has the file and the line.

        Notes
        -----
        Columns have the types that PyArrow infers. A column stays text if it has an integer with
        leading zeros (``007``), or an integer beyond int64 that would lose digits as a float.

        Examples
        --------
        ::

            index = Index.from_csv("catalogue.csv")  # path,label
        """
        return cls._of_file(csv_table(path), path)

    @classmethod
    def from_class_folders(
        cls,
        folder: str | os.PathLike[str],
        *,
        classes: Sequence[str] | Index | None = None,
        suffixes: Sequence[str] = SUFFIXES["jpeg"],
    ) -> Self:
        """Make an Index of a folder with a subfolder for each class, like ImageNet.

        Parameters
        ----------
        folder : path
            The folder.
        classes : sequence of str, or Index, optional
            Names of all classes in the order of their labels, or the Index of the training files:
            labels are then the same even if a folder lacks a class. By default the sorted names of
            the subfolders that have files; a warning names the other subfolders.
        suffixes : sequence of str
            Suffixes to search for, in lower case, with the dot.

        Returns
        -------
        Index
            Index with ``label`` (int64, number of the class) and ``class_name``. Its attribute
            `classes` has the names of all classes.

        Raises
        ------
        ValueError
            If a class folder is not in `classes`, or a file is beside the folders.

        Examples
        --------
        ::

            train = Index.from_class_folders("photos/train")
            val = Index.from_class_folders("photos/val", classes=train)
        """
        if isinstance(classes, Index):
            if not classes.classes:
                raise ValueError(
                    "the Index of classes has no class names: make it with class folders, as by "
                    "Index.from_class_folders or dali-pipelines index --class_folders"
                )
            classes = classes.classes
        return cls(class_table(os.path.abspath(folder), tuple(suffixes), classes))

    @classmethod
    def from_zarr(
        cls,
        root: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        variables: Sequence[str] | None = None,
        dim: str | None = "time",
        isel: Mapping[str, int | slice | Sequence[int] | NDArray[Any]] | None = None,
        columns: Mapping[str, str] | None = None,
        storage: Storage | None = None,
    ) -> Self:
        """Make an Index of the arrays of a Zarr store, with a row for each position of an axis.

        Parameters
        ----------
        root : path, URL, or iterable of these
            Folder of a group or an array, of Zarr 2 or 3, also sharded. The rows of several roots
            follow each other.
        variables : sequence of str, optional
            Names of arrays; ``group/name`` for arrays of subgroups. An array without the axis of
            the rows, such as a land mask, is the same in each row. By default all arrays with the
            axes; for this, a store on a web server needs consolidated metadata.
        dim : str, optional
            Name of the axis of the rows. If the axes of an array have no names, it is the first
            axis. With None each root is one row.
        isel : mapping of str to int, slice or sequence of int, optional
            Positions on other axes, such as ``{"level": 3}``, negative from the end. Two axes must
            remain: the rows and columns of the images. Several positions, such as
            ``{"level": [0, 3]}``, become channels, with names such as ``z_500``: the coordinate of
            the position, or its number if there is none.
        columns : mapping of str to str, optional
            Name of a one-dimensional array or a list attribute for each new column. The attribute
            may be of the first variable or the group. By default the array with the name of the
            axis, if it exists. Numbers since a date, and text in ISO 8601, become times.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            With ``path``, the root; ``plane``, the position; the columns; and ``chunks``, bytes
            that describe the storage of each variable for `chunked_pipeline`.

        Raises
        ------
        FileNotFoundError
            If there is no Zarr store.
        OSError
            If it cannot be read.
        ValueError
            If a variable is missing or not supported (objects, text, an unknown filter, chunks of
            different shapes), if an axis is missing, or if the variables differ in size.

        Examples
        --------
        ::

            index = Index.from_zarr("weather.zarr", variables=["t2m"])
        """
        from readers.index.zarr_rows import zarr_table

        places = Places(storage or Storage())
        return cls(zarr_table(root, variables, dim, isel, columns, places))

    @classmethod
    def scan_arrays(
        cls,
        data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        variables: Sequence[str] | None = None,
        dim: str | None = None,
        isel: Mapping[str, int | slice | Sequence[int] | NDArray[Any]] | None = None,
        columns: Mapping[str, str] | None = None,
        progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
        storage: Storage | None = None,
    ) -> Self:
        """Make an Index of the variables of HDF5 and netCDF4 files.

        h5py reads only the structure of each file. Images are read by chunks, without h5py.

        Parameters
        ----------
        data : path, or iterable of paths
            Files, as for `scan`. A folder is searched for ``.nc``, ``.nc4``, ``.h5``, ``.hdf5``,
            ``.he5`` and ``.hdf``.
        variables : sequence of str, optional
            Names of data sets; ``group/name`` for data sets in groups. A data set without the axis
            of the rows is the same in each row of a file. By default all data sets that have two
            axes beside `dim` and the axes of `isel`.
        dim : str, optional
            Name of an axis with a row for each position. By default each file is one row.
        isel : mapping of str to int, slice or sequence of int, optional
            Positions on other axes, such as ``{"level": 3}``, negative from the end. Two axes must
            remain: the rows and columns of the images. Several positions, such as
            ``{"level": [0, 3]}``, become channels, see `from_zarr`. Axes without names are
            ``dim_0``, ``dim_1`` and so on; `dim`, with any name, is then the first axis.
        columns : mapping of str to str, optional
            Name of a variable or attribute for each new column: one-dimensional with `dim`,
            otherwise a single value. By default the coordinates of `dim`. Numbers since a date, and
            text in ISO 8601, become times.
        progress : callable
            Wraps the files to report progress, e.g. ``tqdm.tqdm``.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            With ``path``; with `dim` also ``plane``, the position; the columns; and ``chunks``,
            bytes that describe the storage of each variable for `chunked_pipeline`. Files that
            cannot be read are left out; the log counts them and names the first.

        Raises
        ------
        FileNotFoundError
            If there is no such file or folder.
        ImportError
            If h5py is not installed.
        OSError
            If no file can be read.
        ValueError
            If no file is HDF5, if a variable is missing in all files or not supported (text,
            compound types, an unknown filter, a link to another file, a virtual data set), if an
            axis is missing, or if the variables differ in size.

        Examples
        --------
        ::

            index = Index.scan_arrays("runs/*.nc", variables=["t2m"])
        """
        from readers.chunks.hdf5 import SUFFIXES
        from readers.index.chunk_rows import check_arguments
        from readers.index.hdf5_rows import hdf5_table

        places = Places(storage or Storage())
        check_arguments(variables, dim, isel, columns)
        files = scanned_table(data, SUFFIXES, places)
        return cls(hdf5_table(files, variables, dim, isel, columns, places, progress))

    @classmethod
    def scan_audio(
        cls,
        data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Index,
        *,
        class_folders: bool = False,
        classes: Sequence[str] | Index | None = None,
        trim_db: float | None = None,
        verify: bool = False,
        num_threads: int = 4,
        progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
        storage: Storage | None = None,
    ) -> Self:
        """Make an Index of recordings, with their rates, channels and durations from headers.

        Parameters
        ----------
        data : path, iterable of paths, or Index
            A folder, a glob, files, URLs or tars, as for `scan`. Or an Index, e.g. of
            `from_manifest`: the new columns are added to it.
        class_folders : bool
            Whether the subfolders of the folder are classes, as for `from_class_folders`.
        classes : sequence of str, or Index, optional
            Names of the classes in the order of their labels, or the Index of the training files,
            as for `from_class_folders`.
        trim_db : float, optional
            Trim silence at both ends, as ``librosa.effects.trim`` does: frames of 2048 samples are
            silent if their power is more than `trim_db` decibels below the loudest frame. The
            default of librosa is 60. This decodes each recording once. ``start`` and ``duration``
            of a row are then the remaining part.
        verify : bool
            Whether to decode each recording, and to leave out those that are damaged.
        num_threads : int
            Number of files that are read concurrently.
        progress : callable
            Wraps the facts of the files to report progress, e.g. ``tqdm.tqdm``.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            With ``rate`` (samples per second, int32), ``channels`` (int32), ``duration`` (seconds,
            float64) and ``format`` (text). Existing values of ``duration`` are kept, for parts of
            recordings. Recordings that cannot be read are left out; the log counts them and names
            the first.

        Raises
        ------
        ReadError
            If no recording can be read.
        ValueError, FileNotFoundError
            As in `scan` and `from_class_folders`.
        """
        check_bool("verify", verify)
        if trim_db is not None:
            check_number("trim_db", trim_db, 1e-3, 200)
        notes = AudioReader.notes if trim_db is not None else ()
        table, rows = cls._files(data, "audio", class_folders, classes, num_threads, storage, notes)
        return cls(with_sound_facts(table, rows, num_threads, progress, trim_db, verify))

    @classmethod
    def scan_videos(
        cls,
        data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Index,
        *,
        class_folders: bool = False,
        classes: Sequence[str] | Index | None = None,
        verify: bool = False,
        num_threads: int = 4,
        progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
        storage: Storage | None = None,
    ) -> Self:
        """Make an Index of videos, with their sizes, and the positions of their packets.

        PyAV reads each file completely to demux it, and decodes its first frame.

        Parameters
        ----------
        data : path, iterable of paths, or Index
            A folder, a glob, files, URLs or tars, as for `scan`. Or an Index: the new columns are
            added to it.
        class_folders : bool
            Whether the subfolders of the folder are classes, as for `from_class_folders`.
        classes : sequence of str, or Index, optional
            Names of the classes in the order of their labels, or the Index of the training files,
            as for `from_class_folders`.
        verify : bool
            Whether to decode all frames, and to leave out videos in which FFmpeg finds damage.
        num_threads : int
            Number of files that are read concurrently.
        progress : callable
            Wraps the facts of the files to report progress, e.g. ``tqdm.tqdm``.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            With ``frames`` (int64), ``fps`` (frames / duration, float64), ``height`` and ``width``
            (pixels, as displayed, int32), ``duration`` (seconds, float64; existing durations of
            rows with a ``start``, parts of videos, are kept), ``codec`` (text), and ``packets``,
            bytes for `dali_pipelines.VideoReader`, which then reads only the packets of a clip.
            Videos that cannot be read are left out; the log counts them and names the first.

        Raises
        ------
        ImportError
            If PyAV is not installed.
        ReadError
            If no video can be read.
        ValueError, FileNotFoundError
            As in `scan` and `from_class_folders`.

        Examples
        --------
        ::

            index = Index.scan_videos("clips", class_folders=True)
        """
        check_bool("verify", verify)
        import_av()
        table, rows = cls._files(data, "video", class_folders, classes, num_threads, storage)
        return cls(with_video_facts(table, rows, num_threads, progress, verify))

    @classmethod
    def _files(
        cls,
        data: Any,
        kind: str,
        class_folders: bool,
        classes: Sequence[str] | Index | None,
        num_threads: int,
        storage: Storage | None,
        notes: Sequence[str] = (),
    ) -> tuple[pa.Table, Iterator[Row]]:
        """Return the table and rows of an Index, or of files with the suffixes of a format."""
        check_integer("num_threads", num_threads, 1)
        check_bool("class_folders", class_folders)
        if classes is not None and not class_folders:
            raise ValueError("classes needs class folders: set class_folders=True")
        if class_folders:
            if not isinstance(data, str | os.PathLike):
                given = "an Index" if isinstance(data, Index) else repr(data)
                raise TypeError(f"class_folders needs one folder, got {given}")
            index: Index = cls.from_class_folders(data, classes=classes, suffixes=SUFFIXES[kind])
        elif isinstance(data, Index):
            index = data
        else:
            index = cls.scan(data, suffixes=SUFFIXES[kind], storage=storage)
        columns = index.columns(notes=notes).with_places(Places(storage or Storage()))
        return index.table, map(columns.row, range(len(index)))

    @classmethod
    def from_manifest(
        cls, path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None
    ) -> Self:
        """Make an Index of recordings and their transcripts from a manifest.

        Parameters
        ----------
        path : path
            JSON lines of NeMo (``.json``, ``.jsonl``, ``.manifest``), with ``audio_filepath``;
            a table of Common Voice (``.tsv``), with ``path``; a folder of Kaldi, with ``wav.scp``,
            and optionally ``segments``, ``text`` and ``utt2spk``; or a folder of LibriSpeech, with
            ``*.trans.txt`` beside the recordings in it or its subfolders.
        root : path, optional
            Folder of relative paths. The default for JSON lines is the folder of the manifest, for
            Common Voice the folder ``clips`` beside it, and for Kaldi the working directory.

        Returns
        -------
        Index
            With ``text``, ``start`` and ``duration`` (seconds, float64), if the manifest has them.
            With ``start`` or ``duration`` a row is a part of a recording. Other fields become
            columns with the same names; objects and lists become JSON.

        Raises
        ------
        OSError
            If it cannot be read.
        ValueError
            If it is not a manifest, or a path of Kaldi is a command. The message has the line.
        """
        return cls(manifest_table(os.fspath(path), None if root is None else os.fspath(root)))

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
            Index with a row for each image, in the order of the file, also for images without
            boxes. It has ``image_id``; ``boxes``, lists of x1, y1, x2, y2 in pixels, float64; and
            ``labels``, lists of int64. Labels number the categories from 0 in the order of their
            ids. Names are in `classes`, ids in `category_ids`. ``boxes_size`` is the height and
            width of the image in the file, or null. `dali_pipelines.Boxes` takes these columns, and
            rejects images of another size.

        Raises
        ------
        FileNotFoundError
            If the file, the folder or an image is missing.
        ValueError
            If it is not an annotation file; if two images have the same id or file; if an
            annotation has an unknown image or category, or a bbox that is not four finite numbers,
            the last two not negative; if an image has only one of height and width, or invalid
            values. The message has the entry.

        Notes
        -----
        Boxes of crowds (``iscrowd``) and boxes without area are left out; the log counts them. A
        warning says if boxes reach beyond their image, as they do if they were written as two
        corners. Segmentations (polygons and run lengths) are not read: write them to mask files,
        e.g. with pycocotools, and add a column of their paths for `dali_pipelines.Mask`. Labels
        depend only on the list of categories, so files with the same list have the same labels.

        Examples
        --------
        ::

            index = Index.from_coco("train2017", "annotations/instances_train2017.json")
        """
        return cls(coco_table(os.fspath(images), os.fspath(annotations)))

    @classmethod
    def from_tar(
        cls, data: Data, *, image: str | None = None, storage: Storage | None = None
    ) -> Self:
        """Make an Index of the samples in tar files of WebDataset.

        `scan` does the same for a ``.tar``, and for a glob, list or folder of tars.

        Parameters
        ----------
        data : path, or iterable of paths
            A tar, a glob, a folder, paths, or URLs of tars or of a prefix. ``{0000..0999}`` means
            each of these numbers.
        image : str, optional
            Extension of the image of a sample, e.g. ``"left.jpg"``. By default the first suffix in
            `readers.index.scan.SUFFIXES` that is the extension of a member.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            Index with ``key`` (text). Members with the same name up to the first dot of the base
            name are a sample, and the rest of the name is the extension. Short texts (``.cls``,
            ``.id``, ``.txt`` and so on, at most 64 KiB) become columns with the name of their
            extension: int64 if all are integers, otherwise text. Each field of ``.json`` becomes a
            column, e.g. ``json_width``; lists and objects in fields become JSON text. Other images
            become columns for `dali_pipelines.Mask`: members ``.seg.png`` become ``seg_png_path``,
            ``seg_png_offset`` and ``seg_png_nbytes``. A column is null for samples without the
            member.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If no file can be read, or no sample has an image. A file cannot be read if it is not a
            tar, is compressed, has sparse members or two members with the same name, or if its
            ``.idx`` is out of date. If other files can be read, it is left out, and the log names
            it.

        Notes
        -----
        If no member has just the suffix of an image as extension, the names are taken to contain
        other dots, like names of AIA files. Then each image is a sample, and members with the same
        name up to the suffix belong to it.

        If a file of wds2idx, with the suffix ``.idx``, is beside a tar, it is read instead of the
        headers of the tar, and compared with some of them. The log counts everything that is left
        out: samples without an image, samples with a text that is not UTF-8 or not JSON, the rest
        of a damaged tar, members that are neither images nor texts, and links to files outside the
        tar. Links to other members count as members.

        Examples
        --------
        ::

            index = Index.from_tar("shards/train-{0000..0999}.tar")
        """
        return cls(containers_table(Tar(image), data, Places(storage or Storage())))

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
            paths. ``{0000..0999}`` means each of these numbers.
        image : str
            Feature with the encoded image.
        columns : sequence of str, or mapping of str to str, optional
            Features that become columns, by default all except the image. A mapping renames them.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            Index with ``key``, the number of the record in its file. Features with one value become
            numbers or text, other features become lists. A feature ``mask`` with another image, or
            with bytes that are not text, becomes ``mask_path``, ``mask_offset`` and
            ``mask_nbytes``. A column is null for records without the feature.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        KeyError
            If no record has a feature of `columns`.
        ModuleNotFoundError
            If google-crc32c is missing: it is in the extra ``containers``.
        ValueError
            If a file is compressed or of another kind, or no record has the image.

        Notes
        -----
        Files are read completely, without ``.idx`` files, and the checksums of records are checked.
        Records are left out if they have no image, are damaged, or are not an Example; so is the
        rest of a file after damage that hides further records. The log counts them.

        Examples
        --------
        ::

            index = Index.from_tfrecord("train-*-of-*", columns={"image/class/label": "label"})
        """
        return cls(tfrecords_table(image, columns, data, Places(storage or Storage())))

    @classmethod
    def from_recordio(cls, data: Data, *, storage: Storage | None = None) -> Self:
        """Make an Index of the images in RecordIO files of MXNet's im2rec.

        Parameters
        ----------
        data : path, or iterable of paths
            A file, a glob, a folder (searched for ``.rec``), or paths.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            Index with ``label``: int64 if all labels are integers, otherwise floats; lists if a
            record has several labels. ``key`` is the id of the record. If there is a file with the
            suffix ``.idx``, rows have its order and keys.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If a file is of another kind, or its ``.idx`` lists other records.

        Notes
        -----
        Records are left out if they are damaged, or if they are stored in several parts, because
        they contain the separator of records; so is the rest of a file after damage that hides
        further records. The log counts them.

        Examples
        --------
        ::

            index = Index.from_recordio("train.rec")
        """
        return cls(containers_table(RecordIO(), data, Places(storage or Storage())))

    @classmethod
    def from_lmdb(cls, data: Data, *, storage: Storage | None = None) -> Self:
        """Make an Index of the images in LMDB files: encoded, or in Caffe's Datum messages.

        Parameters
        ----------
        data : path, or iterable of paths
            A folder with ``data.mdb``, a file, a glob, or paths.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            Index in the order of the keys, with ``key`` (text); for Datum messages also with
            ``label`` (int64).

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If a file is damaged, truncated or being written, has several databases or several
            values of a key, or has Datum messages with pixels that are not encoded.

        Notes
        -----
        Rows are spans of the file. So neither this method nor the Readers need the library lmdb,
        locks or a map size. The log counts values that are not images. After a write to the file
        its rows are rejected: make the Index again.

        Examples
        --------
        ::

            index = Index.from_lmdb("train_lmdb")
        """
        return cls(containers_table(LMDB(), data, Places(storage or Storage())))

    @classmethod
    def cutouts(
        cls,
        images: Index | str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        catalogue: Catalogue,
        size: int | Sequence[int],
        *,
        x: str = Cutouts.x,
        y: str = Cutouts.y,
        ra: str = Cutouts.ra,
        dec: str = Cutouts.dec,
        origin: int = Cutouts.origin,
        outside: Outside = Cutouts.outside,
        subpixel: bool = Cutouts.subpixel,
        columns: Sequence[str] | Mapping[str, str] | None = Cutouts.columns,
        hdus: int | str | Sequence[int | str] | None = Cutouts.hdus,
        storage: Storage | None = None,
    ) -> Self:
        """Make an Index with a row for each object of a catalogue on each image that shows it.

        Its columns ``y`` and ``x`` are the first row and column of a window with the object in the
        middle. A Loader cuts out these windows, as with ``window="row"``, ``crop=size`` and this
        `outside`, even after the Index is saved and loaded. Settings of the Loader override these.

        Parameters
        ----------
        images : Index, or data for `scan`
            The images, with a row for each. Without a column ``hdu``, the first image of each file,
            or the images of `hdus`.
        catalogue : path, astropy Table or pyarrow Table
            Table with a row for each object. Files are CSV, ECSV, Parquet, FITS tables or VOTables.
            The table has pixels (`x` and `y`) or positions on the sky (`ra` and `dec`). If it has
            both, the columns that are passed as arguments are used; without arguments, pixels are
            used if their image is unambiguous. A column ``path`` has the image of each object, as a
            path (relative to the catalogue) or base name. A column ``hdu`` has the number of its
            HDU: if `images` has no column ``hdu``, it gets rows for these HDUs. Without ``path``,
            pixels belong to the only image, and positions may be on any image.
        size : int or sequence of int
            (height, width) of the windows in pixels, or one number for both.
        x, y : str
            Columns of pixels along rows and columns of the image.
        ra, dec : str
            Columns of positions in ICRS, in degrees, or in the unit of the column. FITS has no unit
            hourangle: set this unit in an astropy Table. A SkyCoord ``sky`` counts as two columns,
            ``sky_ra`` and ``sky_dec``.
        origin : {0, 1}
            Coordinate of the centre of the first pixel in `x` and `y`: 1 in FITS and SExtractor.
        outside : {"reject", "fill", "shift"}
            Objects to keep at edges. ``reject`` keeps an object if its window is wholly inside the
            image, ``fill`` if its window overlaps the image, and ``shift`` if the object is on the
            image. The Loader moves or fills windows; ``y`` and ``x`` are not changed here. For
            filled windows of objects on the image, pass ``"shift"`` here and ``"fill"`` to the
            Loader.
        subpixel : bool
            Begin windows at fractions of a pixel, so that the object is exactly in the middle:
            ``y`` and ``x`` are float64, and the pipeline resamples. By default they are int64, as
            in `astropy.nddata.Cutout2D`.
        columns : sequence of str, or mapping of str to str, optional
            Columns of the catalogue to keep, by default all except ``path`` and ``hdu``. A mapping
            renames them. By default ``x`` and ``y`` become ``catalogue_x`` and ``catalogue_y``.
        hdus : int, str or sequence of these, optional
            HDUs of each file, if `images` has no column ``hdu``: numbers, and EXTNAMEs with ``*``
            for any characters, e.g. ``"SCI*"`` for mosaics. All HDUs with a name are taken. Files
            that lack one of the HDUs, or are truncated, are left out.
        storage : Storage, optional
            Settings for requests of remote objects.

        Returns
        -------
        Index
            Index sorted by image, then by object, with the columns of `images`, ``y``, ``x``, the
            columns of the catalogue, and ``catalogue_row``, counted from 0.

        Raises
        ------
        FileNotFoundError
            If there is no such catalogue or image.
        KeyError
            If the catalogue lacks a column. The message lists the existing columns.
        TypeError
            If the catalogue is not a table, or an Index cannot hold a column of this type.
        ValueError
            If no row is left, positions are not numbers, two columns would have the same name, or
            names of images are ambiguous.

        Notes
        -----
        A warning in the log counts the objects without a row: they have no position (null, NaN, or
        a declination beyond 90 degrees), are on no image, or are too close to an edge. It also
        counts the images that cannot be read or have no sky coordinates.

        astropy converts sky coordinates (WCS), including distortions, for the objects in a circle
        around each image. For positions on the sky the headers of all images are read; for pixels
        only if there are no columns ``height`` and ``width``.

        Examples
        --------
        ::

            index = Index.cutouts("survey", "stars.csv", 64, hdus="SCI", outside="fill")
            loader = Loader(fits_pipeline, index, batch_size=16)
        """
        settings = Cutouts(
            size=size,
            x=x,
            y=y,
            ra=ra,
            dec=dec,
            origin=origin,
            outside=outside,
            subpixel=subpixel,
            columns=columns,
            hdus=hdus,
        )
        index = images if isinstance(images, Index) else cls.scan(images, storage=storage)
        return cls(cutout_table(index.table, Objects(catalogue), settings, storage or Storage()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an Index file.

        Parameters
        ----------
        path : path
            A file of `save`, or any Parquet file or Arrow IPC file (with the suffix ``.arrow``)
            whose table is an Index. Relative paths are relative to the folder of the file.

        Raises
        ------
        ValueError
            If the file is damaged, or its table is not an Index.

        Notes
        -----
        An ``.arrow`` file of `save` is memory-mapped, so it opens at once for any number of rows.
        While the Index is in use, the file may be deleted or replaced by renaming. After a write to
        the file, reading a row raises ReadError.

        Examples
        --------
        ::

            index = Index.load("train.parquet")
        """
        found = read_index_file(path)
        if not isinstance(found, ArrowFile):
            return cls._of_file(found, path)
        index = cls.__new__(cls)  # checked when it was saved
        index.table, index._file = found.table, found
        return index

    @classmethod
    def _of_file(cls, table: pa.Table, path: str | os.PathLike[str]) -> Self:
        """Make an Index of the table of a file. Relative paths are relative to its folder."""
        try:
            schema.check_distinct(table)
            return cls(absolute(table, folder_of(path)))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Index, all or nothing: as Parquet, or as Arrow IPC.

        Parquet is compact. Arrow has the size of the table, e.g. 68 bytes per row for paths of 60
        characters. But it opens at once even with a hundred million rows, and reader processes
        share the file, see `load`. Its paths are absolute: relative paths are resolved against its
        folder. For an archive that is moved, see `moved`.

        Parameters
        ----------
        path : path
            Must end in ``.parquet`` or ``.arrow``. The target of a link is written.

        Raises
        ------
        ValueError
            If it has another suffix.
        OSError
            If it cannot be written, e.g. because the disk is full. An existing file is kept.
        """
        write_index_file(self.table, path, lambda: self.digest)

    def __getstate__(self) -> dict[str, Any]:
        return {"table": self.table}  # without the mapped file

    # ---- Contents --------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels; () if there are none.

        They are stored in the metadata of the table, and so also in an Index file.
        """
        return classes_of(self.table)

    @property
    def category_ids(self) -> tuple[int, ...]:
        """Ids of `classes` in the file of `from_coco`, in the order of labels; otherwise ().

        ``index.category_ids[label]`` is the category_id for COCO's evaluation.
        """
        return category_ids_of(self.table)

    @property
    def window_size(self) -> tuple[int, int] | None:
        """(height, width) in pixels of the windows of `cutouts` or `each_window`; otherwise None.

        It is stored like `classes`, and removed if columns ``y`` and ``x`` get other values. A
        Loader cuts out these windows by default.
        """
        windows = windows_of(self.table)
        return None if windows is None else windows.size

    @property
    def outside(self) -> Outside | None:
        """Treatment of windows that cross an edge, as passed to `cutouts`; otherwise None.

        It is stored with `window_size`, and a Loader uses it by default.
        """
        windows = windows_of(self.table)
        return None if windows is None else windows.outside

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts of a sample; () if a sample is one file."""
        return schema.part_names(self.table)

    @property
    def frames(self) -> Frames:
        """The `channels` and `offsets`, and the names of the resulting parts."""
        return frames_of(self.table)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels of a sample; () for one channel without a name."""
        return self.frames.channels

    @property
    def offsets(self) -> tuple[str, ...]:
        """Time of each frame of a sequence minus that of the sample, e.g. ``-24min``; otherwise ().

        They are stored like `classes`, with the `channels`.
        """
        return self.frames.offsets

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return as_text(self.table)

    def _repr_html_(self) -> str:
        return as_html(self.table)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> pa.ChunkedArray: ...
    @overload
    def __getitem__(self, key: slice | NDArray[Any] | Sequence[int] | Sequence[bool]) -> Self: ...
    def __getitem__(self, key: Any) -> Any:
        """Return a row, a column, or an Index of some rows.

        Parameters
        ----------
        key : int, str, slice or array
            Number of a row, negative from the end; name of a column; or rows, as for `select`.

        Returns
        -------
        dict, pyarrow.ChunkedArray or Index
            Values of a row by column; a column; or an Index of the rows.

        Raises
        ------
        IndexError
            If there is no such row.
        KeyError
            If there is no such column.
        """
        if isinstance(key, str):
            schema.check_column(self.table, key)
            return self.table[key]
        if isinstance(key, slice):
            return self.select(range(*key.indices(len(self))))
        if not is_integer(key):
            return self.select(key)
        row = int(key) + len(self) * (key < 0)
        if not 0 <= row < len(self):
            raise IndexError(f"row {key} of an Index of {len(self)} rows")
        (found,) = rows_of(self.table.slice(row, 1))
        return dict(zip(self.table.column_names, found, strict=True))

    def __getitems__(self, _: object) -> NoReturn:
        """Raise TypeError, as only PyTorch's DataLoader calls this method, for samples."""
        raise TypeError(
            "an Index lists images, and does not read them: replace the DataLoader by a Loader, "
            "such as Loader(fits_pipeline, index, batch_size=16)"
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of its values by column."""
        names = self.table.column_names
        for start in range(0, len(self), _ROWS_AT_A_TIME):
            for row in rows_of(self.table.slice(start, _ROWS_AT_A_TIME)):
                yield dict(zip(names, row, strict=True))

    def __contains__(self, name: object) -> bool:
        """Return whether there is a column of this name."""
        return name in self.table.column_names

    def head(self, count: int = 5) -> Self:
        """Return the Index of the first rows, at most `count`, an integer from 1 on."""
        check_integer("count", count, 1)
        return self[:count]

    def to_pandas(self) -> Any:
        """Return the table as a pandas.DataFrame."""
        return self.table.to_pandas()

    def path(self, row: int) -> str:
        """Return the path of a row."""
        return str(self._value("path", row))

    def name(self, row: int) -> str:
        """Return the path of a row, and for a span of a file the span's first byte and end."""
        return LOCAL.at(self.path(row), *(self._value(name, row) for name in SPAN)).name

    def hdu(self, row: int) -> int | None:
        """Return the HDU of a row, or None."""
        number = self._value("hdu", row)
        return None if number is None else int(number)

    def plane(self, row: int) -> int | None:
        """Return the plane of a row, or None."""
        number = self._value("plane", row)
        return None if number is None else int(number)

    def _value(self, name: str, row: int) -> Any:
        if self._file is not None:
            return getattr(self._rows.row(row), name)
        return self.table[name][row].as_py() if name in self.table.column_names else None

    @cached_property
    def _rows(self) -> Columns:
        """Rows of a mapped Index. Unlike PyArrow, Columns check the offsets of a damaged file."""
        return self.columns()

    # ---- From other Indexes ----------------------------------------------------------------------

    def select(self, rows: ArrayLike) -> Self:
        """Return an Index of some rows, in the given order.

        Parameters
        ----------
        rows : array_like, shape (k,) of int, or (len,) of bool
            Row numbers, counted from 0, or a mask.

        Raises
        ------
        IndexError
            If a row does not exist. Negative numbers do not count from the end.
        TypeError
            If `rows` are neither row numbers nor a mask.
        ValueError
            If a mask has another shape, or no row is chosen.
        """
        return type(self)(selected(self.table, rows))

    def where(self, condition: str) -> Self:
        """Return an Index of the rows for which a condition is true, in order.

        Parameters
        ----------
        condition : str
            SQL expression on the columns, in DuckDB's dialect, e.g. ``"wavelnth = 171 AND exptime >
            1.9"``. Names of columns are as in the Index, in any case, or FITS keywords in double
            quotes, such as ``"DATE-OBS"`` for ``date_obs``. The expression can reach only the
            table. A row is left out if the expression is null, e.g. because a value is missing. NaN
            is a missing value, too: ``flux IS NULL`` finds it. Dates and times without a time zone
            are in UTC.

        Raises
        ------
        ModuleNotFoundError
            If DuckDB is not installed; it is in the extra ``cli``.
        TypeError
            If the condition is not text.
        ValueError
            If the condition is not an expression, if its values are not bools, if no row matches,
            or if names of columns differ only in case. Also if its result could vary, because of a
            sample, a function such as ``random`` or ``today``, or a table function.
        """
        rows = matching(self.table, condition)
        if not len(rows):
            raise ValueError(f"where {condition!r} matches none of {len(self)} rows")
        return self.select(rows)

    def split(
        self,
        fractions: Mapping[str, float],
        *,
        by: str | TimeBlocks | TimeOrder | None = None,
        seed: int = 0,
    ) -> dict[str, Self]:
        """Return an Index for each part, e.g. for training, validation and test.

        The part of a row depends only on its value of `by`, so it stays the same when files are
        added, removed or reordered. Rows with the same value are in the same part.

        Parameters
        ----------
        fractions : mapping of str to float
            Names and relative sizes of the parts, e.g. ``{"train": 0.8, "val": 0.1, "test": 0.1}``.
            These are expected values: with more distinct values of `by`, sizes are closer to them.
        by : str, TimeBlocks or TimeOrder, optional
            Column of text, bytes, integers, bools or times. Rows with the same value, e.g. the same
            patient or night, stay together. Or blocks of time, see `TimeBlocks`; or parts in the
            order of time, see `TimeOrder`: rows in their gaps are in no part, and the log counts
            them. By default ``key`` for samples in containers, otherwise ``path``. Parts are not
            stratified: a small part may lack a class.
        seed : int
            In [0, 2**64). Each seed makes another split, except with `TimeOrder`.

        Raises
        ------
        KeyError
            If there is no such column.
        TypeError
            If the column has another type.
        ValueError
            If the fractions do not add up to 1, a value is null, or a part would get no row. Then
            the message names one of the next 100 seeds with rows in each part, if there is one.

        Notes
        -----
        The hash is 64-bit BLAKE2b of the value in UTF-8, big-endian, with the seed as little-endian
        salt. Integers are hashed in decimal, bools as 0 and 1, times in nanoseconds since 1970. A
        part gets the hashes in its share of [0, 2**64), in the order of the fractions. With
        ``path``, the part depends on the whole path, so a copy of the archive in another folder is
        split differently. Save the parts, and use `moved` for the copy; or split by a column of
        relative paths.

        Blocks of time 10 n to 10 n + 9 are run n. So that each run has nearly the desired
        fractions, its hashes are in different tenths of [0, 2**64), in random order, and the hashes
        of runs 2 n and 2 n + 1 are in different twentieths. Let h(n) be ``mix(n *
        0x9e3779b97f4a7c15 + start)`` of SplitMix64, where start is the hash of no bytes, and let r
        be the rank of h(block) in its run. Then ``half = (mix(h(run // 2) + r) + run) % 2`` is the
        half of the tenth, and the hash is ``(2 * r + half) * (2**64 // 20) + h(block) % 2**32 *
        (2**32 // 20)``.
        """
        parts = split_rows(self.table, fractions, by, seed)
        return {name: self.select(rows) for name, rows in parts.items()}

    @classmethod
    def concat(cls, indexes: Iterable[Index], *, fill: bool = False) -> Self:
        """Return an Index of the rows of several Indexes, one after the other.

        Rows in several Indexes are repeated. Numbers of different types are promoted to int64, or
        to float64 if one type is a float.

        Parameters
        ----------
        indexes : iterable of Index
            At least one.
        fill : bool
            Fill missing columns with null, instead of raising an error.

        Raises
        ------
        TypeError
            If one of them is not an Index.
        ValueError
            If there is no Index, or they have different columns (without `fill`), incompatible
            types of a column, labels of different classes, samples with different `offsets`, or
            arrays with different orders of axes.
        """
        if isinstance(indexes, Index) or not isinstance(indexes, Iterable):
            given = "one Index" if isinstance(indexes, Index) else repr(indexes)
            raise TypeError(f"concat takes a sequence of Indexes, as [first, second], got {given}")
        several = list(indexes)
        for index in several:
            if not isinstance(index, Index):
                raise TypeError(f"concat takes a sequence of Indexes, got a {type(index).__name__}")
        return cls(joined([index.table for index in several], fill=fill))

    def group(
        self,
        channels: Sequence[Any] | None = None,
        *,
        by: str = Grouping.by,
        time: str = Grouping.time,
        tolerance: float | str | Quantity = Grouping.tolerance,
        missing: Missing = Grouping.missing,
        cadence: float | str | Quantity | None = Grouping.cadence,
        offsets: Sequence[float | str | Quantity] | None = Grouping.offsets,
    ) -> Self:
        """Group files that are close in time into samples with one file for each channel.

        With `offsets` a sample has these files at several times: it is a sequence of frames.

        Parameters
        ----------
        channels : sequence, optional
            Values of the column `by`. Without `cadence` the first channel is the reference: each of
            its files makes a sample. With None all files are one channel, `by` is ignored, and
            `offsets` are required.
        by : str
            Column that identifies the channel: numbers or text.
        time : str
            Column of times. For AIA use T_OBS, the middle of the exposure: DATE-OBS is the start,
            and the automatic exposure control changes the length.
        tolerance : float, str or Quantity
            Largest time difference between a file and its sample, inclusive: in seconds, or a
            duration for ``astropy.units.Quantity``, e.g. ``"12 s"``. The default is the cadence of
            AIA's EUV channels.
        missing : {"drop", "keep"}
            Drop samples that lack a channel, or keep those that have at least one.
        cadence : float, str or Quantity, optional
            Put samples at the multiples of this duration since 1970-01-01T00:00, instead of at the
            times of the first channel. At least twice the tolerance.
        offsets : sequence of float, str or Quantity, optional
            Time of each frame minus the time of the sample, e.g. ``("-24min", "-12min", "0",
            "+12min")``, in the order of the frames. 0 is not required. Offsets must be more than
            twice the tolerance apart.

        Returns
        -------
        Index
            Index with a row for each sample, in order of time. It has ``path`` (and ``hdu`` and
            ``plane``, if this Index has them) of the first existing part; ``time``; and for each
            channel e.g. ``path_171``, ``hdu_171`` and ``plane_171`` (null if missing) and
            ``dt_171`` (float64, file minus sample in seconds, NaN if missing). With `offsets` the
            names are ``path_171-24min``, ``path_171+0`` and so on; without `channels` they are
            ``path_-24min`` and ``path_0``. The order is all channels of the first offset, then all
            channels of the second, and so on. See the attributes `channels` and `offsets`.

        Raises
        ------
        KeyError
            If there is no column `by` or `time`.
        TypeError
            If `time` is not a column of times.
        ValueError
            If a channel has no file, no sample is left, an argument is out of range, or the rows
            are already samples of several files.

        Notes
        -----
        A sample takes the nearest file of each channel, and the earlier of two equally near files.
        A file is in at most one sample. If it is the nearest file of several samples, the nearest
        sample gets it (the later of two equally near samples), and the other samples lack the
        channel. Of files with the same channel and time, the first row is used. Rows without a time
        are left out. The log has warnings with the numbers of both kinds of rows, and at level INFO
        the number of other rows that are in no sample. It also counts dropped samples and their
        missing channels, in a warning if more than half of the samples are dropped.

        With `offsets` each frame is also the nearest file, but a file may be in many samples. Parts
        of a `split` share no file if the split is by ``TimeBlocks("time", block, gap)`` or
        ``TimeOrder("time", gap)``, and `gap` is at least the last offset minus the first, plus
        twice the tolerance. Otherwise the log counts the shared frames.

        `by` and `tolerance` have the meaning of pandas: this is ``merge_asof`` with
        ``direction="nearest"``, but each file is used once.
        """
        grouping = Grouping(
            channels=channels,
            by=by,
            time=time,
            tolerance=tolerance,
            missing=missing,
            cadence=cadence,
            offsets=offsets,
        )
        samples, dropped = grouping.apply(self.table)
        dropped.log()
        return type(self)(samples)

    def each_plane(self, planes: Iterable[int]) -> Self:
        """Return an Index with one row for each plane of each row, row after row.

        Parameters
        ----------
        planes : iterable of int
            Plane numbers from 0 on, e.g. ``range(5)`` for the first five. The files are not checked
            for these planes; ``dali-pipelines index --planes all`` checks them.

        Raises
        ------
        ValueError
            If `planes` is empty or has a negative number, if the Index already has planes, or if
            its rows are samples of several files.
        """
        return type(self)(plane_rows(self.table, planes))

    def each_window(
        self,
        crop: int | Sequence[int],
        image: Sequence[int] | Sequence[str],
        *,
        stride: int | Sequence[int] | None = None,
    ) -> Self:
        """Return an Index with one row for each window of a grid over each image.

        Its columns ``y`` and ``x`` are the first row and column of each window. A Loader cuts out
        these windows, as with ``window="row"`` and this `crop`. If the stride is at most the crop,
        windows cover the whole image: the last window on an axis ends at the edge, and may overlap
        the one before.

        Parameters
        ----------
        crop : int or sequence of int
            (height, width) of the windows in pixels, or one number for both.
        image : sequence of int or str
            (height, width) of all images in pixels, or the names of two columns for each image,
            e.g. ``("height", "width")``.
        stride : int or sequence of int, optional
            Pixels from one window to the next along rows and columns; by default the crop.

        Raises
        ------
        KeyError
            If there is no such column.
        ValueError
            If an image is smaller than the crop, a size is not a positive integer, or the Index
            already has a column ``y`` or ``x``.
        """
        return type(self)(window_rows(self.table, crop, image, stride))

    def each_clip(self, frames: int, *, stride: int = 1, every: int | str | None = None) -> Self:
        """Return an Index with a row for each clip of each video of `scan_videos`.

        Its column ``frame`` is the first frame of each clip, counted from 0, and ``packets`` has
        only the packets of the clip. Pass the same `frames` and `stride` to the Loader. The last
        clip of a video ends at its last frame, and may overlap the one before. If rows are parts of
        videos, by ``start`` and ``duration`` in seconds, their clips lie in these.

        Parameters
        ----------
        frames : int
            Frames of a clip.
        stride : int
            Frames of the video from one frame of the clip to the next.
        every : int or str, optional
            Step from one clip to the next: a number of frames, or seconds such as ``"2s"``; by
            default ``frames * stride``, without gap or overlap.

        Raises
        ------
        ValueError
            If the Index has no videos, already has a column ``frame``, or has a video, or part of
            one, shorter than a clip.
        """
        return type(self)(clip_rows(self.table, frames, stride, every))

    def moved(self, old: str | os.PathLike[str], new: str | os.PathLike[str]) -> Self:
        """Return an Index of the same files after they were moved or copied to another folder.

        Parameters
        ----------
        old, new : path
            Folders, or URLs such as ``s3://bucket/archive``. Paths below `old` become paths below
            `new`, also for parts and in columns such as ``mask_path``. Other paths stay.

        Returns
        -------
        Index
            Index with the same `digest` if all files were below `old`, so that a saved state can be
            loaded. The files are not checked. For files at URLs, ``etag`` and ``file_bytes`` are
            null until `with_versions` adds them.

        Raises
        ------
        ValueError
            If no path is below `old`, `old` or `new` is empty, or `new` is a URL that is not
            supported.
        """
        return type(self)(moved(self.table, os.fspath(old), os.fspath(new)))

    def with_column(self, name: str, values: ArrayLike | Sequence[Any] | pa.Array) -> Self:
        """Return an Index with one more column, or with other values in an existing column.

        Parameters
        ----------
        name : str
            Name of the column. Some names locate files (``path``, ``hdu``, ...), see `Index`.
        values : array_like or pyarrow.Array, shape (len,)
            Numbers, bools, text, bytes or times. None, NaT, missing values of pandas, and masked
            values of NumPy or astropy become null. Or an array of shape (len, k), with k numbers
            for each row. Or for each row a list of numbers, or an array of shape (n, k), e.g. n
            boxes of k = 4 numbers; [] for none. For videos, each row may have a list of arrays or
            mask paths, one for each frame. The unit of a Quantity is lost.

        Raises
        ------
        TypeError
            If the name is not text.
        ValueError
            If there is not one value for each row, values differ in type, or the name is empty.

        Notes
        -----
        With new values of ``label`` or ``labels`` the Index loses its `classes`, because the labels
        may have other classes. With new ``y`` or ``x`` it loses its `window_size`, so that any crop
        can be used.
        """
        return type(self)(replaced(self.table, name, values))

    def with_nearest(
        self,
        catalogue: Catalogue,
        tolerance: float | str | Quantity,
        *,
        time: str = "t_obs",
        catalogue_time: str = "time",
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> Self:
        """Return an Index with columns of the nearest row in time of a table.

        For labels with their own times, such as fluxes of GOES.

        Parameters
        ----------
        catalogue : path, astropy Table or pyarrow Table
            A row for each time, in any order. Files are CSV, ECSV, Parquet, FITS tables or
            VOTables.
        tolerance : float, str or Quantity
            Largest time difference between a row of the table and an image: in seconds, or a
            duration such as ``"12 min"``.
        time : str
            Column of times of the Index; after `group` it is ``time``.
        catalogue_time : str
            Column of times of the table, in UTC. astropy's Time is converted to UTC. Text is ISO
            8601 in UTC, or ends with ``_TAI``; empty text is a missing time. A leap second counts
            as the second after it. In FITS tables, only pairs of Julian dates, as astropy writes
            them, are times; numbers since MJDREF are not.
        columns : sequence of str, or mapping of str to str, optional
            Columns of the table to take, by default all except its times. A mapping renames them.
            Without a mapping, ``y`` and ``x`` become ``catalogue_y`` and ``catalogue_x``, because
            ``y`` and ``x`` of an Index are corners of windows.

        Returns
        -------
        Index
            Index with the same rows. New columns are null in rows without a time, and in rows
            without a row of the table within the tolerance. The earlier of two equally near rows of
            the table is used.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        KeyError
            If there is no such column. The message lists the existing columns.
        TypeError
            If a column does not have times, or an Index cannot hold a column of this type.
        ValueError
            If the tolerance is not a duration, if two columns would have the same name, if a name
            locates files (``hdu``, ``plane``, text in ``path_...``), or if a time of the table is
            invalid or not from 1678 to 2261.

        Notes
        -----
        The log counts the rows without values.
        """
        return type(self)(
            with_nearest(
                self.table,
                Objects(catalogue),
                tolerance,
                time=time,
                object_time=catalogue_time,
                columns=columns,
            )
        )

    def with_versions(self, storage: Storage | None = None) -> Self:
        """Return the Index with missing ETags and lengths of remote objects.

        `scan` and functions that read the objects, such as `with_tiles`, do this themselves;
        `from_csv` and `from_paths` make no requests. With ETags, changed objects are rejected when
        they are read, and a cache keeps bytes for the next run.

        Parameters
        ----------
        storage : Storage, optional
            Settings of the requests. There is a request for the first byte of each object, with
            ``storage.concurrency`` requests at a time.

        Returns
        -------
        Index
            Index with ``etag`` and ``file_bytes`` of the objects in ``path``. For a part
            ``path_171`` the names are ``etag_171`` and ``file_bytes_171``; for ``mask_path`` they
            are ``mask_etag`` and ``mask_file_bytes``. Existing values are kept. If the server sends
            no ETag, it is made from Last-Modified, such as ``W/"2026-11-27T19:16:39"``; without
            Last-Modified it is null. Both columns are null for objects that cannot be read, and the
            log counts these.

        Raises
        ------
        OSError
            If no object can be read, for lack of an answer or of access.
        ValueError
            If a column of these names has another meaning.
        """
        return type(self)(with_versions(self.table, storage or Storage()))

    # ---- For a Loader ----------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of paths, HDUs and planes, in order. A saved state must have the same digest.

        Paths are relative to their common folder, so a moved or copied archive has the same digest,
        also in a bucket. Columns ``y`` and ``x``, the corners of windows, are included if both are
        integers or both are floats.
        """
        return schema.digest(self.table) if self._file is None else self._file.digest

    def columns(
        self,
        names: Iterable[str] = (),
        *,
        parts: Iterable[str] = (),
        notes: Iterable[str] = (),
        targets: Iterable[str] = (),
        of_frames: Iterable[str] = (),
    ) -> Columns:
        """Return columns for reader processes: path, existing hdu and plane, and the named columns.

        Parameters
        ----------
        names : iterable of str
            Columns of numbers, or of lists with a fixed length.
        parts : iterable of str
            Parts to read, for samples of several files.
        notes : iterable of str
            Columns of bytes or numbers for the Reader. Missing columns are ignored.
        targets : iterable of str
            Columns of text, lists of numbers, or numbers, for targets.
        of_frames : iterable of str
            Columns of `targets` with a list of values for each row, one for each frame.

        Raises
        ------
        KeyError
            If there is no such column or part.
        TypeError
            If a column of `names` is not numeric (bool, integer, float or time, or lists of a fixed
            length), or has nulls that cannot become NaN; if a column of `notes` has neither bytes
            nor numbers; or if lists hold values other than numbers.

        Notes
        -----
        Columns are copied to a temporary file, which all users share. Columns of an ``.arrow`` file
        of `save` stay in that file, except bools, dates, times in units other than ns, and lists of
        a fixed length.
        """
        known = set(self.table.column_names)
        present = tuple(name for name in notes if name in known)
        parts = tuple(parts)
        of_parts = (f"{name}_{part}" for name in present for part in parts)
        stored = (*present, *(name for name in of_parts if name in known))
        wanted = tuple(names), parts, stored, tuple(targets), tuple(of_frames)
        if (columns := self._shared.get(wanted)) is None:
            found = reader_columns(self.table, self._file, *wanted)
            columns = self._shared[wanted] = Columns(found, present)
        return columns

    @cached_property
    def _shared(self) -> WeakValueDictionary[tuple[tuple[str, ...], ...], Columns]:
        """Columns that are in use, e.g. by the pipelines of several devices."""
        return WeakValueDictionary()

    def running_weights(self, name: str) -> RunningWeights:
        """Return a column of weights for reader processes, which draw rows in proportion to them.

        Raises
        ------
        KeyError
            If there is no such column.
        TypeError
            If it is not numeric.
        ValueError
            If a weight is null, negative or not finite, or all weights are 0.

        Notes
        -----
        Running sums (float64) are written to a temporary file, which all users share.
        """
        if (weights := self._shared_weights.get(name)) is None:
            weights = self._shared_weights[name] = running_weights(self.table, name)
        return weights

    @cached_property
    def _shared_weights(self) -> WeakValueDictionary[str, RunningWeights]:
        return WeakValueDictionary()

    def row_values(self, names: Iterable[str]) -> RowValues:
        """Return columns that cannot be tensors, such as text, to look up the values of rows.

        Names of columns that can be tensors are ignored. Raises KeyError for a missing column, and
        TypeError for lists of numbers with nulls inside.
        """
        return RowValues(self.table, names, None if self._file is None else self._file.file)
