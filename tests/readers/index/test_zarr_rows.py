"""Rows and columns of Zarr stores: coordinates, attributes, groups in groups, several roots."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr_stores import frames, write_array

from readers import Index
from readers.chunks.reader import ChunkedReader
from readers.index.cf_times import decoded_times

AXES = ("time", "lat", "lon")


def store(root: Path, count: int = 4, version: int = 2, **coordinates: Any) -> Path:
    values = np.arange(count * 20, dtype="f4").reshape(count, 5, 4)
    times = np.datetime64("2001-03-04", "ns") + np.arange(count) * np.timedelta64(90, "m")
    dataset = xr.Dataset({"v": (AXES, values)}, {"time": times, **coordinates})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of consolidated metadata of Zarr 3
        dataset.to_zarr(root, zarr_format=version, consolidated=True)
    return root


@pytest.mark.parametrize("version", [2, 3])
def test_the_coordinate_of_the_axis(tmp_path: Path, version: int) -> None:
    root = store(tmp_path / "a.zarr", version=version)
    index = Index.from_zarr(root)
    assert index.table.column_names == ["path", "plane", "time", "chunks"]
    assert index["path"].to_pylist() == [str(root)] * 4
    truth = xr.open_zarr(root).time.values
    np.testing.assert_array_equal(index["time"].to_numpy(), truth)
    saved = tmp_path / "index.arrow"
    index.save(saved)
    again = Index.load(saved)
    assert again.digest == index.digest
    row = again.columns(notes=["chunks"]).row(2)
    assert ChunkedReader(("v",)).read(row, None)["image"][0, 0, 0] == 40


def test_named_columns(tmp_path: Path) -> None:
    coordinates: dict[str, Any] = {"step": ("time", np.array([5, 6, 7, 8], "i2"))}
    coordinates["good"] = ("time", [True] * 4)
    root = store(tmp_path / "a.zarr", **coordinates)
    index = Index.from_zarr(root, columns={"when": "time", "step": "step", "good": "good"})
    assert index.table.column_names == ["path", "plane", "when", "step", "good", "chunks"]
    assert index["step"].type == pa.int16()
    assert index["step"].to_pylist() == [5, 6, 7, 8]
    assert index["when"].type == pa.timestamp("ns")


def test_lists_in_attributes(tmp_path: Path) -> None:
    """As in SDOMLv2: arrays without names of axes, and times as text."""
    times = [f"2014-01-01T00:0{minute}:00.50Z" for minute in range(5)]
    attributes = {"T_OBS": times, "EXPTIME": [1.5] * 5, "NAME": ["a", "b", "c", "d", "e"]}
    path = write_array(tmp_path / "171A", frames(), (2, 16, 16), attributes=attributes)
    index = Index.from_zarr(path, columns={"time": "T_OBS", "exposure": "EXPTIME", "name": "NAME"})
    np.testing.assert_array_equal(
        index["time"].to_numpy(), np.array([time[:-1] for time in times], "M8[ns]")
    )
    assert index["exposure"].to_pylist() == [1.5] * 5
    assert index["name"].to_pylist() == ["a", "b", "c", "d", "e"]
    zarr.open_array(str(path)).attrs["T_OBS"] = times[:4]
    with pytest.raises(ValueError, match="expected a list of 5 values"):
        Index.from_zarr(path, columns={"time": "T_OBS"})


def test_groups_in_groups_and_several_roots(tmp_path: Path) -> None:
    for year in ("2010", "2011"):
        group = zarr.create_group(str(tmp_path / year), zarr_format=3)
        group.create_group("aia").create_array(
            "171", data=frames() + int(year), chunks=(2, 16, 16), dimension_names=("t", "y", "x")
        )
    roots = [tmp_path / "2010", tmp_path / "2011"]
    index = Index.from_zarr(roots, variables=["aia/171"], dim="t")
    assert index["plane"].to_pylist() == [0, 1, 2, 3, 4] * 2
    columns = index.columns(notes=["chunks"])
    for number, added in ((2, 2010), (7, 2011)):
        image = ChunkedReader(("aia/171",)).read(columns.row(number), None)["image"][0]
        np.testing.assert_array_equal(image, frames()[2] + added)
    moved = index.moved(tmp_path, tmp_path / "elsewhere")
    assert moved.path(0) == str(tmp_path / "elsewhere" / "2010")
    assert moved.digest == index.digest


def test_a_row_for_each_root(tmp_path: Path) -> None:
    arrays = [frames((1, 9, 8), seed=number)[0] for number in range(3)]
    paths = [
        write_array(tmp_path / str(number) / "a", array, (4, 4))
        for number, array in enumerate(arrays)
    ]
    index = Index.from_zarr(paths, dim=None)
    assert "plane" not in index
    columns = index.columns(notes=["chunks"])
    for number, array in enumerate(arrays):
        image = ChunkedReader(("a",)).read(columns.row(number), None)["image"][0]
        np.testing.assert_array_equal(image, array)


@pytest.mark.parametrize("version", [2, 3])
def test_coordinates_are_values(tmp_path: Path, version: int) -> None:
    """Packed as xarray packs them, and those of the group that the variable is in."""
    packed = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -1}
    for group, added in (("", 0), ("run", 100)):
        coordinates = {"level": ("time", np.arange(4) / 2 + 3 + added)}
        values = np.zeros((4, 5, 4), "f4")
        times = np.datetime64("2001-03-04", "ns") + (np.arange(4) + added) * np.timedelta64(6, "h")
        dataset = xr.Dataset({"v": (AXES, values)}, {"time": times, **coordinates})
        units = {**packed, "units": "hours since 2001-03-04", "scale_factor": 0.25}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings: Any = {"zarr_format": version, "consolidated": False, "mode": "a"}
            settings["encoding"] = {"level": packed, "time": units}
            dataset.to_zarr(tmp_path / "a.zarr", group=group or None, **settings)
        names = [f"{group}/v"] if group else ["v"]
        columns = {"level": f"{group}/level" if group else "level"}
        found = Index.from_zarr(tmp_path / "a.zarr", variables=names)
        np.testing.assert_array_equal(found["time"].to_numpy(), times)
        found = Index.from_zarr(tmp_path / "a.zarr", variables=names, columns=columns)
        np.testing.assert_array_equal(found["level"].to_numpy(), dataset["level"].values)


UNITS = st.sampled_from(("days", "hours", "minutes", "seconds", "milliseconds", "day", "hour"))
DATES = st.sampled_from(
    (
        "1900-01-01",
        "1970-1-1 00:00:00",
        "2000-01-01T12:30:15",
        "1850-06-30 06:00",
        "2020-02-29T00:00:00Z",
        "2020-02-29 00:00:00 +02:30",
        "2020-02-29 00:00:00 -6:00",
    )
)
CALENDARS = st.sampled_from(("standard", "proleptic_gregorian", "gregorian"))


@given(
    UNITS,
    DATES,
    CALENDARS,
    st.one_of(
        st.lists(st.integers(-50_000, 50_000), min_size=1, max_size=9),
        st.lists(st.integers(-400_000, 400_000).map(lambda n: n / 8), min_size=1, max_size=9),
    ),
)
def test_times_equal_those_of_xarray(
    units: str, date: str, calendar: str, numbers: list[float]
) -> None:
    attributes = {"units": f"{units} since {date}", "calendar": calendar}
    found = decoded_times(np.array(numbers), attributes["units"], calendar)
    coded = xr.Dataset({"t": ("t", np.array(numbers), attributes)})
    truth = xr.decode_cf(coded)["t"].values.astype("M8[ns]")
    assert found is not None
    away = np.abs((found - truth).astype(np.int64))
    assert away.max() <= (0 if np.array(numbers).dtype.kind == "i" else 1000)


@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        ("days since 1850-01-01", "noleap"),
        ("days since 1850-01-01", "360_day"),
        ("months since 1850-01-01", "standard"),
        ("days since 0001-01-01", "standard"),
        ("days since 0000-01-01", "standard"),
        ("days since 0001-01-01", "proleptic_gregorian"),  # beyond 64 bits of nanoseconds
        ("days since yesterday", "standard"),
        ("days since 2001-02-30", "standard"),
        ("days since 2001-02-03 -05", "standard"),  # a zone, or an hour?
    ],
)
def test_times_that_stay_numbers(units: str, calendar: str) -> None:
    assert decoded_times(np.array([1, 2]), units, calendar) is None


@pytest.mark.parametrize("date", ["0001-01-01 06:00", "1500-03-01", "1582-10-04"])
@pytest.mark.parametrize("calendar", ["standard", "gregorian", "proleptic_gregorian"])
def test_dates_that_precede_the_gregorian_calendar(date: str, calendar: str) -> None:
    """They are Julian, unless the calendar says otherwise; the times themselves are not."""
    numbers = np.array([731_000.25, 737_425, 740_000.5])
    attributes = {"units": f"days since {date}", "calendar": calendar}
    if date.startswith("15"):
        numbers -= 547_000
    found = decoded_times(numbers, attributes["units"], calendar)
    coded = xr.Dataset({"t": ("t", numbers, attributes)})
    assert found is not None
    np.testing.assert_array_equal(found, xr.decode_cf(coded)["t"].values.astype("M8[ns]"))


def test_no_time_is_not_a_time() -> None:
    found = decoded_times(np.array([np.nan, 1.5]), "days since 2001-01-01", "standard")
    assert found is not None
    np.testing.assert_array_equal(found, np.array(["NaT", "2001-01-02T12"], "M8[ns]"))
