"""Files that commands read, and those that they write: whole, or not there."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from jobs import ROOT
from PIL import Image

from dali_pipelines.cli import paths
from dali_pipelines.cli.errors import CommandError
from dali_pipelines.cli.paths import (
    OutputFile,
    check_output,
    check_outputs,
    check_unread,
    index_of,
    write_file,
    write_table,
)
from dali_pipelines.cli.run_config import RunConfig
from readers import Index, Storage


def test_images_of_an_index_keep_where_they_lie(tmp_path: Path) -> None:
    members = {"path": ["/a.tar"] * 3, "offset": [512, 2048, 512], "nbytes": [9, 8, 9]}
    url = {"path": ["https://a.org/b.fits"], "etag": ['"1"'], "file_bytes": [7]}
    files = []
    for name, columns in ("members", members), ("url", url):
        files.append(str(tmp_path / f"{name}.parquet"))
        Index(pa.table(columns)).save(files[-1])
    found = index_of(files, (".fits",), Storage()).columns()
    rows = [found.row(number) for number in range(len(found))]
    assert [(row.offset, row.nbytes) for row in rows] == [(512, 9), (2048, 8), (None, None)]
    assert (rows[2].path, rows[2].etag, rows[2].file_bytes) == ("https://a.org/b.fits", '"1"', 7)
    plain = index_of(files[:1], (".fits",), Storage()).table.column_names
    assert plain == ["path", "hdu", "plane", "offset", "nbytes"]


def test_two_outputs_may_share_a_device_alone(tmp_path: Path) -> None:
    config = RunConfig(batch_size=1)
    check_outputs(config, [], report="/dev/null", audit="/dev/null", state=None)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(CommandError, match=r"--report .*--audit"):
        check_outputs(config, [], report=str(tmp_path / "file"), audit=str(tmp_path / "link"))


def test_no_output_replaces_what_is_read(tmp_path: Path) -> None:
    for name in ("a.csv", "state.json", "list.txt", "run.toml"):
        (tmp_path / name).write_text("text")
    os.link(tmp_path / "a.csv", tmp_path / "b.csv")
    table, state, settings, same = (
        str(tmp_path / name) for name in ("a.csv", "state.json", "run.toml", "b.csv")
    )
    config = RunConfig(batch_size=1, data=table, resume=state)
    check_outputs(config, [settings], state=state, report=str(tmp_path / "list.txt"))
    for audit, flag in ((table, "data"), (same, "data"), (settings, "config")):
        with pytest.raises(CommandError, match=rf"--{flag} .*--audit .*{audit}"):
            check_outputs(config, [settings], audit=audit)


@pytest.mark.parametrize(
    "suffix", ["fits", "bmp", "ppm", "pgm", "jp2", "j2k", "tif", "tar", "tfrecord", "parquet"]
)
def test_no_report_replaces_data(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a.{suffix}"
    if suffix == "fits":
        fits.PrimaryHDU(np.zeros((2, 2), np.int16)).writeto(file)
    elif suffix == "tar":
        with tarfile.open(file, "w") as tar:
            tar.add(__file__, "a.py")
    elif suffix == "tfrecord":
        file.write_bytes(struct.pack("<QI", 4, 0) + b"text")
    elif suffix == "parquet":
        Index.from_paths(["/a"]).save(file)
    else:
        image = Image.new("L" if suffix == "pgm" else "RGB", (80, 80), "white")
        image.save(file, big_tiff=suffix == "tif")
    config = RunConfig(batch_size=1)
    with pytest.raises(CommandError, match=rf"a.{suffix} .*data"):
        check_outputs(config, [], report=str(file))


@pytest.mark.parametrize("few", [3, 10_000])
def test_no_output_is_a_file_of_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Also among many files: an output that has several names is compared with all."""
    monkeypatch.setattr(paths, "_FEW_FILES", few)
    (tmp_path / "real").mkdir()
    files = [tmp_path / "real" / name for name in ("0", "1", "2", "3", "mask", "other")]
    for file in files:
        file.write_text("text")
    os.link(files[1], tmp_path / "hard")
    (tmp_path / "soft").symlink_to(files[2])
    (tmp_path / "folder").symlink_to("real")
    rows = [*files[:3], tmp_path / "folder" / "3"]
    columns = {"path": ["s3://bucket/gone", *map(str, rows)], "path_a": [*map(str, rows), None]}
    table = pa.table({**columns, "mask_path": [str(files[4])] * 5, "note": [str(files[5])] * 5})
    check_unread(table, None, str(files[5]), str(tmp_path / "new"), "/dev/null")
    for name in ("real/0", "real/../folder/0", "hard", "soft", "real/3", "real/mask"):
        with pytest.raises(CommandError, match=rf"{name} .*input.*another name"):
            check_unread(table, None, str(tmp_path / name))


