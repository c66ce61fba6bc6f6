"""Loaders of objects on S3 and web servers: the pixels and rows of files."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from astropy.io import fits
from servers.proxy import Fault, Proxy
from servers.web import Web
from servers.weed import SECRET_KEY, Weed

from dali_pipelines import (
    Index,
    Loader,
    PipelineConfig,
    fits_pipeline,
    reader_pipeline,
    with_keys,
    with_tiles,
)
from dali_pipelines.cli.main import main as command
from readers import FitsReader, Peek, ReadError, Row, Window
from readers.places.storage import Storage

FRAMES, SIZE = 10, 96


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RICE_1 and plain images; the number of each is in its pixels."""
    folder = tmp_path_factory.mktemp("frames")
    noise = np.random.default_rng(0).integers(0, 30, (SIZE, SIZE), np.int16)
    for number in range(FRAMES):
        pixels = noise + np.int16(100 * number)
        hdu = fits.CompImageHDU(pixels) if number % 3 else fits.PrimaryHDU(pixels)
        hdu.writeto(folder / f"{number}.fits")
    return folder


@pytest.fixture(scope="module")
def bucket(weed: Weed, frames: Path) -> str:
    for path in frames.iterdir():
        weed.put("frames", f"a b/{path.name}", path.read_bytes())
    return "s3://frames/a b/"


def storage_of(proxy: Proxy, **settings: Any) -> Storage:
    return Storage(endpoint=f"http://127.0.0.1:{proxy.port}", timeout=20.0, **settings)


def made(index: Index, **settings: Any) -> Loader:
    defaults: dict[str, Any] = {"batch_size": 4, "crop": 32, "window": "random", "seed": 5}
    devices: list[int | None] = [None]
    return Loader(fits_pipeline, index, devices=devices, **(defaults | settings))


def batches(loader: Loader) -> Iterator[tuple[list[int], torch.Tensor]]:
    for (batch,) in loader:
        yield batch["row"].tolist(), batch["image"].clone()


@pytest.mark.parametrize("cached", [False, True])
def test_samples_of_s3_are_those_of_files(
    bucket: str, frames: Path, s3_proxy: Proxy, tmp_path: Path, cached: bool
) -> None:
    storage = storage_of(s3_proxy)
    index = Index.scan(bucket, storage=storage)
    assert [Path(index.path(row)).name for row in range(FRAMES)] == sorted(
        path.name for path in frames.iterdir()
    )
    settings: dict[str, Any] = {"storage": storage, "num_read_processes": 2}
    if cached:
        settings |= {"cache": str(tmp_path / "cache"), "cache_bytes": 1 << 26}
    with made(Index.scan(frames), num_read_processes=1) as loader:
        expected = [*batches(loader), *batches(loader)]
    before = len(s3_proxy.requests)
    with made(index, **settings) as loader:
        found = list(batches(loader))
        first = len(s3_proxy.requests) - before
        found += batches(loader)
        stats = loader.stats
    assert [rows for rows, _ in found] == [rows for rows, _ in expected]
    for (_, images), (_, others) in zip(found, expected, strict=True):
        torch.testing.assert_close(images, others, rtol=0, atol=0)
    assert stats.requests > 0
    assert stats.remote_bytes > 0
    if cached:  # all of each small object came with its first window
        assert first <= FRAMES + 1
        assert len(s3_proxy.requests) - before == first
        assert stats.cached_bytes > 0


def test_a_run_goes_on_with_more_shards(bucket: str, s3_proxy: Proxy) -> None:
    storage = storage_of(s3_proxy)
    index = Index.scan(bucket, storage=storage)
    with made(index, storage=storage, batch_size=2) as loader:
        seen = next(batches(loader))[0]
        state = pickle.dumps(loader.state_dict())
    assert SECRET_KEY.encode() not in state
    for shard in range(2):
        settings = {"shard_id": shard, "num_shards": 2, "num_read_processes": 1}
        with made(index, storage=storage, batch_size=2, **settings) as loader:
            loader.load_state_dict(pickle.loads(state))
            for rows, _ in batches(loader):
                seen += rows
    assert sorted(seen) == list(range(FRAMES))


def test_an_object_that_has_changed_is_rejected(weed: Weed, s3_proxy: Proxy) -> None:
    for number in range(3):
        weed.put("changing", f"{number}.npy", b"old")
    storage = storage_of(s3_proxy)
    index = Index.scan("s3://changing", storage=storage)
    weed.put("changing", "1.npy", b"new")
    with (
        made(index, storage=storage, bad_sample="skip", num_read_processes=1) as loader,
    ):
        list(batches(loader))
        reasons = {row: bad.reason for row, bad in loader.stats.rejected.items()}
    assert "it has changed since it was indexed" in reasons[1]
    assert "s3://changing/1.npy" in loader.stats.rejected[1].path


