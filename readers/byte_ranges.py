"""Read byte ranges of a file, merging those close together."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def read_ranges(
    file: int,
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    gap: int,
    room: int = 0,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
    """Read byte ranges of a file.

    Parameters
    ----------
    file : int
        Descriptor of the open file.
    offsets, lengths : ndarray, shape (ranges,), int64
        In bytes, from the start of the file; inside the file, in any order.
    gap : int
        Largest gap in bytes between two ranges that is read as well, to save a second read.
    room : int
        Zero bytes to append.

    Returns
    -------
    payload : ndarray, shape (bytes,), uint8
        The ranges, small gaps between them, and the room.
    starts : ndarray, shape (ranges,), int64
        Start of each range in the payload.
    nbytes : int
        Bytes that were read.
    """
    if len(offsets) == 0:
        return np.zeros(room, np.uint8), offsets, 0
    ends = offsets + lengths
    gaps = offsets[1:] - ends[:-1]
    if len(gaps) == 0 or (gaps.min() >= 0 and gaps.max() <= gap):  # in most files
        first, nbytes = int(offsets[0]), int(ends[-1] - offsets[0])
        payload = _buffer(nbytes, room)
        read_into(payload[:nbytes].data, file, first)
        return payload, offsets - first, nbytes
    order = np.argsort(offsets, kind="stable")
    starts, stops = offsets[order], ends[order]
    reach = np.maximum.accumulate(stops)
    cuts = np.flatnonzero(starts[1:] > reach[:-1] + gap) + 1
    run_starts = starts[np.concatenate(([0], cuts))]
    run_stops = reach[np.concatenate((cuts, [len(starts)])) - 1]
    run_offsets = np.concatenate(([0], np.cumsum(run_stops - run_starts)))
    nbytes = int(run_offsets[-1])
    payload = _buffer(nbytes, room)
    buffer = payload.data
    for start, stop, at in zip(
        run_starts.tolist(), run_stops.tolist(), run_offsets[:-1].tolist(), strict=True
    ):
        read_into(buffer[at : at + stop - start], file, start)
    run = np.searchsorted(run_starts, offsets, side="right") - 1
    return payload, run_offsets[run] + offsets - run_starts[run], nbytes


def bytes_between(planes: Sequence[int], plane_bytes: int, span_bytes: int, *, gap: int) -> int:
    """Return how many bytes of gaps `read_ranges` reads between the same spans of some planes.

    The planes, of `plane_bytes` each, are stored one after the other.
    """
    gaps = np.diff(np.unique(planes)) * plane_bytes - span_bytes
    return int(gaps[gaps <= gap].sum())


def _buffer(nbytes: int, room: int) -> NDArray[np.uint8]:
    payload = np.empty(nbytes + room, np.uint8)
    payload[nbytes:] = 0
    return payload


def read_into(buffer: memoryview, file: int, start: int) -> None:
    """Fill a buffer of bytes from a position of the file.

    Raises
    ------
    ValueError
        If the file is too short.
    """
    found = 0
    while found < len(buffer):  # Linux reads at most 2 GiB at a time
        nbytes = os.preadv(file, [buffer[found:]], start + found)
        if nbytes == 0:
            raise ValueError(
                f"the file ends at {start + found}, expected {len(buffer)} bytes from {start}"
            )
        found += nbytes
