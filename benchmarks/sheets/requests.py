"""What Loaders and others ask of a store of objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Settings
from benchmarks.measure.race import CpuMeter, Way
from benchmarks.report.tables import Sheet, number
from benchmarks.ways.apart import ServerApart, Traffic
from benchmarks.ways.archive import Archive, Copy, Ours, our_loaders, positions, server_storage
from benchmarks.ways.loaders import devices
from benchmarks.ways.peers import SEED
from dali_pipelines import FitsReader, Index, Loader, fits_pipeline
from readers.places.opener import LOCAL, Places
from readers.window import Window

_DELAY_S = 0.5
"""Of each request while round trips are counted: more than all else takes."""


@dataclass(frozen=True)
class _Counted:
    traffic: Traffic
    images: int
    cpu_s: float | None = None
    """Of a reader, for an image."""


def requests_sheet(
    title: str,
    archive: Archive,
    server: ServerApart,
    settings: Settings,
    cache: Path,
    peers: Iterable[Way],
) -> Sheet:
    """Count requests and bytes of an epoch, and round trips of an image by itself."""
    lines = []
    for ours in our_loaders(archive, server, settings, cache):
        if "storage" not in ours.settings:
            continue
        trips = "" if "cache" in ours.settings else _our_trips(ours, archive, server)
        plan = _plan(ours.copy, archive)
        lines.append(_line(ours.name, _count_ours(ours, server), plan, trips))
    plan = _plan(archive.rows, archive)
    lines += [_line(way.name, _count(way, server), plan, "") for way in peers]
    return Sheet(
        title=f"Requests: {title}",
        header=("method", "requests", "MB", "relative to plan", "reader CPU ms", "round trips"),
        lines=tuple(lines),
        data=f"per image, in an epoch of {len(archive.rows.local)}; {archive.described}",
        note="The plan: bytes that a Loader reads from a local file whose header it knows. All "
        "lines except the first epoch with a cache are counted in a second epoch. Round trips of a "
        "single image: the first of a file, and later ones.",
    )


def _line(name: str, found: _Counted, plan: float, trips: str) -> tuple[str, ...]:
    nbytes = found.traffic.nbytes / found.images
    return (
        name,
        f"{found.traffic.requests / found.images:.2f}",
        f"{nbytes / 1e6:.3f}",
        f"{nbytes / plan:.2f}",
        "" if found.cpu_s is None else number(1e3 * found.cpu_s),
        trips,
    )


def _count_ours(ours: Ours, server: ServerApart) -> _Counted:
    """Count of one epoch, read ahead included, as the queues are full before and after."""
    meter = CpuMeter(server.pids)
    with Loader(
        fits_pipeline, ours.index, devices=devices(1), seed=SEED, **ours.settings
    ) as loader:
        server.traffic()
        for _ in range(1 if ours.name.endswith("first epoch") else 2):
            server.traffic()
            images = sum(int(batch["valid"].sum()) for (batch,) in loader)
            meter.wait_for_rest()
            traffic = server.traffic()
        stats = loader.stats
    return _Counted(traffic, images, stats.read_cpu_s / stats.samples)


def _count(way: Way, server: ServerApart) -> _Counted:
    meter = CpuMeter(server.pids)
    with way.start() as run:
        for _ in range(2):
            server.traffic()
            images = sum(len(rows) for rows, _ in run(False))
            meter.wait_for_rest()
            traffic = server.traffic()
    return _Counted(traffic, images)


def _plan(copy: Copy, archive: Archive) -> float:
    """Return the bytes of an image, in the mean."""
    sizes = [sample.input_bytes for sample in map(_reads(copy.local, archive, LOCAL), _rows(copy))]
    return float(np.mean(sizes))


def _rows(copy: Copy) -> range:
    return range(len(copy.local))


def _reads(index: Index, archive: Archive, places: Places) -> Callable[[int], Any]:
    """Return what reads a row in this process."""
    reader, at = FitsReader(), positions(index)
    columns = index.columns(notes=reader.notes).with_places(places)

    def read(row: int) -> Any:
        window, edge = None, archive.edge
        if archive.size is not None:
            corner = at[row].y, at[row].x
            window = Window.at(*corner, archive.size, archive.size, image=(edge, edge))
        return reader.read(columns.row(row), window)

    return read


def _our_trips(ours: Ours, archive: Archive, server: ServerApart) -> str:
    read = _reads(ours.index, archive, Places(storage=server_storage(server)))
    server.delay(_DELAY_S)
    try:
        return f"{_trips(lambda: read(0))}, {_trips(lambda: read(0))}"
    finally:
        server.delay(server.usual_delay)


def _trips(read: Callable[[], object]) -> int:
    started = time.perf_counter()
    read()
    return int((time.perf_counter() - started) / _DELAY_S)
