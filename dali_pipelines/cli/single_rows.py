"""A Loader that delivers the rows of an Index one by one, in order: for `show` and `verify`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dali_pipelines import Index, Loader, ReaderPipeline

MOST_PROCESSES = 4
"""Readers; and, of `verify`, processes of the other decoder."""


def single_rows(
    factory: Callable[..., ReaderPipeline],
    index: Index,
    device: int | None = None,
    rejected: Mapping[int, str] | None = None,
    **settings: Any,
) -> Loader:
    """Make a Loader of one row a step; bad files, and rows that are `rejected`, are skipped.

    Raises
    ------
    MemoryError
        If there is too little memory.
    """
    from dali_pipelines import Loader
    from dali_pipelines.memory import estimate_memory

    loader = Loader(
        factory,
        index,
        batch_size=1,  # images of all sizes
        num_read_processes=num_processes(index),
        devices=[device],
        shard_id=0,
        num_shards=1,
        shuffle=False,
        bad_sample="skip",
        num_epochs=1,
        rejected=rejected or {},
        **settings,
    )
    estimate_memory(loader.make_pipelines()).check()
    return loader


def num_processes(rows: Sized) -> int:
    """Count the processes that go through some rows."""
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES, len(rows))
