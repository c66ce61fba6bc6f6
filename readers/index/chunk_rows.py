"""Rows of chunked arrays of any format: variables, axes and columns."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from readers.chunks.array import NOTE, ROW, ChunkedArray
from readers.chunks.values import packing_of, scaled, viewed
from readers.index.arrow import pa
from readers.index.cf_times import decoded_times
from readers.index.image_axes import check_image_axes, check_orientation
from readers.index.times import time_of_text
from readers.messages import did_you_mean
from readers.values import is_integer

logger = logging.getLogger(__name__)

Positions = int | slice | Sequence[int] | NDArray[Any]
"""Position on an axis, or several, as of `isel`."""


class Variable(Protocol):
    """A variable of a file or store."""

    @property
    def shown(self) -> str:
        """Name for messages."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions on each axis."""

    @property
    def dimensions(self) -> tuple[str, ...] | None:
        """Names of the axes, or None."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes of the variable."""

    def chunked(self, name: str, select: tuple[int | None, ...]) -> ChunkedArray:
        """Return the array with a name and the selection of its axes."""


V = TypeVar("V", bound=Variable)


class Store(Protocol[V]):
    """A file or store of variables."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes of the file or store."""

    @property
    def array(self) -> V | None:
        """The only variable, if the store is a single array."""

    @property
    def title(self) -> str:
        """Name of the only variable."""

    def names(self) -> list[str]:
        """Return the names of the variables."""

    def get(self, name: str) -> V | None:
        """Return a variable, or None."""

    def coordinate(self, variable: V, dim: str) -> V | None:
        """Return the variable with the coordinates of an axis, or None."""

    def line(self, variable: V) -> NDArray[Any]:
        """Return the elements of a variable with one axis, without missing ones at its end."""


def check_arguments(variables: Any, dim: Any, isel: Any, columns: Any) -> None:
    """Raise ValueError for invalid arguments."""
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
        not isinstance(isel, Mapping) or not all(map(_is_selection, isel.values())) or dim in isel
    ):
        raise ValueError(
            "isel must map names of axes, except dim, to a position, or to several as a list or "
            f"slice, such as {{'level': 3}} or {{'level': [0, 3]}}, got {isel!r}"
        )
    if columns is not None and (
        not isinstance(columns, Mapping)
        or not all(isinstance(name, str) and name for pair in columns.items() for name in pair)
        or not {"path", "plane", NOTE}.isdisjoint(columns)
    ):
        raise ValueError(
            "columns must map names of columns to arrays or attributes, such as {'time': 'T_OBS'}, "
            f"without path, plane and {NOTE}, got {columns!r}"
        )


def _is_selection(value: Any) -> bool:
    if is_integer(value):
        return True
    if isinstance(value, slice):
        bounds = (value.start, value.stop, value.step)
        return value.step != 0 and all(one is None or is_integer(one) for one in bounds)
    is_line = isinstance(value, np.ndarray) and value.ndim == 1
    is_line |= isinstance(value, Sequence) and not isinstance(value, str)
    return is_line and len(value) > 0 and all(map(is_integer, value))


