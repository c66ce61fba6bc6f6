"""Contract between frameworks and the Loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.runtime.devices import Device
from dali_pipelines.runtime.ranks import FindShards, find_shards

Array = Any
"""Array of the framework, or of NumPy. It can be sliced and, on the CPU, viewed by NumPy."""

Batch = dict[str, Array]
"""Arrays of one device by name; with ``ragged="list"`` some are lists with an array per sample."""

Slots = slice | NDArray[np.int64]

Convert = Callable[[Any], Array]
"""Function that turns a TensorCPU or TensorGPU of DALI into an array, if possible without a
copy."""


class ImageFormat(NamedTuple):
    """Conversions of the images of a pipeline that DALI cannot do, and the framework can."""

    dtype: str = "float32"
    """Element type, see `dali_pipelines.settings.DType`."""
    memory_format: str = "contiguous_format"
    """Order in memory, see `dali_pipelines.settings.MemoryFormat`."""


class Framework(Protocol):
    """Base class of frameworks, which turn outputs of pipelines into batches.

    The Loader counts, rejects and trims in between, so ``row``, ``valid`` and ``report`` stay on
    the CPU until `deliver`. Batches must stay valid when they are kept: no array may be a view of
    memory that DALI reuses.
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
        """Return the function that turns outputs of a pipeline into arrays, or raise ValueError."""
        ...

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Build a pipeline and return an endless iterator over its batches."""
        ...

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
            return batch  # such as recordings
        if image_format.memory_format == "channels_last":
            image = self.channels_first(image)
        if image_format.dtype == "bfloat16":
            is_list = isinstance(image, list)
            image = [*map(self.to_bfloat16, image)] if is_list else self.to_bfloat16(image)
        return {**batch, "image": image}

    def deliver(self, batches: list[Batch]) -> Any:
        """Return the Loader's result for the batches of its devices."""
        return batches
