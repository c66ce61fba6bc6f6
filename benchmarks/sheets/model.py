"""The cost model: images/s from bytes, pixels and cores, fitted to some runs and checked on others.

Of each image a reader process computes for  r0 + r1 x MB read,  and the graph, with all else that
the process of the training does, for  g0 + g1 x Mpixel decoded + g2 x Mpixel delivered.  What
limits a run is the least of: the cores over the sum of both, reader processes over the one, DALI
threads over the other, and the storage's MB/s over the MB of an image.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.data import Files, Kind, Settings, find_files
from benchmarks.measure.race import race
from benchmarks.report.tables import Sheet, number
from benchmarks.ways.loaders import expected_pixels, loader_way
from benchmarks.ways.peers import Case

if TYPE_CHECKING:
    from readers.contract import Reader

TOLERANCE = 0.25
"""How far a prediction may be from what is measured."""

_FILES = {"fits": 8, "jpeg": 144}
_QUICK_FILES = {"fits": 8, "jpeg": 32}
_BATCH_SIZE = {"fits": 8, "jpeg": 16}
_Parts = tuple[float, float]
"""Height and width of a window, as parts of an image's."""
_FITTED: dict[Kind, tuple[_Parts, ...]] = {
    "fits": ((1, 1), (1 / 16, 1), (1 / 4, 1 / 4), (1 / 32, 1 / 32)),
    "jpeg": ((3 / 4, 3 / 4), (1 / 12, 3 / 4), (1 / 2, 1 / 2), (1 / 8, 1 / 8)),
}
_CHECKED: dict[Kind, tuple[_Parts, ...]] = {
    "fits": ((3 / 4, 3 / 4), (1 / 2, 1 / 2), (1 / 8, 1 / 8), (1 / 16, 1 / 16)),
    "jpeg": ((5 / 8, 5 / 8), (3 / 8, 3 / 8), (1 / 4, 1 / 4)),
}


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """What of an image there is to do."""

    read_mb: float
    decoded_mpixel: float
    """FITS: the rows of the window, whole, where these are the tiles. JPEG: all rows down to its
    last, as nothing says where in the file a row begins."""
    delivered_mpixel: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of a case."""

    case: Case
    amounts: Amounts
    images_per_s: float
    reader_ms: float
    """CPU time of an image in the reader processes."""
    graph_ms: float
    """The same in the process that takes the batches, with all its threads."""


@dataclass(frozen=True)
class Costs:
    """The constants of one kind of files, in milliseconds of a core."""

    reader_image: float
    reader_mb: float
    graph_image: float
    decoded_mpixel: float
    delivered_mpixel: float

    @classmethod
    def fit(cls, runs: Sequence[Measured]) -> Costs:
        """Fit to some runs, each with the same weight whatever its size."""
        amounts = [run.amounts for run in runs]
        reader = _solve([(1, one.read_mb) for one in amounts], [run.reader_ms for run in runs])
        # Of photographs so much is decoded above any window that it looks the same for all.
        image = 0 if runs[0].case.kind == "jpeg" else 1
        terms = [(image, one.decoded_mpixel, one.delivered_mpixel) for one in amounts]
        return cls(*reader, *_solve(terms, [run.graph_ms for run in runs]))

    def images_per_s(self, amounts: Amounts, cores: int, readers: int, threads: int) -> float:
        """Predict the throughput of a run whose files are in memory."""
        reader = self.reader_image + self.reader_mb * amounts.read_mb
        graph = (
            self.graph_image
            + self.decoded_mpixel * amounts.decoded_mpixel
            + self.delivered_mpixel * amounts.delivered_mpixel
        )
        return 1e3 * min(cores / (reader + graph), readers / reader, threads / graph)


def model_sheets(settings: Settings) -> list[Sheet]:
    """Fit the constants, and compare predictions with runs that they were not fitted to."""
    costs: dict[str, Costs] = {}
    lines: list[tuple[str, ...]] = []
    data = []
    kinds: tuple[Kind, ...] = ("fits",) if settings.data else ("fits", "jpeg")
    for kind in kinds:
        files = find_files(settings, kind, (_QUICK_FILES if settings.quick else _FILES)[kind])
        data.append(files.described)
        fitted, checked = (
            [_measure(files, case, settings) for case in _cases(files, kind, parts[kind])]
            for parts in (_FITTED, _CHECKED)
        )
        costs[kind] = Costs.fit(fitted)
        lines += [_check(costs[kind], run, settings) for run in checked]
    return [
        _constants(costs, "; ".join(data)),
        Sheet(
            title="Cost model: predictions",
            header=("case", "MB read", "predicted images/s", "measured", "error", ""),
            lines=tuple(lines),
            data="; ".join(data),
            note=f"For runs to which the constants were not fitted; {_machine(settings)}.",
        ),
    ]


def _constants(costs: dict[str, Costs], data: str) -> Sheet:
    terms = {
        "reader, per image": "reader_image",
        "reader, per MB read": "reader_mb",
        "graph, per image": "graph_image",
        "graph, per Mpixel decoded": "decoded_mpixel",
        "graph, per Mpixel delivered": "delivered_mpixel",
    }
    return Sheet(
        title="Cost model: constants",
        header=("ms of one core", *(kind.upper() for kind in costs)),
        lines=tuple(
            (words, *(f"{getattr(one, name):.3g}" for one in costs.values()))
            for words, name in terms.items()
        ),
        data=data,
        note="Decoded: the whole rows of a window (FITS), or all rows down to its last (JPEG).",
    )


def _check(costs: Costs, run: Measured, settings: Settings) -> tuple[str, ...]:
    predicted = costs.images_per_s(
        run.amounts, _cores(), settings.num_read_processes, settings.num_threads
    )
    off = predicted / run.images_per_s - 1
    return (
        _words(run.case),
        f"{run.amounts.read_mb:.2f}",
        number(predicted),
        number(run.images_per_s),
        f"{100 * off:+.0f} %",
        "" if abs(off) <= TOLERANCE else f"over {100 * TOLERANCE:.0f} %",
    )


def _measure(files: Files, case: Case, settings: Settings) -> Measured:
    passes = -(-(8 if settings.quick else 24) * case.batch_size // len(files.paths))
    way = loader_way(
        _words(case),
        files.index,
        case,
        passes,
        num_read_processes=settings.num_read_processes,
        num_threads=settings.num_threads,
    )
    (result,) = race([way], expected_pixels(files.paths, case), settings.rounds)
    return Measured(
        case=case,
        amounts=_amounts(files, case),
        images_per_s=statistics.median(result.rates()),
        reader_ms=1e3 * statistics.median(one.cpu_s_elsewhere for one in result.rounds),
        graph_ms=1e3 * statistics.median(one.cpu_s_here for one in result.rounds),
    )


def _cases(files: Files, kind: Kind, windows: Sequence[_Parts]) -> list[Case]:
    """Return random windows that fit into all of the files."""
    height, width = (min(extents) for extents in zip(*_sizes(files), strict=True))
    batch_size = min(_BATCH_SIZE[kind], len(files.paths))
    return [
        Case(kind=kind, batch_size=batch_size, crop=(round(high * height), round(wide * width)))
        for high, wide in windows
    ]


def _amounts(files: Files, case: Case) -> Amounts:
    from readers.window import Window

    assert case.crop is not None  # by _cases
    window = Window(height=case.crop[0], width=case.crop[1])
    reader = _reader(case.kind)
    columns = files.index.columns()
    read = decoded = 0.0
    for row, (height, width) in enumerate(_sizes(files)):
        last = case.crop[0] if case.kind == "fits" else (height + case.crop[0]) / 2
        read += reader.read(columns.row(row), window).input_bytes
        decoded += last * width
    return Amounts(
        read_mb=read / len(columns) / 1e6,
        decoded_mpixel=decoded / len(columns) / 1e6,
        delivered_mpixel=case.crop[0] * case.crop[1] / 1e6,
    )


def _reader(kind: Kind) -> Reader:
    from dali_pipelines import FitsReader, JpegReader

    return FitsReader() if kind == "fits" else JpegReader()


def _sizes(files: Files) -> list[tuple[int, int]]:
    """Return height and width of each image."""
    columns, reader = files.index.columns(), _reader(files.kind)
    peeks = (reader.peek(columns.row(row), None) for row in range(len(columns)))
    return [(peek.height, peek.width) for peek in peeks]


def _solve(terms: Sequence[Sequence[float]], found: Sequence[float]) -> list[float]:
    """Solve for constants that are not negative, in the least squares of relative errors."""
    weighted = np.array(terms) / np.array(found)[:, None]
    kept = list(np.flatnonzero(weighted.any(axis=0)))
    while True:
        constants = np.linalg.lstsq(weighted[:, kept], np.ones(len(found)), rcond=None)[0]
        if constants.min() >= 0:
            break
        kept.pop(int(constants.argmin()))  # that little, it is lost in the noise
    solved = np.zeros(weighted.shape[1])
    solved[kept] = constants
    return [float(one) for one in solved]


def _words(case: Case) -> str:
    assert case.crop is not None  # by _cases
    return f"{case.kind.upper()}, random {case.crop[0]}x{case.crop[1]}"


def _machine(settings: Settings) -> str:
    return (
        f"{_cores()} cores, {settings.num_read_processes} reader processes, "
        f"{settings.num_threads} DALI threads"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0))
