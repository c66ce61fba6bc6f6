from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_a_missing_value(kind: pa.DataType) -> None:
    values = pa.array([1, float("nan"), None, 4, float("inf")], kind)
    index = Index(pa.table({"path": list("abcde"), 'f "1"': values}))
    assert paths(index.where('"f ""1""" > 2')) == ["d", "e"]
    assert paths(index.where('NOT "f ""1""" < 2')) == ["d", "e"]
    assert paths(index.where('"f ""1""" != 4')) == ["a", "e"]
    assert paths(index.where('"f ""1""" IS NULL')) == ["b", "c"]
    assert paths(index.where('"f ""1""" = (SELECT max("f ""1""") FROM archive)')) == ["e"]
    kept = index.where("true").table['f "1"']
    assert kept.null_count == 1
    assert np.isnan(kept[1].as_py())


def test_keywords_as_fits_spells_them(index: Index) -> None:
    other = index.with_column("date_obs", np.arange(1000)).with_column("x-y", np.arange(1000))
    sql = """ "DATE-OBS" < 4 AND "date-obs" > 1 AND "DATE_OBS" < 3 AND "X-Y" = 2"""
    assert paths(other.where(sql)) == ["/2.fits"]
    assert len(other.where("""'"DATE-OBS"' != path AND "Exptime" >= 0""")) == 1000
    with pytest.raises(ValueError, match='"T-OBS" not found'):
        other.where('"T-OBS" > 3')


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo")
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("t_obs >= '2015-01-02'", ["/b"]),
        ("t_obs >= TIMESTAMP '2015-01-02'", ["/b"]),
        ("t_obs::DATE = '2015-01-01'", ["/a"]),
        ("hour(t_obs) = 20", ["/a"]),
        ("t_obs::TEXT LIKE '2015-01-02 03%'", ["/b"]),
        ("t_obs AT TIME ZONE 'Asia/Tokyo' = '2015-01-02 05:00'", ["/a"]),
        ("naive = t_obs", ["/a", "/b"]),
    ],
)
def test_times_are_in_utc_whatever_the_time_zone_of_the_machine(
    condition: str, expected: list[str]
) -> None:
    times = [datetime(2015, 1, 1, 20), datetime(2015, 1, 2, 3)]
    utc, naive = (pa.array(times, pa.timestamp("us", zone)) for zone in ("UTC", None))
    index = Index(pa.table({"path": ["/a", "/b"], "t_obs": utc, "naive": naive}))
    assert paths(index.where(condition)) == expected


@pytest.mark.parametrize("name", ["row of the index", "\ue000", "\ue000\ue000"])
def test_a_column_named_as_that_of_row_numbers(index: Index, name: str) -> None:
    other = index.with_column(name, np.full(1000, 4))
    assert paths(other.where("exptime < 0.1")) == paths(index.where("exptime < 0.1"))
    assert len(other.where(f'"{name}" = 4')) == 1000


def test_columns_may_be_named_by_their_table(index: Index) -> None:
    longest = "exptime = (SELECT max(a.exptime) FROM archive a WHERE a.wavelnth = archive.wavelnth)"
    expected = FRAME.groupby("wavelnth")["exptime"].idxmax().sort_values()
    assert paths(index.where(longest)) == [f"/{row}.fits" for row in expected]
    assert len(index.where("archive.wavelnth = 171")) == (FRAME["wavelnth"] == 171).sum()


@pytest.mark.parametrize(
    ("sql", "proposed"),
    [
        ('"row of the index" < 3', r'bindings: ("\w+", )*"\w+"; the columns'),
        ("stored.exptime < 3", 'tables: "archive"$'),
        ("exptime IN (SELECT exptime FROM stored)", "stored does not exist"),
    ],
)
def test_only_names_that_users_know_are_proposed(index: Index, sql: str, proposed: str) -> None:
    with pytest.raises(ValueError, match=proposed):
        index.where(sql)


def test_columns_that_differ_only_in_case(index: Index) -> None:
    german = index.with_column("Ä", np.ones(1000)).with_column("ä", np.zeros(1000))
    assert len(german.where('"Ä" > "ä"')) == 1000  # for DuckDB only A and a are the same
    other = index.with_column("EXPTIME", np.zeros(1000))
    with pytest.raises(ValueError, match=r"'exptime' and 'EXPTIME'.*case"):
        other.where("exptime > 1")


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("random() < 0.7", "random"),
        ("path = 'é' OR RANDOM ( ) < 0.7", "random"),
        ("random /* */ () < 0.7", "random"),
        ('exptime < 3 * "random"()', "random"),
        ("main.random() < 0.7", "random"),
        ("uuid()::text < 'a'", "uuid"),
        ("exptime > (SELECT min(random()) FROM archive)", "random"),
        ("exists(FROM query('SELECT 1 WHERE random() < 0.7'))", "query"),
        ("exptime < (SELECT reservoir_quantile(exptime, 0.5) FROM archive)", "reservoir_quantile"),
        ("today() > '2015-01-01'", "today"),
        ("Current_Date > '2015-01-01'", "current_date"),
        ("now() > '2015-01-01'", "now"),
        ("current_timestamp > '2015-01-01'", "current_timestamp"),
        ("ago(INTERVAL 1 DAY) > '2015-01-01'", "ago"),
        ("localtime > '12:00'", "localtime"),
        ("age(TIMESTAMP '2015-01-01') > INTERVAL 1 DAY", "age"),
        ("txid_current() > wavelnth", "txid_current"),
    ],
)
def test_unstable_functions_are_refused(index: Index, sql: str, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}\(\).*Index\.select"):
        index.where(sql)


