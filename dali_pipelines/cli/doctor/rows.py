"""Check of `doctor`: rows of the data, read as the reader processes of a run read them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.doctor.finding import Finding, bad, note, ok
from readers.contract import Sample
from readers.errors import ReadError
from readers.places.opener import Places
from readers.places.urls import is_url
from readers.sampling.shard import Shard
from readers.worker.read_report import ReadReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dali_pipelines.cli.doctor.finding import Job
    from readers.contract import Reader, Row
    from readers.source import Source

_ROWS = 64
"""Rows of files that are read at most, spread over the epoch."""
_REMOTE_ROWS = 8
"""Rows that are read at most where the first file is a URL."""
_SECONDS = 2.0


@dataclass(slots=True)
class _Tried:
    """Result of reading some rows."""

    rows: int = 0
    failures: list[str] = field(default_factory=list)
    """Path and reason of each row that could not be read."""
    sizes: dict[tuple[int, int], str] = field(default_factory=dict)
    """Sizes of the images that are not cut or resized to one, each with its first path."""


def rows(job: Job) -> Finding:
    """Whether rows can be read, with these settings, and fit into one batch."""
    source = job.known_pipelines[0].source
    # Without the cache of the run, which is for the files of the run.
    columns = source.columns.with_places(Places(job.config.storage))
    most = _REMOTE_ROWS if is_url(job.index.path(0)) else _ROWS
    tried = _read_rows(replace(source, columns=columns), most)
    wrong, remedies = [], []
    left_out = ""
    if tried.failures:
        found = f"{len(tried.failures)} of {tried.rows} tried cannot be read"
        first = f"the first: {tried.failures[0]}"
        if len(tried.failures) == tried.rows:  # nothing would be delivered
            wrong.append(f"{found} ({first})")
            remedies.append("fix them, or give other --data or another --pipeline")
        elif job.config.bad_sample == "skip":
            left_out = f"{found} and will be left out, {first}"
        else:
            wrong.append(f"{found} ({first})")
            remedies.append("fix it, or leave such files out by --bad_sample=skip")
    if len(tried.sizes) > 1 and _must_be_even(job):
        examples = [f"{h}x{w} ({path})" for (h, w), path in tried.sizes.items()][:2]
        wrong.append(f"the images of a batch differ in size, as {' and '.join(examples)}")
        remedies.append("give --crop or --resize, or --ragged")
    if wrong:
        return bad(f"rows: {'; '.join(wrong)}", "; ".join(remedies))
    undecoded = "" if _is_decoded(source.reader) else "; whether they decode, verify tells"
    good = f"rows: {tried.rows} tried, all can be read{undecoded}"
    return note(f"rows: {left_out}") if left_out else ok(good)


def _must_be_even(job: Job) -> bool:
    """Return whether images of several sizes are an error; a transform may make one of them."""
    config = job.config.pipeline_config
    return config.batch_size > 1 and config.ragged is None and config.transform is None


def _read_rows(source: Source, most: int) -> _Tried:
    """Read some rows of the first epoch until time is up."""
    every = replace(source.schedule, shard=Shard(0, 1), tail="partial")
    source = replace(source, schedule=every, num_epochs=None)
    names = [spec.name for spec in source.specs]
    one_size = source.blank_shape is not None or source.resize is not None
    tried = _Tried()
    count = len(source.columns)
    for number in range(0, count, -(-count // most)):
        if tried.rows < 2:  # the first may compile what decodes it
            started = time.perf_counter()
        elif time.perf_counter() - started > _SECONDS:
            break
        sent = dict(zip(names, source(SimpleNamespace(idx_in_epoch=number)), strict=True))
        (report,) = ReadReport.unpack(sent["report"][None])
        tried.rows += 1
        rejected = report.rejected_row
        row = source.columns.row(int(sent["row"]) if rejected is None else rejected)
        reason = _damage(source.reader, row, sent) if rejected is None else report.reason
        if reason is not None:
            tried.failures.append(f"{row.name}: {reason}")
        elif not one_size:
            peek = source.reader.peek(row, None)
            tried.sizes.setdefault((peek.height, peek.width), row.name)
    return tried


def _is_decoded(reader: Reader) -> bool:
    """Return whether `_damage` decodes what is read: one plane of a FITS image, as it is stored."""
    names = [spec.name for spec in reader.specs if spec.name.startswith("payload")]
    return names == ["payload"] and reader.channels == 1


def _damage(reader: Reader, row: Row, sent: Mapping[str, Any]) -> str | None:
    """Return why a pipeline could not decode what was read of a row, as far as it is known."""
    from dali_pipelines.aia.calibrate import decoded

    try:
        if _is_decoded(reader):
            decoded(row, Sample(sent))
    except ReadError as error:
        return error.reason
    return None
