"""The sheet of Indexes of tars."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from benchmarks.main import BenchConfig
from benchmarks.sheets import containers


def test_the_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "fresh", lambda step, *given: step(*given))
    sheet = containers.tars_sheet(tmp_path, BenchConfig(quick=True))
    assert [line[0].split(" ")[0] for line in sheet.lines] == [
        *("Index.scan", "Index.scan", "tarfile,", "open", "open")
    ]
    assert all(float(line[2]) > 0 and len(line) == len(sheet.header) for line in sheet.lines)
    for size, nbytes in {"small": 2000, "large": 110_000}.items():
        with tarfile.open(tmp_path / size / "000.tar") as tar:
            assert [(one.name, one.size) for one in tar][-2:] == [
                ("00000099.cls", 2),
                ("00000099.jpg", nbytes),
            ]
