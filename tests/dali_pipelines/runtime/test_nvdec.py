"""Which decoder videos get, with and without the library of NVDEC."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from dali_pipelines.runtime.nvdec import graph_decoder


@pytest.fixture(params=[True, False], ids=["nvdec", "no nvdec"])
def is_there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whether this machine has NVDEC, as far as the test is concerned."""

    def load(name: str, *_: Any, **__: Any) -> object:
        assert "nvcuvid" in name
        if not request.param:
            raise OSError("no such file")
        return object()

    monkeypatch.setattr(ctypes, "CDLL", load)
    return request.param


def test_the_cpu_decodes_in_the_readers(is_there: bool) -> None:
    assert graph_decoder(None, None) is None
    assert graph_decoder("readers", None) is None
    assert graph_decoder("graph", None) == "cpu"


def test_a_gpu_decodes_in_the_graph_if_it_can(is_there: bool) -> None:
    assert graph_decoder(None, 0) == ("gpu" if is_there else None)
    assert graph_decoder("readers", 0) is None
    if is_there:
        assert graph_decoder("graph", 0) == "gpu"
    else:
        with pytest.raises(ValueError, match=r"decode.*NVIDIA_DRIVER_CAPABILITIES.*readers"):
            graph_decoder("graph", 0)
