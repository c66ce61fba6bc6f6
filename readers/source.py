"""Callable that DALI calls in its reader processes, once per sample.

It never raises and never ends. After an exception in a reader process DALI loses and repeats
samples. At the end of a source DALI loses the last batch and drains its queues. So the Schedule
converts the endless count of samples to epochs, and a row that cannot be read becomes an invalid
slot with the reason in its ReadReport.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.contract import Reader, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.index.columns import Columns
from readers.places.failures import is_of_store, nobody_answered
from readers.places.remote import TRAFFIC
from readers.sampling.blocks import BlockOrder, BucketOrder
from readers.sampling.draws import Draws
from readers.sampling.geometry import Flip as Flip
from readers.sampling.geometry import Geometry
from readers.sampling.geometry import WindowMode as WindowMode
from readers.sampling.order import Order
from readers.sampling.placement import check_size_known
from readers.sampling.schedule import Schedule, Slot
from readers.sampling.weighted import WeightedOrder
from readers.targets.several import Targets
from readers.window import Window
from readers.worker.read_report import REPORT_BYTES, ReadReport
from readers.worker.timeout import TimeLimit, within

COLUMN, TARGET = "column:", "target:"
"""Prefixes of arrays of columns and targets. Readers may use all other names."""

NEIGHBOURS = 64
"""Maximum number of rows to try as a substitute for a row that cannot be read. The slot gets the
size of the substitute, and with tail `fill` also its pixels."""
_MOST_TIMEOUTS = 3
"""Timeouts after which no more substitutes are tried, because the server does not answer."""


class SampleInfo(Protocol):
    """Attributes of DALI's SampleInfo that a Source uses."""

    idx_in_epoch: int


