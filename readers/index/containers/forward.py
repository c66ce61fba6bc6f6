"""Read the entries of a container from start to end, by few requests."""

from __future__ import annotations

from readers.places.contract import Place

_LARGE, _SMALL = 1 << 20, 8 << 10
"""Bytes of a read: _LARGE near the previous read, as small entries are close together; _SMALL after
a gap, as only the headers of large entries are needed."""
_FAR = 64 << 10
"""Largest gap, in bytes, after which a read is near the previous one."""
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
}


class Damage(ValueError):
    """A damaged entry, which hides the entries after it."""


class ForwardReader:
    """Reads ranges of a place in ascending order, with one request for neighbouring ranges."""

    def __init__(self, place: Place) -> None:
        self.place, self.nbytes = place, place.nbytes
        self._start, self._window = 0, b""

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` up to `stop`; fewer only at the end of the place."""
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
    """Raise ValueError for a compressed file, with the command that unpacks it."""
    begin = reader.read(0, 8)
    for magic, (name, command) in _COMPRESSED.items():
        if begin.startswith(magic):
            raise reader.error(
                f"it is compressed by {name}, and single entries cannot be read: unpack it with "
                f"{command}"
            )
