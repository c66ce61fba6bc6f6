"""Make the pipelines of a Loader by its factory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.loading.cursor import Cursor
from dali_pipelines.loading.undecodable import find_undecodable
from dali_pipelines.runtime.devices import Device, share_out
from readers.index.table import Index


class PipelineMaker:
    """Make pipelines that begin at the next step of a Loader.

    Parameters
    ----------
    factory : callable
        As for the Loader.
    index : Index
        What is read.
    settings : dict
        Keywords of the factory. They may change between calls.
    cursor : Cursor
        The next step.
    """

    def __init__(
        self,
        factory: Callable[..., ReaderPipeline],
        index: Index,
        settings: dict[str, Any],
        cursor: Cursor,
    ) -> None:
        self._factory, self._index = factory, index
        self._settings, self._cursor = settings, cursor

    def all(self, num_read_processes: int) -> list[ReaderPipeline]:
        """Make a pipeline for each device; they share the reader processes out."""
        placement = self._cursor.placement
        processes = share_out(num_read_processes, len(placement.devices))
        return [
            self._factory(
                self._index,
                **self._settings,
                device_id=device,
                shard_id=placement.first_shard + number,
                num_shards=placement.num_shards,
                num_read_processes=processes[number],
                epoch=self._cursor.epoch,
                position=self._cursor.position,
            )
            for number, device in enumerate(placement.devices)
        ]

    def undecodable(self) -> Iterator[tuple[int, str]]:
        """Yield the rows of the next step on which the graph fails, and why."""
        for device, positions in self._cursor.positions():
            yield from find_undecodable(partial(self._single, device), positions)

    def _single(self, device: Device, position: int, left_out: Mapping[int, str]) -> ReaderPipeline:
        """Make a pipeline of batches of one sample, which reads in this process."""
        settings = {
            **self._settings,
            "batch_size": 1,
            "tail": "partial",
            "prefetch": 1,
            "rejected": {**self._settings["rejected"], **left_out},
        }
        return self._factory(
            self._index,
            **settings,
            device_id=device,
            shard_id=0,
            num_shards=1,
            num_read_processes=0,
            epoch=self._cursor.epoch,
            position=position,
        )
