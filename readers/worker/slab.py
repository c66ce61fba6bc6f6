"""Slab: memory to which reader processes write samples and from which the consumer takes batches.

The slab is one sparse memfd that each process maps once. Only pages that were written take memory.
The slab begins with slots, one for each batch that is being read or used. A slot has a table of
int64, whose rows locate the arrays of varying shape of each sample. After the table a slot has an
array over the batch for each array of known shape. After all slots each reader has a region, and
takes blocks from it.

There are no locks between processes: each slot, or part of a slot, belongs to one process at a
time, and messages through a socket pass it on.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import resource
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.contract import SampleSpec

_MOST_SLOTS = 64
_REGION_BYTES = 32 << 30
"""Bytes of address space for each reader, unless a limit of this process is lower."""
_ALIGNED = 256
"""Alignment of each array in bytes, which suits CUDA."""
_BLOCK = 1 << 20
"""Minimum size of a block, in bytes."""
_EIGHTH = 3
"""The size of a block is rounded up to so many binary digits after the first one, so that later
arrays of similar size also fit."""
BLOCK_UNIT = _BLOCK >> _EIGHTH
"""Blocks begin and end at multiples of this many bytes of their region."""

Bytes = NDArray[np.uint8]


class NoMemory(BaseException):
    """There is no memory for a sample. This is not an Exception, so the row is not rejected."""


@dataclass(frozen=True)
class Layout:
    """Positions of the parts of a slab.

    Parameters
    ----------
    specs : tuple of SampleSpec
        Specs of each sample's arrays.
    batch_size, num_readers : int
    region_bytes : int
        Bytes of address space for each reader.
    most_slots : int
        Most slots, for which address space is reserved.
    """

    specs: tuple[SampleSpec, ...]
    batch_size: int
    num_readers: int
    region_bytes: int = _REGION_BYTES
    most_slots: int = _MOST_SLOTS

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """Numbers of the arrays of varying shape."""
        return tuple(number for number, spec in enumerate(self.specs) if spec.shape is None)

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Numbers of the arrays of known shape."""
        return tuple(number for number, spec in enumerate(self.specs) if spec.shape is not None)

    @cached_property
    def columns(self) -> tuple[slice, ...]:
        """Columns of the table for each varying array: its first byte, then its shape."""
        found, start = [], 0
        for number in self.varying:
            stop = start + 1 + (self.specs[number].ndim or 0)
            found.append(slice(start, stop))
            start = stop
        return tuple(found)

    @cached_property
    def _places(self) -> tuple[int, ...]:
        """Offsets in a slot of the arrays of `over_batch`, and the end of the last array."""
        width = self.columns[-1].stop if self.columns else 0
        places = [_up(8 * width * self.batch_size)]
        for number in self.fixed:
            places.append(_up(places[-1] + self.specs[number].nbytes * self.batch_size))
        return tuple(places)

    @property
    def _slot_bytes(self) -> int:
        return _up(max(1, self._places[-1]), mmap.PAGESIZE)

    def table(self, memory: Bytes, slot: int) -> NDArray[np.int64]:
        """Return the table of a slot, shape (batch_size, columns)."""
        width = self.columns[-1].stop if self.columns else 0
        shape = self.batch_size, width
        return np.ndarray(shape, np.int64, memory, slot * self._slot_bytes)

    def over_batch(self, memory: Bytes, slot: int) -> list[NDArray[Any]]:
        """Return an array for the whole batch, shape (batch_size, ...), for each of `fixed`."""
        first = slot * self._slot_bytes
        return [
            np.ndarray(
                (self.batch_size, *(self.specs[number].shape or ())),
                self.specs[number].dtype,
                memory,
                first + place,
            )
            for number, place in zip(self.fixed, self._places[:-1], strict=True)
        ]

    def slot(self, slot: int) -> tuple[int, int]:
        """Return the first byte and the number of bytes of a slot, both multiples of pages."""
        return slot * self._slot_bytes, self._slot_bytes

    def region(self, reader: int) -> int:
        """Return the first byte of a reader's region, a multiple of pages."""
        return self.most_slots * self._slot_bytes + reader * self.region_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of address space."""
        return self.region(self.num_readers)


def region_bytes(num_readers: int) -> int:
    """Return the bytes of address space for each reader of this process.

    Cluster schedulers limit address space. All readers together get a quarter of the rest, because
    forked readers map the slab twice.
    """
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * mmap.PAGESIZE
    left = [_REGION_BYTES]
    for limit, taken in ((resource.RLIMIT_AS, used), (resource.RLIMIT_FSIZE, 0)):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY:
            left.append(max(0, soft - taken) // (4 * num_readers))
    return min(left) // mmap.PAGESIZE * mmap.PAGESIZE


class SharedMemory:
    """Empty memfd for a slab, which other processes inherit or receive by pickle.

    `SharedMemory` and `map` raise OSError if a limit of this process is too low.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._keep(os.memfd_create("samples"))
        try:
            os.ftruncate(self.fd, nbytes)
        except OSError as error:
            raise _limited(error, nbytes, "file size", "-f") from None

    def map(self) -> mmap.mmap:
        """Map the memory."""
        try:
            return mmap.mmap(self.fd, self._nbytes)
        except OSError as error:
            raise _limited(error, self._nbytes, "virtual memory", "-v") from None

    def give_back(self) -> None:
        """Free the memory, even if other processes map it. Nobody may use it afterwards."""
        os.ftruncate(self.fd, 0)

    def _keep(self, fd: int) -> None:
        self.fd = fd
        weakref.finalize(self, os.close, fd)

    def __getstate__(self) -> Any:
        return self._nbytes, DupFd(self.fd)

    def __setstate__(self, sent: Any) -> None:
        self._nbytes, fd = sent
        self._keep(fd.detach())


