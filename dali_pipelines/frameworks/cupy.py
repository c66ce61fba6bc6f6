"""Batches of CuPy arrays."""

from __future__ import annotations

from dali_pipelines.frameworks.contract import Convert
from dali_pipelines.frameworks.dlpack import Dlpack
from dali_pipelines.graph.pipeline import ReaderPipeline


class Cupy(Dlpack):
    """Arrays on the GPU of their pipeline; ``row`` and ``valid`` are NumPy arrays."""

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return the function that turns outputs into arrays; ValueError for a CPU pipeline."""
        if pipeline.device_id is None:
            raise ValueError(
                "framework='cupy' needs a GPU, but this pipeline is for the CPU: set devices=[0] "
                "of a Loader or device_id=0 of a Preprocessor, or framework='numpy'"
            )
        return super().converter(pipeline)
