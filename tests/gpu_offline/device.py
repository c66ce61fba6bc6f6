"""The package's GPU operators without a GPU: kernels are emulated, and NumPy stands in for CuPy."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numba import cuda, typeof
from numpy.typing import NDArray

from dali_pipelines.graph.gpu import operators as operators_gpu
from dali_pipelines.graph.gpu.operators import ImageDecoder, Warp
from gpu_offline.compiler import ARCHS, build
from gpu_offline.emulator import (
    ANY_WRITER,
    CC,
    ONE_WRITER,
    READ_ONLY,
    Buffer,
    Program,
    allocated,
    unwritten,
)
from gpu_offline.kernels import KERNELS, Kernel

Finish = tuple[tuple[float, float], ...]
_WORD = 8
_random_numbers = cache(operators_gpu._random_numbers.__wrapped__)
"""The package's, with a cache apart from that of a real GPU."""


class _Memory:
    """The arrays of a GPU whose addresses its kernels may have."""

    def __init__(self) -> None:
        self._owners: dict[Buffer, weakref.ref[NDArray[Any]]] = {}

    @property
    def buffers(self) -> list[Buffer]:
        """What kernels may access; not that of arrays that nobody holds any more."""
        held = {buffer: owner for buffer, owner in self._owners.items() if owner() is not None}
        self._owners = held
        return list(held)

    def address(self, array: NDArray[Any]) -> int:
        """Return the address of an array, and let kernels use it."""
        at, size, writers = array.ctypes.data, array.nbytes, READ_ONLY
        if array.flags.writeable:
            writers = getattr(array, "writers", ONE_WRITER)
        before = at % _WORD  # kernels may load the word in which an input begins
        if writers == READ_ONLY:
            self._owners[Buffer(at - before, size + before, writers)] = _owner(array)
        else:
            self._owners[Buffer(at, size, writers)] = _owner(array)
        return at


def _owner(array: NDArray[Any]) -> weakref.ref[NDArray[Any]]:
    """Refer to the array that owns the memory, without keeping it."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return weakref.ref(array)


_memories: defaultdict[int, _Memory] = defaultdict(_Memory)
"""By the number of a GPU."""


@dataclass
class _Work:
    """What a stream does from one wait for it to the next."""

    is_done: bool = False


class _Stream:
    """DALI's stream, another one for each batch, as several pipelines have."""

    current: _Stream | None = None
    _addresses = itertools.count(12345)

    def __init__(self) -> None:
        self.ptr = next(self._addresses)
        self.work = _Work()
        self.waits = 0
        """How often it was waited for."""

    def synchronize(self) -> None:
        self.waits += 1
        self.work.is_done, self.work = True, _Work()


def _wait(*_: Any) -> Any:
    raise AssertionError("this waits for the GPU")


