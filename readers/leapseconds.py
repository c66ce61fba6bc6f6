"""Leap seconds: the difference between TAI and UTC, from ERFA, which astropy also uses.

Times are nanoseconds since 1970-01-01 on their own scale. astropy's Time gives the same results,
but is a hundred times slower, and its import takes half a second in each reader process.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from functools import cache
from typing import NamedTuple

import numpy as np

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
_EPOCH = datetime.date(1970, 1, 1)


class _Steps(NamedTuple):
    utc: list[int]
    """Instants on the UTC scale, in ns. TAI is ahead of UTC by `ahead` from each of them on."""
    tai: list[int]
    """The same instants on the TAI scale, ns."""
    ahead: list[int]
    """TAI minus UTC, in nanoseconds."""


def tai_of(utc: int, day: int) -> int | None:
    """Convert a UTC time to TAI; None before 1972, when the difference was not whole seconds.

    `utc` is in nanoseconds. `day` is its day, counted from 1970-01-01, because a leap second is
    beyond the usual end of its day.
    """
    steps = _steps()
    step = bisect_right(steps.utc, day * DAY) - 1
    return utc + steps.ahead[step] if step >= 0 else None


def utc_of(tai: int) -> int | None:
    """Convert a TAI time to UTC, in nanoseconds; None before 1972.

    A leap second counts as the next second, as in `utc_nanoseconds`.
    """
    steps = _steps()
    step = bisect_right(steps.tai, tai) - 1
    return tai - steps.ahead[step] if step >= 0 else None


def utc_nanoseconds(text: str) -> int:
    """Convert a UTC time in ISO 8601, from 1678 to 2261, to nanoseconds.

    A leap second counts as the next second, as in POSIX: 23:59:60.5 is 00:00:00.5. ValueError if
    the time does not exist.
    """
    if text[11:19] != "23:59:60":
        return iso_nanoseconds(text)
    time = iso_nanoseconds(f"{text[:17]}59{text[19:]}") + SECOND
    if time // DAY * DAY not in _steps().utc:
        raise ValueError(f"expected a UTC time, got {text}: there was no leap second")
    return time


def iso_nanoseconds(text: str) -> int:
    """Convert an ISO 8601 time on its own scale, without leap seconds; ValueError if invalid."""
    return int(np.datetime64(text, "ns").astype(np.int64))


@cache
def _steps() -> _Steps:
    import erfa

    rows = [row for row in erfa.leap_seconds.get() if row["year"] >= 1972]
    ahead = [round(row["tai_utc"]) * SECOND for row in rows]
    months = [datetime.date(row["year"], row["month"], 1) for row in rows]
    utc = [(month - _EPOCH).days * DAY for month in months]
    return _Steps(utc, [start + more for start, more in zip(utc, ahead, strict=True)], ahead)
