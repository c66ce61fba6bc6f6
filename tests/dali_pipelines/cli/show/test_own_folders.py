"""Settings of Matplotlib and SunPy where the home cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dali_pipelines.cli.show.own_folders import use_writable_folders

VARIABLES = ("MPLCONFIGDIR", "SUNPY_CONFIGDIR")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home of its own; what is set by the test is undone after it."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_other_folders_are_named_to_the_libraries(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").touch()  # not even root can write below it
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "file"))
    use_writable_folders()
    said = capsys.readouterr().err.splitlines()
    for name, line in zip(VARIABLES, said, strict=True):
        assert Path(os.environ[name]).is_dir()
        assert Path(os.environ[name]).is_relative_to(home / "cache")
        assert os.environ[name] in line
        assert str(home / "file") in line
    use_writable_folders()
    assert capsys.readouterr().err == ""


def test_their_own_ones_stay(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.environ["SUNPY_CONFIGDIR"] = str(home / "mine")
    use_writable_folders()
    assert [os.environ[name] for name in VARIABLES] == ["", str(home / "mine")]
    assert capsys.readouterr().err == ""
