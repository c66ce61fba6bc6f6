"""Windows of arrays in chunks: Zarr against zarr-python, HDF5 against h5py and xarray."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Settings
from benchmarks.measure.race import Table, Way, race
from benchmarks.report.tables import Sheet
from benchmarks.ways.arrays import (
    Windows,
    by_h5py,
    by_tensorstore,
    by_variables,
    by_whole_files,
    by_whole_frames,
    by_zarr,
    here_way,
)
from benchmarks.ways.loaders import data_loader_way, loader_of
from benchmarks.ways.peers import SEED
from dali_pipelines import Index, chunked_pipeline
from readers.chunks.reader import ChunkedReader
from readers.window import Window

_EDGE, _PLANES, _DEEP = 512, 45, 15
"""Pixels of a frame's side, frames, and frames of a chunk: those of SDOMLv2, in a small number."""
_SIZES = (128, 512)
_HDF5_EDGE, _HDF5_PLANES, _HDF5_CHUNK = 2048, 6, 512
_SUN_EDGE, _SUN_VARIABLES = 4096, 2
"""Pixels of a frame's side, and variables of a file. Surya's have as many pixels, and 13 variables.
"""


@dataclass(frozen=True)
class Stored:
    """Frames as one format stores them, and who else reads it."""

    kind: str
    path: str
    frames: NDArray[np.float32]
    """Shape (planes, edge, edge); with several variables (variables, edge, edge)."""
    described: str
    peers: Mapping[str, Opened]
    """Others, the baseline first."""
    variables: tuple[str, ...] = ("frames",)
    """Names of the variables; a window shows all of them."""
    windows: int = 100
    """Windows that are read in one process, and"""
    batches: int = 24
    """batches of those that processes read."""

    @property
    def edge(self) -> int:
        """Pixels of a frame's side."""
        return self.frames.shape[1]

    @property
    def planes(self) -> int:
        """Rows of an Index."""
        return len(self.frames) if len(self.variables) == 1 else 1

    def index(self) -> Index:
        """Return an Index with a row for each frame, or for the file if it has variables."""
        if not self.path.endswith(".h5"):
            return Index.from_zarr(self.path)
        return Index.scan_arrays(self.path, dim="time" if len(self.variables) == 1 else None)

    def window(self, plane: int, y: int, x: int, size: int) -> NDArray[np.float32]:
        """Return the pixels of a window, shape (variables, size, size)."""
        frames = self.frames[plane : plane + 1] if self.planes > 1 else self.frames
        return frames[:, y : y + size, x : x + size]


class Opened(NamedTuple):
    """How others open a file."""

    open: Callable[[str], Any]
    needs: tuple[str, ...] = ()


def chunks_suite(settings: Settings) -> Iterator[Table | Sheet]:
    """Time windows and whole frames, in one process, and by reader processes."""
    with tempfile.TemporaryDirectory(prefix="dali-pipelines-") as folder:
        stores = [(one, size) for one in write_stores(Path(folder)) for size in _SIZES]
        files = [(one, _HDF5_CHUNK) for one in (*write_hdf5(Path(folder)), write_sun(Path(folder)))]
        for time in (alone, by_processes):
            for one, size in (*stores, *files):
                yield time(one, min(size, one.edge), settings)


def sun(planes: int, edge: int) -> NDArray[np.float32]:
    """Return frames of a disk with noise, calibrated, shape (planes, edge, edge)."""
    rng = np.random.default_rng(SEED)
    y, x = np.mgrid[:edge, :edge] - edge / 2
    away = np.hypot(y, x) / edge * 512
    mean = np.where(away < 200, 200, 200 * np.exp(-(away - 200) / 30)) + 3
    noise = rng.normal(0, 0.4, (planes, edge, edge))
    return (rng.poisson(mean, (planes, edge, edge)) * 1.017 + noise).astype(np.float32)


def write_stores(folder: Path) -> Iterator[Stored]:
    """Write frames as Zarr."""
    import numcodecs
    import zarr
    from zarr.codecs import BloscCodec

    frames = sun(_PLANES, _EDGE)
    chunk, inner = (_DEEP, _EDGE, _EDGE), (1, _EDGE // 4, _EDGE // 4)
    v2 = numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE)
    v3 = BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle")
    kinds: dict[str, dict[str, Any]] = {
        "Zarr 2": {"zarr_format": 2, "chunks": chunk, "compressors": v2},
        "Zarr 3": {"zarr_format": 3, "chunks": chunk, "compressors": v3},
        "shards": {"zarr_format": 3, "chunks": inner, "shards": chunk, "compressors": v3},
    }
    described = (
        f"{_PLANES} frames of {_EDGE}x{_EDGE}, float32, in chunks or shards of {_DEEP} frames, "
        "Blosc with zstd and bitshuffle"
    )
    peers = {
        "zarr-python": Opened(by_zarr),
        "tensorstore": Opened(by_tensorstore, ("tensorstore",)),
    }
    for number, (kind, how) in enumerate(kinds.items()):
        path = str(folder / f"{number}.zarr")
        zarr.create_array(path, shape=frames.shape, dtype="f4", **how)[...] = frames
        yield Stored(kind, path, frames, described, peers, (Path(path).name,))