def test_it_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")
    file = OutputFile(str(path))
    file.write("after\r\n")
    assert path.read_text() == "before"
    file.close()
    assert path.read_bytes() == b"after\r\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False])
def test_what_a_link_leads_to_is_written(tmp_path: Path, there: bool) -> None:
    folder, link = tmp_path / "folder", tmp_path / "latest.csv"
    folder.mkdir()
    if there:
        (folder / "a.csv").write_text("before")
    link.symlink_to("folder/a.csv")
    with OutputFile(str(link)) as file:
        file.write("after")
        assert (folder / "a.csv.part").exists()  # on the same file system
    assert (os.readlink(link), (folder / "a.csv").read_text()) == ("folder/a.csv", "after")
    assert [path.name for path in folder.iterdir()] == ["a.csv"]
    link.unlink()
    link.symlink_to("nowhere/a.csv")
    with pytest.raises(CommandError, match=r"latest\.csv cannot be written"):
        check_output(str(link))


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write_table(str(path), ("path", "reason"), [("/a,b", 'a "reason"')])
    assert path.read_bytes() == b'path,reason\r\n"/a,b","a ""reason"""\r\n'


def test_a_block_that_raises_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")

    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        write_table(str(path), ("number",), rows())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_is_written_to_as_it_is() -> None:
    command = "from dali_pipelines.cli.paths import write_file; write_file('/dev/stdout', 'text')"
    found = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT / "scripts", capture_output=True, check=True
    )
    assert found.stdout == b"text"


@pytest.mark.parametrize("name", ["link", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_file_is_written_to_as_it_is(tmp_path: Path, name: str) -> None:
    """A link like /dev/stdout is not replaced by a file."""
    os.symlink("/proc/self/fd/1", tmp_path / "link")
    command = f"""
from dali_pipelines.cli.paths import write_file
print("one")
write_file({name!r}, "text\\n")
print("two")
"""
    (tmp_path / "out").write_text("before\n")
    with (tmp_path / "out").open("ab") as out:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-c", command], cwd=tmp_path, stdout=out, env=environ, check=True
        )
    assert (tmp_path / "out").read_text() == "before\none\ntext\ntwo\n"
    assert os.readlink(tmp_path / "link") == "/proc/self/fd/1"
    assert sorted(os.listdir(tmp_path)) == ["link", "out"]


def test_a_full_device_is_named() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        write_file("/dev/full", "text")


FULL = """
import resource
from dali_pipelines.cli.paths import write_file
from readers.index.table import Index
index = Index.from_paths([f"/data/{number:040x}" for number in range(20000)])
resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))
for write in (
    lambda: write_file("report.json", "x" * 20000),
    lambda: index.save("index.parquet"),
    lambda: index.save("index.arrow"),
    index.columns,
):
    try:
        write()
    except OSError as error:
        print(error)
"""


def test_a_disk_that_fills_leaves_nothing_and_is_named(tmp_path: Path) -> None:
    """Files that may not grow beyond 10 kB stand in for a full disk."""
    names = ["report.json", "index.parquet", "index.arrow"]
    for name in names:
        (tmp_path / name).write_text("before")
    found = subprocess.run(
        [sys.executable, "-c", FULL],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    temporary = f"the folder of temporary files, TMPDIR={tmp_path}"
    assert found.stdout.splitlines() == [
        f"[Errno 27] File too large: {name!r}" for name in (*names, temporary)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert {(tmp_path / name).read_text() for name in names} == {"before"}
