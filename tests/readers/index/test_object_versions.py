"""Versions of objects whose URLs are given, not listed: they are noted, and hold from then on."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from image_files import npy
from servers.proxy import Fault, Proxy
from servers.web import Web
from servers.weed import OPEN, Weed
from tar_files import packed

from readers import Index
from readers.places.cache.disk import DiskCache
from readers.places.failures import ChangedError
from readers.places.opener import Places
from readers.places.storage import Storage

OLD, NEW = b"old" * 1000, b"new" * 1000
STORAGE = Storage(retries=1, timeout=20)


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        yield server


def from_list(urls: list[str], folder: Path) -> Index:
    return Index.scan(urls, storage=STORAGE)


def from_catalogue(urls: list[str], folder: Path) -> Index:
    (folder / "urls.csv").write_text("\n".join(["path", *urls]))
    return Index.scan(folder / "urls.csv", storage=STORAGE)


def from_one(urls: list[str], folder: Path) -> Index:
    return Index.scan(urls[0], storage=STORAGE)


def later(urls: list[str], folder: Path) -> Index:
    return Index.from_paths(urls).with_versions(STORAGE)


def from_cutouts(urls: list[str], folder: Path) -> Index:
    images = pa.table({"path": urls, "height": [9] * len(urls), "width": [9] * len(urls)})
    objects = pa.table({"x": [4.0] * len(urls), "y": [4.0] * len(urls), "path": urls})
    return Index.cutouts(Index(images), objects, size=3, storage=STORAGE)


SOURCES = [from_list, from_catalogue, from_one, later, from_cutouts]


def content_of(index: Index, row: int = 0, cache: DiskCache | None = None) -> bytes:
    with index.columns().with_places(Places(STORAGE, cache)).row(row).place as place:
        return place.read(0, place.nbytes)


@pytest.mark.parametrize("source", SOURCES)
def test_an_object_of_another_version_is_rejected(
    web: Web, tmp_path: Path, source: Callable[[list[str], Path], Index]
) -> None:
    index = source([web.put("a.fits", OLD)], tmp_path)
    index.save(tmp_path / "index.arrow")
    assert content_of(Index.load(tmp_path / "index.arrow")) == OLD
    web.put("a.fits", NEW)
    with pytest.raises(ChangedError):
        content_of(Index.load(tmp_path / "index.arrow"))


def grouped(index: Index) -> Index:
    times = np.array(["2015-01-01"], "M8[ns]")
    return index.with_column("c", ["a"]).with_column("t", times).group(["a"], by="c", time="t")


MADE: dict[str, Callable[[Index], Index]] = {
    "group": grouped,
    "select": lambda index: index.select([0]),
    "where": lambda index: index.where("path <> ''"),
    "split": lambda index: index.split({"all": 1.0})["all"],
    "concat": lambda index: Index.concat([index, index]),
    "each_plane": lambda index: index.each_plane([1]),
    "each_window": lambda index: index.each_window(3, (9, 9)),
    "with_column": lambda index: index.with_column("label", [1]),
}


@pytest.mark.parametrize("how", MADE)
def test_an_index_made_from_another_keeps_the_versions(web: Web, tmp_path: Path, how: str) -> None:
    index = MADE[how](from_list([web.put("a.fits", OLD)], tmp_path))
    web.put("a.fits", NEW)
    row = index.columns(parts=index.parts).with_places(Places(STORAGE)).row(0)
    for part in (row, *row.parts.values()):
        assert part is not None
        with pytest.raises(ChangedError), part.place as place:
            place.read(0, place.nbytes)


@pytest.mark.parametrize("source", SOURCES)
def test_the_next_run_finds_it_in_the_cache(
    web: Web, tmp_path: Path, source: Callable[[list[str], Path], Index]
) -> None:
    index = source([web.put("a.fits", OLD)], tmp_path)
    assert content_of(index, cache=DiskCache(str(tmp_path / "cache"), 1 << 22)) == OLD
    web.paths.clear()
    assert content_of(index, cache=DiskCache(str(tmp_path / "cache"), 1 << 22)) == OLD
    assert not web.paths


def test_the_cache_has_the_bytes_of_each_version(web: Web, tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"), 1 << 22)
    assert len(OLD) == len(NEW)
    for content in (OLD, NEW, OLD):
        index = from_list([web.put("a.fits", content)], tmp_path)
        for _ in range(2):
            assert content_of(index, cache=cache) == content


@pytest.mark.parametrize("etag", ["weak", "none"])
def test_without_a_strong_etag_changes_are_seen_and_nothing_is_kept(
    web: Web, tmp_path: Path, etag: Any
) -> None:
    web.etag = etag
    index = from_list([web.put("a.fits", OLD)], tmp_path)
    for _ in range(2):
        assert content_of(index, cache=DiskCache(str(tmp_path / "cache"), 1 << 22)) == OLD
    assert len(web.paths) == 3
    web.put("a.fits", NEW)
    with pytest.raises(ChangedError):
        content_of(index)


def test_without_etag_and_time_another_length_is_seen(web: Web, tmp_path: Path) -> None:
    web.etag, web.is_dated = "none", False
    index = from_list([web.put("a.fits", OLD)], tmp_path)
    assert index.table["etag"].null_count == 1
    assert content_of(index) == OLD
    web.put("a.fits", NEW + b"er")
    with pytest.raises(ChangedError):
        content_of(index)


def test_objects_that_moved_or_are_gzipped(web: Web, tmp_path: Path) -> None:
    web.put("a.fits", OLD)
    packed = gzip.compress(OLD)
    index = from_list([web.url("moved/a.fits"), web.put("a.fits.gz", packed)], tmp_path)
    assert index.table["file_bytes"].to_pylist() == [len(OLD), len(packed)]
    assert [content_of(index, row) for row in range(2)] == [OLD, packed]
    web.put("a.fits", NEW)
    with pytest.raises(ChangedError):
        content_of(index)


def test_objects_of_s3_in_a_list(weed: Weed, s3_proxy: Proxy, tmp_path: Path) -> None:
    weed.put(OPEN, "versions/a", OLD)
    weed.put(OPEN, "versions/b", NEW)
    storage = Storage(endpoint=f"http://127.0.0.1:{s3_proxy.port}", anonymous=True)
    listed = Index.scan(f"s3://{OPEN}/versions/*", storage=storage)
    given = Index.scan(listed.table["path"].to_pylist(), storage=storage)
    assert given.table.equals(listed.table)


def test_masks_and_parts_have_versions_too(web: Web) -> None:
    old, new = web.put("old", OLD), web.put("new", NEW)
    columns = {"path": [old, "/a"], "path_b": [None, new], "mask_path": [new, "/b"]}
    index = Index(pa.table(columns)).with_versions(STORAGE)
    assert sorted(web.paths) == ["/new", "/old"]
    assert index.table["file_bytes"].to_pylist() == [len(OLD), None]
    assert index.table["file_bytes_b"].to_pylist() == [None, len(NEW)]
    places = Places(STORAGE)
    found = index.columns(parts=["b"], targets=["mask_path"]).with_places(places)

    def contents() -> Iterator[bytes]:
        part = found.row(1).parts["b"]
        assert part is not None
        for place in (found.place("mask_path", 0), part.place):
            assert place is not None
            with place:
                yield place.read(0, 9)

    assert [*contents()] == [NEW[:9]] * 2
    web.put("new", OLD)
    for number in range(2):
        reading = contents()
        with pytest.raises(ChangedError):
            [next(reading) for _ in range(number + 1)]


def test_known_versions_are_not_requested(web: Web) -> None:
    noted = from_list([web.put("a", OLD)], Path())
    assert noted.with_versions(STORAGE).table.equals(noted.table)
    other = Index.from_paths([web.put("b", NEW)])
    both = pa.concat_tables([noted.table, other.table], promote_options="default")
    assert Index(both).with_versions(STORAGE).table["file_bytes"].null_count == 0
    assert web.paths == ["/a", "/b"]


def test_objects_that_cannot_be_read_keep_their_rows(
    web: Web, http_proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    http_proxy.fault(Fault(hang=True))
    silent = f"http://127.0.0.1:{http_proxy.port}/a.fits"
    urls = [silent, web.url("missing.fits"), web.put("a.fits", OLD), "http://a.org/?b=1"]
    index = Index(pa.table({"path": urls})).with_versions(Storage(timeout=3))
    assert index.table["path"].to_pylist() == urls
    assert index.table["file_bytes"].to_pylist() == [None, None, len(OLD), None]
    assert "3 of 4 objects" in caplog.text
    http_proxy.stop()
    with pytest.raises(OSError, match="network"):
        Index.from_paths([silent]).with_versions(Storage(retries=0, timeout=1))


def test_columns_of_another_meaning_are_not_taken(web: Web) -> None:
    table = pa.table({"path": [web.put("a.fits", OLD)], "etag": ["my label"]})
    with pytest.raises(ValueError, match="rename 'etag'"):
        Index(table).with_versions(STORAGE)


def test_a_tar_of_another_version_is_rejected(web: Web) -> None:
    old, new = (packed([("a.npy", npy(np.full((8, 9), value)))]) for value in (1.0, 2.0))
    index = Index.scan([web.put("a.tar", old)], storage=STORAGE)
    content_of(index)
    web.put("a.tar", new)
    with pytest.raises(ChangedError):
        content_of(index)
