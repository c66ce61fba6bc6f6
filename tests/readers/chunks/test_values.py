"""Values equal those of zarr-python and xarray, bit for bit."""

from __future__ import annotations

import base64
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from zarr_stores import frames, write_array

from readers import Index, Row, Window
from readers.chunks.reader import ChunkedReader
from readers.chunks.values import packing_of, put_values

DTYPES = ("<f4", ">f4", "<f8", ">f8", "<f2", "|b1", "|u1", "|i1", "<i2", ">u2", "<u4", ">i4", "<i8")
BLOSC = [
    numcodecs.Blosc(name, 5, shuffle, blocksize=size)
    for name in ("zstd", "lz4", "blosclz", "zlib", "lz4hc")
    for shuffle in (0, 1, 2)
    for size in (0, 64, 256)
]
COMPRESSORS: list[Any] = [
    None,
    *(numcodecs.Zstd(3), numcodecs.LZ4(), numcodecs.GZip(5), numcodecs.Zlib(5)),
    *(numcodecs.BZ2(), numcodecs.LZMA(), *BLOSC),
]
OF_V3: list[Any] = [
    None,
    zarr.codecs.ZstdCodec(level=3),
    zarr.codecs.ZstdCodec(level=1, checksum=True),
    zarr.codecs.GzipCodec(level=5),
    [zarr.codecs.ZstdCodec(level=3), zarr.codecs.Crc32cCodec()],
    zarr.codecs.Crc32cCodec(),
    *(
        zarr.codecs.BloscCodec(cname=name, clevel=5, shuffle=shuffle, blocksize=size)
        for name in ("zstd", "lz4", "blosclz")
        for shuffle in ("noshuffle", "shuffle", "bitshuffle")
        for size in (0, 128)
    ),
]


@contextmanager
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name) / "a"


def read(index: Index, number: int, window: Window | None = None, **settings: Any) -> NDArray[Any]:
    columns = index.columns(notes=["chunks"])
    name = Path(index.path(0)).name
    row: Row = columns.row(number)
    return ChunkedReader((name,), **settings).read(row, window)["image"][0]


def compare(path: Path, draw: Callable[..., Any]) -> None:
    """Compare a window of a plane, as stored and as float32, with what zarr-python reads."""
    truth = zarr.open_array(str(path), mode="r")
    index = Index.from_zarr(path)
    time, height, width = truth.shape
    plane = draw(st.integers(0, time - 1))
    h, w = draw(st.integers(1, height)), draw(st.integers(1, width))
    y, x = draw(st.integers(0, height - h)), draw(st.integers(0, width - w))
    expected = np.asarray(truth[plane, y : y + h, x : x + w])
    window = Window.at(y, x, h, w, image=(height, width))
    native = expected.astype(expected.dtype.newbyteorder("="))
    found = read(index, plane, window)
    np.testing.assert_array_equal(found, native.astype(np.float32), strict=True)
    if native.dtype.name in ("float16", "float64"):
        return
    found = read(index, plane, window, dtype=native.dtype.name)
    np.testing.assert_array_equal(found, native, strict=True)


SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 40), st.integers(1, 40))


@given(st.data())
def test_v2(data: st.DataObject) -> None:
    draw = data.draw
    shape, dtype = draw(SHAPES), draw(st.sampled_from(DTYPES))
    chunks = tuple(draw(st.integers(1, 2 * length)) for length in shape)
    settings = {
        "compressors": draw(st.sampled_from(COMPRESSORS)),
        "order": draw(st.sampled_from("CF")),
        "chunk_key_encoding": {"name": "v2", "separator": draw(st.sampled_from("./"))},
        "fill_value": draw(st.sampled_from((None, 0, 1))),
    }
    shuffle = numcodecs.Shuffle(np.dtype(dtype).itemsize)
    delta = [numcodecs.Delta(dtype)] if np.dtype(dtype).kind in "iu" else []
    settings["filters"] = draw(st.sampled_from(([], [shuffle], delta, [*delta, shuffle])))
    with folder() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zarr-python
        write_array(path, frames(shape, dtype), chunks, **settings)
        _leave_some_out(path, draw)
        compare(path, draw)


