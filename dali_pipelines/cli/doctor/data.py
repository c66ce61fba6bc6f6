"""Checks of `doctor`: the data, their storage, and the limits of the machine for reading them."""

from __future__ import annotations

import errno
import itertools
import math
import mmap
import os
import resource
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.doctor.job import Finding, Unknown, bad, note, ok
from dali_pipelines.cli.errors import count
from readers.chunks.array import NOTE
from readers.contract import Sample
from readers.errors import ReadError
from readers.places.failures import is_of_store
from readers.places.opener import Places
from readers.places.urls import is_url, located
from readers.sampling.shard import Shard
from readers.worker.read_report import ReadReport
from readers.worker.slab import region_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dali_pipelines.cli.doctor.job import Job
    from readers.contract import Reader, Row
    from readers.places.storage import Storage
    from readers.source import Source

_SECONDS = 2.0
"""Longest time that a check spends on reading."""

_FILES = 64
"""Maximum number of files to read, spread over the Index."""
_FILE_BYTES = 512_000_000
_BLOCK = 4 << 20
_SLOW = 50e6
"""Bytes per second; if a process reads fewer, more processes are advised. A disk gives 150e6."""
_TELLING = 8_000_000
"""Minimum number of bytes to measure the speed of the storage, not of opening small files."""

_RANGE = 4 << 20
_AT_ONCE = 16
_OBJECT_BYTES = 256_000_000
_SAMPLES = 8
_MOST_THREADS = 64

_ROWS = 64
"""Maximum number of rows to read, spread over the epoch."""
_REMOTE_ROWS = 8
"""Maximum number of rows to read if the first file is a URL."""

# Open files of this process while readers start. Measured by lowering the limit until a run failed:
# 18, 46 and 49 were enough for 2, 16 and 16 readers with 1, 1 and 2 shards.
_FILES_ELSEWHERE = 64
"""Descriptors for everything else: libraries, terminal, fork server, memory shared with readers,
and files of the script."""
_FILES_A_READER = 3
"""Descriptors for each reader: two pipes, and a pidfd unless a fork server started it."""


# ---- Files -------------------------------------------------------------------------------------


def data(job: Job) -> Finding | None:
    """Whether the files can be read, and how fast one process reads them; None for URLs."""
    if is_url(job.index.path(0)):
        return None
    paths = job.tried(_FILES)
    tried, nbytes, uncached, failures = 0, 0, True, []
    started = time.perf_counter()
    seconds = 0.0
    with mmap.mmap(-1, _BLOCK) as block:  # aligned to a page, as O_DIRECT requires
        for path in paths:
            if time.perf_counter() - started > _SECONDS or nbytes >= _FILE_BYTES:
                break
            tried += 1
            try:
                for size, is_direct in _blocks(path, block):
                    nbytes += size
                    uncached = uncached and is_direct
                    if nbytes >= _FILE_BYTES or time.perf_counter() - started > _SECONDS:
                        break
            except OSError as error:
                failures.append(f"{path}: {error.strerror}")
        seconds = time.perf_counter() - started
    if failures:
        found = f"data: {len(failures)} of {tried} files tried cannot be read"
        first = f"the first: {failures[0]}"
        if job.config.bad_sample == "skip":
            return note(f"{found} and will be left out, {first}")
        return bad(f"{found} ({first})", "fix them, or leave such files out with --bad_sample=skip")
    speed = nbytes / max(seconds, 1e-9)
    words = (
        f"data: {job.counted('file')}; one process read {tried} of them, {nbytes / 1e6:.1f} MB, "
        f"at {speed / 1e6:.0f} MB/s {_storage_of(paths[0], uncached=uncached)}"
    )
    if speed < _SLOW and nbytes >= _TELLING:
        return note(f"{words}; slow storage, which many --num_read_processes may hide")
    return ok(words)


