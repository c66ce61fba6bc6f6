"""Read the bytes of several chunks in steps, in each step those of all chunks at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.buffers import private
from readers.chunks.table import Stored
from readers.places.contract import Place
from readers.places.failures import NoBucketError
from readers.places.opener import Places
from readers.places.remote import RemotePlace
from readers.places.storage import Storage
from readers.places.threads import DaemonThreads


class Range(NamedTuple):
    """Bytes that a chunk needs."""

    key: str
    """Object below the path of the row; "" for the row's own file."""
    start: int
    """First byte; negative to count from the end."""
    stop: int | None
    """End; None for the end of the object. Ranges are clipped there."""
    least: int = 0
    """Minimum length of the object; a shorter object was cut off."""
    expected: int = 1
    """Bytes of the first request to a remote object whose length is unknown."""


Bytes = NDArray[np.uint8]
Steps = Generator[list[Range], list[Bytes | None], Any]
"""Generator that yields the ranges that it needs next, and returns the result. It is sent their
bytes, or None if an object is missing."""


_VERSIONS: dict[str, tuple[str | None, int]] = {}
"""ETag and length of chunks in remote stores, by URL; the cache finds their bytes by these."""
_MOST_VERSIONS = 1 << 16


def chunk_at(places: Places, path: str) -> Place:
    """Return the object of a chunk, in the version that this process met first."""
    etag, nbytes = (None, None) if places.cache is None else _VERSIONS.get(path, (None, None))
    return places.at(path, etag=etag, file_bytes=nbytes)


def read_bytes(
    stored: Stored, start: int, stop: int | None, *, least: int = 0, expected: int = 1
) -> Generator[list[Range], list[Bytes | None], Bytes | None]:
    """Read bytes of a chunk in one step; return None if its object is missing.

    Parameters
    ----------
    stored : Stored
        Where the chunk is.
    start, stop : int
        First byte and end, counted from the first byte of the chunk; None for its end.
    least, expected : int
        See `Range`.

    Raises
    ------
    ValueError
        If the object ends before.
    """
    if stored.content is not None:
        return np.frombuffer(stored.content, np.uint8)[start:stop]
    end = None if stop is None else stored.start + stop
    (content,) = yield [Range(stored.key, stored.start + start, end, least, expected)]
    if content is not None and stop is not None and len(content) < stop - start:
        raise ValueError(
            f"a chunk ends after {start + len(content)} bytes, expected at least {stop}"
        )
    return content


def together(readings: Sequence[Steps]) -> Steps:
    """Run several readings at the same time; return the list of what they return."""
    results: list[Any] = [None] * len(readings)
    answers: list[tuple[int, Any]] = [(number, None) for number in range(len(readings))]
    while True:
        asked: list[tuple[int, list[Range]]] = []
        for number, answer in answers:
            try:
                asked.append((number, readings[number].send(answer)))
            except StopIteration as end:
                results[number] = end.value
        if not asked:
            return results
        found = iter((yield [one for _, ranges in asked for one in ranges]))
        answers = [(number, list(islice(found, len(ranges)))) for number, ranges in asked]


def run(
    reading: Steps, open_place: Callable[[str], Place], storage: Storage | None
) -> tuple[Any, int]:
    """Run a reading to its end.

    Parameters
    ----------
    reading : Steps
        The steps.
    open_place : callable
        Function of a key that returns its place.
    storage : Storage, optional
        If the places are remote: several objects are requested at the same time.

    Returns
    -------
    result : Any
        What the reading returns.
    nbytes : int
        Bytes that were read.
    """
    places: dict[str, Place | None] = {}
    answer: Any = None
    total = 0
    with ExitStack() as stack:
        while True:
            try:
                ranges = reading.send(answer)
            except StopIteration as end:
                return end.value, total
            by_key: dict[str, list[int]] = {}
            for number, one in enumerate(ranges):
                by_key.setdefault(one.key, []).append(number)
            for key in by_key.keys() - places.keys():
                places[key] = _opened(open_place(key), stack)
            wanted = [(places[key], [ranges[n] for n in ns]) for key, ns in by_key.items()]
            answer = [None] * len(ranges)
            for numbers, contents in zip(by_key.values(), _read_each(wanted, storage), strict=True):
                for number, content in zip(numbers, contents or (), strict=contents is not None):
                    answer[number] = content
                    total += len(content)


def _opened(place: Place, stack: ExitStack) -> Place | None:
    """Return a place that is open until the stack is closed; None if there is none."""
    try:
        return stack.enter_context(place)
    except FileNotFoundError:
        return None


Wanted = tuple[Place | None, list[Range]]


def _read_each(wanted: list[Wanted], storage: Storage | None) -> list[list[Bytes] | None]:
    if storage is None or len(wanted) < 2:
        return [_read(one) for one in wanted]
    submit = _threads_of(storage).submit
    waiting = [submit(_read, one) for one in wanted]
    return [one.result() for one in waiting]


@lru_cache(maxsize=8)
def _threads_of(storage: Storage) -> DaemonThreads:
    """Return threads that read a chunk each; they wait for the threads that make its requests."""
    return DaemonThreads(storage.concurrency)


def _read(wanted: Wanted) -> list[Bytes] | None:
    """Return the bytes of ranges; None if the object is missing."""
    place, ranges = wanted
    if place is None:
        return None
    try:
        if isinstance(place, RemotePlace) and not place.is_known:
            if place.is_cached:  # it keeps the bytes of the next request, not of this one
                place.look(1)
                if len(_VERSIONS) >= _MOST_VERSIONS:
                    _VERSIONS.clear()
                _VERSIONS[place.name] = place.etag, place.nbytes
            elif (last := min(one.start for one in ranges)) < 0:
                place.look_at_end(-last)
            else:
                place.look(max(one.expected for one in ranges))
        nbytes, least = place.nbytes, max(one.least for one in ranges)
        if nbytes < least:
            raise ValueError(f"a chunk ends at {nbytes}, expected {least} bytes: {place.name!r}")
        pieces = []
        for one in ranges:
            start = max(0, nbytes + one.start) if one.start < 0 else min(one.start, nbytes)
            stop = nbytes if one.stop is None else max(start, min(one.stop, nbytes))
            pieces.append((start, private(stop - start)))
        place.read_many([(start, content.data) for start, content in pieces])
    except NoBucketError:
        raise
    except FileNotFoundError:
        return None
    return [content for _, content in pieces]