@given(st.data())
def test_v3(data: st.DataObject) -> None:
    draw = data.draw
    shape, dtype = draw(SHAPES), draw(st.sampled_from(DTYPES))
    chunks = tuple(draw(st.integers(1, length)) for length in shape)
    shards = None
    if draw(st.booleans()):
        shards = tuple(length * draw(st.integers(1, 3)) for length in chunks)
    orders = draw(st.lists(st.permutations(range(3)).map(tuple), max_size=2))
    settings = {
        "zarr_format": 3,
        "shards": shards,
        "compressors": draw(st.sampled_from(OF_V3)),
        "filters": [zarr.codecs.TransposeCodec(order=order) for order in orders] or None,
        "chunk_key_encoding": {
            "name": draw(st.sampled_from(("default", "v2"))),
            "separator": draw(st.sampled_from("./")),
        },
        "serializer": zarr.codecs.BytesCodec(endian=draw(st.sampled_from(("little", "big")))),
        "fill_value": draw(st.sampled_from((0, 1))),
    }
    with folder() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_array(path, frames(shape, np.dtype(dtype).newbyteorder("<").str), chunks, **settings)
        _leave_some_out(path, draw)
        compare(path, draw)


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_v3_without_any_chunk(tmp_path: Path, dtype: str, endian: str) -> None:
    array = zarr.create_array(
        str(tmp_path / "a"),
        shape=(2, 5, 7),
        chunks=(1, 3, 4),
        dtype=np.dtype(dtype).newbyteorder("="),
        serializer=zarr.codecs.BytesCodec(endian=endian),
        fill_value=1,
    )
    expected = np.asarray(array[1]).astype(np.float32)
    assert (expected == 1).all()
    np.testing.assert_array_equal(read(Index.from_zarr(tmp_path / "a"), 1), expected, strict=True)


def _leave_some_out(path: Path, draw: Callable[..., Any]) -> None:
    """Remove a chunk, whose values are then the fill value."""
    if draw(st.booleans()):
        chunks = sorted(one for one in path.rglob("*") if one.is_file() and one.name[-1].isdigit())
        if chunks:
            draw(st.sampled_from(chunks)).unlink()


LARGE = (9, 97, 83)
"""Shape of chunks that are large enough to be read in part; no block size divides them."""


@given(st.data())
def test_parts_of_large_blosc_chunks(data: st.DataObject) -> None:
    draw = data.draw
    dtype = draw(st.sampled_from(("<f4", ">f8", "<i2", "<u4")))
    shuffle, name = draw(st.sampled_from((0, 1, 2))), draw(st.sampled_from(("zstd", "lz4", "zlib")))
    size = draw(st.sampled_from((0, 1 << 10, 1 << 13, 1 << 14, 60_000, 1 << 17)))
    level = draw(st.sampled_from((0, 1, 5)))  # 0: stored as it is
    array = frames(LARGE, dtype) // 3
    with folder() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        codec = numcodecs.Blosc(name, level, shuffle, blocksize=size)
        write_array(path, array, LARGE, compressors=codec, order=draw(st.sampled_from("CF")))
        compare(path, draw)
        last = read(Index.from_zarr(path), LARGE[0] - 1, Window.at(96, 82, 1, 1, image=LARGE[1:]))
        assert last == array[-1, -1, -1].astype(np.float32)


@given(st.data())
def test_packed_values_equal_those_of_xarray(data: st.DataObject) -> None:
    draw = data.draw
    dtype = np.dtype(draw(st.sampled_from(DTYPES[:5] + DTYPES[6:])))
    numbers = st.sampled_from((0.01, 2.0, 1e-3, 273.15, 7))
    attributes: dict[str, Any] = {}
    for name in ("scale_factor", "add_offset"):
        if draw(st.booleans()):
            attributes[name] = draw(numbers)
    fills = (0, 1, 5, 100) if dtype.kind in "iu" else (0.0, 1.0, 100.0, float("nan"))
    if draw(st.booleans()):
        attributes["missing_value"] = draw(st.sampled_from(fills))
    is_v3 = draw(st.booleans())
    fill = draw(st.sampled_from((None, *fills)))
    if is_v3 and draw(st.booleans()):
        value = draw(st.sampled_from(fills))
        attributes["_FillValue"] = value
        if dtype.kind == "f":
            attributes["_FillValue"] = base64.standard_b64encode(struct.pack("<d", value)).decode()
    if dtype.kind == "i" and draw(st.booleans()):
        attributes["_Unsigned"] = "true"
    stored = frames((3, 9, 8), dtype.str)
    with folder() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.create_group(str(path), zarr_format=3 if is_v3 else 2)
        axes = ("time", "y", "x")
        settings: dict[str, Any] = {"dimension_names": axes} if is_v3 else {}
        array = group.create_array(
            "v",
            shape=stored.shape,
            dtype=dtype.newbyteorder("<") if is_v3 else dtype,
            chunks=(2, 4, 4),
            fill_value=fill or (0 if is_v3 else fill),
            attributes=attributes if is_v3 else {**attributes, "_ARRAY_DIMENSIONS": axes},
            **settings,
        )
        array[...] = stored
        _leave_some_out(path, draw)
        truth = xr.open_zarr(path, consolidated=False)["v"].values.astype(np.float32)
        index = Index.from_zarr(path)
        columns = index.columns(notes=["chunks"])
        found = [ChunkedReader(("v",)).read(columns.row(n), None)["image"][0] for n in range(3)]
        np.testing.assert_array_equal(np.stack(found), truth, strict=True)