class DeviceArray(np.ndarray):
    """An array with its address where CuPy's have it, and which does not wait for the GPU."""

    memory: _Memory
    stream = _Stream()
    """Where it was made."""
    writers = ONE_WRITER

    def __array_finalize__(self, parent: Any) -> None:
        self.writers = getattr(parent, "writers", ONE_WRITER)
        self._work = getattr(parent, "_work", self.stream.work)

    item = tolist = get = nonzero = _wait
    __bool__ = __float__ = __int__ = __index__ = _wait

    def __getitem__(self, key: Any) -> Any:
        """Return an array, of a single element too."""
        found = super().__getitem__(key)
        return found if isinstance(found, DeviceArray) else np.asarray(found).view(type(self))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return an array, of a sum too."""
        del context, return_scalar
        return array.view(type(self))

    @property
    def data(self) -> Any:
        if self.stream is not _Stream.current and not self._work.is_done:
            raise AssertionError("used before another stream has made it")
        return SimpleNamespace(ptr=self.memory.address(self))


class Device:
    """Run operators as on a GPU of one architecture.

    Parameters
    ----------
    folder : Path
        What `gpu_offline.compiler.build` wrote.
    arch : str
        Of `gpu_offline.compiler.ARCHS`.
    number : int
        Of the GPU: kernels of one cannot access memory of another.
    """

    counts: dict[str, Counter[str]]
    """What the launches of each kernel counted so far."""

    def __init__(
        self, folder: Path, arch: str, *, number: int = 0, count_sectors: bool = False
    ) -> None:
        self.programs = {
            kernel.name: Program(folder / f"{kernel.name}.{arch}.ptx") for kernel in KERNELS
        }
        self.counts = defaultdict(Counter)
        self._number, self._count_sectors = number, count_sectors

    def decode(
        self, samples: Sequence[Any], dtype: str, flip: tuple[int, int], finish: Finish
    ) -> tuple[list[NDArray[Any]], list[int]]:
        """Decode the samples as one batch; return images and statuses."""
        with self._installed() as on_device:
            names = ("shape", "payload", "plan", "scaling")
            arrays = [
                [on_device(sample[name], number) for number, sample in enumerate(samples)]
                for name in names
            ]
            arrays.append([on_device(np.array(flip, np.int32)) for _ in samples])
            images, statuses = ImageDecoder(dtype, finish)(*arrays)
        codes = [np.array(status) for status in statuses]
        return [np.array(image) for image in images], [int(code[0]) for code in codes]

    def warp(self, samples: Sequence[tuple[Any, ...]], order: int) -> list[NDArray[np.float32]]:
        """Warp samples of (image, grid, matrix, ..., flip) as one batch."""
        with self._installed() as on_device:
            columns = [[*map(on_device, arrays)] for arrays in zip(*samples, strict=True)]
            return [np.array(image) for image in Warp(order)(*columns)]

    def apply(self, operator: Any, *columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Apply the function of an operator to a batch; return its outputs of one kind."""
        with self._installed() as on_device:
            return [np.array(out) for out in operator(*([*map(on_device, c)] for c in columns))]

    @contextmanager
    def _installed(self) -> Iterator[Callable[..., DeviceArray]]:
        """Put stand-ins where operators look; give the function that copies to the device.

        The GPU may be waited for once, when the random numbers are copied there.
        """
        memory, stream = _memories[self._number], _Stream()
        array: type[DeviceArray] = type("Array", (DeviceArray,), {"memory": memory})
        array.stream = stream
        copied = _random_numbers.cache_info().misses
        with ExitStack() as stack:
            enter, replace = stack.enter_context, mock.patch.object
            enter(mock.patch.dict(sys.modules, cupy=_cupy(array, self._number)))
            enter(replace(cuda, "external_stream", lambda stream: stream))
            enter(replace(_Stream, "current", stream))
            enter(replace(operators_gpu, "_random_numbers", _random_numbers))
            for kernel in KERNELS:
                enter(replace(kernel.module, kernel.name, _Launcher(self, kernel, memory)))
            yield lambda given, number=0: _copied(given, number).view(array)
        copied = _random_numbers.cache_info().misses - copied
        assert stream.waits == copied, f"the GPU was waited for {stream.waits} times, not {copied}"

    def launch(self, kernel: Kernel, memory: _Memory, config: Any, arguments: Any) -> None:
        """Emulate a launch, which must be as `KERNELS` says."""
        grid, block = (size if isinstance(size, tuple) else (size,) for size in config[:2])
        assert np.prod(block) == kernel.threads
        assert _Stream.current is not None
        assert config[2] == _Stream.current.ptr, "not on DALI's stream"
        assert tuple(map(typeof, arguments)) == kernel.types
        self.counts[kernel.name]["launches"] += 1
        self.counts[kernel.name].update(
            self.programs[kernel.name](
                grid, block, arguments, memory.buffers, count_sectors=self._count_sectors
            )
        )


def emulated(folder: Path, arch: str) -> Device:
    """Compile the kernels, and return an emulated GPU; skip the test without a C compiler."""
    if CC is None:
        pytest.skip("no C compiler, cc, to run kernels of a GPU on the CPU")
    build("gpu_offline.kernels:KERNELS", folder, tuple(ARCHS))
    return Device(folder, arch)


class _Launcher:
    """A kernel, to be launched as those of numba are."""

    def __init__(self, device: Device, kernel: Kernel, memory: _Memory) -> None:
        self._launch = device, kernel, memory

    def __getitem__(self, config: Any) -> Callable[..., None]:
        device, kernel, memory = self._launch
        return lambda *arguments: device.launch(kernel, memory, config, arguments)


def _copied(array: NDArray[Any], number: int) -> NDArray[Any]:
    """Copy an input; bytes begin anywhere in a word, as samples of a batch have no gaps."""
    shift = (_WORD - 3 * number) % _WORD if array.dtype == np.uint8 else 0
    copy = allocated(array.shape, array.dtype, array, shift)
    copy.flags.writeable = False
    return copy


def _cupy(array: type[DeviceArray], number: int) -> ModuleType:
    """Return NumPy in CuPy's place."""

    def zeros(shape: Any, dtype: Any) -> DeviceArray:
        """Flags, mostly, which any thread may raise."""
        made = allocated(shape, dtype, 0).view(array)
        made.writers = ANY_WRITER
        return made

    module: Any = ModuleType("cupy")
    for name in ("inf", "isnan", "maximum", "stack"):
        setattr(module, name, getattr(np, name))
    module.where = lambda *arrays: np.asarray(np.where(*arrays)).view(array)
    module.empty = lambda shape, dtype: allocated(shape, dtype, unwritten(dtype)).view(array)
    module.zeros = zeros
    module.asarray = lambda given: _copied(given, 0).view(array)
    module.cuda = SimpleNamespace(
        get_current_stream=lambda: array.stream,
        runtime=SimpleNamespace(getDevice=lambda: number),
    )
    return module
