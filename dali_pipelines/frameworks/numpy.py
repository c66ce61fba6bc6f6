"""Batches of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali.tensors import TensorGPU

from dali_pipelines.frameworks.contract import Convert, Framework
from dali_pipelines.graph.pipeline import ReaderPipeline


def to_numpy(tensor: Any) -> NDArray[Any]:
    """Return a DALI tensor as a NumPy array: from the CPU without a copy, from a GPU with one."""
    return np.asarray(tensor.as_cpu() if isinstance(tensor, TensorGPU) else tensor)


class Numpy(Framework):
    """Arrays on the CPU, wherever the pipeline runs."""

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return the function that turns outputs into NumPy arrays."""
        del pipeline
        return to_numpy
