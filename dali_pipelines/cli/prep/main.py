"""Make level 1.5 FITS files of AIA level 1 files, and of HMI's, as aiapy's register makes them.

    python scripts/prep.py archive/ -o level15
    python scripts/prep.py archive/ -o calibrated --correction-table V10.txt --exposure --psf

Files keep their names and their subfolders. Beyond the frame is its least pixel. The header is that
of the file, with the new coordinates, LVL_NUM 1.5, and in HISTORY what was done, with names and
SHA-256 of tables. Finished files are skipped, so that a run that was ended can be started again;
OUT/prep.json keeps its settings.

Files that cannot be read or are unfit are listed, and the others are done. The exit status is 0; 1
if there was such a file, 2 for wrong usage, 130 if interrupted.
"""

# Child processes import this file again: what is heavy is imported in the functions.
from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import Refusal, command, one_line
from dali_pipelines.cli.options import Parser, at_least
from dali_pipelines.cli.prep.targets import claim, parts_folder, targets_of
from dali_pipelines.cli.process_pool import Crash, isolated_map

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dali_pipelines.aia.level15 import Level15
    from dali_pipelines.cli.prep.targets import Target
    from readers.contract import Row

SETTINGS = "prep.json"
"""File in the output folder that says what the files there were made with."""


@command("prep", "interrupted; the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if a file was bad, 2 for wrong usage, 130 if interrupted."""
    options = _options(argv)
    from readers.index.table import SUFFIXES

    settings = _settings(options)
    targets = targets_of(options.files, options.out, SUFFIXES["fits"])
    claim(options.out, SETTINGS, settings.settings(), targets)
    left = [target for target in targets if not os.path.exists(target.path)]
    try:
        with parts_folder(options.out) as parts:
            bad = _write(left, parts, settings, options.num_processes)
    except (OSError, MemoryError) as error:
        raise Refusal(f"stopped: {error}", 1) from error
    print(
        f"{len(targets)} files: {len(left) - bad} written, {len(targets) - len(left)} finished "
        f"before, {bad} bad",
        file=sys.stderr,
    )
    return 1 if bad else 0


# ---- The command line --------------------------------------------------------------------------


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="dali-pipelines prep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="IN", help="file, folder, glob in quotes, or Index file")
    add("-o", "--out", required=True, metavar="OUT", help="the folder to write to")
    add("--order", type=int, choices=(1, 3), default=3, help="of the spline (default: 3)")
    add(
        "--pointing-table",
        "--pointing_table",
        metavar="FILE",
        help="master pointing table, CSV or ECSV",
    )
    add("--psf", action="store_true", help="deconvolve, channels from 94 to 335")
    add(
        "--correction-table",
        "--correction_table",
        metavar="FILE",
        help="divide by the degradation of this table",
    )
    add("--exposure", action="store_true", help="divide by the exposure time: DN/s")
    add("--size", type=at_least(1), metavar="N", help="pixels along the edges (the frame's)")
    add("--scale", type=_positive, metavar="ARCSEC", help="of a pixel (0.6, as aiapy)")
    add("--dtype", choices=("int16", "float32"), help="int16 of integers that are not divided")
    add("--compress", choices=("rice", "none"), help="of int16 rice, lossless; of float32 none")
    add(
        "--quantize_level",
        type=_positive,
        default=16.0,
        metavar="Q",
        help="float32 in rice: steps of 1/Q of the noise (16)",
    )
    add("--hdu", type=at_least(0), metavar="N", help="HDU of the image, default: first with one")
    cores = len(os.sched_getaffinity(0))
    add("--num_processes", type=at_least(1), metavar="N", default=cores, help="default: all cores")
    return parser.parse_args(argv)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _settings(options: argparse.Namespace) -> Level15:
    from dali_pipelines.aia.level15 import Level15
    from readers.aia.degradation import CorrectionTable
    from readers.aia.pointing import PointingTable

    if options.psf:
        _check_scipy()
    found = {field.name: getattr(options, field.name) for field in dataclasses.fields(Level15)}
    read: dict[str, Callable[[str], Any]] = {
        "pointing_table": PointingTable.read,
        "correction_table": CorrectionTable.read,
    }
    try:
        for name, table in read.items():
            if found[name] is not None:
                found[name] = table(found[name])
        return Level15(**found)
    except (OSError, ValueError) as error:
        raise Refusal(error) from error


def _check_scipy() -> None:
    try:
        import scipy.fft  # noqa: F401  only to see whether it is there
    except ImportError as error:
        raise Refusal(f"--psf: {error}: install what AIA needs, pip install '.[aia]'") from error


# ---- The files ---------------------------------------------------------------------------------


def _write(targets: Sequence[Target], parts: str, settings: Level15, num_processes: int) -> int:
    """Make the files, and list the bad ones; give how many those are."""
    from tqdm import tqdm

    from readers.messages import printable

    if not targets:
        return 0
    tasks = (
        (row, path, os.path.join(parts, f"{row.number}.fits"), settings) for row, path in targets
    )
    bad = 0
    with (
        closing(isolated_map(write_level15, tasks, min(num_processes, len(targets)))) as results,
        tqdm(total=len(targets), unit=" files", disable=not sys.stderr.isatty()) as bar,
    ):
        for (row, _), reason in zip(targets, results, strict=True):
            if isinstance(reason, Crash):
                reason = "it kills the process that reads it; if for memory, try fewer processes"
            if reason is not None:
                tqdm.write(f"bad {printable(row.path)}: {reason}", file=sys.stderr)
                bad += 1
            bar.update()
    return bad


def write_level15(row: Row, path: str, part: str, settings: Level15) -> str | None:
    """Make one file, all or nothing; give what is wrong with the level 1 file, if anything is."""
    from readers.errors import ReadError

    try:
        settings.write(row, part)
    except ReadError as error:
        return one_line(error.reason)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(part, path)
    return None
