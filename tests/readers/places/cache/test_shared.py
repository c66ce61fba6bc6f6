"""One cache for threads and processes, some of which are killed or stopped."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cached_origin import DATA, Origin, used

from readers.cache.locks import locked
from readers.places.cache import disk, room
from readers.places.cache.cells import BLOCK
from readers.places.cache.disk import LEAST, DiskCache
from readers.places.cache.room import LOCKS


def test_threads_that_miss_the_same_bytes_fetch_them_once(tmp_path: Path) -> None:
    cache, origin = DiskCache(str(tmp_path / "cache"), 4 * LEAST), Origin()
    begin = threading.Barrier(8)

    def read(number: int) -> bool:
        begin.wait()
        start = 50_000 * number
        return origin.read(cache, start, start + 100_000) == DATA[start : start + 100_000]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(8)))
    blocks = [block for start, stop in origin.asked for block in range(start, stop, 4096)]
    assert len(blocks) == len(set(blocks))


def test_threads_with_eviction_get_their_bytes(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"), LEAST)
    origins = [Origin(DATA[1000 * number :], str(number)) for number in range(3)]

    def read(seed: int) -> None:
        draws = random.Random(seed)
        for _ in range(40):
            draws.choice(origins).read_random(cache, draws)
            assert used(Path(cache.folder)) <= cache.nbytes

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, range(4)))


def start(folder: Path, nbytes: int, seed: int, count: int, log: Path) -> subprocess.Popen[bytes]:
    arguments = [str(folder), str(nbytes), str(seed), str(count), str(log)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-S", "-m", "cached_origin", *arguments]
    return subprocess.Popen(command, env=environment)


def test_processes_fetch_no_block_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [start(tmp_path / "cache", 8 * LEAST, seed, 40, log) for seed in range(8)]
    assert [process.wait() for process in processes] == [0] * 8
    fetched: list[tuple[str, int]] = []
    for line in log.read_text().splitlines():
        key, first, stop = line.split()
        fetched += [(key, block) for block in range(int(first), int(stop), 4096)]
    assert len(fetched) == len(set(fetched)) > 1000


def test_processes_that_are_killed_leave_a_cache_that_works(tmp_path: Path) -> None:
    folder, nbytes, log = tmp_path / "cache", LEAST + LEAST // 2, tmp_path / "log"
    processes = [start(folder, nbytes, seed, 10**6, log) for seed in range(4)]
    try:
        while not folder.exists() or not used(folder):
            time.sleep(0.02)
        for victim in processes:
            for _ in range(5):
                time.sleep(0.02)
                assert used(folder) <= nbytes
            assert victim.poll() is None
            victim.kill()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    cache, origin, draws = DiskCache(str(folder), nbytes), Origin(), random.Random(1)
    for _ in range(100):
        origin.read_random(cache, draws)
        assert used(folder) <= nbytes
    assert len(origin.asked) < 100


def test_nobody_waits_for_ever_for_a_process_that_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Private, as no user needs them: the test would wait for a minute.
    monkeypatch.setattr(disk, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(room, "_PATIENCE_S", 0.05)
    cache, origin = DiskCache(str(tmp_path / "cache"), 4 * LEAST), Origin()
    locks = f"{cache.folder}/{LOCKS}"
    with locked(locks, 2, 1 << 62, patience_s=1):  # those of objects
        assert origin.read(cache, 0, 9) == DATA[:9]
    with locked(locks, 0, 1, patience_s=1):  # the one for storing
        assert origin.read(cache, LEAST, LEAST + 9) == DATA[LEAST : LEAST + 9]
        assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == 2
    [record] = caplog.records
    assert "0.05 s" in record.getMessage()


def test_a_cell_that_is_evicted_while_it_is_written_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, origin, pwrite = DiskCache(str(tmp_path / "cache"), LEAST), Origin(), os.pwrite

    def write_late(file: int, data: bytes, position: int) -> int:
        if len(data) == BLOCK:
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", pwrite)
                for number in range(3):  # each fills the cache
                    Origin(DATA, str(number)).read(cache, 0, LEAST - 9 * BLOCK)
        return pwrite(file, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write_late)
        assert origin.read(cache, 0, 9) == DATA[:9]
    for _ in range(2):
        assert origin.read(cache, 0, 9) == DATA[:9]
    assert len(origin.asked) == 2
    assert used(Path(cache.folder)) <= LEAST
