"""DiskCache against the bytes themselves: what it gives, what it fetches, what it leaves behind."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.places.cache.disk import DiskCache
from readers.places.cache.ranges import BLOCK, CELL

DATA = np.random.default_rng(7).integers(0, 256, 2 * CELL + 12345, np.uint8).tobytes()


class Origin:
    """Bytes, and the ranges of them that were fetched."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked += ranges
        return [self.data[start:stop] for start, stop in ranges]

    def read(self, cache: DiskCache, start: int, stop: int, key: str = "s3://a#1") -> bytes:
        return cache.read(key, len(self.data), start, stop, self)


def test_a_range_is_fetched_once_by_whole_blocks(tmp_path: Path) -> None:
    cache, origin = DiskCache(str(tmp_path / "c"), 1 << 24), Origin()
    for _ in range(2):
        assert origin.read(cache, 5000, 9000) == DATA[5000:9000]
    assert origin.asked == [(BLOCK, 3 * BLOCK)]
    assert origin.read(cache, len(DATA) - 1, len(DATA) + 9) == DATA[-1:]
    assert origin.asked[1:] == [(len(DATA) // BLOCK * BLOCK, len(DATA))]
    assert origin.read(cache, len(DATA), len(DATA) + 9) == b""
    stats = cache.stats
    assert (stats.hits, stats.misses) == (1, 2)
    assert (stats.hit_bytes, stats.fetched_bytes) == (4000, 2 * BLOCK + len(DATA) % BLOCK)
    assert stats.stored_bytes == stats.fetched_bytes


def test_pieces_are_fetched_together_and_only_what_is_missing(tmp_path: Path) -> None:
    cache, origin = DiskCache(str(tmp_path / "c"), 1 << 24), Origin()
    origin.read(cache, 10 * BLOCK, 12 * BLOCK)
    calls = []

    def fetch(ranges: list[tuple[int, int]]) -> list[bytes]:
        calls.append(ranges)
        return origin(ranges)

    starts = [CELL - 100, 9 * BLOCK + 1, 0, 12 * BLOCK - 1]
    buffers = [bytearray(nbytes) for nbytes in (200, 3 * BLOCK, 7, 2)]
    pieces = [(start, memoryview(buffer)) for start, buffer in zip(starts, buffers, strict=True)]
    cache.fill("s3://a#1", len(DATA), pieces, fetch)
    for start, buffer in zip(starts, buffers, strict=True):
        assert buffer == DATA[start : start + len(buffer)]
    blocks = [(0, 1), (9, 10), (12, 13), (CELL // BLOCK - 1, CELL // BLOCK + 1)]
    assert calls == [[(first * BLOCK, stop * BLOCK) for first, stop in blocks]]


def test_another_key_or_size_is_another_object(tmp_path: Path) -> None:
    cache, origin = DiskCache(str(tmp_path / "c"), 1 << 24), Origin(bytes(9999))
    origin.read(cache, 0, 5)
    others = [("s3://a#2", b"\1" * 9999), ("s3://a#1", b"\2" * 9998), ("s3://\udcff#1", b"\3" * 9)]
    for key, data in others:
        assert Origin(data).read(cache, 0, 5, key) == data[:5]


def test_a_pickled_cache_shares_the_folder(tmp_path: Path) -> None:
    cache, origin = DiskCache(str(tmp_path / "c"), 1 << 24), Origin()
    origin.read(cache, 0, 9)
    copy = pickle.loads(pickle.dumps(cache))
    assert origin.read(copy, 0, 9) == DATA[:9]
    assert len(origin.asked) == 1
    assert (copy.nbytes, copy.stats.hits, copy.stats.misses) == (1 << 24, 1, 0)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*-*") if path.parent.parent == folder]


def used(folder: Path) -> int:
    return sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in files(folder))


@given(
    reads=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, len(DATA)), st.integers(1, CELL)), max_size=30
    )
)
def test_random_reads_with_eviction_give_the_bytes(
    tmp_path: Path, reads: list[tuple[int, int, int]]
) -> None:
    folder = tmp_path / "c"
    cache = DiskCache(str(folder), CELL + CELL // 2)
    for key, start, nbytes in reads:
        origin = Origin(DATA[key * 4321 :])
        expected = origin.data[start : start + nbytes]
        assert origin.read(cache, start, start + nbytes, str(key)) == expected
        assert used(folder) <= cache.nbytes


def test_folders_and_files_are_for_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "c"
    Origin().read(DiskCache(str(folder), 1 << 24), 0, 9)
    for path in [folder, *files(folder)]:
        assert path.stat().st_mode & 0o077 == 0
    texts = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert [path for path, text in texts.items() if text == DATA[:BLOCK]] == files(folder)
    assert not any(b"s3" in text for text in texts.values() if text != DATA[:BLOCK])
    assert not any("s3" in path.name for path in folder.rglob("*"))


def test_a_folder_with_other_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"holds other files, e\.g\. 'thesis.tex': "):
        DiskCache(str(tmp_path), 1 << 24)
    assert os.listdir(tmp_path) == ["thesis.tex"]
