"""Commands as the processes of a job array: each file once, and joined to what one would write."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

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


CHANGES: dict[str, tuple[Callable[[Path], None], list[str], list[str]]] = {
    "a file is gone": (gone, [], ["archive/0/4.fits", "--shard_id="]),
    "a file has come": (come, [], ["archive/1/new.fits", "--shard_id="]),
    "a file is rewritten": (written_anew, [], ["archive/0/4.fits", "--shard_id="]),
    "a part is missing": (no_part, [], ["1 of 3", "shard1of3.json.gz", "--shard_id=1"]),
    "a part is damaged": (damage, [], ["shard1of3.json.gz", "--shard_id=1"]),
    "a part is another file": (of_others, [], ["shard1of3.json.gz", "--shard_id=1"]),
    "a part is cut off": (cut_off, [], ["--shard_id="]),
    "other flags": (lambda _: None, ["--verify"], ["of3.json.gz", "verify False", "True"]),
    "other keys": (lambda _: None, ["--keys=DATE-OBS"], ["of3.json.gz", "keys", "WAVELNTH"]),
    "another HDU": (lambda _: None, ["--hdu=1"], ["of3.json.gz", "hdu None", "not 1"]),
    "other HDUs": (lambda _: None, ["--hdus=SCI"], ["of3.json.gz", "hdus None", "SCI"]),
    "other planes": (lambda _: None, ["--planes=0,2"], ["of3.json.gz", "planes None", "[0, 2]"]),
    "inherited keys": (lambda _: None, ["--inherit"], ["of3.json.gz", "inherit False", "True"]),
    "another number": (lambda _: None, ["--num_shards=2"], ["shard0of2", "3", "--num_shards=3"]),
}
"""What is changed after the scan, flags of the join, and words of its message."""


@pytest.mark.parametrize("case", CHANGES)
def test_parts_that_do_not_fit(
    archive: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    change, flags, named = CHANGES[case]
    for number in range(3):
        assert index([*FLAGS, *shard(number, 3)]) == 0
    change(archive)
    before = sorted(os.listdir())
    capsys.readouterr()
    same = [flag for flag in FLAGS if not "".join(flags).startswith(f"{flag.partition('=')[0]}=")]
    assert index([*same, "--num_shards=3", "--join", *flags]) in (1, 2)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert [word for word in named if word not in err] == [], err
    assert sorted(os.listdir()) == before


@pytest.mark.usefixtures("no_processes")
def test_shards_of_prep_make_each_file_once(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["archive", "-o=out", "--tiles=16", "--num_processes=1"]
    statuses = [prep([*flags, *shard(number, 4)]) for number in range(4)]
    assert sorted(statuses) == [0, 0, 0, 1]
    written = re.findall(r"(\d+) written", capsys.readouterr().err)
    assert sum(map(int, written)) == ROWS
    assert prep(flags) == 1
    assert f"0 written, {ROWS} finished before, 1 bad" in capsys.readouterr().err


def test_shards_of_verify_compare_each_file_once(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without decoding: which files each shard gets is the point.
    def records(found: object, *_: object) -> object:
        yield from (("CPU", Record(found.path(row), 0, verdict="OK")) for row in range(len(found)))  # type: ignore[attr-defined, arg-type]

    monkeypatch.setattr("dali_pipelines.cli.verify.main.records_of", records)
    for number in range(12):
        assert verify(["archive", "--device=cpu", "--json=out.json", *shard(number, 12)]) == 0
    out, err = capsys.readouterr()
    paths = [line.split()[0] for line in out.splitlines()]
    assert sorted(paths) == sorted(map(str, archive.rglob("*.fits")))
    assert "0 OK, 0 DIFFERS, 0 REJECTED" in err  # there are more shards than files
    reports = [json.loads(Path(f"out.shard{n}of12.json").read_text()) for n in range(12)]
    assert [file["path"] for report in reports for file in report["files"]] == paths
