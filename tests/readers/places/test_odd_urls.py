"""Rows with URLs that are no objects of a store: no request is made, and no reader ends."""

from __future__ import annotations

import obstore
import pyarrow as pa
import pytest
from obstore.store import HTTPStore

from readers import FitsReader, Index, JpegReader, NpyReader, ReadError
from readers.contract import Reader
from readers.places.failures import StorageError, requesting
from readers.places.storage import Storage


@pytest.mark.parametrize("reader", [FitsReader(), JpegReader(), NpyReader()])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///archive/a.fits", "file:// .*expected s3, gs, http, https, or a path"),
        ("http://localhost:1/" + 70_000 * "a", "the URL has 70019 bytes, expected 16384 at most"),
    ],
)
def test_a_row_is_rejected(reader: Reader, url: str, reason: str) -> None:
    row = Index(pa.table({"path": [url]})).columns().row(0)
    with pytest.raises(ReadError, match=reason):
        reader.read(row, None)


def test_a_panic_of_obstore_is_an_error_of_storage() -> None:
    store, reason = HTTPStore("file:///archive"), r"PanicException: .*'file:///archive/a'"
    with pytest.raises(StorageError, match=reason), requesting("file:///archive/a", Storage()):
        obstore.get(store, "a")
