"""Read several samples of a reader process at the same time, in threads.

DALI asks a reader for one sample after the other, and hands what it gets to a thread of its own,
which writes a minibatch into shared memory. The arrays that it gets here are empty until that
thread looks at them, so that meanwhile DALI asks for the next samples, and for the next minibatch.
What is read ahead is exactly what DALI has asked for. Where nothing has to be waited for, as all is
in the cache, threads would only take turns: samples are then read one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from readers.places.threads import DaemonThreads

Arrays = tuple[NDArray[Any], ...]


_CALM = 64
"""Samples without a request, beside those that are being read, before the threads rest."""


class PendingArray(np.ndarray):
    """An array of a sample that is being read.

    It has what DALI's ``SharedBatchWriter`` takes of an array; each waits until the sample is read.
    """

    _sample: Future[Arrays]
    _number: int

    @classmethod
    def of(cls, sample: Future[Arrays], number: int) -> Self:
        """Return array `number` of a sample."""
        pending = cls(0, np.uint8)
        pending._sample, pending._number = sample, number
        return pending

    @property
    def _found(self) -> NDArray[Any]:
        return self._sample.result()[self._number]

    @property  # type: ignore[misc]
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._found.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements."""
        return self._found.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self._found.nbytes

    def ravel(self, *_: Any) -> NDArray[Any]:
        """Return its elements, shape (size,)."""
        return self._found.ravel()


class ReadAhead:
    """Reads at most `num_threads` samples at the same time, where reading makes requests.

    ``requests()`` counts the requests that this process has begun.
    """

    def __init__(self, num_threads: int, requests: Callable[[], int]) -> None:
        self._threads = DaemonThreads(num_threads)
        self._free = threading.Semaphore(num_threads)
        self._requests, self._num_requests = requests, 0
        self._calm, self._most_calm = 0, num_threads + _CALM

    def read(self, read: Callable[[Any], Arrays], info: Any, num_arrays: int) -> Arrays:
        """Begin to read the sample of DALI's `info` when a thread is free; return its arrays."""
        before, self._num_requests = self._num_requests, self._requests()
        self._calm = self._calm + 1 if self._num_requests == before else 0
        if self._calm > self._most_calm:
            return read(info)
        # Without this a reader would take all minibatches that are waiting from the others.
        self._free.acquire()
        sample = self._threads.submit(read, info)
        sample.add_done_callback(lambda _: self._free.release())
        return tuple(PendingArray.of(sample, number) for number in range(num_arrays))
