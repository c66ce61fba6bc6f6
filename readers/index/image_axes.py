"""Checks of the order of image axes: it must be the same in all images of an Index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from readers.chunks.array import NOTE, SAME_AXES, ChunkedArray, unpacked
from readers.index.arrow import pa, pc
from readers.index.schema import is_binary
from readers.messages import printable


def check_orientation(arrays: Sequence[ChunkedArray]) -> None:
    """Raise ValueError if two variables have the same axes in another order."""
    _check((one, "") for one in arrays)


def check_image_axes(table: pa.Table) -> None:
    """Raise ValueError if variables of different rows have the same axes in another order.

    Otherwise square images would be transposed without an error. Other differences between names of
    axes, such as ``lat`` and ``latitude``, are allowed.
    """
    _check(_different(table))


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


def _check(arrays: Iterable[tuple[ChunkedArray, str]]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for array, path in arrays:
        if (found := array.image_dimensions) is None:
            continue
        y, x = found
        shown = f"{array.name!r}" + f" of {printable(path)}" * bool(path)
        if y != x and (x, y) in seen:
            raise ValueError(
                f"{shown} has the axes {y}, {x}, and {seen[x, y]} has {x}, {y}: images must have "
                "their axes in the same order: make an Index of each, or transpose one with xarray "
                "and save it"
            )
        seen.setdefault((y, x), shown)
