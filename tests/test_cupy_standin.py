"""The stand-in for CuPy notes what waits for a GPU, and only that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy_standin
import numpy as np
import pytest


@pytest.fixture
def array(monkeypatch: pytest.MonkeyPatch) -> Any:
    cupy_standin.install(monkeypatch)
    return np.arange(6.0).reshape(2, 3).view(cupy_standin.Array)


def _set_array(array: Any) -> None:
    array[array > 1] = array[0, :1]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda array: array.item(3), "item"),
        (lambda array: array.tolist(), "tolist"),
        (lambda array: array.get(), "get"),
        (lambda array: array.nonzero(), "nonzero"),
        (lambda array: bool((array > 1).any()), "__bool__"),
        (lambda array: float(array[0, 1]), "__float__"),
        (lambda array: int(array.max()), "__int__"),
        (lambda array: range(3)[array.astype(int)[0, 1]], "__index__"),
        (lambda array: array[array > 1], "mask"),
        (_set_array, "mask"),
    ],
)
def test_what_waits_is_noted(array: Any, call: Callable[[Any], Any], expected: str) -> None:
    call(array)
    assert cupy_standin.waits == [expected]


def test_functions_wait_too(array: Any) -> None:
    import cupy  # the stand-in

    cupy.nonzero(array)
    cupy.cuda.get_current_stream().synchronize()
    assert cupy_standin.waits == ["nonzero", "synchronize"]


def test_what_does_not_wait(array: Any) -> None:
    import cupy  # the stand-in

    mask = ~cupy.isfinite(array * 2 + 1)
    cupy.copyto(array, array[0, 0] + mask.any(), where=mask)
    array[mask] = 3
    array[0] = array[1]
    assert array.sum().shape == ()
    assert isinstance(array.real[0, 0], cupy_standin.Array)
    assert cupy_standin.waits == []


def test_arrays_of_two_gpus_do_not_mix(array: Any) -> None:
    with cupy_standin.Device(1):
        other: Any = np.zeros(3).view(cupy_standin.Array)
        assert (other + 1).device.id == 1
        with pytest.raises(TypeError, match="an array of GPU 0 was used on GPU 1"):
            other + array
    with pytest.raises(TypeError, match="an array of GPU 1 was used on GPU 0"):
        other.sum()
