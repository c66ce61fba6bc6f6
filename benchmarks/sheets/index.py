"""An Index of a hundred million rows: saved, opened, looked up, fed to a Loader, and dealt out.

The Index is made up: its rows name a few small files again and again.
"""

# The child processes import this file.
from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Settings
from benchmarks.report.tables import Sheet, number
from readers.index.columns import Columns
from readers.sampling.order import Order
from readers.sampling.schedule import Schedule
from readers.sampling.shard import Shard
from readers.worker.parent_watch import die_with

if TYPE_CHECKING:
    from dali_pipelines import Index

ROWS, QUICK_ROWS = 100_000_007, 1_000_003
"""Multiples of nothing."""
_FEW_ROWS = 1000
_FILES = 997
_CHUNK = 1009 * _FILES
_ROW_BYTES = 100
"""On disk, with some room: a path, its offset and a number."""
_LOOKUPS = 100_000
_RANKS, _BATCH = 1024, 16
_OTHER_RANKS, _OTHER_BATCH = 768, 24
_ASKED = 100
"""One slot in so many is asked of the Schedule and the Order by itself."""
_SEED, _EPOCH = 12345, 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step takes."""

    seconds: float
    nbytes: int
    """Resident memory of its process, at the highest or behind the step."""
    own_nbytes: int = 0
    """What the process shares with no other."""


def index_sheet(settings: Settings, num_rows: int | None = None) -> Sheet:
    """Do it all, in a temporary folder."""
    num_rows = num_rows or (QUICK_ROWS if settings.quick else ROWS)
    needed = num_rows * _ROW_BYTES
    with tempfile.TemporaryDirectory(prefix="dali-pipelines-") as folder:
        free = shutil.disk_usage(folder).free
        if free < needed:
            why = f"not run: needs {needed / 1e9:.1f} GB in {folder}, {free / 1e9:.1f} GB are free"
            lines: list[tuple[str, ...]] = [("all", why, "", "")]
        else:
            lines = list(_lines(Path(folder), num_rows))
    return Sheet(
        title=f"An Index of {num_rows:,} rows",
        header=("step", "seconds", "memory, MB", "per row"),
        lines=tuple(lines),
        data=f"made up: the paths of {_FILES} small files, repeated, and a number",
        note=(
            "Each step except the last two has a process of its own, and its resident memory is "
            "shown; for the last two, the memory of a mark for each row. There every row came "
            f"exactly once. One slot in {_ASKED} was looked up singly by Schedule.locate and "
            "Order.row, the other slots all together."
        ),
    )


def _lines(folder: Path, num_rows: int) -> Iterable[tuple[str, ...]]:
    file, few = str(folder / "index.arrow"), str(folder / "few.arrow")
    fresh(_save, str(folder), few, _FEW_ROWS)
    cost = fresh(_save, str(folder), file, num_rows)
    room = Path(file).stat().st_size / num_rows
    yield _line("save as .arrow", cost, f"{1e9 * cost.seconds / num_rows:.0f} ns, {room:.0f} bytes")
    yield _line("open", fresh(open_file, file))

    from readers.index.table import Index

    cost = fresh(_look_up, Index.load(file).columns(("number",)), str(folder))
    name = f"look up a row in a reader process, median of {_LOOKUPS:,} random rows"
    yield _line(name, cost, f"{1e6 * cost.seconds:.1f} us")
    yield _line(f"Loader to the first batch, {_FEW_ROWS:,} rows", fresh(_first_batch, few))
    yield _line(f"Loader to the first batch, {num_rows:,} rows", fresh(_first_batch, file))
    yield _line("open, not in the page cache", fresh(open_file, file, True))
    yield from _dealt(num_rows)


def _line(name: str, cost: Cost, a_row: str = "") -> tuple[str, ...]:
    memory = f"{cost.nbytes / 1e6:.0f}"
    if cost.own_nbytes:
        memory += f", {cost.own_nbytes / 1e6:.0f} of it private"
    return name, number(cost.seconds), memory, a_row


def fresh(step: Callable[..., Cost], *arguments: Any) -> Cost:
    """Call a function in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, die_with, (os.getpid(),)) as pool:
        return pool.submit(step, *arguments).result()


# ---- Steps that have a process of their own -----------------------------------------------------


def path_of(folder: str, row: int) -> str:
    """Return the path of a row."""
    return f"{folder}/aia.lev1.171A_2015-01-01T00_00_00.{row % _FILES:03}Z.npy"


