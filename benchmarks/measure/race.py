"""Time several ways to the same pixels in turn, after comparing what they deliver.

Each round goes through all ways, so that a drift of the machine cancels in the ratios. Start-up is
told apart. What a way has made ready before its clock starts is not counted, and a way's clock
starts only when the others have come to rest: readers go on filling their queues for a while.
Where the time goes is looked at in a round of its own, as counting takes a little of it.
"""

from __future__ import annotations

import math
import pkgutil
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.measure.ledger import Ledger
from benchmarks.measure.parts import Parts, parts_of

Batch = tuple[Sequence[int], Any]
"""Rows, and their images, in an array or tensor of shape (batch, ...); None if not wanted."""
Run = Callable[[bool], Iterator[Batch]]
"""Gives the batches of a round. Its argument says whether images that other processes hold are
wanted here."""
Expected = Callable[[int, tuple[int, ...]], NDArray[Any]]
"""Gives the pixels of a row, for an image of some shape; NaN where they are not compared."""

_REST_S = 0.05
_LONGEST_REST_S = 10.0
_LONGEST_REASON = 100
"""Characters."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to do the work."""

    name: str
    start: Callable[[], AbstractContextManager[Run]]
    """Starts the processes, if there are any; they live until all rounds are over."""
    ahead: int = 0
    """Batches that may be ready when a round begins. They come first, and are not timed."""
    atol: float | None = 1e-4
    """How far a pixel may be from what is expected; None: it is only said how far it is."""
    comparable: Callable[[NDArray[Any]], NDArray[Any]] = lambda pixels: pixels
    """Gives the pixels that are compared, of those that it delivers."""
    rtol: float = 1e-6
    """The same, relative to what is expected."""
    outliers: float = 0.0
    """Share of an image's pixels that may be farther away."""
    needs: tuple[str, ...] = ()
    """Modules, or ``module:attribute``, without which this way cannot go."""
    remedy: str = ""
    """What to do where one of them is there, and cannot be imported."""
    point: tuple[str, str] | None = None
    """Curve and place on its axis, where the table is drawn as curves."""
    ours: bool = False
    """Whether it is this toolkit's."""
    ledger: Ledger | None = None
    """Counts where the time goes, in a last round that is not timed."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """What was measured in one round."""

    images_per_s: float
    cpu_s_here: float
    """CPU seconds per image in this process, which a training would share."""
    cpu_s_elsewhere: float
    """The same in all other processes."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was found for one way."""

    name: str
    rounds: tuple[Round, ...] = ()
    first_batch_s: float = 0.0
    """From the start of the processes to the first batch."""
    difference: float = 0.0
    """Of the pixels from those expected, the greatest."""
    note: str = ""
    """Why this way was not timed."""
    point: tuple[str, str] | None = None
    ours: bool = False
    parts: Parts | None = None
    """Where the time of an image goes, if there was a ledger."""

    def rates(self) -> list[float]:
        """Return the images per second of each round."""
        return [one.images_per_s for one in self.rounds]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Ways that were timed together."""

    title: str
    baseline: str
    """Name of the way that speedups are relative to; of a curve, then place by place."""
    results: tuple[Result, ...]
    data: str
    """What was read."""
    axis: str = ""
    """What the places of curves are."""
    note: str = ""
    """What else there is to know."""

    def speedup(self, result: Result) -> float:
        """Return the median over the rounds of how much faster a way is than the baseline.

        NaN if the baseline could not run.
        """
        base = next(one for one in self.results if self._is_baseline(one, result))
        if base.note:
            return math.nan
        pairs = zip(result.rates(), base.rates(), strict=True)
        return statistics.median(mine / its for mine, its in pairs)

    def _is_baseline(self, one: Result, result: Result) -> bool:
        if one.point is None or result.point is None:
            return one.name == self.baseline
        return one.point == (self.baseline, result.point[1])


def race(
    ways: Iterable[Way], expected: Expected, rounds: int, apart: Collection[int] = ()
) -> tuple[Result, ...]:
    """Start all ways, compare what they deliver, and time them in turn.

    Parameters
    ----------
    ways : iterable of Way
        All that are compared.
    expected : callable
        Gives the right pixels.
    rounds : int
        Number of them.
    apart : collection of int
        Processes of this one whose CPU time is not of the ways, e.g. a server's.

    Raises
    ------
    SystemExit
        If the pixels of a way are not the expected ones.
    Exception
        What a way raises, with a note that names the way.
    """
    from dali_pipelines.cli.progress import Bar

    ways = tuple(ways)
    missing = {way.name: _missing(way) for way in ways}
    able = [way for way in ways if not missing[way.name]]
    found: dict[str, list[Round]] = {way.name: [] for way in able}
    first: dict[str, tuple[float, float]] = {}
    parts: dict[str, Parts] = {}
    meter = CpuMeter(apart)
    with ExitStack() as stack, Bar(total=len(able) * (1 + rounds), unit="runs") as bar:
        runs: dict[str, Run] = {}
        for way in able:
            started = time.perf_counter()
            with _named(way):
                run = runs[way.name] = stack.enter_context(way.start())
                first[way.name] = _compare(way, run, expected, started)
            bar.update()
        for number in range(rounds):
            for way in able if number % 2 == 0 else reversed(able):
                with _named(way):
                    found[way.name].append(_time(way, runs[way.name], meter))
                bar.update()
        for way in able:
            if way.ledger is not None:
                meter.wait_for_rest()
                numbers = (len(rows) for rows, _ in runs[way.name](False))
                with _named(way):
                    parts[way.name] = parts_of(numbers, way.ahead, way.ledger)
    return tuple(
        Result(
            name=way.name,
            rounds=tuple(found.get(way.name, ())),
            first_batch_s=first.get(way.name, (0.0, 0.0))[0],
            difference=first.get(way.name, (0.0, 0.0))[1],
            note=missing[way.name],
            point=way.point,
            ours=way.ours,
            parts=parts.get(way.name),
        )
        for way in ways
    )


@contextmanager
def _named(way: Way) -> Iterator[None]:
    """Add the name of the way to any error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the way {way.name!r}")
        raise