def _blocks(path: str, block: mmap.mmap, flags: int = os.O_DIRECT) -> Iterator[tuple[int, bool]]:
    """Read a file block by block; yield the sizes, and whether the page cache was bypassed."""
    try:
        file = os.open(path, os.O_RDONLY | flags)
        try:
            if not flags:
                # Only a hint: pages that others use, or that are not yet written, stay in the
                # cache.
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            while True:
                size = os.readv(file, [block])
                yield size, bool(flags)
                if size < _BLOCK:
                    return
        finally:
            os.close(file)
    except OSError as error:
        if error.errno != errno.EINVAL or not flags:  # EINVAL: this file system has no O_DIRECT
            raise
        yield from _blocks(path, block, 0)


def _storage_of(path: str, *, uncached: bool) -> str:
    """Describe the storage, for the speed."""
    import psutil

    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    real = Path(path).resolve()
    kind = next((mounts[str(up)] for up in real.parents if str(up) in mounts), "unknown")
    if kind in ("tmpfs", "ramfs"):
        return f"from memory ({kind})"
    if uncached:
        return f"uncached ({kind}, O_DIRECT)"
    return f"perhaps cached ({kind} has no O_DIRECT)"


# ---- Objects, where data are URLs --------------------------------------------------------------


def credentials(job: Job) -> Finding | None:
    """Check that there are credentials; name their source, never their values."""
    from readers.places.stores import credentials_of

    url = job.first_path
    if not is_url(url):
        return None
    found = credentials_of(located(url).root, job.config.storage)
    if found is None:
        aws = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --profile"
        variables = "GOOGLE_APPLICATION_CREDENTIALS" if url.startswith("gs://") else aws
        return note(
            "credentials: none are set, so the credentials of this instance are used, if any; set "
            f"{variables}, or --anonymous"
        )
    return ok(f"credentials: {found}")


def requests(job: Job) -> Finding | None:
    """Measure the time of an answer; check that ranges and versions are respected."""
    rows = job.objects
    if not rows:
        return None
    seconds = []
    for row in (rows[0], *rows):  # the first request opens the connection
        with row.place as place:
            started = time.perf_counter()
            place.read(1, 2)
            seconds.append(time.perf_counter() - started)
    words = (
        f"requests: {job.counted('object')}; an answer takes "
        f"{_ms(statistics.median(seconds[1:]))} (median of {len(rows)}), ranges work"
    )
    if rows[0].place.stamp is None:
        return note(f"{words}; there is no strong ETag, so nothing is cached")
    if not _checks_version(rows[0], job.config.storage):
        return note(f"{words}, ETags too; If-Match is ignored, so ETags are compared here")
    return ok(f"{words}, and so do ETags and If-Match")


def _checks_version(row: Row, storage: Storage) -> bool:
    """Return whether the server rejects a request for another version."""
    import obstore

    from readers.places.failures import ChangedError, failure
    from readers.places.stores import store_of

    root, key = located(row.path)
    options: Any = {"range": (0, 1), "if_match": '"another"'}
    try:
        obstore.get(store_of(root, storage), key, options=options)
    except Exception as error:
        return isinstance(failure(error, row.path, storage), ChangedError)
    return False


