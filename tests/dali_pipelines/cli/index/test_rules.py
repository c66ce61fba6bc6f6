"""The flag --rules: files that their headers make unfit are dropped, counted and listed."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from solar_files import changed, frame, save

from dali_pipelines.cli.index import main as script
from readers import HeaderRules, Index
from readers.aia.rules import KEYS

Run = Callable[..., Any]


@pytest.fixture
def solar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]) -> Path:
    """Four frames, two of them unfit, and a file of another kind."""
    words: dict[str, dict[str, Any]]
    words = {"a": {}, "b": {"QUALITY": 1 << 17}, "c": {"LVL_NUM": 1.5}, "d": {"WAVELNTH": 193}}
    (tmp_path / "solar").mkdir()
    pixels, header = frame()
    for name, change in words.items():
        save(tmp_path / "solar" / f"{name}.fits", pixels, changed(header, **change))
    write(tmp_path / "solar" / "e.fits", {"WAVELNTH": 171, "QUALITY": 0})
    monkeypatch.chdir(tmp_path)
    return tmp_path / "solar"


def listed() -> dict[str, str]:
    with open("bad.csv", newline="") as file:
        return {os.path.basename(row["path"]): row["reason"] for row in csv.DictReader(file)}


def test_rows_are_dropped_counted_and_listed(solar: Path, index: Run) -> None:
    """After the files that cannot be read."""
    (solar / "f.fits").write_text("text")
    found = index(solar, "--rules=aia", "--rejected=bad.csv")
    assert found.names == ["a.fits", "d.fits"]
    for figure in ("6 files found: 2 rows kept, 1 rejected, 3 dropped by --rules", "1 for LVL_NUM"):
        assert figure in found.out
    assert [*listed()] == ["f.fits", "b.fits", "c.fits", "e.fits"]
    for name, reason in (
        ("b.fits", "QUALITY is 0x00020000"),
        ("c.fits", "LVL_NUM is 1.5"),
        ("e.fits", "INSTRUME"),
    ):
        assert reason in listed()[name]
        assert f"dropped {solar / name}: {listed()[name]}" in found.err


def test_needed_keys_are_added(solar: Path, index: Run) -> None:
    found = index(solar, "--rules=aia", "--keys=CROTA2,HGLT_OBS")
    keys = found.table.column_names[8:]
    assert keys[:2] == ["crota2", "hglt_obs"]
    assert {*keys[2:]} == {key.lower() for key in KEYS} - {"crota2"}
    assert list(HeaderRules().select(found.table).rows) == [0, 1]


def test_with_a_condition(solar: Path, index: Run) -> None:
    found = index(solar, "--rules=aia", "--where=wavelnth = 193 AND lvl_num = 1")
    assert found.names == ["d.fits"]
    assert "3 dropped by --rules" in found.out
    assert "1 dropped by --where" in found.out


def test_no_row_is_left(solar: Path, index: Run) -> None:
    err = index(solar / "b.fits", "--rules=aia", "--rejected=bad.csv", status=1).err
    assert "--rules" in err.splitlines()[-1]
    assert "QUALITY" in listed()["b.fits"]
    assert not Path("index.parquet").exists()


def test_some_are_named(solar: Path, index: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "LISTED", 1)
    assert index(solar, "--rules=aia").err.splitlines()[-1].startswith("and 2 more")


def test_of_an_index(solar: Path, index: Run) -> None:
    table = index(solar, "--rules=aia").table
    position = table.column_names.index("quality")
    Index(table.set_column(position, "quality", [[0, 1 << 17]])).save("other.parquet")
    found = index("other.parquet", "--rules=aia", "--rejected=bad.csv", out="few.parquet")
    assert found.names == ["a.fits"]
    assert {*listed()} == {"d.fits"}
    index(solar, out="all.parquet")
    err = index("all.parquet", "--rules=aia", status=2, out="few.parquet").err
    assert "--rules" in err
    assert "'instrume'" in err
