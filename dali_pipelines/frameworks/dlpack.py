"""Batches for frameworks that take DLPack: NumPy arrays of the CPU, CuPy arrays of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali.tensors import TensorGPU

from dali_pipelines.frameworks.contract import Array, Convert, Slots
from dali_pipelines.frameworks.numpy import to_numpy
from dali_pipelines.frameworks.outputs import OutputsFramework
from dali_pipelines.graph.pipeline import ReaderPipeline


class Dlpack(OutputsFramework):
    """Arrays that have ``__dlpack__``, on the device of their pipeline."""

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return what turns outputs into arrays; those on a GPU need CuPy."""
        if pipeline.device_id is not None:
            import cupy  # noqa: F401 - before any reader starts
        return _to_array

    def take(self, array: Array, slots: Slots) -> Array:
        """Return some samples of an array, where it is."""
        if isinstance(array, np.ndarray):
            return array[slots]
        with array.device:
            return array[slots]

    def join(self, arrays: Sequence[Array]) -> Array:
        """Return arrays one after the other, as one."""
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
