"""Batches of PyTorch tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from torch.utils.dlpack import from_dlpack

from dali_pipelines.frameworks.contract import Batch, Convert, Framework
from dali_pipelines.frameworks.outputs import check_even
from dali_pipelines.graph.pipeline import ReaderPipeline


class Torch(Framework):
    """Tensors on the device of their pipeline."""

    has_bfloat16 = has_strides = True

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return the function that turns outputs into tensors."""
        del pipeline
        return from_dlpack

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Return DALI's iterator; or for lists of tensors, which it lacks, our own."""
        return super().iterate(pipeline) if pipeline.listed else _DaliBatches(pipeline)

    def to_bfloat16(self, array: Any) -> torch.Tensor:
        """Return a tensor as bfloat16."""
        return array.to(torch.bfloat16)

    def channels_first(self, array: Any) -> torch.Tensor:
        """Return a view of shape (N, C, H, W) with the memory format channels_last."""
        return array.permute(0, 3, 1, 2)

    def join(self, arrays: Sequence[Any]) -> torch.Tensor:
        """Concatenate tensors."""
        return torch.cat(list(arrays))


class _DaliBatches(Iterator[Batch]):
    """DALI's iterator over one pipeline; with several pipelines it loses and repeats samples."""

    def __init__(self, pipeline: ReaderPipeline) -> None:
        names = list(pipeline.output_names)
        self._pipeline = pipeline
        self._batches = DALIGenericIterator([pipeline], names, size=-1, prepare_first_batch=False)

    def __next__(self) -> Batch:
        """Return the next batch; ValueError as of `check_even`."""
        try:
            (batch,) = next(self._batches)
        except RuntimeError:
            check_even(self._pipeline)
            raise
        return batch
