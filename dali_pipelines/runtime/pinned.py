"""Parts of a slab that CUDA has page-locked, so that copies to a GPU read them directly.

From other memory DALI copies each sample into page-locked memory first. CUDA may refuse, for
example in a virtual machine: then DALI copies these samples, too.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np

from readers.worker.slab import Bytes, SharedMemory, address_of

logger = logging.getLogger(__name__)

_REFUSALS = (ImportError, RuntimeError)
"""Errors of `Cuda`: it is not installed, has no driver, or refuses."""


class Cuda:
    """The functions of CUDA's driver that page-lock memory for a GPU.

    The runtime of CUDA is not used: to make the previous GPU the current one again, it would
    initialise that GPU. Nothing is initialised before the first call.

    Parameters
    ----------
    device_id : int
        The GPU.
    """

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._driver: Any = None
        self._context: Any = None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Let the GPU be the current one of this thread; RuntimeError or ImportError if none is."""
        if self._context is None:
            from cuda.bindings import driver

            self._driver = driver
            self._call("cuInit", 0)
            device = self._call("cuDeviceGet", self._device_id)
            self._context = self._call("cuDevicePrimaryCtxRetain", device)
        self._call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent")

    def register(self, address: int, nbytes: int) -> None:
        """Page-lock memory for all GPUs; RuntimeError if CUDA refuses."""
        portable = self._driver.CU_MEMHOSTREGISTER_PORTABLE
        self._call("cuMemHostRegister", address, nbytes, portable)

    def unregister(self, address: int) -> None:
        """Undo `register`; RuntimeError if the GPU has failed meanwhile."""
        self._call("cuMemHostUnregister", address)

    def _call(self, name: str, *arguments: Any) -> Any:
        error, *found = getattr(self._driver, name)(*arguments)
        if error:
            raise RuntimeError(f"{name} returns {error.name}")
        return found[0] if found else None


class PinnedSlab:
    """The parts of a slab that are page-locked, until `close` or until this is garbage-collected.

    Parameters
    ----------
    memory : ndarray, shape (bytes,), uint8
        The slab as mapped in this process. It stays mapped as long as parts of it are page-locked:
        CUDA would otherwise take memory that is mapped there later for these parts.
    cuda : Cuda
        Locks it.
    """

    def __init__(self, memory: Bytes, cuda: Cuda) -> None:
        self._cuda, self._address = cuda, address_of(memory)
        self._parts = set[int]()  # first bytes
        self._lock = threading.Lock()
        self._is_usable = True
        locked = list[int]()  # addresses
        self._locked = locked
        # Not at exit: other threads may use the memory until the process has ended.
        self._unlock = weakref.finalize(self, _unlock, cuda, locked, memory, os.getpid())
        self._unlock.atexit = False

    def add(self, parts: Iterable[tuple[int, int]]) -> bool:
        """Page-lock parts of the slab, each at most once.

        Parameters
        ----------
        parts : iterable of (int, int)
            First byte and number of bytes of each, multiples of pages.

        Returns
        -------
        bool
            Whether these and all earlier ones are page-locked.
        """
        with self._lock:
            new = [part for part in parts if part[0] not in self._parts]
            if new and self._is_usable:
                try:
                    with self._cuda.current():
                        for first, nbytes in new:
                            self._cuda.register(self._address + first, nbytes)
                            self._locked.append(self._address + first)
                            self._parts.add(first)
                except _REFUSALS as error:
                    self._is_usable = False
                    logger.info("samples are copied once more on their way to the GPU: %s", error)
            return self._is_usable

    def current(self) -> AbstractContextManager[None]:
        """Return a context in which the GPU is the current one of this thread."""
        return self._cuda.current()

    def close(self) -> None:
        """Undo all page-locking, in the process that did it, and refuse it from now on."""
        with self._lock:
            self._is_usable = False
            self._unlock()


def _unlock(cuda: Cuda, locked: list[int], memory: Bytes, process: int) -> None:
    del memory
    if os.getpid() != process or not locked:
        return
    with suppress(*_REFUSALS), cuda.current():
        for address in locked:
            with suppress(*_REFUSALS):
                cuda.unregister(address)


def why_refused(device_id: int = 0) -> str | None:
    """Return why CUDA does not page-lock a slab, or None if it does; this initialises CUDA."""
    nbytes = 1 << 20
    memory = np.frombuffer(SharedMemory(nbytes).map(), np.uint8)
    cuda = Cuda(device_id)
    try:
        with cuda.current():
            cuda.register(address_of(memory), nbytes)
            cuda.unregister(address_of(memory))
    except _REFUSALS as error:
        return str(error)
    return None
