"""The contract between frameworks and the Loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.runtime.devices import Device
from dali_pipelines.runtime.ranks import FindShards, find_shards

Array = Any
"""An array of the framework, or of NumPy. NumPy can view those on the CPU; all can be sliced."""

Batch = dict[str, Array]
"""Arrays of one device by name; with ``ragged="list"`` some are lists, of one for each sample."""

Slots = slice | NDArray[np.int64]

Convert = Callable[[Any], Array]
"""Turns a TensorCPU or TensorGPU of DALI into an array that holds it, without a copy if it can."""


class Framework(Protocol):
    """Turn outputs of pipelines into batches; a subclass for each framework.

    The Loader counts, rejects and trims in between, so ``row``, ``valid`` and ``report`` stay on
    the CPU until `deliver`. Batches that are kept stay right: no array may become a view of memory
    that DALI uses again.
    """

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ValueError if settings of a Loader do not suit: its factory's, and bad_sample."""

    def shards(
        self, devices: Sequence[Device] | None, shard_id: int | None, num_shards: int | None
    ) -> FindShards:
        """Return what finds out where the pipelines run and what they read, see `find_shards`."""
        return partial(find_shards, devices=devices, shard_id=shard_id, num_shards=num_shards)

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return what turns outputs of a pipeline into arrays; ValueError if they do not suit."""
        ...

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Build a pipeline, and return an endless iterator over its batches."""
        ...

    def join(self, arrays: Sequence[Array]) -> Array:
        """Return arrays one after the other, as one; they have been delivered."""
        return arrays[0].__array_namespace__().concat(arrays)

    def take(self, array: Array, slots: Slots) -> Array:
        """Return some samples of an array, where it is."""
        return array[slots]

    def deliver(self, batches: list[Batch]) -> Any:
        """Return what a Loader yields for the batches of its devices."""
        return batches
