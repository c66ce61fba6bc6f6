"""Make the pipelines of a Loader by its factory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.loading.cursor import Cursor
from dali_pipelines.loading.undecodable import find_undecodable
from dali_pipelines.runtime.devices import Device, check_visible, share_out
from readers.index.table import Index


@dataclass(frozen=True, eq=False)
class PipelineMaker:
    """Make pipelines that begin at the next step of a Loader."""

    factory: Callable[..., ReaderPipeline]
    index: Index
    num_read_processes: int
    settings: dict[str, Any]
    """Keywords of the factory. They may change between calls."""
    cursor: Cursor

    def all(self) -> list[ReaderPipeline]:
        """Make a pipeline for each device; they share the reader processes out.

        ValueError if a device is a GPU that is not visible.
        """
        placement = self.cursor.placement
        check_visible(placement.devices)
        shares = share_out(self.num_read_processes, len(placement.devices))
        return [
            self._make(
                device,
                self.cursor.position,
                shard_id=placement.first_shard + number,
                num_shards=placement.num_shards,
                num_read_processes=shares[number],
            )
            for number, device in enumerate(placement.devices)
        ]

    def undecodable(self) -> Iterator[tuple[int, str]]:
        """Yield the rows of the next step on which the graph fails, and why."""
        for device, positions in self.cursor.positions():
            yield from find_undecodable(partial(self._single, device), positions)

    def _single(self, device: Device, position: int, left_out: Mapping[int, str]) -> ReaderPipeline:
        """Make a pipeline of batches of one sample, which reads in this process."""
        endless = {"num_epochs": None} if "num_epochs" in self.settings else {}
        return self._make(
            device,
            position,
            **endless,
            shard_id=0,
            num_shards=1,
            num_read_processes=0,
            batch_size=1,
            tail="partial",
            prefetch=1,
            rejected={**self.settings["rejected"], **left_out},
        )

    def _make(self, device: Device, position: int, **settings: Any) -> ReaderPipeline:
        keywords = {**self.settings, **settings, "epoch": self.cursor.epoch}
        if self.cursor.epoch_steps is not None:  # not every factory takes it
            keywords["first_step"] = self.cursor.steps
        pipeline = self.factory(self.index, device_id=device, position=position, **keywords)
        if not isinstance(pipeline, ReaderPipeline):
            raise TypeError(
                "a factory must return the ReaderPipeline that reader_pipeline makes, got "
                f"{type(pipeline).__name__}"
            )
        return pipeline
