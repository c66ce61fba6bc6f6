"""DiskCache against the bytes themselves: what it gives, what it fetches, what it leaves behind."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from cached_origin import DATA, KEY, Origin, segments, used
from hypothesis import given
from hypothesis import strategies as st

from readers.places.cache.disk import DiskCache
from readers.places.cache.ranges import BLOCK, CELL


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "cache"), 4 * CELL)


def test_a_range_is_fetched_once_by_whole_blocks(cache: DiskCache) -> None:
    origin = Origin()
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


def test_pieces_are_fetched_together_and_only_what_is_missing(cache: DiskCache) -> None:
    origin, calls = Origin(), []
    origin.read(cache, 10 * BLOCK, 12 * BLOCK)

    def fetch(ranges: list[tuple[int, int]]) -> list[bytes]:
        calls.append(ranges)
        return origin(ranges)

    starts = [CELL - 100, 9 * BLOCK + 1, 0, 12 * BLOCK - 1, 5]
    buffers = [bytearray(nbytes) for nbytes in (200, 3 * BLOCK, 7, 2, 0)]
    pieces = [(start, memoryview(buffer)) for start, buffer in zip(starts, buffers, strict=True)]
    for _ in range(2):
        cache.fill(KEY, len(DATA), pieces, fetch)
        for start, buffer in zip(starts, buffers, strict=True):
            assert buffer == DATA[start : start + len(buffer)]
    blocks = [(0, 1), (9, 10), (12, 13), (CELL // BLOCK - 1, CELL // BLOCK + 1)]
    assert calls == [[(first * BLOCK, stop * BLOCK) for first, stop in blocks]]


def test_pieces_past_the_end_are_an_error(cache: DiskCache) -> None:
    with pytest.raises(ValueError, match=r"99.*10 bytes from 90"):
        cache.fill(KEY, 99, [(90, memoryview(bytearray(10)))], Origin())


def test_another_key_or_size_is_another_object(cache: DiskCache) -> None:
    for data, key in [
        (b"\0" * 9999, KEY),
        (b"\1" * 9999, f"{KEY}2"),
        (b"\2" * 9998, KEY),
        (b"\3" * 9, "s3://\udcff"),
    ]:
        assert Origin(data, key).read(cache, 0, 5) == data[:5]


def test_a_folder_that_has_not_changed_is_not_listed_again(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others add and remove is noticed all the same."""
    origin, other, listed = Origin(), DiskCache(cache.folder, 4 * CELL), []
    list_folder = os.listdir

    def listdir(folder: str) -> list[str]:
        listed.append(folder)
        return list_folder(folder)

    monkeypatch.setattr(os, "listdir", listdir)
    origin.read(cache, 0, 9)
    (segment,) = segments(Path(cache.folder))
    for number in range(3):
        os.utime(segment.parent, ns=(number, number))  # as if it were long ago
        listed.clear()
        for _ in range(5):
            assert origin.read(cache, 0, 9) == DATA[:9]
        assert listed == [str(segment.parent)]
    origin.read(other, 5 * BLOCK, 6 * BLOCK)
    segment.unlink()
    assert origin.read(cache, 5 * BLOCK, 6 * BLOCK) == DATA[5 * BLOCK : 6 * BLOCK]
    assert origin.asked == [(0, BLOCK), (5 * BLOCK, 6 * BLOCK)]
    assert origin.read(cache, 0, 9) == DATA[:9]
    assert origin.asked[2:] == [(0, BLOCK)]


def test_a_pickled_cache_shares_the_folder(cache: DiskCache) -> None:
    origin = Origin()
    origin.read(cache, 0, 9)
    copy = pickle.loads(pickle.dumps(cache))
    assert origin.read(copy, 0, 9) == DATA[:9]
    assert len(origin.asked) == 1
    assert (copy.nbytes, copy.stats.hits, copy.stats.misses) == (cache.nbytes, 1, 0)


@given(
    reads=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, len(DATA)), st.integers(1, CELL // 2)),
        max_size=16,
    )
)
def test_random_reads_with_eviction_give_the_bytes(
    tmp_path: Path, reads: list[tuple[int, int, int]]
) -> None:
    folder = tmp_path / "cache"
    cache = DiskCache(str(folder), CELL + CELL // 2)
    for key, start, nbytes in reads:
        origin = Origin(DATA[key * 4321 :], str(key))
        expected = origin.data[start : start + nbytes]
        assert origin.read(cache, start, start + nbytes) == expected
        assert used(folder) <= cache.nbytes


def test_only_the_user_may_read_it_and_no_url_is_in_it(cache: DiskCache) -> None:
    Origin().read(cache, 0, 9)
    folder = Path(cache.folder)
    paths = [folder, *folder.rglob("*")]
    open_to_others = {path.name for path in paths if path.stat().st_mode & 0o077}
    assert open_to_others <= {"CACHEDIR.TAG"}
    [segment] = segments(folder)
    assert segment.read_bytes() == DATA[:BLOCK]
    assert not any("bucket" in str(path.relative_to(folder)) for path in paths)
    files = [path for path in paths if path.is_file() and path != segment]
    assert not any(b"bucket" in path.read_bytes() for path in files)


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    DiskCache(str(tmp_path), CELL)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    DiskCache(str(tmp_path), CELL)


def test_a_folder_with_other_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"'thesis.tex'"):
        DiskCache(str(tmp_path), CELL)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_cache_of_another_program_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n# pip")
    with pytest.raises(ValueError, match="another program or version"):
        DiskCache(str(tmp_path), CELL)


def test_less_than_a_cell_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"4194304.*4194303"):
        DiskCache(str(tmp_path), CELL - 1)