@dataclass(kw_only=True)
class Source(Geometry):
    """Rows of an Index in order, as tuples of arrays for ``fn.external_source``.

    The pickle is small, because paths stay in the file of the Columns.
    """

    columns: Columns
    reader: Reader
    schedule: Schedule
    order: Order | BlockOrder | BucketOrder | WeightedOrder
    sent_columns: tuple[str, ...] = ()
    """Numeric columns sent with each sample; shape () or the shape of a row."""
    chance: bool = True
    """False to make no random choices, in mode ``eval``."""
    subpixel: bool = False
    """Whether columns ``y`` and ``x`` place windows between pixels."""
    targets: Targets = field(default_factory=Targets)
    """Masks, boxes and other targets sent with each sample."""
    usual_size: tuple[int, int] = (1, 1)
    """(height, width) of images without a crop, if known."""
    empty_size: tuple[int, int] = (1, 1)
    """(height, width) of samples that are not delivered, if other samples may differ in size."""
    ragged: bool = False
    """Whether the images of a batch may differ in size."""
    num_draws: int | None = None
    """Random numbers sent with each sample as ``draws``, for operators of the graph."""
    num_epochs: int | None = None
    """Number of epochs to read; None for no end."""
    rejected: Mapping[int, str] = field(default_factory=dict)
    """Rows that the graph failed to decode, and the reasons. They are not read again."""
    read_timeout: float | None = None
    """Seconds that reading a row may take; None for no limit."""
    read_threads: int = 1
    """Samples that a reader process reads concurrently; 1 outside reader processes."""
    _first_readable: int = field(default=0, init=False)
    """All rows of the Index before this one are known to be unreadable."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_reader(self.reader)
        check_size_known(self.reader, "targets", self.targets)

    @property
    def is_resampled(self) -> bool:
        """Whether pixels of windows are at positions between pixels of the image."""
        return self.subpixel or self.is_turned

    @cached_property
    def _of_sample(self) -> tuple[SampleSpec, ...]:
        targets = (replace(spec, name=TARGET + spec.name) for spec in self.targets.specs)
        return (*self.reader.specs, *self._geometry_specs, *targets)

    @cached_property
    def _geometry_specs(self) -> tuple[SampleSpec, ...]:
        return self.geometry_specs(self.reader)

    @property
    def _draws_specs(self) -> tuple[SampleSpec, ...]:
        flip = SampleSpec(name="flip", dtype="int32", shape=(2,))
        draws = SampleSpec(name="draws", dtype="float32", ndim=1)
        return (flip,) * bool(self.flip) + (draws,) * (self.num_draws is not None)

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of the arrays that a call returns: the Reader's, the graph's and the slot's."""
        kinds = {name: self.columns.dtype(name) for name in self.sent_columns}
        columns = [
            SampleSpec(name=COLUMN + name, dtype=kind.base.name, shape=kind.shape)
            for name, kind in kinds.items()
        ]
        return (
            *self._of_sample,
            *self._draws_specs,
            SampleSpec(name="row", dtype="int64", shape=()),
            SampleSpec(name="valid", dtype="bool", shape=()),
            *columns,
            SampleSpec(name="report", dtype="uint8", shape=(REPORT_BYTES,)),
        )

    def __call__(self, info: SampleInfo) -> tuple[NDArray[Any], ...]:
        """Read one sample; ``info.idx_in_epoch`` counts the samples of all epochs."""
        # CPU time of the process: with a read_timeout another thread reads.
        cpu_time = time.process_time if self.read_threads == 1 else time.thread_time
        started, cpu_started = time.perf_counter(), cpu_time()
        slot = self.schedule.locate(info.idx_in_epoch)
        row, sample, valid, report = self._fill_slot(slot)
        try:
            values = [self.columns.value(name, row) for name in self.sent_columns]
        except ReadError as error:  # the Index file cannot be read
            values = [np.zeros((), self.columns.dtype(name)) for name in self.sent_columns]
            if valid:
                valid = False
                report.reject(row, error.reason)
        report.read_s = time.perf_counter() - started
        report.read_cpu_s = min(report.read_s, cpu_time() - cpu_started)
        report.traffic = TRAFFIC.take()
        return (
            *(sample[spec.name] for spec in self._of_sample),
            *self._draws_arrays(*self._key(slot, row)),
            np.array(row, np.int64),
            np.array(valid),
            *map(np.asarray, values),
            report.pack(),
        )

    def _fill_slot(self, slot: Slot) -> tuple[int, Sample, bool, ReadReport]:
        report = ReadReport()
        batch_start = slot.position - slot.index
        last = self.num_epochs
        ended = last is not None and self.schedule.counted_epoch(slot) >= last
        if ended or (batch_start >= self.schedule.num_rows and self.schedule.tail != "fill"):
            # No slot of this batch has a row, so the smallest image suffices.
            return 0, self._blank(*self.empty_size), False, report
        valid, unreadable = slot.position < self.schedule.num_rows, None
        if valid or self.schedule.tail == "fill":
            row = 0  # stays 0 if the weights cannot be read
            try:
                row = self._row(slot)
                return row, self._read(slot, row, report), valid, report
            except ReadError as error:
                unreadable = row
                if valid:
                    report.reject(row, error.reason, is_of_store(error))
        return *self._substitute(slot, report, unreadable), False, report

    def _substitute(
        self, slot: Slot, report: ReadReport, unreadable: int | None
    ) -> tuple[int, Sample]:
        """Return a row and a sample that fits the rest of the batch, by rows that can be read.

        With tail `fill` the sample has the pixels of a nearby row. If all nearby rows are bad, it
        has the pixels of the first readable row of the Index.
        """
        timeouts = 0
        for ahead in range(min(NEIGHBOURS, self.schedule.num_rows)):
            try:
                row = self._row(slot, ahead - slot.index)
                fits = self.ragged or self.blank_shape is not None
                if self.schedule.tail != "fill" and fits:
                    return row, self._blank(*self.empty_size)
                if row == unreadable:
                    continue
                if self.schedule.tail == "fill":
                    return row, self._read(slot, row, report)
                peek = within(self.read_timeout, self.reader.peek, self.columns.row(row), None)
                return row, self._blank(peek.height, peek.width)
            except Exception as error:  # the slot of that row reports it
                timeouts += _took_long(error)
                if timeouts == _MOST_TIMEOUTS:
                    break
        report.is_blank = self.schedule.tail == "fill"
        while report.is_blank and timeouts < _MOST_TIMEOUTS:
            row = self._first_readable  # other threads may change the attribute
            if row == self.schedule.num_rows:
                break
            try:
                sample = self._read(slot, row, report)
            except ReadError as error:
                timeouts += (took_long := _took_long(error))
                self._first_readable = max(self._first_readable, row + (not took_long))
            else:
                report.is_blank = False
                return row, sample
        return 0, self._blank(*self.usual_size)

    def _blank(self, height: int, width: int) -> Sample:
        """Return a blank sample of `blank_shape`, or of the given size if this is None."""
        shape = self.blank_shape or (height, width)
        blank = self.reader.blank(*shape)
        return self._completed(replace(blank, image_size=shape), None, (False, False))

    def _completed(
        self,
        sample: Sample,
        window: Window | None,
        flip: tuple[bool, bool],
        row: Row | None = None,
    ) -> Sample:
        """Add the arrays that depend on the geometry; without a row targets are blank."""
        if not self.targets and not self._geometry_specs:
            return sample
        if (image := sample.image_size) is None:
            raise ValueError("the Samples of this Reader must have image_size")
        placement = None
        if self.targets or self.needs_placement(self.reader):
            placement = self.placement(window, image, flip)
        geometry = self.geometry_arrays(self.reader, window, image, placement)
        arrays, nbytes = {**sample.arrays, **geometry}, sample.input_bytes
        if placement is not None and row is None:
            arrays |= _of_targets(self.targets.blank(placement.shape))
        elif placement is not None and row is not None:
            found = self.targets.read(self.columns, row, placement, sample.frames)
            arrays |= _of_targets(found.arrays)
            nbytes += found.input_bytes
        return replace(sample, arrays=arrays, input_bytes=nbytes)

    def _draws_arrays(self, *key: int) -> tuple[NDArray[Any], ...]:
        arrays: tuple[NDArray[Any], ...] = ()
        if self.flip:
            arrays = (np.array(self.draw_flips(*key), np.int32),)
        if self.num_draws is not None:
            arrays += (Draws.of(*key).graph_fractions(self.num_draws),)
        return arrays

    def _row(self, slot: Slot, offset: int = 0) -> int:
        return self.order.row(*self.schedule.place(slot.epoch, slot.position + offset))

    def _key(self, slot: Slot, row: int) -> tuple[int, int, int]:
        """Return the key of a sample's random choices: seed, pass and number for Draws."""
        epoch, position = self.schedule.place(slot.epoch, slot.position)
        return self.order.seed, epoch, self.order.draws_number(position, row)

    def _corner(self, number: int) -> tuple[float, float] | None:
        if self.window != "row":
            return None
        y, x = self.columns.value("y", number), self.columns.value("x", number)
        return (float(y), float(x)) if self.subpixel else (int(y), int(x))

    def _read(self, slot: Slot, number: int, report: ReadReport) -> Sample:
        row = self.columns.row(number)  # ReadError if the Index file cannot be read
        if number in self.rejected:
            raise ReadError(row.name, self.rejected[number], row=number)
        try:
            key = self._key(slot, number)
            window = self.draw_window(*key, self._corner(number))
            if self.chance and getattr(self.reader, "uses_draws", False):
                row = replace(row, draws=Draws.of(*key))
            flip = self.draw_flips(*key)
            sample = within(self.read_timeout, self._read_files, row, window, flip)
        except ReadError:
            raise
        except TimeLimit as error:
            raise ReadError(row.name, str(error), row=number) from error
        except Exception as error:
            # Bugs in a Reader must not reach DALI either. Unlike str(error), this never raises.
            reason = "".join(traceback.format_exception_only(error)).strip()
            raise ReadError(row.name, reason, row=number) from error
        report.input_bytes += sample.input_bytes
        return sample

    def _read_files(self, row: Row, window: Window | None, flip: tuple[bool, bool]) -> Sample:
        sample = self.reader.read(row, window)
        for spec in self.reader.specs:
            spec.check(sample[spec.name])
        return self._completed(sample, window, flip, row)


def _of_targets(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {TARGET + name: array for name, array in arrays.items()}


def _took_long(error: BaseException) -> bool:
    """Return whether an error was caused by a timeout."""
    return isinstance(error.__cause__ or error, TimeLimit) or nobody_answered(error)
