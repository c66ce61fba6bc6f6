"""The pipelines of a Loader while they run, and what is done when one of them fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from dali_pipelines.frameworks.contract import Batch, Framework
from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.loading.cursor import Cursor
from dali_pipelines.loading.intake import Intake
from dali_pipelines.loading.maker import PipelineMaker
from dali_pipelines.loading.stats import LoaderStats
from dali_pipelines.runtime.interrupts import interrupt_held
from dali_pipelines.runtime.processes.reader_processes import ReaderProcessError

logger = logging.getLogger(__name__)

_CLOSED = (
    "this Loader was closed by another thread while it waited for a batch: the next loop over it "
    "starts with that batch"
)


@dataclass(eq=False)
class RunningPipelines:
    """Started pipelines, one for each device, and iterators over them; at first there are none."""

    maker: PipelineMaker
    framework: Framework
    intake: Intake
    cursor: Cursor
    stats: LoaderStats
    restarts_left: int
    """Restarts that are left after the death of a reader process."""
    pipelines: list[ReaderPipeline] = field(default_factory=list)
    _iterators: list[Iterator[Batch]] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "pipelines": [], "_iterators": []}  # a copy starts its own

    def start(self) -> None:
        """Start the pipelines and their reader processes; see `dali_pipelines.Loader.start`."""
        for pipeline in self.pipelines:
            pipeline.check_process()
        while not self.pipelines:
            try:
                with interrupt_held():
                    self._start()
            except ReaderProcessError as error:
                self._use_restart(error)

    def make(self) -> list[ReaderPipeline]:
        """Make new pipelines; see `dali_pipelines.Loader.make_pipelines`."""
        pipelines = self.maker.all()
        self.intake.check_names(pipelines[0].output_names)
        if self.intake.policy.raises and pipelines[0].too_small is not None:
            raise ValueError(pipelines[0].too_small)
        return pipelines

    def _start(self) -> None:
        """Start new pipelines at the next step; close them if one cannot be started."""
        started = time.perf_counter()
        self.cursor.settle()
        self.pipelines = self.make()
        try:
            for pipeline in self.pipelines:
                pipeline.start_py_workers()
            self._iterators = [self.framework.iterate(pipeline) for pipeline in self.pipelines]
        except BaseException:
            self.close()
            raise
        self.stats.start_s += time.perf_counter() - started

    def step(self) -> Any:
        """Return the batches of the next step as the framework delivers them; move the cursor."""
        while (batches := self._tried_step()) is None:
            pass  # not in an except: its error would hold the old pipelines and their shared memory
        try:
            delivered = self.framework.deliver(batches)
        except BaseException:
            self.close()  # as the pipelines are past this step, and the cursor is not
            raise
        self.cursor.advance()
        self.stats.batches += 1
        self.intake.count(batches)
        return delivered

    def _tried_step(self) -> list[Batch] | None:
        """Return the batches of the step, or None where it must be tried again by new pipelines."""
        self.start()
        started = time.perf_counter()
        try:
            with interrupt_held():
                batches = [next(iterator) for iterator in self._iterators]
            if not self.pipelines:
                raise RuntimeError(_CLOSED)
            self.stats.wait_s += time.perf_counter() - started
            self._note_waits()
            if self.intake.must_repeat(batches):
                self.close()
                return None
            return [self.intake.accept(batch) for batch in batches]
        except Exception as error:
            closed = not self.pipelines
            self.close()
            if closed:  # whatever DALI made of that
                raise RuntimeError(_CLOSED) from None
            if not isinstance(error, RuntimeError):
                raise
            if isinstance(error, ReaderProcessError):
                self._use_restart(error)
            else:  # DALI fails the whole batch for one stream that it cannot decode.
                self._reject_undecodable(error)
            return None
        except BaseException:
            # The pipelines are past this step, or broken; the cursor is not. A later loop starts
            # new ones at this step, so that nothing is lost.
            self.close()
            raise

    def _use_restart(self, error: ReaderProcessError) -> None:
        """Count one more restart, or raise the error where none is left."""
        if self.restarts_left == 0:
            # DALI's frames explain nothing, and hold the old pipelines and their shared memory.
            error.__context__ = None
            raise error.with_traceback(None) from None
        self.restarts_left -= 1
        self.stats.restarts += 1
        logger.warning("%s; restarting, %d restarts left", error, self.restarts_left)

    def _reject_undecodable(self, error: RuntimeError) -> None:
        """Reject the rows of this step that make a graph fail, or raise its error if none does."""
        found = [self.intake.reject_for_good(*bad) for bad in self.maker.undecodable()]
        if not any(found):
            raise error

    def _note_waits(self) -> None:
        """Count how long the consumer has waited since the last call."""
        for pipeline in self.pipelines:
            self.stats.wait_readers_s += pipeline.feed_s
            self.stats.wait_graph_s += pipeline.graph_s
            pipeline.feed_s = pipeline.graph_s = 0.0

    def close(self) -> None:
        """End the reader processes and free the graphs."""
        with interrupt_held():
            self._note_waits()
            self.intake.policy.log_rest()
            self._iterators = []
            # Forgotten first: a second Ctrl-C must leave a Loader that can be started again.
            pipelines, self.pipelines = self.pipelines, []
            with ExitStack() as ending:
                for pipeline in reversed(pipelines):
                    ending.callback(pipeline.close)
