"""Batches of CuPy arrays."""

from __future__ import annotations

from dali_pipelines.frameworks.contract import Convert
from dali_pipelines.frameworks.dlpack import Dlpack
from dali_pipelines.graph.pipeline import ReaderPipeline


class Cupy(Dlpack):
    """Arrays on the GPU of their pipeline; ``row`` and ``valid`` are NumPy arrays."""

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return what turns outputs into arrays; ValueError if the pipeline runs on the CPU."""
        if pipeline.device_id is None:
            raise ValueError(
                "framework='cupy' needs GPUs, and a pipeline would run on the CPU: give devices=[0]"
                " to a Loader, device_id=0 to a Preprocessor, or framework='numpy'"
            )
        return super().converter(pipeline)
