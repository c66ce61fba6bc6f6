"""Index.from_csv: paths, types and damage of catalogues."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from readers import Index


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    return tmp_path / "catalogue.csv"


def paths(index: Index) -> list[str]:
    return [index.path(row) for row in range(len(index))]


def test_paths_are_relative_to_its_folder(catalogue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue.write_text("label,path,time\n3,x/é.fits,2015-01-01T00:00:01\n4,/abs.fits,\n")
    monkeypatch.chdir(catalogue.parent)
    index = Index.from_csv(catalogue.name)
    assert paths(index) == [f"{catalogue.parent}/x/é.fits", "/abs.fits"]
    assert index.table.column_names == ["label", "path", "time"]
    assert index.table["label"].to_pylist() == [3, 4]


def test_names_that_look_like_numbers(catalogue: Path) -> None:
    catalogue.write_text("path\n0001\n0002\n")
    assert paths(Index.from_csv(catalogue)) == [f"{catalogue.parent}/000{n}" for n in (1, 2)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", ""], "int64"),
        (["-0", "9223372036854775807", ""], "int64"),
        (["007", "10", ""], "large_string"),
        (["-07", "1.5", "2"], "large_string"),
        (["0x1F", "7", "8"], "large_string"),
        (["18446744073709551610", "18446744073709551611", ""], "large_string"),
        (["9007199254740993", "0.5", ""], "large_string"),
        (["9007199254740992", "0.5", ""], "double"),
        (["0.10", "1e5", "-inf"], "double"),
        (["nan", "00.50", "-0.0"], "double"),
        (["True", "false", ""], "bool"),
        (["2024-01-01", "1999-12-31", ""], "date32[day]"),
        (["1.10", "1.9", "2.0rc1"], "string"),
    ],
)
def test_numbers_lose_nothing(tmp_path: Path, values: list[str], kind: str) -> None:
    file = tmp_path / "catalogue.csv"
    pd.DataFrame({"path": ["a", "b", "c"], " id": values}).to_csv(file, index=False)
    column = Index.from_csv(file).table["id"]
    assert str(column.type) == kind
    if kind == "large_string":
        assert column.to_pylist() == [value or None for value in values]
    elif kind == "int64":
        assert column.to_pylist() == [int(value) if value else None for value in values]
    elif kind == "double":
        np.testing.assert_array_equal(column.to_numpy(), pd.read_csv(file)[" id"])


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_marks_comments_and_quotes(tmp_path: Path, name: str) -> None:
    text = '\ufeff# made\r\n# by x\r\npath , note\r\n"a, b.fits","two\r\nlines, ""é"""\r\n'
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wb") as file:
        file.write(text.encode())
    index = Index.from_csv(tmp_path / name)
    assert paths(index) == [f"{tmp_path}/a, b.fits"]
    assert index.table["note"].to_pylist() == ['two\r\nlines, "é"']


@pytest.mark.parametrize("quote", ["", '"'])
def test_long_values(tmp_path: Path, quote: str) -> None:
    """Longer than the csv module of Python and a block of PyArrow hold, beside a quote."""
    file, mask = tmp_path / "catalogue.csv", "1 2 " * 300_000
    file.write_text(f'path,mask\n"a, b",\nc,{quote}{mask}{quote}\n')
    limit = csv.field_size_limit()
    assert Index.from_csv(file).table["mask"].to_pylist() == ["", mask]
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ".*empty"),
        (b"# x\n", ".*empty"),
        (b"file,label\na,1\n", ".*'path', got .*file"),
        (b"path,label\na.fits,1\n,2\n", ".*'path' has 1 empty"),
        (b"path,x\n", ".*none"),
        (b"path,x, x\na,1,2\n", ".*rename"),
        (b'# x\npath,x\n"a\nb",1\nb\n', ", line 5.*correct the row"),
        (b"path,x\na,1\nb,2,3\n", ", line 3.*in quotes"),
        (b"path,x\na,Jos\xe9\n", ", line 2.*iconv"),
        (b"path,Jos\xe9\na,1\n", ", line 1.*iconv"),
        (b'path,x\na,1\nb,"2\nc,3\nd,4\n', ", line 3.*quote"),
    ],
)
def test_errors_name_file_and_line(catalogue: Path, content: bytes, words: str) -> None:
    catalogue.write_bytes(content)
    with pytest.raises(ValueError, match=f"{catalogue}{words}"):
        Index.scan(catalogue)
