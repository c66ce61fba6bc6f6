"""Faults of the disk and of what is fetched: never a wrong byte, and reading goes on."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cached_origin import DATA, Origin, segments

from readers.places.cache import disk
from readers.places.cache.disk import DiskCache
from readers.places.cache.ranges import BLOCK, CELL
from readers.places.cache.segments import boot_id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fails(code: int) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return call


def truncate(path: Path) -> None:
    os.truncate(path, 5000)


def lose(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("spoil", [truncate, lose])
def test_damaged_segments_are_fetched_again(folder: Path, spoil: Callable[[Path], None]) -> None:
    cache, origin = DiskCache(str(folder), CELL), Origin()
    origin.read(cache, 0, 20000)
    [path] = segments(folder)
    spoil(path)
    assert origin.read(cache, 10, 20) == DATA[10:20]
    assert origin.asked == [(0, 5 * BLOCK), (0, BLOCK)]
    assert [path.stat().st_size for path in segments(folder)] == [BLOCK]


def write_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize(("happen", "requests"), [(nothing, 1), (write_zeros, 2), (truncate, 2)])
def test_after_a_power_cut_each_segment_is_checked_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, happen: Callable[[Path], None], requests: int
) -> None:
    origin = Origin()
    with monkeypatch.context() as patch:
        patch.setattr(disk, "boot_id", lambda: "0123abcd")
        origin.read(DiskCache(str(folder), CELL), 0, 9)
    happen(segments(folder)[0])
    cache = DiskCache(str(folder), CELL)
    assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == requests
    [path] = segments(folder)
    assert path.name.endswith(boot_id())
    monkeypatch.setattr(zlib, "crc32", fails(errno.EIO))
    assert origin.read(cache, 0, 9) == DATA[:9]


def test_errors_of_fetch_are_raised_and_nobody_waits(folder: Path) -> None:
    cache, origin = DiskCache(str(folder), CELL), Origin()

    def fetch(ranges: list[tuple[int, int]]) -> list[bytes]:
        raise PermissionError("403")

    with pytest.raises(PermissionError, match="403"):
        cache.read(origin.key, len(DATA), 0, 9, fetch)
    assert origin.read(cache, 0, 9) == DATA[:9]


@pytest.mark.parametrize("given", [b"", bytes(BLOCK - 1), bytes(BLOCK + 1)])
def test_another_length_than_asked_is_an_error(folder: Path, given: bytes) -> None:
    cache = DiskCache(str(folder), CELL)
    with pytest.raises(OSError, match=f"{len(given)} bytes .*expected 4096"):
        cache.read("a", BLOCK, 0, 9, lambda _: [given])
    assert not segments(folder)


@pytest.mark.parametrize("call", ["write", "ftruncate"])
def test_a_full_disk_stops_storing_for_a_minute(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    cache, origin = DiskCache(str(folder), CELL), Origin()
    origin.read(cache, 0, 9)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails(errno.ENOSPC))
        assert origin.read(cache, CELL, CELL + 9) == DATA[CELL : CELL + 9]
    assert origin.read(cache, CELL, CELL + 9) == DATA[CELL : CELL + 9]
    assert len(segments(folder)) == 1
    assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == 3
    [record] = caplog.records
    assert "No space left on device" in record.getMessage()
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    origin.read(cache, CELL, CELL + 9)
    assert len(segments(folder)) == 2
    assert sum(bytes_counted(folder)) == 2 * BLOCK


def bytes_counted(folder: Path) -> memoryview:
    [usage] = folder.glob("usage-*")
    return memoryview(usage.read_bytes()).cast("q")


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
    cache, origin = DiskCache(str(folder), CELL), Origin()
    for _ in range(2):
        assert origin.read(cache, 5, 9999) == DATA[5:9999]
    assert origin.asked == [(5, 9999)] * 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert (cache.stats.misses, cache.stats.fetched_bytes) == (2, 2 * 9994)


def test_a_folder_that_is_deleted_in_use_is_made_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache, origin = DiskCache(str(folder), CELL), Origin()
    origin.read(cache, 0, 9)
    for _ in range(2):
        shutil.rmtree(folder)
        for _ in range(3):
            assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == 3
    [record] = caplog.records
    assert str(folder) in record.getMessage()
    assert sum(bytes_counted(folder)) == BLOCK


@pytest.mark.parametrize("call", ["listdir", "preadv"])
def test_errors_of_reading_are_misses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    cache, origin = DiskCache(str(folder), CELL), Origin()
    origin.read(cache, 0, 9)
    monkeypatch.setattr(os, call, fails(errno.EIO))
    for _ in range(2):
        assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == 3
    assert len(caplog.records) == 1
