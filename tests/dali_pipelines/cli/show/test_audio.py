"""Pictures of recordings by the command show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audio_files import sound, write

RATE = 16000
LINES = 3
"""Of a caption: path, extent and range."""

Show = Callable[..., tuple[Any, str]]
Cell = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One recording that is silent in its first half, then a tone of 2 kHz."""
    (tmp_path / "data").mkdir()
    samples = np.zeros(2 * RATE)
    samples[RATE:] = 0.5 * np.sin(2 * np.pi * 2000 * np.arange(RATE) / RATE)
    write(tmp_path / "data" / "a.wav", samples)
    return tmp_path / "data"


def inked(picture: Any) -> Any:
    picture = picture.astype(int)
    return picture[..., 2] - picture[..., 0] > 50


def test_a_waveform_is_as_high_as_it_is_loud(folder: Path, show: Show, cell: Cell) -> None:
    sheet, err = show(folder, "--pipeline=audio")
    heights = inked(cell(sheet, 0, 1, LINES)).sum(axis=0)
    assert heights[5:27].max() <= 3
    assert heights[37:60].min() >= 55
    assert "1 recordings, 0 rejected" in err


def test_low_bands_are_at_the_bottom(folder: Path, show: Show, cell: Cell) -> None:
    sheet, _ = show(folder, "--pipeline=audio", "--features", "LogMel(n_mels=40)")
    picture = cell(sheet, 0, 1, LINES).astype(int).sum(axis=2)
    assert picture[:, 37:60].max() > picture[:, 5:27].max() + 100
    assert 20 < picture[:, 50].argmax() < 40  # 2 kHz is in the middle of the mel scale


def test_channels_are_below_each_other(tmp_path: Path, show: Show, cell: Cell) -> None:
    (tmp_path / "data").mkdir()
    samples = np.zeros((RATE, 2))
    samples[:, 1] = sound(RATE)[:, 0]
    write(tmp_path / "data" / "a.wav", samples)
    sheet, _ = show(tmp_path / "data", "--pipeline=audio", "--channels=2")
    found = inked(cell(sheet, 0, 1, LINES))
    assert found[32:].sum() > 5 * found[:32].sum()


def test_draws_show_other_segments(folder: Path, show: Show, captions: Any) -> None:
    flags = ["--pipeline=audio", "--duration=0.2", "--window=random", "--draws=6"]
    show(folder, *flags)
    assert len({lines[1] for lines, _ in captions}) == 6
    assert all("3200 samples" in lines[1] for lines, _ in captions)


def test_recordings_that_cannot_be_read_are_named(folder: Path, show: Show) -> None:
    (folder / "b.flac").write_bytes(b"no sound")
    _, err = show(folder, "--pipeline=audio")
    assert "1 recordings, 1 rejected" in err
    assert "b.flac" in err
