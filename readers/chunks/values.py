"""Values of stored elements by the conventions of CF, bit for bit as xarray decodes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.chunks.array import Packing

KINDS = "biuf"
"""Kinds of NumPy's types that hold numbers or bools."""


def check_dtype(owner: str, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if elements of this type are not numbers that float32 can hold."""
    if dtype.kind not in KINDS or dtype.itemsize > 8:
        raise ValueError(
            f"{owner} holds {dtype}, expected bools, integers, or floats of up to 64 bits"
        )


def packing_of(
    dtype: np.dtype[Any], attributes: Mapping[str, Any], owner: str = "a variable"
) -> Packing | None:
    """Return how stored elements become values, for JSON; None if they are the values.

    Parameters
    ----------
    dtype : dtype
        Type of the stored elements.
    attributes : mapping of str to Any
        Attributes of the variable: ``scale_factor``, ``add_offset``, ``_FillValue``,
        ``missing_value`` and ``_Unsigned`` are used, numbers of Python or NumPy.
    owner : str
        Name of the variable, for messages.

    Raises
    ------
    ValueError
        If one of them is not a number.
    """
    scale, offset = (_number(attributes, name, owner) for name in ("scale_factor", "add_offset"))
    given = [
        value
        for name in ("_FillValue", "missing_value")
        for value in np.ravel(attributes.get(name, [])).tolist()
    ]
    fills = [value for value in given if value == value]  # NaN in place of NaN changes nothing
    # xarray keeps the type of floats whose only fill value is NaN.
    is_kept = dtype.kind == "f" and bool(given) and not fills
    calculated = dtype.name if is_kept else _float_dtype(dtype, scale, offset)
    if not all(isinstance(value, int | float) for value in fills):
        raise ValueError(f"{owner}: _FillValue and missing_value must be numbers, got {fills}")
    if dtype.kind == "f":  # a number beyond this type is not its infinity
        most = float(np.finfo(dtype).max)
        fills = [value for value in fills if abs(value) <= most or math.isinf(value)]
    view = {("i", "true"): "u", ("u", "false"): "i"}.get(
        (dtype.kind, str(attributes.get("_Unsigned", ""))), ""
    )
    if view:
        whole = 1 << 8 * dtype.itemsize
        least = -whole // 2 if view == "i" else 0
        fills = [(value - least) % whole + least for value in fills]
    if scale is None and offset is None and not fills and not view:
        return None
    return {
        "scale": _rounded(scale, calculated),
        "offset": _rounded(offset, calculated),
        "fills": sorted(set(fills)),
        "view": view,
        "dtype": calculated,
    }


def _rounded(number: Any, dtype: str) -> float | None:
    """Return a number as NumPy calculates with it: numbers of Python are rounded to the type."""
    if number is None:
        return None
    return float(number if isinstance(number, np.number) else np.dtype(dtype).type(number))


def _number(attributes: Mapping[str, Any], name: str, owner: str) -> Any:
    """Return a number of Python or NumPy; None if there is no such attribute."""
    if (given := attributes.get(name)) is None:
        return None
    if isinstance(given, np.ndarray | list | tuple) and np.size(given) == 1:
        given = np.asarray(given).item()
    if not isinstance(given, int | float | np.number) or not math.isfinite(given):
        raise ValueError(f"{owner}: {name} must be a number, got {given!r}")
    return given


def _float_dtype(dtype: np.dtype[Any], scale: Any, offset: Any) -> str:
    """Return the type in which xarray calculates the values."""
    types = [np.dtype(type(one)) for one in (scale, offset) if one is not None]
    if offset is not None:
        is_float32 = types == [np.float32, np.float32]
        is_int32 = dtype.kind in "iu" and dtype.itemsize == 4
        return "float32" if is_float32 and not is_int32 else "float64"
    if types:
        return types[0].name if types[0] in (np.float16, np.float32) else "float64"
    is_short = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return "float32" if is_short else "float64"


def put_values(stored: NDArray[Any], packing: Packing | None, out: NDArray[Any]) -> None:
    """Write the values of stored elements to an array of float32, any shape."""
    with np.errstate(over="ignore"):  # beyond float32 they are infinite
        out[...] = stored if packing is None else scaled(stored, packing)


def scaled(stored: NDArray[Any], packing: Packing) -> NDArray[Any]:
    """Return the values of stored elements as floats, NaN for fill values, any shape."""
    stored = viewed(stored, packing)
    values: NDArray[Any] = stored.astype(packing["dtype"])
    for fill in packing["fills"]:
        values[stored == fill] = np.nan
    if (scale := packing["scale"]) is not None:
        values *= _exact(scale, values.dtype)
    if (offset := packing["offset"]) is not None:
        values += _exact(offset, values.dtype)
    return values


def _exact(number: float, dtype: np.dtype[Any]) -> float:
    """Return a number as float64 unless it is exact in `dtype`, to which NumPy would round it."""
    return number if float(dtype.type(number)) == number else np.float64(number)


def viewed(stored: NDArray[Any], packing: Packing | None) -> NDArray[Any]:
    """Return integers as signed or unsigned integers with the same bits, as the packing says."""
    return stored.view(viewed_dtype(stored.dtype, packing))


def viewed_dtype(dtype: np.dtype[Any], packing: Packing | None) -> np.dtype[Any]:
    """Return the type of stored elements, signed or unsigned as the attribute _Unsigned says."""
    view = packing["view"] if packing else ""
    return np.dtype(dtype.str.replace(dtype.kind, view)) if view else dtype
