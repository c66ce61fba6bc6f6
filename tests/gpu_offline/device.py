"""The package's GPU operators without a GPU: kernels are emulated, and NumPy stands in for CuPy."""

from __future__ import annotations

import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numba import cuda, typeof
from numpy.typing import NDArray

from dali_pipelines.graph import operators_gpu
from dali_pipelines.graph.operators_gpu import ImageDecoder, Warp
from gpu_offline.compiler import build
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
_STREAM = 12345
"""Address of the stream that is CuPy's current one."""


class _Memory:
    """The arrays whose addresses kernels may have."""

    def __init__(self) -> None:
        self._owners: dict[Buffer, weakref.ref[NDArray[Any]]] = {}

    @property
    def buffers(self) -> list[Buffer]:
        """What kernels may access; not that of arrays that nobody holds any more."""
        return [buffer for buffer, owner in self._owners.items() if owner() is not None]

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


def _wait(*_: Any) -> Any:
    raise AssertionError("this waits for the GPU")


class DeviceArray(np.ndarray):
    """An array with its address where CuPy's have it, and which does not wait for the GPU."""

    memory: _Memory
    writers = ONE_WRITER

    def __array_finalize__(self, parent: Any) -> None:
        self.writers = getattr(parent, "writers", ONE_WRITER)

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
        return SimpleNamespace(ptr=self.memory.address(self))


class Device:
    """Run operators as on a GPU of one architecture.

    Parameters
    ----------
    folder : Path
        What `gpu_offline.compiler.build` wrote.
    arch : str
        Of `gpu_offline.compiler.ARCHS`.
    """

    counts: dict[str, Counter[str]]
    """What the launches of each kernel counted so far."""

    def __init__(self, folder: Path, arch: str, *, count_sectors: bool = False) -> None:
        self.programs = {
            kernel.name: Program(folder / f"{kernel.name}.{arch}.ptx") for kernel in KERNELS
        }
        self.counts = defaultdict(Counter)
        self._count_sectors = count_sectors

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
        """Put stand-ins where operators look; give the function that copies to the device."""
        memory = _Memory()
        array: type[DeviceArray] = type("Array", (DeviceArray,), {"memory": memory})
        with ExitStack() as stack:
            stack.enter_context(mock.patch.dict(sys.modules, cupy=_cupy(array)))
            stack.enter_context(mock.patch.object(cuda, "external_stream", lambda stream: stream))
            for kernel in KERNELS:
                launcher = _Launcher(self, kernel, memory)
                stack.enter_context(mock.patch.object(kernel.module, kernel.name, launcher))
            operators_gpu._random_numbers.cache_clear()  # they belong to another memory
            stack.callback(operators_gpu._random_numbers.cache_clear)
            yield lambda given, number=0: _copied(given, number).view(array)

    def launch(self, kernel: Kernel, memory: _Memory, config: Any, arguments: Any) -> None:
        """Emulate a launch, which must be as `KERNELS` says."""
        grid, block = (size if isinstance(size, tuple) else (size,) for size in config[:2])
        assert np.prod(block) == kernel.threads
        assert config[2] == _STREAM, "not on DALI's stream"
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
    build("gpu_offline.kernels:KERNELS", folder)
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


def _cupy(array: type[DeviceArray]) -> ModuleType:
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
        get_current_stream=lambda: SimpleNamespace(ptr=_STREAM, synchronize=lambda: None),
        runtime=SimpleNamespace(getDevice=lambda: 0),
    )
    return module
