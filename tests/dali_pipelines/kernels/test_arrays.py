"""Arrays of kernels against NumPy's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from dali_pipelines.kernels.arrays import array_at


@njit
def of_three_axes(address, shape, index):  # type: ignore[no-untyped-def]
    array = array_at(address, shape, np.int16)
    return array.size, array.strides, array[index]


@njit
def of_one_axis(address, size, index):  # type: ignore[no-untyped-def]
    array = array_at(address, size, np.float64)
    return array.size, array.strides, array[index]


@given(st.tuples(*[st.integers(1, 5)] * 3), st.data())
def test_an_address(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    index = tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)
    found = of_three_axes(array.ctypes.data, shape, index)
    assert found == (array.size, array.strides, array[index])
    line = array.astype(np.float64).ravel()
    found = of_one_axis(line.ctypes.data, np.int32(line.size), line.size - 1)
    assert found == (line.size, line.strides, line[-1])
