from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

from dali_pipelines.cli.index import main as script
from readers import Index, TimeBlocks, TimeOrder

Run = Callable[..., tuple[int, str, str]]
HOUR = 3_600_000_000_000


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """An Index of 400 rows, three hours from one to the next, as all.parquet."""
    monkeypatch.chdir(tmp_path)
    rows = range(400)
    columns = {
        "path": [f"/{row}.fits" for row in rows],
        "night": [row // 8 for row in rows],
        "t_obs": pa.array([row * 3 * HOUR for row in rows], pa.timestamp("ns")),
    }
    index = Index(pa.table(columns))
    index.save("all.parquet")
    return index


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        return script.main(list(arguments)), *capsys.readouterr()

    return run


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_as_the_index_splits(given: Index, run: Run, suffix: str) -> None:
    arguments = ("--split=train=0.8,val=.2", "--split_by=night", f"--out=index.{suffix}")
    status, out, err = run("all.parquet", *arguments)
    assert (status, err) == (0, "")
    expected = given.split({"train": 0.8, "val": 0.2}, by="night")
    files = {name: f"index.{name}.{suffix}" for name in expected}
    assert sorted(os.listdir()) == ["all.parquet", *sorted(files.values())]
    for name, part in expected.items():
        assert Index.load(files[name]).digest == part.digest
    assert f"{len(expected['train'])} train, {len(expected['val'])} val" in out
    assert [file for file in files.values() if str(Path.cwd() / file) not in out] == []
    assert run("all.parquet", *arguments)[0] == 0  # replaces its own files


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_column_key_of_the_user_is_no_default(given: Index, run: Run, suffix: str) -> None:
    table = given.table.append_column("key", pa.array(["one"] * 400))
    if suffix == "csv":
        csv.write_csv(table.select(["path", "key"]), "keyed.csv")
    else:
        Index(table).save("keyed.parquet")
    status, _, err = run(f"keyed.{suffix}", "--split=a=0.5,b=0.5")
    assert (status, err) == (0, "")
    for name, part in given.split({"a": 0.5, "b": 0.5}).items():
        found = Index.load(f"index.{name}.parquet").table["path"]
        assert found.to_pylist() == part.table["path"].to_pylist()


def test_blocks_of_time(given: Index, run: Run) -> None:
    status, out, _ = run(
        "all.parquet", "--split=a=0.5,b=0.5", "--split_by=t_obs", "--block=5d", "--gap=21600"
    )
    assert status == 0
    parts = given.split({"a": 0.5, "b": 0.5}, by=TimeBlocks("t_obs", "5d", "6h"))
    gaps = 400 - sum(map(len, parts.values()))
    assert gaps > 0
    assert f"{len(parts['a'])} a, {len(parts['b'])} b, {gaps} in gaps" in out
    assert Index.load("index.a.parquet").digest == parts["a"].digest


def test_one_part_after_the_other(given: Index, run: Run) -> None:
    flags = ("--split_by=t_obs", "--time_order", "--gap=6h")
    status, out, _ = run("all.parquet", "--split=a=0.5,b=0.5", *flags)
    assert status == 0
    parts = given.split({"a": 0.5, "b": 0.5}, by=TimeOrder("t_obs", "6h"))
    assert f"{len(parts['a'])} a, {len(parts['b'])} b" in out
    for name, part in parts.items():
        assert Index.load(f"index.{name}.parquet").digest == part.digest


def test_a_seed_is_named_as_a_flag(given: Index, run: Run) -> None:
    given.with_column("half", [row // 200 for row in range(400)]).save("halves.parquet")
    shares, seeds = "--split=a=0.8,b=0.2", iter(range(100))
    while (
        found := run("halves.parquet", shares, "--split_by=half", f"--split_seed={next(seeds)}")
    )[0] == 0:
        pass
    (flag,) = (word for word in found[2].split() if word.startswith("--split_seed="))
    assert run("halves.parquet", shares, "--split_by=half", flag)[0] == 0


def test_a_seed(given: Index, run: Run) -> None:
    assert run("all.parquet", "--split=a=0.5,b=0.5", "--split_by=night", "--split_seed=7")[0] == 0
    parts = given.split({"a": 0.5, "b": 0.5}, by="night", seed=7)
    assert Index.load("index.a.parquet").digest == parts["a"].digest


def test_settings_of_a_file(given: Index, run: Run) -> None:
    Path("split.toml").write_text('data = "all.parquet"\nsplit = "a=0.5,b=0.5"\nsplit_by = "night"')
    assert run("--config=split.toml")[0] == 0
    assert len(Index.load("index.a.parquet")) + len(Index.load("index.b.parquet")) == 400


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--split_by=path", "--block=1d"], ["'path'", "times"]),
        (["--where=night = 1", "--split_by=night"], ["8 rows"]),
    ],
)
def test_rows_that_cannot_be_split(
    given: Index, run: Run, flags: list[str], named: list[str]
) -> None:
    found, out, err = run("all.parquet", "--split=a=.5,b=.5", *flags)
    assert (found, out, err.count("\n")) == (1, "", 1)
    assert [word for word in named if word not in err] == []
    assert os.listdir() == ["all.parquet"]


def test_a_part_replaces_no_other_file(given: Index, run: Run) -> None:
    Path("index.b.parquet").write_text("mine")
    status, _, err = run("all.parquet", "--split=a=0.5,b=0.5")
    assert (status, Path("index.b.parquet").read_text()) == (2, "mine")
    assert "index.b.parquet" in err
    assert "--overwrite" in err
