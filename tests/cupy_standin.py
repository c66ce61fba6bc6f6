"""NumPy in CuPy's place, for machines without a GPU.

It shows that code asks CuPy for what it computes, and mixes no arrays of the two: functions that
are not named here are errors. So is mixing arrays of several GPUs, or leaving out one's own. It
notes what would wait for the GPU. What CuPy itself would give, it does not show.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.fft


class _Thread(threading.local):
    """What CuPy keeps for each thread."""

    def __init__(self) -> None:
        self.devices = [0]
        self.streams: defaultdict[int, list[Stream]] = defaultdict(lambda: [Stream(0)])
        """By device."""


class Device:
    """A GPU, which may be the current one."""

    def __init__(self, number: int | None = None) -> None:
        self.id = _thread.devices[-1] if number is None else number

    def __enter__(self) -> None:
        _thread.devices.append(self.id)

    def __exit__(self, *_: object) -> None:
        _thread.devices.pop()


class Stream:
    """A stream, which may be the current one of the current device."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def synchronize(self) -> None:
        waits.append("synchronize")

    def __enter__(self) -> None:
        _thread.streams[Device().id].append(self)

    def __exit__(self, *_: object) -> None:
        _thread.streams[Device().id].pop()


def current_stream() -> Stream:
    """Return the current stream of the current device."""
    return _thread.streams[Device().id][-1]


_thread = _Thread()

waits: list[str] = []
"""Calls so far for which CuPy would wait for the GPU; `install` empties it."""


def _waiting(name: str) -> Any:
    """Make a method of `Array` that is ndarray's, and noted in `waits`."""

    def method(self: Any, *arguments: Any) -> Any:
        waits.append(name)
        return getattr(_plain(self), name)(*arguments)

    return method


class Array(np.ndarray):
    """An array that says it is on a GPU; no function of NumPy takes it."""

    __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012 -- as CuPy's arrays have it

    def __array_finalize__(self, parent: Any) -> None:
        self._gpu = getattr(parent, "_gpu", None) or Device()

    @property
    def device(self) -> Any:
        return self._gpu

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise TypeError(f"numpy.{function.__name__} was called on an array of CuPy")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute, as CuPy does for NumPy's ufuncs and for operators."""
        if "out" in options:
            options["out"] = tuple(_plain(out) for out in options["out"])
        return _array(getattr(ufunc, method)(*(_plain(value) for value in inputs), **options))

    item, tolist, __bool__ = map(_waiting, ("item", "tolist", "__bool__"))
    __float__, __int__, __index__ = map(_waiting, ("__float__", "__int__", "__index__"))

    def get(self) -> np.ndarray:
        waits.append("get")
        return np.array(_plain(self))

    def nonzero(self) -> Any:
        waits.append("nonzero")
        return tuple(map(_array, _plain(self).nonzero()))

    def __getitem__(self, key: Any) -> Any:
        """Return an array, of a single element too; that of a mask has a size to wait for."""
        waits.extend(["mask"] * _has_mask(key))
        return _array(_plain(self)[_plain_key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        waits.extend(["mask"] * (_has_mask(key) and isinstance(value, Array)))
        _plain(self)[_plain_key(key)] = _plain(value)


def _has_mask(key: Any) -> bool:
    keys = key if isinstance(key, tuple) else (key,)
    return any(isinstance(one, Array) and one.dtype == bool for one in keys)


def _plain_key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_plain_key, key))
    return key if type(key) is np.ndarray else _plain(key)  # CuPy takes those for indices


def _plain(value: Any) -> Any:
    if isinstance(value, Array):
        if value.device.id != Device().id:
            raise TypeError(f"an array of GPU {value.device.id} was used on GPU {Device().id}")
        return value.view(np.ndarray)
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("an array of NumPy was given to CuPy")
    return value


def _array(value: Any) -> Array:
    return np.asarray(value).view(Array)


def _on_gpu(function: Any) -> Any:
    return lambda *arguments: _array(function(*(_plain(value) for value in arguments)))


@dataclass(frozen=True)
class Plan:
    """A plan of an FFT, which is right for an array of one kind."""

    dtype: Any
    shape: tuple[int, ...]
    """Of the real array."""
    kind: str


plans: list[Plan] = []
"""Those that were made; `install` empties it."""


def _get_fft_plan(array: Any, shape: Any = None, *, value_type: str) -> Plan:
    plans.append(Plan(array.dtype, shape or array.shape, value_type))
    return plans[-1]


def _rfft2(array: Any, *, plan: Plan) -> Array:
    assert plan == Plan(array.dtype, array.shape, "R2C")
    return _array(scipy.fft.rfft2(_plain(array)))


def _irfft2(array: Any, shape: Any, *, overwrite_x: bool, plan: Plan) -> Array:
    assert plan == Plan(array.dtype, shape, "C2R")
    found = _array(scipy.fft.irfft2(_plain(array), shape))
    if overwrite_x:
        array.fill(np.nan)
    return found


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``import cupy`` and ``import cupyx.scipy.fft`` give the stand-in."""
    waits.clear()
    plans.clear()
    cupy, fft = ModuleType("cupy"), ModuleType("cupyx.scipy.fft")
    found: dict[str, Any] = {
        **{name: getattr(np, name) for name in ("abs", "divide", "isfinite", "maximum")},
        **{name: _on_gpu(getattr(np, name)) for name in ("clip", "floor", "where")},
        "empty": lambda shape, dtype: _array(np.empty(shape, dtype)),
        "arange": lambda start, stop, dtype: _array(np.arange(start, stop, dtype=dtype)),
        "nonzero": Array.nonzero,
        "asarray": _array,
        "from_dlpack": lambda tensor: _array(np.from_dlpack(tensor)),
        "full_like": lambda array, value: _array(np.full_like(_plain(array), value)),
        "copyto": lambda to, value, where: np.copyto(
            _plain(to), _plain(value), where=_plain(where)
        ),
        "fft": SimpleNamespace(rfft2=_on_gpu(np.fft.rfft2), ifftshift=_on_gpu(np.fft.ifftshift)),
        "cuda": SimpleNamespace(get_current_stream=current_stream, Device=Device),
    }
    vars(cupy).update(found)
    vars(fft).update(get_fft_plan=_get_fft_plan, rfft2=_rfft2, irfft2=_irfft2)
    for module in (cupy, ModuleType("cupyx"), ModuleType("cupyx.scipy"), fft):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("dali_pipelines.graph.gpu.cupy_operator.find_spec", lambda name: name)
