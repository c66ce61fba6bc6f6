"""The decoder of videos in the graph, with and without the library of NVDEC."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from dali_pipelines.runtime.nvdec import graph_decoder


@pytest.mark.parametrize("is_there", [True, False])
def test_a_gpu_needs_its_library(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    def load(name: str, *_: Any, **__: Any) -> object:
        assert "nvcuvid" in name
        if not is_there:
            raise OSError("no such file")
        return object()

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert graph_decoder("readers", None) is None
    assert graph_decoder("readers", 0) is None
    assert graph_decoder("graph", None) == "cpu"
    if is_there:
        assert graph_decoder("graph", 0) == "gpu"
    else:
        with pytest.raises(ValueError, match=r"decode.*NVIDIA_DRIVER_CAPABILITIES.*readers"):
            graph_decoder("graph", 0)
