"""A stand-in for CUDA that page-locks host memory, and whose GPU reads it as late as it may."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from numpy.typing import NDArray

from dali_pipelines.runtime.processes.reader_pool import ReaderPool


class FakeCuda:
    """Records what is page-locked, and refuses after so many parts.

    `pinned` stands in for the function that hands page-locked memory to DALI, which needs a driver:
    it checks that each array is in one part that is page-locked, and notes a copy of it by a GPU.
    `outputs_come` ends the copies of the oldest batch, which must find the values that were fed.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.parts = dict[int, int]()  # address and size of what is page-locked
        self.num_registered = self.num_unregistered = self.num_pinned = self.num_late = 0
        self.copies = deque[list[tuple[int, bytes]]]()  # of each batch
        self._own = threading.local()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Let the GPU be the current one of this thread."""
        self._own.is_current = True
        try:
            yield
        finally:
            self._own.is_current = False

    def register(self, address: int, nbytes: int) -> None:
        """Page-lock memory, as CUDA does: whole pages, none of them twice."""
        self._check()
        if self.num_registered == self.most:
            raise RuntimeError("cuMemHostRegister returns CUDA_ERROR_NOT_SUPPORTED")
        assert nbytes > 0
        assert address % mmap.PAGESIZE == nbytes % mmap.PAGESIZE == 0
        for start, size in self.parts.items():
            assert address + nbytes <= start or start + size <= address
        assert is_mapped(address, nbytes)
        self.parts[address] = nbytes
        self.num_registered += 1

    def unregister(self, address: int) -> None:
        """Undo `register`, which CUDA can do only while the memory is mapped."""
        self._check()
        assert is_mapped(address, self.parts.pop(address))
        self.num_unregistered += 1

    def pinned(
        self, kind: Callable[..., Any], array: NDArray[Any], layout: str | None = None
    ) -> Any:
        """Return a tensor of an array that must be page-locked."""
        self._check()
        self.num_pinned += 1
        address = array.__array_interface__["data"][0]
        if array.nbytes:
            assert any(
                start <= address and address + array.nbytes <= start + size
                for start, size in self.parts.items()
            )
            self.copies[-1].append((address, array.tobytes()))
        return kind(array, layout)

    def outputs_come(self) -> None:
        """End the copies of the oldest batch to the GPU."""
        for address, expected in self.copies.popleft():
            self.num_late += ctypes.string_at(address, len(expected)) != expected

    def _check(self) -> None:
        assert getattr(self._own, "is_current", False)


def is_mapped(address: int, nbytes: int) -> bool:
    """Return whether this process has mapped the memory of a slab there."""
    with open("/proc/self/maps") as file:
        for line in file:
            start, stop = (int(word, 16) for word in line.split()[0].split("-"))
            if start <= address and address + nbytes <= stop:
                return "memfd:samples" in line
    return False


def use_pinned_pools(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, pool: Any = None) -> None:
    """Let pipelines on the CPU hand samples over as those on a GPU do, with this stand-in."""
    kind: Any = pool or ReaderPool

    class Pool(kind):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **others: Any) -> None:
            super().__init__(*arguments, **{**others, "cuda": cuda})

        def __call__(self) -> Any:
            cuda.copies.append([])
            return super().__call__()

        def note_outputs(self) -> None:
            cuda.outputs_come()
            super().note_outputs()

    monkeypatch.setattr("dali_pipelines.graph.pipeline.ReaderPool", Pool)
    monkeypatch.setattr("dali_pipelines.runtime.tensor_lists.pinned", cuda.pinned)
