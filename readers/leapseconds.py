"""Leap seconds: how far TAI is ahead of UTC, as ERFA knows it, which astropy uses.

Times are nanoseconds since 1970-01-01 on their own scale. astropy's Time does the same, but takes a
hundred times as long for one, and its import half a second of each reader process.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from functools import cache
from typing import NamedTuple

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
_EPOCH = datetime.date(1970, 1, 1)


class _Steps(NamedTuple):
    utc: list[int]
    """Times from which on TAI is ahead by as much."""
    tai: list[int]
    """The same moments."""
    ahead: list[int]
    """Nanoseconds."""


def tai_of(utc: int, day: int) -> int | None:
    """Return the TAI of a time in UTC; None before 1972, when it was ahead by a growing fraction.

    Parameters
    ----------
    utc : int
        Nanoseconds; a leap second lies behind the end of its day.
    day : int
        The day that it is counted to, in days since 1970-01-01.
    """
    steps = _steps()
    place = bisect_right(steps.utc, day * DAY) - 1
    return utc + steps.ahead[place] if place >= 0 else None


def utc_of(tai: int) -> int | None:
    """Return the UTC of a time in TAI, in nanoseconds; None before 1972."""
    steps = _steps()
    place = bisect_right(steps.tai, tai) - 1
    return tai - steps.ahead[place] if place >= 0 else None


@cache
def _steps() -> _Steps:
    import erfa

    rows = [row for row in erfa.leap_seconds.get() if row["year"] >= 1972]
    ahead = [round(row["tai_utc"]) * SECOND for row in rows]
    months = [datetime.date(row["year"], row["month"], 1) for row in rows]
    utc = [(month - _EPOCH).days * DAY for month in months]
    return _Steps(utc, [start + more for start, more in zip(utc, ahead, strict=True)], ahead)