def chosen(
    store: Store[V], variables: Sequence[str] | None, dim: str | None, isel: Mapping[str, Positions]
) -> dict[str, V]:
    """Return the arrays to read, by name."""
    if store.array is not None:
        name = store.title
        if variables is not None and tuple(variables) != (name,):
            raise ValueError(
                f"the root is an array, but variables are {tuple(variables)}: leave them out, or "
                "pass the group of the array as root"
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
    arrays = {name: one for name in store.names() if (one := store.get(name)) is not None}
    _check_axes(arrays, isel)
    fitting: dict[str, V] = {}
    for name, one in arrays.items():
        try:
            if all(_selections(one, dim, isel)):
                fitting[name] = one
        except ValueError:
            continue
    if not fitting and arrays and isel:  # say why the largest array does not fit
        list(_selections(max(arrays.values(), key=lambda one: len(one.shape)), dim, isel))
    if not fitting:
        shown = ", ".join(
            f"{name} ({', '.join(dimension_names(one, dim))})" for name, one in arrays.items()
        )
        beside = "" if dim is None else f" beside {dim!r}"
        raise ValueError(
            f"no array has two axes{beside}, {'it has ' + shown if shown else 'none is found'}: "
            "name the axis of the rows by dim= (--dim), positions on other axes by isel= (--isel), "
            "and if the store cannot be listed, the arrays by variables="
        )
    return fitting


def _channels(
    store: Store[V],
    variables: Mapping[str, V],
    dim: str | None,
    isel: Mapping[str, Positions],
    *,
    may_be_constant: bool,
) -> list[ChunkedArray]:
    """Return a channel for each variable, or for each of its positions if `isel` has several.

    Such a channel is called after the coordinate of its position, as ``z_500``, or after the number
    of the position, if the axis has no coordinates or some are equal or missing.

    Raises
    ------
    ValueError
        If a variable cannot be read, if it does not have these axes and positions, or if two
        channels have one name.
    """
    found: dict[str, ChunkedArray] = {}
    for name, variable in variables.items():
        array: ChunkedArray | None = None
        labels: dict[str, list[str]] = {}
        for several, select in _selections(variable, dim, isel, may_be_constant=may_be_constant):
            labels = labels or {axis: _labels(store, variable, axis, dim) for axis in several}
            channel = "_".join([name, *(labels[axis][at] for axis, at in several.items())])
            if channel in found:
                raise ValueError(f"two channels are called {channel!r}: make an Index of each")
            array = array or variable.chunked(channel, select)
            found[channel] = replace(array, name=channel, select=select)
    return list(found.values())


def _selections(
    array: Variable,
    dim: str | None,
    isel: Mapping[str, Positions],
    *,
    may_be_constant: bool = False,
) -> Iterator[tuple[dict[str, int], tuple[int | None, ...]]]:
    """Yield the selection of each channel, after its positions on axes with several in `isel`."""
    lengths = dict(zip(dimension_names(array, dim), array.shape, strict=True))
    several = {
        axis: _positions(array.shown, axis, lengths[axis], given)
        for axis, given in isel.items()
        if axis in lengths and not is_integer(given)
    }
    for chosen in itertools.product(*several.values()):
        at = dict(zip(several, chosen, strict=True))
        select = select_axes(array, dim, {**isel, **at}, may_be_constant=may_be_constant)
        yield at, select


def _positions(shown: str, axis: str, length: int, given: Any) -> list[int]:
    """Return several positions on an axis, counted from its first position.

    ValueError if there are none, or one twice; `select_axes` refuses those outside.
    """
    found = list(range(length)[given] if isinstance(given, slice) else map(int, given))
    found = [at + length if -length <= at < 0 else at for at in found]
    if not found:
        raise ValueError(f"isel: {given} has no position on {axis!r} of {shown} ({length})")
    if twice := [at for at in found if found.count(at) > 1]:
        raise ValueError(f"isel: position {twice[0]} on {axis!r} is there twice, in {given}")
    return found


def _labels(store: Store[V], variable: V, axis: str, dim: str | None) -> list[str]:
    """Return the name of each position on an axis."""
    length = variable.shape[dimension_names(variable, dim).index(axis)]
    numbers = list(map(str, range(length)))
    one = None if store.array is not None else store.coordinate(variable, axis)
    if one is None or one.shape != (length,):
        return numbers
    column = column_of(store, axis, one)
    found = [str(value).removesuffix(".0") for value in column.to_numpy(zero_copy_only=False)]
    return numbers if column.null_count or len(set(found)) < length else found


def select_axes(
    array: Variable, dim: str | None, isel: Mapping[str, Any], *, may_be_constant: bool = False
) -> tuple[int | None, ...]:
    """Return the selection on each axis, see `ChunkedArray.select`.

    With `may_be_constant` an array may lack the axis of the rows: all rows get the same values.

    Raises
    ------
    ValueError
        If the array has no such axis or position, or if more or fewer than two axes are left.
    """
    names = dimension_names(array, dim)
    shape = dict(zip(names, array.shape, strict=True))
    has = f"{array.shown} has the axes " + ", ".join(f"{n} ({k})" for n, k in shape.items())
    if len(shape) < len(names):
        raise ValueError(f"{has}: expected axes with different names")
    for name, position in isel.items():
        if name in shape and not -shape[name] <= position < shape[name]:
            raise ValueError(
                f"{has}: there is no position {position} on {name!r}; isel takes positions from 0 "
                f"to {shape[name] - 1}, not coordinates"
            )
    is_constant = may_be_constant and len(shape.keys() - isel.keys()) == 2
    if dim is not None and dim not in shape and not is_constant:
        raise ValueError(
            f"{has}, expected {dim!r} among them: name the axis of the rows by dim= (--dim)"
        )
    found = tuple(
        ROW if name == dim else isel[name] % shape[name] if name in isel else None for name in names
    )
    if found.count(None) != 2:
        beside = "" if dim is None else f" beside {dim!r}"
        others = [name for name in names if name != dim and name not in isel][:-2]
        how = f": choose a position on {' and '.join(others)}" if others else ""
        how += f", by isel={{{others[0]!r}: 0}} (--isel {others[0]}=0)" if others else ""
        if found.count(None) < 2 and isel:
            how = ": isel takes positions on other axes; crop= takes parts of images"
        raise ValueError(f"{has}; expected two{beside} for the rows and columns of images{how}")
    if math.prod(array.shape) == 0:
        raise ValueError(f"{has}: it holds no values")
    return found


def dimension_names(array: Variable, dim: str | None) -> tuple[str, ...]:
    """Return the names of the axes. If they have none, the first is `dim`, the axis of the rows."""
    if array.dimensions is not None:
        return array.dimensions
    names = tuple(f"dim_{axis}" for axis in range(len(array.shape)))
    return (dim, *names[1:]) if dim is not None and names else names


def chunked_arrays(
    store: Store[V],
    found: Mapping[str, V],
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, Positions],
) -> list[ChunkedArray]:
    """Check the axes of arrays, and return their channels."""
    _check_axes(found, isel)
    arrays = _channels(store, found, dim, isel, may_be_constant=variables is not None)
    check_orientation(arrays)
    return arrays


