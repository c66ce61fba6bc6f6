"""Overwrites memory of the slab that is free again: nobody may read it any more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_pipelines.runtime.processes.reader_pool import ReaderPool
from readers.worker.slab import Bytes, Layout


def poison_free_slots(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Overwrite each slot that is free again; return a list to which their numbers are added.

    It reaches into the pool, as nothing but the pool may know when that is.
    """
    free, found = ReaderPool._free_slot, list[int]()

    def overwrite_and_free(pool: Any, slot: int) -> None:
        found.append(slot)
        if (shared := pool._map) is not None:  # not closed meanwhile: DALI drops in its own thread
            overwrite(pool._layout, np.frombuffer(shared, np.uint8), slot)
        free(pool, slot)

    monkeypatch.setattr(ReaderPool, "_free_slot", overwrite_and_free)
    return found


def overwrite(layout: Layout, memory: Bytes, slot: int) -> None:
    """Write 0xFF over all arrays of the batch in a slot."""
    table = layout.table(memory, slot)
    for number, columns in zip(layout.varying, layout.columns, strict=True):
        item = np.dtype(layout.specs[number].dtype).itemsize
        for start, *shape in table[:, columns].tolist():
            memory[start : start + item * int(np.prod(shape))] = 0xFF
    for array in layout.over_batch(memory, slot):
        array.view(np.uint8)[...] = 0xFF
