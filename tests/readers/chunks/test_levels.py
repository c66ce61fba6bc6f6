"""Several levels of a variable as channels: as xarray's isel has them, each chunk read once."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr.codecs
from numpy.typing import NDArray

from readers import Index, Window
from readers.chunks.array import unpacked
from readers.chunks.reader import ChunkedReader
from readers.places.local import LocalPlace

LEVELS = [1000, 850, 700, 500, 300]
SHAPE = (4, len(LEVELS), 41, 36)
CHUNKS = [(1, 5, 41, 36), (2, 2, 16, 36), (1, 1, 41, 36), (4, 3, 7, 36)]


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    rng = np.random.default_rng(7)
    axes = ("time", "level", "lat", "lon")
    numbers = rng.permutation(int(np.prod(SHAPE))).reshape(SHAPE)
    return xr.Dataset(
        {
            "z": (axes, numbers.astype("f4")),
            "q": (axes, (numbers / 7).astype("f4")),
            "t2m": (("time", "lat", "lon"), numbers[:, 0].astype("f4") + 0.5),
            "land": (("lat", "lon"), (numbers[0, 0] % 2).astype("f4")),
        },
        {"time": np.arange(SHAPE[0]), "level": LEVELS},
    )


def write(dataset: xr.Dataset, path: Path, kind: str, chunks: tuple[int, ...]) -> Path:
    """Write a store or a file of any kind."""
    names = ("z", "q")
    if kind == "netCDF4":
        how: dict[str, Any] = {"chunksizes": chunks, "zlib": True, "shuffle": True}
        dataset.to_netcdf(path / "a.nc", encoding=dict.fromkeys(names, how), engine="h5netcdf")
        return path / "a.nc"
    how = {"chunks": chunks}
    if kind == "sharded":
        how = {"chunks": (1, 2, 16, 12), "shards": (2, 4, 32, 36)}
    elif kind == "v2 blosc":
        how["compressors"] = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE, blocksize=4096)
    elif kind == "v3 plain":
        how["compressors"] = None
    else:
        how["compressors"] = zarr.codecs.ZstdCodec(level=1)
    encoding = dict.fromkeys(names, how)
    version = 2 if kind == "v2 blosc" else 3
    dataset.to_zarr(path / "a.zarr", zarr_format=version, encoding=encoding, consolidated=False)
    return path / "a.zarr"


def index_of(path: Path, **arguments: Any) -> Index:
    make = Index.scan_arrays if path.suffix == ".nc" else Index.from_zarr
    return make(path, dim="time", **arguments)


def names_of(index: Index) -> list[str]:
    return list(unpacked(index["chunks"][0].as_py()))


def read(index: Index, number: int, window: Window | None = None, **settings: Any) -> NDArray[Any]:
    row = index.columns(notes=["chunks"]).row(number)
    reader = ChunkedReader(tuple(names_of(index)), **settings)
    return np.asarray(reader.read(row, window)["image"])


KINDS = ["sharded", "netCDF4", "v2 blosc", "v3 plain", "v3 zstd"]


@pytest.mark.parametrize(
    ("kind", "chunks"), [("sharded", CHUNKS[0]), *product(KINDS[1:], (CHUNKS[1], CHUNKS[3]))]
)
def test_as_isel(dataset: xr.Dataset, tmp_path: Path, kind: str, chunks: tuple[int, ...]) -> None:
    path = write(dataset, tmp_path, kind, chunks)
    window = Window.at(5, 8, 20, 17, image=SHAPE[2:])
    for level in ([3, 1, 2], (0,), slice(None), slice(4, 0, -2), np.array([-1, 0]), range(2)):
        index = index_of(path, variables=("z", "q"), isel={"level": level})
        at = list(level) if isinstance(level, range | tuple) else level
        expected = dataset.isel(level=at)
        labels = expected.level.values.tolist()
        assert names_of(index) == [f"{name}_{label}" for name in "zq" for label in labels]
        for row in (0, 3):
            one = expected.isel(time=row)
            channels = np.concatenate([one.z.values, one.q.values])
            np.testing.assert_array_equal(read(index, row), channels, strict=True)
            part = channels[:, 5:25, 8:25]
            np.testing.assert_array_equal(read(index, row, window), part, strict=True)


def test_beside_variables_without_levels(dataset: xr.Dataset, tmp_path: Path) -> None:
    for kind in ("netCDF4", "v3 zstd"):
        path = write(dataset, tmp_path, kind, CHUNKS[0])
        index = index_of(path, variables=("t2m", "z", "land"), isel={"level": [4, 3]})
        assert names_of(index) == ["t2m", "z_300", "z_500", "land"]
        one = dataset.isel(time=2)
        channels = [one.t2m, one.z[4], one.z[3], one.land]
        np.testing.assert_array_equal(read(index, 2), np.stack(channels), strict=True)
        found = index_of(path, isel={"level": [4, 3]})  # all with these axes
        assert sorted(names_of(found)) == ["q_300", "q_500", "t2m", "z_300", "z_500"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_is_read_once(
    dataset: xr.Dataset, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte is read twice, and none of chunks that hold no such level."""
    path = write(dataset, tmp_path, kind, (1, 2, 41, 36))
    index = index_of(path, variables=("z",), isel={"level": [0, 1]})
    read(index, 1)  # the metadata are compared
    touched: Counter[tuple[str, int]] = Counter()
    read_many = LocalPlace.read_many

    def counted(self: LocalPlace, pieces: Any) -> None:
        for start, part in pieces:
            touched.update((self.name, at) for at in range(start, start + len(part)))
        read_many(self, pieces)

    monkeypatch.setattr(LocalPlace, "read_many", counted)
    read(index, 1)
    assert set(touched.values()) == {1}
    if kind.startswith("v3"):
        assert {Path(name).relative_to(path).as_posix() for name, _ in touched} == {"z/c/1/0/0/0"}


