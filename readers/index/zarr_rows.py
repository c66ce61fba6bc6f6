"""Rows of Zarr stores: one for each position of an axis, with columns of coordinates."""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.chunks.array import NOTE, ROW, ChunkedArray, packed
from readers.chunks.chunk import read_line
from readers.chunks.fetch import run, together
from readers.chunks.reader import joined
from readers.chunks.values import check_dtype
from readers.chunks.zarr import ZarrArray, ZarrStore, dimension_names, select_axes
from readers.index.cf_times import decoded_times
from readers.index.paths import whole
from readers.index.times import time_of_text
from readers.messages import did_you_mean, printable
from readers.places.opener import Places
from readers.places.urls import is_url
from readers.values import is_integer

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_LOOKED_FOR = 10_000
"""Chunks of an array that are looked for at most, spread evenly."""


def zarr_table(
    root: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, int] | None,
    columns: Mapping[str, str] | None,
    places: Places,
) -> pa.Table:
    """Return the table of `readers.index.table.Index.from_zarr`."""
    import pyarrow as pa

    _check_arguments(variables, dim, isel, columns)
    roots = [root] if isinstance(root, str | os.PathLike) else list(root)
    if not roots:
        raise ValueError("expected the root of a Zarr store, or several, got none")
    tables = [
        _table_of(whole(os.fspath(one)), variables, dim, isel or {}, columns, places)
        for one in roots
    ]
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _check_arguments(variables: Any, dim: Any, isel: Any, columns: Any) -> None:
    """Raise ValueError or TypeError for arguments of the wrong kinds."""
    if variables is not None and (
        isinstance(variables, str)
        or not isinstance(variables, Sequence)
        or not variables
        or not all(isinstance(name, str) and name for name in variables)
        or len(set(variables)) < len(variables)
    ):
        raise ValueError(
            f"variables must be names, each once, such as ('t2m', 'u10'), got {variables!r}"
        )
    if dim is not None and (not isinstance(dim, str) or not dim):
        raise ValueError(f"dim must be the name of an axis, or None, got {dim!r}")
    if isel is not None and (
        not isinstance(isel, Mapping) or not all(map(is_integer, isel.values())) or dim in isel
    ):
        raise ValueError(
            f"isel must map names of other axes than dim to positions, such as {{'level': 3}}, got "
            f"{isel!r}"
        )
    if columns is not None and (
        not isinstance(columns, Mapping)
        or not all(isinstance(name, str) and name for pair in columns.items() for name in pair)
        or not {"path", "plane", NOTE}.isdisjoint(columns)
    ):
        raise ValueError(
            "columns must map names of columns to arrays or attributes, such as {'time': 'T_OBS'}, "
            f"and not path, plane and {NOTE}, got {columns!r}"
        )


def _table_of(
    root: str,
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, int],
    columns: Mapping[str, str] | None,
    places: Places,
) -> pa.Table:
    import pyarrow as pa

    try:
        store = ZarrStore(root, places)
        arrays = _chosen(store, variables, dim, isel)
        for name, array in arrays.items():
            check_dtype(array.shown, np.dtype(array.chunked(name, ()).dtype))
        chunked = [
            array.chunked(name, select_axes(array, dim, isel)) for name, array in arrays.items()
        ]
        _check_axes(arrays, isel)
        if not is_url(root):
            for one in chunked:
                _count_missing(root, one)
        lengths = {one.name: one.num_planes or 1 for one in chunked}
        sizes = {one.name: one.image_size for one in chunked}
        for found in (lengths, sizes):
            if len(set(found.values())) > 1:
                what = f"length of {dim!r}" if found is lengths else "height and width"
                shown = ", ".join(f"{name!r} {value}" for name, value in found.items())
                raise ValueError(
                    f"the variables of an Index must have one {what}, got {shown}: make an Index "
                    "of each"
                )
        num_rows = next(iter(lengths.values()))
        table: dict[str, Any] = {
            "path": pa.repeat(pa.scalar(root, pa.large_string()), num_rows),
            NOTE: pa.repeat(pa.scalar(packed(chunked), pa.large_binary()), num_rows),
        }
        if dim is not None:
            table["plane"] = pa.array(np.arange(num_rows, dtype=np.int32))
            table |= _columns(store, next(iter(arrays.values())), dim, columns, num_rows)
        elif columns:
            raise ValueError("columns need the axis of the rows: name it by dim=")
    except ValueError as error:
        raise ValueError(f"{printable(root)}: {error}") from error
    names = ["path", *(name for name in table if name not in ("path", NOTE)), NOTE]
    return pa.table({name: table[name] for name in names})


def _chosen(
    store: ZarrStore, variables: Sequence[str] | None, dim: str | None, isel: Mapping[str, int]
) -> dict[str, ZarrArray]:
    """Return the arrays to read, by name."""
    if store.array is not None:
        name = store.root.rstrip("/").rpartition("/")[2]
        if variables is not None and tuple(variables) != (name,):
            raise ValueError(
                f"the root is an array and has no variables, got {tuple(variables)}: leave them "
                "out, or give the group that the array is in"
            )
        return {name: store.array}
    if variables is not None:
        found = {name: store.get(name) for name in variables}
        if missing := [name for name, one in found.items() if one is None]:
            known = store.names()
            has = f"it has {', '.join(known)}" if known else "no array is found in it"
            raise ValueError(
                f"there is no variable {missing[0]!r}: {did_you_mean(missing[0], known)}{has}"
            )
        return {name: one for name, one in found.items() if one is not None}
    arrays = {name: store.get(name) for name in store.names()}
    fitting = {}
    for name, one in arrays.items():
        try:
            if one is not None and select_axes(one, dim, isel):
                fitting[name] = one
        except ValueError:
            continue
    if not fitting:
        shown = ", ".join(
            f"{name} ({', '.join(dimension_names(one, dim))})"
            for name, one in arrays.items()
            if one
        )
        beside = "" if dim is None else f" beside {dim!r}"
        raise ValueError(
            f"no array has two axes{beside}, {'it has ' + shown if shown else 'none is found'}: "
            "name the axis of the rows by dim=, positions on others by isel=, and the arrays by "
            "variables= if the store cannot be listed"
        )
    return fitting


