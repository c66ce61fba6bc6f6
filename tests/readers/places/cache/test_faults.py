"""Faults of the disk and of what is fetched: never a wrong byte, and reading goes on."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cached_origin import DATA, Origin, cell_files, used

from readers.places.cache import disk
from readers.places.cache.cells import BLOCK, CELL
from readers.places.cache.disk import LEAST, DiskCache


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fails(code: int) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return call


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5000] ^= 1
    path.write_bytes(content)


def zero_the_end(path: Path) -> None:  # as a power cut may leave it
    content = path.read_bytes()
    path.write_bytes(content[:-9000] + bytes(9000))


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - BLOCK)


def cut_off_in_the_table(path: Path) -> None:
    os.truncate(path, 30)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def lose(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("spoil", [cut_off, cut_off_in_the_table, empty, lose])
def test_damaged_bytes_are_fetched_again(folder: Path, spoil: Callable[[Path], None]) -> None:
    cache, origin = DiskCache(str(folder), LEAST), Origin()
    origin.read(cache, 0, 20000)
    [path] = cell_files(folder)
    spoil(path)
    for _ in range(2):
        assert origin.read(cache, 10, 20000) == DATA[10:20000]
    assert origin.asked == [(0, 5 * BLOCK), (0, 5 * BLOCK)]
    assert origin.read(cache, 0, 99000) == DATA[:99000]


def test_slots_of_a_file_that_was_cut_off_are_used_again(folder: Path) -> None:
    cache, origin = DiskCache(str(folder), LEAST), Origin()
    origin.read(cache, 0, 20000)
    cut_off_in_the_table(cell_files(folder)[0])
    for start in (90_000, 0):
        assert origin.read(cache, start, start + 20000) == DATA[start : start + 20000]


def nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("happen", "requests"),
    [
        (nothing, 1),
        (change_a_byte, 2),
        (zero_the_end, 2),
        (cut_off, 2),
        (cut_off_in_the_table, 2),
        (empty, 2),
    ],
)
def test_after_a_power_cut_what_is_damaged_is_fetched_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, happen: Callable[[Path], None], requests: int
) -> None:
    cache, origin = DiskCache(str(folder), LEAST), Origin()
    origin.read(cache, 0, 9)
    origin.read(cache, BLOCK, 20000)
    happen(cell_files(folder)[0])
    monkeypatch.setattr(disk, "boot_id", lambda: b"01234567")
    cache = DiskCache(str(folder), LEAST)
    origin.asked.clear()
    for start, stop in [(10, 20000), (3000, 5000), (2 * BLOCK, 3 * BLOCK), (9000, 9001)] * 2:
        assert origin.read(cache, start, stop) == DATA[start:stop]
    assert len(origin.asked) == requests - 1


def test_errors_of_fetch_are_raised_and_nobody_waits(folder: Path) -> None:
    cache, origin = DiskCache(str(folder), LEAST), Origin()

    def fetch(ranges: list[tuple[int, int]]) -> list[bytes]:
        raise PermissionError("403")

    with pytest.raises(PermissionError, match="403"):
        cache.fill(origin.key, len(DATA), [(0, memoryview(bytearray(9)))], fetch)
    assert origin.read(cache, 0, 9) == DATA[:9]


@pytest.mark.parametrize("given", [b"", bytes(BLOCK - 1), bytes(BLOCK + 1)])
def test_another_length_than_asked_is_an_error(folder: Path, given: bytes) -> None:
    cache = DiskCache(str(folder), LEAST)
    with pytest.raises(OSError, match=f"{len(given)} bytes .*expected 4096"):
        cache.fill("a", BLOCK, [(0, memoryview(bytearray(9)))], lambda _: [given])
    assert not cell_files(folder)


@pytest.mark.parametrize("call", ["pwrite", "ftruncate"])
def test_a_full_disk_stops_storing_for_a_minute(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    cache, origin = DiskCache(str(folder), LEAST), Origin()
    origin.read(cache, 0, 9)
    before = used(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails(errno.ENOSPC))
        assert origin.read(cache, LEAST, LEAST + 9) == DATA[LEAST : LEAST + 9]
    assert origin.read(cache, LEAST, LEAST + 9) == DATA[LEAST : LEAST + 9]
    assert used(folder) == before
    assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == 3
    [record] = caplog.records
    assert "No space left on device" in record.getMessage()
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    for _ in range(2):
        assert origin.read(cache, LEAST, LEAST + 9) == DATA[LEAST : LEAST + 9]
    assert len(origin.asked) == 4


def test_blocks_that_could_not_be_written_take_no_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, origin, pwrite = DiskCache(str(folder), LEAST), Origin(), os.pwrite
    origin.read(cache, 0, 9)
    before, counted = used(folder), bytes_counted(folder)

    def fails_for_blocks(file: int, data: bytes, position: int) -> int:
        if len(data) >= BLOCK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(file, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails_for_blocks)
        assert origin.read(cache, 0, 99000) == DATA[:99000]
    assert (used(folder), bytes_counted(folder)) == (before, counted)
    assert origin.read(cache, 0, 9) == DATA[:9]
    assert origin.asked == [(0, BLOCK), (BLOCK, 25 * BLOCK)]


def test_of_several_cells_those_before_a_fault_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, origin, pwrite = DiskCache(str(folder), 4 * LEAST), Origin(), os.pwrite
    written = []

    def fails_for_the_second_cell(file: int, data: bytes, position: int) -> int:
        if len(data) >= BLOCK:
            written.append(file)
            if len(written) == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(file, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails_for_the_second_cell)
        assert origin.read(cache, CELL - BLOCK, 3 * CELL) == DATA[CELL - BLOCK : 3 * CELL]
    assert used(folder) == bytes_counted(folder) <= 4 * BLOCK
    assert origin.read(cache, CELL - BLOCK, CELL) == DATA[CELL - BLOCK : CELL]
    assert len(origin.asked) == 1


def bytes_counted(folder: Path) -> int:
    [usage] = folder.glob("usage-*")
    return sum(memoryview(usage.read_bytes()).cast("q"))


def no_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder.touch()


def no_locks(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fcntl, "fcntl", fails(errno.EINVAL))


def read_only(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "makedirs", fails(errno.EROFS))


@pytest.mark.parametrize("spoil", [no_folder, no_locks, read_only])
def test_without_a_folder_all_is_fetched_as_asked(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    spoil(folder, monkeypatch)
    cache, origin = DiskCache(str(folder), LEAST), Origin()
    for _ in range(2):
        assert origin.read(cache, 5, 9999) == DATA[5:9999]
    assert origin.asked == [(5, 9999)] * 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_folder_that_is_deleted_in_use_is_made_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache, origin = DiskCache(str(folder), LEAST), Origin()
    origin.read(cache, 0, 9)
    for _ in range(2):
        shutil.rmtree(folder)
        for _ in range(3):
            assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == 3
    [record] = caplog.records
    assert str(folder) in record.getMessage()
    assert bytes_counted(folder) == used(folder) > 0


@pytest.mark.parametrize("call", ["open", "pread", "preadv"])
def test_errors_of_reading_are_misses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    cache, origin = DiskCache(str(folder), LEAST), Origin()
    origin.read(cache, 0, 9)
    monkeypatch.setattr(os, call, fails(errno.EIO))
    for _ in range(2):
        assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == 3
    assert len(caplog.records) == 1
