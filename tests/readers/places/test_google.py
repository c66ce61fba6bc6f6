"""Google Cloud Storage, whose XML API lists and reads objects as S3 does: the store stands in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from image_files import npy
from servers.weed import OPEN, Weed

from readers import Index, NpyReader, ReadError
from readers.places.opener import Places
from readers.places.storage import Storage


def encoded(number: int) -> bytes:
    return npy(np.full((8, 9), number, np.float32))


@pytest.mark.parametrize("anonymous", [False, True])
def test_objects_are_listed_read_and_known_to_have_changed(
    weed: Weed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anonymous: bool
) -> None:
    account = {"gcs_base_url": f"http://127.0.0.1:{weed.s3_port}", "disable_oauth": True}
    unused = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    (tmp_path / "account.json").write_text(json.dumps(account | unused))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
    for number in range(3):
        weed.put(OPEN, f"google/{number} a%20.npy", encoded(number))
    storage = Storage(anonymous=anonymous, retries=1, timeout=20)
    index = Index.scan(f"gs://{OPEN}/google/", storage=storage)
    columns = index.columns().with_places(Places(storage))
    assert [index.path(row) for row in range(3)] == [
        f"gs://{OPEN}/google/{n} a%20.npy" for n in range(3)
    ]
    for row in range(3):
        assert (NpyReader().read(columns.row(row), None)["image"] == row).all()
    weed.put(OPEN, "google/1 a%20.npy", encoded(1) + b"more")
    with pytest.raises(ReadError, match="changed since"):
        NpyReader().read(columns.row(1), None)