def _count_missing(root: str, array: ChunkedArray) -> None:
    """Log how many chunks that rows need have no file."""
    grid = [
        range(selected // chunk, selected // chunk + 1)
        if selected is not None and selected != ROW
        else range(-(-length // chunk))
        for selected, length, chunk in zip(array.select, array.shape, array.chunks, strict=True)
    ]
    count = math.prod(map(len, grid))
    step = -(-count // _LOOKED_FOR)
    looked, missing = 0, 0
    for at in itertools.islice(itertools.product(*grid), 0, None, step):
        stored = array.places.find(at)
        looked += 1
        missing += stored is None or not os.path.exists(joined(root, stored.key))
    if missing:
        logger.warning(
            "%s: %d of the %d chunks of %r that were looked for have no file, and are read as the "
            "fill value %s; if the store was copied in part, copy it again",
            *(printable(root), missing, looked, array.name, array.fill_value),
        )


def _check_axes(arrays: Mapping[str, ZarrArray], isel: Mapping[str, int]) -> None:
    """Raise ValueError for a name of `isel` that no array has."""
    known = {name for array in arrays.values() for name in dimension_names(array, None)}
    if unknown := [name for name in isel if name not in known]:
        raise ValueError(
            f"isel: there is no axis {unknown[0]!r}, the arrays have {', '.join(sorted(known))}"
        )


def _columns(
    store: ZarrStore,
    array: ZarrArray,
    dim: str,
    columns: Mapping[str, str] | None,
    num_rows: int,
) -> dict[str, pa.Array]:
    """Return columns with a value for each row: the coordinate of the axis, or those named."""
    if columns is None:
        one = None if store.array is not None else store.get(dim)
        if one is None or one.shape != (num_rows,):
            return {}
        columns = {dim: dim}
    return {name: _column(store, array, of, num_rows) for name, of in columns.items()}


def _column(store: ZarrStore, array: ZarrArray, name: str, num_rows: int) -> pa.Array:
    import pyarrow as pa

    one = None if store.array is not None else store.get(name)
    if one is not None:
        if one.shape != (num_rows,):
            raise ValueError(f"{name!r} has shape {one.shape}, expected ({num_rows},)")
        return _as_column(name, _line(store, one), one.attributes)
    for attributes in (array.attributes, store.attributes):
        if name in attributes:
            values = attributes[name]
            if not isinstance(values, list) or len(values) != num_rows:
                length = len(values) if isinstance(values, list) else repr(values)
                raise ValueError(
                    f"attribute {name!r} has {length}, expected a list of {num_rows} values"
                )
            try:
                found = pa.array(values)
            except pa.ArrowException as error:
                raise ValueError(f"attribute {name!r} does not hold values: {error}") from error
            return _with_times(found)
    known = sorted({*array.attributes, *store.attributes})
    raise ValueError(
        f"there is no array or attribute {name!r}, {did_you_mean(name, [*store.names(), *known])}"
        f"arrays are {', '.join(store.names()) or 'none'}, attributes {', '.join(known) or 'none'}"
    )


def _line(store: ZarrStore, array: ZarrArray) -> NDArray[Any]:
    """Return all elements of an array with one axis."""
    chunked = array.chunked(array.name, (None,))
    numbers = range(-(-chunked.shape[0] // chunked.chunks[0]))

    def open_place(key: str) -> Any:
        return store.places.at(joined(store.root, key))

    storage = store.places.storage if is_url(store.root) else None
    parts, _ = run(
        together([read_line(chunked, number) for number in numbers]), open_place, storage
    )
    return np.concatenate(parts)


def _as_column(name: str, values: NDArray[Any], attributes: Mapping[str, Any]) -> pa.Array:
    """Return a coordinate as a column: numbers, times or text."""
    import pyarrow as pa

    values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind == "M":
        return pa.array(values.astype("M8[ns]"))
    if values.dtype.kind in "SU":
        texts = np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values
        return _with_times(pa.array(texts.tolist()))
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name!r} holds {values.dtype}, expected numbers, times or text")
    units = attributes.get("units")
    if isinstance(units, str) and " since " in units:
        times = decoded_times(values, units, str(attributes.get("calendar", "standard")))
        if times is not None:
            return pa.array(times)
        logger.warning(
            "%r stays a column of numbers: its units %r, calendar %r, are not decoded",
            *(name, units, attributes.get("calendar", "standard")),
        )
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    return pa.array(values)


def _with_times(column: pa.Array) -> pa.Array:
    """Return text as times, if each is one in ISO 8601; else as it is."""
    import pyarrow as pa

    if not pa.types.is_string(column.type) or column.null_count:
        return column
    times = [time_of_text(text) for text in column.to_pylist()]
    if None in times:
        return column
    return pa.array(times, pa.timestamp("ns"))
