"""Indexes of containers: what scan takes for tars, columns, files they are saved to."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
from pathlib import Path

import pytest
from tar_files import packed
from tfrecord import TFRecordWriter

from readers import Index

JPEG = b"\xff\xd8\xff"


def pack(path: Path, *names: str) -> Path:
    path.write_bytes(packed((name, JPEG) for name in names))
    return path


def keys(index: Index) -> list[str]:
    found: list[str] = index.table["key"].to_pylist()
    return found


def test_scan_of_tars(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = [pack(tmp_path / f"{n}.tar", f"{n}.jpg") for n in (1, 2)]
    (tmp_path / "README.md").touch()
    for data in (tmp_path, tmp_path / "*.tar", f"{tmp_path}/{{1..2}}.tar", paths, iter(paths)):
        assert keys(Index.scan(data)) == ["1", "2"]
    assert keys(Index.scan(paths[::-1])) == ["2", "1"]
    assert keys(Index.scan(paths[1])) == ["2"]
    assert "1 .md" in caplog.text
    (tmp_path / "a.jpg").touch()
    assert Index.scan(tmp_path).table.column_names == ["path"]
    assert "2 .tar, 1 .md" in caplog.text


def test_tars_that_cannot_be_opened_are_left_out_beside_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack(tmp_path / "1.tar", "1.jpg")
    (tmp_path / "2.tar").symlink_to("nowhere")
    os.mkfifo(tmp_path / "3.tar")
    (tmp_path / "4.tar").write_bytes(b"x" * 5000)
    assert keys(Index.scan(tmp_path)) == ["1"]
    assert "3 files" in caplog.text
    assert re.search(f"{tmp_path}/2.tar: .*No such file", caplog.text)
    (tmp_path / "1.tar").unlink()
    with pytest.raises(FileNotFoundError, match=r"2\.tar"):
        Index.scan(tmp_path)


def test_a_damaged_tar_without_an_image_is_told_before_the_suffixes(tmp_path: Path) -> None:
    path = pack(tmp_path / "1.tar", "1.jpg")
    path.write_bytes(path.read_bytes()[:513])
    with pytest.raises(ValueError, match=r"no image.*cut off"):
        Index.from_tar(path)


def test_a_list_of_folders_and_globs_of_containers(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        pack(tmp_path / name / "1.tar", f"{name}.jpg")
        writer = TFRecordWriter(str(tmp_path / name / "1.tfrecord"))
        writer.write({"image/encoded": (JPEG, "byte"), "name": (name.encode(), "byte")})
        writer.close()
    folders = [tmp_path / "b", tmp_path / "a"]
    assert keys(Index.from_tar(folders)) == ["b", "a"]
    assert keys(Index.scan([tmp_path / "b/1.tar", tmp_path / "a/*.tar", tmp_path / "b"])) == [
        *"bab"
    ]
    assert Index.from_tfrecord(folders).table["name"].to_pylist() == ["b", "a"]
    with pytest.raises(FileNotFoundError, match="/c: no such folder"):
        Index.from_tar([*folders, tmp_path / "c"])


def test_scan_of_tars_looks_for_suffixes(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", "a.jpg", "a.fits", "b.jpg")
    assert keys(Index.scan(path)) == ["a", "b"]
    [row] = Index.scan(path, suffixes=(".fits",)).table.to_pylist()
    assert (row["key"], row["offset"]) == ("a", 1536)
    index = Index.from_tar(path, image="jpg")
    assert index.table["offset"].to_pylist() == [512, 2560]


def test_compressed_tars(tmp_path: Path) -> None:
    whole = pack(tmp_path / "a.tar", "a.jpg").read_bytes()
    for suffix, compress, command in (
        ("tar.gz", gzip.compress, "gunzip"),
        ("tgz", gzip.compress, "gunzip"),
        ("tar.xz", lzma.compress, "unxz"),
        ("tar.bz2", bz2.compress, "bunzip2"),
    ):
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(compress(whole))
        with pytest.raises(ValueError, match=rf"a\.{suffix}: .*{command}"):
            Index.scan(path)
    (tmp_path / "folder").mkdir()
    path.rename(tmp_path / "folder" / "a.tgz")
    with pytest.raises(FileNotFoundError, match=r"\.tgz: unpack"):
        Index.scan(tmp_path / "folder")


def test_saved_and_moved(tmp_path: Path) -> None:
    index = Index.scan(pack(tmp_path / "a.tar", "a.jpg", "a.x.png", "b.jpg"))
    for suffix in (".parquet", ".arrow"):
        index.save(tmp_path / f"index{suffix}")
        again = Index.load(tmp_path / f"index{suffix}")
        assert again.table.to_pylist() == index.table.to_pylist()
        assert again.digest == index.digest
        row = again.columns().row(1)
        assert (row.offset, row.nbytes) == (2560, 3)
        columns = again.columns(targets=["x_png_path"])
        place = columns.place("x_png_path", 0)
        assert place is not None
        with place:
            assert place.read(0, 9) == JPEG
        assert columns.place("x_png_path", 1) is None


def test_columns_of_tfrecord(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    writer = TFRecordWriter(str(path))
    writer.write({"image/encoded": (JPEG, "byte"), "label": (3, "int"), "mask": (JPEG, "byte")})
    writer.close()
    index = Index.from_tfrecord(path, columns=["label", "mask"])
    assert index.columns(["label"]).value("label", 0) == 3
    with pytest.raises(KeyError, match="'lable'"):
        Index.from_tfrecord(path, columns=["lable"])
