"""Read byte ranges of a place. Ranges that are close together are merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from readers.buffers import Allocate, private
from readers.places.contract import Place

_CACHE_LINE = 64
"""Bytes."""


def read_ranges(
    place: Place,
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    gap: int,
    room: int = 0,
    allocate: Allocate = private,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
    """Read byte ranges of a place.

    Parameters
    ----------
    place : Place
        Place with the bytes.
    offsets, lengths : ndarray, shape (ranges,), int64
        First byte and number of bytes of each range, in any order.
    gap : int
        Largest gap between two ranges, in bytes, that is read with them to save a second read.
    room : int
        Zero bytes to append.
    allocate : callable
        Function that returns the memory: `readers.buffers.buffer` for a payload that is sent.

    Returns
    -------
    payload : ndarray, shape (bytes,), uint8
        Ranges, small gaps between them, and the zero bytes.
    starts : ndarray, shape (ranges,), int64
        Start of each range in the payload.
    nbytes : int
        Number of bytes read.

    Raises
    ------
    ValueError
        If the place is too short.
    """
    if len(offsets) == 0:
        return np.zeros(room, np.uint8), offsets, 0
    ends = offsets + lengths
    gaps = offsets[1:] - ends[:-1]
    if len(gaps) == 0 or (gaps.min() >= 0 and gaps.max() <= gap):  # the usual case
        first, nbytes = int(offsets[0]), int(ends[-1] - offsets[0])
        # The kernel copies a fifth faster if source and destination have the same alignment.
        skew = first % _CACHE_LINE
        payload = allocate(skew + nbytes, room)[skew:]
        place.read_many([(first, payload[:nbytes].data)])
        return payload, offsets - first, nbytes
    run_starts, run_stops = merged(offsets, ends, gap)
    run_offsets = np.concatenate(([0], np.cumsum(run_stops - run_starts)))
    nbytes = int(run_offsets[-1])
    payload = allocate(nbytes, room)
    whole = payload.data
    runs = zip(run_starts.tolist(), run_stops.tolist(), run_offsets[:-1].tolist(), strict=True)
    place.read_many([(start, whole[at : at + stop - start]) for start, stop, at in runs])
    run = np.searchsorted(run_starts, offsets, side="right") - 1
    return payload, run_offsets[run] + offsets - run_starts[run], nbytes


def merged(
    starts: NDArray[np.int64], stops: NDArray[np.int64], gap: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort ranges, and merge ranges up to `gap` bytes apart; return starts and ends."""
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(stops[order])
    cuts = np.flatnonzero(starts[1:] > reach[:-1] + gap) + 1
    firsts = starts[np.concatenate(([0], cuts))]
    return firsts, reach[np.concatenate((cuts, [len(starts)])) - 1]


def bytes_between(planes: Sequence[int], plane_bytes: int, span_bytes: int, *, gap: int) -> int:
    """Return the bytes of gaps that `read_ranges` reads between the same part of some planes.

    Each plane has `plane_bytes`, and its part `span_bytes`. Planes follow each other in the file.
    """
    gaps = np.diff(np.unique(planes)) * plane_bytes - span_bytes
    return int(gaps[gaps <= gap].sum())