@pytest.mark.parametrize("sample", ["USING SAMPLE 3", "TABLESAMPLE 50%", "USING SAMPLE 3 ROWS"])
def test_samples_are_refused(index: Index, sample: str) -> None:
    with pytest.raises(ValueError, match=r"SAMPLE.*Index.select"):
        index.where(f"path IN (SELECT path FROM archive {sample})")


def test_columns_named_like_unstable_functions(index: Index) -> None:
    other = index.with_column("random", np.arange(1000)).with_column("uuid", ["random()"] * 1000)
    assert len(other.where("random in (1, 2) AND uuid = 'random()' AND (random) < 9")) == 2
    assert paths(other.with_column("Today", np.arange(1000)).where("today = 3")) == ["/3.fits"]
    other = index.with_column("current_date", np.arange(1000))
    assert paths(other.where("CURRENT_DATE = 3")) == ["/3.fits"]


@pytest.mark.parametrize(
    "sql",
    [
        "list_transform([1], lambda now: now)[1] = exptime - exptime + 1",
        "wavelnth > (SELECT max(today) FROM (SELECT wavelnth - 40 AS today FROM archive))",
        "1 IN (SELECT random FROM (SELECT 1 AS random))",
    ],
)
def test_variables_named_like_unstable_functions(index: Index, sql: str) -> None:
    assert len(index.where(sql)) > 0


@pytest.mark.parametrize(
    "sql",
    [
        "row IN (SELECT any_value(row) FROM archive GROUP BY row % 3)",
        "row IN (SELECT row FROM archive QUALIFY row_number() OVER (PARTITION BY row % 3) < 4)",
        "value < (SELECT approx_quantile(value, 0.1) FROM archive)",
    ],
)
def test_results_do_not_depend_on_the_order_of_threads(sql: str) -> None:
    """Threads of DuckDB would each time come to them in another order."""
    rows = np.arange(300_000)
    values = np.random.default_rng(0).uniform(size=len(rows))
    table = pa.table({"path": pa.repeat("a", len(rows)), "row": rows, "value": values})
    first, *others = (Index(table).where(sql).table["row"].to_pylist() for _ in range(4))
    assert others == [first] * 3


def test_stable_functions(index: Index) -> None:
    condition = """
        path IN (SELECT '/' || unnest([1, 2]) || '.fits') AND path SIMILAR TO '.*fits'
        AND wavelnth IN (FROM range(1000)) AND list_filter([1, 2], lambda i: i > 1) = [2]
        AND 'random()' <> '"function_name":"random"' AND nullif(exptime, -1) >= 0 -- random()
    """
    assert paths(index.where(condition)) == ["/1.fits", "/2.fits"]


@pytest.mark.parametrize("condition", [None, 1, True, np.ones(1000, bool), [0, 1]])
def test_conditions_that_are_not_text(index: Index, condition: Any) -> None:
    with pytest.raises(TypeError, match=r"SQL.*select"):
        index.where(condition)


def test_columns_that_duckdb_does_not_read() -> None:
    half = np.array([1, np.nan, 3], np.float16)
    wide = pa.array([1, 2, None], pa.decimal256(50, 3))
    index = Index(pa.table({"path": list("abc"), "half": half, "wide": wide, "x": [1, 2, 3]}))
    assert paths(index.where("x > 1")) == ["b", "c"]
    assert paths(index.where("half > 1")) == ["c"]
    assert index.where("half IS NULL").table.schema == index.table.schema
    with pytest.raises(ValueError, match=r"wide.*decimal256\(50, 3\).*convert"):
        index.where("wide > 1")


def test_of_a_mapped_file(index: Index, tmp_path: Path) -> None:
    index.save(tmp_path / "index.arrow")
    mapped = Index.load(tmp_path / "index.arrow")
    assert paths(mapped.where("exptime < 0.1")) == paths(index.where("exptime < 0.1"))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("wavelnth = 304", "'wavelnth = 304'.*none of 1000 rows"),
        ("wavelenght = 171", "Candidate bindings: .*wavelnth.*columns are path, "),
        ("uid < 20", "columns are .*exptime.*--keys"),
        ("exptime", "'exptime' is DOUBLE"),
        ("exptime >", "'exptime >': Parser Error"),
        ("", "'': Parser Error"),
        ("true; DROP TABLE archive", "Parser Error"),
        ("exists(SELECT * FROM read_text('/etc/hostname'))", "Permission|disabled|Error"),
    ],
)
def test_errors(index: Index, sql: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"(?s)where.*({words})"):
        index.where(sql)


def test_without_duckdb(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ModuleNotFoundError, match=r"DuckDB.*pip install"):
        index.where("true")
