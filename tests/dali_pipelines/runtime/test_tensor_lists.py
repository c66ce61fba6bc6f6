"""A batch is taken out of a slab as its readers wrote it, whatever the sizes of its arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nvidia.dali.tensors import TensorListCPU

from dali_pipelines.runtime.tensor_lists import of_slab
from readers.contract import SampleSpec
from readers.worker.slab import Layout

FIRST = 1 << 20
"""Byte of the slab where the arrays begin."""


def taken(dtype: str, shapes: Sequence[tuple[int, ...]]) -> tuple[TensorListCPU, list[Any], Any]:
    """Return a batch of arrays of varying shape, these arrays, and the slab."""
    spec = SampleSpec(name="a", dtype=dtype, ndim=len(shapes[0]))
    number = SampleSpec(name="number", dtype="int64", shape=())
    layout = Layout((spec, number), len(shapes), 1, region_bytes=1 << 20, most_slots=2)
    memory = np.zeros(8 << 20, np.uint8)
    rng, start, expected = np.random.default_rng(0), FIRST, list[Any]()
    for sample, shape in enumerate(shapes):
        array = np.ndarray(shape, dtype, memory, start)
        array[...] = rng.integers(0, 100, shape)
        layout.table(memory, 1)[sample] = start if array.size else 0, *shape
        layout.over_batch(memory, 1)[0][sample] = sample
        expected.append(array.copy())
        start += -(-array.nbytes // 256) * 256 + 256 * (sample % 3)
    found, numbers = of_slab(layout, memory, 1)
    assert np.asarray(numbers.as_tensor()).tolist() == [*range(len(shapes))]
    return found, expected, memory


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize(
    "shapes",
    [
        [(5, 7)] * 4,
        [(5, 7), (7, 5), (5, 7)],
        [(64, 32)] * 3,
        [(300, 200)] * 3,
        [(0, 3)] * 3,
        [(0, 3), (2, 3), (0, 0)],
        [(2, 3), (0, 3)],
        [(11,)] * 2,
        [(1, 2, 3)],
    ],
    ids=str,
)
def test_arrays_come_as_they_were_written(dtype: str, shapes: list[tuple[int, ...]]) -> None:
    found, expected, _ = taken(dtype, shapes)
    assert len(found) == len(expected)
    for number, array in enumerate(expected):
        one = np.asarray(found[number])
        assert (one.dtype, one.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(one, array)


@pytest.mark.parametrize("shape", [(8, 8), (300, 200)])
def test_large_arrays_are_not_copied(shape: tuple[int, int]) -> None:
    found, expected, memory = taken("float32", [shape] * 3)
    memory[FIRST:] = 0
    copied = np.asarray(found[0]).any()
    assert copied == (math.prod(shape) < 100)
    assert expected[0].any()
