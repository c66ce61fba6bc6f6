"""Commands as the processes of a job array: each file once, and joined to what one would write."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

from dali_pipelines.cli.index.main import main as index
from dali_pipelines.cli.prep.main import main as prep
from dali_pipelines.cli.verify.compare import Record
from dali_pipelines.cli.verify.main import main as verify

ROWS = 9
FLAGS = ["archive", "--keys=WAVELNTH,DATE-OBS", "--num_processes=1", "--rejected=bad.csv"]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files, and one that is none, in the current folder; the types of keys differ."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "archive"
    for row in range(ROWS):
        (folder / str(row % 2)).mkdir(parents=True, exist_ok=True)
        header = fits.Header({"WAVELNTH": row if row % 3 else "a"})
        header["DATE-OBS"] = "2015-01-01" if row else "never"
        name = folder / str(row % 2) / f"{row}.fits"
        fits.PrimaryHDU(np.full((20, 24), row, np.int16), header).writeto(name)
    (folder / "text.fits").write_text("not FITS")
    return folder


def shard(number: int, count: int) -> list[str]:
    return [f"--shard_id={number}", f"--num_shards={count}"]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_parts_of_an_index_are_joined(archive: Path, count: int) -> None:
    assert index([*FLAGS, "-o=one.parquet"]) == 0
    rejected = Path("bad.csv").read_bytes()
    os.unlink("bad.csv")
    for number in reversed(range(count)):
        assert index([*FLAGS, *shard(number, count), "-o=parts.parquet"]) == 0
    assert len(list(Path().glob("parts.*"))) == count
    assert not os.path.exists("bad.csv")
    assert index([*FLAGS, f"--num_shards={count}", "--join", "-o=parts.parquet"]) == 0
    assert Path("parts.parquet").read_bytes() == Path("one.parquet").read_bytes()
    assert Path("bad.csv").read_bytes() == rejected
    assert [path.name for path in Path().glob("parts.*")] == ["parts.parquet"]


def scan(count: int = 3) -> None:
    for number in range(count):
        assert index([*FLAGS, *shard(number, count)]) == 0


def gone(archive: Path) -> None:
    (archive / "0" / "4.fits").unlink()


def come(archive: Path) -> None:
    os.link(archive / "0" / "4.fits", archive / "1" / "new.fits")


def written_anew(archive: Path) -> None:
    path = archive / "0" / "4.fits"
    status = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))  # whatever the clock's steps


def no_part(archive: Path) -> None:
    os.unlink("index.shard1of3.json.gz")


def cut_off(archive: Path) -> None:
    # Shares follow from the path, which is another in each run: one of three may be empty.
    path = max(
        Path().glob("index.shard*"), key=lambda path: len(gzip.decompress(path.read_bytes()))
    )
    settings, *lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    assert json.loads(settings)["keys"] == ["WAVELNTH", "DATE-OBS", "TIMESYS:DATE-OBS"]
    path.write_bytes(gzip.compress(settings + b"".join(lines[:-1])))


def damage(archive: Path) -> None:
    path = Path("index.shard1of3.json.gz")
    path.write_bytes(path.read_bytes()[:-9])


def of_others(archive: Path) -> None:
    Path("index.shard1of3.json.gz").write_bytes(gzip.compress(b"[1]"))


CHANGES: dict[str, tuple[Callable[[Path], None], list[str], str]] = {
    "a file is gone": (gone, [], "archive/0/4.fits has come, gone or changed since --shard_id="),
    "a file has come": (come, [], "archive/1/new.fits has come, gone or changed since --shard_id="),
    "a file is written anew": (
        written_anew,
        [],
        "archive/0/4.fits has come, gone or changed since --shard_id=",
    ),
    "a part is missing": (
        no_part,
        [],
        "1 of 3 parts are missing, index.shard1of3.json.gz the first: run --shard_id=1",
    ),
    "a part is damaged": (
        damage,
        [],
        ".shard1of3.json.gz cannot be read, run --shard_id=1 again: ",
    ),
    "a part is no part": (of_others, [], ".shard1of3.json.gz cannot be read, run --shard_id=1 aga"),
    "a part is cut off": (cut_off, [], " listed the files: run that again, and others like it"),
    "other flags": (
        lambda _: None,
        ["--verify"],
        "of3.json.gz: this part was made with verify False, not True: give --join the flags",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_parts_that_do_not_fit(
    archive: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    scan()
    change, flags, message = CHANGES[case]
    change(archive)
    capsys.readouterr()
    assert index([*FLAGS, "--num_shards=3", "--join", *flags]) in (1, 2)
    _, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert not os.path.exists("index.parquet")


def test_parts_of_another_number_of_shards_are_named(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scan(3)
    assert index([*FLAGS, *shard(1, 2)]) == 0
    capsys.readouterr()
    assert index([*FLAGS, "--num_shards=2", "--join"]) == 2
    _, err = capsys.readouterr()
    assert err.endswith(
        "1 of 2 parts are missing, index.shard0of2.json.gz the first: run --shard_id=0; "
        "or give another --num_shards, there are 3 parts of --num_shards=3\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num_shards=3"], "--shard_id and --num_shards need each other"),
        (["--shard_id=0"], "--shard_id and --num_shards need each other"),
        (shard(3, 3), "--shard_id must lie in [0, --num_shards=3), got 3: a job array begins with"),
        (shard(-1, 3), "argument --shard_id: expected an integer from 0 on, got '-1'"),
        (shard(0, 0), "argument --num_shards: expected an integer from 1 on, got '0'"),
    ],
)
def test_wrong_numbers(
    archive: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    for command in (index, prep, verify):
        more = [] if command is verify else ["-o=out.parquet"]
        assert command(["archive", *more, *flags]) == 2
        assert message in capsys.readouterr().err
    assert os.listdir() == ["archive"]


@pytest.mark.parametrize("flags", [["--join"], ["--join", *shard(0, 3)]])
def test_wrong_joins(archive: Path, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert index(["archive", *flags]) == 2
    assert "--join needs --num_shards, and no --shard_id" in capsys.readouterr().err
    assert index(["archive"]) == 0
    assert index(["index.parquet", *shard(0, 3), "-o=other.parquet"]) == 2
    assert "--num_shards is for a scan of files, and index.parq" in capsys.readouterr().err


def test_shards_of_prep_make_each_file_once(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(function: Any, tasks: Iterable[tuple[Any, ...]], *_: object) -> Iterator[Any]:
        yield from (function(*task) for task in tasks)

    monkeypatch.setattr("dali_pipelines.cli.prep.main.isolated_map", here)
    flags = ["archive", "-o=out", "--tiles=16", "--num_processes=1"]
    statuses = [prep([*flags, *shard(number, 4)]) for number in range(4)]
    assert sorted(statuses) == [0, 0, 0, 1]
    lines = capsys.readouterr().err.splitlines()
    written = [int(line.split(": ")[1].split()[0]) for line in lines if " finished " in line]
    assert sum(written) == ROWS
    assert prep(flags) == 1
    assert f"10 files: 0 written, {ROWS} finished before, 1 bad" in capsys.readouterr().err


def test_shards_of_verify_compare_each_file_once(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def records(found: object, *_: object) -> object:
        yield from (("CPU", Record(found.path(row), 0, verdict="OK")) for row in range(len(found)))  # type: ignore[attr-defined, arg-type]

    monkeypatch.setattr("dali_pipelines.cli.verify.main.records_of", records)
    for number in range(12):
        assert verify(["archive", "--device=cpu", "--json=out.json", *shard(number, 12)]) == 0
    out, err = capsys.readouterr()
    paths = [line.split()[0] for line in out.splitlines()]
    assert sorted(paths) == sorted(map(str, archive.rglob("*.fits")))
    assert "0 files on the CPU: 0 OK, 0 DIFFERS, 0 REJECTED" in err  # there are more shards
    reports = [json.loads(Path(f"out.shard{n}of12.json").read_text()) for n in range(12)]
    assert [file["path"] for report in reports for file in report["files"]] == paths
