"""Arrays of kernels against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numba.core.errors import TypingError

from dali_pipelines.kernels.arrays import array_at, reshaped


@njit
def of_three_axes(address, shape, index):  # type: ignore[no-untyped-def]
    array = array_at(address, shape, np.int16)
    return array.size, array.strides, array[index]


@njit
def of_one_axis(address, size, index):  # type: ignore[no-untyped-def]
    array = array_at(address, size, np.float64)
    return array.size, array.strides, array[index]


@njit
def turned(array, shape):  # type: ignore[no-untyped-def]
    return reshaped(array, shape)


@njit
def made_and_flattened(rows, columns):  # type: ignore[no-untyped-def]
    flat = reshaped(np.full((rows, columns), 7.0), rows * columns)
    np.full((rows, columns), 8.0)  # would take the memory of the array that is not used any more
    return flat


@given(st.tuples(*[st.integers(1, 5)] * 3), st.data())
def test_an_address(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    index = tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)
    found = of_three_axes(array.ctypes.data, shape, index)
    assert found == (array.size, array.strides, array[index])
    line = array.astype(np.float64).ravel()
    found = of_one_axis(line.ctypes.data, np.int32(line.size), line.size - 1)
    assert found == (line.size, line.strides, line[-1])


@given(st.integers(1, 5), st.integers(1, 5))
def test_another_shape(rows: int, columns: int) -> None:
    array = np.arange(rows * columns, dtype=np.float32).reshape(1, rows, columns)
    view = turned(array, (rows, columns))
    np.testing.assert_array_equal(view, array[0])
    assert np.shares_memory(view, array)
    np.testing.assert_array_equal(turned(array, array.size), array.ravel())


def test_the_memory_of_what_is_reshaped_is_kept() -> None:
    np.testing.assert_array_equal(made_and_flattened(30, 40), np.full(1200, 7.0))


def test_only_contiguous_arrays_are_reshaped() -> None:
    with pytest.raises(TypingError, match="reshaped"):
        turned(np.zeros((4, 6))[:, ::2], (3, 4))
