"""Sample sets: made once, whole or not at all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from dali_pipelines.cli.samples import sets

Save = Callable[[Path, int], None]


@pytest.fixture
def drawn_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Save], None]:
    """Let a function save the frames, in this process: a real one takes seconds."""
    monkeypatch.setattr(sets, "whole_cores", lambda: 1)
    return lambda save: monkeypatch.setattr(sets, "save_frame", save)


@pytest.fixture
def made(drawn_by: Callable[[Save], None], tmp_path: Path) -> Path:
    """A set of two files, which are empty; others will be, too."""
    drawn_by(lambda path, number: path.touch())
    return sets.fits_samples(tmp_path, num_frames=2)


def never(path: Path, number: int) -> None:
    raise AssertionError(f"a set was made again: {path}")


def test_imports_are_light() -> None:
    check = (
        "import sys, dali_pipelines.cli.samples.sets; "
        "print({'tqdm', 'torch', 'nvidia'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", check]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert printed.stdout == "set()\n"


def test_a_line_says_what_is_made_and_the_second_call_makes_nothing(
    tmp_path: Path, drawn_by: Callable[[Save], None], capsys: pytest.CaptureFixture[str]
) -> None:
    drawn_by(lambda path, number: path.touch())
    folder = sets.fits_samples(tmp_path / "new" / "cache", num_frames=64)
    assert len(list(folder.iterdir())) == 64
    line = capsys.readouterr().err
    for fact in ("64 ", str(folder), "755 MB"):
        assert fact in line
    drawn_by(never)
    assert sets.fits_samples(tmp_path / "new" / "cache", num_frames=64) == folder
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_make_leaves_nothing(
    tmp_path: Path, drawn_by: Callable[[Save], None], error: type[BaseException]
) -> None:
    def stop_half_way(path: Path, number: int) -> None:
        path.write_bytes(b"half")
        if number == 1:
            raise error

    drawn_by(stop_half_way)
    with pytest.raises(error):
        sets.fits_samples(tmp_path, num_frames=2)
    assert [path.name for path in tmp_path.iterdir()] == [".aia-v3-2.lock"]


def test_leftovers_of_a_killed_make_are_removed(
    tmp_path: Path, drawn_by: Callable[[Save], None]
) -> None:
    leftover = tmp_path / ".aia-v3-2.0123abcd.part"
    (leftover / "made").mkdir(parents=True)
    drawn_by(lambda path, number: path.touch())
    sets.fits_samples(tmp_path, num_frames=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".aia-v3-2.lock", "aia-v3-2"]


def test_an_incomplete_set_is_made_again(made: Path) -> None:
    gone, kept = sorted(made.iterdir())
    gone.unlink()
    kept.write_bytes(b"old")
    assert sets.fits_samples(made.parent, num_frames=2) == made
    assert gone.exists()
    assert kept.read_bytes() == b""


def test_a_second_process_that_was_faster_is_no_error(
    made: Path, tmp_path: Path, drawn_by: Callable[[Save], None]
) -> None:
    others = made.rename(tmp_path / "others")
    for path in others.iterdir():
        path.write_bytes(b"other")

    def while_another_finishes(path: Path, number: int) -> None:
        shutil.copytree(others, made, dirs_exist_ok=True)
        path.touch()

    drawn_by(while_another_finishes)
    assert sets.fits_samples(tmp_path, num_frames=2) == made
    assert [path.read_bytes() for path in made.iterdir()] == [b"other", b"other"]


def test_too_little_space_is_said_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn_by: Callable[[Save], None]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3))
    drawn_by(never)
    with pytest.raises(OSError, match=r"755200000 bytes, 3 are free.*XDG_CACHE_HOME"):
        sets.fits_samples(tmp_path)


@pytest.mark.parametrize("make", [sets.fits_samples, sets.jpeg_samples])
def test_an_empty_set_is_refused(make: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"at least 1.* 0"):
        make(tmp_path, 0)
