"""Columns of lists of numbers as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa, pc


def is_lists(kind: pa.DataType) -> bool:
    """Return whether a column has lists of any kind."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_number(kind: pa.DataType) -> bool:
    """Return whether this is a type of integers or floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def holds_numbers(kind: pa.DataType) -> bool:
    """Return whether lists contain numbers, or lists of numbers."""
    item = kind.value_type
    return is_number(item.value_type if is_lists(item) else item)


def depth(kind: pa.DataType) -> int:
    """Return how many levels of lists a type has."""
    return 1 + depth(kind.value_type) if is_lists(kind) else 0


def innermost(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of lists of any depth."""
    return innermost(kind.value_type) if is_lists(kind) else kind


def most_items(column: pa.ChunkedArray) -> int:
    """Return the number of items of the longest list."""
    return int(pc.max(pc.list_value_length(column)).as_py() or 0)


def width_of(name: str, column: pa.ChunkedArray) -> int | None:
    """Return k for a column of lists of lists of k numbers; None for lists of numbers.

    1 if all lists are empty. TypeError if k differs, or nulls are inside the lists.
    """
    widths = set[int]()
    for chunk in column.chunks:
        items = chunk.flatten()
        nulls = items.null_count
        if is_lists(items.type):
            widths |= {*pc.unique(pc.list_value_length(items)).drop_null().to_pylist()}
            nulls += items.flatten().null_count
        if nulls:
            raise TypeError(
                f"column {name!r} is {column.type} and has nulls inside its lists: fill the nulls"
            )
    if len(widths) > 1:
        raise TypeError(
            f"column {name!r} must have inner lists with equal numbers of items, got "
            f"{', '.join(map(str, sorted(widths)))}"
        )
    item = column.type.value_type
    if pa.types.is_fixed_size_list(item):
        return int(item.list_size)
    return max(widths, default=1) if is_lists(item) else None


def are_plain(column: pa.ChunkedArray) -> bool:
    """Return whether lists hold numbers, or lists of k numbers, without null."""
    item = column.type.value_type
    number = item.value_type if pa.types.is_fixed_size_list(item) else item
    if not is_number(number) or column.null_count:
        return False
    values = [chunk.values for chunk in column.chunks]
    return not any(
        each.null_count or (each.flatten().null_count if number is not item else 0)
        for each in values
    )


def lists_of(name: str, column: pa.ChunkedArray) -> pa.LargeListArray:
    """Return a column of lists of numbers, or of lists of k numbers. Null becomes an empty list.

    Raises
    ------
    TypeError
        If it has other values, nulls inside lists, or inner lists of different lengths.
    """
    width = width_of(name, column)
    items = pc.list_flatten(column)
    if width is not None:
        items = pc.list_flatten(items)
    if pa.types.is_null(items.type) and not len(items):
        items = items.cast(pa.float32())
    if not is_number(items.type):
        raise TypeError(f"column {name!r} must have lists of numbers, got {column.type}")
    values = pa.array(np.ascontiguousarray(items.to_numpy()))
    if width is not None:
        values = pa.FixedSizeListArray.from_arrays(values, width or 1)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def holds_arrays(values: object) -> TypeGuard[Sequence[NDArray[Any] | Sequence[Any]]]:
    """Return whether the values are arrays of shape (n, k), or empty sequences."""
    if not isinstance(values, Sequence):
        return False
    others = [value for value in values if not _is_array(value)]
    return len(others) < len(values) and all(map(_is_empty, others))


def holds_lists_of_arrays(values: object) -> TypeGuard[Sequence[Sequence[Any] | None]]:
    """Return whether the values are lists of arrays of shape (n, k) or empty sequences."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return False
    lists = [value for value in values if value is not None and not _is_empty(value)]
    return (
        bool(lists)
        and all(isinstance(value, list | tuple) for value in lists)
        and (holds_arrays([item for value in lists for item in value if item is not None]))
    )


def column_of_lists(name: str, values: Sequence[Sequence[Any] | None]) -> pa.Array:
    """Return a column with a list of arrays of shape (n, k) in each row, one for each frame."""
    lists = [() if value is None else value for value in values]
    items = column_of_arrays(name, [() if one is None else one for each in lists for one in each])
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    missing = pa.array([value is None for value in values])
    return pa.LargeListArray.from_arrays(pa.array(offsets), items, mask=missing)


def _is_array(value: object) -> TypeGuard[NDArray[Any]]:
    return isinstance(value, np.ndarray) and value.ndim == 2


def _is_empty(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.shape == (0,)
    return isinstance(value, list | tuple) and not value


def column_of_arrays(name: str, values: Sequence[NDArray[Any] | Sequence[Any]]) -> pa.Array:
    """Return arrays of shape (n, k), or empty arrays, as a column of lists of lists of k numbers.

    Raises
    ------
    ValueError
        If k differs.
    """
    arrays = [value for value in values if _is_array(value)]
    widths = sorted({array.shape[1] for array in arrays})
    if len(widths) > 1:
        raise ValueError(
            f"column {name!r} needs arrays of shape (n, k) with the same k, got k = {widths}"
        )
    several = np.concatenate(arrays)
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    items = pa.FixedSizeListArray.from_arrays(pa.array(several.ravel()), several.shape[1])
    return pa.LargeListArray.from_arrays(pa.array(offsets), items)
