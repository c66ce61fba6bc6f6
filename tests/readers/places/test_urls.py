"""Names of objects: as they are in s3:// and gs://, without percent-encoding in http://.

What a real store makes of them is in tests/readers/index/test_objects.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from servers.web import Web

from readers import Index
from readers.places.opener import Places
from readers.places.remote import RemotePlace
from readers.places.storage import Storage

NAMES = [
    *("a b.fits", "a%20b.fits", "a%2520b.fits", "a+b.fits", "a%2Bb.fits", "100%.fits"),
    *("ü.fits", "%C3%BC.fits", "a%3Fb.fits", "a%23b.fits", "a%5Bb.fits", "x%20y/a.fits"),
]


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        yield server


@pytest.fixture
def storage(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    account = {"gcs_base_url": web.url("")[:-1], "disable_oauth": True}
    unused = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    (tmp_path / "account.json").write_text(json.dumps(account | unused))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
    return Storage(endpoint=web.url("")[:-1], anonymous=True, retries=0, timeout=20)


@pytest.mark.parametrize("scheme", ["s3", "gs", "http"])
def test_the_object_of_that_name_is_requested(web: Web, storage: Storage, scheme: str) -> None:
    bucket = web.url("bucket") if scheme == "http" else f"{scheme}://bucket"
    index = Index.from_paths([f"{bucket}/{name}" for name in NAMES])
    columns = index.columns().with_places(Places(storage))
    for row, name in enumerate(NAMES):
        web.paths.clear()
        with columns.row(row).place as place, pytest.raises(FileNotFoundError):
            place.read(0, 1)
        key = unquote(name) if scheme == "http" else name
        assert [unquote(path) for path in web.paths] == [f"/bucket/{key}"], name


@pytest.mark.parametrize(
    "url",
    [
        *("s3://bucket//a.fits", "gs://bucket//a.fits", "s3://bucket/a.fits/", "{web}//a.fits"),
        *("{web}/a.fits/", "{web}/b%2Fa.fits", "{web}/b%2fa.fits", "{web}/%FFa.fits"),
    ],
)
def test_no_other_object_is_requested(web: Web, storage: Storage, url: str) -> None:
    url = url.format(web=web.url("")[:-1])
    row = Index.from_paths([url]).columns().with_places(Places(storage)).row(0)
    with row.place as place, pytest.raises(ValueError, match=r"a\.fits.*slash|a\.fits.*UTF-8"):
        place.read(0, 1)
    assert not web.paths


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize(
    ("named", "folder"), [("x%20 y/a%2Fb", "x%20 y/a%2Fb/"), ("x%20/y%25/*%20.fits", "x%20/y%25/")]
)
def test_the_folder_of_that_name_is_listed(
    web: Web, storage: Storage, scheme: str, named: str, folder: str
) -> None:
    with pytest.raises(OSError, match="404"):
        Index.scan(f"{scheme}://bucket/{named}", storage=storage)
    (path,) = web.paths
    assert parse_qs(urlsplit(path).query)["prefix"] == [folder]


def test_a_stamp_tells_objects_and_their_versions_apart() -> None:
    """What readers have found in a file is kept by its stamp."""
    known = {
        RemotePlace(url, Storage(endpoint=endpoint), etag, nbytes).stamp
        for url in ("s3://a/b.fits", "s3://a/c.fits")
        for endpoint in ("https://a.org", "https://b.org")
        for etag in ('"1"', '"2"')
        for nbytes in (5, 6)
    }
    assert len(known) == 16
    assert RemotePlace("s3://a/b.fits", Storage(endpoint="https://a.org"), '"1"', 5).stamp in known
    assert RemotePlace("s3://a/b.fits", Storage(), 'W/"1"', 5).stamp is None
