"""Conversion of times and durations to nanoseconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa
from readers.index.schema import as_nanoseconds, is_time
from readers.leapseconds import SECOND, iso_nanoseconds, utc_nanoseconds, utc_of

if TYPE_CHECKING:
    from astropy.units import Quantity

UTC = ("", "UTC", "UT", "GMT")
"""Names of UTC, the default time scale."""
# Years that fit into 64 bits of nanoseconds: NumPy overflows without an error.
_TIME = re.compile(r"(1[7-9]|2[01])\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")
_TAI = "_TAI"
_JSOC_DAY = re.compile(r"(\d{4})\.(\d\d)\.(\d\d)_")
_TT = 32_184_000_000
_AHEAD_OF_TAI = {
    **dict.fromkeys(("TAI", "IAT"), 0),
    **dict.fromkeys(("TT", "TDT", "ET", "TDB"), _TT),
    "GPS": -19_000_000_000,
}
"""Nanoseconds of time scales minus TAI: TT is TAI + 32.184 s, and TDB is within 2 ms of TT."""


def nanoseconds(name: str, duration: float | str | Quantity, *, signed: bool = False) -> int:
    """Return a duration in nanoseconds; negative only if `signed`.

    ValueError if it is not a duration, or is longer than 9e9 s.
    """
    from astropy import units

    try:
        if isinstance(duration, bool | np.bool_):
            raise TypeError
        seconds = float(units.Quantity(duration, units.s).value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be seconds, or a duration such as '12 s' or '12 min', got {duration!r}"
        ) from error
    least = -9e9 if signed else 0
    if not least <= seconds < 9e9:
        raise ValueError(f"{name} must be from {least:g} to 9e9 s, got {duration!r}")
    return round(seconds * 1e9)


def times_of(
    table: pa.Table, name: str, owner: str = ""
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a column of times in nanoseconds since 1970, and a mask of the rows with a time."""
    column = table[name]
    if not is_time(column.type):
        raise TypeError(
            f"column {name!r}{owner} must have times, but it is {column.type}: replace it by "
            "times, such as astropy's Time(values, format='mjd').datetime64"
        )
    return as_nanoseconds(name, column).fill_null(0).to_numpy(), column.is_valid().to_numpy()


def time_of_text(text: str, scale: str = "") -> int | None:
    """Return a time in UTC, in nanoseconds since 1970; None if the text is not a time.

    The text is ISO 8601, or has the form of JSOC, ``2011.02.15_02:00:00_TAI``. It is in UTC if it
    ends with ``Z``, in TAI if it ends with ``_TAI``, and otherwise in this time scale.
    """
    if text.endswith(_TAI):
        text, scale = _JSOC_DAY.sub(r"\1-\2-\3T", text.removesuffix(_TAI)), "TAI"
    elif text.endswith("Z"):
        text, scale = text[:-1], "UTC"
    ahead = _AHEAD_OF_TAI.get(scale)
    if not _TIME.fullmatch(text) or (ahead is None and scale not in UTC):
        return None
    try:
        return utc_nanoseconds(text) if ahead is None else utc_of(iso_nanoseconds(text) - ahead)
    except ValueError:  # such as 30 February
        return None


def astropy_times(name: str, catalogue: str, times: Any) -> pa.Array:
    """Return astropy's Time as a column, by `utc_nanoseconds`.

    Raises
    ------
    ValueError
        If a time does not fit into 64 bits, or its scale is local.
    """
    from astropy.time import ScaleValueError

    try:
        found = times.utc.ymdhms
    except ScaleValueError as error:
        raise ValueError(f"column {name!r} of {catalogue}: {error}") from error
    found = np.asarray(getattr(found, "unmasked", found))
    mask = np.array(np.broadcast_to(times.mask, times.shape))
    wrong = np.flatnonzero(~mask & ((found["year"] < 1678) | (found["year"] > 2261)))
    if len(wrong):
        raise ValueError(
            f"column {name!r} of {catalogue} must have times from 1678 to 2261, the range of "
            f"64-bit nanoseconds since 1970, but row {wrong[0]} has {times[wrong[0]].isot}: leave "
            "out rows with other times"
        )
    months = 12 * (found["year"] - 1970) + found["month"] - 1
    days = months.astype("M8[M]").astype("M8[D]") + (found["day"] - 1)
    seconds = 3600 * found["hour"] + 60 * found["minute"] + found["second"]
    return pa.array(days + np.rint(seconds * SECOND).astype("m8[ns]"), mask=mask)


def text_times(name: str, catalogue: str, column: pa.ChunkedArray) -> pa.Array:
    """Return text as a column of times, see `time_of_text`; ValueError for other text."""
    texts = [(text or "").strip() for text in column.to_pylist()]
    times = [time_of_text(text) for text in texts]
    for row, (text, time) in enumerate(zip(texts, times, strict=True)):
        if text and time is None:
            raise ValueError(
                f"column {name!r} of {catalogue} must have times in UTC from 1700 to 2199, such as "
                f"2015-01-01T00:00:01.5, but row {row} has {text!r}: correct it, or leave it empty"
            )
    return pa.array(times, pa.timestamp("ns"))
