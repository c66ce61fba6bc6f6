"""Zarr in buckets and on web servers: values, requests, and what goes out at the same time."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.codecs
from servers.proxy import Fault, Proxy
from servers.weed import Weed
from zarr_stores import BLOSC, frames, write_array

from readers import Index, ReadError, Window
from readers.chunks.reader import ChunkedReader
from readers.contract import Row
from readers.places.cache.disk import LEAST, DiskCache
from readers.places.opener import Places

NUMBERS = count()
ARRAY = frames((6, 200, 150))
NOISE = np.random.default_rng(0).normal(size=(4, 512, 512)).astype(np.float32)
WINDOW = Window(height=70, width=60, y=0.6, x=0.5)
SHARDED = {
    "zarr_format": 3,
    "shards": (3, 256, 256),
    "compressors": zarr.codecs.BloscCodec(cname="zstd", clevel=1, shuffle="shuffle"),
}
STORES: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
    "v2": (ARRAY, (2, 64, 64), {"compressors": BLOSC}),
    "v3": (ARRAY, (2, 64, 64), {"zarr_format": 3}),
    "sharded": (NOISE, (1, 64, 64), SHARDED),
}


@pytest.fixture(autouse=True)
def proxy(s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_proxy.port}")
    return s3_proxy


def uploaded(weed: Weed, folder: Path) -> str:
    """Copy a store to the bucket; return its path there."""
    prefix = f"{next(NUMBERS)}/{folder.name}"
    for file in folder.rglob("*"):
        if file.is_file():
            weed.put("archive", f"{prefix}/{file.relative_to(folder)}", file.read_bytes())
    return prefix


def rows(index: Index) -> tuple[ChunkedReader, list[Row]]:
    columns = index.columns(notes=["chunks"])
    reader = ChunkedReader((Path(index.path(0)).name,))
    return reader, [columns.row(number) for number in range(len(index))]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_values(weed: Weed, tmp_path: Path, kind: str, scheme: str) -> None:
    array, chunks, settings = STORES[kind]
    prefix = uploaded(weed, write_array(tmp_path / "a", array, chunks, **settings))
    begin = (
        "s3://archive" if scheme == "s3" else f"http://127.0.0.1:{weed.http_port}/buckets/archive"
    )
    reader, made = rows(Index.from_zarr(f"{begin}/{prefix}"))
    assert len(made) == len(array)
    for number, row in enumerate(made):
        np.testing.assert_array_equal(reader.read(row, None)["image"][0], array[number])
    y, x = WINDOW.place(*array.shape[1:])
    found = reader.read(made[1], WINDOW)["image"][0]
    np.testing.assert_array_equal(found, array[1, y : y + 70, x : x + 60])


def test_a_group_without_consolidated_metadata_is_listed(weed: Weed, tmp_path: Path) -> None:
    group = zarr.create_group(str(tmp_path / "g"), zarr_format=3)
    for name in ("one", "two"):
        group.create_array(name, shape=(3, 9, 8), dtype="f4", chunks=(1, 9, 8))
    index = Index.from_zarr(f"s3://archive/{uploaded(weed, tmp_path / 'g')}")
    assert ChunkedReader(("one", "two")).read(index.columns(notes=["chunks"]).row(0), None)


@pytest.mark.parametrize(("kind", "steps"), [("v2", [4]), ("v3", [4]), ("sharded", [1, 4])])
def test_requests_go_out_together(
    weed: Weed, proxy: Proxy, tmp_path: Path, kind: str, steps: list[int]
) -> None:
    array, chunks, settings = STORES[kind]
    prefix = uploaded(weed, write_array(tmp_path / "a", array, chunks, **settings))
    reader, made = rows(Index.from_zarr(f"s3://archive/{prefix}"))
    reader.read(made[0], WINDOW)  # the metadata are compared once
    proxy.clear()
    # 4 chunks, of one shard or not: none waits for the answer of another.
    window = Window.at(30, 30, 64, 64, image=array.shape[1:])
    if kind != "sharded":
        proxy.fault(Fault(before=Barrier(steps[0], timeout=20).wait))
    sample = reader.read(made[1], window)
    assert len(proxy.requests) <= sum(steps)
    sent = sum(request.nbytes for request in proxy.requests)
    between = 64 << 10 if kind == "sharded" else 0  # chunks near each other come by one request
    assert sent <= 1.1 * sample.input_bytes + 1000 + between
    np.testing.assert_array_equal(sample["image"][0], array[1, 30:94, 30:94])


def test_a_frame_of_a_large_chunk(weed: Weed, proxy: Proxy, tmp_path: Path) -> None:
    array = np.random.default_rng(1).normal(size=(16, 256, 256)).astype(np.float32)
    prefix = uploaded(weed, write_array(tmp_path / "a", array, array.shape, compressors=BLOSC))
    reader, made = rows(Index.from_zarr(f"s3://archive/{prefix}"))
    reader.read(made[0], WINDOW)
    proxy.clear()
    sample = reader.read(made[9], None)
    np.testing.assert_array_equal(sample["image"][0], array[9])
    assert len(proxy.requests) == 2  # the positions of the blocks, and two of these
    assert sum(request.nbytes for request in proxy.requests) < 0.2 * array.nbytes


def test_a_store_that_is_gone(weed: Weed, tmp_path: Path) -> None:
    folder = write_array(tmp_path / "a", ARRAY, (2, 64, 64))
    prefix = uploaded(weed, folder)
    reader, made = rows(Index.from_zarr(f"s3://archive/{prefix}"))
    for file in folder.rglob("*"):
        if file.is_file():
            weed.delete("archive", f"{prefix}/{file.relative_to(folder)}")
    with pytest.raises(ReadError, match="no such object"):
        reader.read(made[0], None)


@pytest.mark.parametrize("kind", STORES)
def test_a_cache_keeps_the_bytes_of_chunks(
    weed: Weed, proxy: Proxy, tmp_path: Path, kind: str
) -> None:
    array, chunks, settings = STORES[kind]
    prefix = uploaded(weed, write_array(tmp_path / "a", array, chunks, **settings))
    columns = Index.from_zarr(f"s3://archive/{prefix}").columns(notes=["chunks"])
    cache = DiskCache(str(tmp_path / "cache"), LEAST)
    row = columns.with_places(Places(cache=cache)).row(1)
    reader = ChunkedReader(("a",))
    for epoch in range(2):
        proxy.clear()
        np.testing.assert_array_equal(reader.read(row, None)["image"][0], array[1])
        assert bool(proxy.requests) is (epoch == 0)
