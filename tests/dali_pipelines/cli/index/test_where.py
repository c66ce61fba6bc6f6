"""The flag --where: the rows that a condition chooses, and conditions that are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("wavelnth = 171", "abd"),
        ("wavelnth = 171 AND quality = 0 AND exptime > 1.5 AND date_obs >= '2015-01-01'", "a"),
        ("\"DATE-OBS\" < '2015-01-01' or EXPTIME > 2.5", "bd"),
        ("(quality & 2147483648) > 0", "b"),
        ("exptime IS NULL", "c"),
        ("year(date_obs) = 2014", "b"),
        ("path LIKE '%/sub/%'", "d"),
        ("height = 4 and codec = '' and path like '%a.fits' -- why", "a"),
        ("path IN (SELECT max(path) FROM archive)", "d"),
    ],
)
def test_rows(archive: Path, index: Run, where: str, expected: str) -> None:
    found = index(archive, "--where", where)
    assert found.names == [f"{name}.fits" for name in expected]
    assert f"{4 - len(expected)} dropped by --where" in found.out
    assert found.table.column_names == index(archive).table.column_names


@pytest.mark.parametrize("flags", ["--where=wavelnth=304", "--keys=OBJECT --where=object='Sun'"])
def test_no_row_is_left(archive: Path, index: Run, flags: str) -> None:
    found = index(archive, *flags.split(), status=1)
    assert found.out == ""
    assert "--where" in found.err.splitlines()[-1]
    assert os.listdir() == []


@pytest.mark.parametrize(
    "where",
    [
        "1=1; DROP TABLE x",
        "1=1; SELECT 1",
        "path IN (SELECT * FROM read_csv('/etc/passwd'))",
        "EXISTS (FROM '/etc/passwd')",
        "path IN (FROM glob('/etc/*'))",
        "path = (SELECT content FROM read_text('/etc/hostname'))",
        "COPY archive TO 'stolen.csv'",
        "1=1) TO 'stolen.csv' --",
        "true) OR (true",
        "1=1 UNION SELECT true",
        "true LIMIT 1",
        "true, false",
        "INSTALL httpfs",
        "(SET enable_external_access = true)",
        "getenv('HOME') = ''",
        "path IN (SELECT * FROM table)",
        "path IN (SELECT * FROM options)",
        "?",
        "",
        "wavelnth =",
        "nosuch = 1",
        "height",
        "date_obs > 'yesterday'",
        "(quality & (1 << 31)) > 0",
        "count(*) > 1",
        "wavelnth = 171\nAND nosuch = 1",
    ],
)
def test_wrong_or_hostile_before_the_scan(archive: Path, index: Run, where: str) -> None:
    """The scan would name the files that cannot be read."""
    found = index(archive, "--where", where, status=2)
    assert found.out == ""
    assert found.err.startswith("dali-pipelines index: --where ")
    assert found.err.count("\n") == 1
    assert "LINE" not in found.err  # of the statement that DuckDB gets
    assert os.listdir() == []


def test_near_columns_and_keys_are_named(archive: Path, index: Run) -> None:
    err = index(archive, "--where", "quality == 0 AND wavelength = 171", status=2).err
    for word in ('"wavelength"', '"wavelnth"', "--keys"):
        assert word in err


@pytest.mark.parametrize(
    ("where", "reason"),
    [("year(wavelnth) = 3", "year"), ("wavelnth = 'EUV'", "'EUV'"), ("wavelnth", "true or false")],
)
def test_wrong_for_the_values_of_the_headers(
    archive: Path, index: Run, where: str, reason: str
) -> None:
    found = index(archive, "--where", where, status=2)
    last = found.err.splitlines()[-1]
    assert found.out == ""
    assert last.startswith("dali-pipelines index: --where ")
    assert where in last
    assert reason in last.replace(where, "")
    assert os.listdir() == []
