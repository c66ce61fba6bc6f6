"""A Loader's own count, without its pipelines: a step delivers what its Schedules locate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dali_pipelines import Loader
from readers.sampling.shard import Shard


class CountingLoader(Loader):
    """Delivers (epoch, position) of the slots that have a row, of all shards."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._running._tried_step = self._slots  # type: ignore[method-assign]

    def _slots(self) -> Any:
        schedules = [
            replace(self._cursor.schedule, shard=Shard(part, self.num_shards))
            for part in range(self.num_shards)
        ]
        slots = [
            schedule.locate(count) for schedule in schedules for count in range(schedule.batch_size)
        ]
        return [(slot.epoch, slot.position) for slot in slots if slot.position < len(self.index)]
