"""The version of this package, installed or not."""

from __future__ import annotations

import importlib.metadata

import pytest

from dali_pipelines.cli.main import main
from dali_pipelines.runtime.version import own_version


def test_a_clone_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert own_version() == importlib.metadata.version("dali-pipelines")

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    own_version.cache_clear()
    try:
        with pytest.raises(SystemExit):
            main(["--version"])
    finally:
        own_version.cache_clear()
    assert capsys.readouterr().out == "dali-pipelines not installed\n"