def test_large_blosc_chunks_are_read_by_blocks(tmp_path: Path) -> None:
    """Blocks that several levels share are read once, and others not at all."""
    values = np.random.default_rng(0).normal(size=(2, 13, 60, 80)).astype("f4")
    dataset = xr.Dataset({"z": (("time", "level", "y", "x"), values)})
    chunks = {"chunks": (1, 13, 60, 80), "compressors": numcodecs.Blosc("zstd", 1, blocksize=32768)}
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=2, encoding={"z": chunks})
    for level in ([12], [0, 12], [3, 4, 5], [11, 0], list(range(13))):
        index = Index.from_zarr(tmp_path / "a.zarr", isel={"level": level})
        row = index.columns(notes=["chunks"]).row(1)
        found = ChunkedReader(tuple(names_of(index))).read(row, None)
        np.testing.assert_array_equal(found["image"], values[1, level], strict=True)
        most = min(13, 1 + 2 * len(level)) / 13
        assert found.input_bytes <= 1.05 * most * values[1].nbytes + 8192


@pytest.mark.parametrize(
    ("levels", "labels"),
    [
        (np.array([0.995, 0.5, 10, 1, 2], "f4"), ["0.995", "0.5", "10", "1", "2"]),
        (["a", "b", "surface", "d", "e"], ["a", "b", "surface", "d", "e"]),
        ([7, 7, 1, 2, 3], ["0", "1", "2", "3", "4"]),
        (None, ["0", "1", "2", "3", "4"]),
    ],
    ids=["float32", "text", "equal", "none"],
)
def test_names(dataset: xr.Dataset, tmp_path: Path, levels: Any, labels: list[str]) -> None:
    dataset = dataset.drop_vars("level")
    if levels is not None:
        dataset = dataset.assign_coords(level=levels)
    for kind in ("netCDF4", "v2 blosc"):
        path = write(dataset, tmp_path, kind, CHUNKS[0])
        index = index_of(path, variables=("z",), isel={"level": slice(None)})
        assert names_of(index) == [f"z_{label}" for label in labels]


