"""Windows of arrays in chunks of Zarr, against zarr-python and tensorstore."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Settings
from benchmarks.measure.race import Table, Way, race
from benchmarks.report.tables import Sheet
from benchmarks.ways.arrays import Windows, by_tensorstore, by_zarr, here_way
from benchmarks.ways.loaders import data_loader_way, loader_of
from benchmarks.ways.peers import SEED
from dali_pipelines import Index, chunked_pipeline
from readers.chunks.reader import ChunkedReader
from readers.window import Window

_EDGE, _PLANES, _DEEP = 512, 45, 15
"""Pixels of a frame's side, frames, and frames of a chunk: those of SDOMLv2, in a small number."""
_SIZES = (128, 512)
_TENSORSTORE = ("tensorstore",)


def chunks_suite(settings: Settings) -> Iterator[Table | Sheet]:
    """Time windows and whole frames, in one process, and by reader processes."""
    frames = sun(_PLANES, _EDGE)
    with tempfile.TemporaryDirectory(prefix="dali-pipelines-") as folder:
        stores = write_stores(Path(folder), frames)
        for kind, path in stores.items():
            for size in (min(size, _EDGE) for size in _SIZES):
                yield alone(kind, path, frames, size, settings)
        for kind, path in stores.items():
            for size in (min(size, _EDGE) for size in _SIZES):
                yield by_processes(kind, path, frames, size, settings)


def sun(planes: int, edge: int) -> NDArray[np.float32]:
    """Return frames of a disk with noise, calibrated, shape (planes, edge, edge)."""
    rng = np.random.default_rng(SEED)
    y, x = np.mgrid[:edge, :edge] - edge / 2
    away = np.hypot(y, x) / edge * 512
    mean = np.where(away < 200, 200, 200 * np.exp(-(away - 200) / 30)) + 3
    noise = rng.normal(0, 0.4, (planes, edge, edge))
    return (rng.poisson(mean, (planes, edge, edge)) * 1.017 + noise).astype(np.float32)


def write_stores(folder: Path, frames: NDArray[np.float32]) -> dict[str, str]:
    """Write the frames as Zarr; return the paths by kind."""
    import numcodecs
    import zarr
    from zarr.codecs import BloscCodec

    edge = frames.shape[1]
    chunk, inner = (_DEEP, edge, edge), (1, edge // 4, edge // 4)
    v2 = numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE)
    v3 = BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle")
    kinds: dict[str, dict[str, Any]] = {
        "Zarr 2": {"zarr_format": 2, "chunks": chunk, "compressors": v2},
        "Zarr 3": {"zarr_format": 3, "chunks": chunk, "compressors": v3},
        "shards": {"zarr_format": 3, "chunks": inner, "shards": chunk, "compressors": v3},
    }
    paths = {kind: str(folder / f"{number}.zarr") for number, kind in enumerate(kinds)}
    for kind, how in kinds.items():
        zarr.create_array(paths[kind], shape=frames.shape, dtype="f4", **how)[...] = frames
    return paths


def positions(count: int, size: int) -> list[tuple[int, int, int]]:
    """Return planes and corners of random windows."""
    rng = np.random.default_rng(SEED)
    planes = rng.integers(0, _PLANES, count).tolist()
    ys, xs = rng.integers(0, _EDGE - size + 1, (2, count)).tolist()
    return list(zip(planes, ys, xs, strict=True))


def alone(
    kind: str, path: str, frames: NDArray[np.float32], size: int, settings: Settings
) -> Table:
    """Time single reads in this process."""
    at = positions(8 if settings.quick else 100, size)
    columns = Index.from_zarr(path).columns(notes=["chunks"])
    rows = [columns.row(plane) for plane, _, _ in at]
    windows = [Window.at(y, x, size, size, image=(_EDGE, _EDGE)) for _, y, x in at]
    reader = ChunkedReader((Path(path).name,))
    read_bytes = [
        reader.read(row, window).input_bytes for row, window in zip(rows, windows, strict=True)
    ]

    def read(row: int) -> NDArray[Any]:
        return reader.read(rows[row], windows[row])["image"]

    def peer(opened: Any) -> Any:
        one = Windows(path, at, size, opened)
        return lambda row: one.read(row)[None]

    ways = [
        here_way("ChunkedReader", read, len(at), ours=True),
        here_way("zarr-python", peer(by_zarr), len(at)),
        here_way("tensorstore", peer(by_tensorstore), len(at), needs=_TENSORSTORE),
    ]
    mean = sum(read_bytes) / len(at)
    return Table(
        title=f"{_title(kind, size)}, one process",
        baseline="zarr-python",
        results=race(ways, _expected(frames, at, size), settings.rounds),
        data=f"{len(at)} windows of {_described(frames)}",
        note=f"The Reader reads {mean / 1e6:.2f} MB of a window's {size * size * 4 / 1e6:.2f} MB; "
        f"a chunk or shard has {_chunk_bytes(path) / 1e6:.2f} MB on average.",
    )


def by_processes(
    kind: str, path: str, frames: NDArray[np.float32], size: int, settings: Settings
) -> Table:
    """Time the Loader against DataLoaders with as many processes."""
    batch = 8
    at = positions((2 if settings.quick else 24) * batch, size)
    planes, ys, xs = map(list, zip(*at, strict=True))
    index = Index.from_zarr(path).select(planes).with_column("y", ys).with_column("x", xs)
    passes, workers = 2 if settings.quick else 4, settings.num_read_processes
    ours: Way = loader_of(
        "Loader",
        chunked_pipeline,
        index,
        passes,
        agreement={"atol": 0.0},
        batch_size=batch,
        crop=size,
        window="row",
        num_read_processes=workers,
        num_threads=settings.num_threads,
    )
    order = np.random.default_rng(SEED).permutation(len(at)).tolist()
    opened = {"zarr-python": (by_zarr, ()), "tensorstore": (by_tensorstore, _TENSORSTORE)}
    peers = [
        data_loader_way(
            f"DataLoader, {name}",
            Windows(path, at, size, how),
            order,
            batch_size=batch,
            num_workers=workers,
            needs=needs,
        )
        for name, (how, needs) in opened.items()
    ]
    return Table(
        title=f"{_title(kind, size)}, Loader",
        baseline="DataLoader, zarr-python",
        results=race([ours, *peers], _expected(frames, at, size), settings.rounds),
        data=f"{len(at)} windows of {_described(frames)}",
        note=f"{workers} processes each; batches of {batch}.",
    )


def _title(kind: str, size: int) -> str:
    return f"{'Whole frames' if size == _EDGE else f'Windows of {size}x{size}'}, {kind}"


def _described(frames: NDArray[np.float32]) -> str:
    return (
        f"{len(frames)} frames of {_EDGE}x{_EDGE}, float32, in chunks or shards of {_DEEP} frames, "
        "Blosc with zstd and bitshuffle"
    )


def _chunk_bytes(path: str) -> float:
    files = [one for one in Path(path).rglob("*") if one.is_file() and one.name[-1].isdigit()]
    return sum(file.stat().st_size for file in files) / len(files)


def _expected(frames: NDArray[np.float32], at: list[tuple[int, int, int]], size: int) -> Any:
    def pixels(row: int, _: Any) -> NDArray[np.float32]:
        plane, y, x = at[row]
        return frames[plane, y : y + size, x : x + size][None]

    return pixels
