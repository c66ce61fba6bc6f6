"""Batches for frameworks that accept DLPack: NumPy arrays on the CPU, CuPy arrays on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali.tensors import TensorGPU

from dali_pipelines.frameworks.contract import Array, Convert, Framework, Slots
from dali_pipelines.frameworks.numpy import to_numpy
from dali_pipelines.graph.pipeline import ReaderPipeline


class Dlpack(Framework):
    """Arrays with ``__dlpack__`` on the device of their pipeline."""

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return the function that turns outputs into arrays; those on a GPU need CuPy."""
        if pipeline.device_id is not None:
            import cupy  # noqa: F401 - an error must come before readers start
        return _to_array

    def take(self, array: Array, slots: Slots) -> Array:
        """Return some samples of an array, on the array's device."""
        if isinstance(array, np.ndarray):
            return array[slots]
        with array.device:
            return array[slots]

    def join(self, arrays: Sequence[Array]) -> Array:
        """Concatenate arrays."""
        if isinstance(arrays[0], np.ndarray):
            return np.concatenate(arrays)
        import cupy

        with arrays[0].device:
            return cupy.concatenate(arrays)


def _to_array(tensor: Any) -> Array:
    if not isinstance(tensor, TensorGPU):
        return to_numpy(tensor)
    import cupy

    return cupy.from_dlpack(tensor)
