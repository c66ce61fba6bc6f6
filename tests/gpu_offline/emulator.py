"""Run the PTX of a kernel on the CPU, with checks that no GPU makes.

Each access must lie in a buffer that the launch was given, be aligned, and not write to an input.
Threads of a block may not race in shared memory between two barriers, nor part at a barrier. No two
threads of a launch may write the same byte, unless the buffer is for that, and no block may read
what another one writes. Of the time a GPU takes, of diverging warps and of the order of memory this
says nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import mmap
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu_offline.translate import translate

CC = shutil.which("cc")
_SOURCE = str(Path(__file__).with_name("emulator.c"))
_FLAGS = ("-O1", "-w", "-shared", "-fPIC", "-march=native")
# As a GPU computes: products and sums are not fused, integers wrap, bits may be read as any type.
_SEMANTICS = ("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing")

READ_ONLY, ONE_WRITER, ANY_WRITER = range(3)
"""Who may write to a buffer; as in emulator.c."""

COUNTED = ("instructions", "loads", "stores", "shared", "sectors")
"""What a launch counts: PTX instructions of all threads; their loads and stores in global memory,
and accesses to shared memory; and the 32 bytes of global memory that warps access at once."""


_GRID, _BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
"""Most blocks of a launch, and threads of a block, in x, y and z."""


_NORESERVE = 0x4000
"""Linux's flag of mmap, which Python 3.11 does not name."""


class Fault(Exception):
    """A check failed."""


class Buffer(NamedTuple):
    """Memory that a launch may access."""

    address: int
    size: int
    """In bytes."""
    writers: int
    """`READ_ONLY`, `ONE_WRITER` or `ANY_WRITER`."""


class Program:
    """The kernel of a PTX file, compiled for the CPU.

    Parameters
    ----------
    ptx : Path
        Its folder takes what is compiled. Files that are alike but for their architecture share it.
    """

    def __init__(self, ptx: Path) -> None:
        self.code = translate(ptx.read_text())
        name = hashlib.sha256(self.code.encode()).hexdigest()
        library = ptx.with_name(f"{name}.so")
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=ptx.parent) as folder:
                code, made = Path(folder, "kernel.inc"), Path(folder, "kernel.so")
                code.write_text(self.code)
                kernel = f'-DKERNEL="{code}"'
                command = [
                    CC or "cc",
                    *_FLAGS,
                    *_SEMANTICS,
                    kernel,
                    _SOURCE,
                    "-o",
                    str(made),
                    "-lm",
                ]
                subprocess.run(command, check=True)
                made.replace(library)  # at once, as another process may do the same
        self._run = ctypes.CDLL(str(library)).run

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Any],
        buffers: Sequence[Buffer],
        *,
        count_sectors: bool = False,
        blocks: Sequence[int] | None = None,
    ) -> dict[str, int]:
        """Launch it; return what was counted, by the names in `COUNTED`.

        Parameters
        ----------
        grid, block : sequence of int
            Up to three sizes each.
        arguments : sequence
            Numbers.
        buffers : sequence of Buffer
            All that it may access.
        count_sectors : bool
            Count those, too: the others cost nothing.
        blocks : sequence of int, optional
            Numbers of the blocks to run, x first, then y and z; by default all.

        Raises
        ------
        Fault
            If a check fails; it says where in the PTX and in which thread.
        """
        _check_launch(grid, block)
        owned = [buffer.size if buffer.writers != READ_ONLY else 0 for buffer in buffers]
        shadows = [(sparse((size,), np.uint32), sparse((size,), np.uint32)) for size in owned]
        regions = np.array(
            [
                (buffer.address, buffer.address + buffer.size, buffer.writers, *map(_place, pair))
                for buffer, pair in zip(buffers, shadows, strict=True)
            ],
            np.uint64,
        ).reshape(-1, 5)
        chosen = np.array(range(math.prod(grid)) if blocks is None else blocks, np.uint64)
        counts, message = np.zeros(len(COUNTED), np.uint64), ctypes.create_string_buffer(200)
        failed = self._run(
            *(_pointer(np.array((*sizes, 1, 1)[:3], np.uint32)) for sizes in (grid, block)),
            _pointer(chosen),
            ctypes.c_uint64(len(chosen)),
            _pointer(np.array([_word(argument) for argument in arguments], np.uint64)),
            _pointer(regions),
            len(regions),
            count_sectors,
            _pointer(counts),
            message,
        )
        if failed:
            raise Fault(message.value.decode())
        return dict(zip(COUNTED, counts.tolist(), strict=True))


def allocated(shape: Sequence[int], dtype: Any, fill: Any, shift: int = 0) -> NDArray[Any]:
    """Make an array where a GPU might have it: at 256 bytes, or so many more."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 256 + shift, np.uint8)
    start = -memory.ctypes.data % 256 + shift
    array = memory[start : start + size].view(dtype).reshape(shape)
    array[...] = fill
    return array


def unwritten(dtype: Any) -> Any:
    """Return a number that shows wherever it is read, as NaN would not where holes may be.

    Its bytes are those of shared memory that nobody wrote: 8.5e37 as float32.
    """
    return np.frombuffer(b"\x7e" * np.dtype(dtype).itemsize, dtype)[0]


def sparse(shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """Make an array of zeros that takes memory only where it is written, however large it is."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, max(size, 1), flags)
    return np.frombuffer(memory, np.uint8)[:size].view(dtype).reshape(shape)


def _check_launch(grid: Sequence[int], block: Sequence[int]) -> None:
    """Raise Fault for sizes that no GPU launches, or more threads than the checks tell apart.

    The CUDA C++ Programming Guide's table of technical specifications.
    """
    limits = zip((*grid, *block), (*_GRID[: len(grid)], *_BLOCK[: len(block)]), strict=True)
    if not all(1 <= size <= most for size, most in limits) or math.prod(block) > _BLOCK[0]:
        raise Fault(f"no GPU launches {tuple(grid)} blocks of {tuple(block)} threads")
    if math.prod(grid) * math.prod(block) >= 2**32:
        raise Fault(f"too many threads: {tuple(grid)} blocks of {tuple(block)}")


def _place(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _word(argument: Any) -> int:
    if isinstance(argument, np.float32):
        return int(argument.view(np.uint32))
    return int(argument) % 2**64


def _pointer(array: NDArray[Any]) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)
