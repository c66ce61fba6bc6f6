"""Checks of the order of image axes: it must be the same in all images of an Index."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np

from readers.chunks.array import NOTE, SAME_AXES, ChunkedArray, unpacked
from readers.index.arrow import pa, pc
from readers.index.schema import is_binary
from readers.messages import printable

logger = logging.getLogger(__name__)

_SAME = {"latitude": "lat", "y": "lat", "longitude": "lon", "x": "lon"}
"""Names of axes that mean the same as another one."""


def check_orientation(arrays: Sequence[ChunkedArray]) -> None:
    """Raise ValueError if two variables have the same axes in another order."""
    _checked((one, "") for one in arrays)


def check_image_axes(table: pa.Table) -> None:
    """Raise ValueError if variables of different rows have the same axes in another order.

    Otherwise square images would be transposed without an error. Other differences between names of
    axes are logged.
    """
    found = list(_checked(_different(table)).items())
    if len(found) > 1:
        (names, first), (others, second), *_ = found
        logger.warning(
            "%s has the axes %s, and %s has %s: their images are joined pixel by pixel, so make "
            "sure that they have the same grid",
            *(first, ", ".join(names), second, ", ".join(others)),
        )


def _different(table: pa.Table) -> Iterable[tuple[ChunkedArray, str]]:
    """Yield the variables, with their path, of one row for each set of axes."""
    for name in table.column_names:
        path = name.replace(NOTE, "path", 1)
        is_note = name == NOTE or name.startswith(f"{NOTE}_")
        if not is_note or path not in table.column_names or not is_binary(table[name].type):
            continue
        heads = pc.binary_slice(table[name], SAME_AXES.start, SAME_AXES.stop)
        codes = heads.combine_chunks().dictionary_encode().indices
        _, rows = np.unique(codes.fill_null(-1).to_numpy(zero_copy_only=False), return_index=True)
        for row in rows.tolist():
            if (note := table[name][row].as_py()) is not None:
                yield from ((one, table[path][row].as_py()) for one in unpacked(note).values())


def _checked(arrays: Iterable[tuple[ChunkedArray, str]]) -> dict[tuple[str, str], str]:
    """Return the first variable, for messages, with each pair of names of axes.

    ValueError if the rows of one are the columns of another.
    """
    found: dict[tuple[str, str], str] = {}
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    for array, path in arrays:
        if (names := array.image_dimensions) is None:
            continue
        y, x = (_SAME.get(name.lower(), name) for name in names)
        shown = found.setdefault(names, repr(array.name) + f" of {printable(path)}" * bool(path))
        if y != x and (other := seen.get((x, y))) is not None:
            raise ValueError(
                f"{shown} has the axes {', '.join(names)}, and {found[other]} has "
                f"{', '.join(other)}: images must have their axes in the same order: make an Index "
                "of each, or transpose one with xarray and save it"
            )
        seen.setdefault((y, x), names)
    return found
