"""Stores that cannot be read: what is wrong is named, when they are indexed or read."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
import zarr
import zarr.codecs
from numcodecs import LZ4, Blosc, GZip, Zlib, Zstd
from zarr_stores import BLOSC, frames, write_array

from readers import Index, ReadError, Row
from readers.chunks.reader import ChunkedReader

Edit = Callable[[dict[str, Any]], None]


def edited(path: Path, edit: Edit) -> Path:
    """Change the metadata of an array."""
    file = next(one for one in (path / "zarr.json", path / ".zarray") if one.exists())
    found = json.loads(file.read_text())
    edit(found)
    file.write_text(json.dumps(found))
    return path


def setting(**values: Any) -> Edit:
    return lambda found: found.update(values)


def grid(**values: Any) -> Edit:
    return lambda found: found["chunk_grid"].update(values)


V2: list[tuple[Edit, str]] = [
    (setting(compressor={"id": "zfpy"}), "filter 'zfpy'.*write it again with.*blosc.*zstd"),
    (setting(filters=[{"id": "pickle"}]), "filter 'pickle'"),
    (setting(dtype="|O", filters=[{"id": "vlen-utf8"}]), "objects.*vlen-utf8.*expected numbers"),
    (setting(dtype="<c8"), "complex64, expected"),
    (setting(dtype="<U4"), "<U4, expected"),
    (setting(dtype="<M8[ns]"), r"datetime64\[ns\], expected"),
    (setting(dtype=[["a", "<f4"]]), "records"),
    (setting(chunks=[2, 16]), "expected a length for each of its 3 axes"),
    (setting(chunks=[0, 16, 16]), "expected a length for each"),
    (setting(chunks=[2, 16, [1, 2]]), "expected a length for each"),
    (setting(shape=[5, 31]), "expected"),
    (setting(shape=[5, 31, -1]), "not have metadata of Zarr"),
    (setting(shape=[5, 0, 23]), "no values"),
    (setting(order="K"), "order 'K'"),
    (setting(fill_value="nothing"), "fill value 'nothing', which is not float32"),
    (setting(zarr_format=4), "not have metadata of Zarr 2 or 3"),
    (setting(dtype=None), "expected numbers"),
    (setting(compressor=7), "not valid in Zarr"),
    (setting(dtype="<f16"), "float128"),
]
V3: list[tuple[Edit, str]] = [
    (grid(name="rectilinear"), "rectilinear grid of chunks, expected a regular one"),
    (setting(data_type="string"), "'string', expected numbers"),
    (setting(data_type="complex64"), "complex64, expected"),
    (setting(data_type={"name": "struct", "configuration": {}}), "'struct', expected numbers"),
    (setting(storage_transformers=[{"name": "x"}]), "storage transformers"),
    (setting(chunk_key_encoding={"name": "fanout"}), "'fanout'"),
    (setting(codecs=[{"name": "vlen-utf8"}]), "filter 'vlen-utf8'"),
    (setting(codecs=[]), "no codec 'bytes'"),
    (setting(codecs=["bytes", {"name": "zfp", "configuration": {}}]), "filter 'zfp'"),
    (setting(codecs=[{"name": "transpose", "configuration": {"order": [0, 0, 1]}}]), "transpose"),
    (setting(codecs=None), "not valid in Zarr"),
    (setting(shape=[5, 31, 0]), "no values"),
    (setting(dimension_names=["time", "x", "x"]), "expected axes with different names"),
    (setting(attributes=[1]), r"attributes .*object of JSON, got \[1\]"),
    (setting(consolidated_metadata=[1], node_type="group"), r"consolidated_metadata .*\[1\]"),
    (
        setting(chunk_key_encoding={"name": "default", "configuration": {"separator": "-"}}),
        "separator '-'",
    ),
    (
        setting(codecs=[{"name": "numcodecs.delta", "configuration": {"dtype": ">f4"}}, "bytes"]),
        "big-endian",
    ),
    (setting(dimension_names=["t", "y", "x"]), "axes t .5., y .31., x .23., expected 'time'"),
]


@pytest.mark.parametrize(("edit", "words"), V2)
def test_v2(tmp_path: Path, edit: Edit, words: str) -> None:
    path = edited(write_array(tmp_path / "a", frames(), (2, 16, 16), compressors=BLOSC), edit)
    with pytest.raises(ValueError, match=words) as caught:
        Index.from_zarr(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("edit", "words"), V3)
def test_v3(tmp_path: Path, edit: Edit, words: str) -> None:
    path = edited(write_array(tmp_path / "a", frames(), (2, 16, 16), zarr_format=3), edit)
    with pytest.raises(ValueError, match=words) as caught:
        Index.from_zarr(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("fill", "value"),
    [
        ("NaN", np.nan),
        ("-Infinity", -np.inf),
        ("0x7f800000", np.inf),
        ("0x3f800000", 1),
        (2.5, 2.5),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_fill_values(tmp_path: Path, fill: Any, value: float, version: int) -> None:
    path = write_array(tmp_path / "a", frames(), (2, 16, 16), zarr_format=version)
    edited(path, setting(fill_value=fill))
    for chunk in [one for one in path.rglob("*") if one.is_file() and one.name[-1].isdigit()]:
        chunk.unlink()
    row = rows(Index.from_zarr(path))[0]
    image = ChunkedReader(("a",)).read(row, None)["image"]
    np.testing.assert_array_equal(image, np.full((1, 31, 23), value, np.float32))


def rows(index: Index) -> list[Row]:
    columns = index.columns(notes=["chunks"])
    return [columns.row(number) for number in range(len(index))]


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """Arrays of several axes, named as xarray names them."""
    made = zarr.create_group(str(tmp_path / "g"), zarr_format=3)
    for name, shape, axes in (
        ("t2m", (4, 9, 8), ("time", "lat", "lon")),
        ("z", (4, 3, 9, 8), ("time", "level", "lat", "lon")),
        ("small", (4, 5, 8), ("time", "south", "lon")),
        ("short", (3, 9, 8), ("time", "lat", "lon")),
        ("turned", (8, 4, 9), ("lon", "time", "lat")),
        ("mask", (8, 9), ("lon", "lat")),
        ("time", (4,), ("time",)),
        ("level", (3,), ("level",)),
    ):
        made.create_array(name, shape=shape, dtype="f4", chunks=shape, dimension_names=axes)
    made["z"][...] = np.arange(4 * 3 * 72).reshape(4, 3, 9, 8)
    return tmp_path / "g"


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"variables": ["t2n"]},
        ValueError,
        "no variable 't2n'.*it has level, mask, short, small",
    ),
    ({"variables": "t2m"}, ValueError, "variables must be names"),
    ({"variables": []}, ValueError, "variables must be names"),
    ({"variables": ["t2m", "t2m"]}, ValueError, "each once"),
    ({"variables": ["t2m"], "dim": "x"}, ValueError, "time .4., lat .9.*name the axis.*by dim="),
    ({"variables": ["t2m"], "dim": 3}, ValueError, "dim must be the name"),
    ({"variables": ["t2m"], "dim": None}, ValueError, "expected two"),
    ({"variables": ["z"]}, ValueError, "level .3.*isel="),
    ({"variables": ["z"], "isel": {"level": 3}}, ValueError, "no position 3 on 'level'"),
    ({"variables": ["z"], "isel": {"level": 0.5}}, ValueError, "isel must map"),
    ({"variables": ["z"], "isel": {"time": 0, "level": 0}}, ValueError, "isel must map"),
    ({"variables": ["z"], "isel": {"levl": 0, "level": 0}}, ValueError, "no axis 'levl'"),
    ({"variables": ["z"], "isel": {"levl": 0}}, ValueError, "no axis 'levl'"),
    ({"variables": ["z"], "isel": {"level": 500}}, ValueError, "positions from 0 to 2"),
    ({"variables": ["t2m", "turned"]}, ValueError, "'turned' has the axes lon, lat.*transpose"),
    ({"variables": ["t2m", "mask"]}, ValueError, "'mask' has the axes lon, lat.*transpose"),
    ({"variables": ["t2m", "short"]}, ValueError, "same length of 'time'.*'t2m' 4.*'short' 3"),
    ({"variables": ["t2m", "small"]}, ValueError, "same height and width"),
    ({"variables": ["time"]}, ValueError, "expected two"),
    ({"variables": ["t2m"], "columns": {"a": "b"}}, ValueError, "no array or attribute 'b'"),
    ({"variables": ["t2m"], "columns": {"a": "level"}}, ValueError, r"expected \(4,\)"),
    ({"variables": ["t2m"], "columns": {"path": "time"}}, ValueError, "columns must map"),
    ({"dim": "run"}, ValueError, "no array has two axes beside 'run'.*t2m .time, lat, lon."),
]


@pytest.mark.parametrize(("arguments", "kind", "words"), REFUSED)
def test_arguments(
    group: Path, arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        Index.from_zarr(group, **arguments)


def test_a_position_on_another_axis(group: Path) -> None:
    index = Index.from_zarr(group, variables=["z"], isel={"level": -1})
    image = ChunkedReader(("z",)).read(rows(index)[2], None)["image"][0]
    np.testing.assert_array_equal(image, np.arange(72).reshape(9, 8) + (2 * 3 + 2) * 72)


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such folder.*missing"):
        Index.from_zarr(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"zarr.json"):
        Index.from_zarr(tmp_path / "empty")
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(FileNotFoundError, match="got a file"):
        Index.from_zarr(tmp_path / "a.zip")
    (tmp_path / "empty" / "snapshots").mkdir()
    with pytest.raises(FileNotFoundError, match="icechunk, which is not read"):
        Index.from_zarr(tmp_path / "empty")
    (tmp_path / "n5").mkdir()
    (tmp_path / "n5" / "attributes.json").write_text('{"n5": "2.0.0"}')
    with pytest.raises(FileNotFoundError, match="N5, which is not read"):
        Index.from_zarr(tmp_path / "n5")
    with pytest.raises(ValueError, match="got none"):
        Index.from_zarr([])
    (tmp_path / "empty" / "zarr.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        Index.from_zarr(tmp_path / "empty")


CHANGED: list[tuple[Edit, str]] = [
    (setting(chunks=[2, 8, 32]), "changed since it was indexed.*chunks"),
    (setting(shape=[3, 31, 23]), "changed.*shape"),
    (setting(shape=[5, 23, 31]), "changed.*shape"),
    (setting(shape=[5, 32, 23]), "changed.*shape"),
    (setting(dtype="<i4"), "changed.*dtype"),
    (setting(compressor=None), "changed.*codecs"),
    (setting(fill_value=7), "changed.*fill"),
    (setting(order="F"), "changed.*order"),
    (setting(dimension_separator="/"), "changed.*places"),
]


@pytest.mark.parametrize(("edit", "words"), CHANGED)
def test_changed_since_indexed(tmp_path: Path, edit: Edit, words: str) -> None:
    path = write_array(tmp_path / "a", frames(), (2, 16, 16), compressors=BLOSC)
    row = rows(Index.from_zarr(path))[4]
    edited(path, edit)
    for call in (ChunkedReader(("a",)).read, ChunkedReader(("a",)).peek):
        with pytest.raises(ReadError, match=words):
            call(row, None)


def test_consolidated_metadata_that_are_out_of_date(tmp_path: Path) -> None:
    group = zarr.create_group(str(tmp_path / "g"), zarr_format=2)
    group.create_array("a", data=frames(), chunks=(2, 16, 16))
    zarr.consolidate_metadata(str(tmp_path / "g"))
    assert len(Index.from_zarr(tmp_path / "g")) == 5
    group.create_array("a", data=frames(), chunks=(1, 16, 16), overwrite=True)
    with pytest.raises(ValueError, match=r"consolidated metadata of 'a' are out of date.*chunks"):
        Index.from_zarr(tmp_path / "g")


def test_more_rows_are_no_change(tmp_path: Path) -> None:
    array = frames()
    path = write_array(tmp_path / "a", array, (2, 16, 16), compressors=BLOSC)
    row = rows(Index.from_zarr(path))[4]
    zarr.open_array(str(path)).append(array)
    found = ChunkedReader(("a",)).read(row, None)["image"][0]
    np.testing.assert_array_equal(found, array[4])


def test_missing_chunks_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_array(tmp_path / "a", frames(), (2, 16, 16), fill_value=7)
    (path / "0.1.1").unlink()
    (path / "1.0.0").unlink()
    with caplog.at_level(logging.WARNING):
        index = Index.from_zarr(path)
    assert "2 of 12 examined chunks of 'a'" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        image = ChunkedReader(("a",)).read(rows(index)[0], None)["image"][0]
    assert "fill value 7" in caplog.text
    expected = frames()[0]
    expected[16:, 16:] = 7
    np.testing.assert_array_equal(image, expected)


def test_a_folder_that_is_gone_is_not_filled(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a", frames(), (2, 16, 16))
    row = rows(Index.from_zarr(path))[0]
    reader = ChunkedReader(("a",))
    reader.read(row, None)
    shutil.rmtree(path)
    with pytest.raises(ReadError, match="No such file"):
        reader.read(row, None)


SETTINGS: list[dict[str, Any]] = [
    {"zarr_format": 2, "compressors": codec}
    for codec in (
        None,
        BLOSC,
        Zstd(),
        GZip(),
        LZ4(),
        Zlib(),
    )
]
SETTINGS += [
    {"zarr_format": 3, "compressors": zarr.codecs.Crc32cCodec()},
    {"zarr_format": 3, "shards": (4, 32, 32)},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("damage", ["cut", "empty", "garbage"])
def test_damaged_chunks(tmp_path: Path, settings: dict[str, Any], damage: str) -> None:
    path = write_array(tmp_path / "a", frames(), (2, 16, 16), **settings)
    row = rows(Index.from_zarr(path))[0]
    for chunk in [one for one in path.rglob("*") if one.is_file() and one.name[-1].isdigit()]:
        content = chunk.read_bytes()
        made = {"cut": content[: len(content) // 2], "empty": b"", "garbage": b"\x7f" * 99}
        chunk.write_bytes(made[damage])
    with pytest.raises(ReadError):
        ChunkedReader(("a",)).read(row, None)


def test_a_wrong_checksum_of_the_index_of_a_shard(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a", frames(), (2, 16, 16), zarr_format=3, shards=(4, 32, 32))
    row = rows(Index.from_zarr(path))[0]
    (chunk,) = [one for one in (path / "c" / "0").rglob("*") if one.is_file()]
    content = bytearray(chunk.read_bytes())
    content[-20] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(ReadError, match="crc32c"):
        ChunkedReader(("a",)).read(row, None)


def test_positions_outside_a_shard(tmp_path: Path) -> None:
    path = write_array(
        *(tmp_path / "a", frames(), (2, 16, 16)),
        zarr_format=3,
        shards=(4, 32, 32),
        compressors=None,
    )
    edited(path, lambda found: found["codecs"][0]["configuration"]["index_codecs"].pop())
    row = rows(Index.from_zarr(path))[0]
    (chunk,) = [one for one in (path / "c" / "0").rglob("*") if one.is_file()]
    content = bytearray(chunk.read_bytes()[:-4])
    reader = ChunkedReader(("a",))
    chunk.write_bytes(content)
    np.testing.assert_array_equal(reader.read(row, None)["image"][0], frames()[0])
    numbers = np.frombuffer(content, "<u8", 16, len(content) - 128)
    for offset, nbytes in ((1 << 63, 8), (2**64 - 8, 16), (0, 1 << 40), (1 << 40, 2048), (0, 0)):
        made = content[:-128] + np.array([offset, nbytes], "<u8").tobytes() + numbers[2:].tobytes()
        chunk.write_bytes(made)
        with pytest.raises(ReadError):
            reader.read(row, None)


def test_stored_types_of_several_variables(group: Path) -> None:
    index = Index.from_zarr(group, variables=["t2m"])
    with pytest.raises(ReadError, match="stored as float32, expected int16"):
        ChunkedReader(("t2m",), "int16").read(rows(index)[0], None)


def test_a_note_of_another_kind() -> None:
    for note, words in (
        (b"", "no column 'chunks'"),
        (b"\x07abcdefgh1", "version"),
        (b"\2\0\0\0\0\1\0\0\0x", "."),
    ):
        with pytest.raises(ReadError, match=words):
            ChunkedReader(("a",)).read(Row(0, "/a", notes={"chunks": note}), None)


@pytest.mark.parametrize("start", [-5, 0, 16, 2**31 - 1])
def test_a_block_outside_a_chunk_of_blosc(tmp_path: Path, start: int) -> None:
    array = frames((8, 96, 80))
    codec = Blosc("lz4", 5, 1, blocksize=1 << 14)
    path = write_array(tmp_path / "a", array, array.shape, compressors=codec)
    row = rows(Index.from_zarr(path))[0]
    reader = ChunkedReader(("a",))
    np.testing.assert_array_equal(reader.read(row, None)["image"][0], array[0])
    content = bytearray((path / "0.0.0").read_bytes())
    content[16:20] = start.to_bytes(4, "little", signed=True)
    (path / "0.0.0").write_bytes(content)
    with pytest.raises(ReadError, match="block"):
        reader.read(row, None)


def test_blocks_that_cut_an_element(tmp_path: Path) -> None:
    """c-blosc would leave a byte of each as it was in memory."""
    array = frames((8, 96, 80))
    codec = Blosc("lz4", 5, Blosc.BITSHUFFLE, blocksize=1 << 14)  # LZ4 takes 4 times as much
    path = write_array(tmp_path / "a", array, array.shape, compressors=codec)
    row = rows(Index.from_zarr(path))[0]
    content = bytearray((path / "0.0.0").read_bytes())
    assert content[8:12] == (1 << 16).to_bytes(4, "little")
    content[8] += 1
    (path / "0.0.0").write_bytes(content)
    with pytest.raises(ReadError, match="damaged"):
        ChunkedReader(("a",)).read(row, None)


def test_variables_in_another_order_in_hdf5(tmp_path: Path) -> None:
    """Of square images it would not be seen that one is turned."""
    dims = ("time", "y", "x")
    data = {"a": (dims, frames((3, 8, 8))), "b": (("time", "x", "y"), frames((3, 8, 8)))}
    path = tmp_path / "a.nc"
    xr.Dataset(data).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ValueError, match="'b' has the axes x, y, and 'a' has y, x"):
        Index.scan_arrays(path, dim="time")
    assert len(Index.scan_arrays(path, variables=["b"], dim="time")) == 3


def test_files_and_stores_in_another_order(tmp_path: Path) -> None:
    data = xr.Dataset({"a": (("time", "y", "x"), frames((3, 8, 8)))})
    turned = data.transpose("time", "x", "y")
    for name, each in (("a", data), ("b", turned)):
        each.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
        each.to_zarr(tmp_path / f"{name}.zarr", consolidated=False)
    words = "'a' of .*b.{0} has the axes x, y, and 'a' of .*a.{0} has y, x"
    with pytest.raises(ValueError, match=words.format("nc")):
        Index.scan_arrays(tmp_path, dim="time")
    roots = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    with pytest.raises(ValueError, match=words.format("zarr")):
        Index.from_zarr(roots)
    assert len(Index.from_zarr([roots[0], roots[0]])) == 6


@pytest.mark.parametrize(
    ("first", "second", "is_turned"),
    [
        (("lat", "lon"), ("latitude", "longitude"), False),
        (("latitude", "longitude"), ("y", "x"), False),
        (("lat", "lon"), ("south_north", "west_east"), False),
        (("lat", "lon"), ("longitude", "latitude"), True),
        (("Latitude", "Longitude"), ("x", "y"), True),
    ],
)
def test_other_names_of_axes(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    first: tuple[str, str],
    second: tuple[str, str],
    is_turned: bool,
) -> None:
    """Names that mean the same are known; others that differ are told."""
    roots = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for root, names in zip(roots, (first, second), strict=True):
        data = xr.Dataset({"a": (("time", *names), frames((3, 8, 8)))})
        data.to_zarr(root, consolidated=False)
    words = f"{second[0]}, {second[1]}, and 'a' of .*a.zarr has {first[0]}, {first[1]}"
    made = list(map(Index.from_zarr, roots))
    for join in (partial(Index.concat, made), partial(Index.from_zarr, roots)):
        caplog.clear()
        if is_turned:
            with pytest.raises(ValueError, match=words):
                join()
            continue
        assert len(join()) == 6
        (record,) = caplog.records
        assert all(name in record.getMessage() for name in (*first, *second))
    caplog.clear()
    assert len(Index.concat([made[0], made[0]])) == 6
    assert not caplog.records


def test_an_index_of_another_order_is_not_joined(tmp_path: Path) -> None:
    times = np.datetime64("2020-01-01", "ns") + np.arange(3) * np.timedelta64(6, "h")
    data = xr.Dataset({"a": (("time", "y", "x"), frames((3, 8, 8)))}, {"time": times})
    turned = data.transpose("time", "x", "y").rename(a="b")
    made = dict[str, Index]()
    for name, each in (("a", data), ("b", turned), ("c", data)):
        each.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
        each.to_zarr(tmp_path / f"{name}.zarr", consolidated=False)
        for suffix in ("nc", "zarr"):
            path = tmp_path / f"{name}.{suffix}"
            found = Index.scan_arrays(path, dim="time") if suffix == "nc" else Index.from_zarr(path)
            found = found.with_column("channel", [name] * 3)
            found.save(tmp_path / f"{name}_{suffix}.parquet")
            made[f"{name}.{suffix}"] = Index.load(tmp_path / f"{name}_{suffix}.parquet")
    for first, other in (("a.nc", "b.nc"), ("a.zarr", "b.zarr"), ("a.zarr", "b.nc")):
        words = f"'b' of .*{other} has the axes x, y, and 'a' of .*{first} has y, x.*transpose"
        with pytest.raises(ValueError, match=words):
            Index.concat([made[first], made["c.zarr"], made[other]])
        tables = [made[name].table for name in (first, other)]
        both = Index(pa.concat_tables(tables, promote_options="permissive"))
        with pytest.raises(ValueError, match=words):
            both.group(("a", "b"), by="channel", time="time", tolerance="1h")
    pairs = [
        made[name].group(time="time", offsets=("0", "+6h"), tolerance="1h")
        for name in ("a.nc", "b.nc", "c.zarr")
    ]
    with pytest.raises(ValueError, match=r"'b' of .*b.nc has the axes x, y"):
        Index.concat(pairs[:2])
    assert len(Index.concat(pairs[::2])) == 4
    joined = Index.concat([made["a.nc"], made["c.zarr"]])
    samples = joined.group(("a", "c"), by="channel", time="time", tolerance="1h")
    row = samples.columns(parts=["a", "c"], notes=["chunks"]).row(1)
    for part in ("a", "c"):
        found_row = row.parts[part]
        assert found_row is not None
        image = ChunkedReader(("a",)).read(found_row, None)["image"][0]
        np.testing.assert_array_equal(image, data["a"].to_numpy()[1])
