"""Errors of our Readers name a file once: the system's own message, which names it, is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.weed import Weed

from readers import (
    AiaReader,
    ChannelsReader,
    FitsReader,
    JpegReader,
    NpyReader,
    Reader,
    ReadError,
    Row,
    Storage,
)
from readers.places.opener import LOCAL, Places

READERS = (AiaReader(), FitsReader(), JpegReader(), NpyReader())


def named(reader: Reader, path: str, places: Places = LOCAL) -> int:
    """Return how often the error of `read` names a file."""
    with pytest.raises(ReadError) as caught:
        reader.read(Row(0, path, places=places), None)
    return str(caught.value).count(path)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: type(reader).__name__)
def test_a_missing_file_and_a_folder(tmp_path: Path, reader: Reader) -> None:
    assert named(reader, str(tmp_path / "missing")) == named(reader, str(tmp_path)) == 1


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: type(reader).__name__)
def test_a_missing_object(weed: Weed, s3_keys: None, reader: Reader) -> None:
    places = Places(Storage(endpoint=f"http://127.0.0.1:{weed.s3_port}"))
    weed.put("archive", "other", b"")  # the bucket exists
    assert named(reader, "s3://archive/missing", places) == 1


def test_a_file_of_several(tmp_path: Path) -> None:
    path = str(tmp_path / "missing")
    row = Row(0, path, parts={"171": Row(0, path), "193": Row(0, path)})
    with pytest.raises(ReadError) as caught:
        ChannelsReader(NpyReader(), ("171", "193")).read(row, None)
    assert str(caught.value).count(path) == 1
