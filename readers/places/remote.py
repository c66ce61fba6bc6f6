"""RemotePlace: an object on S3, Google Cloud Storage or a web server, read by byte ranges."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from readers.fork_safe_lock import ForkSafeLock
from readers.places.contract import too_short
from readers.places.failures import ChangedError, ShortAnswerError, requesting
from readers.places.storage import Storage
from readers.places.stores import endpoint_of, slots_of, store_of, threads_of, waited
from readers.places.urls import check_object, located

if TYPE_CHECKING:
    from obstore import GetOptions

    from readers.places.cache.disk import DiskCache

_FIRST_BYTES = 128 << 10
"""Size of the first read of an object of unknown length."""
_GAP = 64 << 10
"""Largest gap, in bytes, between two ranges that are read by one request."""


class Traffic:
    """Counts the requests of this process, their bytes, and bytes from caches."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._counts = 0, 0, 0
        self.num_begun = 0
        """Number of requests that this process has ever begun."""

    def add(self, nbytes: int = 0, cached: int = 0, begun: int = 0) -> None:
        """Count bytes of answers, bytes from a cache, and requests that begin."""
        with self._lock:
            self.num_begun += begun
            self._counts = tuple(map(operator.add, self._counts, (begun, nbytes, cached)))

    def take(self) -> tuple[int, int, int]:
        """Return the numbers of requests, bytes, and bytes from caches; reset them to 0."""
        with self._lock:
            counts, self._counts = self._counts, (0, 0, 0)
        return counts


TRAFFIC = Traffic()


