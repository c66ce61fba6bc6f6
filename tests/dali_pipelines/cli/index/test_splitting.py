from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from dali_pipelines.cli.index import main as script
from readers import Index, TimeBlocks

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
    assert out == (
        "400 rows found: 400 rows kept, 0 dropped by --where.\n"
        f"Split into {len(expected['train'])} train, {len(expected['val'])} val.\n"
        f"Written to {', '.join(str(Path.cwd() / file) for file in files.values())}\n"
    )
    assert run("all.parquet", *arguments)[0] == 0  # replaces its own files


def test_blocks_of_time(given: Index, run: Run) -> None:
    status, out, _ = run(
        "all.parquet", "--split=a=0.5,b=0.5", "--split_by=t_obs", "--block=5d", "--gap=21600"
    )
    assert status == 0
    parts = given.split({"a": 0.5, "b": 0.5}, by=TimeBlocks("t_obs", "5d", "6h"))
    gaps = 400 - sum(map(len, parts.values()))
    assert gaps > 0
    assert f"Split into {len(parts['a'])} a, {len(parts['b'])} b, {gaps} in gaps left out.\n" in out
    assert Index.load("index.a.parquet").digest == parts["a"].digest


def test_a_seed(given: Index, run: Run) -> None:
    assert run("all.parquet", "--split=a=0.5,b=0.5", "--split_by=night", "--split_seed=7")[0] == 0
    parts = given.split({"a": 0.5, "b": 0.5}, by="night", seed=7)
    assert Index.load("index.a.parquet").digest == parts["a"].digest


def test_settings_of_a_file(given: Index, run: Run) -> None:
    Path("split.toml").write_text('data = "all.parquet"\nsplit = "a=0.5,b=0.5"\nsplit_by = "night"')
    assert run("--config=split.toml")[0] == 0
    assert len(Index.load("index.a.parquet")) + len(Index.load("index.b.parquet")) == 400


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--split_by=night"], 2, "--split_by needs --split"),
        (["--block=1d"], 2, "--block needs --split"),
        (["--split=a=1", "--gap=1d"], 2, "--gap needs --block"),
        (["--split=a=1", "--block=1d"], 2, "--block needs --split_by, the name of a column of"),
        (["--split=a=1", "--split_by=night", "--block=1d", "--gap=2d"], 2, "gap must be shorter"),
        (["--split_seed=1"], 2, "--split_seed needs --split"),
        (["--split=a=1", "--split_seed=-1"], 2, "--split: seed must be an integer, from 0 to"),
        (["--split=a=0.5"], 2, "--split: fractions must add up to 1, got {'a': 0.5}, which is 0.5"),
        (["--split=a=0.5,a=0.5"], 2, "expected names, each once, and shares, as train=0.9,val=0.1"),
        (["--split=a/b=1"], 2, "expected names, each once, and shares, as train=0.9,val=0.1"),
        (["--split=a=half"], 2, "expected names, each once, and shares, as train=0.9,val=0.1"),
        (["--split=a=1", "--split_by=nigth"], 2, "needs a column 'nigth': did you mean night?"),
        (["--split=a=1", "--split_by=path", "--block=1d"], 1, "'path' must hold times"),
        (["--split=a=.5,b=.5", "--where=night = 1", "--split_by=night"], 1, "get none of 8 rows"),
    ],
)
def test_errors(given: Index, run: Run, arguments: list[str], status: int, message: str) -> None:
    found, out, err = run("all.parquet", *arguments)
    assert (found, out) == (status, "")
    assert message in err
    assert err.count("\n") == 1
    assert os.listdir() == ["all.parquet"]


def test_a_part_replaces_no_other_file(given: Index, run: Run) -> None:
    Path("index.b.parquet").write_text("mine")
    status, _, err = run("all.parquet", "--split=a=0.5,b=0.5")
    assert (status, Path("index.b.parquet").read_text()) == (2, "mine")
    assert "index.b.parquet exists and is not an Index of this command" in err
