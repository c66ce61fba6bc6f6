from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from readers.cache.folder import cache_folder


def test_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "dali-pipelines"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")  # to be ignored, says the specification
    assert cache_folder() == tmp_path / "home" / ".cache" / "dali-pipelines"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "dali-pipelines"


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder in TMPDIR, where the user's cache cannot be written, not even by root."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp" / f"dali-pipelines-{os.geteuid()}"


def test_temporary_folder_of_this_user_alone(temporary: Path) -> None:
    assert cache_folder() == temporary
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o700
    temporary.parent.chmod(0o1777)
    assert cache_folder() == temporary


def writable(temporary: Path) -> None:
    temporary.mkdir()
    temporary.chmod(0o770)


def link(temporary: Path) -> None:
    (temporary.parent / "elsewhere").mkdir()
    temporary.symlink_to("elsewhere")


def foreign(temporary: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    temporary.mkdir(mode=0o700)
    os.chown(temporary, 12345, 12345)


def not_sticky(temporary: Path) -> None:
    temporary.parent.chmod(0o777)


def file(temporary: Path) -> None:
    temporary.touch()


@pytest.mark.parametrize("spoil", [writable, link, foreign, not_sticky, file])
def test_what_others_could_have_written_is_not_used(
    temporary: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(temporary)
    assert cache_folder() == Path(os.environ["XDG_CACHE_HOME"]) / "dali-pipelines"


def test_no_home(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom the system does not know, without HOME."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cache_folder() == temporary
