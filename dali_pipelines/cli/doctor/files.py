"""Checks of `doctor`: the data and how fast they are read, and folders to write to."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dali_pipelines.cli.doctor.finding import Finding, bad, note, ok
from readers.places.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dali_pipelines.cli.doctor.finding import Job

_FILES = 64
"""Files that are read at most, spread over the Index."""
_BYTES = 512_000_000
_SECONDS = 2.0
_BLOCK = 4 << 20
_SLOW = 50e6
"""Bytes per second of one process below which more of them are advised; one disk gives 150e6."""
_TELLING = 8_000_000
"""Bytes from which on a speed says something of the storage, not of opening small files."""


@dataclass(slots=True)
class Reading:
    """Result of reading with one process, one file after the other."""

    files: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    uncached: bool = True
    """Whether all of it came past the page cache."""
    failures: list[str] = field(default_factory=list)
    """Path and reason of each file that could not be read."""


def data(job: Job) -> Finding | None:
    """Whether the files can be read, and how fast; None of URLs."""
    index = job.index
    if is_url(index.path(0)):
        return None
    step = max(1, len(job.paths) // _FILES)
    paths = job.paths[::step][:_FILES].to_pylist()
    reading = _read_files(paths)
    if reading.failures:
        found = f"data: {len(reading.failures)} of {len(paths)} files tried cannot be read"
        first = f"the first: {reading.failures[0]}"
        if job.config.bad_sample == "skip":
            return note(f"{found} and will be left out, {first}")
        return bad(f"{found} ({first})", "fix it, or leave such files out by --bad_sample=skip")
    speed = reading.nbytes / max(reading.seconds, 1e-9)
    words = (
        f"data: {job.counted('file')}; one process read {reading.files} of them, "
        f"{reading.nbytes / 1e6:.1f} MB, at {speed / 1e6:.0f} MB/s {_way(paths[0], reading)}"
    )
    if speed < _SLOW and reading.nbytes >= _TELLING:
        return note(f"{words}; slow storage, which many --num_read_processes may hide")
    return ok(words)


def folders(job: Job) -> Finding:
    """Folders that a run writes to: temporary files, caches, report and audit."""
    from readers.cache.folder import cache_folder

    wanted = {"TMPDIR": Path(tempfile.gettempdir()), "XDG_CACHE_HOME": cache_folder()}
    for name in ("report", "audit", "rejected", "state"):
        path = getattr(job.config, name)
        if path is not None:
            wanted[f"--{name}"] = Path(path).absolute().parent
    if (cache := job.config.pipeline_config.cache) is not None:
        wanted["--cache"] = Path(cache).absolute()
    found, lacking = [], ""
    for name, folder in wanted.items():
        try:
            free = _writable(folder, make=name == "--cache" or not name.startswith("--"))
        except OSError as error:
            return bad(
                f"folders: {folder} cannot be written ({error.strerror})", f"set {name} to another"
            )
        found.append(f"{folder} ({free / 2**30:.1f} GiB free)")
        nbytes = job.config.pipeline_config.cache_bytes or 0
        if name == "--cache" and nbytes > free + _taken(folder):
            lacking = f"; less than --cache_bytes={nbytes / 1e9:.3g}GB, so that the disk gets full"
    words = f"folders: can be written, {', '.join(found)}{lacking}"
    return note(words) if lacking else ok(words)


def _taken(cache: Path) -> int:
    """Return the bytes that a cache has on disk."""
    return sum(file.stat().st_size for file in cache.glob("*/*"))


def _writable(folder: Path, *, make: bool) -> int:
    """Write into a folder, or the one it would be made in; return the bytes that are free."""
    while make and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"0")
        file.flush()
    return shutil.disk_usage(folder).free


def _read_files(paths: Sequence[str]) -> Reading:
    """Read files until time or bytes are up, past the page cache where the file system lets us."""
    reading = Reading()
    started = time.perf_counter()
    with mmap.mmap(-1, _BLOCK) as block:  # begins with a page, as O_DIRECT wants it
        for path in paths:
            reading.seconds = time.perf_counter() - started
            if reading.seconds > _SECONDS or reading.nbytes >= _BYTES:
                break
            try:
                _read_file(path, block, reading, started + _SECONDS)
            except OSError as error:
                reading.failures.append(f"{path}: {error.strerror}")
            reading.files += 1
    reading.seconds = time.perf_counter() - started
    return reading


def _read_file(path: str, block: mmap.mmap, reading: Reading, until: float) -> None:
    try:
        _read_blocks(path, os.O_DIRECT, block, reading, until)
    except OSError as error:
        if error.errno != errno.EINVAL:  # which stands for: no O_DIRECT here
            raise
        reading.uncached = False
        _read_blocks(path, 0, block, reading, until)


def _read_blocks(path: str, flags: int, block: mmap.mmap, reading: Reading, until: float) -> None:
    file = os.open(path, os.O_RDONLY | flags)
    try:
        if not flags:
            # A wish: pages that others use, or that are not yet written, stay in the cache.
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        while reading.nbytes < _BYTES and time.perf_counter() < until:
            count = os.readv(file, [block])
            reading.nbytes += count
            if count < _BLOCK:
                return
    finally:
        os.close(file)


def _way(path: str, reading: Reading) -> str:
    """Describe the storage that the speed belongs to."""
    import psutil

    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    real = Path(path).resolve()
    kind = next((mounts[str(up)] for up in real.parents if str(up) in mounts), "unknown")
    if kind in ("tmpfs", "ramfs"):
        return f"from memory ({kind})"
    if reading.uncached:
        return f"uncached ({kind}, O_DIRECT)"
    return f"perhaps cached ({kind} has no O_DIRECT)"
