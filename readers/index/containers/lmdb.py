"""Images in LMDB files: encoded images, or Caffe's Datum messages with encoded images.

The format is LMDB 0.9 on little-endian machines of 64 bits (mdb.c, "Page Handling"). A large value
has its own pages, and a small value is in the page of its key. Both are spans of the file, so
reader processes need no pages, and read remote files like local ones. The library lmdb is not
suitable: it cannot read remote files, it does not return positions, and a truncated file kills the
process (SIGBUS).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from readers.index.arrow import pa
from readers.index.containers.columns import Span, container_table, value_column
from readers.index.containers.formats import is_image
from readers.index.containers.protobuf import Field, fields, signed
from readers.index.skipped import Skipped
from readers.places.contract import Place

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_META = struct.Struct("<16x II 16x I 44x 4x H H 24x Q Q 8x Q")
"""Fields after the header of a meta page: magic number, version, size of pages; flags, depth,
entries and root of the database; number of the transaction."""
_HEADER = struct.Struct("<Q 2x H H H")
"""Number of a page, flags, begin and end of its free space."""
_NODE = struct.Struct("<H H H H")
"""In a leaf: low and high half of the size of the value, flags, size of the key. In a branch: low,
high and highest bits of the number of a page, size of the key."""
_BRANCH, _LEAF = 1, 2
_LARGE, _DATABASE, _DUPLICATES = 1, 2, 4
_NO_PAGE = 2**64 - 1
_DEEPEST = 32
_PAGE_SIZES = [1 << bits for bits in range(8, 17)]
_HEAD_BYTES = 64
"""Number of first bytes of a value, enough for the magic number of an image, or for the fields of a
Datum before its data."""
_DATA, _LABEL, _ENCODED = 4, 5, 7
"""Fields of a Datum; 1 to 3 are channels, height and width."""
_DATUM_BEGINS = b"\x08\x22"
"""First bytes of a Datum: the tag of its channels, or of its data. No image begins with them."""


class _Image(NamedTuple):
    span: Span
    label: int | None


def lmdb_table(place: Place, skipped: Skipped) -> pa.Table:
    """Return the table of a file, see `readers.index.table.Index.from_lmdb`."""
    keys: list[str] = []
    images: list[_Image] = []
    for found in Pages(place).values():
        spans = [span for _, span in found]
        heads = _read(place, [Span(s.offset, min(s.nbytes, _HEAD_BYTES)) for s in spans])
        for (key, span), head in zip(found, heads, strict=True):
            name = key.decode(errors="backslashreplace")
            try:
                image = _image(place, span, head)
            except ValueError as error:
                raise ValueError(f"{place.name}: key {name!r}: {error}") from error
            if image is None:
                skipped.add("values of LMDB that are not images", f"key {name} of {place.name}")
            else:
                keys.append(name)
                images.append(image)
    labels = [image.label for image in images]
    others = {"label": value_column(labels)} if any(label is not None for label in labels) else {}
    return container_table(place, [image.span for image in images], keys, others)


def _image(place: Place, span: Span, head: bytes) -> _Image | None:
    """Return the image of a value, and its label if it is a Datum; None if it is neither."""
    if is_image(head):
        return _Image(span, None)
    if not head or head[0] not in _DATUM_BEGINS:
        return None
    try:
        datum = _datum(place, span, head)
    except ValueError:
        return None
    data, label, is_encoded = None, None, False
    for field in datum:
        if field.number == _DATA:
            data = Span(span.offset + field.start, field.stop - field.start)
        elif field.number == _LABEL:
            label = signed(field.value)
        elif field.number == _ENCODED:
            is_encoded = bool(field.value)
    if data is None:
        return None
    if not is_encoded:
        raise ValueError(
            "a Datum with pixels that are not encoded: make the file again with "
            "convert_imageset --encoded"
        )
    return _Image(data, label)


def _datum(place: Place, span: Span, head: bytes) -> list[Field]:
    """Return the fields of a Datum. Only the bytes around its data are read."""
    found = []
    for field in fields(head, 0, span.nbytes):
        found.append(field)
        if field.stop > len(head):
            [tail] = _read(place, [Span(span.offset + field.stop, span.nbytes - field.stop)])
            after = fields(tail, 0, len(tail))
            found += [
                each._replace(start=each.start + field.stop, stop=each.stop + field.stop)
                for each in after
            ]
            break
    return found


def _read(place: Place, spans: Sequence[Span]) -> list[bytes]:
    buffers = [bytearray(span.nbytes) for span in spans]
    pieces = [
        (span.offset, memoryview(buffer)) for span, buffer in zip(spans, buffers, strict=True)
    ]
    place.read_many(pieces)
    return [bytes(buffer) for buffer in buffers]


class Meta(NamedTuple):
    """Meta page: commits write the first two pages of the file in turn."""

    page_bytes: int
    depth: int
    num_entries: int
    root: int
    transaction: int


class Pages:
    """The pages of an LMDB file as of its last commit.

    Raises
    ------
    ValueError
        If it is not such a file.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.meta = self._last_commit()

    def values(self) -> Iterator[list[tuple[bytes, Span]]]:
        """Yield keys and values in the order of the keys, a page at a time.

        Raises
        ------
        ValueError
            If the file is damaged, truncated or being written, or has several databases or several
            values of a key.
        """
        count = 0
        if self.meta.root != _NO_PAGE:
            for found in self._below([self.meta.root], self.meta.depth):
                count += len(found)
                yield found
        if self._last_commit() != self.meta:
            raise self._error("it was written to while it was read: wait until the write ends")
        if count != self.meta.num_entries:
            raise self._error(f"it is damaged: {count} of {self.meta.num_entries} entries found")

    def _last_commit(self) -> Meta:
        first = self._meta(0)
        metas = [first, first and self._meta(first.page_bytes)]
        if found := [meta for meta in metas if meta is not None]:
            return max(found, key=lambda meta: meta.transaction)
        raise self._error("it is not an LMDB file of version 0.9, from a machine of 64 bits")

    def _meta(self, start: int) -> Meta | None:
        content = self._place.read(start, start + _META.size)
        if len(content) < _META.size:
            return None
        magic, version, page_bytes, _, depth, count, root, transaction = _META.unpack(content)
        is_meta = (magic, version) == (_MAGIC, _VERSION) and page_bytes in _PAGE_SIZES
        return Meta(page_bytes, depth, count, root, transaction) if is_meta else None

    def _below(self, numbers: Sequence[int], depth: int) -> Iterator[list[tuple[bytes, Span]]]:
        """Yield the entries below pages of one level; leaves have depth 1."""
        if not 0 < depth <= _DEEPEST:
            raise self._error("it is damaged: its pages do not form a tree")
        for number, page in zip(numbers, self._read(numbers), strict=True):
            found, flags, lower, _ = _HEADER.unpack_from(page)
            expected = _LEAF if depth == 1 else _BRANCH
            if found != number or flags & (_LEAF | _BRANCH) != expected or lower > len(page):
                raise self._error(f"it is damaged: page {number} is not in its tree")
            nodes = struct.unpack_from(f"<{(lower - _HEADER.size) // 2}H", page, _HEADER.size)
            try:
                if depth == 1:
                    yield [self._entry(page, number, at) for at in nodes]
                else:
                    yield from self._below([_child(page, at) for at in nodes], depth - 1)
            except struct.error:
                raise self._error(f"it is damaged: an entry of page {number}") from None

    def _read(self, numbers: Sequence[int]) -> list[bytes]:
        size = self.meta.page_bytes
        content = bytearray(size * len(numbers))
        views = [memoryview(content)[at : at + size] for at in range(0, len(content), size)]
        for number in numbers:
            self._check(number * size, size)
        pieces = [(number * size, view) for number, view in zip(numbers, views, strict=True)]
        self._place.read_many(pieces)
        return [bytes(view) for view in views]

    def _entry(self, page: bytes, number: int, at: int) -> tuple[bytes, Span]:
        low, high, flags, key_bytes = _NODE.unpack_from(page, at)
        value = at + _NODE.size + key_bytes
        key, nbytes = page[at + _NODE.size : value], low | high << 16
        if flags & _DUPLICATES:  # many values of a key form another database
            raise self._error(f"key {key!r} has several values, expected one image")
        if flags & _DATABASE:
            raise self._error(
                f"{key!r} is a named database: copy its entries into an LMDB file without names"
            )
        start = self.meta.page_bytes * number + value
        if flags & _LARGE:
            start = self.meta.page_bytes * struct.unpack_from("<Q", page, value)[0] + _HEADER.size
        self._check(start, nbytes)
        return key, Span(start, nbytes)

    def _check(self, start: int, nbytes: int) -> None:
        stop, end = start + nbytes, self._place.nbytes
        if stop > end:
            raise self._error(f"it is cut off: an entry ends at {stop}, the file at {end}")

    def _error(self, reason: str) -> ValueError:
        return ValueError(f"{self._place.name}: {reason}")


def _child(page: bytes, at: int) -> int:
    low, high, highest, _ = _NODE.unpack_from(page, at)
    return int(low | high << 16 | highest << 32)