@given(st.data())
def test_attributes_of_any_type_are_read_as_by_xarray(data: st.DataObject) -> None:
    """Those of HDF5 have the types of NumPy, which decide in which type xarray calculates."""
    draw = data.draw
    dtype = np.dtype(draw(st.sampled_from([one for one in DTYPES if one != "|b1"])))
    types = st.sampled_from((np.float16, np.float32, np.float64, float))
    attributes: dict[str, Any] = {}
    for name, number in (("scale_factor", 0.01), ("add_offset", 273.15)):
        if draw(st.booleans()):
            attributes[name] = draw(types)(number)
            if draw(st.booleans()):
                attributes[name] = np.array([attributes[name]])
    for name in ("_FillValue", "missing_value"):
        if draw(st.booleans()):
            numbers = (0, 1, 3, 100, *([np.nan] * 4 if dtype.kind == "f" else ()))
            attributes[name] = dtype.type(draw(st.sampled_from(numbers)))
    if dtype.kind == "i" and draw(st.booleans()):
        attributes["_Unsigned"] = "true"
        if "_FillValue" in attributes and draw(st.booleans()):
            attributes["_FillValue"] = dtype.type(-1)
    stored = np.arange(-3, 117).astype(dtype).reshape(8, 15)
    check_values(stored / dtype.type(7) if dtype.kind == "f" else stored, attributes)


F4 = np.float32
EXACT: list[tuple[str, dict[str, Any]]] = [
    ("<i4", {"scale_factor": F4(0.01), "add_offset": F4(273.15)}),
    ("<i2", {"scale_factor": F4(0.01), "add_offset": F4(273.15)}),
    ("<i2", {"scale_factor": F4(0.01), "add_offset": 273.15}),
    ("<f4", {"scale_factor": F4(0.01), "add_offset": F4(273.15)}),
    ("<i2", {"_FillValue": np.int16(-1), "_Unsigned": "true"}),
    ("|i1", {"_FillValue": np.int8(-3), "missing_value": np.int8(7), "_Unsigned": "true"}),
    ("<i2", {"_FillValue": np.int16(-1), "_Unsigned": "true", "scale_factor": F4(0.5)}),
    ("<i2", {"scale_factor": 0.01}),
    ("<f4", {"missing_value": np.array([1, 2], "f4")}),
    ("<f4", {"_FillValue": F4("nan"), "scale_factor": 0.01, "add_offset": 273.15}),
    ("<f4", {"_FillValue": F4("nan"), "scale_factor": np.float64(0.01)}),
    ("<f2", {"missing_value": np.float16("nan"), "add_offset": np.float64(0.01)}),
    ("<f2", {"scale_factor": np.float16(0.01)}),
]


@pytest.mark.parametrize(("dtype", "attributes"), EXACT)
def test_attributes_as_xarray_reads_them(dtype: str, attributes: dict[str, Any]) -> None:
    check_values(np.arange(-3, 4117).astype(dtype).reshape(8, 515), attributes)


def check_values(stored: NDArray[Any], attributes: dict[str, Any]) -> None:
    out = np.empty(stored.shape, np.float32)
    put_values(stored, packing_of(stored.dtype, attributes), out)
    coded = xr.Dataset({"v": (("y", "x"), stored, attributes)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        truth = xr.decode_cf(coded)["v"].values.astype(np.float32)
    np.testing.assert_array_equal(out, truth, strict=True)


def test_fill_values_of_zarr_2(tmp_path: Path) -> None:
    """The attribute counts if the array has no fill value; False of bools is a value."""
    group = zarr.create_group(str(tmp_path / "a.zarr"), zarr_format=2)
    axes = {"_ARRAY_DIMENSIONS": ["time", "y", "x"]}
    stored = np.arange(12, dtype="i2").reshape(2, 2, 3)
    for name, values, fill, attributes in (
        ("numbers", stored, None, {"_FillValue": 5}),
        ("bools", stored % 2 == 0, False, {}),
    ):
        array = group.create_array(
            name, data=values, chunks=(1, 2, 3), fill_value=fill, attributes={**axes, **attributes}
        )
        assert array.fill_value == fill
    row = Index.from_zarr(tmp_path / "a.zarr").columns(notes=["chunks"]).row(1)
    image = ChunkedReader(("bools", "numbers")).read(row, None)["image"]
    np.testing.assert_array_equal(image[0], (stored[1] % 2 == 0).astype("f4"), strict=True)
    truth = xr.open_zarr(tmp_path / "a.zarr", consolidated=False)["numbers"].values[1]
    np.testing.assert_array_equal(image[1], truth.astype("f4"), strict=True)