def _check_axes(arrays: Mapping[str, Variable], isel: Mapping[str, Positions]) -> None:
    """Raise ValueError for a name of `isel` that no array has."""
    known = {name for array in arrays.values() for name in dimension_names(array, None)}
    if unknown := [name for name in isel if name not in known]:
        raise ValueError(
            f"isel: there is no axis {unknown[0]!r}, the arrays have {', '.join(sorted(known))}"
        )


def check_lengths(arrays: Sequence[ChunkedArray], dim: str | None) -> int:
    """Return the number of rows. Variables without the axis of the rows are the same in each row.

    ValueError if variables differ in the number of rows or in size, or all lack the axis.
    """
    lengths = {one.name: one.num_planes for one in arrays if one.num_planes is not None}
    if dim is not None and not lengths:
        raise ValueError(
            f"none of the variables {', '.join(one.name for one in arrays)} has the axis {dim!r} "
            "of the rows: add one, or name another axis by dim= (--dim)"
        )
    sizes = {one.name: one.image_size for one in arrays}
    for found in (lengths, sizes):
        if len(set(found.values())) > 1:
            what = f"length of {dim!r}" if found is lengths else "height and width"
            shown = ", ".join(f"{name!r} {value}" for name, value in found.items())
            raise ValueError(
                f"the variables of an Index must have the same {what}, got {shown}: make an Index "
                "of each"
            )
    return next(iter(lengths.values()), 1)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several files or stores, whose columns may differ.

    Raises
    ------
    ValueError
        If a variable has its image axes in another order in another file.
    """
    found = pa.concat_tables(tables, promote_options="default").combine_chunks()
    check_image_axes(found)
    return found


def with_rows(arrays: Mapping[str, V], dim: str | None) -> V:
    """Return the first array with the axis of the rows, or else the first array."""
    return next(
        (one for one in arrays.values() if dim in dimension_names(one, dim)),
        next(iter(arrays.values())),
    )


def columns_of(
    store: Store[V],
    array: V,
    dim: str,
    columns: Mapping[str, str] | None,
    num_rows: int,
) -> dict[str, pa.Array]:
    """Return columns with a value for each row: the named ones, or the coordinate of the axis."""
    if columns is None:
        one = None if store.array is not None else store.coordinate(array, dim)
        if one is None:
            return {}
        if one.shape != (num_rows,):
            logger.warning(
                "there is no column %r: the coordinate has shape %s, but there are %d rows; choose "
                "another coordinate by columns= (--columns)",
                *(dim, one.shape, num_rows),
            )
            return {}
        return {dim: column_of(store, dim, one)}
    return {name: _column(store, array, of, num_rows) for name, of in columns.items()}


def _column(store: Store[V], array: Variable, name: str, num_rows: int) -> pa.Array:
    one = None if store.array is not None else store.get(name)
    if one is not None:
        if one.shape != (num_rows,):
            raise ValueError(f"{name!r} has shape {one.shape}, expected ({num_rows},)")
        return column_of(store, name, one)
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
            return with_times(found)
    known = sorted({*array.attributes, *store.attributes})
    raise ValueError(
        f"there is no array or attribute {name!r}, {did_you_mean(name, [*store.names(), *known])}"
        f"arrays are {', '.join(store.names()) or 'none'}, attributes {', '.join(known) or 'none'}"
    )


def column_of(store: Store[V], name: str, variable: V) -> pa.Array:
    """Return a variable with at most one axis as a column. Values that are not stored are null.

    netCDF4-python and xarray show fill values instead, and mask `_FillValue`.
    """
    found = as_column(name, store.line(variable), variable.attributes)
    missing = math.prod(variable.shape) - len(found)
    return pa.concat_arrays([found, pa.nulls(missing, found.type)]) if missing else found


def as_column(name: str, values: NDArray[Any], attributes: Mapping[str, Any]) -> pa.Array:
    """Return a coordinate as a column: numbers, times or text."""
    values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind == "M":
        return pa.array(values.astype("M8[ns]"))
    if values.dtype.kind in "SU":
        texts = np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values
        return with_times(pa.array(texts.tolist()))
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name!r} holds {values.dtype}, expected numbers, times or text")
    values, missing = _unpacked(name, values, attributes)
    units = attributes.get("units")
    if isinstance(units, str) and " since " in units:
        times = decoded_times(values, units, str(attributes.get("calendar", "standard")))
        if times is not None:
            return pa.array(times, mask=missing)
        logger.warning(
            "%r stays a column of numbers, because units %r of calendar %r cannot be decoded: for "
            "`group` and splits by time, replace the numbers by times with `with_column`",
            *(name, units, attributes.get("calendar", "standard")),
        )
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    return pa.array(values, mask=missing)


def _unpacked(
    name: str, values: NDArray[Any], attributes: Mapping[str, Any]
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return the values of stored numbers, and a mask of missing values, or None."""
    is_number = values.dtype.kind in "iuf"
    packing = packing_of(values.dtype, attributes, repr(name)) if is_number else None
    if packing is None:
        return values, None
    stored = viewed(values, packing)
    missing = np.isin(stored, packing["fills"])
    is_scaled = packing["scale"] is not None or packing["offset"] is not None
    values = np.where(missing, 0, scaled(values, packing) if is_scaled else stored)
    return values, missing if missing.any() else None


def with_times(column: pa.Array) -> pa.Array:
    """Return text as times if each is a time in ISO 8601; otherwise unchanged."""
    if not pa.types.is_string(column.type) or column.null_count:
        return column
    times = [time_of_text(text) for text in column.to_pylist()]
    if None in times:
        return column
    return pa.array(times, pa.timestamp("ns"))
