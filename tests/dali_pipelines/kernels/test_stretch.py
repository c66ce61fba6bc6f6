"""The kernels against NumPy in float64, and against what `Stretch` does to an array."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from stretches import stretches

from dali_pipelines.kernels.stretch import (
    asinh32,
    constants,
    log1p32,
    signed_log1p32,
    stretch_line,
    stretched,
)
from dali_pipelines.kernels.stretch_parameters import NUM_PARAMETERS
from dali_pipelines.stretch import Stretch

SMALLEST = float(np.finfo(np.float32).smallest_normal)
STEP = 1009
"""Every which float32 is tried; every seventh was, by hand."""


@njit
def fill(out: Any, values: Any, curve: int) -> None:
    for i in range(values.size):
        if curve == 0:
            out[i] = log1p32(values[i])
        elif curve == 1:
            out[i] = signed_log1p32(values[i])
        else:
            out[i] = asinh32(values[i])


@njit
def fill_stretched(out: Any, values: Any, parameters: Any) -> None:
    fields = constants(parameters)
    for i in range(values.size):
        out[i] = stretched(values[i], fields)


def signed_log1p(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.log1p(np.abs(x))


def floats(first: float, last: float) -> np.ndarray:
    """Return every STEPth float32 of a range of positive numbers."""
    ends = np.array([first, last], np.float32).view(np.int32)
    return np.arange(ends[0], ends[1], STEP, dtype=np.int64).astype(np.int32).view(np.float32)


@pytest.mark.parametrize(
    ("curve", "truth", "values"),
    [
        (0, np.log1p, floats(SMALLEST, math.inf)),
        (0, np.log1p, -floats(SMALLEST, 1)),
        (1, signed_log1p, -floats(SMALLEST, math.inf)),
        (2, np.arcsinh, floats(SMALLEST, math.inf)),
        (2, np.arcsinh, -floats(SMALLEST, math.inf)),
    ],
)
def test_curves_are_within_a_bit_or_so(
    curve: int, truth: Callable[..., Any], values: np.ndarray
) -> None:
    found = np.empty_like(values)
    fill(found, values, curve)
    np.testing.assert_allclose(found, truth(values.astype(np.float64)), rtol=2e-7, atol=0)


@pytest.mark.parametrize("curve", range(3))
def test_ends_of_the_number_line(curve: int) -> None:
    values = np.array([0, math.nan, math.inf, 1e-45], np.float32)
    found = np.empty_like(values)
    fill(found, values, curve)
    np.testing.assert_array_equal(found, values)


def test_minus_infinity_has_no_logarithm_but_a_sign() -> None:
    values = np.array([-math.inf, -3e38], np.float32)
    found = np.empty_like(values)
    for curve in (1, 2):
        fill(found, values, curve)
        assert found[0] == -math.inf
        assert -90 < found[1] < -88


@given(stretches(), st.lists(st.floats(-1e5, 1e5, width=32), min_size=1, max_size=40))
def test_pixels_are_stretched_as_arrays_are(stretch: Stretch, numbers: list[float]) -> None:
    values = np.array([*numbers, math.nan, 0], np.float32)
    expected = stretch(values.astype(np.float64))
    # Before the mean is subtracted, which cancels digits.
    size = np.abs(expected) + abs(stretch.mean) / stretch.std
    line, found = values.copy(), np.empty_like(values)
    stretch_line(line, stretch.parameters())
    fill_stretched(found, values, stretch.parameters().astype(np.float32))
    for result in (line, found):
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        assert (np.isnan(expected) | (np.abs(result - expected) <= 1e-6 * size + 1e-37)).all()


def test_one_pixel_with_an_array_of_parameters() -> None:
    parameters = Stretch(kind="sqrt", clip=(0, 4), unit=10).parameters()
    assert parameters.shape == (NUM_PARAMETERS,)
    assert stretched(np.float32(22.5), parameters) == 1.5
    assert stretched(np.float32(-3), parameters) == 0
    assert stretched(np.float32(1e6), parameters) == 2


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names instructions of x86-64")
def test_lines_become_vectors() -> None:
    """Ten times as fast as one by one, of which a test by the clock could not be sure."""
    fresh = njit(stretch_line.py_func)  # what comes from the cache does not show its code
    fresh(np.zeros(8, np.float32), Stretch().parameters())
    (assembly,) = fresh.inspect_asm().values()
    for instruction in ("sqrtps", "divps", "cvtdq2ps"):  # of sqrt, asinh, and all logarithms
        assert instruction in assembly
