"""From AIA level 1 files to level 1.5 files: aiapy's register and sunpy's save against prep.py's.

Each process reads, registers and writes. The files go to a folder for temporary ones.
"""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.data import Files, Settings
from benchmarks.measure.race import Batch, Run, Table, Way, race
from benchmarks.ways.aiapy import EXACT, PROCESSES, Spline, registered
from benchmarks.ways.loaders import data_loader_way

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BASELINE = "aiapy register and save"
_ROUNDED = {"atol": 0.502, "rtol": 0.0}
"""Of whole DN."""


class Written:
    """A dataset whose samples are files that were written, shape (0,)."""

    def __init__(self, paths: list[str], folder: str, write: Callable[[str, str], None]) -> None:
        self.paths, self.folder, self.write = paths, folder, write

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[NDArray[Any], int]:
        import numpy as np

        self.write(self.paths[row], self._written(row))
        return np.empty(0), row

    def pixels(self, row: int) -> NDArray[Any]:
        """Read what was written, shape (1, height, width)."""
        from astropy.io import fits

        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # sunpy leaves BLANK in, which has no meaning for floats
            return fits.getdata(self._written(row))[None]

    def _written(self, row: int) -> str:
        return os.path.join(self.folder, f"{row}.fits")


def with_aiapy(path: str, out: str) -> None:
    """Register and save as aiapy's guide does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        registered(path, order=3).save(out, overwrite=True)


def with_ours(dtype: Any, path: str, out: str) -> None:
    """Do what prep.py does for each file."""
    from dali_pipelines.aia.level15 import Level15
    from readers import Row

    Level15(dtype=dtype).write(Row(0, path), out)


def level15_table(files: Files, settings: Settings) -> Table:
    """Time both, without degradation and exposure, which level 1.5 does not hold."""
    with tempfile.TemporaryDirectory() as folder:
        results = race(
            level15_ways(files.paths, folder),
            Spline(files.paths, lambda path: registered(path, double=True, order=3).data),
            settings.rounds,
        )
    return Table(
        title="AIA level 1 to level 1.5 files",
        baseline=_BASELINE,
        results=results,
        data=files.described,
        note=f"{PROCESSES} processes each. Differences are in DN.",
    )


def level15_ways(paths: list[str], folder: str) -> list[Way]:
    """Return all of them, ours first."""
    return [
        _way("prep.py, int16 in RICE_1", paths, folder, partial(with_ours, "int16"), **_ROUNDED),
        _way("prep.py, float32", paths, folder, partial(with_ours, "float32"), **EXACT),
        _way(_BASELINE, paths, folder, with_aiapy, atol=None),
    ]


def _way(
    name: str, paths: list[str], folder: str, write: Callable[[str, str], None], **agreement: Any
) -> Way:
    dataset = Written(paths, folder, write)
    ours = write is not with_aiapy
    way = data_loader_way(
        name,
        dataset,
        range(len(paths)),
        batch_size=1,
        num_workers=PROCESSES,
        ours=ours,
        **agreement,
    )

    @contextmanager
    def start() -> Iterator[Run]:
        with way.start() as run:
            yield lambda wanted: _batches(run, dataset if wanted else None)

    return replace(way, start=start)


def _batches(run: Run, dataset: Written | None) -> Iterator[Batch]:
    """Yield rows, and what was written of them, if a dataset is there to tell."""
    for rows, _ in run(False):
        yield rows, None if dataset is None else [dataset.pixels(row) for row in rows]
