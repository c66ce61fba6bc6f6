"""Findings of the checks of `doctor`, and the job that all checks examine."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from dali_pipelines.cli.doctor.nvml import Driver, installed_driver, usable_gpus
from dali_pipelines.cli.errors import count, one_line
from dali_pipelines.cli.run_config import new_loader, open_index
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


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer."""

    level: str
    """OK, NOTE or BAD."""
    text: str
    """Text of the finding; with BAD also the remedy, after a colon."""

    def line(self) -> str:
        """Return the line that is printed."""
        return f"{self.level:<4} {one_line(self.text)}"


def ok(found: str) -> Finding:
    """Return a finding: as it should be."""
    return Finding("OK", found)


def note(found: str) -> Finding:
    """Return a finding that is worth knowing and no fault."""
    return Finding("NOTE", found)


def bad(found: str, remedy: str) -> Finding:
    """Return a finding of what is not fit, with the remedy."""
    return Finding("BAD", f"{found}: {remedy}")


_OBJECTS = 9
"""Objects that are asked for, spread over the Index."""


def _noted(row: Row) -> Row:
    """Return a row of the whole object, with its length and ETag, which may take a request."""
    place = replace(row, offset=None).place
    return replace(row, offset=None, etag=place.etag, file_bytes=place.nbytes)


class Unknown(Exception):
    """A check needs what another check could not find out and has reported."""


def once(look: Callable[[], Found]) -> Callable[[], Found]:
    """Return a function that looks once, and each time gives what that found, or raises its error.

    Of a store that does not answer each look takes the time-out.
    """

    @functools.cache
    def outcome() -> Found | Exception:
        try:
            return look()
        except Exception as error:
            return error

    def found() -> Found:
        if isinstance(result := outcome(), Exception):
            raise result
        return result

    return found


class Job:
    """The run to check, and facts that several checks need, each looked up once.

    Each raises Unknown where another check has reported why it cannot be known.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._index = once(lambda: open_index(config))
        self._rows = once(self._remote_rows)
        self._pipelines = once(self._new_pipelines)

    @cached_property
    def driver(self) -> Driver | None:
        """NVIDIA's driver, None without one."""
        return installed_driver()

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs, none of them if they are hidden on purpose."""
        try:
            return usable_gpus(self.driver)
        except OSError:  # the check of the driver reports it
            return ()

    @property
    def on_gpu(self) -> bool:
        """Whether GPUs are asked for, or there to be used."""
        wanted = self.config.device
        return wanted == "gpu" or (wanted == "auto" and bool(self.gpus))

    @property
    def num_threads(self) -> int:
        """DALI's threads of a shard."""
        return self.config.pipeline_config.num_threads

    @property
    def index(self) -> Index:
        """Rows of the data that were asked for."""
        return self._index()

    @cached_property
    def paths(self) -> pa.Array:
        """Paths of the files, each once: rows may share them, or have several."""
        import pyarrow as pa

        names = [f"{PART}{part}" for part in self.index.parts] or ["path"]
        columns = [self.index.table[name].cast(pa.large_string()) for name in names]
        every = pa.chunked_array([chunk for column in columns for chunk in column.chunks])
        return every.unique().drop_null()

    def counted(self, noun: str) -> str:
        """Return the number of files in words, and of rows where there are more or fewer."""
        files, rows = len(self.paths), len(self.index)
        return count(files, noun) + (f" of {count(rows, 'row')}" if files != rows else "")

    @property
    def remote_rows(self) -> list[Row]:
        """Whole objects, with length and ETag, spread over the Index; none of an Index of files."""
        return self._rows()

    @property
    def known_rows(self) -> list[Row]:
        """The same, for all checks but the one that reports why the objects cannot be asked."""
        try:
            return self.remote_rows
        except OSError as error:
            raise Unknown("the objects cannot be asked") from error

    def _remote_rows(self) -> list[Row]:
        try:
            index = self.index
        except Exception:  # the check of the data reports it
            return []
        if not is_url(index.path(0)):
            return []
        columns = index.columns().with_places(Places(self.config.storage))
        step = max(1, len(index) // _OBJECTS)
        rows = (columns.row(number) for number in range(0, len(index), step))
        return [_noted(row) for row in itertools.islice(rows, _OBJECTS) if is_url(row.path)]

    @property
    def pipelines(self) -> list[ReaderPipeline]:
        """The pipelines that a run would start, on the CPU, so that CUDA is left alone."""
        return self._pipelines()

    def _new_pipelines(self) -> list[ReaderPipeline]:
        try:
            index = self.index
        except Exception as error:
            raise Unknown("the data could not be opened") from error
        try:
            self._rows()
        except OSError as error:
            if is_of_store(error):  # else it is one object
                raise Unknown("the objects cannot be asked") from error
        try:
            return new_loader(self.config, index, [None] * self.config.num_gpus).make_pipelines()
        except (KeyError, TypeError) as error:  # of a setting, as `run` takes them
            raise ValueError(one_line(error)) from error

    @property
    def known_pipelines(self) -> list[ReaderPipeline]:
        """The pipelines, for all checks but the one that reports why they cannot be made."""
        try:
            pipelines = self.pipelines
        except Exception as error:
            raise Unknown("what the settings need is not known") from error
        if pipelines[0].peek is None:
            raise Unknown("what the files need is not known")
        return pipelines

    @cached_property
    def estimate(self) -> MemoryEstimate:
        """Memory that the pipelines will take."""
        from dali_pipelines.memory import estimate_memory

        estimate = estimate_memory(self.known_pipelines)
        # With GPUs the decoded batches lie there; all else is the same.
        return replace(estimate, images=0) if self.on_gpu else estimate
