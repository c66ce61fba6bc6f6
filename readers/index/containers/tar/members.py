"""Members of tar files: ustar, GNU and pax, with long names and sizes of over 8 GiB."""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterator
from typing import NamedTuple

from readers.index.containers.forward import Damage, ForwardReader, check_unpacked

BLOCK = 512
_ZEROS = bytes(BLOCK)
_FILES, _WITHOUT_DATA, _SPARSE = b"07\0", b"123456", b"S"
_HARD_LINK, _LINKS = b"1", b"12"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL = b"L", b"K", b"x", b"g"
_LONGEST = 1 << 20
"""Bytes of a long name or of pax records; more is damage."""
_AFTER_END = 64 << 10
"""Bytes after the end mark that must be zeros: tar writes at most 10 KiB of them."""


class Member(NamedTuple):
    """A file in a tar."""

    name: str
    offset: int
    """Its first byte in the tar."""
    nbytes: int


class Link(NamedTuple):
    """A link in a tar."""

    name: str
    target: str
    """Name of the member that it stands for, if that is in the tar."""


def members(
    reader: ForwardReader, start: int = 0, links: list[Link] | None = None
) -> Iterator[Member]:
    """Yield the files of a tar; folders, links and devices are left out.

    Parameters
    ----------
    reader : ForwardReader
        The tar.
    start : int
        Position of the header to begin with.
    links : list of Link, optional
        To append links to.

    Raises
    ------
    Damage
        If it is damaged or cut off, after the members before that.
    ValueError
        If it is not a tar, or compressed, or a member is sparse.
    """
    if start == 0:
        check_unpacked(reader)
    of_all: dict[bytes, bytes] = {}
    of_next: dict[bytes, bytes] = {}
    at = start
    while (header := reader.read(at, at + BLOCK)) != _ZEROS:
        kind, nbytes, name = _parsed(reader, at, header)
        data = at + BLOCK
        if kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL):
            content = _content(reader, data, nbytes)
            if kind == _LONG_NAME:
                of_next[b"path"] = content.partition(b"\0")[0]
            elif kind == _LONG_LINK:
                of_next[b"linkpath"] = content.partition(b"\0")[0]
            elif kind == _PAX:
                of_next |= _records(data, content)
            elif kind == _PAX_OF_ALL:
                of_all |= _records(data, content)
        else:
            found = of_all | of_next
            if found:
                name = found.get(b"path", name)
                nbytes = _decimal(at, found[b"size"]) if b"size" in found else nbytes
                if any(key.startswith(b"GNU.sparse.") for key in found):
                    kind = _SPARSE
            of_next = {}
            if kind == _SPARSE:
                raise reader.error(f"{text(name)!r} is sparse: pack it by tar without --sparse")
            if kind in _WITHOUT_DATA:
                nbytes = 0
            if data + nbytes > reader.nbytes:
                raise _cut(reader, f"{text(name)!r} ends at {data + nbytes}")
            if links is not None and kind in _LINKS:
                links.append(_link(kind, name, found.get(b"linkpath", header[157:257])))
            if kind in _FILES and not name.endswith(b"/"):
                yield Member(text(name), data, nbytes)
        at = data + -(-nbytes // BLOCK) * BLOCK
    if reader.read(at, min(at + _AFTER_END, reader.nbytes)).strip(b"\0"):
        raise reader.error(
            f"it goes on after its end mark at {at}, as where tars were joined by cat: join them "
            "by tar --concatenate"
        )


def _link(kind: bytes, name: bytes, target: bytes) -> Link:
    """Return a link; a hard one names a member, a symbolic one a path beside its own."""
    named = text(target.partition(b"\0")[0])
    folder = "" if kind == _HARD_LINK else posixpath.dirname(text(name))
    return Link(text(name), posixpath.normpath(posixpath.join(folder, named)))


def text(name: bytes) -> str:
    """Return a name as text that any Index can hold."""
    return name.decode(errors="backslashreplace")


def _parsed(reader: ForwardReader, at: int, header: bytes) -> tuple[bytes, int, bytes]:
    """Return type, size and name of a header; ValueError if it is none."""
    if len(header) < BLOCK:
        raise _cut(reader, f"a header or the end mark is expected at {at}")
    field = header[148:156].strip(b" \0")
    # The checksum is of the header with spaces in its own field.
    if not _is_octal(field) or int(field, 8) != sum(header) - sum(header[148:156]) + 256:
        if at == 0:
            raise reader.error("it is not a tar: it begins with no header")
        raise Damage(f"it is damaged: expected the header of a member at {at}")
    name = header[:100].partition(b"\0")[0]
    if header[257:263] == b"ustar\0" and header[345]:
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    return header[156:157], _size(at, header[124:136]), name


def _size(at: int, field: bytes) -> int:
    if field[0] == 0x80:  # binary, as from 8 GiB on
        return struct.unpack(">Q", field[4:])[0]
    digits = field.strip(b" \0") or b"0"  # GNU tar gives the label of a volume no size
    if not _is_octal(digits):
        raise Damage(f"the header at {at} has a damaged size, {field!r}")
    return int(digits, 8)


def _is_octal(digits: bytes) -> bool:
    return digits.isdigit() and b"8" not in digits and b"9" not in digits


def _decimal(at: int, digits: bytes) -> int:
    if not digits.isdigit():
        raise Damage(f"pax records before {at} have a damaged number, {digits!r}")
    return int(digits)


def _content(reader: ForwardReader, at: int, nbytes: int) -> bytes:
    if nbytes > _LONGEST:
        raise Damage(f"it is damaged: the name or pax records at {at} have {nbytes} bytes")
    content = reader.read(at, at + nbytes)
    if len(content) < nbytes:
        raise _cut(reader, f"a name or pax records end at {at + nbytes}")
    return content


def _records(at: int, content: bytes) -> dict[bytes, bytes]:
    """Return pax records: their length with the line break, a space, key=value, a line break."""
    found = {}
    start = 0
    while start < len(content) and content[start]:
        length, space, _ = content[start : start + 20].partition(b" ")
        stop = start + (_decimal(at, length) if space else 0)
        record = content[start + len(length) + 1 : stop]
        key, equals, value = record.partition(b"=")
        if stop > len(content) or not (equals and value.endswith(b"\n")):
            raise Damage(f"it is damaged: the pax records at {at} have no key or end")
        found[key] = value[:-1]
        start = stop
    return found


def _cut(reader: ForwardReader, expected: str) -> Damage:
    return Damage(f"it is cut off or still written: {expected}, the file at {reader.nbytes}")