def made_up(folder: str, num_rows: int) -> Index:
    """Make an Index whose paths take no more memory than those of one chunk."""
    import pyarrow as pa

    from readers import Index

    paths = pa.array((path_of(folder, row) for row in range(_FILES)), pa.large_string())
    chunk = pa.concat_arrays([paths] * (_CHUNK // _FILES))
    chunks = [chunk[: num_rows - start] for start in range(0, num_rows, _CHUNK)]
    table = {"path": pa.chunked_array(chunks), "number": np.arange(num_rows)}
    return Index(pa.table(table))


def _save(folder: str, file: str, num_rows: int) -> Cost:
    for row in range(_FILES):
        np.save(path_of(folder, row), np.full((32, 32), row, np.float32))
    index = made_up(folder, num_rows)
    started = time.perf_counter()
    index.save(file)
    return Cost(time.perf_counter() - started, _highest())


def open_file(file: str, cold: bool = False, column: str = "number") -> Cost:
    """Open an Index file, and look at one of its columns."""
    import pyarrow.ipc  # noqa: F401 - before the clock starts

    from readers.index.table import Index

    if cold:
        with Path(file).open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started = time.perf_counter()
    index = Index.scan(file)
    index.columns((column,))
    assert index.digest
    return Cost(time.perf_counter() - started, _highest())


def _look_up(columns: Columns, folder: str) -> Cost:
    rows = np.random.default_rng(0).integers(0, len(columns), _LOOKUPS).tolist()
    for row in rows:  # once from disk
        found = columns.row(row).path, columns.value("number", row)
        if found != (path_of(folder, row), row):
            raise ValueError(f"row {row} is given as {found}")
    seconds = [_timed_row(columns, row) for row in rows]
    sizes = dict(
        line.split()[:2] for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    )
    own = int(sizes["Anonymous:"])  # pages of the file are shared, also if no one else touched them
    return Cost(statistics.median(seconds), int(sizes["Rss:"]) << 10, own << 10)


def _timed_row(columns: Columns, row: int) -> float:
    started = time.perf_counter()
    columns.row(row)
    return time.perf_counter() - started


def _first_batch(file: str) -> Cost:
    from dali_pipelines import Index, Loader, npy_pipeline

    started = time.perf_counter()
    index = Index.scan(file)
    with Loader(
        npy_pipeline,
        index,
        batch_size=8,
        num_read_processes=2,
        devices=[None],
        shard_id=0,
        num_shards=1,
        columns=("number",),
    ) as loader:
        (batch,) = next(iter(loader))
        loader.state_dict()
        seconds = time.perf_counter() - started
    for row, image, value in zip(batch["row"], batch["image"], batch["number"], strict=True):
        if (int(row) % _FILES, int(row)) != (int(image[0, 0, 0]), int(value)):
            raise ValueError(f"row {row} is given as {image[0, 0, 0]}, {value}")
    return Cost(seconds, _highest())


def _highest() -> int:
    """Return the most resident memory up to now; getrusage would count the parent's, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


# ---- Simulated ranks ----------------------------------------------------------------------------


def _dealt(num_rows: int) -> Iterable[tuple[str, ...]]:
    order = Order(num_rows, _SEED)
    batch = min(_BATCH, max(1, num_rows // _RANKS))
    whole = Schedule(num_rows=num_rows, shard=Shard(0, _RANKS), batch_size=batch, epoch=_EPOCH)
    yield _timed(f"shuffle and distribute to {_RANKS} ranks", order, [(whole, None)])
    steps = int(np.random.default_rng(1).integers(1, max(2, whole.steps(_EPOCH))))
    rest = dataclasses.replace(
        whole,
        shard=Shard(0, _OTHER_RANKS),
        batch_size=min(_OTHER_BATCH, num_rows),
        position=min(num_rows, steps * whole.stride),
    )
    name = f"stop at position {rest.position:,}, resume on {_OTHER_RANKS} ranks"
    yield _timed(name, order, [(whole, steps), (rest, None)])


def _timed(name: str, order: Order, runs: Iterable[tuple[Schedule, int | None]]) -> tuple[str, ...]:
    started = time.perf_counter()
    seen = deliver(order, runs)
    seconds = time.perf_counter() - started
    return _line(name, Cost(seconds, seen.nbytes), f"{1e9 * seconds / order.num_rows:.0f} ns")


def deliver(order: Order, runs: Iterable[tuple[Schedule, int | None]]) -> NDArray[np.bool_]:
    """Walk all ranks of some runs, and make sure that each row comes exactly once.

    Parameters
    ----------
    order : Order
        Of all runs.
    runs : iterable of (Schedule, int or None)
        Schedule of a run's first rank, and how many steps each rank takes, None for all that are
        left of the epoch.

    Returns
    -------
    ndarray of bool, shape (num_rows,)
        True throughout.

    Raises
    ------
    ValueError
        If a row does not come, or comes again.
    """
    seen = np.zeros(order.num_rows, np.bool_)
    count = 0
    for schedule, steps in runs:
        for rank in range(schedule.shard.num_shards):
            shard = Shard(rank, schedule.shard.num_shards)
            rows = rows_of(order, dataclasses.replace(schedule, shard=shard), steps)
            seen[rows] = True
            count += len(rows)
    missing = order.num_rows - int(seen.sum())
    if missing or count != order.num_rows:
        raise ValueError(f"{count} of {order.num_rows} rows were dealt out, {missing} were not")
    return seen


def rows_of(order: Order, schedule: Schedule, steps: int | None) -> NDArray[np.int64]:
    """Rows of one rank's epoch, in order, all at once; some of them are asked one by one, too."""
    if steps is None:
        steps = schedule.steps(schedule.epoch)
    places = schedule.shard.num_shards * np.arange(steps) + schedule.shard.shard_id
    positions = (places[:, None] * schedule.batch_size + np.arange(schedule.batch_size)).reshape(-1)
    positions += schedule.position
    rows = order.rows(schedule.epoch, positions[positions < order.num_rows])
    for count in range(schedule.shard.shard_id % _ASKED, len(positions), _ASKED):
        slot = schedule.locate(count)
        if (slot.epoch, slot.position) != (schedule.epoch, positions[count]):
            raise ValueError(f"slot {count} is {slot}, expected position {positions[count]}")
        if count < len(rows) and order.row(slot.epoch, slot.position) != rows[count]:
            raise ValueError(f"position {slot.position} gives two rows")
    return rows
