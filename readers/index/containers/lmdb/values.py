"""Values of LMDB files: encoded images, or Caffe's Datum messages that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from readers.index.containers.columns import Span, container_table, value_column
from readers.index.containers.formats import is_image
from readers.index.containers.lmdb.pages import Pages
from readers.index.containers.protobuf import Field, fields, signed
from readers.index.skipped import Skipped

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.places.contract import Place

_HEAD_BYTES = 64
"""Begin of a value: the magic number of an image, or of a Datum what is before its data."""
_DATA, _LABEL, _ENCODED = 4, 5, 7
"""Fields of a Datum; 1 to 3 are channels, height and width."""
_DATUM_BEGINS = b"\x08\x22"
"""First bytes of a Datum: its channels or its data, which no format of images begins with."""


class _Image(NamedTuple):
    span: Span
    label: int | None


def lmdb_table(place: Place, left_out: Skipped) -> pa.Table:
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
                left_out.add("values of LMDB that are no images", f"key {name} of {place.name}")
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
    """Return the fields of a Datum. Only what is around its data is read."""
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
