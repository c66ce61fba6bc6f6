"""Batches of CuPy arrays."""

from __future__ import annotations

from collections.abc import Iterator

from dali_pipelines.frameworks.contract import Batch
from dali_pipelines.frameworks.dlpack import Dlpack
from dali_pipelines.graph.pipeline import ReaderPipeline


class Cupy(Dlpack):
    """Arrays on the GPU of their pipeline; ``row`` and ``valid`` are NumPy arrays."""

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Return an iterator over the outputs; ValueError if the pipeline runs on the CPU."""
        if pipeline.device_id is None:
            raise ValueError(
                "framework='cupy' needs GPUs, and a pipeline would run on the CPU: give devices=[0]"
                ", or framework='numpy'"
            )
        return super().iterate(pipeline)
