"""Read a container from begin to end by few requests, without what is between its entries."""

from __future__ import annotations

from readers.places.contract import Place

_LARGE, _SMALL = 1 << 20, 8 << 10
"""Bytes that are read at a time: entries that are small lie next to each other, between large ones
only the headers are needed."""
_FAR = 64 << 10
"""A gap before the next bytes that is longer than this is not read."""
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
}


class Damage(ValueError):
    """An entry that cannot be read, so that those behind it cannot be found."""


class ForwardReader:
    """Reads ranges of a place; those near each other, in ascending order, take one request."""

    def __init__(self, place: Place) -> None:
        self.place, self.nbytes = place, place.nbytes
        self._start, self._window = 0, b""

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` up to `stop`, fewer only where the place ends."""
        at = start - self._start
        if at < 0 or stop > self._start + len(self._window):
            is_near = 0 <= at <= len(self._window) + _FAR
            kept = self._window[at:] if at >= 0 else b""
            begin = start + len(kept)
            end = min(begin + max(stop - begin, _LARGE if is_near else _SMALL), self.nbytes)
            self._window = kept + self.place.read(begin, end)
            self._start, at = start, 0
        return self._window[at : at + stop - start]

    def error(self, reason: str) -> ValueError:
        """Return an error that names the place."""
        return ValueError(f"{self.place.name}: {reason}")


def check_unpacked(reader: ForwardReader) -> None:
    """Raise ValueError, which says how to unpack it, for a compressed file."""
    begin = reader.read(0, 8)
    for magic, (name, command) in _COMPRESSED.items():
        if begin.startswith(magic):
            raise reader.error(
                f"it is compressed by {name}, so that nothing in it can be read alone: unpack it "
                f"by {command}"
            )
