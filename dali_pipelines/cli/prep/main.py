"""Make level 1.5 FITS files from level 1 files of AIA and HMI, like aiapy's register.

    dali-pipelines prep archive/ -o level15
    dali-pipelines prep archive/ -o calibrated --correction_table V10.txt --exposure --psf

Files keep their names and their subfolders. Pixels beyond the frame get its smallest value. The
header is the header of the file with new coordinates and LVL_NUM 1.5. HISTORY has the steps, and
names and SHA-256 of tables. Finished files are skipped, so an interrupted run can be started again;
OUT/prep.json keeps its settings.

    dali-pipelines prep archive/ -o tiled --tiles 128

With --tiles it instead copies any FITS files, with the same pixels and headers: images of integers
get square RICE_1 tiles, so that a window needs fewer bytes. Floats are copied unchanged.

Many machines can write to one folder, by --executor, or as jobs of an array with --num_shards=N
--shard_id=I.

Files that cannot be read or are unfit are listed, and all others are made. The exit status is 0; 1
if there was such a file, 2 for wrong usage, 130 if interrupted.
"""

# Child processes import this file again: heavy modules are imported in the functions.
from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import uuid4

from dali_pipelines.aia.level15 import Level15
from dali_pipelines.cli.errors import CommandError, command, one_line, refusing
from dali_pipelines.cli.executors import executor_of
from dali_pipelines.cli.flag_types import at_least
from dali_pipelines.cli.options import option, parse, settings_of
from dali_pipelines.cli.prep.targets import claim, targets_of, unfinished_folder
from dali_pipelines.cli.shared_flags import ClusterFlags, FileFlags, ProcessFlags
from dali_pipelines.parallel.interpreter import Crash
from dali_pipelines.parallel.task_map import isolated_map
from readers.messages import install

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from dali_pipelines.cli.prep.targets import Conversion
    from readers.contract import Row


class Maker(Protocol):
    """Makes a file from another one."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the files, for JSON."""
        ...

    def write(self, row: Row, path: str) -> str | None:
        """Write the file; return a remark for the user, or "". ReadError if the source is bad."""
        ...


class Made(NamedTuple):
    """Result of a file."""

    bad: str | None
    """Reason why no file was made, or None."""
    note: str | None = None
    """Remark for the user about the new file."""


SETTINGS = "prep.json"
"""File in the output folder with the settings of the files there."""


@dataclass(frozen=True, kw_only=True)
class PrepConfig(FileFlags, ProcessFlags, ClusterFlags):
    """Flags of ``prep``, the settings of Level15 among them."""

    files: Sequence[str] = option(
        None, "local file, folder, glob in quotes, or Index file", positional=True, nargs="+"
    )
    out: str = option(None, "the folder to write to", short="-o", required=True, metavar="OUT")
    tiles: int | None = option(
        None,
        "lossless copies, with integers in RICE_1 tiles of NxN pixels; 128 is a good choice",
        type=at_least(16),
        metavar="N",
    )
    settings: dict[str, Any] = settings_of(
        Level15,
        "order psf exposure size scale dtype compress quantize_level hdu pointing_table "
        "correction_table",
        scale={"metavar": "ARCSEC"},
        quantize_level={"metavar": "Q"},
        pointing_table={"type": str, "metavar": "FILE"},
        correction_table={"type": str, "metavar": "FILE"},
    )

    def __post_init__(self) -> None:
        ClusterFlags.__post_init__(self)
        if self.tiles is not None and self.settings:
            raise ValueError(
                f"--{next(iter(self.settings))} is for level 1.5, and --tiles makes plain copies"
            )


