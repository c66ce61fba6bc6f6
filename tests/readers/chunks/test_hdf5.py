"""HDF5 and netCDF4 as h5py and xarray write them: values, windows, and what is refused."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numcodecs
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from zarr_stores import frames

from readers import Index, ReadError, Row, Window
from readers.chunks.reader import ChunkedReader
from readers.contract import Reader, Sample
from readers.testing import NUMBER, ReaderContract

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip"},
    "gzip, shuffle": {"compression": "gzip", "shuffle": True},
    "fletcher32": {"fletcher32": True},
    "all of HDF5": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "zstd": dict(hdf5plugin.Zstd()),
    "zstd, shuffle": {"shuffle": True, **hdf5plugin.Zstd()},
    "LZ4": dict(hdf5plugin.LZ4()),
    "LZ4, small blocks": dict(hdf5plugin.LZ4(nbytes=300)),
    "LZ4, shuffle": {"shuffle": True, **hdf5plugin.LZ4()},
    "LZ4, small blocks, shuffle": {"shuffle": True, **hdf5plugin.LZ4(nbytes=300)},
    "bitshuffle": dict(hdf5plugin.Bitshuffle(cname="none")),
    "bitshuffle, LZ4": dict(hdf5plugin.Bitshuffle()),
    "bitshuffle, zstd": dict(hdf5plugin.Bitshuffle(cname="zstd")),
    "bitshuffle, small blocks": dict(hdf5plugin.Bitshuffle(nelems=64)),
    "Blosc": dict(hdf5plugin.Blosc("lz4", shuffle=hdf5plugin.Blosc.SHUFFLE)),
    "Blosc, bits": dict(hdf5plugin.Blosc("zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
    "bzip2": dict(hdf5plugin.BZip2()),
}
DTYPES = ("<f4", ">f4", "<f8", "<f2", "<i2", ">i2", "|u1", "<u4", "<i8", "|b1")


def read(index: Index, number: int, window: Window | None = None, **given: Any) -> NDArray[Any]:
    row = index.columns(notes=["chunks"]).row(number)
    variables = given.pop("variables", ("a",))
    return ChunkedReader(variables, **given).read(row, window)["image"]


def write(path: Path, array: NDArray[Any], **settings: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=array, **settings)
    return path


def noisy(shape: tuple[int, ...], dtype: str, seed: int = 0) -> NDArray[Any]:
    """Return values of which some parts compress and others do not."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 255, (*shape, np.dtype(dtype).itemsize), np.uint8)
    array = frames(shape, dtype)
    if np.dtype(dtype).kind in "iu":
        array[..., shape[-1] // 2 :] = bits.view(dtype)[..., 0][..., shape[-1] // 2 :]
    return array


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("filters", FILTERS)
def test_filters(tmp_path: Path, filters: str, dtype: str) -> None:
    array = noisy((5, 67, 45), dtype)
    write(tmp_path / "a.h5", array, chunks=(2, 32, 17), **FILTERS[filters])
    index = Index.scan_arrays(tmp_path, dim="time")
    assert len(index) == 5
    window = Window.at(5, 9, 40, 30, image=(67, 45))
    for number in (0, 1, 4):
        expected = array[number][None].astype(np.float32)
        np.testing.assert_array_equal(read(index, number), expected, strict=True)
        part = read(index, number, window)
        np.testing.assert_array_equal(part, expected[:, 5:45, 9:39], strict=True)


@settings(deadline=None, max_examples=60)
@given(
    shape=st.tuples(*[st.integers(1, 20)] * 3),
    chunks=st.tuples(*[st.integers(1, 20)] * 3),
    filters=st.sampled_from(sorted(FILTERS)),
    dtype=st.sampled_from(DTYPES),
    axis=st.integers(0, 2),
    data=st.data(),
)
def test_windows(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    filters: str,
    dtype: str,
    axis: int,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("hdf5") / "a.h5"
    array = noisy(shape, dtype, data.draw(st.integers(0, 9)))
    chunks = tuple(map(min, chunks, shape))
    with h5py.File(path, "w") as file:
        written = file.create_dataset("a", data=array, chunks=chunks, **FILTERS[filters])
        for number, name in enumerate("tyx"):
            written.dims[number].label = name
    index = Index.scan_arrays(path, dim="tyx"[axis])
    image = np.moveaxis(array, axis, 0)[plane := data.draw(st.integers(0, shape[axis] - 1))]
    height = data.draw(st.integers(1, image.shape[0]))
    width = data.draw(st.integers(1, image.shape[1]))
    y = data.draw(st.integers(0, image.shape[0] - height))
    x = data.draw(st.integers(0, image.shape[1] - width))
    found = read(index, plane, Window.at(y, x, height, width, image=image.shape))
    expected = image[y : y + height, x : x + width].astype(np.float32)
    np.testing.assert_array_equal(found, expected[None], strict=True)


@pytest.mark.parametrize(
    "layout", ["contiguous", "compact", "empty", "user block", "user block, chunks", "latest"]
)
def test_layouts(tmp_path: Path, layout: str) -> None:
    array = frames((3, 20, 30), "<i2")
    path = tmp_path / "a.h5"
    made: dict[str, Any] = {"userblock_size": 1024} if layout.startswith("user") else {}
    if layout == "latest":
        made = {"libver": "latest"}
    with h5py.File(path, "w", **made) as file:
        if layout == "compact":
            settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            settings.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple(array.shape)
            kind = h5py.h5t.py_create(array.dtype)
            one = h5py.h5d.create(file.id, b"a", kind, space, dcpl=settings)
            one.write(h5py.h5s.ALL, h5py.h5s.ALL, array)
        elif layout == "empty":
            file.create_dataset("a", shape=array.shape, dtype="<i2", fillvalue=-7)
            array = np.full_like(array, -7)
        else:
            chunks = None if layout in ("contiguous", "user block") else (2, 8, 8)
            maxshape = (None, 20, None) if layout == "latest" else None
            file.create_dataset("a", data=array, chunks=chunks, maxshape=maxshape)
    index = Index.scan_arrays(path, dim="time")
    for number in range(3):
        expected = array[number][None].astype(np.float32)
        np.testing.assert_array_equal(read(index, number), expected, strict=True)
        window = Window.at(2, 7, 11, 13, image=(20, 30))
        np.testing.assert_array_equal(read(index, number, window), expected[:, 2:13, 7:20])
    stored = read(index, 2, dtype="int16")
    np.testing.assert_array_equal(stored, array[2][None], strict=True)


def test_chunks_without_bytes_and_without_filters(tmp_path: Path) -> None:
    array = np.full((16, 24), 9.5, np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        one = file.create_dataset(
            "a", array.shape, "<f4", chunks=(8, 8), compression="gzip", shuffle=True, fillvalue=9.5
        )
        one[:8, 8:16] = array[:8, 8:16] = frames((8, 8), "<f4")
        plain = frames((8, 8), "<f4", seed=1)
        array[8:, 16:] = plain
        one.id.write_direct_chunk((8, 16), plain.tobytes(), filter_mask=0b11)
    index = Index.scan_arrays(tmp_path / "a.h5")
    np.testing.assert_array_equal(read(index, 0), array[None], strict=True)


@pytest.mark.parametrize("mask", range(4))
def test_chunks_without_some_of_the_filters(tmp_path: Path, mask: int) -> None:
    """HDF5 leaves out a filter that makes a chunk no smaller, and keeps the others."""
    content = frames((8, 8), "<f4").tobytes()
    if not mask & 1:
        content = numcodecs.Shuffle(4).encode(content).tobytes()
    if not mask & 2:
        content = zlib.compress(content)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        one = file.create_dataset(
            "a", (8, 8), "<f4", chunks=(8, 8), compression="gzip", shuffle=True
        )
        one.id.write_direct_chunk((0, 0), content, filter_mask=mask)
    with h5py.File(tmp_path / "a.h5") as file:
        expected = file["a"][...]
    np.testing.assert_array_equal(expected, frames((8, 8), "<f4"))
    index = Index.scan_arrays(tmp_path / "a.h5")
    np.testing.assert_array_equal(read(index, 0), expected[None], strict=True)


def test_many_files_are_rows(tmp_path: Path) -> None:
    """As of Surya: a file for each time, whose variables are images."""
    for number in range(3):
        with h5py.File(tmp_path / f"f{number}.nc", "w") as file:
            file.attrs["date"] = f"2014-01-0{number + 1}T00:12:00"
            for name in ("aia171", "hmi_m"):
                array = frames((40, 40), "<f4", seed=number + len(name))
                file.create_dataset(name, data=array, chunks=(16, 16), compression="gzip")
    index = Index.scan_arrays(tmp_path, columns={"time": "date"})
    assert [one.day for one in index["time"].to_pylist()] == [1, 2, 3]
    found = read(index, 1, variables=("hmi_m", "aia171"))
    expected = np.stack([frames((40, 40), "<f4", seed=1 + n) for n in (5, 6)])
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_values_are_those_of_xarray(tmp_path: Path, engine: Any) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(280, 9, (6, 2, 30, 40))
    values[0, 0, :3] = np.nan
    axes = ("time", "level", "lat", "lon")
    times = np.datetime64("2020-01-01", "ns") + np.arange(6) * np.timedelta64(6, "h")
    dataset = xr.Dataset(
        {"t": (axes, values), "u": (axes, values - 280), "v": (axes, values)}, {"time": times}
    )
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -999}
    encoding = {
        "t": {**packed, "zlib": True, "chunksizes": (2, 1, 11, 13)},
        "u": {"dtype": "f4", "chunksizes": (4, 2, 8, 8), "zlib": True, "shuffle": True},
        "v": {
            "dtype": "u1",
            "_Unsigned": "false",
            "scale_factor": np.float32(2),
            "_FillValue": 255,
        },
    }
    path = tmp_path / "a.nc"
    dataset.to_netcdf(path, engine=engine, encoding=encoding, unlimited_dims=["time"])
    index = Index.scan_arrays(path, dim="time", isel={"level": -1})
    np.testing.assert_array_equal(index["time"].to_numpy(), times)
    with xr.open_dataset(path, engine=engine) as opened:
        for name, number in itertools.product("tuv", range(6)):
            expected = opened[name].values[number, 1].astype(np.float32)
            found = read(index, number, variables=(name,))
            np.testing.assert_array_equal(found[0], expected, strict=True)


def test_an_unlimited_axis_is_as_long_as_its_coordinates(tmp_path: Path) -> None:
    import netCDF4

    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, length in (("time", None), ("y", 6), ("x", 5)):
            file.createDimension(name, length)
        for name, written in (("a", 5), ("b", 3)):
            one = file.createVariable(name, "f4", ("time", "y", "x"), fill_value=-1.0)
            one[:written] = frames((written, 6, 5), "<f4")
        file.createVariable("time", "f8", ("time",))[:] = range(5)
    index = Index.scan_arrays(tmp_path, dim="time")
    assert len(index) == 5
    with xr.open_dataset(tmp_path / "a.nc", decode_times=False) as opened:
        for number in range(5):
            expected = np.stack([opened[name].values[number] for name in "ab"])
            np.testing.assert_array_equal(read(index, number, variables=("a", "b")), expected)


@pytest.mark.parametrize("written", [0, 3])
@pytest.mark.parametrize("maker", ["netCDF4", "netCDF4 with _FillValue", "h5py"])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_coordinates_that_were_not_written_are_null(
    tmp_path: Path, dtype: str, maker: str, written: int
) -> None:
    """By h5py fill values are 0, which would be the first time again."""
    import netCDF4

    path = tmp_path / "a.nc"
    units = "hours since 2020-01-01"
    hours = np.arange(written, dtype=dtype) * 6
    if maker == "h5py":
        with h5py.File(path, "w") as made:
            time = made.create_dataset("time", data=hours, maxshape=(None,), chunks=(2,))
            time.attrs["units"] = units
            image = made.create_dataset("t2m", data=frames((5, 6, 4), "<f4"), maxshape=(None, 6, 4))
            for axis, name in enumerate(("time", "lat", "lon")):
                if axis:
                    made.create_dataset(name, data=np.arange(image.shape[axis]))
                scale = made[name]
                scale.make_scale(name)
                image.dims[axis].attach_scale(scale)
    else:
        with netCDF4.Dataset(path, "w") as file:
            for name, length in (("time", None), ("lat", 6), ("lon", 4)):
                file.createDimension(name, length)
            fill = -1 if maker != "netCDF4" else None
            coordinate = file.createVariable("time", dtype, ("time",), fill_value=fill)
            coordinate.units = units
            coordinate[:] = hours
            variable = file.createVariable("t2m", "f4", ("time", "lat", "lon"))
            variable[:] = frames((5, 6, 4), "<f4")
    with netCDF4.Dataset(path) as opened:
        expected = np.ma.getmaskarray(opened["time"][:])
    assert expected.tolist() == [False] * written + [True] * (5 - written)
    for columns in (None, {"time": "time"}):
        index = Index.scan_arrays(path, variables=("t2m",), dim="time", columns=columns)
        assert index["time"].is_null().to_pylist() == expected.tolist()
        times = np.datetime64("2020-01-01", "ns") + np.arange(written) * np.timedelta64(6, "h")
        np.testing.assert_array_equal(index["time"].to_numpy()[:written], times)


def test_a_coordinate_of_another_length_is_no_column(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as made:
        image = made.create_dataset("t2m", data=frames((5, 6, 4), "<f4"))
        for axis, name in enumerate(("time", "lat", "lon")):
            scale = made.create_dataset(name, data=np.arange(3.0))
            scale.make_scale(name)
            image.dims[axis].attach_scale(scale)
    with caplog.at_level(logging.WARNING):
        index = Index.scan_arrays(tmp_path / "a.h5", variables=("t2m",), dim="time")
    assert "time" not in index
    assert "no column 'time'" in caplog.text


def test_groups(tmp_path: Path) -> None:
    array = frames((20, 30), "<f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("deep/er/image", data=array)
        file["soft"] = h5py.SoftLink("/deep/er/image")
    for name in ("deep/er/image", "soft"):
        index = Index.scan_arrays(tmp_path / "a.h5", variables=[name])
        np.testing.assert_array_equal(read(index, 0, variables=(name,))[0], array)


def _odd_float(file: h5py.File) -> None:
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(23, 15, 8, 0, 15)
    space = h5py.h5s.create_simple((4, 4))
    h5py.h5d.create(file.id, b"a", kind, space)


def _filter(**given: Any) -> Any:
    return lambda file: file.create_dataset("a", data=np.ones((9, 9), "f4"), **given)


def _scaled(file: h5py.File) -> None:
    file.create_dataset("a", data=np.ones((9, 9), "i4"), chunks=(9, 9), scaleoffset=4)


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((9, 9), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "b", (9, 9))
    file.create_virtual_dataset("a", layout)


def _external(file: h5py.File) -> None:
    file["a"] = h5py.ExternalLink("other.h5", "/b")


def _stored_elsewhere(file: h5py.File) -> None:
    file.create_dataset("a", (9, 9), "f4", external=[("raw.bin", 0, 324)])


def _compound(file: h5py.File) -> None:
    file.create_dataset("a", data=np.zeros((9, 9), [("x", "f4"), ("y", "f4")]))


def _text(file: h5py.File) -> None:
    file.create_dataset("a", (9, 9), h5py.string_dtype())


@pytest.mark.parametrize(
    ("write_to", "words"),
    [
        (_filter(compression="lzf"), "lzf"),
        (_scaled, "scaleoffset"),
        (_filter(**hdf5plugin.Zfp()), "32013"),
        (_virtual, r"virtual.*other\.h5"),
        (_external, r"another file.*other\.h5"),
        (_stored_elsewhere, "other files"),
        (_compound, "expected bools"),
        (_text, "expected bools"),
        (_odd_float, "type of its own"),
        (lambda file: file.create_dataset("b", data=np.ones((4, 4))), "variable 'a'.*it has b"),
        (lambda file: file.create_dataset("a", data=np.ones((2, 4, 4))), r"dim_0 \(2\).*isel="),
        (lambda file: file.create_dataset("a", shape=(0, 4), dtype="f4"), "no values"),
        (lambda file: file.create_dataset("a", data=1.0), "expected two"),
        (lambda file: file.update({"a": h5py.SoftLink("/nowhere")}), "no variable 'a'"),
    ],
)
def test_refused(tmp_path: Path, write_to: Any, words: str) -> None:
    path = tmp_path / "refused.h5"
    with h5py.File(path, "w") as file:
        write_to(file)
    with pytest.raises(ValueError, match=f"refused.h5.*{words}"):
        Index.scan_arrays(path, variables=["a"])


def test_links_to_other_files_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["a"] = h5py.ExternalLink("other.h5", "/a")
    with pytest.raises(ValueError, match=r"no array has two axes.*not followed: a to other\.h5"):
        Index.scan_arrays(tmp_path / "links.h5")


def test_files_that_cannot_be_read_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("0.h5", "1.h5", "2.h5"):
        write(tmp_path / name, np.full((4, 4), int(name[0])))
    (tmp_path / "1.h5").write_bytes((tmp_path / "0.h5").read_bytes()[:1000])
    with h5py.File(tmp_path / "2.h5", "a") as file:
        file.move("a", "b")
    seen = []

    def progress(files: Iterable[Any]) -> Iterator[Any]:
        for one in files:
            seen.append(one)
            yield one

    index = Index.scan_arrays(tmp_path, variables=["a"], progress=progress)
    assert len(index) == 1
    assert len(seen) == 3
    assert "2 files that cannot be read, the first: " in caplog.text
    assert "1.h5" in caplog.text
    (tmp_path / "0.h5").unlink()
    with pytest.raises(ValueError, match=r"1\.h5"):
        Index.scan_arrays(tmp_path, variables=["a"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"CDF\x01" + bytes(99), "netCDF 3"),
        (b"x" * 99, "HDF5"),
        (b"", "HDF5"),
        (b"\x89HDF", "HDF5"),
    ],
)
def test_no_hdf5(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "no.nc").write_bytes(content)
    with pytest.raises(ValueError, match=rf"no\.nc.*{words}"):
        Index.scan_arrays(tmp_path / "no.nc")


def test_columns_that_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", frames((3, 9, 9)))
    with pytest.raises(ValueError, match="'tyme'"):
        Index.scan_arrays(path, dim="t", columns={"time": "tyme"})
    with pytest.raises(ValueError, match="'tyme'"):
        Index.scan_arrays(path, isel={"dim_0": 1}, columns={"time": "tyme"})


@pytest.mark.parametrize("filters", sorted(set(FILTERS) - {"none"}))
def test_damaged_chunks(tmp_path: Path, filters: str) -> None:
    """A damaged chunk is an error or other values, whatever its bytes are."""
    array = noisy((64, 64), "<f4")
    path = write(tmp_path / "a.h5", array, chunks=(64, 64), **FILTERS[filters])
    index = Index.scan_arrays(path)
    with h5py.File(path) as file:
        chunk = file["a"].id.get_chunk_info(0)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    errors = 0
    for turn in range(60):
        content = bytearray(whole)
        first = chunk.byte_offset + (turn if turn < 24 else int(rng.integers(chunk.size)))
        content[first : first + 3] = rng.bytes(3)
        path.write_bytes(content)
        try:
            read(index, 0)
        except ReadError:
            errors += 1
    assert errors > 0 or filters in ("shuffle", "bitshuffle")  # nothing in these tells damage
    path.write_bytes(whole[: chunk.byte_offset + chunk.size // 2])
    with pytest.raises(ReadError, match=r"a\.h5"):
        read(index, 0)


class TestHdf5(ReaderContract):
    @pytest.fixture
    def reader(self) -> Reader:
        return ChunkedReader(("a",))

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return self.row(self.content(tmp_path / "good.h5", (31, 23), "gzip"))

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        path = self.content(tmp_path / "bad.h5", (31, 23), "gzip")
        row = self.row(path)
        path.write_bytes(b"x" * path.stat().st_size)
        return row

    def content(self, path: Path, shape: tuple[int, int], compression: str | None) -> Path:
        return write(path, frames(shape), chunks=(16, 16), compression=compression)

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return np.moveaxis(sample["image"], 0, -1)

    def row(self, path: Path | str) -> Row:
        """Return the row of a file as if it had been whole when it was indexed."""
        whole = self.content(Path(path).parent / "indexed.hdf5", (31, 23), "gzip")
        noted = Index.scan_arrays(whole).columns(notes=["chunks"]).row(0)
        return replace(noted, number=NUMBER, path=str(path))


def test_filters_are_not_imported_by_others() -> None:
    code = (
        "import sys, dali_pipelines, readers; assert not {'h5py', 'numcodecs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_note_holds_the_chunks_of_its_row(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", frames((64, 64, 64)), chunks=(1, 8, 8), compression="gzip")
    notes = Index.scan_arrays(tmp_path, dim="time")["chunks"].to_pylist()
    one = Index.scan_arrays(tmp_path, dim="time")
    assert len(one) == 64
    assert max(map(len, notes)) < 1000  # 64 chunks of a row; all 4,096 would take some 8,000 bytes


def test_an_image_whose_chunks_are_decoded_in_groups(tmp_path: Path) -> None:
    array = np.arange(4300 * 4300, dtype="f4").reshape(4300, 4300)
    path = write(tmp_path / "a.h5", array, chunks=(700, 900), compression="gzip")
    np.testing.assert_array_equal(read(Index.scan_arrays(path), 0)[0], array)


def test_variables_that_are_not_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"], file["b"] = np.zeros((4, 5), "f4"), np.ones((4, 5), "f4")
    index = Index.scan_arrays(tmp_path)
    image = read(index, 0, variables=None, num_variables=2)
    np.testing.assert_array_equal(image, np.stack([np.zeros((4, 5)), np.ones((4, 5))]))
    with pytest.raises(ReadError, match="2 variables, a, b, expected 3"):
        read(index, 0, variables=None, num_variables=3)
    settings: list[dict[str, Any]] = [{"variables": None}]
    settings.append({"variables": ("a",), "num_variables": 1})
    for one in settings:
        with pytest.raises(ValueError, match="num_variables"):
            ChunkedReader(**one)
