"""The limit of a cache: what is evicted first, what is counted, and what is never touched."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cached_origin import Origin, segments, used

from readers.places.cache import disk, room
from readers.places.cache.disk import DiskCache
from readers.places.cache.ranges import BLOCK, CELL, CachedObject

SMALL = bytes(BLOCK)
"""An object of one block."""


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "cache"), CELL)


def put(cache: DiskCache, name: str, age_s: float, used_again_s: float | None = None) -> Path:
    """Store an object of one block that was made, and perhaps used again, some time ago."""
    Origin(SMALL, name).read(cache, 0, 1)
    [path] = Path(cache.folder).glob(f"{CachedObject(name, BLOCK).cell_name(0)}-*")
    now = time.time()
    os.utime(path, (now - age_s, now - (age_s if used_again_s is None else used_again_s)))
    return path


def test_the_newest_that_were_used_once_go_first(cache: DiskCache) -> None:
    again = [put(cache, f"again {number}", 9000, 100 + number) for number in range(20)]
    fresh = [put(cache, f"fresh {number}", 1) for number in range(20)]
    once = [put(cache, f"once {number}", 1000 + number) for number in range(100)]
    filler = Origin(bytes(CELL - 140 * BLOCK), "filler")
    filler.read(cache, 0, CELL)
    Origin(SMALL, "one more").read(cache, 0, 1)
    assert used(Path(cache.folder)) <= cache.nbytes // 100 * 95 + BLOCK
    gone = {path for path in (*again, *fresh, *once) if not path.exists()}
    assert len(gone) in (52, 53)
    assert set(once[:47] + once[-5:]) <= gone  # one in ten is the oldest of all
    assert not gone & {*again, *fresh}


def test_hits_are_noted_as_use(cache: DiskCache) -> None:
    path = put(cache, "a", 3600)
    Origin(SMALL, "a").read(cache, 0, 1)
    status = path.stat()
    assert time.time() - status.st_mtime < 60
    assert status.st_mtime - status.st_atime > 3500
    Origin(SMALL, "a").read(cache, 0, 1)
    assert path.stat().st_mtime_ns == status.st_mtime_ns


def test_an_object_larger_than_the_cache_is_not_stored(cache: DiskCache) -> None:
    origin = Origin(bytes(3 * CELL))
    origin.read(cache, 0, 3 * CELL)
    assert used(Path(cache.folder)) <= CELL
    assert cache.stats.stored_bytes >= CELL


def test_a_sample_of_a_large_cache_is_enough(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Private, as no user needs it: a cache of that many files would be large.
    monkeypatch.setattr(room, "_SAMPLE", 8)
    for number in range(100):
        Origin(bytes(CELL // 64), str(number)).read(cache, 0, CELL)
    assert 60 <= len(segments(Path(cache.folder))) <= 64


def test_the_count_is_right_after_a_power_cut_and_foreign_deletes(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(cache.folder)
    for number in range(5):
        Origin(SMALL, str(number)).read(cache, 0, 1)
    segments(folder)[0].unlink()
    monkeypatch.setattr(disk, "boot_id", lambda: "0123abcd")
    Origin(SMALL, "more").read(DiskCache(str(folder), CELL), 0, 1)
    [usage] = folder.glob("usage-*")
    assert usage.name == "usage-0123abcd"
    assert sum(memoryview(usage.read_bytes()).cast("q")) == used(folder) == 5 * BLOCK


def test_files_of_others_stay(cache: DiskCache) -> None:
    path = put(cache, "a", 3600)
    others = [path.with_name("notes.txt"), path.parent.parent / "notes.txt"]
    for other in others:
        other.write_bytes(b"a")
    for number in range(3):
        Origin(bytes(CELL), str(number)).read(cache, 0, CELL)
    assert not path.exists()
    assert all(other.exists() for other in others)


def test_partial_files_of_a_killed_process_are_removed(cache: DiskCache) -> None:
    path = put(cache, "a", 3600)
    left = path.with_name("new-0123456789abcdef")
    left.write_bytes(bytes(CELL // 2))
    for number in range(3):
        Origin(bytes(CELL), str(number)).read(cache, 0, CELL)
    assert not left.exists()
    assert used(Path(cache.folder)) <= CELL