def write_hdf5(folder: Path) -> Iterator[Stored]:
    """Write frames as HDF5, by filters."""
    import h5py
    import hdf5plugin

    frames = sun(_HDF5_PLANES, _HDF5_EDGE)
    edge = min(_HDF5_CHUNK, _HDF5_EDGE)
    kinds: dict[str, dict[str, Any]] = {
        "gzip": {"compression": "gzip", "shuffle": True},
        "LZ4": {"shuffle": True, **hdf5plugin.LZ4()},
        "zstd": {"shuffle": True, **hdf5plugin.Zstd()},
        "Blosc": dict(hdf5plugin.Blosc("zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
    }
    for kind, how in kinds.items():
        path = str(folder / f"{kind}.h5")
        with h5py.File(path, "w") as file:
            file.create_dataset("frames", data=frames, chunks=(1, edge, edge), **how)
        described = (
            f"{len(frames)} frames of {_HDF5_EDGE}x{_HDF5_EDGE}, float32, in chunks of "
            f"{edge}x{edge}, {kind}{'' if kind == 'Blosc' else ' with shuffle'}"
        )
        peers = {"h5py, kept open": Opened(by_h5py)}
        if kind == "gzip":
            peers["h5py, whole frames"] = Opened(by_whole_frames)
        yield Stored(f"HDF5 with {kind}", path, frames, described, peers)


def write_sun(folder: Path) -> Stored:
    """Write variables as a file for each time has them, of which others read all."""
    import h5py

    path = str(folder / "sun.h5")
    frames = sun(_SUN_VARIABLES, _SUN_EDGE)
    names = tuple(f"v{number}" for number in range(_SUN_VARIABLES))
    edge = min(_HDF5_CHUNK, _SUN_EDGE)
    with h5py.File(path, "w") as file:
        for name, frame in zip(names, frames, strict=True):
            settings = {"chunks": (edge, edge), "compression": "gzip", "shuffle": True}
            file.create_dataset(name, data=frame, **settings)
    described = (
        f"a file of {len(names)} variables of {_SUN_EDGE}x{_SUN_EDGE}, float32, in chunks of "
        f"{edge}x{edge}, gzip with shuffle"
    )
    peers = {
        "xarray, whole file": Opened(by_whole_files, ("h5netcdf", "xarray")),
        "h5py, kept open": Opened(by_variables),
    }
    return Stored(
        "variables of a file", path, frames, described, peers, names, windows=8, batches=2
    )


def positions(one: Stored, count: int, size: int) -> list[tuple[int, int, int]]:
    """Return planes and corners of random windows."""
    rng = np.random.default_rng(SEED)
    planes = rng.integers(0, one.planes, count).tolist()
    ys, xs = rng.integers(0, one.edge - size + 1, (2, count)).tolist()
    return list(zip(planes, ys, xs, strict=True))


def alone(one: Stored, size: int, settings: Settings) -> Table:
    """Time single reads in this process."""
    at = positions(one, 8 if settings.quick else one.windows, size)
    columns = one.index().columns(notes=["chunks"])
    rows = [columns.row(plane) for plane, _, _ in at]
    windows = [Window.at(y, x, size, size, image=(one.edge, one.edge)) for _, y, x in at]
    reader = ChunkedReader(one.variables)
    read_bytes = [
        reader.read(row, window).input_bytes for row, window in zip(rows, windows, strict=True)
    ]

    def read(row: int) -> NDArray[Any]:
        return reader.read(rows[row], windows[row])["image"]

    def peer(opened: Callable[[str], Any]) -> Callable[[int], NDArray[Any]]:
        dataset = Windows(one.path, at, size, opened)
        return dataset.read

    ways = [here_way("ChunkedReader", read, len(at), ours=True)]
    for name, (opened, needs) in one.peers.items():
        ways.append(here_way(name, peer(opened), len(at), needs=needs))
    mean = sum(read_bytes) / len(at)
    return Table(
        title=f"{_title(one, size)}, one process",
        baseline=next(iter(one.peers)),
        results=race(ways, _expected(one, at, size), settings.rounds),
        data=f"{len(at)} windows of {one.described}",
        note=f"The Reader reads {mean / 1e6:.2f} MB of a window's "
        f"{len(one.variables) * size * size * 4 / 1e6:.2f} MB"
        f"{_of_chunks(one.path)}.",
    )


def by_processes(one: Stored, size: int, settings: Settings) -> Table:
    """Time the Loader against DataLoaders with as many processes."""
    batch = 8
    at = positions(one, (2 if settings.quick else one.batches) * batch, size)
    planes, ys, xs = map(list, zip(*at, strict=True))
    index = one.index().select(planes).with_column("y", ys).with_column("x", xs)
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
    peers = [
        data_loader_way(
            f"DataLoader, {name}",
            Windows(one.path, at, size, opened),
            order,
            batch_size=batch,
            num_workers=workers,
            needs=needs,
        )
        for name, (opened, needs) in one.peers.items()
    ]
    return Table(
        title=f"{_title(one, size)}, Loader",
        baseline=f"DataLoader, {next(iter(one.peers))}",
        results=race([ours, *peers], _expected(one, at, size), settings.rounds),
        data=f"{len(at)} windows of {one.described}",
        note=f"{workers} processes each; batches of {batch}.",
    )


def _title(one: Stored, size: int) -> str:
    return f"{'Whole frames' if size == one.edge else f'Windows of {size}x{size}'}, {one.kind}"


def _of_chunks(path: str) -> str:
    """Return what a chunk has on average, for stores whose chunks are files."""
    files = [one for one in Path(path).rglob("*") if one.is_file() and one.name[-1].isdigit()]
    if not files:
        return ""
    mean = sum(file.stat().st_size for file in files) / len(files)
    return f"; a chunk or shard has {mean / 1e6:.2f} MB on average"


def _expected(one: Stored, at: list[tuple[int, int, int]], size: int) -> Any:
    return lambda row, _: one.window(*at[row], size)
