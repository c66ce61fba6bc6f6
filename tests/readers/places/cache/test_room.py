"""The limit of a cache: what is evicted first, what is counted, and what is never touched."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cached_origin import Origin, cell_files, used

from readers.places.cache import disk, room
from readers.places.cache.cells import BLOCK, CELL, cells
from readers.places.cache.disk import LEAST, DiskCache
from readers.places.cache.room import CellFile, to_evict

SMALL = bytes(BLOCK - 16)
"""An object whose block takes 4 KiB, with its entry in the table."""


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "cache"), LEAST)


def put(cache: DiskCache, name: str, age_s: float, used_again_s: float | None = None) -> Path:
    """Store an object of one block that was made, and perhaps read again, some time ago."""
    Origin(SMALL, name).read(cache, 0, 1)
    [(cell, _, _)] = cells(name, len(SMALL), 0, 1)
    path = Path(cache.folder, cell.name)
    now = time.time()
    os.utime(path, (now - age_s, now - (age_s if used_again_s is None else used_again_s)))
    return path


def test_the_newest_that_were_used_once_go_first(cache: DiskCache) -> None:
    again = [put(cache, f"again {number}", 9000, 100 + number) for number in range(20)]
    fresh = [put(cache, f"fresh {number}", 1) for number in range(20)]
    once = [put(cache, f"once {number}", 1000 + number) for number in range(100)]
    filler = Origin(bytes(LEAST - 146 * BLOCK), "filler")
    for start in range(0, LEAST, CELL):  # up to the last block before some are evicted
        filler.read(cache, start, start + CELL)
    Origin(SMALL, "one more").read(cache, 0, 1)
    assert used(Path(cache.folder)) <= cache.nbytes // 100 * 95 + BLOCK
    gone = {path for path in (*again, *fresh, *once) if not path.exists()}
    assert len(gone) in (50, 51)
    assert set(once[:45] + once[-5:]) <= gone  # one in ten is the oldest of all
    assert not gone & {*again, *fresh}


def test_one_byte_in_ten_is_of_the_oldest() -> None:
    """So that many small files do not take as many large ones with them."""
    large = [CellFile(1000 + number, 90 * BLOCK, 0, f"large {number}", True) for number in range(3)]
    small = [CellFile(2000 + number, BLOCK, 0, f"small {number}", False) for number in range(1000)]
    order = [one.path.split()[0] for one in to_evict([*small, *large])]
    assert [at for at, name in enumerate(order) if name == "large"] == [810, 1001, 1002]


def test_hits_are_noted_as_use(cache: DiskCache) -> None:
    path = put(cache, "a", 3600)
    Origin(SMALL, "a").read(cache, 0, 1)
    status = path.stat()
    assert time.time() - status.st_mtime < 60
    assert status.st_mtime - status.st_atime > 3500
    Origin(SMALL, "a").read(cache, 0, 1)
    assert path.stat().st_mtime_ns == status.st_mtime_ns


def test_more_blocks_of_a_cell_are_no_use(cache: DiskCache) -> None:
    """Rows of a tar, each of them read once in an epoch."""
    origin = Origin(bytes(CELL), "a")
    origin.read(cache, 0, 1)
    [path] = cell_files(Path(cache.folder))
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))
    for number in range(1, 9):
        origin.read(cache, number * BLOCK, number * BLOCK + 1)
    assert path.stat().st_mtime == path.stat().st_atime == pytest.approx(long_ago, abs=1)


def test_of_an_object_larger_than_the_cache_some_cells_are_stored(cache: DiskCache) -> None:
    origin = Origin(bytes(3 * LEAST))
    origin.read(cache, 0, 3 * LEAST)
    assert LEAST // 2 < used(Path(cache.folder)) <= LEAST
    origin.asked.clear()
    origin.read(cache, 0, 3 * LEAST)
    assert sum(stop - start for start, stop in origin.asked) < 3 * LEAST


def test_a_sample_of_a_large_cache_is_enough(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Private, as no user needs it: a cache of that many files would be large.
    monkeypatch.setattr(room, "_SAMPLE", 8)
    for number in range(100):
        Origin(bytes(LEAST // 64), str(number)).read(cache, 0, LEAST)
    assert 55 <= len(cell_files(Path(cache.folder))) <= 62


def test_the_count_is_right_after_a_restart_and_foreign_deletes(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(cache.folder)
    for number in range(5):
        Origin(SMALL, str(number)).read(cache, 0, 1)
    cell_files(folder)[0].unlink()
    monkeypatch.setattr(disk, "boot_id", lambda: b"01234567")
    Origin(SMALL, "more").read(DiskCache(str(folder), LEAST), 0, 1)
    [usage] = folder.glob("usage-*")
    assert usage.name == "usage-3031323334353637"
    assert sum(memoryview(usage.read_bytes()).cast("q")) == used(folder) == 5 * BLOCK


def test_files_of_others_stay(cache: DiskCache) -> None:
    path = put(cache, "a", 3600)
    others = [path.with_name("notes.txt"), path.parent.parent / "notes.txt"]
    for other in others:
        other.write_bytes(b"a")
    for number in range(3):
        Origin(bytes(LEAST), str(number)).read(cache, 0, LEAST)
    assert not path.exists()
    assert all(other.exists() for other in others)
