"""Settings of ``dali-pipelines index``."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from dali_pipelines.cli.flag_types import (
    at_home,
    fractions,
    hdu_name,
    location,
    plane_numbers,
    positions,
)
from dali_pipelines.cli.index.cutouts import SETTINGS, CutoutFlags
from dali_pipelines.cli.index.output import is_table
from dali_pipelines.cli.options import option
from dali_pipelines.cli.shared_flags import ClusterFlags, ProcessFlags, StorageFlags
from readers.index.grouping.groups import Grouping, Missing

if TYPE_CHECKING:
    from readers import TimeBlocks, TimeOrder

KEYS = "DATE-OBS,T_OBS,WAVELNTH,EXPTIME,QUALITY"
"""Header keys that are kept by default."""
_OF_FILES = ("keys", "inherit", "hdu", "hdus", "planes", "class_folders", "verify", "rejected")
_OF_IMAGES = (
    *("keys", "inherit", "rules", "hdu", "hdus", "planes", "container", "image"),
    *("mcu_rows", "fits_tiles", "cutouts", "group", "offsets"),
    *("num_shards", "shard_id", "join", "executor", "moved"),
)
"""Flags that exclude --audio and --video."""
_NOT_OF_ARRAYS = (
    *("keys", "inherit", "rules", "hdu", "hdus", "planes", "audio", "video", "class_folders"),
    *("classes",),
    *("container", "image", "mcu_rows", "fits_tiles", "verify", "cutouts", "moved"),
    *("num_shards", "shard_id", "join", "executor"),
)
"""Flags that exclude --variables."""
_OF_ARRAYS = ("num_shards", "shard_id", "join")
_OF_GROUPS = ("by", "time", "tolerance", "missing", "cadence")
"""Settings of samples of several files, with `group` or `offsets`."""
_OF_SPLITS = ("split_by", "block", "time_order", "gap", "split_seed")


def _hdu_names(text: str) -> tuple[int | str, ...]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or any(name.startswith("-") for name in names):
        raise argparse.ArgumentTypeError(
            f"expected numbers of HDUs and EXTNAMEs, as 1,4,7 or 'SCI*', got {text!r}"
        )
    return tuple(int(name) if name.isdecimal() else name for name in names)


def _folder(text: str) -> str:
    return location(str(at_home(text)))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _keys(text: str) -> list[str]:
    return [key.upper() for key in _words(text)]


@dataclass(frozen=True, kw_only=True)
class IndexConfig(CutoutFlags, StorageFlags, ProcessFlags, ClusterFlags):
    """Flags of ``index``."""

    COMMON: ClassVar[str] = (
        "data out keys rules where hdu group split class_folders audio video variables config"
    )
    GROUPS: ClassVar[Mapping[str, str]] = {
        "input and output": "data out overwrite rejected where moved verify num_processes",
        "FITS files": "keys inherit rules hdu hdus planes fits_tiles",
        "encoded images and containers": "mcu_rows class_folders classes container image",
        "recordings and videos": "audio trim_db video",
        "arrays in chunks": "variables dim isel",
        "cutouts of a catalogue": "cutouts size outside subpixel origin x y ra dec columns",
        "samples of several files": "group offsets by time tolerance missing cadence",
        "parts for training and validation": "split split_by block time_order gap split_seed",
        "objects of S3, Google Cloud Storage and web servers": "endpoint region profile anonymous "
        "retries request_timeout concurrency",
        "many machines": "executor num_shards shard_id join",
    }

    data: str = option(
        None,
        "folder (with its subfolders), glob in quotes, file, or URL (with all objects below it); "
        "or an Index or a .csv, to filter and group its rows",
        positional=True,
        type=location,
    )
    out: str = option(
        "index.parquet",
        "file to write, .parquet (compact) or .arrow (opens at once)",
        short="-o",
        metavar="OUT",
    )
    keys: Sequence[str] | None = option(
        None, f"header keys to keep, with commas (default: {KEYS})", type=_keys, metavar="A,B,..."
    )
    inherit: bool = option(
        False,
        "if the header of an image lacks a key, take it from the primary header (HDU 0), even "
        "without INHERIT = T",
    )
    rules: str | None = option(
        None,
        "drop files that are unfit as AIA level 1 or HMI, and keep the header keys that decide it",
        choices=("aia",),
    )
    where: str | None = option(
        None, "SQL condition on the columns; other rows are dropped", metavar="EXPR"
    )
    hdu: int | str | tuple[str, int] | None = option(
        None,
        "HDU of the image: number, EXTNAME, or EXTNAME,EXTVER; all: a row for each HDU with an "
        "image (default: the first)",
        type=hdu_name,
        metavar="N|NAME|all",
    )
    hdus: tuple[int | str, ...] | None = option(
        None,
        "a row for each of these HDUs of a file: numbers, and EXTNAMEs, in quotes, with * for any "
        "characters; files that lack one are rejected",
        type=_hdu_names,
        metavar="N,NAME*,...",
    )
    planes: tuple[int, ...] | Literal["all"] | None = option(
        None,
        "a row for each of these planes of images with more than two axes, from 0 on",
        type=plane_numbers,
        metavar="N,N,...|all",
    )
    moved: tuple[str, str] | None = option(
        None,
        "for an Index whose files were moved or copied: the old and the new folder or URL",
        type=_folder,
        nargs=2,
        metavar=("OLD", "NEW"),
    )
    audio: bool = option(
        False,
        "DATA are recordings, or a manifest of them (NeMo, Common Voice, Kaldi, LibriSpeech): add "
        "their rate, channels, duration and format",
    )
    variables: tuple[str, ...] | None = option(
        None,
        "DATA are a Zarr store, or HDF5 or netCDF4 files: add the positions of the chunks of these "
        "variables; all: those with two axes besides --dim and --isel",
        type=_words,
        metavar="A,B,...|all",
    )
    dim: str | None = option(
        None,
        "--variables: axis with a row for each position (default: time for Zarr; each HDF5 or "
        "netCDF4 file is a row)",
        metavar="NAME",
    )
    isel: dict[str, Any] | None = option(
        None,
        "--variables: positions along further axes, such as level=3; several, as level=0,5 or "
        "level=0:9, are channels",
        type=positions,
        metavar="NAME=N,...",
    )
    class_folders: bool = option(False, "each subfolder is a class: add label, class_name")
    video: bool = option(
        False,
        "DATA are videos: add their frames, fps, size, duration, codec, and a table of packets",
    )
    trim_db: float | None = option(
        None,
        "--audio: decode the recordings, and cut off ends that are this much quieter than the "
        "loudest part, such as 60",
        type=float,
        metavar="DB",
    )
    classes: str | None = option(
        None,
        "--class_folders: Index of the training files, to give classes the same labels",
        metavar="INDEX",
    )
    container: str | None = option(
        None,
        "kind of containers in DATA: a row for each image in them (default: by suffix)",
        choices=("tar", "tfrecord", "recordio", "lmdb"),
    )
    image: str | None = option(
        None,
        "extension of the image in a sample of tars, or its feature in TFRecord files",
        metavar="NAME",
    )
    mcu_rows: bool = option(
        False, "add the MCU index of JPEG files: only the rows of a window are read and decoded"
    )
    fits_tiles: bool = option(
        False, "add the tile offsets of FITS files: a remote window takes one round trip"
    )
    verify: bool = option(
        False,
        "decode each file, check its checksums and the entropy-coded data of JPEGs, and leave out "
        "damaged files",
    )
    rejected: str | None = option(
        None,
        "write a list of unreadable files, files that --rules drops, and objects without a row",
        metavar="FILE.csv",
    )
    overwrite: bool = option(False, "replace OUT even if this command did not write it")
    group: tuple[str, ...] | None = option(
        None,
        "make samples of several files near one time: names of the channels; each file of the "
        "first channel makes a sample",
        type=_words,
        metavar="A,B,...",
    )
    offsets: tuple[str, ...] | None = option(
        None,
        "make sequences: times of the frames relative to the sample, for each channel of --group, "
        "as -24min,-12min,0,12min",
        type=_words,
        metavar="TIME,...",
    )
    by: str = option(Grouping.by, "--group: column with the channel", metavar="COLUMN")
    time: str = option(Grouping.time, "--group: column of times", metavar="COLUMN")
    tolerance: str = option(
        f"{Grouping.tolerance:g}",
        "--group: largest distance of a file from its sample, in seconds or as '1min'",
        metavar="TIME",
    )
    missing: str = option(
        Grouping.missing,
        "--group: leave out samples that lack a channel, or keep them",
        choices=get_args(Missing),
    )
    cadence: str | None = option(
        None,
        "--group: time from sample to sample, as '12min', in place of a sample for each file of "
        "the first channel",
        metavar="TIME",
    )

    split: dict[str, float] | None = option(
        None,
        "write parts in place of OUT, such as OUT.train.parquet, with about these shares of the "
        "rows",
        type=fractions,
        metavar="NAME=SHARE,...",
    )
    split_by: str | None = option(
        None,
        "--split: column that decides the part of a row (default: key for samples in containers, "
        "else path)",
        metavar="COLUMN",
    )
    block: str | None = option(
        None,
        "--split: cut the times of --split_by into blocks of this length, as '30d', and keep them "
        "whole",
        metavar="TIME",
    )
    time_order: bool = option(
        False,
        "--split: split by the times of --split_by: the first part has the earliest rows, the last "
        "one the latest",
    )
    gap: str | None = option(
        None,
        "--block, --time_order: least distance in time between parts; rows in between are left out",
        metavar="TIME",
    )
    split_seed: int = option(0, "--split: seed of the split", metavar="N")
    join: bool = option(
        False, "write OUT from the results of the --num_shards processes of a job array"
    )

    def __post_init__(self) -> None:
        StorageFlags.__post_init__(self)
        if not self.join:
            ClusterFlags.__post_init__(self)
        elif self.num_shards is None or self.shard_id is not None:
            raise ValueError("--join needs --num_shards, and no --shard_id")
        data, is_scan = self.data, not is_table(self.data)
        arrays, cuts = self.variables is not None, self.cutouts is not None
        groups = self.group is not None or self.offsets is not None
        of_tables = ["rejected"] if cuts or self.rules else []
        of_tables += ["rejected", "verify"] if self.audio or self.video else []
        of_files = [name for name in _OF_FILES if name not in of_tables]
        of_cutouts = [name for name in SETTINGS if name != "columns"]
        rules = (
            (["trim_db"], self.audio, "is for recordings: add --audio"),
            (_OF_IMAGES, not self.audio, "is not for recordings: leave it out, or --audio"),
            ((*_OF_IMAGES, "audio"), not self.video, "is not for videos: leave out one"),
            (_NOT_OF_ARRAYS, not arrays, "is not for arrays: leave it out, or --variables"),
            (["container", "image"], is_scan, f"is for containers, and {data} is a table"),
            (["variables"], is_scan, f"is for a scan of arrays, and {data} is a table"),
            ([*of_files, *_OF_ARRAYS], is_scan, f"is for a scan of files, and {data} is a table"),
            (["moved"], not is_scan, f"is for an Index or a .csv, and {data} is neither"),
            (["dim", "isel"], arrays, "needs --variables"),
            (["columns"], cuts or arrays, "needs --cutouts or --variables"),
            (of_cutouts, cuts, "needs --cutouts"),
            (["cutouts"], not groups, "excludes --group and --offsets"),
            (_OF_GROUPS, groups, "needs --group or --offsets"),
            (["classes"], self.class_folders, "needs --class_folders"),
            (["hdus"], self.hdu is None, "excludes --hdu"),
            (_OF_SPLITS, self.split is not None, "needs --split"),
            (["gap"], self.block or self.time_order, "needs --block or --time_order"),
            (["block", "time_order"], self.split_by, "needs --split_by, a column of times"),
            (["time_order"], not self.block, "excludes --block"),
        )
        for names, is_fit, told in rules:
            if not is_fit and (wrong := [name for name in names if name in self.changed]):
                raise ValueError(f"--{wrong[0]} {told}")
        _ = self.grouping, self.parts_by, self.settings, self.arrays  # to check them
        self.check_keys(("label", "class_name") if self.class_folders else ())

    def check_keys(self, columns: Sequence[str]) -> None:
        """Raise ValueError if ``--keys`` make columns that conflict with `columns`."""
        from readers.index.fact_table import check_keys

        try:
            check_keys(self.keys or (), columns)
        except ValueError as error:
            raise ValueError(f"--keys: {error}") from None

    @cached_property
    def changed(self) -> list[str]:
        """Flags with another value than the default."""
        fields = dataclasses.fields(self)
        return [field.name for field in fields if getattr(self, field.name) != field.default]

    @property
    def for_files(self) -> list[str]:
        """Given flags that are only for the scan of files."""
        return [name for name in _OF_FILES if name in self.changed]

    @property
    def header_settings(self) -> dict[str, Any]:
        """Arguments of `file_facts`, which determine the metadata of a file."""
        from readers.index.fact_table import keys_to_read

        names = "hdu", "hdus", "planes", "inherit"
        given = {name: getattr(self, name) for name in names}
        return {"keys": keys_to_read(self.all_keys), **given}

    @cached_property
    def all_keys(self) -> list[str]:
        """Header keys to read: those of the flag and of the rules."""
        keys = _keys(KEYS) if self.keys is None else list(self.keys)
        if self.rules is not None:
            from readers.aia.rules import KEYS as NEEDED

            keys += [key for key in NEEDED if key not in keys]
        return keys

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """Arguments of `Index.scan_arrays` and `Index.from_zarr` that were given; {} without."""
        if self.variables is None:
            return {}
        from readers.index.chunk_rows import check_arguments

        found: dict[str, Any] = {
            "variables": None if self.variables == ("all",) else self.variables,
            "dim": self.dim,
            "isel": self.isel,
            "columns": self.columns and {new: old for old, new in self.columns.items()},
        }
        check_arguments(**found)
        return {name: value for name, value in found.items() if value is not None}

    @cached_property
    def grouping(self) -> Grouping | None:
        """Rule that groups files into samples; None without ``--group`` and ``--offsets``."""
        if self.group is None and self.offsets is None:
            return None
        settings: dict[str, Any] = {name: getattr(self, name) for name in _OF_GROUPS}
        try:
            return Grouping(channels=self.group, offsets=self.offsets, **settings)
        except ValueError as error:
            flag = "offsets" if self.group is None else "group"
            raise ValueError(f"--{flag}: {error}") from error

    @cached_property
    def parts_by(self) -> str | TimeBlocks | TimeOrder | None:
        """Column or times that decide the part of a row, see ``Index.split``."""
        from readers.index.rows.splitting import TimeBlocks, TimeOrder

        if self.split_by is not None and self.time_order:
            return TimeOrder(self.split_by, self.gap or "0")
        if self.split_by is not None and self.block is not None:
            return TimeBlocks(self.split_by, self.block, self.gap or "0")
        return self.split_by
