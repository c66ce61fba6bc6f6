"""netCDF4 files as they are met, odd and old ones too: as xarray reads them, or refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

from readers import Index
from readers.chunks.reader import ChunkedReader

RNG = np.random.default_rng(0)
Write = Callable[[netCDF4.Dataset], None]


def axes(file: Any, time: int | None = 4, y: int | None = 9, x: int | None = 11) -> None:
    for name, length in (("time", time), ("y", y), ("x", x)):
        file.createDimension(name, length)


def variable(
    file: Any, values: Any, name: str = "a", of: tuple[str, ...] = ("time", "y", "x"), **given: Any
) -> Any:
    """Write a variable as stored; attributes are those that netCDF4 does not take as settings."""
    attributes = given.pop("attributes", {})
    values = np.asarray(values)
    given["endian"] = "big" if values.dtype.byteorder == ">" else "native"
    one = file.createVariable(name, values.dtype, of, **given)
    one.set_auto_maskandscale(False)
    one.setncatts(attributes)
    one[...] = values
    return one


def numbers(shape: tuple[int, ...] = (4, 9, 11), dtype: str = "f4") -> Any:
    if np.dtype(dtype).kind == "f":
        return RNG.normal(0, 9, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def _unsigned_bytes(file: Any) -> None:
    """As of MODIS and GOES."""
    axes(file)
    packed = {"_Unsigned": "true", "scale_factor": np.float32(0.5), "add_offset": np.float32(3)}
    limits = {"valid_range": np.array([0, 254], "u1")}
    variable(file, numbers(dtype="i1"), fill_value=np.int8(-1), attributes=packed | limits)


def _factor_of_zero(file: Any) -> None:
    axes(file)
    attributes = {"scale_factor": 0.0, "add_offset": 1.5}
    variable(file, numbers(dtype="i2"), attributes=attributes)


def _several_missing_values(file: Any) -> None:
    axes(file)
    attributes = {"missing_value": np.array([2, 3], "i2"), "scale_factor": 0.5}
    values = RNG.integers(0, 6, (4, 9, 11)).astype("i2")
    variable(file, values, fill_value=np.int16(1), attributes=attributes)


def _limits_that_are_not_applied(file: Any) -> None:
    axes(file)
    attributes = {"valid_min": np.float32(0), "valid_max": np.float32(1)}
    variable(file, numbers(), attributes=attributes)


def _bytes_that_fill_no_element(file: Any) -> None:
    """netCDF-C puts the checksum before the shuffle, which leaves its bytes where they are."""
    axes(file)
    settings: Any = {"zlib": True, "shuffle": True, "fletcher32": True}
    variable(file, numbers(dtype=">f8"), chunksizes=(3, 5, 4), **settings)


def _chunks_larger_than_the_array(file: Any) -> None:
    axes(file, None, None, None)
    variable(file, numbers((5, 13, 17)), chunksizes=(16, 32, 64), zlib=True)


def _another_variable_that_is_longer(file: Any) -> None:
    axes(file, None)
    variable(file, numbers((3, 9, 11)), chunksizes=(2, 4, 4))
    variable(file, numbers((5, 9, 11)), "longer", chunksizes=(2, 4, 4))


def _a_coordinate_that_is_shorter(file: Any) -> None:
    axes(file, None)
    variable(file, numbers())
    variable(file, np.arange(2.0), "time", ("time",))


def _columns_first(file: Any) -> None:
    axes(file)
    variable(file, numbers((11, 9, 4)), of=("x", "y", "time"), chunksizes=(3, 4, 2), zlib=True)


def _rows_in_the_middle(file: Any) -> None:
    axes(file)
    variable(file, numbers((9, 4, 11)), of=("y", "time", "x"), chunksizes=(3, 4, 2), zlib=True)


def _one_of_everything(file: Any) -> None:
    axes(file, 1, 1, 1)
    variable(file, numbers((1, 1, 1)))


def _scalars_beside_it(file: Any) -> None:
    axes(file)
    variable(file, numbers(), attributes={"coordinates": "height"})
    variable(file, np.array(2.0), "height", ())


def _an_enumeration(file: Any) -> None:
    axes(file)
    kind = file.createEnumType(np.uint8, "cloud", {"clear": 0, "cloudy": 1, "none": 255})
    one = file.createVariable("a", kind, ("time", "y", "x"), fill_value=255)
    one[...] = RNG.choice([0, 1, 255], (4, 9, 11))


def _axes_that_were_renamed(file: Any) -> None:
    axes(file)
    variable(file, numbers(), "b")
    file.renameVariable("b", "a")
    file.renameDimension("y", "lat")


def _a_variable_with_the_name_of_an_axis(file: Any) -> None:
    file.createDimension("time", 4)
    file.createDimension("a", 9)
    file.createDimension("x", 11)
    variable(file, numbers(), of=("time", "a", "x"))


def _rounded(file: Any) -> None:
    axes(file)
    settings: Any = {"significant_digits": 3, "quantize_mode": "GranularBitRound"}
    variable(file, numbers(), zlib=True, **settings)


def _large_integers(file: Any) -> None:
    axes(file)
    variable(file, numbers(dtype="u8"))


def _floats_beyond_those_of_32_bits(file: Any) -> None:
    axes(file)
    variable(file, numbers(dtype="f8") * 1e300)


def _bytes_that_are_big_endian(file: Any) -> None:
    axes(file)
    one = file.createVariable("a", "i1", ("time", "y", "x"), endian="big", zlib=True)
    one[...] = numbers(dtype="i1")


def _a_missing_value_beyond_32_bits(file: Any) -> None:
    axes(file)
    values = numbers()
    values[:, :2] = -np.inf
    variable(file, values, attributes={"missing_value": np.float64(-1.7e308)})


def _packed_times(file: Any) -> None:
    axes(file)
    variable(file, numbers())
    attributes = {"units": "hours since 2000-01-01", "scale_factor": 0.5, "add_offset": 10.0}
    variable(file, np.arange(4, dtype="i2"), "time", ("time",), attributes=attributes)


def _packed_coordinates(file: Any) -> None:
    axes(file)
    variable(file, numbers())
    attributes = {"scale_factor": 0.5, "add_offset": 10.0}
    variable(file, np.arange(4, dtype="i2"), "time", ("time",), attributes=attributes)


def _times_with_a_zone(file: Any) -> None:
    axes(file)
    variable(file, numbers())
    attributes = {"units": "seconds since 1970-01-01 00:00:00 +02:00"}
    variable(file, np.arange(4.0), "time", ("time",), attributes=attributes)


WRITTEN: list[Write] = [
    _unsigned_bytes,
    _factor_of_zero,
    _several_missing_values,
    _limits_that_are_not_applied,
    _bytes_that_fill_no_element,
    _chunks_larger_than_the_array,
    _another_variable_that_is_longer,
    _a_coordinate_that_is_shorter,
    _columns_first,
    _rows_in_the_middle,
    _one_of_everything,
    _scalars_beside_it,
    _an_enumeration,
    _axes_that_were_renamed,
    _a_variable_with_the_name_of_an_axis,
    _rounded,
    _large_integers,
    _floats_beyond_those_of_32_bits,
    _bytes_that_are_big_endian,
    _a_missing_value_beyond_32_bits,
    _packed_times,
    _packed_coordinates,
    _times_with_a_zone,
]


@pytest.mark.parametrize("written", WRITTEN, ids=lambda write: write.__name__)
@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_as_xarray_reads_it(tmp_path: Path, written: Write, engine: Any) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        written(file)
    index = Index.scan_arrays(tmp_path / "a.nc", variables=["a"], dim="time")
    columns = index.columns(notes=["chunks"])
    found = [
        ChunkedReader(("a",)).read(columns.row(n), None)["image"][0] for n in range(len(index))
    ]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of xarray, for odd attributes
        with xr.open_dataset(tmp_path / "a.nc", engine=engine) as opened:
            truth = opened["a"].transpose("time", ...).values.astype(np.float32)
            times = opened["time"].values if "time" in opened.coords else None
    if written is _a_coordinate_that_is_shorter:  # netCDF4 masks the rest, where xarray has 1e37
        assert times is not None
        times = np.array([*times[:2], np.nan, np.nan])
    np.testing.assert_array_equal(np.stack(found), truth, strict=True)
    assert ("time" in index) == (times is not None)
    if times is not None:
        np.testing.assert_array_equal(index["time"].to_numpy(), times, strict=True)


def test_coordinates_of_the_group_of_a_variable(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        axes(file)
        variable(file, np.arange(4.0), "time", ("time",))
        group = file.createGroup("g")
        axes(group)
        variable(group, numbers())
        variable(group, np.arange(10.0, 14.0), "time", ("time",))
        inner = file.createGroup("of_the_file")
        variable(inner, numbers())
    index = Index.scan_arrays(tmp_path / "a.nc", variables=["g/a"], dim="time")
    assert index["time"].to_pylist() == [10, 11, 12, 13]
    index = Index.scan_arrays(tmp_path / "a.nc", variables=["of_the_file/a"], dim="time")
    assert index["time"].to_pylist() == [0, 1, 2, 3]


def test_unlimited_axes_of_one_name_in_several_groups(tmp_path: Path) -> None:
    """Each has the length of the longest variable along it, as netCDF4 shows it."""
    path, lengths = tmp_path / "a.nc", {"g": 5, "h": 2, "h/i": 7}
    with netCDF4.Dataset(path, "w") as file:
        for name in ("", *lengths):
            group = file.createGroup(name) if name else file
            axes(group, None)
            written = lengths.get(name, 3)
            variable(group, numbers((written, 9, 11)))
            variable(group, numbers((written - 1, 9, 11)), "shorter", fill_value=np.float32(-1))
    with netCDF4.Dataset(path) as opened:
        for one in [f"{group}/{name}" for group in ("", *lengths) for name in ("a", "shorter")]:
            name = one.lstrip("/")
            index = Index.scan_arrays(path, variables=[name], dim="time")
            columns, reader = index.columns(notes=["chunks"]), ChunkedReader((name,))
            found = [reader.read(columns.row(row), None)["image"][0] for row in range(len(index))]
            expected = np.ma.filled(opened[name][:], np.nan)
            np.testing.assert_array_equal(np.stack(found), expected, strict=True)
    with pytest.raises(ValueError, match="length of 'time'"):
        Index.scan_arrays(path, variables=["g/a", "h/a"], dim="time")


def test_missing_values_of_columns(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        axes(file)
        variable(file, numbers())
        attributes = {"units": "hours since 2000-01-01"}
        given: dict[str, Any] = {"of": ("time",), "fill_value": np.int16(2)}
        variable(file, np.arange(4, dtype="i2"), "time", attributes=attributes, **given)
        variable(file, np.arange(4, dtype="i2"), "label", **given)
        variable(
            file, np.arange(4, dtype="i2"), "scaled", attributes={"scale_factor": 0.5}, **given
        )
    columns = {"time": "time", "label": "label", "scaled": "scaled"}
    index = Index.scan_arrays(tmp_path / "a.nc", variables=["a"], dim="time", columns=columns)
    assert index["label"].to_pylist() == [0, 1, None, 3]
    assert index["scaled"].to_pylist() == [0, 0.5, None, 1.5]
    assert index["time"].is_valid().to_pylist() == [True, True, False, True]


def test_the_fill_value_may_have_another_type(tmp_path: Path) -> None:
    """netCDF4-python takes it for one of the variable's type; xarray compares in float64."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        one = file.create_dataset("a", data=np.array([[1e20, 0.1, 3]], "f4"))
        one.attrs["missing_value"] = np.float64(1e20)
        one.attrs["_FillValue"] = np.float64(0.1)
    row = Index.scan_arrays(tmp_path / "a.nc").columns(notes=["chunks"]).row(0)
    image = ChunkedReader(("a",)).read(row, None)["image"][0]
    np.testing.assert_array_equal(image, np.array([[np.nan, np.nan, 3]], np.float32))


