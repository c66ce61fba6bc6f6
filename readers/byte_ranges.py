"""Byte ranges of a file, near ones read in one go."""

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
    """Read ranges.

    Parameters
    ----------
    file : int
        Descriptor of the open file.
    offsets, lengths : ndarray, shape (ranges,), int64
        In bytes, from the start of the file; in any order. Inside the file.
    gap : int
        Bytes between two ranges that are read along rather than skipped by a second read.
    room : int
        Bytes to leave free, as zeros, after what is read.

    Returns
    -------
    payload : ndarray, shape (bytes,), uint8
        The ranges, what lies in small gaps between them, and the room.
    places : ndarray, shape (ranges,), int64
        Where in it each range begins.
    size : int
        Bytes that were read.
    """
    if len(offsets) == 0:
        return np.zeros(room, np.uint8), offsets, 0
    ends = offsets + lengths
    gaps = offsets[1:] - ends[:-1]
    if len(gaps) == 0 or (gaps.min() >= 0 and gaps.max() <= gap):  # in most files
        first, size = int(offsets[0]), int(ends[-1] - offsets[0])
        payload = _room(size, room)
        read_into(payload[:size].data, file, first)
        return payload, offsets - first, size
    order = np.argsort(offsets, kind="stable")
    starts, stops = offsets[order], ends[order]
    reach = np.maximum.accumulate(stops)
    cuts = np.flatnonzero(starts[1:] > reach[:-1] + gap) + 1
    run_starts = starts[np.concatenate(([0], cuts))]
    run_stops = reach[np.concatenate((cuts, [len(starts)])) - 1]
    run_places = np.concatenate(([0], np.cumsum(run_stops - run_starts)))
    size = int(run_places[-1])
    payload = _room(size, room)
    buffer = payload.data
    for start, stop, place in zip(
        run_starts.tolist(), run_stops.tolist(), run_places[:-1].tolist(), strict=True
    ):
        read_into(buffer[place : place + stop - start], file, start)
    run = np.searchsorted(run_starts, offsets, side="right") - 1
    return payload, run_places[run] + offsets - run_starts[run], size


def bytes_between(planes: Sequence[int], plane_bytes: int, part_bytes: int, *, gap: int) -> int:
    """Return how many bytes `read_ranges` reads along between the same parts of some planes.

    Parameters
    ----------
    planes : sequence of int
        Numbers of the planes, which lie one behind the other.
    plane_bytes, part_bytes : int
        Of a plane, and from the first to the last byte of its part.
    gap : int
        As for `read_ranges`.
    """
    gaps = np.diff(np.unique(planes)) * plane_bytes - part_bytes
    return int(gaps[gaps <= gap].sum())


def _room(size: int, more: int) -> NDArray[np.uint8]:
    payload = np.empty(size + more, np.uint8)
    payload[size:] = 0
    return payload


def read_into(buffer: memoryview, file: int, start: int) -> None:
    """Fill a buffer of bytes from a position of the file.

    Raises
    ------
    ValueError
        If the file ends before.
    """
    found = 0
    while found < len(buffer):  # Linux gives at most 2 GiB at a time
        size = os.preadv(file, [buffer[found:]], start + found)
        if size == 0:
            raise ValueError(
                f"the file ends at {start + found}, expected {len(buffer)} bytes from {start}"
            )
        found += size
