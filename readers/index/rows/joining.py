"""Join tables of Indexes, by rows and by columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from readers.index.arrow import pa
from readers.index.classes import (
    LABELS,
    category_ids_of,
    classes_of,
    with_classes,
    without_classes,
)
from readers.index.grouping.frames import common_frames, with_frames
from readers.index.image_axes import check_image_axes
from readers.index.list_columns import (
    column_of_arrays,
    column_of_lists,
    holds_arrays,
    holds_lists_of_arrays,
)
from readers.index.rows.windows import CORNERS, common_windows, with_windows
from readers.values import check_bool


def joined(tables: Sequence[pa.Table], *, fill: bool) -> pa.Table:
    """Return the table of several Indexes, see `readers.index.table.Index.concat`."""
    if not tables:
        raise ValueError("concat needs at least one Index, got none")
    check_bool("fill", fill)
    if not fill:
        _check_columns(tables)
    # Labels without class names may belong to other classes.
    labelled = [table for table in tables if not set(LABELS).isdisjoint(table.column_names)]
    classes = {classes_of(table) for table in labelled}
    if len(classes) > 1:
        raise ValueError(
            f"the labels belong to different classes: {' and '.join(map(str, sorted(classes)))}; "
            "make the Indexes with the same classes=, or set common labels with Index.with_column"
        )
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    table = pa.table({name: _joined_column(name, tables) for name in names})
    table = with_frames(table, common_frames(tables))
    table = with_windows(table, common_windows(tables))
    check_image_axes(table)
    ids = {category_ids_of(table) for table in labelled}
    return with_classes(table, classes.pop() if classes else (), ids.pop() if len(ids) == 1 else ())


def replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    """Return the table with a column, see `readers.index.table.Index.with_column`."""
    check_name(name)
    column = column_of(name, values)
    if len(column) != table.num_rows:
        raise ValueError(
            f"column {name!r} needs {table.num_rows} values, one for each row, got {len(column)}"
        )
    if name in CORNERS:
        table = with_windows(table, None)
    if name not in table.column_names:
        return table.append_column(name, column)
    if name in LABELS:
        table = without_classes(table)
    return table.set_column(table.column_names.index(name), name, column)


def check_name(name: Any) -> None:
    """Raise TypeError or ValueError for an invalid name of a column."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a column must be text, got {name!r}")
    if not name:
        raise ValueError("the name of a column is empty")


def _check_columns(tables: Sequence[pa.Table]) -> None:
    first = set(tables[0].column_names)
    for number, table in enumerate(tables[1:], 1):
        if differing := sorted(first ^ set(table.column_names)):
            lacking = [
                f"{name!r} (indexes[{number if name in first else 0}])" for name in differing
            ]
            raise ValueError(
                f"columns are missing: {', '.join(lacking)}; fill=True fills them with null"
            )


def _joined_column(name: str, tables: Sequence[pa.Table]) -> pa.ChunkedArray:
    """Return a column of all tables, with null for tables that lack the column."""
    found = dict.fromkeys(table[name].type for table in tables if name in table.column_names)
    kinds = list(found)
    if len(kinds) > 1:
        kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    try:
        schemas = [pa.schema([(name, kind)]) for kind in kinds]
        kind = pa.unify_schemas(schemas, promote_options="permissive").field(name).type
        columns = [
            table[name].cast(kind)
            if name in table.column_names
            else pa.chunked_array([pa.nulls(table.num_rows, kind)])
            for table in tables
        ]
    except pa.ArrowException as error:
        raise ValueError(
            f"column {name!r} is {' and '.join(map(str, kinds))}: {str(error).rstrip('.')}; "
            "convert it to one type with Index.with_column"
        ) from error
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], kind)


def column_of(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Return values as a column, see `readers.index.table.Index.with_column`."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes):
        raise ValueError(f"column {name!r} needs a value for each row, got {values!r}")
    if isinstance(values, Set | Mapping):
        raise TypeError(
            f"column {name!r} needs values in the order of the rows, but got a "
            f"{type(values).__name__}: make a list, e.g. [values[path] for path in "
            "index.table['path'].to_pylist()]"
        )
    _check_masks(name, values)
    if holds_arrays(values):
        return column_of_arrays(name, values)
    if holds_lists_of_arrays(values):
        return column_of_lists(name, values)
    if hasattr(values, "__array__") and not _is_for_arrow(values):
        masked = np.ma.isMaskedArray(values) or hasattr(values, "unmasked")  # astropy's Masked
        values = np.ma.asarray(values) if masked else np.asarray(values)
        values = values.astype(values.dtype.newbyteorder("="), copy=False)  # in FITS tables
        if values.ndim == 2 and values.shape[1]:
            numbers = column_of(name, values.ravel())
            return pa.FixedSizeListArray.from_arrays(numbers, values.shape[1])
    try:
        column = pa.array(values)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if isinstance(column.type, pa.BaseExtensionType):  # periods and intervals in pandas
            raise TypeError(f"they are {column.type}")
        return column
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"column {name!r} cannot hold these values: {error}; pass values of one type: numbers, "
            "text, bytes, bools, or times as an array of datetime64[ns] (NaT becomes null); for "
            "astropy's Time pass its attribute datetime64"
        ) from error


def _is_for_arrow(values: Any) -> bool:
    """Return whether PyArrow should convert values, not NumPy, e.g. types of pandas.

    NumPy would convert integers with missing values to floats.
    """
    dtype = getattr(values, "dtype", None)
    is_frames = hasattr(dtype, "na_value") or hasattr(values, "__arrow_c_stream__")  # or polars
    # Sparse types of pandas are for NumPy: PyArrow cannot convert them.
    is_numpy = dtype is None or isinstance(dtype, np.dtype) or hasattr(dtype, "fill_value")
    return hasattr(values, "__arrow_array__") or (is_frames and not is_numpy)


def _check_masks(name: str, values: Any) -> None:
    """Raise ValueError for masked rows: PyArrow ignores masks."""
    for row, value in enumerate(values if isinstance(values, Sequence) else ()):
        if isinstance(value, np.ndarray) and np.any(getattr(value, "mask", False)):
            raise ValueError(
                f"column {name!r}: row {row} has masked values: fill them, e.g. with NaN, or pass "
                "None for a row without a value"
            )
