"""The command verify on recordings."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from audio_files import sound, stored, write

from dali_pipelines import Index

Verify = Callable[..., dict[str, str]]
KINDS = {
    "a.wav": ("PCM_16", 16000, 1),
    "b.wav": ("PCM_24", 44100, 2),
    "c.flac": ("PCM_16", 8000, 3),
    "d.flac": ("PCM_24", 16000, 1),
    "e.ogg": ("VORBIS", 16000, 2),
    "f.mp3": ("MPEG_LAYER_III", 16000, 1),
    "g.aiff": ("PCM_16", 22050, 1),
}
"""Subtype, rate and channels of recordings."""


def written(folder: Path) -> Path:
    folder.mkdir()
    for name, (subtype, rate, channels) in KINDS.items():
        write(folder / name, sound(9000, channels), rate, subtype=subtype)
    return folder


def test_recordings_of_all_rates_and_channels_agree(tmp_path: Path, verify: Verify) -> None:
    folder = written(tmp_path / "data")
    lines = verify(folder)
    assert {*lines} == {*KINDS}
    for name, line in lines.items():
        subtype, _, channels = KINDS[name]
        assert "  OK" in line
        assert subtype in line
        assert f"{channels}x{len(stored(folder / name))}" in line


def test_a_window_is_a_segment(tmp_path: Path, verify: Verify) -> None:
    folder = written(tmp_path / "data")
    lines = verify(folder, "--window", "0,4000,1,3000")
    assert all("x3000" in line and "  OK" in line for line in lines.values())
    lines = verify(folder, "--window", "0,4000,1,30000", status=1)
    assert all("REJECTED" in line for line in lines.values())


def test_damage_inside_flac_is_found(tmp_path: Path, verify: Verify) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = write(folder / "a.flac", sound(9000))
    content = bytearray(path.read_bytes())
    content[30] ^= 1  # of the MD5
    path.write_bytes(content)
    write(folder / "b.flac", sound(9000))
    lines = verify(folder, status=1)
    assert "DIFFERS" in lines["a.flac"]
    assert "MD5" in lines["a.flac"]
    assert "  OK" in lines["b.flac"]


def test_what_cannot_be_read_is_rejected(tmp_path: Path, verify: Verify) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "a.wav", sound(9000))
    (folder / "b.flac").write_bytes(b"no sound")
    write(folder / "c.wav", np.array([0.1, np.nan, 0.2]), subtype="FLOAT")
    lines = verify(folder)
    assert "  OK" in lines["a.wav"]
    assert "REJECTED" in lines["b.flac"]
    assert "NaN" in lines["c.wav"]


def test_recordings_in_tars_are_compared(tmp_path: Path, verify: Verify) -> None:
    folder = written(tmp_path / "data")
    with tarfile.open(tmp_path / "speech.tar", "w") as tar:
        for name in ("a.wav", "c.flac", "f.mp3"):
            tar.add(folder / name, name)
    Index.scan(tmp_path / "speech.tar").save(tmp_path / "speech.parquet")
    lines = verify(tmp_path / "speech.parquet")
    assert len(lines) == 3
    assert all("  OK" in line for line in lines.values())
