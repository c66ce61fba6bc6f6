"""Checks of `doctor` where data are URLs: credentials, requests, and how far to read ahead."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.doctor.finding import Finding, Unknown, note, ok
from dali_pipelines.cli.errors import count
from readers.places.urls import is_url, located

if TYPE_CHECKING:
    from dali_pipelines.cli.doctor.finding import Job
    from readers.contract import Row
    from readers.places.storage import Storage
    from readers.worker.read_report import ReadReport

_RANGE = 4 << 20
_AT_ONCE = 16
_BYTES = 256_000_000
_SECONDS = 2.0
_SAMPLES = 8
_MOST_THREADS = 64


def credentials(job: Job) -> Finding | None:
    """Check that there are credentials; name their source, never their values."""
    from readers.places.stores import credentials_of

    data = job.config.data or ""
    try:
        url = data if is_url(data) else job.index.path(0)
    except Exception:  # the check of the data reports it
        return None
    if not is_url(url):
        return None
    found = credentials_of(located(url).root, job.config.storage)
    if found is None:
        aws = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --profile"
        variables = "GOOGLE_APPLICATION_CREDENTIALS" if url.startswith("gs://") else aws
        return note(
            "credentials: none are set, which leaves those of this instance; set "
            f"{variables}, or --anonymous"
        )
    return ok(f"credentials: {found}")


def requests(job: Job) -> Finding | None:
    """Measure the time of an answer; check that ranges and versions are respected."""
    rows = job.remote_rows
    if not rows:
        return None
    seconds = []
    for row in (rows[0], *rows):  # the first one opens the connection
        with row.place as place:
            started = time.perf_counter()
            place.read(1, 2)
            seconds.append(time.perf_counter() - started)
    words = (
        f"requests: {job.counted('object')}; an answer takes "
        f"{_ms(statistics.median(seconds[1:]))} (median of {len(rows)}), ranges work"
    )
    if rows[0].place.stamp is None:
        return note(f"{words}; there is no strong ETag, so that nothing is cached")
    if not _checks_version(rows[0], job.config.storage):
        return note(f"{words}, ETags too; If-Match is ignored, so that ETags are compared here")
    return ok(f"{words}, ETags and If-Match too")


def throughput(job: Job) -> Finding | None:
    """Bytes per second of some requests at once."""
    rows = job.known_rows
    if not rows:
        return None
    at_once = min(_AT_ONCE, job.config.storage.concurrency)
    until = time.perf_counter() + _SECONDS

    def read(row: Row) -> int:
        if time.perf_counter() > until:
            return 0
        with row.place as place:
            return len(place.read(1, _RANGE))  # not from 0: that is read with more

    most = max(at_once, _BYTES // _RANGE)
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
    if not job.known_rows:
        return None
    reports = _reports(job)
    read_s = statistics.median(report.read_s for report in reports)
    cpu_s = statistics.median(report.read_cpu_s for report in reports)
    nbytes = statistics.mean(report.input_bytes for report in reports)
    threads = min(_MOST_THREADS, math.ceil(read_s / max(cpu_s, 1e-4)))
    words = (
        f"read ahead: a sample takes {_ms(read_s)} and {nbytes / 1e6:.2g} MB, {_ms(cpu_s)} of it "
        f"computing; --read_threads={threads} keeps a reader busy"
    )
    readers = job.config.least_readers(job.config.num_gpus)
    rate = readers / max(cpu_s, 1e-4)
    return ok(f"{words}, {count(readers, 'reader')} then ask for {rate * nbytes / 1e6:.0f} MB/s")


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


def _reports(job: Job) -> list[ReadReport]:
    """Read the first samples of the run one by one, without its cache."""
    from readers.places.opener import Places
    from readers.worker.read_report import ReadReport

    source = job.known_pipelines[0].source
    columns = source.columns.with_places(Places(job.config.storage))
    source = replace(source, columns=columns, read_threads=1)
    reports = []
    for number in range(min(_SAMPLES, source.schedule.num_rows) + 1):
        arrays = source(SimpleNamespace(idx_in_epoch=min(number, _SAMPLES)))
        (report,) = ReadReport.unpack(arrays[-1][None])
        if number and report.input_bytes:  # the first one compiles, and opens connections
            reports.append(report)
    if not reports:
        raise Unknown("no sample could be read")
    return reports


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
