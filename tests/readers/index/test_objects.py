"""Index.scan of a real store of objects."""

from __future__ import annotations

from glob import glob
from hashlib import md5
from pathlib import Path

import pytest
from servers.proxy import Fault, Proxy
from servers.weed import OPEN, Weed

from readers import Index
from readers.places.opener import Places
from readers.places.storage import Storage
from readers.places.stores import credentials_of

NAMES = ["b.npy", "a b.npy", "a+b.npy", "a%20b.npy", "ü.npy", "a#b.npy", "a?b.npy", "100%.npy"]
"""Of objects in the folder ``names``, whose contents are their names."""


@pytest.fixture(scope="module")
def archive(weed: Weed) -> Weed:
    for name in NAMES:
        weed.put(OPEN, f"scan/names/{name}", name.encode())
    weed.put(OPEN, "scan/names/notes.txt", b"no image")
    weed.put(OPEN, "scan/names_too/c.npy", b"c")
    weed.put(OPEN, "scan/deep/er/d.fits", b"d")
    weed.put(OPEN, "hidden/.old/a.npy", b"a")
    weed.put(OPEN, "hidden/._b.npy", b"b")
    weed.put(OPEN, "hidden/c.npy", b"c")
    return weed


@pytest.fixture
def storage(archive: Weed, s3_proxy: Proxy) -> Storage:
    return Storage(endpoint=f"http://127.0.0.1:{s3_proxy.port}", anonymous=True, retries=1)


def test_objects_below_a_prefix(storage: Storage) -> None:
    index = Index.scan(f"s3://{OPEN}/scan/names/", storage=storage)
    found = index.table.to_pydict()
    assert sorted(found["path"]) == sorted(f"s3://{OPEN}/scan/names/{name}" for name in NAMES)
    assert found["path"] == sorted(found["path"], key=lambda path: path.encode())
    contents = [path.rpartition("/")[2].encode() for path in found["path"]]
    assert found["file_bytes"] == [len(content) for content in contents]
    assert found["etag"] == [f'"{md5(content).hexdigest()}"' for content in contents]


def test_hidden_objects_are_left_out_below_what_is_named(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    def found(name: str) -> list[str]:
        paths = Index.scan(f"s3://{OPEN}/{name}", storage=storage).table["path"].to_pylist()
        return [path.removeprefix(f"s3://{OPEN}/hidden/") for path in paths]

    assert found("hidden") == found("hidden/**") == ["c.npy"]
    assert len(caplog.messages) == 1
    assert "left out: 2 " in caplog.text
    assert found("hidden/.old/") == found("hidden/.*/*") == [".old/a.npy"]
    assert found("hidden/._b.npy") == found("hidden/.*") == ["._b.npy"]
    assert len(caplog.messages) == 1


def test_objects_are_read_as_they_are_named(storage: Storage) -> None:
    index = Index.scan(f"s3://{OPEN}/scan/names/", storage=storage)
    columns = index.columns().with_places(Places(storage))
    for number in range(len(index)):
        row = columns.row(number)
        with row.place as place:
            assert place.read(0, 99) == row.path.rpartition("/")[2].encode()
    for name in NAMES:  # as users name them
        with Places(storage).at(f"s3://{OPEN}/scan/names/{name}") as place:
            assert place.read(0, 99) == name.encode()


@pytest.mark.parametrize(
    ("prefix", "count"),
    [("scan", len(NAMES) + 2), ("scan/", len(NAMES) + 2), ("scan/names", len(NAMES))],
)
def test_a_prefix_is_a_folder(storage: Storage, prefix: str, count: int) -> None:
    assert len(Index.scan(f"s3://{OPEN}/{prefix}", storage=storage)) == count


def test_one_object(storage: Storage) -> None:
    index = Index.scan(f"s3://{OPEN}/scan/deep/er/d.fits", storage=storage)
    assert index.table["path"].to_pylist() == [f"s3://{OPEN}/scan/deep/er/d.fits"]
    assert index.table["file_bytes"].to_pylist() == [1]


def test_the_environment_of_a_public_bucket(
    archive: Weed, s3_keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For programs that have no settings of storage."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{archive.s3_port}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    url = f"s3://{OPEN}/scan/deep/er/d.fits"
    with pytest.raises(OSError, match="access is denied"):
        Index.scan(url)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert len(Index.scan(url)) == 1
    assert "anonymous" in str(credentials_of(url, Storage()))


def test_one_file_of_a_web_server(archive: Weed) -> None:
    url = f"http://127.0.0.1:{archive.http_port}/buckets/{OPEN}/scan/names/a%20b.npy"
    index = Index.scan(url)
    assert index.table["path"].to_pylist() == [url]
    with index.columns().row(0).place as place:
        assert place.read(0, 99) == b"a b.npy"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"s3://{OPEN}/nothing/", "no such object or folder"),
        (f"s3://{OPEN}/scan/names/[b].npy", r"patterns.*\*.*\{0..9\}"),
        (f"s3://{OPEN}/scan/deep/er/other.fits", "no such object"),
        (f"s3://{OPEN}/scan/*.npy", "no object matches"),
        ("s3://nowhere/scan/", "access is denied"),
        ("s3://archive/scan/", "access is denied"),
    ],
)
def test_urls_that_cannot_be_listed(storage: Storage, url: str, words: str) -> None:
    with pytest.raises(OSError, match=words) as caught:
        Index.scan(url, storage=storage)
    assert str(caught.value).count(url) == 1


