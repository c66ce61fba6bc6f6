"""Times as numbers since a date, as in the CF conventions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NANOSECONDS = {
    "nanosecond": 1,
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": 1_000_000_000,
    "minute": 60_000_000_000,
    "hour": 3_600_000_000_000,
    "day": 86_400_000_000_000,
}
_NAMES = {
    **{f"{name}s": name for name in _NANOSECONDS},
    "ns": "nanosecond",
    "us": "microsecond",
    "ms": "millisecond",
    "msec": "millisecond",
    "s": "second",
    "sec": "second",
    "secs": "second",
    "min": "minute",
    "mins": "minute",
    "h": "hour",
    "hr": "hour",
    "hrs": "hour",
    "d": "day",
}
_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
_SINCE = re.compile(
    r"(\d{1,4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d?)(?::(\d\d?(?:\.\d*)?))?)?\s*"
    r"(?:Z|UTC|\+?0?0:?00|([+-])(\d\d?):?(\d\d)?)?"
)
"""A date, and maybe a time and an offset from UTC."""
_GREGORIAN = np.datetime64("1582-10-15", "s")
"""Start of the Gregorian calendar. Earlier dates of the standard calendar are Julian."""
_MOST = 2**63 - 1


def decoded_times(values: NDArray[Any], units: str, calendar: str) -> NDArray[np.datetime64] | None:
    """Return numbers since a date as times, shape (n,), datetime64[ns], with NaT for NaN.

    `units` are a unit and a date, such as ``hours since 1900-01-01``, in UTC by default. None if
    the units or the calendar are not supported, or a time is out of range.
    """
    unit, _, since = units.partition(" since ")
    unit = unit.strip().lower()
    unit = _NAMES.get(unit, unit)
    found = _SINCE.fullmatch(since.strip())
    if unit not in _NANOSECONDS or found is None or calendar.lower() not in _CALENDARS:
        return None
    year, month, day, hour, minute, second, sign, hours_ahead, minutes_ahead = found.groups()
    if sign and hour is None:  # ambiguous: the number may be the hour
        return None
    try:
        date = np.datetime64(f"{int(year):04}-{int(month):02}-{int(day):02}", "s")
    except ValueError:  # such as 30 February
        return None
    is_julian = date < _GREGORIAN and calendar.lower() != "proleptic_gregorian"
    if is_julian:
        if int(year) == 0:  # the Julian calendar has no year 0
            return None
        date = _of_julian(int(year), int(month), int(day))
    seconds = 3600 * int(hour or 0) + 60 * int(minute or 0) + float(second or 0)
    ahead = 3600 * int(hours_ahead or 0) + 60 * int(minutes_ahead or 0)
    seconds += ahead if sign == "-" else -ahead
    start = int(date.astype(np.int64)) * 10**9 + round(seconds * 1e9)
    step = _NANOSECONDS[unit]
    missing = np.isnan(values)
    numbers = np.where(missing, 0, values)
    if not np.isfinite(numbers).all():
        return None
    # Python's integers do not overflow. Fractions are added separately, to keep their digits.
    counts = [start + int(n) * step for n in np.floor(numbers).tolist()]
    if values.dtype.kind == "f":
        rests = np.modf(numbers.astype(np.float64) - np.floor(numbers))[0]
        counts = [n + round(rest * step) for n, rest in zip(counts, rests.tolist(), strict=True)]
    least = 10**9 * int(_GREGORIAN.astype(np.int64)) if is_julian else 1 - _MOST
    if not all(least <= count <= _MOST for count in counts):
        return None
    times = np.array(counts, np.int64).view("M8[ns]")
    times[missing] = np.datetime64("NaT")
    return times


def _of_julian(year: int, month: int, day: int) -> Any:
    """Convert a date of the Julian calendar to the proleptic Gregorian calendar."""
    month += 12 * (month < 3)
    year -= month > 12
    days = day + (153 * month - 457) // 5 + 365 * year + year // 4 - 719_471
    return np.datetime64(days, "D").astype("M8[s]")