@command("prep", "interrupted; the same command continues")
def main(argv: Sequence[str] | None = None, *, executor: Executor | None = None) -> int:
    """Run the command; return 0, 1 if a file is bad, 2 for wrong usage, 130 if interrupted.

    With an `executor` its workers make the files.
    """
    config = parse(PrepConfig, argv, __doc__, "prep")
    from readers.index.table import SUFFIXES

    maker = _maker(config)
    targets = targets_of(
        config.files,
        config.out,
        SUFFIXES["fits"],
        hdu=config.settings.get("hdu"),
        every_hdu=bool(config.tiles),
    )
    claim(config.out, SETTINGS, maker.settings(), targets)
    targets = [target for target in targets if config.in_shard(target.row.path)]
    left = [target for target in targets if not os.path.exists(target.path)]
    _report_newer(target for target in targets if os.path.exists(target.path))
    with (
        refusing(OSError, MemoryError, status=1, doing="stopped"),
        unfinished_folder(os.path.abspath(config.out), clean=config.num_shards is None) as folder,
        executor_of(config.executor, executor) as workers,
    ):
        tasks = ((row, path, folder, maker) for row, path in left)
        num_processes = max(1, min(config.num_processes, len(left)))
        with closing(isolated_map(write_file, tasks, num_processes, workers)) as results:
            bad = _report(left, results)
    print(
        f"{len(targets)} files: {len(left) - bad} written, {len(targets) - len(left)} finished "
        f"before, {bad} bad{_sizes(left) if config.tiles else ''}",
        file=sys.stderr,
    )
    return 1 if bad else 0


def _sizes(targets: Sequence[Conversion]) -> str:
    """Return the sizes of the source files, and of the new files."""
    made = [(row.path, path) for row, path in targets if os.path.exists(path)]
    before, after = (sum(os.path.getsize(pair[n]) for pair in made) / 1e6 for n in range(2))
    return f"; {before:.1f} MB before, {after:.1f} MB after"


def _maker(config: PrepConfig) -> Maker:
    if config.tiles is None:
        return _level15(config.settings)
    from dali_pipelines.cli.prep.tiling import Tiling

    return Tiling(config.tiles)


def _level15(settings: Mapping[str, Any]) -> Level15:
    from readers.aia.degradation import CorrectionTable
    from readers.aia.pointing import PointingTable

    if settings.get("psf") and not find_spec("scipy"):
        raise CommandError(f"--psf needs SciPy: {install('aia')}")
    kinds: dict[str, Any] = {"pointing_table": PointingTable, "correction_table": CorrectionTable}
    with refusing(OSError, ValueError):
        tables = {name: kinds[name].read(settings[name]) for name in kinds if name in settings}
        return Level15(**{**settings, **tables})


# ---- The files ---------------------------------------------------------------------------------


def _report_newer(finished: Iterable[Conversion]) -> None:
    """Print the number of finished files that are older than their sources."""
    from readers.messages import printable

    newer = [
        path
        for row, path in finished
        if os.path.exists(row.path) and os.path.getmtime(row.path) > os.path.getmtime(path)
    ]
    if newer:
        print(
            f"{len(newer)} finished files are older than their sources, the first: "
            f"{printable(newer[0])}; remove them to make them again",
            file=sys.stderr,
        )


def _report(targets: Sequence[Conversion], results: Iterable[Made | Crash]) -> int:
    """Wait for the files, list the bad ones, and return their number."""
    from dali_pipelines.cli.progress import Bar
    from readers.messages import printable

    bad = 0
    with Bar(total=len(targets), unit="files") as bar:
        for (row, _), made in zip(targets, results, strict=True):
            if isinstance(made, Crash):
                reason = (
                    "it kills the process that reads it, maybe out of memory: lower --num_processes"
                )
                made = Made(reason)
            if made.bad is not None:
                bar.write(f"bad {printable(row.path)}: {made.bad}", file=sys.stderr)
                bad += 1
            elif made.note:
                note = f"{printable(row.path)}, HDUs not tiled: {made.note}"
                bar.write(note, file=sys.stderr)
            bar.update()
    return bad


def write_file(row: Row, path: str, folder: str, maker: Maker) -> Made:
    """Make one file, all or nothing; until it is complete it has another name in the folder."""
    from readers.errors import ReadError

    # A scheduler may give the task to another worker while this one is still running.
    part = os.path.join(folder, f"{uuid4().hex}.fits")
    try:
        note = maker.write(row, part)
    except ReadError as error:
        return Made(one_line(error.reason))
    except (OSError, MemoryError):  # an error of the folder or machine: all files would fail
        raise
    except Exception as error:  # an unforeseen kind of file
        return Made(one_line(f"{type(error).__name__}: {error}"))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(part, path)
    return Made(None, note)
