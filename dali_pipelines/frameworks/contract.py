"""Interface between frameworks and the Loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.frameworks.outputs import Array as Array
from dali_pipelines.frameworks.outputs import Batch as Batch
from dali_pipelines.frameworks.outputs import Convert as Convert
from dali_pipelines.frameworks.outputs import Outputs
from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.runtime.devices import Device
from dali_pipelines.runtime.ranks import FindShards, find_shards

Slots = slice | NDArray[np.int64]


class ImageFormat(NamedTuple):
    """Properties of delivered images that DALI lacks, so that the framework converts to them."""

    dtype: str = "float32"
    """Element type, see `dali_pipelines.settings.DType`."""
    memory_format: str = "contiguous_format"
    """Order in memory, see `dali_pipelines.settings.MemoryFormat`."""


class Framework(Protocol):
    """Base class of frameworks, which turn outputs of pipelines into batches.

    ``row``, ``valid`` and ``report`` stay on the CPU until `deliver`, because the Loader reads them
    and removes rejected samples first. Users may keep batches, so no array may be a view of memory
    that DALI reuses.
    """

    has_bfloat16: ClassVar[bool] = False
    """Whether the framework has `to_bfloat16`."""
    has_strides: ClassVar[bool] = False
    """Whether the framework has `channels_first`."""

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ValueError if the framework cannot work with the settings of a Loader."""

    def shards(
        self, devices: Sequence[Device] | None, shard_id: int | None, num_shards: int | None
    ) -> FindShards:
        """Return a function that finds the devices of the pipelines, and their shards."""
        return partial(find_shards, devices=devices, shard_id=shard_id, num_shards=num_shards)

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return the function that turns outputs of a pipeline into arrays.

        ValueError if the framework does not support the device of the pipeline.
        """
        ...

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Build a pipeline and return an endless iterator over its batches."""
        return Outputs(pipeline, self.converter(pipeline))

    def join(self, arrays: Sequence[Array]) -> Array:
        """Concatenate arrays that have been delivered."""
        return arrays[0].__array_namespace__().concat(arrays)

    def take(self, array: Array, slots: Slots) -> Array:
        """Return some samples of an array, on the array's device."""
        return array[slots]

    def to_bfloat16(self, array: Array) -> Array:
        """Return an array of float32 as bfloat16, rounded to the nearest even number."""
        ...

    def channels_first(self, array: Array) -> Array:
        """Return a view of shape (N, C, H, W) of an array of shape (N, H, W, C)."""
        ...

    def formatted(self, batch: Batch, image_format: ImageFormat) -> Batch:
        """Return a batch of a pipeline with images of a format that DALI lacks."""
        if (image := batch.get("image")) is None:
            return batch  # of recordings, for example
        if image_format.memory_format == "channels_last":
            image = self.channels_first(image)
        if image_format.dtype == "bfloat16":
            is_list = isinstance(image, list)
            image = [*map(self.to_bfloat16, image)] if is_list else self.to_bfloat16(image)
        return {**batch, "image": image}

    def deliver(self, batches: list[Batch]) -> Any:
        """Return the Loader's result for the batches of its devices."""
        return batches
