"""Memory for the arrays of a sample. In a reader process the graph reads it directly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

Empty = Callable[[int], NDArray[np.uint8]]
"""Function that returns uninitialised memory of a number of bytes, shape (bytes,)."""
Allocate = Callable[[int, int], NDArray[np.uint8]]
"""Type of `buffer` and `private`."""

_thread = threading.local()


def buffer(nbytes: int, room: int = 0) -> NDArray[np.uint8]:
    """Return memory for an array of the Sample that is being read.

    In a reader process this is shared memory, and the array is not copied again. The memory is
    reused for later samples, so a Reader must not keep a view of it.

    Parameters
    ----------
    nbytes : int
        Bytes of the array, uninitialised.
    room : int
        Zero bytes after the array.

    Returns
    -------
    ndarray, shape (nbytes + room,), uint8

    Raises
    ------
    ValueError
        If `nbytes` or `room` is negative.
    """
    if nbytes < 0 or room < 0:
        raise ValueError(f"nbytes and room must be at least 0, got {nbytes} and {room}")
    if (empty := getattr(_thread, "empty", None)) is None:
        return private(nbytes, room)
    found = empty(nbytes + room)
    found[nbytes:] = 0
    return found


def private(nbytes: int, room: int = 0) -> NDArray[np.uint8]:
    """Return memory like `buffer` that is not shared, for arrays that are not sent."""
    found = np.empty(nbytes + room, np.uint8)
    found[nbytes:] = 0
    return found


@contextmanager
def buffers_from(empty: Empty) -> Iterator[None]:
    """Let `buffer` take memory from a function in this thread, within a block.

    Other threads get private memory: a thread that was abandoned after a time limit may still write
    to its memory after the block.
    """
    _thread.empty = empty
    try:
        yield
    finally:
        del _thread.empty
