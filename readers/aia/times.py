"""Times of headers and tables, in nanoseconds of TAI.

TAI counts leap seconds, like astropy's Time.
"""

from __future__ import annotations

import datetime
import re

from readers.leapseconds import DAY, SECOND, tai_of

_TIME = re.compile(
    r"(\d{4})([-.])(\d\d)\2(\d\d)(?:[T_ ](\d\d):(\d\d)(?::(\d\d(?:\.\d*)?))?)?(?:(Z|_UTC)|(_TAI))?"
)
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def tai_nanoseconds(text: str) -> int:
    """Return the nanoseconds of TAI between 1970-01-01 and a time.

    The text is ISO 8601 in UTC as in FITS, with or without ``Z``: ``2011-02-15T00:00:01.34``. Or as
    in JSOC: ``2011.02.15_01:59:54_TAI``. Without a time scale UTC is assumed (FITS Standard 4.0,
    section 9.2.1). ValueError for another form, or if there is no such time.
    """
    found = _TIME.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError("it has another format")
        year, _, month, day, hour, minute, second, _, tai = found.groups()
        days = datetime.date(int(year), int(month), int(day)).toordinal() - _EPOCH
        clock = 3600 * int(hour or 0) + 60 * int(minute or 0)
        if clock >= 86_400 or int(minute or 0) >= 60 or float(second or 0) >= 61:
            raise ValueError("a day has no such time")
    except ValueError as error:
        raise ValueError(
            f"expected a time such as 2011-02-15T00:00:01.34, got {text!r}: {error}"
        ) from error
    time = days * DAY + clock * SECOND + round(float(second or 0) * SECOND)
    instant = time if tai else tai_of(time, days)
    if instant is None:
        raise ValueError(f"expected a time after 1972, got {text!r}")
    return instant
