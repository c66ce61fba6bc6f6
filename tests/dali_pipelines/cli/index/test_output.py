"""The file that index writes: its own is replaced, and no other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from readers import Index

Run = Callable[..., Any]
SUFFIXES = pytest.mark.parametrize("suffix", ["parquet", "arrow"])


@SUFFIXES
def test_its_own_is_replaced(archive: Path, index: Run, suffix: str) -> None:
    name = f"index.{suffix}"
    index(archive, out=name)
    assert index(archive, "--where", "wavelnth = 193", out=name).names == ["c.fits"]
    assert os.listdir() == [name]


@SUFFIXES
@pytest.mark.parametrize("kind", ["text", "an Index", "its own with a column added"])
def test_no_other_is_replaced(
    archive: Path, index: Run, suffix: str, kind: str, contents: Callable[[Path], Any]
) -> None:
    name = f"index.{suffix}"
    if kind == "text":
        Path(name).write_text("precious")
    elif kind == "an Index":
        Index.from_paths(["/a.fits"]).save(name)
    else:
        table = index(archive, out=name).table
        Index(table.append_column("mine", pa.array(range(table.num_rows)))).save(name)
    before = contents(Path())
    found = index(archive, out=name, status=2)
    assert (found.out, found.err.count("\n")) == ("", 1)
    assert name in found.err
    assert "--overwrite" in found.err
    assert contents(Path()) == before
    assert len(index(archive, "--overwrite", out=name).table) == 4


def test_both_formats_hold_the_same(archive: Path, index: Run) -> None:
    one, other = index(archive).made, index(archive, out="index.arrow").made
    assert (one.table, one.digest) == (other.table, other.digest)
    few = index("index.arrow", "--where=wavelnth = 193", out="few.arrow")
    assert few.names == ["c.fits"]


def test_a_disk_error(archive: Path, index: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Index, "save", full)
    found = index(archive, status=1)
    assert found.out == ""
    assert "index.parquet" in found.err.splitlines()[-1]