def _limited(error: OSError, nbytes: int, limit: str, flag: str) -> OSError:
    if error.errno not in (errno.ENOMEM, errno.EFBIG):
        return error
    needed = -(-nbytes >> 20)
    return OSError(
        error.errno,
        f"readers need {needed} MiB of address space, more than the limit of {limit} of this "
        f"process: raise it (ulimit {flag} unlimited), or limit memory by a control group",
    )


class Region:
    """Region of one reader, from which its threads take memory for arrays.

    Parameters
    ----------
    shared : SharedMemory
        Memory of the slab.
    start, nbytes : int
        First byte of the region, and number of bytes.
    note_block : callable, optional
        Function that is called with the first byte in the region, and the size, of each new block.
    """

    def __init__(
        self,
        shared: SharedMemory,
        start: int,
        nbytes: int,
        note_block: Callable[[int, int], None] | None = None,
    ) -> None:
        self._shared, self._map = shared, shared.map()
        self.memory = np.frombuffer(self._map, np.uint8)
        """The whole slab as mapped in this process, shape (bytes,)."""
        self._note_block = note_block
        self._address = address_of(self.memory)
        self._start = self._end = start
        self._nbytes = nbytes
        self._free: list[tuple[int, int]] = []  # (bytes, first byte), in order
        self._used = defaultdict[int, list[tuple[int, int]]](list)  # by slot
        self._batches = dict[int, int]()  # by slot
        self._lock = threading.Lock()

    def begin(self, slot: int, batch: int) -> None:
        """Free the blocks that an older batch took for a slot."""
        with self._lock:
            if self._batches.get(slot) != batch:
                self._batches[slot] = batch
                self._free = sorted(self._free + self._used.pop(slot, []))

    def take(self, nbytes: int, slot: int) -> tuple[int, int]:
        """Return size and first byte of a block of at least `nbytes` bytes for a slot's batch.

        NoMemory if no block is available.
        """
        with self._lock:
            fits = (number for number, (size, _) in enumerate(self._free) if size >= nbytes)
            number = next(fits, None)
            block = self._new(nbytes) if number is None else self._free.pop(number)
            self._used[slot].append(block)
            return block

    def _new(self, nbytes: int) -> tuple[int, int]:
        nbytes = max(nbytes, _BLOCK)
        size, start = _up(nbytes, 1 << (nbytes.bit_length() - 1 - _EIGHTH)), self._end
        if start + size > self._start + self._nbytes:
            raise NoMemory(
                f"the samples of a reader need more than its {self._nbytes >> 20} MiB of address "
                "space: use a smaller batch_size or prefetch, or raise the limits of virtual "
                "memory and file size (ulimit -v, -f)"
            )
        if self._free:
            # All free blocks are too small. Samples grow, so the new block replaces the largest.
            smaller, first = self._free.pop()
            self._map.madvise(mmap.MADV_REMOVE, first, smaller)
        try:
            os.posix_fallocate(self._shared.fd, start, size)
        except OSError as error:
            raise NoMemory(f"no memory for samples: {error.strerror}") from None
        self._end += size
        if self._note_block is not None:
            self._note_block(start - self._start, size)
        return size, start

    def place(self, array: NDArray[Any]) -> int | None:
        """Return the first byte in the slab of an array of this region; None for other arrays."""
        first = address_of(array) - self._address
        return first if self._start <= first < self._end and array.flags.c_contiguous else None


class Writer:
    """Takes memory of a region for the arrays of a batch, sample by sample."""

    def __init__(self, region: Region, slot: int) -> None:
        self._region, self._slot = region, slot
        self._at = self._stop = 0
        self._taken: list[tuple[int, int]] = []  # by this sample

    def begin(self) -> None:
        """Begin the next sample."""
        self._taken.clear()

    def empty(self, nbytes: int) -> Bytes:
        """Return memory for an array, shape (nbytes,); NoMemory if there is none."""
        if self._at + nbytes > self._stop:
            size, self._at = self._region.take(nbytes, self._slot)
            self._stop = self._at + size
        start, self._at = self._at, _up(self._at + nbytes)
        self._taken.append((start, start + nbytes))
        return self._region.memory[start : start + nbytes]

    def place(self, array: NDArray[Any]) -> int:
        """Return the first byte of an array in the slab, copying the array there if needed.

        RuntimeError if the array is in memory of an earlier sample.
        """
        if not array.nbytes:
            return 0
        first = self._region.place(array)
        if first is None:
            own = self.empty(array.nbytes)
            own.view(array.dtype).reshape(array.shape)[...] = array
            return self._taken[-1][0]
        if not any(start <= first < stop for start, stop in self._taken):
            raise RuntimeError(
                "an array is in memory of readers.buffer for an earlier sample: a Reader must call "
                "readers.buffer for each sample, and keep no view of the memory"
            )
        return first


def tasks_of(batch_size: int, num_readers: int, each: int = 2) -> Sequence[tuple[int, int]]:
    """Return the first sample and the number of samples of each task of a batch.

    Readers take tasks when they are free. With two tasks per reader, a batch does not wait long for
    a slow or stopped reader.
    """
    count = max(1, math.ceil(batch_size / (num_readers * each)))
    return [(first, min(count, batch_size - first)) for first in range(0, batch_size, count)]


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first byte of an array."""
    return int(array.__array_interface__["data"][0])


def _up(nbytes: int, multiple: int = _ALIGNED) -> int:
    return -(-nbytes // multiple) * multiple