class RemotePlace:
    """An object of a store. Requests fail if the object is of another version.

    Parameters
    ----------
    url : str
        URL of the object.
    storage : Storage
        Settings of requests.
    etag : str, optional
        ETag of the object; by default from the first answer.
    nbytes : int, optional
        Length of the object; by default from the first answer.
    cache : DiskCache, optional
        Cache of its bytes on local disk.
    """

    __slots__ = ("_cache", "_etag", "_nbytes", "_parts", "_requested_bytes", "_storage", "name")

    def __init__(
        self,
        url: str,
        storage: Storage,
        etag: str | None = None,
        nbytes: int | None = None,
        cache: DiskCache | None = None,
    ) -> None:
        self.name, self._storage, self._cache = url, storage, cache
        self._etag, self._nbytes = etag or None, nbytes
        self._parts: list[tuple[int, memoryview]] = []
        self._requested_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.clear()

    @property
    def nbytes(self) -> int:
        """Length of the object."""
        if self._nbytes is None:
            self.look()
        assert self._nbytes is not None
        return self._nbytes

    @property
    def is_known(self) -> bool:
        """Whether the length is known, so that the first request can be for ranges."""
        return self._nbytes is not None

    @property
    def is_cached(self) -> bool:
        """Whether there is a cache. It keeps bytes of objects with a known version."""
        return self._cache is not None

    @property
    def stamp(self) -> Hashable | None:
        """URL, ETag and length; None if the server sends no ETag, or a weak one."""
        if self._nbytes is None:
            self.look()
        if self._version is None:
            return None
        return endpoint_of(self._storage), self.name, self._version, self._nbytes

    @property
    def etag(self) -> str | None:
        """ETag of the object, or a weak one from its modification time, or None."""
        if self._nbytes is None:
            self.look()
        return self._etag

    @property
    def _version(self) -> str | None:
        """The ETag, if it guarantees equal bytes (RFC 9110, section 8.8.1)."""
        return None if self._etag is None or self._etag.startswith("W/") else self._etag

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges concurrently, and keep them until the place is closed."""
        clipped = ((start, min(stop, self.nbytes)) for start, stop in ranges)
        missing = [(a, b) for a, b in clipped if len(self._held(a)) < b - a]
        buffers = [memoryview(bytearray(stop - start)) for start, stop in missing]
        pieces = [(start, buffer) for (start, _), buffer in zip(missing, buffers, strict=True)]
        self._fill(pieces)
        self._parts += pieces

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from `start` up to `stop`, fewer only at the end of the object."""
        stop = min(stop, self.nbytes)
        if start >= stop:
            return b""
        buffer = bytearray(stop - start)
        self.read_many([(start, memoryview(buffer))])
        return bytes(buffer)

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers concurrently, each from its own position. Raises as in `Place`."""
        missing = []
        for start, buffer in pieces:
            stop = start + len(buffer)
            if stop > self.nbytes:
                raise too_short(self.nbytes, len(buffer), start)
            held = self._held(start)[: len(buffer)]
            buffer[: len(held)] = held
            if len(held) < len(buffer):
                missing.append((start + len(held), buffer[len(held) :]))
        self._fill_near(missing)

    def _fill_near(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers, with one request for neighbouring ranges."""
        runs: list[list[tuple[int, memoryview]]] = []
        end = -1
        for start, buffer in sorted(pieces, key=operator.itemgetter(0)):
            if end < 0 or start > end + _GAP:
                runs.append([])
            end = max(end, start + len(buffer)) if runs[-1] else start + len(buffer)
            runs[-1].append((start, buffer))
        whole = [run[0] if len(run) == 1 else _joined(run) for run in runs]
        self._fill(whole)
        for run, (first, content) in zip(runs, whole, strict=True):
            for start, buffer in run if len(run) > 1 else ():
                buffer[:] = content[start - first : start - first + len(buffer)]

    def _held(self, start: int) -> memoryview:
        """Return the bytes in memory from `start` on; empty if there are none."""
        parts = (part[max(0, start - first) :] for first, part in self._parts if first <= start)
        return max(parts, key=len, default=memoryview(b""))

    def look(self, nbytes: int = _FIRST_BYTES) -> None:
        """Read the first bytes, and with them length and ETag."""
        self._parts.append((0, memoryview(waited(self._storage, self._request, 0, nbytes))))

    def look_at_end(self, nbytes: int) -> None:
        """Read the last bytes, at least one, and with them length and ETag."""
        content = memoryview(waited(self._storage, self._request, -nbytes, 0))
        self._parts.append((self.nbytes - len(content), content))

    def _fill(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        if not pieces:
            return
        if self._cache is not None and self._version is not None:
            before = self._requested_bytes
            key = " ".join((endpoint_of(self._storage), self.name, self._version))
            self._cache.fill(key, self.nbytes, pieces, self._requested)
            wanted = sum(len(buffer) for _, buffer in pieces)
            TRAFFIC.add(cached=max(0, wanted - (self._requested_bytes - before)))
            return
        ranges = [(start, start + len(buffer)) for start, buffer in pieces]
        for (_, buffer), content in zip(pieces, self._requested(ranges), strict=True):
            buffer[:] = content

    def _requested(self, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Request ranges concurrently."""
        self._requested_bytes += sum(stop - start for start, stop in ranges)
        if len(ranges) == 1:
            return [waited(self._storage, self._request, *ranges[0])]
        submit = threads_of(self._storage).submit
        waiting = [submit(self._request, start, stop) for start, stop in ranges]
        return [one.result() for one in waiting]

    def _request(self, start: int, stop: int) -> Any:
        """Request a range; repeat the request if the answer has too few bytes."""
        for _ in range(self._storage.retries):
            with suppress(ShortAnswerError):
                return self._answer(start, stop)
        return self._answer(start, stop)

    def _answer(self, start: int, stop: int) -> Any:
        """Request a range, and check that the answer is complete and of the right version.

        A negative `start` counts from the end, and `stop` is then ignored.
        """
        import obstore

        check_object(self.name)  # a table may hold any text
        root, key = located(self.name)
        options: GetOptions = {"range": (start, stop) if start >= 0 else {"suffix": -start}}
        if self._version is not None:
            options["if_match"] = self._version
        store = store_of(root, self._storage)
        TRAFFIC.add(begun=1)
        with requesting(self.name, self._storage), slots_of(self._storage):
            answer = obstore.get(store, key, options=options)
            content, meta = answer.bytes(), answer.meta
        TRAFFIC.add(len(content))
        etag, nbytes = meta["e_tag"] or _dated(meta["last_modified"]), meta["size"]
        self._etag = self._etag or etag
        self._nbytes = nbytes if self._nbytes is None else self._nbytes
        if (etag, nbytes) != (self._etag, self._nbytes):
            raise ChangedError(self.name)
        first, last = (start, stop) if start >= 0 else (max(0, nbytes + start), nbytes)
        if len(content) != min(last, nbytes) - first:
            raise ShortAnswerError(
                f"the server sent {len(content)} bytes, expected {min(last, nbytes) - first} from "
                f"{first}: {self.name!r}"
            )
        return content


def _dated(modified: datetime) -> str | None:
    """Return a time as a weak ETag (RFC 9110, section 8.8.2.2); None for 1970.

    obstore returns 1970 if the server sends no time.
    """
    return f'W/"{modified:%Y-%m-%dT%H:%M:%S}"' if modified.timestamp() > 0 else None


def _joined(run: Sequence[tuple[int, memoryview]]) -> tuple[int, memoryview]:
    """Return the first position of a sorted run of ranges, and a buffer for all of them."""
    first = run[0][0]
    stop = max(start + len(buffer) for start, buffer in run)
    return first, memoryview(bytearray(stop - first))
