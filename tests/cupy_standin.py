"""NumPy in CuPy's place, for machines without a GPU.

It shows that code asks CuPy for what it computes, and mixes no arrays of the two: functions that
are not named here are errors. What CuPy itself would give, it does not show.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.fft


class Array(np.ndarray):
    """An array that says it is on a GPU; no function of NumPy takes it."""

    __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012 -- as CuPy's arrays have it
    device = SimpleNamespace(id=0)  # type: ignore[assignment]

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise TypeError(f"numpy.{function.__name__} was called on an array of CuPy")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute, as CuPy does for NumPy's ufuncs and for operators."""
        if "out" in options:
            options["out"] = tuple(_plain(out) for out in options["out"])
        return _array(getattr(ufunc, method)(*(_plain(value) for value in inputs), **options))


def _plain(value: Any) -> Any:
    if isinstance(value, Array):
        return value.view(np.ndarray)
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("an array of NumPy was given to CuPy")
    return value


def _array(value: Any) -> Array:
    return np.asarray(value).view(Array)


def _on_gpu(function: Any) -> Any:
    return lambda *arguments: _array(function(*(_plain(value) for value in arguments)))


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``import cupy`` and ``import cupyx.scipy.fft`` give the stand-in."""
    cupy, fft = ModuleType("cupy"), ModuleType("cupyx.scipy.fft")
    found: dict[str, Any] = {
        **{name: getattr(np, name) for name in ("abs", "divide", "isfinite", "maximum")},
        "concatenate": lambda arrays: _array(np.concatenate([_plain(array) for array in arrays])),
        "ones_like": _on_gpu(np.ones_like),
        "nonzero": lambda array: tuple(map(_array, np.nonzero(_plain(array)))),
        "asarray": _array,
        "copyto": lambda to, value, where: np.copyto(
            _plain(to), _plain(value), where=_plain(where)
        ),
        "fft": SimpleNamespace(rfft2=_on_gpu(np.fft.rfft2), ifftshift=_on_gpu(np.fft.ifftshift)),
        "cuda": SimpleNamespace(
            get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None)
        ),
    }
    vars(cupy).update(found)
    vars(fft).update(rfft2=_on_gpu(scipy.fft.rfft2), irfft2=_on_gpu(scipy.fft.irfft2))
    for module in (cupy, ModuleType("cupyx"), ModuleType("cupyx.scipy"), fft):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("dali_pipelines.graph.cupy_operator.find_spec", lambda name: name)
