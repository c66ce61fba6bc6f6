"""Columns of the nearest time, against pandas."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table
from astropy.time import Time
from hypothesis import given
from hypothesis import strategies as st

from readers.index.table import Index

START = np.datetime64("2015-01-01T00:00:00", "ns")
seconds = st.lists(st.integers(0, 40) | st.none(), min_size=1, max_size=12)


def times(numbers: list[int | None]) -> pa.Array:
    start = int(START.astype(np.int64))
    values = [None if one is None else start + one * 10**9 for one in numbers]
    return pa.array(values, pa.timestamp("ns"))


def index_at(numbers: list[int | None]) -> Index:
    paths = [f"{number}.fits" for number in range(len(numbers))]
    return Index(pa.table({"path": pa.array(paths, pa.string()), "t_obs": times(numbers)}))


@given(seconds, seconds, st.integers(0, 12))
def test_the_nearest_is_that_of_pandas(
    own: list[int | None], others: list[int | None], tolerance: int
) -> None:
    goes = pa.table({"time": times(others), "number": list(range(len(others)))})
    found = index_at(own).with_nearest(goes, tolerance)
    assert found.table.drop_columns(["number"]).equals(index_at(own).table)
    left = pd.DataFrame({"t_obs": times(own).to_pandas(), "row": range(len(own))}).dropna()
    right = goes.to_pandas().dropna().drop_duplicates("time")
    joined = pd.merge_asof(
        left.sort_values("t_obs"),
        right.sort_values("time"),
        left_on="t_obs",
        right_on="time",
        direction="nearest",
        tolerance=pd.Timedelta(seconds=tolerance),
    )
    expected: dict[int, Any] = dict(zip(joined["row"], joined["time"], strict=True))
    for row, number in enumerate(found.table["number"].to_pylist()):
        time = None if number is None else goes["time"][number].as_py()
        other = expected.get(row)
        if time is None or other is None or pd.isna(other):
            assert number is None
            assert other is None or pd.isna(other)
            continue
        # Of two that are equally near, pandas does not always take the earlier.
        at = found.table["t_obs"][row].as_py()
        assert abs(time - at) == abs(other - at)
        assert time <= other


def test_of_equal_times_the_first() -> None:
    goes = pa.table({"time": times([9, 5, 5, 1]), "flux": [1.0, 2.0, 3.0, 4.0]})
    assert index_at([5, 7, 3]).with_nearest(goes, 60).table["flux"].to_pylist() == [2.0, 2.0, 4.0]


def test_files_and_tables_of_astropy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stamps = Time(START + np.array([0, 60, 120]) * np.timedelta64(1, "s"), scale="utc")
    table = Table({"time": stamps, "flux": [1.5, 2.5, 3.5], "name": ["a", "b", "c"]})
    table.write(tmp_path / "goes.ecsv")
    Table({"time": stamps.isot, "flux": [1.5, 2.5, 3.5]}).write(tmp_path / "goes.csv")
    index = index_at([2, 61, None, 400])
    expected = [1.5, 2.5, None, None]
    with caplog.at_level(logging.WARNING):
        for goes in (table, tmp_path / "goes.ecsv", tmp_path / "goes.csv"):
            found = index.with_nearest(goes, "1 min", columns=["flux"])
            assert found.table["flux"].to_pylist() == expected
    (message,) = {record.message for record in caplog.records}
    assert message.startswith("2 of 4 rows")
    tai = Table({"time": stamps.tai, "flux": [1.5, 2.5, 3.5]})
    found = index.with_nearest(tai, 60, columns={"flux": "of goes"})
    assert found.table["of goes"].to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "is_text"),
    [
        *(("fits", False), ("ascii.ecsv", False), ("parquet", False), ("commented", True)),
        *(("fits", True), ("ascii.ecsv", True), ("parquet", True), ("votable", True)),
    ],
)
def test_times_in_files(tmp_path: Path, kind: str, *, is_text: bool) -> None:
    stamps = Time(START + np.array([0, 60]) * np.timedelta64(1, "s"), scale="utc")
    texts = [*stamps.isot, ""]
    table = Table({"time": texts if is_text else stamps.insert(2, stamps[0]), "flux": [1.5, 2, 3]})
    path = tmp_path / f"goes.{kind.removeprefix('ascii.')}"
    if kind == "commented":
        rows = zip(table["time"], table["flux"], strict=True)
        lines = "".join(f"{time},{flux}\n" for time, flux in rows)
        (path := tmp_path / "goes.csv").write_text(f"# of GOES\ntime,flux\n{lines}")
    elif kind == "parquet":
        times = pa.array([*texts[:2], None] if is_text else table["time"].datetime64)
        pq.write_table(pa.table({"time": times, "flux": table["flux"]}), path)
    else:
        table.write(path, format=kind)
    found = index_at([1, 61]).with_nearest(path, 60)
    assert found.table["flux"].to_pylist() == [1.5, 2]


def test_numbers_in_a_fits_table_are_not_times(tmp_path: Path) -> None:
    """Of those that count from MJDREF astropy passes over the unit where one is missing."""
    table = Table({"time": [1.0, np.nan], "flux": [1.0, 2.0]}, units={"time": "s"})
    for name, keywords in (
        ("a", {}),
        ("b", {"MJDREFI": 51910}),
        ("c", {"MJDREF": 51910.0}),
        ("d", {"MJDREF": 51910.0, "TIMESYS": "GPS"}),
    ):
        table.meta = keywords
        table.write(tmp_path / f"{name}.fits")
        with pytest.raises(TypeError, match=f"'time'.*{name}.fits.*times.*double"):
            index_at([1]).with_nearest(tmp_path / f"{name}.fits", 60)


def test_an_index_of_cutouts_as_the_table() -> None:
    goes = pa.table({"time": times([1]), "catalogue_row": [7], "y": [5]})
    found = index_at([1]).with_nearest(goes, 60).table
    assert found.drop_columns(["path", "t_obs"]).to_pylist() == [
        {"catalogue_row": 7, "catalogue_y": 5}
    ]


def test_far_away_in_time() -> None:
    early, late = (
        pa.array([-(2**63) + 1], pa.timestamp("ns")),
        pa.array([2**63 - 1], "timestamp[ns]"),
    )
    index = Index(pa.table({"path": ["a"], "t_obs": early}))
    found = index.with_nearest(pa.table({"time": late, "flux": [1.0]}), 8e9)
    assert found.table["flux"].null_count == 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tolerance": "far"}, ValueError, "tolerance.*seconds.*'far'"),
        ({"tolerance": -1}, ValueError, "tolerance.*from 0.*-1"),
        ({"time": "date"}, KeyError, "'date'.*path, t_obs"),
        ({"catalogue_time": "Time"}, KeyError, "'Time'; did you mean time"),
        ({"catalogue_time": "flux"}, TypeError, "'flux'.*times.*double"),
        ({"catalogue_time": "name"}, ValueError, "'name'.*row 0 has 'a'"),
        ({"columns": ["Flux"]}, KeyError, "'Flux'; did you mean flux"),
        ({"columns": {"flux": "t_obs"}}, ValueError, "columns t_obs"),
        ({"columns": {"flux": "hdu"}}, ValueError, "hdu.*leave"),
    ],
)
def test_errors(options: dict[str, Any], error: type[Exception], words: str) -> None:
    goes = pa.table({"time": times([1]), "flux": [1.0], "name": ["a"]})
    with pytest.raises(error, match=words):
        index_at([1]).with_nearest(goes, **{"tolerance": 60, **options})


def test_views_of_text() -> None:
    names = pa.array(["a", None], pa.string_view())
    flares = pa.table({"time": times([0, 9]), "name": names})
    found = index_at([9, 0]).with_nearest(flares, 1)
    assert found.table["name"].to_pylist() == [None, "a"]
