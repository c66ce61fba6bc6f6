"""Places other than local files, for the suite of Readers: mixed in before it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from readers.contract import Row
from readers.places.opener import Places
from readers.places.storage import Storage

if TYPE_CHECKING:
    from servers.weed import Weed

_NUMBERS = count()


class OverS3:
    """Rows are objects of a bucket, each time new ones: readers keep what headers say."""

    missing = "there is no such object"

    @pytest.fixture(autouse=True)
    def _server(self, weed: Weed, s3_keys: None) -> None:
        self.weed = weed
        self.places = Places(Storage(endpoint=f"http://127.0.0.1:{weed.s3_port}"))

    def placed(self, row: Row) -> Row:
        path = Path(row.path)
        key = f"{next(_NUMBERS)}/{path.name}"
        exists = path.is_file()
        # Another object otherwise, as the bucket exists.
        self.weed.put("archive", key if exists else f"{key}2", path.read_bytes() if exists else b"")
        return replace(row, path=self.url(key), places=self.places)

    def url(self, key: str) -> str:
        """Return the URL of an object."""
        return f"s3://archive/{key}"


class OverHttp(OverS3):
    """Rows are files of a web server."""

    def url(self, key: str) -> str:
        return f"http://127.0.0.1:{self.weed.http_port}/buckets/archive/{key}"
