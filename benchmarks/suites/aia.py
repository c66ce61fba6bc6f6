"""From AIA level 1 files to calibrated images in DN/s: aiapy against this toolkit.

Registration, degradation and exposure; the pointing is the header's. What is expected is aiapy's
cubic spline on a float64 map, inside 1.25 solar radii. aiapy's variants are timed on maps as sunpy
reads them.
"""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.race import Table, Way, race
from benchmarks.sheets.level15 import level15_table
from benchmarks.ways.aiapy import EXACT, PROCESSES, REDUCED, Spline, aiapy_image, grid_of
from benchmarks.ways.loaders import data_loader_way, loader_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dali_pipelines import Calibration

VARIANTS: dict[str, dict[str, Any]] = {
    "aiapy, order 3": {"order": 3},
    "aiapy, order 1": {"order": 1},
    "aiapy, order 3 opencv": {"order": 3, "method": "opencv"},
}
"""Keywords of aiapy's register."""


class AiapyFrames:
    """A dataset of what aiapy makes of each file, shape (1, height, width), float32, in DN/s."""

    def __init__(self, paths: list[str], table: str, **register: Any) -> None:
        self.paths, self.table, self.register = paths, table, register

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[NDArray[Any], int]:
        import numpy as np

        image = aiapy_image(self.paths[row], self.table, **self.register)
        return image.astype(np.float32)[None], row


class OurFrames:
    """The same of `dali_pipelines.aia.calibrate`, which is what prep.py does."""

    def __init__(self, paths: list[str], calibration: Calibration) -> None:
        self.paths, self.calibration = paths, calibration

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[NDArray[Any], int]:
        from dali_pipelines.aia.calibrate import calibrate
        from readers import Row

        return calibrate(Row(row, self.paths[row]), self.calibration)[None], row


def correction_table(settings: Settings) -> tuple[str, int]:
    """Return the table that both sides divide by, and its version."""
    if settings.correction_table is not None:
        return settings.correction_table, 10
    import aiapy

    # Older than the official one, but at hand: the time that it takes is the same.
    name = "aia_V8_20171210_050627_response_table.txt"
    return str(Path(aiapy.__file__).parent / "tests" / "data" / name), 8


def aia_suite(settings: Settings) -> Iterator[Table]:
    """Time aiapy's variants, `calibrate` in processes, and the Loader over `aia_pipeline`.

    Then registration alone, from file to file.
    """
    files = find_files(settings, "fits", 2 if settings.quick else 8)
    path, _ = correction_table(settings)
    header, _ = grid_of(files.paths[0])
    make = functools.partial(aiapy_image, table=path, double=True, order=3)
    expected = Spline(files.paths, make)
    yield Table(
        title="AIA level 1 to calibrated images",
        baseline=f"aiapy, order 3, {PROCESSES} processes",
        results=race(aia_ways(files, settings), expected, settings.rounds),
        data=f"{files.described}; exposure {header['EXPTIME']:.2f} s; {Path(path).name}",
        note="Differences are in DN/s, relative to aiapy's order 3 on a float64 map, inside 1.25 "
        f"solar radii. aiapy makes whole frames; the reduction by {REDUCED} would take extra time. "
        "OpenCV's cubic kernel differs from the spline.",
    )
    yield level15_table(files, settings)


def aia_ways(files: Files, settings: Settings) -> list[Way]:
    """Return all of them, ours first."""
    from dali_pipelines import aia_pipeline

    path, _ = correction_table(settings)
    ours = calibrations(files, settings)
    processes = f"{PROCESSES} processes"
    return [
        *(
            loader_of(
                f"aia_pipeline, {size}",
                aia_pipeline,
                files.index,
                3,
                agreement=EXACT,
                calibration=calibration,
                batch_size=2,
                num_read_processes=settings.num_read_processes,
                num_threads=settings.num_threads,
            )
            for size, calibration in ours.items()
        ),
        *(
            _dataset_way(
                f"calibrate, {size}, {processes}",
                OurFrames(files.paths, calibration),
                PROCESSES,
                ours=True,
                **EXACT,
            )
            for size, calibration in ours.items()
        ),
        *(
            _dataset_way(
                name,
                AiapyFrames(files.paths, path, **register),
                workers,
                atol=None,  # other kernels, and integers stay integers: it is stated how far
                needs=("cv2",) if "method" in register else (),
            )
            for variant, register in VARIANTS.items()
            for name, workers in ((variant, 0), (f"{variant}, {processes}", PROCESSES))
        ),
    ]


def calibrations(files: Files, settings: Settings) -> dict[str, Calibration]:
    """Return what is done to a frame, by the size of the image."""
    from dali_pipelines import Calibration, CorrectionTable

    table = CorrectionTable.read(*correction_table(settings))
    header, scale = grid_of(files.paths[0])
    shape = (header["NAXIS2"], header["NAXIS1"])
    return {
        f"{shape[0] // reduce}x{shape[1] // reduce}": Calibration(
            size=(shape[0] // reduce, shape[1] // reduce),
            scale=scale * reduce,
            reduce=reduce,
            exposure=True,
            correction_table=table,
        )
        for reduce in (1, REDUCED)
    }


def _dataset_way(name: str, dataset: Any, num_workers: int, **way: Any) -> Way:
    return data_loader_way(
        name, dataset, range(len(dataset)), batch_size=1, num_workers=num_workers, **way
    )
