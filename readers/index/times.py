"""Times and durations in nanoseconds, as the methods of an Index take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.index.schema import as_nanoseconds, is_time

if TYPE_CHECKING:
    import pyarrow as pa
    from astropy.units import Quantity


def nanoseconds(name: str, duration: float | str | Quantity, *, signed: bool = False) -> int:
    """Return a duration in nanoseconds, which may be negative only if it is `signed`.

    ValueError if it is none, or longer than 9e9 s.
    """
    from astropy import units

    try:
        if isinstance(duration, bool):
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


def times_of(table: pa.Table, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a column of times in nanoseconds since 1970, and a mask of rows that have one."""
    column = table[name]
    if not is_time(column.type):
        raise TypeError(f"column {name!r} must hold times, it is {column.type}")
    return as_nanoseconds(name, column).fill_null(0).to_numpy(), column.is_valid().to_numpy()
