"""The index command on containers."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from astropy.io import fits
from image_files import pillow
from tfrecord import TFRecordWriter

from dali_pipelines.cli.index.main import main
from dali_pipelines.cli.show.main import main as show
from dali_pipelines.cli.verify.main import main as verify
from readers import Index

JPEG = b"\xff\xd8\xff"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tar(path: str, count: int) -> None:
    with tarfile.open(path, "w") as file:
        for number in range(count):
            for ext, content in (("jpg", JPEG), ("left.jpg", JPEG + JPEG), ("cls", b"%d" % number)):
                info = tarfile.TarInfo(f"{number}.{ext}")
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))


def rows(*arguments: str) -> list[dict[str, Any]]:
    assert main([*arguments, "-o", "index.parquet"]) == 0
    found: list[dict[str, Any]] = Index.load("index.parquet").table.to_pylist()
    return found


def test_tars(capsys: pytest.CaptureFixture[str]) -> None:
    Path("shards").mkdir()
    for number in range(2):
        tar(f"shards/{number}.tar", 4)
    for data in ("shards", "shards/*.tar", "shards/{0..1}.tar"):
        made = rows(data, "--where", "cls > 1")
        assert [row["key"] for row in made] == ["2", "3"] * 2
        assert "8 samples in containers found: 4 rows kept" in capsys.readouterr().out
    assert [row["nbytes"] for row in rows("shards/0.tar", "--image", "left.jpg")] == [6] * 4


def test_damaged_samples_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    image = pillow(np.zeros((8, 8, 3), np.uint8))
    with tarfile.open("a.tar", "w") as file:
        for name, content in (("0.jpg", image), ("0.txt", b"\xff"), ("1.jpg", image)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    assert [row["key"] for row in rows("a.tar")] == ["1"]
    assert "1 rejected" in capsys.readouterr().out
    assert [row["key"] for row in rows("a.tar", "--rejected", "bad.csv")] == ["1"]
    header, listed = Path("bad.csv").read_text().splitlines()
    assert header == "path,reason"
    assert listed.startswith(f"{Path('a.tar').absolute()}: 0,")
    assert "0.txt" in listed


def test_other_kinds() -> None:
    writer = TFRecordWriter("train-0-of-1")
    writer.write({"jpeg": (JPEG, "byte")})
    writer.close()
    [row] = rows("train-*", "--container", "tfrecord", "--image", "jpeg")
    assert row["nbytes"] == 3
    record = struct.pack("<IfQQ", 0, 5, 8, 0) + JPEG
    Path("a.rec").write_bytes(struct.pack("<II", 0xCED7230A, len(record)) + record + b"\0")
    [row] = rows("a.rec")
    assert (row["key"], row["label"]) == (8, 5)
    with lmdb.open("lmdb") as env, env.begin(write=True) as txn:
        txn.put(b"a", JPEG)
    assert rows("lmdb")[0]["key"] == rows("lmdb/data.mdb")[0]["key"] == "a"


def test_headers_of_members() -> None:
    with tarfile.open("a.tar", "w") as tar:
        for number in range(3):
            hdus = [fits.PrimaryHDU(), *(fits.ImageHDU(np.zeros((4, 5 + n))) for n in range(2))]
            hdus[1].header["T_OBS"] = f"2014-01-0{number + 1}T00:00:00"
            content = io.BytesIO()
            fits.HDUList(hdus).writeto(content)
            info = tarfile.TarInfo(f"aia.lev1.{number}.fits")
            info.size = len(content.getvalue()) - (2880 if number == 1 else 0)
            tar.addfile(info, io.BytesIO(content.getvalue()))
    made = rows("a.tar", "--keys", "T_OBS", "--where", "t_obs > '2014-01-02'")
    [row] = made
    assert (row["key"], row["width"], row["offset"] % 512) == ("aia.lev1.2", 5, 0)
    made = rows("a.tar", "--hdu", "all", "--rejected", "bad.csv")
    assert [(row["key"][-1], row["hdu"], row["width"]) for row in made] == [
        *(("0", 1, 5), ("0", 2, 6), ("2", 1, 5), ("2", 2, 6)),
    ]
    assert "a.tar[15872:27392]" in Path("bad.csv").read_text()


@pytest.mark.slow
def test_what_other_commands_do(capsys: pytest.CaptureFixture[str]) -> None:
    image = io.BytesIO()
    fits.PrimaryHDU(np.zeros((4, 5), np.int16)).writeto(image)
    photo = pillow(np.zeros((40, 50, 3), np.uint8))
    with tarfile.open("a.tar", "w") as file:
        members = {"a.jpg": photo, "b.jpg": photo[:-40], "c.fits": image.getvalue()}
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    assert show(["a.tar", "--pipeline", "jpeg", "-o", "a.png", "--count=1"]) == 0
    assert verify(["a.tar", "--device=cpu"]) == 0
    assert "3 files on the CPU: 2 OK, 0 DIFFERS, 1 REJECTED" in capsys.readouterr().err
    assert [row["key"] for row in rows("a.tar", "--verify")] == ["a", "c"]
