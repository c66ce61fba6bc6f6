"""Batches for frameworks that take DLPack: NumPy arrays of the CPU, CuPy arrays of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nvidia.dali.tensors import TensorGPU

from dali_pipelines.frameworks.contract import Array, Batch, Framework, Slots
from dali_pipelines.frameworks.numpy import to_numpy
from dali_pipelines.frameworks.outputs import Outputs
from dali_pipelines.graph.pipeline import ReaderPipeline


class Dlpack(Framework):
    """Arrays that have ``__dlpack__``, on the device of their pipeline."""

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Return an iterator over the outputs; those on a GPU need CuPy."""
        if pipeline.device_id is not None:
            import cupy  # noqa: F401 - before any reader starts
        return Outputs(pipeline, _to_array)

    def take(self, array: Array, slots: Slots) -> Array:
        """Return some samples of an array, where it is."""
        if isinstance(array, np.ndarray):
            return array[slots]
        with array.device:
            return array[slots]


def _to_array(tensor: Any) -> Array:
    if not isinstance(tensor, TensorGPU):
        return to_numpy(tensor)
    import cupy

    return cupy.from_dlpack(tensor)
