from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from readers import Index

FRAME = pd.DataFrame(
    {
        "path": [f"/{row}.fits" for row in range(1000)],
        "wavelnth": np.random.default_rng(0).choice([171, 193, 211], 1000),
        "exptime": np.random.default_rng(1).uniform(0, 3, 1000),
    }
)


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(pa.Table.from_pandas(FRAME))


def paths(index: Index) -> list[str]:
    return index.table["path"].to_pylist()


@pytest.mark.parametrize(
    ("sql", "pandas"),
    [
        ("wavelnth = 171 AND exptime > 1.9", "wavelnth == 171 and exptime > 1.9"),
        ("WAVELNTH IN (193, 211)", "wavelnth in (193, 211)"),
        ("path LIKE '%7.fits'", "path.str.endswith('7.fits')"),
        ("true", "exptime == exptime"),
    ],
)
def test_as_pandas_does(index: Index, sql: str, pandas: str) -> None:
    assert paths(index.where(sql)) == FRAME.query(pandas)["path"].tolist()


def test_rows_for_which_it_is_null_are_left_out() -> None:
    index = Index(pa.table({"path": ["/a", "/b", "/é"], "x": [1, None, 3]}))
    assert paths(index.where("x > 0")) == ["/a", "/é"]
    assert paths(index.where("x IS NULL")) == ["/b"]
    assert paths(index.where("path = '/é'")) == ["/é"]


def test_of_a_mapped_file(index: Index, tmp_path: Path) -> None:
    index.save(tmp_path / "index.arrow")
    mapped = Index.load(tmp_path / "index.arrow")
    assert paths(mapped.where("exptime < 0.1")) == paths(index.where("exptime < 0.1"))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("wavelnth = 304", "where 'wavelnth = 304' matches none of 1000 rows"),
        ("wavelenght = 171", "Candidate bindings: .*wavelnth"),
        ("exptime", "where must be true or false, 'exptime' is DOUBLE"),
        ("exptime >", "where 'exptime >': Parser Error"),
        ("", "where '': Parser Error"),
        ("true; DROP TABLE archive", "Parser Error"),
        ("exists(SELECT * FROM read_text('/etc/hostname'))", "where .*Permission|disabled|Error"),
    ],
)
def test_errors(index: Index, sql: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        index.where(sql)


def test_without_duckdb(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ModuleNotFoundError, match=r"^Index.where needs DuckDB: pip install '.*'$"):
        index.where("true")
