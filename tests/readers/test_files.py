"""Files that are not regular: no Reader may wait for them, or take them for images."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from readers import FitsReader, JpegReader, NpyReader, ReadError, Row
from readers.aia.tables import TableFile

READERS = [FitsReader, JpegReader, NpyReader]


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("make", "kind"), [(os.mkfifo, "a FIFO"), (os.mkdir, "a directory"), (bound, "a socket")]
)
def test_fifos_folders_and_sockets_are_refused(
    tmp_path: Path, reader: Callable[[], Any], make: Callable[[Path], None], kind: str
) -> None:
    path = tmp_path / "a"
    make(path)
    reason = "No such device" if kind == "a socket" else f"{kind}, expected a file"
    ways: list[Callable[[Row], Any]]
    ways = [lambda row: reader().read(row, None), lambda row: reader().peek(row, None)]
    for way in ways:
        with pytest.raises(ReadError, match=reason):
            way(Row(0, str(path)))


def test_a_folder_instead_of_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"directory.*{tmp_path}"):
        TableFile.read(tmp_path)
