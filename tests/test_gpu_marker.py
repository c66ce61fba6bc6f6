"""The marker ``gpu`` skips tests where doctor finds no GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dali_pipelines.cli.doctor import nvml
from dali_pipelines.cli.doctor.nvml import Driver


@pytest.mark.parametrize(
    ("driver", "visible", "skips"),
    [
        (Driver("580.1", (13, 0), ("NVIDIA H200",)), None, False),
        (Driver("580.1", (13, 0), ("NVIDIA H200",)), "0", False),
        (Driver("580.1", (13, 0), ("NVIDIA H200",)), "", True),
        (Driver("580.1", (13, 0), ()), None, True),
        (None, None, True),
    ],
)
def test_the_marker(
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    driver: Driver | None,
    visible: str | None,
    skips: bool,
) -> None:
    monkeypatch.setattr(nvml, "installed_driver", lambda: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    conftest = request.config.pluginmanager.get_plugin(
        str(request.config.rootpath / "tests/conftest.py")
    )
    assert conftest is not None
    marked = SimpleNamespace(get_closest_marker={"gpu": True}.get)
    if skips:
        with pytest.raises(pytest.skip.Exception, match="needs an NVIDIA GPU"):
            conftest.pytest_runtest_setup(marked)
    else:
        conftest.pytest_runtest_setup(marked)
