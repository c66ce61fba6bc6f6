"""Columns of an Index from keywords of headers: their types, times and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.time import Time
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.index.fact_table import COLUMNS, FactTable, column_name, keys_to_read

BASE = dict.fromkeys(COLUMNS) | {"path": "/a.fits"}


def column(key: str, values: list[Any]) -> tuple[pa.ChunkedArray, FactTable]:
    facts = FactTable([key])
    for value in values:
        facts.add({**dict.fromkeys(keys_to_read([key])), **BASE, key: value})
    found = facts.table()[column_name(key)]
    return found, facts


def times(
    texts: list[Any], scales: list[Any], key: str = "DATE-OBS"
) -> tuple[pa.ChunkedArray, FactTable]:
    """Return the column of a keyword of times, beside TIMESYS."""
    facts = FactTable([key])
    for text, scale in zip(texts, scales, strict=True):
        facts.add({**BASE, key: text, f"TIMESYS:{key}": scale})
    return facts.table()[column_name(key)], facts


VALUES = [None, True, False, 0, 1, 2**53 + 1, -(2**63), 2**63, 10**30, 0.5, 1.0, 1e300, "nan", "x"]


def test_types_of_the_fixed_columns() -> None:
    for rows in 0, 2:
        facts = FactTable([])
        for _ in range(rows):
            facts.add(BASE)
        table = facts.table()
        assert table.num_rows == rows
        expected = {name: kind for name, kind in COLUMNS.items() if name != "plane"}
        assert {name: str(table[name].type) for name in expected} == expected
        assert "plane" not in table.column_names


@pytest.mark.parametrize(
    ("values", "expected", "kind"),
    [
        ([1, 2], [1, 2], pa.int64()),
        ([1, 2.5], [1.0, 2.5], pa.float64()),
        ([1, "a"], ["1", "a"], pa.string()),
        ([2.0, "a"], ["2.0", "a"], pa.string()),
        ([True, False], [True, False], pa.bool_()),
        ([True, 2], [1.0, 2.0], pa.float64()),
        ([1 << 70, 1], [float(1 << 70), 1.0], pa.float64()),
        ([(1 << 70) + 1, 1], [str((1 << 70) + 1), "1"], pa.string()),
        ([(1 << 53) + 1, 0.5], [str((1 << 53) + 1), "0.5"], pa.string()),
        (["NaN", 171], [None, 171], pa.int64()),
        ([0.5, "nan"], [0.5, None], pa.float64()),
        (["NaN", "NaN"], ["NaN", "NaN"], pa.string()),
        (["NaN", "x"], ["NaN", "x"], pa.string()),
        ([" 7", 7], [" 7", "7"], pa.string()),
        ([None, None], [None, None], pa.null()),
    ],
    ids=repr,
)
def test_types_are_promoted(values: list[Any], expected: list[Any], kind: Any) -> None:
    # A batch has 8192 rows: values far apart meet only when the batches are joined.
    for apart in (0, 9000):
        found, _ = column("KEY", [values[0], *[None] * apart, values[1]])
        assert found.type == kind
        assert [found[0].as_py(), found[-1].as_py()] == expected
        assert len(found) == apart + 2


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(VALUES), max_size=8),
    st.integers(1, 4),
)
def test_batches_change_nothing(values: list[Any], batch_rows: int) -> None:
    """Text is that of each value, and floats equal the integers, wherever batches end."""
    with pytest.MonkeyPatch.context() as patch:
        # Private, as no user needs it: a batch has 8192 rows.
        patch.setattr("readers.index.fact_table._BATCH_ROWS", batch_rows)
        found = column("KEY", values)[0].to_pylist()
    known = [value for value in values if value is not None]
    if "x" not in known and {*known} > {"nan"}:  # a missing number
        values = [None if value == "nan" else value for value in values]
        known = [value for value in values if value is not None]
    convert: Any = known and type(known[0])
    if any(isinstance(value, str) for value in known):
        convert = str
    elif len({*map(type, known)}) > 1 or any(type(v) is int and v >= 2**63 for v in known):
        exact = all(float(value) == value for value in known if type(value) is int)
        convert = float if exact else str
    assert found == [None if value is None else convert(value) for value in values]
    assert {*map(type, found)} <= {type(convert(value)) for value in known} | {type(None)}


def test_quality_is_unsigned() -> None:
    found, _ = column("QUALITY", [0, 5, -1, -2147483648, 1 << 31, None])
    assert found.type == pa.int64()
    assert found.to_pylist() == [0, 5, 0xFFFFFFFF, 0x80000000, 0x80000000, None]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1.0], pa.int64()),
        ([0.5], pa.float64()),
        (["good"], pa.string()),
        ([None], pa.int64()),
    ],
)
def test_quality_of_other_kinds(values: list[Any], kind: Any) -> None:
    assert column("QUALITY", values)[0].type == kind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-03-10T12:00:11.341", "2013-03-10T12:00:11.341"),
        ("2013-03-10T12:00:11.34Z", "2013-03-10T12:00:11.34"),
        ("2015-01-01T00:00:00.00_TAI", "2014-12-31T23:59:25"),
        ("2015-01-01_TAI", "2014-12-31T23:59:25"),
        ("2013-03-10 12:00:11", "2013-03-10T12:00:11"),
        ("2013-03-10T12:00", "2013-03-10T12:00"),
        ("2013-03-10", "2013-03-10"),
        ("2017-11-13T06:03:40.123456789", "2017-11-13T06:03:40.123456789"),
        ("2017-11-13T06:03:40.1234567891", "2017-11-13T06:03:40.123456789"),
        (None, None),
    ],
)
def test_times(text: str | None, expected: str | None) -> None:
    found, facts = column("DATE-OBS", [text])
    assert found.type == pa.timestamp("ns")
    nanoseconds = None if expected is None else np.datetime64(expected, "ns").astype(int)
    assert found.cast(pa.int64()).to_pylist() == [nanoseconds]
    assert not facts.not_times


@pytest.mark.parametrize(
    "text",
    [
        "2011.02.15_01:59:54_TAI",
        "2011.02.15_01:59:54.123456_TAI",
        "2015.06.30_12:00_TAI",
        "2015.07.01_00:00:34.999_TAI",
        "2015.07.01_00:00:36_TAI",
        "2026.11.21_00:00:00_TAI",
        "1972.01.01_00:00:10_TAI",
    ],
)
def test_times_of_hmi_become_utc(text: str) -> None:
    iso = text.removesuffix("_TAI").replace(".", "-", 2).replace("_", "T")
    expected = Time(iso, scale="tai").utc.to_value("isot", subfmt="date_hms")
    found, facts = column("T_OBS", [text])
    milliseconds = found.cast(pa.int64()).to_numpy() // 10**6
    assert milliseconds[0] == np.datetime64(expected, "ms").astype(np.int64)
    assert not facts.not_times


def test_within_a_leap_second() -> None:
    """UTC has 23:59:60 there; like POSIX, NumPy has the second after it twice."""
    found, facts = column(
        "T_OBS",
        ["2015.07.01_00:00:35.5_TAI", "2015-06-30T23:59:60.5", "2015-06-30 23:59:60.5Z"],
    )
    assert set(found.to_numpy()) == {np.datetime64("2015-07-01T00:00:00.5", "ns")}
    assert not facts.not_times


@pytest.mark.parametrize("scale", ["UTC", "TAI", "TT", "TDT", "ET", "IAT", "GMT", "tt(TAI) "])
def test_times_of_a_time_scale_become_utc(scale: str) -> None:
    named = scale.partition("(")[0].upper()
    known = {"TDT": "tt", "ET": "tt", "IAT": "tai", "GMT": "utc"}.get(named, named.lower())
    texts = [
        "2024-05-10T23:50:00.25",
        "2016-12-31T23:59:59",
        "2017-01-01T00:00:38",
        "1985-07-01",
    ]
    expected = [Time(text, scale=known, precision=9).utc.isot for text in texts]
    found, facts = times(texts, [scale] * 4)
    np.testing.assert_array_equal(found.to_numpy(), np.array(expected, "M8[ns]"))
    assert not facts.not_times


def test_tdb_and_gps() -> None:
    """GPS is 19 s behind TAI; TDB is compared with astropy, to 2 ms."""
    text = "2024-05-10T23:50:37"
    found, _ = times([text, text, text], ["GPS", "TAI", "TDB"])
    gps, tai, tdb = found.to_numpy()
    assert gps - tai == np.timedelta64(19, "s")
    away = tdb - np.datetime64(Time(text, scale="tdb", precision=9).utc.isot)
    assert np.abs(away) < np.timedelta64(2, "ms")


def test_timesys_is_read_for_times_and_no_column_of_its_own() -> None:
    assert keys_to_read(["WAVELNTH"]) == ("WAVELNTH",)
    assert keys_to_read(["DATE", "T_OBS"]) == ("DATE", "T_OBS", "TIMESYS:T_OBS")
    assert "timesys" not in column("DATE-OBS", [None])[1].table().column_names


def test_each_row_has_its_time_scale() -> None:
    text = "2024-05-10T23:50:37"
    found, facts = times(
        [text, text, text, f"{text}Z", "2024.05.10_23:50:37_TAI", None, text],
        ["TAI", None, "UTC", "TAI", "UTC", "UT1", "UT1"],
    )
    seconds = (found.to_numpy() - np.datetime64(text)) / np.timedelta64(1, "s")
    np.testing.assert_equal(seconds, [-37, 0, 0, 0, -37, np.nan, np.nan])
    assert facts.not_times == {"date_obs": (1, f"{text} (TIMESYS UT1)")}


def test_the_date_of_a_file_is_in_utc() -> None:
    found, _ = times(["2024-05-10"], ["TAI"], "DATE")
    assert found.to_numpy()[0] == np.datetime64("2024-05-10", "ns")


@pytest.mark.parametrize(
    ("text", "scale"),
    [("2024-05-10", "LOCAL"), ("1971-12-31", "TAI"), ("now", "TT"), ("2024-05-10", 5)],
)
def test_time_scales_that_are_not_converted(text: str, scale: Any) -> None:
    found, facts = times([text], [scale])
    assert found.null_count == 1
    assert facts.not_times == {"date_obs": (1, f"{text} (TIMESYS {scale})")}


@pytest.mark.parametrize(
    "text",
    [
        "2011.02.30_02:00:00_TAI",
        "1971.12.31_02:00:00_TAI",
        "2011.02.15_02:00:00_UT",
        "2011.02.15_02:00:00_TAI_",
        "10/03/13",
        "2013-02-30",
        "2015-12-31T23:59:60",
        "2016-12-31T22:59:60",
        "2016-12-31T23:59:61",
        "2015-06-30T23:59:60.5_TAI",
        "1500-01-01",
        "3000-01-01",
        "now",
        "NaT",
        "2013",
        "2013-03-10T12:00:11+01:00",
    ],
)
def test_texts_that_are_not_times_are_counted(text: str) -> None:
    found, facts = column("T_REC", ["2013-03-10", text, None, text])
    assert [value is None for value in found.to_pylist()] == [False, True, True, True]
    assert facts.not_times == {"t_rec": (2, text)}


def test_only_keys_that_name_a_time_and_hold_text() -> None:
    for key in "DATE", "DATE-END", "DATE__OBS", "T_OBS", "T_STOP":
        assert column(key, ["2013-03-10"])[0].type == pa.timestamp("ns")
        assert column(key, [None])[0].type == pa.timestamp("ns")
        assert column(key, [56000.5])[0].type == pa.float64()
    for key in "TIME-OBS", "T_REC_unit", "MDATE":
        assert column(key, ["2013-03-10"])[0].type == pa.string()


def test_names() -> None:
    assert [column_name(key) for key in ("DATE-OBS", "T_OBS", "ESO DET ID")] == [
        "date_obs",
        "t_obs",
        "eso_det_id",
    ]
