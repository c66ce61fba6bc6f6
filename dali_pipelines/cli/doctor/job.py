"""Findings of the checks of `doctor`, and the job that all checks examine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from dali_pipelines.cli.doctor.nvml import Driver, installed_driver, usable_gpus
from dali_pipelines.cli.errors import count, one_line
from dali_pipelines.cli.run_config import new_loader, open_index
from readers.chunks.array import NOTE, unpacked
from readers.chunks.reader import joined
from readers.index.columns import PART
from readers.places.failures import is_of_store
from readers.places.opener import Places
from readers.places.urls import is_url

if TYPE_CHECKING:
    import pyarrow as pa

    from dali_pipelines import Index
    from dali_pipelines.cli.run_config import RunConfig
    from dali_pipelines.graph.pipeline import ReaderPipeline
    from dali_pipelines.memory import MemoryEstimate
    from readers.contract import Row

Found = TypeVar("Found")

_OBJECTS = 9
"""Number of objects to request, spread over the Index."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer."""

    level: str
    """OK, NOTE or BAD."""
    text: str
    """Text of the finding; with BAD also the remedy, after a colon."""

    def line(self) -> str:
        """Return the line to print."""
        return f"{self.level:<4} {one_line(self.text)}"


def ok(found: str) -> Finding:
    """Return a finding without need for action."""
    return Finding("OK", found)


def note(found: str) -> Finding:
    """Return a finding that is worth knowing, but not a fault."""
    return Finding("NOTE", found)


def bad(found: str, remedy: str) -> Finding:
    """Return a finding of a fault, with its remedy."""
    return Finding("BAD", f"{found}: {remedy}")


class Unknown(Exception):
    """A check needs a fact that an earlier check could not find, and has reported."""


class Fact(Generic[Found]):
    """A property of a Job that is looked up once, because a silent store answers late.

    If the look-up fails, the first check that uses the property gets the error, and reports it. All
    later checks get Unknown.
    """

    def __init__(self, look: Callable[[Job], Found], unknown: str) -> None:
        self._look, self._unknown = look, unknown

    def __get__(self, job: Job, _: object) -> Found:
        if self not in job.known:
            try:
                job.known[self] = self._look(job)
            except Exception as error:
                unknown = Unknown(self._unknown)
                unknown.__cause__ = error
                job.known[self] = unknown
                raise
        found = job.known[self]
        if isinstance(found, Unknown):
            raise found
        return found  # type: ignore[return-value]


def fact(unknown: str) -> Callable[[Callable[[Job], Found]], Fact[Found]]:
    """Turn a method into a Fact; `unknown` is the message if the method fails."""
    return lambda look: Fact(look, unknown)


class Job:
    """The run to check, and facts that several checks need."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.known: dict[object, object] = {}

    @cached_property
    def driver(self) -> Driver | None:
        """NVIDIA's driver, or None."""
        return installed_driver()

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs, without those that are hidden on purpose."""
        try:
            return usable_gpus(self.driver)
        except OSError:  # the check of the driver reports it
            return ()

    @property
    def on_gpu(self) -> bool:
        """Whether GPUs are requested, or available."""
        wanted = self.config.device
        return wanted == "gpu" or (wanted == "auto" and bool(self.gpus))

    @fact("the data could not be opened")
    def index(self) -> Index:
        """Rows of the data."""
        return open_index(self.config)

    @cached_property
    def paths(self) -> pa.Array:
        """Paths of the files, each once: rows may share a file, or have several."""
        import pyarrow as pa

        names = [f"{PART}{part}" for part in self.index.parts] or ["path"]
        columns = [self.index.table[name].cast(pa.large_string()) for name in names]
        every = pa.chunked_array([chunk for column in columns for chunk in column.chunks])
        return every.unique().drop_null()

    def tried(self, count: int) -> list[str]:
        """Return paths of at most so many files, or chunks of stores, spread over the Index."""
        if NOTE not in self.index:
            step = max(1, len(self.paths) // count)
            return self.paths[::step][:count].to_pylist()
        paths = (object_of(row).path for row in self.rows(count))
        return list(dict.fromkeys(paths))

    def rows(self, count: int) -> Iterator[Row]:
        """Yield at most so many rows, spread over the Index."""
        notes = (NOTE,) if NOTE in self.index else ()
        columns = self.index.columns(notes=notes).with_places(Places(self.config.storage))
        step = max(1, len(self.index) // count)
        return map(columns.row, itertools.islice(range(0, len(self.index), step), count))

    def counted(self, noun: str) -> str:
        """Return the number of files as text, and the number of rows if it differs."""
        files, rows = len(self.paths), len(self.index)
        return count(files, noun) + (f" of {count(rows, 'row')}" if files != rows else "")

    @property
    def first_path(self) -> str:
        """Path or URL of the data; empty if they cannot be opened, which another check reports."""
        data = self.config.data or ""
        if is_url(first := data if isinstance(data, str) else data[0]):
            return first
        try:
            return self.index.path(0)
        except Exception:
            return ""

    @fact("the objects cannot be asked")
    def objects(self) -> list[Row]:
        """Whole objects, with length and ETag, spread over the Index; empty for files."""
        try:
            index = self.index
        except Unknown:  # the check of the data has reported it
            return []
        if not is_url(index.path(0)):
            return []
        return [_noted(object_of(row)) for row in self.rows(_OBJECTS) if is_url(row.path)]

    @fact("the needs of these settings are not known")
    def pipelines(self) -> list[ReaderPipeline]:
        """Pipelines of the run, but on the CPU, so that CUDA is not initialised."""
        index = self.index
        try:
            self.objects  # noqa: B018  without them nothing can be read
        except Unknown as reason:
            if is_of_store(reason.__cause__):  # a tuple is several objects
                raise
        try:
            return new_loader(self.config, index, [None] * self.config.num_gpus).make_pipelines()
        except (KeyError, TypeError) as error:  # raised for a setting, as in `run`
            raise ValueError(one_line(error)) from error

    @property
    def peeked_pipelines(self) -> list[ReaderPipeline]:
        """The pipelines; Unknown if none of the first files can be read."""
        if self.pipelines[0].peek is None:
            raise Unknown("the needs of these files are not known")
        return self.pipelines

    @cached_property
    def estimate(self) -> MemoryEstimate:
        """Memory that the pipelines will need."""
        from dali_pipelines.memory import estimate_memory

        estimate = estimate_memory(self.peeked_pipelines)
        # With GPUs decoded batches are in their memory; the rest is the same.
        return replace(estimate, images=0) if self.on_gpu else estimate


def object_of(row: Row) -> Row:
    """Return an object of the row's store: one of its chunks, or its metadata without a chunk.

    A row that is a file is returned itself.
    """
    if not row.notes.get(NOTE):
        return row
    array = next(iter(unpacked(row.notes[NOTE]).values()))
    if not array.check:
        return row
    piece = next(array.pieces(row.plane, 0, 0, *array.image_size))
    stored = array.places.find(piece.at)
    key = array.check if stored is None else stored.key
    found = replace(row, path=joined(row.path, key))
    try:
        with found.place as place:
            _ = place.nbytes
    except FileNotFoundError:
        return replace(row, path=joined(row.path, array.check))
    return found


def _noted(row: Row) -> Row:
    """Return a row of the whole object with its length and ETag; this may take a request."""
    place = replace(row, offset=None).place
    return replace(row, offset=None, etag=place.etag, file_bytes=place.nbytes)