def throughput(job: Job) -> Finding | None:
    """Bytes per second of several requests at once."""
    rows = job.objects
    if not rows:
        return None
    at_once = min(_AT_ONCE, job.config.storage.concurrency)
    until = time.perf_counter() + _SECONDS

    def read(row: Row) -> int:
        if time.perf_counter() > until:
            return 0
        with row.place as place:
            return len(place.read(1, _RANGE))  # not from 0, where more is read ahead

    most = max(at_once, _OBJECT_BYTES // _RANGE)
    with ThreadPoolExecutor(at_once) as threads:
        started = time.perf_counter()
        nbytes = list(threads.map(read, itertools.islice(itertools.cycle(rows), most)))
        seconds = time.perf_counter() - started
    done = [each for each in nbytes if each]
    return ok(
        f"throughput: {sum(done) / seconds / 1e6:.0f} MB/s, of {count(len(done), 'request')} for "
        f"{sum(done) / max(1, len(done)) / 1e6:.2g} MB, {at_once} at once"
    )


def read_ahead(job: Job) -> Finding | None:
    """Estimate the number of samples that a reader must read at once to be busy."""
    if not job.objects:
        return None
    # Read the first samples of the run one by one, without its cache.
    source = _uncached(job.peeked_pipelines[0].source, job)
    source = replace(source, read_threads=1)
    reports = []
    for number in range(min(_SAMPLES, source.schedule.num_rows) + 1):
        arrays = source(SimpleNamespace(idx_in_epoch=min(number, _SAMPLES)))
        (report,) = ReadReport.unpack(arrays[-1][None])
        if number and report.input_bytes:  # the first sample compiles, and opens connections
            reports.append(report)
    if not reports:
        raise Unknown("no sample could be read")
    read_s = statistics.median(report.read_s for report in reports)
    cpu_s = statistics.median(report.read_cpu_s for report in reports)
    nbytes = statistics.mean(report.input_bytes for report in reports)
    threads = min(_MOST_THREADS, math.ceil(read_s / max(cpu_s, 1e-4)))
    words = (
        f"read ahead: a sample takes {_ms(read_s)} and {nbytes / 1e6:.2g} MB, {_ms(cpu_s)} of it "
        f"computing; --read_threads={threads} keeps a reader busy"
    )
    readers = job.config.num_read_processes
    rate = readers / max(cpu_s, 1e-4)
    return ok(f"{words}, {count(readers, 'reader')} then ask for {rate * nbytes / 1e6:.0f} MB/s")


def _uncached(source: Source, job: Job) -> Source:
    """Return a Source without the cache: only the run itself uses it."""
    return replace(source, columns=source.columns.with_places(Places(job.config.storage)))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


# ---- Samples -----------------------------------------------------------------------------------


def settings(job: Job) -> Finding:
    """Whether the settings fit the data; all estimates follow from this."""
    first = job.pipelines[0]
    config = job.config
    if first.peek is None:
        error = _first_error(first.source)
        reason = "" if error is None else f" (the first: {error})"
        if is_of_store(error):
            return Finding("BAD", f"settings: none of the first files can be read{reason}")
        return bad(
            f"settings: none of the first files can be read as {config.pipeline}{reason}",
            "choose another --pipeline, or check the files with dali-pipelines verify",
        )
    size = f"{first.peek.height}x{first.peek.width}"
    return ok(
        f"settings: fit the data, the first image is {size} and takes {first.peek.nbytes / 1e6:.1f}"
        f" MB on its way; batches of {config.batch_size}, {first.ahead} ahead"
    )


def _first_error(source: Source) -> OSError | None:
    """Return why the first file cannot be read, or None."""
    try:
        source.reader.peek(source.columns.row(0), None)
    except OSError as error:
        return error
    return None  # not the file, but the window


def rows(job: Job) -> Finding:
    """Whether rows can be read with these settings, as in a run, and fit into one batch."""
    source = _uncached(job.peeked_pipelines[0].source, job)
    every = replace(source.schedule, shard=Shard(0, 1), tail="partial")
    source = replace(source, schedule=every, num_epochs=None)
    one_size = source.blank_shape is not None or source.resize is not None
    most = _REMOTE_ROWS if is_url(job.index.path(0)) else _ROWS
    tried, failures = 0, []
    sizes: dict[tuple[int, int], str] = {}  # each with its first path
    for number in range(0, len(source.columns), -(-len(source.columns) // most)):
        if tried < 2:  # the first sample may compile its decoder
            started = time.perf_counter()
        elif time.perf_counter() - started > _SECONDS:
            break
        tried += 1
        row, reason = _read_row(source, number)
        if reason is not None:
            failures.append(f"{row.name}: {reason}")
        elif not one_size:
            peek = source.reader.peek(row, None)
            sizes.setdefault((peek.height, peek.width), row.name)

    wrong, remedies, left_out = [], [], ""
    if failures:
        found = f"{len(failures)} of {tried} tried cannot be read"
        first = f"the first: {failures[0]}"
        if len(failures) < tried and job.config.bad_sample == "skip":
            left_out = f"{found} and will be left out, {first}"
        else:
            wrong.append(f"{found} ({first})")
            remedies.append(
                "fix them, or leave such files out with --bad_sample=skip"
                if len(failures) < tried
                else "fix them, or set other --data or another --pipeline"
            )
    config = job.config.pipeline_config
    # A transform may make the sizes equal.
    are_stacked = config.batch_size > 1 and config.ragged is None and config.transform is None
    if len(sizes) > 1 and are_stacked:
        examples = [f"{h}x{w} ({path})" for (h, w), path in sizes.items()][:2]
        wrong.append(f"the images of a batch differ in size, as {' and '.join(examples)}")
        remedies.append("set --crop or --resize, or --ragged")
    if wrong:
        return bad(f"rows: {'; '.join(wrong)}", "; ".join(remedies))
    if left_out:
        return note(f"rows: {left_out}")
    is_decoded = _is_decoded(source.reader) or NOTE in getattr(source.reader, "notes", ())
    undecoded = "" if is_decoded else "; verify shows whether they decode"
    return ok(f"rows: {tried} tried, all can be read{undecoded}")


def _read_row(source: Source, number: int) -> tuple[Row, str | None]:
    """Read a sample of the first epoch; return its row, and the reason if it is damaged."""
    names = [spec.name for spec in source.specs]
    sent = dict(zip(names, source(SimpleNamespace(idx_in_epoch=number)), strict=True))
    (report,) = ReadReport.unpack(sent["report"][None])
    if report.rejected_row is not None:
        return source.columns.row(report.rejected_row), report.reason
    row = source.columns.row(int(sent["row"]))
    return row, _damage(source.reader, row, sent)


def _is_decoded(reader: Reader) -> bool:
    """Return whether `_damage` can decode a sample: one plane of a FITS image, as stored."""
    names = [spec.name for spec in reader.specs if spec.name.startswith("payload")]
    return names == ["payload"] and reader.channels == 1


def _damage(reader: Reader, row: Row, sent: Mapping[str, Any]) -> str | None:
    """Return why a pipeline could not decode a sample, None if no reason is found."""
    from dali_pipelines.aia.calibrate import decoded

    try:
        if _is_decoded(reader):
            decoded(row, Sample(sent))
    except ReadError as error:
        return error.reason
    return None


# ---- Limits of the machine ---------------------------------------------------------------------


def memory(job: Job) -> Finding:
    """Free memory of the machine, or of the control group."""
    from dali_pipelines.memory import free_memory, in_words

    job.estimate.check()
    needed, free = in_words(job.estimate.total), in_words(free_memory())
    cupy = job.estimate.cupy if job.on_gpu else 0
    beside = f"; CuPy takes up to {in_words(cupy)} on each GPU beside DALI" if cupy else ""
    return ok(f"memory: about {needed} needed, {free} free{beside}")


def address_space(job: Job) -> Finding:
    """Limits of virtual memory and of file size; both apply to memory shared by processes."""
    from dali_pipelines.memory import in_words

    readers = max(1, sum(pipeline.num_read_processes for pipeline in job.peeked_pipelines))
    # Readers take samples when they are free, so some take more than others.
    needed, room = 2 * job.estimate.shared // readers, region_bytes(readers)
    words = f"address space: {in_words(needed)} needed for samples of a reader, {in_words(room)}"
    if room < needed:
        return bad(
            f"{words} left by the limits of virtual memory and file size",
            "ulimit -v unlimited -f unlimited, and limit memory by a control group",
        )
    return ok(f"{words} free")


def open_files(job: Job) -> Finding:
    """Limit of open files, which readers inherit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    pipelines = job.peeked_pipelines
    readers = sum(pipeline.num_read_processes for pipeline in pipelines)
    needed = _FILES_ELSEWHERE + _FILES_A_READER * readers
    words = (
        f"open files: {needed} needed for {count(readers, 'reader')} of "
        f"{count(len(pipelines), 'shard')}"
    )
    if limit != resource.RLIM_INFINITY and limit < needed:
        return bad(
            f"{words}, the limit is {limit}",
            f"ulimit -n {needed} (or more, docker run --ulimit nofile={needed}), or fewer "
            "--num_read_processes",
        )
    return ok(f"{words}, the limit is {'none' if limit == resource.RLIM_INFINITY else limit}")