def test_a_server_that_is_not_there_is_asked_once() -> None:
    """And not for each of the first rows, by the time-out for each."""
    storage = Storage(endpoint="http://127.0.0.1:9", anonymous=True, retries=1, timeout=3.0)
    index = Index.from_paths(f"s3://frames/{number}.fits" for number in range(20))
    tries: list[str] = []

    class Counting(FitsReader):
        def peek(self, row: Row, window: Window | None) -> Peek:
            tries.append(row.path)
            return super().peek(row, window)

    config = PipelineConfig(
        batch_size=2, storage=storage, num_read_processes=0, start_method="fork"
    )
    with pytest.raises(ReadError, match=r"s3://frames/.*the server cannot be reached"):
        reader_pipeline(index, Counting(), never_built, config)
    assert len(tries) == 1


def test_an_object_that_never_answers_is_left_out_like_others(bucket: str, s3_proxy: Proxy) -> None:
    """Also the first, of which the size is asked for before the pipeline is made."""
    index = Index.scan(bucket, storage=storage_of(s3_proxy))
    s3_proxy.fault(Fault(hang=True), index.path(0).rpartition("/")[2])
    storage = replace(storage_of(s3_proxy), timeout=3.0)
    settings: dict[str, Any] = {"storage": storage, "shuffle": False, "num_read_processes": 1}
    with made(index, bad_sample="skip", **settings) as loader:
        assert [row for rows, _ in batches(loader) for row in rows] == [*range(1, FRAMES)]
        assert [bad.is_of_store for bad in loader.stats.rejected.values()] == [True]


def test_a_server_that_answers_nothing_is_told(bucket: str, s3_proxy: Proxy) -> None:
    index = Index.scan(bucket, storage=storage_of(s3_proxy))
    s3_proxy.fault(Fault(hang=True))
    storage = replace(storage_of(s3_proxy), timeout=1.0, retries=0)
    s3_proxy.requests.clear()
    with pytest.raises(ReadError, match="no answer within 1 s"):
        made(index, storage=storage, bad_sample="skip", num_read_processes=1).start()
    assert len({request.path for request in s3_proxy.requests}) == 3


def never_built(*_: Any) -> Any:
    raise AssertionError


def test_urls_and_fork_are_refused() -> None:
    index = Index(pa.table({"path": ["a.fits", "s3://bucket/a.fits"]}))
    with pytest.raises(ValueError, match=r"'fork'.*URLs.*'forkserver'"):
        next(iter(made(index, start_method="fork", num_read_processes=1)))


def test_threads_read_files_too(frames: Path) -> None:
    with made(Index.scan(frames), num_read_processes=1) as loader:
        expected = list(batches(loader))
    with made(Index.scan(frames), num_read_processes=2, read_threads=3) as loader:
        found = list(batches(loader))
    assert [rows for rows, _ in found] == [rows for rows, _ in expected]
    for (_, images), (_, others) in zip(found, expected, strict=True):
        torch.testing.assert_close(images, others, rtol=0, atol=0)


def by_tiles(urls: list[str], folder: Path) -> Index:
    return with_tiles(Index.from_paths(urls))


def by_keys(urls: list[str], folder: Path) -> Index:
    return with_keys(Index.from_paths(urls), ["NAXIS"])


def by_command(urls: list[str], folder: Path) -> Index:
    (folder / "urls.csv").write_text("\n".join(["path", *urls]))
    flags = ["--num_processes=1", f"--out={folder}/index.parquet"]
    assert command(["index", str(folder / "urls.csv"), *flags]) == 0
    return Index.load(folder / "index.parquet")


@pytest.mark.parametrize("indexed", [by_tiles, by_keys, by_command])
def test_urls_of_a_web_server_have_versions(
    frames: Path, tmp_path: Path, indexed: Callable[[list[str], Path], Index]
) -> None:
    """What fits into a cache is requested once in all runs, and what has changed is rejected."""
    settings: dict[str, Any] = {"num_read_processes": 1, "shuffle": False, "batch_size": 3}
    cache = {"cache": str(tmp_path / "cache"), "cache_bytes": 1 << 26}
    with Web() as web:
        names = [f"{number}.fits" for number in (1, 2, 4)]
        urls = [web.put(name, (frames / name).read_bytes()) for name in names]
        index = indexed(urls, tmp_path)
        for run in range(2):
            web.paths.clear()
            with made(index, **settings, **cache) as loader:
                found = [rows for _ in range(2) for rows, _ in batches(loader)]
            assert found == [[0, 1, 2]] * 2
            assert bool(web.paths) is not bool(run)
        web.put(names[1], (frames / "5.fits").read_bytes())
        with made(index, bad_sample="skip", **settings) as loader:
            assert [rows for rows, _ in batches(loader)] == [[0, 2]]
            assert [*loader.stats.rejected] == [1]
