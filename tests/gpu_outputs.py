"""Pipelines on the CPU that say they are on a GPU, where frameworks take their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dali_pipelines.graph.pipeline import ReaderPipeline

ON_CPU = ("row", "valid", "report")
"""Outputs that are on the CPU wherever a pipeline runs."""


class GpuTensor:
    """A TensorCPU of DALI that has what frameworks use of a TensorGPU."""

    def __init__(self, tensor: Any) -> None:
        self._tensor, self.dtype = tensor, tensor.dtype

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def data_ptr(self) -> int:
        return int(self._tensor.data_ptr())

    def as_cpu(self) -> Any:
        return self._tensor


class GpuTensors:
    """A TensorListCPU of DALI that gives a `GpuTensor`, or several."""

    def __init__(self, tensors: Any) -> None:
        self._tensors = tensors

    def as_tensor(self) -> GpuTensor:
        return GpuTensor(self._tensors.as_tensor())

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, slot: int) -> GpuTensor:
        return GpuTensor(self._tensors[slot])


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pipelines of device None be those of GPU 0, which JAX has.

    It reaches inside, as JAX for GPUs is not installed and there is no GPU: DALI's outputs are
    replaced by ones that need a copy to be read on the CPU, at addresses as DALI packs them.
    """
    share = ReaderPipeline.share_outputs

    def share_outputs(pipeline: ReaderPipeline, *args: Any, **kwargs: Any) -> Sequence[Any]:
        outputs = zip(pipeline.output_names, share(pipeline, *args, **kwargs), strict=True)
        return [output if name in ON_CPU else GpuTensors(output) for name, output in outputs]

    monkeypatch.setattr(ReaderPipeline, "share_outputs", share_outputs)
    monkeypatch.setattr(ReaderPipeline, "device_id", 0)
    monkeypatch.setattr("dali_pipelines.graph.pipeline.free_unused", lambda pipeline: None)
    monkeypatch.setattr("dali_pipelines.frameworks.jax.own_devices", lambda: [0])
    for module in ("dlpack", "jax", "numpy"):
        monkeypatch.setattr(f"dali_pipelines.frameworks.{module}.TensorGPU", GpuTensor)