def test_attributes_without_a_value(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        one = file.create_dataset("a", data=np.array([[1, 2]], "f4"))
        for name in ("missing_value", "scale_factor", "_Unsigned"):
            one.attrs[name] = h5py.Empty("f4")
    row = Index.scan_arrays(tmp_path / "a.nc").columns(notes=["chunks"]).row(0)
    np.testing.assert_array_equal(ChunkedReader(("a",)).read(row, None)["image"], [[[1, 2]]])


def test_a_filter_twice(tmp_path: Path) -> None:
    array = numbers((5, 6))
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((4, 4))
    for add in (settings.set_shuffle, settings.set_deflate, settings.set_fletcher32):
        add(*((3,) if add == settings.set_deflate else ()))
    settings.set_deflate(9)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space, kind = h5py.h5s.create_simple(array.shape), h5py.h5t.IEEE_F32LE
        one = h5py.h5d.create(file.id, b"a", kind, space, dcpl=settings)
        one.write(h5py.h5s.ALL, h5py.h5s.ALL, array)
    row = Index.scan_arrays(tmp_path / "a.h5").columns(notes=["chunks"]).row(0)
    np.testing.assert_array_equal(ChunkedReader(("a",)).read(row, None)["image"][0], array)


@pytest.mark.parametrize("unlimited", [(0,), (1,), (2,), (0, 2), (1, 2), ()], ids=str)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_unlimited_axes(tmp_path: Path, unlimited: tuple[int, ...], libver: Any) -> None:
    """Each has another index of chunks in HDF5, which lists those of one at wrong positions."""
    numbers_of_all = numbers((7, 33, 40))
    most = tuple(None if axis in unlimited else n for axis, n in enumerate(numbers_of_all.shape))
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        one = file.create_dataset("a", (7, 33, 40), "f4", maxshape=most, chunks=(3, 8, 7))
        one[:, 9:30] = numbers_of_all[:, 9:30]  # not all chunks are written
        truth = one[...]
    if libver == "latest" and unlimited in ((1,), (2,)):
        with pytest.raises(ValueError, match=r"'a' .*wrong positions.*libver"):
            Index.scan_arrays(tmp_path / "a.h5", dim="time")
        return
    index = Index.scan_arrays(tmp_path / "a.h5", dim="time")
    columns = index.columns(notes=["chunks"])
    found = [ChunkedReader(("a",)).read(columns.row(n), None)["image"][0] for n in range(7)]
    np.testing.assert_array_equal(np.stack(found), truth)


def test_an_array_that_was_made_smaller_and_larger(tmp_path: Path) -> None:
    """Chunks that are outside it stay in the file, and have no values when it grows again."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        given: dict[str, Any] = {"chunks": (4, 16, 16), "maxshape": (None, None, None)}
        one = file.create_dataset("a", data=numbers((9, 50, 60)), **given)
        one.resize((5, 20, 20))
        one.resize((6, 30, 30))
        truth = one[...]
    index = Index.scan_arrays(tmp_path / "a.h5", dim="time")
    columns = index.columns(notes=["chunks"])
    found = [ChunkedReader(("a",)).read(columns.row(n), None)["image"][0] for n in range(6)]
    np.testing.assert_array_equal(np.stack(found), truth)


def _text(file: Any) -> None:
    axes(file)
    file.createVariable("a", str, ("time", "y", "x"))


def _characters(file: Any) -> None:
    axes(file)
    file.createVariable("a", "S1", ("time", "y", "x"))[...] = np.array("x", "S1")


def _two_axes_of_one_name(file: Any) -> None:
    axes(file)
    variable(file, numbers((4, 9, 9)), of=("time", "y", "y"))


def _no_values(file: Any) -> None:
    axes(file, None)
    file.createVariable("a", "f4", ("time", "y", "x"))


def _attributes(**given: Any) -> Write:
    def write(file: Any) -> None:
        axes(file)
        variable(file, numbers(dtype="i2"), attributes=given)

    return write


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (_text, "'a' holds"),
        (_characters, r"'a' holds \|S1"),
        (_two_axes_of_one_name, "'a' has the axes.*different names"),
        (_no_values, "no values"),
        (_attributes(scale_factor="0.1"), "'a': scale_factor must be a number"),
        (_attributes(scale_factor=[0.1, 0.2]), "'a': scale_factor must be a number"),
        (_attributes(add_offset=np.nan), "'a': add_offset must be a number"),
        (_attributes(missing_value="NaN"), "'a'.*missing_value must be numbers"),
    ],
)
def test_refused(tmp_path: Path, written: Write, words: str) -> None:
    with netCDF4.Dataset(tmp_path / "odd.nc", "w") as file:
        written(file)
    with pytest.raises(ValueError, match=rf"odd\.nc.*{words}"):
        Index.scan_arrays(tmp_path / "odd.nc", variables=["a"], dim="time")


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["b"] = numbers((4, 5))
        file["around"] = h5py.SoftLink("/")
        file["a"] = h5py.SoftLink("/nothing")
    with pytest.raises(ValueError, match="no variable 'a'"):
        Index.scan_arrays(tmp_path / "a.h5", variables=["a"])
    assert len(Index.scan_arrays(tmp_path / "a.h5", variables=["around/b"])) == 1