def _missing(way: Way) -> str:
    """Return why a way cannot go, or None."""
    for name in way.needs:
        try:
            pkgutil.resolve_name(name if ":" in name else f"{name}:")
        except ModuleNotFoundError as error:
            return f"{error.name} is not installed"
        except (ImportError, RuntimeError) as error:  # made for another version of what it needs
            reason = str(error.__cause__ or error).splitlines()[0]
            why = f"{name.partition(':')[0]} cannot be imported: {_shortened(reason)}"
            return f"{why}; {way.remedy}" if way.remedy else why
    return ""


def _shortened(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."


def _compare(way: Way, run: Run, expected: Expected, started: float) -> tuple[float, float]:
    """Return the seconds up to the first batch, and the greatest difference."""
    first = greatest = 0.0
    seen: set[int] = set()
    for rows, images in run(True):
        first = first or time.perf_counter() - started
        for row, image in zip(rows, images, strict=True):
            if row not in seen:
                seen.add(row)
                pixels = np.asarray(image.cpu() if hasattr(image, "cpu") else image)
                pixels = way.comparable(pixels)
                greatest = max(greatest, _difference(way, row, pixels, expected))
    return first, greatest


def _difference(way: Way, row: int, pixels: NDArray[Any], expected: Expected) -> float:
    wanted = expected(row, pixels.shape)
    if wanted.shape != pixels.shape:
        sys.exit(f"bench.py: {way.name}, row {row}: {pixels.shape}, expected {wanted.shape}")
    compared = np.isfinite(wanted)
    if not compared.all():
        wanted, pixels = wanted[compared], pixels[compared]
    off = np.abs(pixels - wanted)
    if way.atol is not None and not off.max() <= way.atol:
        far = float(np.mean(~(off <= way.atol + way.rtol * np.abs(wanted))))  # NaN is far, too
        if far > way.outliers:
            sys.exit(
                f"bench.py: {way.name}, row {row}: {100 * far:.2f} % of the pixels differ, by "
                f"{off.max():g} at most"
            )
    return float(off.max())


def _time(way: Way, run: Run, meter: CpuMeter) -> Round:
    """Go through one round."""
    meter.wait_for_rest()
    here, elsewhere = meter.seconds()
    began = last = time.perf_counter()
    images = timed = 0
    for batch, (rows, _) in enumerate(run(False)):
        last = time.perf_counter()
        images += len(rows)
        if batch < way.ahead:
            began = last
        else:
            timed += len(rows)
    # By the time that all rest, each batch that was taken, ready or not, is made good.
    meter.wait_for_rest()
    here_after, elsewhere_after = meter.seconds()
    return Round(
        images_per_s=timed / (last - began),
        cpu_s_here=(here_after - here) / images,
        cpu_s_elsewhere=(elsewhere_after - elsewhere) / images,
    )


class CpuMeter:
    """CPU time of this process and all that came of it but `apart`, without that of looking."""

    def __init__(self, apart: Collection[int] = ()) -> None:
        self._apart = apart
        self._looking = 0.0

    def seconds(self) -> tuple[float, float]:
        """Return the CPU time up to now, of this process and of all others."""
        return self._seconds(self._apart)

    def _seconds(self, apart: Collection[int]) -> tuple[float, float]:
        started = time.thread_time()
        others = 0.0
        for process in psutil.Process().children(recursive=True):
            if process.pid in apart:
                continue
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            others += times.user + times.system
        self._looking += time.thread_time() - started
        return time.process_time() - self._looking, others

    def wait_for_rest(self) -> None:
        """Wait until no process computes any more, those that are not counted among them."""
        before = sum(self._seconds(()))
        for _ in range(round(_LONGEST_REST_S / _REST_S)):
            time.sleep(_REST_S)
            now = sum(self._seconds(()))
            if now - before <= _REST_S / 4:
                return
            before = now
