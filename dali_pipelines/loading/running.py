"""The pipelines of a Loader while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from nvidia.dali.plugin.pytorch import DALIGenericIterator

from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.loading.batches import Batch, next_batch
from dali_pipelines.loading.stats import LoaderStats


class RunningPipelines:
    """Started pipelines, one for each device, and iterators over them; at first there are none."""

    def __init__(self) -> None:
        self.pipelines: list[ReaderPipeline] = []
        self._iterators: list[Iterator[list[Batch]]] = []

    def start(self, pipelines: list[ReaderPipeline]) -> None:
        """Start these pipelines and their reader processes; close them if one cannot be started."""
        self.pipelines = pipelines
        try:
            for pipeline in pipelines:
                pipeline.start_py_workers()
            # One iterator each: with several pipelines in one, DALI loses and repeats samples.
            self._iterators = [
                DALIGenericIterator(
                    [pipeline], list(pipeline.output_names), size=-1, prepare_first_batch=False
                )
                for pipeline in pipelines
            ]
        except BaseException:
            self.close()
            raise

    def next(self) -> list[Batch]:
        """Return the next batch of each pipeline."""
        return [next_batch(iterator) for iterator in self._iterators]

    def note_waits(self, stats: LoaderStats) -> None:
        """Add to `stats` how long the consumer has waited since the last call."""
        for pipeline in self.pipelines:
            stats.wait_readers_s += pipeline.feed_s
            stats.wait_graph_s += pipeline.graph_s
            pipeline.feed_s = pipeline.graph_s = 0.0

    def close(self) -> None:
        """End the reader processes and free the graphs."""
        self._iterators = []
        # Forgotten first: a second Ctrl-C must leave a Loader that can be started again.
        pipelines, self.pipelines = self.pipelines, []
        with ExitStack() as ending:
            for pipeline in reversed(pipelines):
                ending.callback(pipeline.close)
