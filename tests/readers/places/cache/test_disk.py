"""DiskCache against the bytes themselves: what it gives, what it fetches, what it leaves behind."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from cached_origin import DATA, KEY, Origin, cell_files, used
from hypothesis import given
from hypothesis import strategies as st

from readers.places.cache.cells import BLOCK, CELL
from readers.places.cache.disk import LEAST, DiskCache


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "cache"), 4 * LEAST)


def test_a_range_is_fetched_once_by_whole_blocks(cache: DiskCache) -> None:
    origin = Origin()
    for _ in range(2):
        assert origin.read(cache, 5000, 9000) == DATA[5000:9000]
    assert origin.asked == [(BLOCK, 3 * BLOCK)]
    for _ in range(2):
        assert origin.read(cache, len(DATA) - 1, len(DATA)) == DATA[-1:]
    assert origin.asked[1:] == [(len(DATA) // BLOCK * BLOCK, len(DATA))]
    assert origin.read(cache, len(DATA), len(DATA)) == b""


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
            buffer[:] = bytes(len(buffer))
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


def test_what_others_store_and_remove_is_noticed(cache: DiskCache) -> None:
    origin, other = Origin(), DiskCache(cache.folder, 4 * LEAST)
    origin.read(cache, 0, 9)
    origin.read(other, 5 * BLOCK, 6 * BLOCK)
    assert origin.read(cache, 5 * BLOCK, 6 * BLOCK) == DATA[5 * BLOCK : 6 * BLOCK]
    assert len(origin.asked) == 2
    [path] = cell_files(Path(cache.folder))
    path.unlink()
    assert origin.read(cache, 0, 9) == DATA[:9]
    assert origin.asked[2:] == [(0, BLOCK)]


def test_a_pickled_cache_shares_the_folder(cache: DiskCache) -> None:
    origin = Origin()
    origin.read(cache, 0, 9)
    copy = pickle.loads(pickle.dumps(cache))
    assert origin.read(copy, 0, 9) == DATA[:9]
    assert len(origin.asked) == 1
    assert (copy.folder, copy.nbytes) == (cache.folder, cache.nbytes)
    assert pickle.loads(pickle.dumps(cache)) is copy


@given(
    reads=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, LEAST), st.integers(1, LEAST)),
        max_size=16,
    )
)
def test_random_reads_with_eviction_give_the_bytes(
    tmp_path: Path, reads: list[tuple[int, int, int]]
) -> None:
    folder = tmp_path / "cache"
    cache = DiskCache(str(folder), LEAST + LEAST // 2)
    for key, start, nbytes in reads:
        origin = Origin(DATA[key * 4321 :], str(key))
        expected = origin.data[start : start + nbytes]
        assert origin.read(cache, start, start + len(expected)) == expected
        assert used(folder) <= cache.nbytes


@given(
    reads=st.lists(
        st.tuples(st.integers(0, 20 * BLOCK + 99), st.integers(1, 5 * BLOCK)), max_size=20
    )
)
def test_no_block_is_fetched_twice_however_reads_overlap(
    tmp_path_factory: pytest.TempPathFactory, reads: list[tuple[int, int]]
) -> None:
    cache = DiskCache(str(tmp_path_factory.mktemp("cache")), 4 * LEAST)
    origin = Origin(DATA[: 20 * BLOCK + 100])
    for start, nbytes in reads * 2:
        expected = origin.data[start : start + nbytes]
        assert origin.read(cache, start, start + len(expected)) == expected
    blocks = [block for start, stop in origin.asked for block in range(start, stop, BLOCK)]
    assert len(blocks) == len(set(blocks))


def test_only_the_user_may_read_it_and_no_url_is_in_it(cache: DiskCache) -> None:
    Origin().read(cache, 0, 9)
    folder = Path(cache.folder)
    paths = [folder, *folder.rglob("*")]
    open_to_others = {path.name for path in paths if path.stat().st_mode & 0o077}
    assert open_to_others <= {"CACHEDIR.TAG"}
    assert not any("bucket" in str(path.relative_to(folder)) for path in paths)
    assert not any(b"bucket" in path.read_bytes() for path in paths if path.is_file())


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    DiskCache(str(tmp_path), LEAST)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    DiskCache(str(tmp_path), LEAST)


def test_a_folder_with_other_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"'thesis.tex'"):
        DiskCache(str(tmp_path), LEAST)
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize(
    "line",
    ["# pip", "# Cache of byte ranges, version 1, made by dali-pipelines. It may be deleted"],
)
def test_a_cache_of_another_program_or_version_is_rejected(tmp_path: Path, line: str) -> None:
    text = f"Signature: 8a477f597d28d172789f06886806bc55\n{line}"
    (tmp_path / "CACHEDIR.TAG").write_text(text)
    with pytest.raises(ValueError, match="another program or version"):
        DiskCache(str(tmp_path), LEAST)


def test_less_than_4_mib_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"4194304.*4194303"):
        DiskCache(str(tmp_path), LEAST - 1)