def test_names_that_the_client_does_not_list(storage: Storage, s3_proxy: Proxy) -> None:
    """The error says which object keeps the others from being listed."""
    text = "<Contents><Key>{}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
    keys = "".join(text.format(key) + "</Contents>" for key in ("a/b.npy", "a//c.npy"))
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>"
    s3_proxy.fault(Fault(status=200, body=body.encode()))
    with pytest.raises(OSError, match=r'rename "a//c.npy"'):
        Index.scan(f"s3://{OPEN}/a/", storage=storage)


def test_a_listing_that_fails(storage: Storage, s3_proxy: Proxy) -> None:
    s3_proxy.fault(Fault(status=503), times=1)
    assert len(Index.scan(f"s3://{OPEN}/scan/", storage=storage)) == len(NAMES) + 2
    s3_proxy.fault(Fault(status=503))
    with pytest.raises(OSError, match="503"):
        Index.scan(f"s3://{OPEN}/scan/", storage=storage)


@pytest.mark.parametrize("folder", ["/", "", "/buckets/open/scan/"])
def test_a_folder_of_a_web_server(archive: Weed, folder: str) -> None:
    with pytest.raises(ValueError, match=r"web server.*URLs"):
        Index.scan(f"http://127.0.0.1:{archive.http_port}{folder}")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("scan/*/c.npy", ["scan/names_too/c.npy"]),
        ("scan/**/*.fits", ["scan/deep/er/d.fits"]),
        ("scan/names/*.txt", ["scan/names/notes.txt"]),
        ("scan/names/a?b*", ["scan/names/a?b.npy"]),
        ("scan/*_too/*", ["scan/names_too/c.npy"]),
        ("scan/names/1{00..00}%.npy", ["scan/names/100%.npy"]),
        ("scan/names/a%20*", ["scan/names/a%20b.npy"]),
        ("scan/names/a b.np*", ["scan/names/a b.npy"]),
    ],
)
def test_patterns(storage: Storage, pattern: str, found: list[str]) -> None:
    index = Index.scan(f"s3://{OPEN}/{pattern}", storage=storage)
    assert index.table["path"].to_pylist() == [f"s3://{OPEN}/{name}" for name in found]


@pytest.mark.parametrize(
    "pattern",
    ["**/*.jpg", "*/*.jpg", ".*/*.jpg", "*/.*.jpg", "cat/.old/*.jpg", "**/.old/*", "c*/*"],
)
def test_patterns_match_as_globs_do(
    archive: Weed, storage: Storage, tmp_path: Path, pattern: str
) -> None:
    for name in (".ipynb/a.jpg", "cat/._a.jpg", "cat/.old/a.jpg", "cat/a.jpg", "dog/a.jpg"):
        archive.put(OPEN, f"globs/{name}", b"image")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    files = [
        name for name in glob(pattern, root_dir=tmp_path, recursive=True) if name[-3:] == "jpg"
    ]
    index = Index.scan(f"s3://{OPEN}/globs/{pattern}", storage=storage)
    assert index.table["path"].to_pylist() == [
        f"s3://{OPEN}/globs/{name}" for name in sorted(files)
    ]


def test_an_index_file_must_be_local(storage: Storage) -> None:
    with pytest.raises(ValueError, match=r"s3://open/index.parquet.*copy it"):
        Index.scan(f"s3://{OPEN}/index.parquet", storage=storage)
