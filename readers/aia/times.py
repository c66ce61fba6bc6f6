"""Times of headers and tables as integers: astropy's Time takes a hundred times as long.

Nanoseconds of TAI are counted, since days that hold a leap second are longer, and astropy's Time
counts those as well.
"""

from __future__ import annotations

import datetime
import functools
import re
from bisect import bisect_right

_TIME = re.compile(
    r"(\d{4})([-.])(\d\d)\2(\d\d)(?:[T_ ](\d\d):(\d\d)(?::(\d\d(?:\.\d*)?))?)?(?:(Z|_UTC)|(_TAI))?"
)
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_SECOND = 1_000_000_000
DAY = 86_400 * _SECOND
"""Nanoseconds."""


def tai_nanoseconds(text: str) -> int:
    """Give the nanoseconds of TAI between 1970-01-01 and a time.

    Parameters
    ----------
    text : str
        ISO 8601 as FITS has it, in UTC: ``2011-02-15T00:00:01.34``, with or without ``Z``; or as
        JSOC has it: ``2011.02.15_01:59:54_TAI``.

    Raises
    ------
    ValueError
        If it is no such time.

    Notes
    -----
    UTC is what FITS Standard 4.0, section 9.2.1, makes of a time whose scale is not told. Leap
    seconds are those of ERFA, which astropy uses.
    """
    found = _TIME.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError("it has another form")
        year, _, month, day, hour, minute, second, _, tai = found.groups()
        days = datetime.date(int(year), int(month), int(day)).toordinal() - _EPOCH
        clock = 3600 * int(hour or 0) + 60 * int(minute or 0)
        if clock >= 86_400 or int(minute or 0) >= 60 or float(second or 0) >= 61:
            raise ValueError("a day has no such time")
    except ValueError as error:
        raise ValueError(
            f"expected a time such as 2011-02-15T00:00:01.34, got {text!r}: {error}"
        ) from error
    utc = days * DAY + clock * _SECOND + round(float(second or 0) * _SECOND)
    return utc if tai else utc + _leap_seconds(days) * _SECOND


def _leap_seconds(days: int) -> int:
    """Give TAI - UTC on a day, in whole seconds; 10 before 1972, where no such thing is defined."""
    since, seconds = _leap_second_table()
    return seconds[max(bisect_right(since, days) - 1, 0)]


@functools.cache
def _leap_second_table() -> tuple[tuple[int, ...], tuple[int, ...]]:
    import erfa  # a part of astropy's Time, which needs 0.3 s to import

    rows = [row for row in erfa.leap_seconds.get() if row["year"] >= 1972]
    return (
        tuple(datetime.date(row["year"], row["month"], 1).toordinal() - _EPOCH for row in rows),
        tuple(int(row["tai_utc"]) for row in rows),
    )