def test_two_axes(tmp_path: Path) -> None:
    numbers = np.arange(2 * 3 * 2 * 5 * 4, dtype="f4").reshape(2, 3, 2, 5, 4)
    axes = ("time", "level", "member", "y", "x")
    xr.Dataset({"z": (axes, numbers)}, {"level": [5, 6, 7]}).to_zarr(
        tmp_path / "a.zarr", zarr_format=2
    )
    index = Index.from_zarr(tmp_path / "a.zarr", isel={"member": [1, 0], "level": [2, 0]})
    assert names_of(index) == ["z_1_7", "z_1_5", "z_0_7", "z_0_5"]
    expected = [numbers[1, level, member] for member in (1, 0) for level in (2, 0)]
    np.testing.assert_array_equal(read(index, 1), expected, strict=True)


def test_axes_without_names(tmp_path: Path) -> None:
    numbers = np.arange(2 * 3 * 5 * 4, dtype="i2").reshape(2, 3, 5, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("z", data=numbers, chunks=(1, 3, 5, 2))
    index = Index.scan_arrays(tmp_path / "a.h5", dim="dim_0", isel={"dim_1": [2, 0]})
    assert names_of(index) == ["z_2", "z_0"]
    found = read(index, 1, dtype="int16")
    np.testing.assert_array_equal(found, numbers[1, [2, 0]], strict=True)


@pytest.mark.parametrize(
    ("isel", "words"),
    [
        ({"level": [0, 5]}, r"no position 5 on 'level'.* 0 to 4"),
        ({"level": [-6]}, r"no position -6 on 'level'"),
        ({"level": []}, r"isel.*\[\]"),
        ({"level": slice(3, 3)}, r"slice\(3, 3, None\).*'level'.*\(5\)"),
        ({"level": slice(0, 3, 0)}, "isel"),
        ({"level": [1, -4]}, "position 1 on 'level'.*twice"),
        ({"level": [1, 1]}, "position 1 on 'level'.*twice"),
        ({"level": "01"}, "isel"),
        ({"level": [0.0, 1.0]}, "isel"),
        ({"level": [True, False]}, "isel"),
        ({"level": [[0, 1]]}, "isel"),
        ({"level": np.zeros((1, 2), int)}, "isel"),
        ({"time": [0, 1]}, "isel.*except dim"),
        ({"level": 0, "lat": slice(0, 9)}, "crop="),
        ({"levle": [0, 1]}, "no axis 'levle'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("variables", [None, ("z", "q")])
def test_refused(
    dataset: xr.Dataset, tmp_path: Path, isel: dict[str, Any], words: str, variables: Any
) -> None:
    for kind in ("netCDF4", "v3 zstd"):
        path = write(dataset[["z", "q"]], tmp_path, kind, CHUNKS[0])
        with pytest.raises(ValueError, match=words):
            index_of(path, variables=variables, isel=isel)


def test_two_channels_of_one_name(dataset: xr.Dataset, tmp_path: Path) -> None:
    dataset = dataset.assign(z_500=dataset.t2m)
    path = write(dataset, tmp_path, "v3 zstd", CHUNKS[0])
    with pytest.raises(ValueError, match="'z_500'"):
        index_of(path, variables=("z_500", "z"), isel={"level": [3]})


def test_missing_chunks_are_counted_once(
    dataset: xr.Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(dataset, tmp_path, "v3 zstd", (1, 2, 41, 36))
    (path / "z" / "c" / "1" / "0" / "0" / "0").unlink()
    with caplog.at_level(logging.WARNING):
        index_of(path, variables=("z",), isel={"level": [0, 1, 4]})
    assert len(caplog.records) == 1
    assert "1 of 8 examined chunks of 'z'" in caplog.text
