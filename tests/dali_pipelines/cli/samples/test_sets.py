from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from dali_pipelines.cli.samples import sets


def touch_all(paths: Iterable[Path], _: object) -> None:
    for path in paths:
        path.touch()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A set of two files, which are empty."""
    monkeypatch.setattr(sets, "_save_all", touch_all)
    return sets.fits_samples(tmp_path, num_frames=2)


def forbid_making(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a set was made again")

    monkeypatch.setattr(sets, "_save_all", fail)


def test_imports_are_light() -> None:
    check = (
        "import sys, dali_pipelines.cli.samples.sets; "
        "print({'tqdm', 'torch', 'nvidia'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", check]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert printed.stdout == "set()\n"


def test_the_second_call_makes_nothing(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    forbid_making(monkeypatch)
    assert sets.fits_samples(made.parent, num_frames=2) == made
    assert capsys.readouterr().err == ""


def test_a_line_says_what_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sets, "_save_all", touch_all)
    folder = sets.fits_samples(tmp_path / "new" / "cache", num_frames=64)
    assert capsys.readouterr().err == (
        f"making 64 synthetic AIA frames in {folder} (about 755 MB)\n"
    )
    assert len(list(folder.iterdir())) == 64


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_make_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def stop_half_way(paths: Iterable[Path], _: object) -> None:
        next(iter(paths)).write_bytes(b"half")
        raise error

    monkeypatch.setattr(sets, "_save_all", stop_half_way)
    with pytest.raises(error):
        sets.fits_samples(tmp_path, num_frames=2)
    assert [path.name for path in tmp_path.iterdir()] == [".aia-v2-2.lock"]


def test_leftovers_of_a_killed_make_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = tmp_path / ".aia-v2-2.0123abcd.part"
    (leftover / "made").mkdir(parents=True)
    monkeypatch.setattr(sets, "_save_all", touch_all)
    sets.fits_samples(tmp_path, num_frames=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".aia-v2-2.lock", "aia-v2-2"]


def test_an_incomplete_set_is_made_again(made: Path) -> None:
    gone, kept = sorted(made.iterdir())
    gone.unlink()
    kept.write_bytes(b"old")
    assert sets.fits_samples(made.parent, num_frames=2) == made
    assert gone.exists()
    assert kept.read_bytes() == b""


def test_a_second_process_that_was_faster_is_no_error(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = made.rename(tmp_path / "others")
    for path in others.iterdir():
        path.write_bytes(b"other")

    def while_another_finishes(paths: Iterable[Path], save: object) -> None:
        shutil.copytree(others, made)
        touch_all(paths, save)

    monkeypatch.setattr(sets, "_save_all", while_another_finishes)
    assert sets.fits_samples(tmp_path, num_frames=2) == made
    assert [path.read_bytes() for path in made.iterdir()] == [b"other", b"other"]


def test_too_little_space_is_said_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3))
    forbid_making(monkeypatch)
    with pytest.raises(OSError, match=r"needs 755200000 bytes, 3 are free.*XDG_CACHE_HOME"):
        sets.fits_samples(tmp_path)


@pytest.mark.parametrize("make", [sets.fits_samples, sets.jpeg_samples])
def test_an_empty_set_is_refused(make: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        make(tmp_path, 0)
