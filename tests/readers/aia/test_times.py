from __future__ import annotations

import datetime
import warnings
from typing import Any

import pytest
from astropy.time import Time
from hypothesis import given
from hypothesis import strategies as st

from readers.aia.times import tai_nanoseconds
from readers.leapseconds import DAY

moments = st.datetimes(datetime.datetime(1972, 1, 1), datetime.datetime(2040, 1, 1))


def days_between(first: str, second: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of years to come
        return (Time(second, scale="utc") - Time(first, scale="utc")).to_value("day")


@given(moments, moments)
def test_differences_are_those_of_astropy(first: Any, second: Any) -> None:
    one, other = first.isoformat(), second.isoformat()
    found = (tai_nanoseconds(other) - tai_nanoseconds(one)) / DAY
    assert found == pytest.approx(days_between(one, other), rel=1e-14, abs=1e-13)


LEAPS = ["2015-06-30T23:59:59", "2015-06-30T23:59:60.5", "2015-07-01T00:00:00", "2017-01-01"]


@pytest.mark.parametrize("second", LEAPS)
def test_leap_seconds(second: Any) -> None:
    first = "2010-03-24T00:00:00.000"
    found = (tai_nanoseconds(second) - tai_nanoseconds(first)) / DAY
    assert found == pytest.approx(days_between(first, second), rel=1e-15)


SAME = [
    "2011-02-15T00:00:01.34",
    "2011-02-15T00:00:01.340Z",
    "2011-02-15 00:00:01.34",
    "2011.02.15_00:00:01.34_UTC",
    "2011.02.15_00:00:35.34_TAI",
    " 2011-02-15T00:00:01.340000000 ",
]


@pytest.mark.parametrize("text", SAME)
def test_spellings(text: str) -> None:
    assert tai_nanoseconds(text) == tai_nanoseconds(SAME[0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nan",
        "2011-02-30",
        "2011-02-15T25:00:00",
        "2011-02-15T00:60:00",
        "2011-02.15",
        "15/2/11",
    ],
)
def test_text_that_is_not_a_time(text: str) -> None:
    with pytest.raises(ValueError, match=f"time such as.* got '{text}'"):
        tai_nanoseconds(text)


def test_before_leap_seconds() -> None:
    with pytest.raises(ValueError, match=r"after 1972.*'1971-12-31'"):
        tai_nanoseconds("1971-12-31")
