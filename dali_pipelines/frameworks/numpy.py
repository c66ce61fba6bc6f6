"""Batches of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali.tensors import TensorGPU

from dali_pipelines.frameworks.contract import Batch, Framework
from dali_pipelines.frameworks.outputs import Outputs
from dali_pipelines.graph.pipeline import ReaderPipeline


def to_numpy(tensor: Any) -> NDArray[Any]:
    """Return a tensor of DALI as a NumPy array: on the CPU without a copy, from a GPU with one."""
    return np.asarray(tensor.as_cpu() if isinstance(tensor, TensorGPU) else tensor)


class Numpy(Framework):
    """Arrays on the CPU, wherever the pipeline runs."""

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Return an iterator over the outputs as NumPy arrays."""
        return Outputs(pipeline, to_numpy)
