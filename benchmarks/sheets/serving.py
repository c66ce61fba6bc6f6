"""A Preprocessor that starts, that several threads share, and that is called ten thousand times."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.data import Settings
from benchmarks.report.tables import Sheet, number
from benchmarks.ways.serving import Framework, Kind, Started, preprocessor, started

_STARTS: tuple[tuple[str, Kind, Framework], ...] = (
    ("JPEG, PyTorch", "jpeg", "torch"),
    ("JPEG, NumPy", "jpeg", "numpy"),
    ("FITS, PyTorch", "fits", "torch"),
    ("FITS, NumPy", "fits", "numpy"),
)
_MOST_STARTS = 5
"""Of each, however many rounds there are."""
_CALLS, _FEW_CALLS = (10, 100, 1000, 10_000), (10, 100, 1000)
"""After which memory is looked at, and in a quick run."""
_SMALL = 64
"""Pixels of the noise that is enlarged to the photograph for that."""
_THREADS = 1, 2, 4
_OF_THREADS, _FEW_OF_THREADS = 48, 8
"""Calls of a round, of all threads together, and in a quick run."""


def starts_sheet(photo: str, frame: str, settings: Settings) -> Sheet:
    """Start processes in turn, one after the other."""
    starts = _STARTS[1:2] if settings.quick else _STARTS
    found: dict[str, list[Started]] = {name: [] for name, *_ in starts}
    for _ in range(min(settings.rounds, _MOST_STARTS)):
        for name, kind, framework in starts:
            found[name].append(started(kind, framework, photo if kind == "jpeg" else frame))
    return Sheet(
        title="The first call of a Preprocessor",
        header=("method", "import, s", "make, s", "first call, s", "range", "second, s"),
        lines=tuple(_start_line(name, all_) for name, all_ in found.items()),
        data="a photograph, or a window of a frame; a new process for each round; files and "
        "compiled functions are in the page cache",
        note="Medians. The import includes PyTorch, if it delivers PyTorch tensors. The first call "
        "builds the graph.",
    )


def _start_line(name: str, found: list[Started]) -> tuple[str, ...]:
    first = [one.first_s for one in found]
    return (
        name,
        number(statistics.median(one.import_s for one in found)),
        number(statistics.median(one.make_s for one in found)),
        number(statistics.median(first)),
        f"{number(min(first))} to {number(max(first))}",
        number(statistics.median(one.second_s for one in found)),
    )


def threads_sheet(photo: str, settings: Settings) -> Sheet:
    """Call one Preprocessor from several threads at the same time, by turns with fewer."""
    content = Path(photo).read_bytes()
    calls = _FEW_OF_THREADS if settings.quick else _OF_THREADS
    rates: dict[int, list[float]] = {count: [] for count in _THREADS}
    latencies: dict[int, list[float]] = {count: [] for count in _THREADS}
    with preprocessor("jpeg", "torch", settings.num_threads) as pre:

        def call(barrier: threading.Barrier, times: int) -> list[float]:
            barrier.wait()
            marks = [time.perf_counter()]
            for _ in range(times):
                pre([content])
                marks.append(time.perf_counter())
            return np.diff(marks).tolist()

        pre([content])
        for turn in range(settings.rounds):
            for count in _THREADS if turn % 2 == 0 else reversed(_THREADS):
                barrier = threading.Barrier(count + 1)
                with ThreadPoolExecutor(count) as pool:
                    futures = [pool.submit(call, barrier, calls // count) for _ in range(count)]
                    barrier.wait()
                    began = time.perf_counter()
                    for future in futures:
                        latencies[count] += future.result()
                    rates[count].append(calls / (time.perf_counter() - began))
    lines = []
    for count in _THREADS:
        ratios = [mine / one for mine, one in zip(rates[count], rates[1], strict=True)]
        lines.append(
            (
                f"{count}",
                number(statistics.median(rates[count])),
                f"{statistics.median(ratios):.2f}",
                number(1e3 * statistics.median(latencies[count])),
                number(1e3 * float(np.percentile(latencies[count], 95))),
            )
        )
    return Sheet(
        title="Threads that share a Preprocessor",
        header=("threads", "calls/s", "relative to one", "ms per call", "95th percentile, ms"),
        lines=tuple(lines),
        data=f"one photograph per call; {settings.num_threads} DALI threads",
        note="Calls take turns, so each waits for the ones before it.",
    )


def memory_sheet(folder: Path, settings: Settings) -> Sheet:
    """Call a Preprocessor many times in a process of its own."""
    path = str(folder / "small.jpg")
    noise = np.random.default_rng(0).integers(0, 256, (_SMALL, _SMALL, 3), np.uint8)
    Image.fromarray(noise).resize((5 * _SMALL, 4 * _SMALL)).save(path)
    calls = _FEW_CALLS if settings.quick else _CALLS
    found = started("jpeg", "torch", path, calls)
    marks = [*zip(calls, found.nbytes, found.seconds, strict=True)]
    lines = [(f"{calls[0]:,}", f"{found.nbytes[0] / 1e6:.1f}", "", "")]
    for (before, its_bytes, its_s), (after, nbytes, seconds) in pairwise(marks):
        count = after - before
        more, each = (nbytes - its_bytes) / count, 1e3 * (seconds - its_s) / count
        lines.append((f"{after:,}", f"{nbytes / 1e6:.1f}", f"{more:.0f}", number(each)))
    return Sheet(
        title="Memory of a Preprocessor",
        header=("calls", "resident memory, MB", "growth per call, bytes", "ms per call"),
        lines=tuple(lines),
        data=f"a photograph of {4 * _SMALL}x{5 * _SMALL} per call, resized and cropped as above; a "
        "new process, with PyTorch",
        note="Growth and time per call are means since the line above.",
    )
