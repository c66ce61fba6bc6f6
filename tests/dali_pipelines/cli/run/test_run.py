"""run.py as a user runs it: exit codes, messages, audit, report."""

from __future__ import annotations

import csv
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import solar_files
from astropy.io import fits
from jobs import SCRIPTS, Job

from dali_pipelines.cli.run.main import main
from dali_pipelines.cli.run.output import Run
from dali_pipelines.cli.run_config import RunConfig
from readers import BlockOrder, Index, Order, WeightedOrder
from readers.aia.degradation import OFFICIAL_SHA256

SCRIPT = SCRIPTS / "run.py"

FLAGS = """
    data pipeline hdu planes hdus num_read_processes batch_size num_gpus device num_threads crop
    window outside missing flip rotate zoom random_area random_aspect_ratio resize_shorter resize
    mean std ragged
    augment transform outputs columns mask boxes labels
    preset size order pointing_table correction_table exposure psf
    mode shuffle block_rows weights seed epochs epoch_steps max_batches tail bad_sample max_bad
    endpoint region profile anonymous retries request_timeout concurrency
    cache cache_bytes read_threads
    rejected read_timeout restart_readers start_method prefetch report audit state resume
"""
"""Flags are forever: add one here only after thinking twice."""


def test_the_flags_are_these() -> None:
    assert {field.name for field in dataclasses.fields(RunConfig)} == set(FLAGS.split())
    assert sorted(" ".join(RunConfig.GROUPS.values()).split()) == sorted(FLAGS.split())


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 small compressed FITS files, one of them in a subfolder."""
    folder = tmp_path_factory.mktemp("archive")
    (folder / "later").mkdir()
    for row in range(23):
        image = np.full((20, 24), row, np.int16)
        name = f"later/{row:02d}.fits" if row > 20 else f"{row:02d}.fits"
        fits.CompImageHDU(image, compression_type="RICE_1").writeto(folder / name)
    return folder


def audited(folder: Path, tmp_path: Path, *flags: str, code: int = 0) -> list[dict[str, str]]:
    """Run in this process, by default with one reader, and give the audit's lines."""
    path = tmp_path / "audit.csv"
    always = ["--device=cpu", "--num_read_processes=1", f"--audit={path}"]
    assert main([f"--data={folder}", *always, *flags]) == code
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_audit_has_each_row_once_per_epoch(archive: Path, tmp_path: Path) -> None:
    flags = ["--num_read_processes=4", "--num_gpus=3", "--epochs=2"]
    lines = audited(archive, tmp_path, "--batch_size=4", *flags)
    assert list(lines[0]) == ["epoch", "step", "shard", "slot", "row", "path", "valid"]
    for epoch in "01":
        rows = [int(line["row"]) for line in lines if line["epoch"] == epoch]
        assert sorted(rows) == list(range(23))
        assert rows != sorted(rows)
    assert {line["valid"] for line in lines} == {"1"}
    assert all(line["path"] == str(archive / f"{int(line['row']):02d}.fits") for line in lines[:3])


def test_no_report_replaces_what_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0.png").write_text("text")
    (tmp_path / "run.toml").write_text(f'data = "{tmp_path}"\npipeline = "jpeg"\nbatch_size = 1')
    for name, message in (
        ("0.png", "0.png is a file that is"),
        ("run.toml", "--config and --report"),
    ):
        before = (tmp_path / name).read_text()
        assert main([f"--config={tmp_path / 'run.toml'}", f"--report={tmp_path / name}"]) == 2
        assert message in capsys.readouterr().err
        assert (tmp_path / name).read_text() == before


def test_flags_of_the_geometry(archive: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    always = ["--batch_size=4", f"--report={report}"]
    for flags in (
        ["--random_area", "0.1", "1", "--random_aspect_ratio", "0.5", "2", "--resize=8"],
        ["--rotate=10", "--zoom", "0.5", "2", "--crop=8"],
        ["--resize_shorter=16", "--crop=8", "--flip=h", "--mode=eval"],
    ):
        lines = audited(archive, tmp_path, *always, *flags)
        assert sorted(int(line["row"]) for line in lines) == list(range(23))
    assert [int(line["row"]) for line in lines] == list(range(23))
    config = json.loads(report.read_text())["config"]
    assert (config["mode"], config["shuffle"], config["resize_shorter"]) == ("eval", False, 16)


def test_images_of_several_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mixed").mkdir()
    for row in range(4):
        fits.writeto(tmp_path / f"mixed/{row}.fits", np.zeros((9 + row, 8), np.int16))
    settings = tmp_path / "run.toml"
    always = ["--batch_size=2"]
    for ragged in ("list", "pad"):
        settings.write_text(f'ragged = "{ragged}"')
        lines = audited(tmp_path / "mixed", tmp_path, f"--config={settings}", *always)
        assert sorted(int(line["row"]) for line in lines) == [0, 1, 2, 3]
    audited(tmp_path / "mixed", tmp_path, *always, code=2)
    message = (
        "the images of one batch differ in size: give crop or resize, or --ragged=list or 'pad'"
    )
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--outside=fill", "--missing=-1"], ["--outside=shift"]])
def test_windows_of_rows_across_edges(archive: Path, tmp_path: Path, flags: list[str]) -> None:
    index, file = Index.scan(archive), tmp_path / "index.parquet"
    index.with_column("y", [-4.5] * 23).with_column("x", [20.0] * 23).save(file)
    flags = ["--batch_size=4", "--crop=8", "--window=row", *flags]
    lines = audited(file, tmp_path, *flags)
    assert sorted(int(line["row"]) for line in lines) == list(range(23))


def test_an_hdu_by_its_name_and_its_planes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cubes").mkdir()
    cube = fits.ImageHDU(np.zeros((3, 8, 9), np.int16), name="SCI")
    fits.HDUList([fits.PrimaryHDU(), cube]).writeto(tmp_path / "cubes/a.fits")
    flags = ["--hdu=sci", "--batch_size=1"]
    for planes in (["all"], ["2", "0"]):
        report = tmp_path / "report.json"
        lines = audited(
            tmp_path / "cubes", tmp_path, *flags, f"--report={report}", "--planes", *planes
        )
        assert [line["valid"] for line in lines] == ["1"]
        seen = json.loads(report.read_text())
        pixels = seen["output_mpix_per_s"] * 1e6 / seen["images_per_s"]
        assert pixels == pytest.approx(72 * (3 if planes == ["all"] else 2))
    jpeg = [f"--data={tmp_path}", "--pipeline=jpeg", "--hdu=1"]
    for wrong in (jpeg, [f"--data={tmp_path}", "--planes", "all", "1"]):
        assert main(wrong) == 2
    assert "--hdu is for --pipeline=fits, got jpeg" in capsys.readouterr().err


def test_several_images_of_each_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of three rows one lacks an HDU, and one has no number from which to count."""
    (tmp_path / "archive").mkdir()
    sci, dq = (fits.ImageHDU(np.zeros((8, 9), np.int16), name=name) for name in ("SCI", "DQ"))
    for number, hdus in enumerate(([sci, dq], [sci], [sci, dq])):
        fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(tmp_path / f"archive/{number}.fits")
    flags = ["--batch_size=2", "--bad_sample=skip", "--no-shuffle"]
    rejected, report = tmp_path / "rejected.csv", tmp_path / "report.json"
    files = [f"--rejected={rejected}", f"--report={report}"]
    lines = audited(
        tmp_path / "archive", tmp_path, *flags, *files, "--hdus", "image=SCI", "dq=DQ", "e=1"
    )
    assert [line["row"] for line in lines if line["valid"] == "1"] == ["0", "2"]
    assert "dq: there is no HDU 'DQ', the file has PRIMARY, SCI" in rejected.read_text()
    assert json.loads(report.read_text())["config"]["hdus"][1] == ["dq", "DQ"]
    index = Index.scan(tmp_path / "archive")
    index = index.with_column("hdu", pa.array([1, 1, None], pa.int64()))
    index.save(tmp_path / "index.parquet")
    settings = tmp_path / "run.toml"
    settings.write_text('hdus = ["image=+0", "dq=+1"]\ncolumns = ["hdu"]\n')
    lines = audited(tmp_path / "index.parquet", tmp_path, *flags, *files, f"--config={settings}")
    assert [line["hdu"] for line in lines if line["valid"] == "1"] == ["1"]
    assert [line["row"] for line in lines if line["valid"] == "1"] == ["0"]
    assert "counts from column 'hdu', which is empty" in rejected.read_text()
    for wrong, reason in (
        (["image"], "expected NAME=HDU, such as dq=DQ, got 'image'"),
        (["dq=1"], "hdus must name the HDU of 'image'"),
        (["image=1", "image=2"], "--hdus takes each name once, got image image"),
        (["image=1", "row=2"], "hdus ['row'] have the name of another output"),
    ):
        assert main([f"--data={tmp_path / 'archive'}", "--hdus", *wrong]) == 2
        assert reason in capsys.readouterr().err


def test_processes_and_repetition_change_nothing(archive: Path, tmp_path: Path) -> None:
    runs = [
        audited(archive, tmp_path, "--batch_size=4", "--tail=fill", "--num_gpus=2", f"--{flag}")
        for flag in ("num_read_processes=1", "num_read_processes=5", "seed=0", "seed=1")
    ]
    assert runs[0] == runs[1] == runs[2] != runs[3]


def test_report_says_what_was_measured(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    flags = ["--batch_size=5", "--num_gpus=2", "--crop=8", "--window=random", f"--report={path}"]
    assert main([f"--data={archive}", "--device=auto", *flags]) == 0
    report = json.loads(path.read_text())
    expected = """config versions hardware device num_shards epochs batches samples seconds
        first_batch_s images_per_s input_mb_per_s output_mpix_per_s stages wait_fraction bottleneck
        rejected"""
    assert set(expected.split()) <= set(report)
    assert (report["samples"], report["batches"], report["num_shards"]) == (23, 3, 2)
    assert report["config"]["crop"] == [8]
    assert report["seconds"] > 0
    assert report["images_per_s"] == pytest.approx(23 / report["seconds"])
    assert report["output_mpix_per_s"] == pytest.approx(report["images_per_s"] * 64 / 1e6)
    assert 0 <= report["wait_fraction"] <= 1
    assert (report["limit"], report["measured"], report["advised"]) == (None, None, None)
    assert report["bottleneck"].startswith("This run is too short to tell what limits it: ")
    out = capsys.readouterr().out
    assert "23 images in 3 steps on 2 CPU shards: " in out


def test_a_long_run_is_timed_from_its_first_batch(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    flags = ["--device=cpu", "--batch_size=2", "--num_read_processes=2", f"--report={path}"]
    assert main([f"--data={archive}", *flags]) == 0
    report = json.loads(path.read_text())
    assert report["images_per_s"] == pytest.approx(21 / report["seconds"])
    assert report["limit"] in ("consumer", "storage", "readers", "graph", "cpu", "transport")
    measured = report["measured"]
    assert (measured["num_read_processes"], measured["num_shards"]) == (2, 1)
    assert measured["samples"] == 21
    assert 0 < measured["read_cpu_s"] <= measured["read_s"]
    assert measured["graph_cpu_s"] > 0  # DALI's threads are known by their names


def test_rows_are_drawn_by_weights(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = Index.scan(archive).with_column("w", [0] * 20 + [1, 1, 2])
    index = index.with_column("name", [f"star {row}" for row in range(23)])
    index.save(tmp_path / "weighted.parquet")
    lines = audited(
        tmp_path / "weighted.parquet",
        tmp_path,
        "--batch_size=4",
        "--weights=w",
        "--columns",
        "name",
        "w",
    )
    assert all(line["name"] == f"star {line['row']}" for line in lines)
    assert {(line["row"], line["w"]) for line in lines} == {("20", "1"), ("21", "1"), ("22", "2")}
    assert main([f"--data={archive}", "--weights=paths", "--device=cpu"]) == 2
    message = "dali-pipelines run: --weights=paths: did you mean path? the Index has path\n"
    assert message in capsys.readouterr().err
    order = WeightedOrder(index.running_weights("w"))
    assert [int(line["row"]) for line in lines] == [order.row(0, place) for place in range(23)]


def test_shuffled_in_blocks(archive: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    flags = ["--batch_size=4", "--block_rows=2"]
    lines = audited(archive, tmp_path, *flags, "--max_batches=2", f"--state={state}")
    lines += audited(archive, tmp_path, "--batch_size=5", f"--resume={state}")
    order = BlockOrder(23, block_rows=2)
    assert [int(line["row"]) for line in lines] == [order.row(0, place) for place in range(23)]
    assert main([f"--data={archive}", "--block_rows=2", "--no-shuffle", "--device=cpu"]) == 2


def test_epochs_of_steps(archive: Path, tmp_path: Path) -> None:
    """Stopped in the second one, and resumed with another batch size."""
    state, flags = f"--state={tmp_path / 'state.json'}", ["--epoch_steps=3", "--epochs=3"]
    first = audited(archive, tmp_path, "--batch_size=5", *flags, "--max_batches=5", state)
    places = [(line["epoch"], line["step"]) for line in first[::5]]
    assert places == [("0", "0"), ("0", "1"), ("0", "2"), ("1", "0"), ("1", "1")]
    resume = f"--resume={tmp_path / 'state.json'}"
    second = audited(archive, tmp_path, "--batch_size=8", *flags, resume)
    places = [(line["epoch"], line["step"]) for line in second[::8]]
    assert places == [("1", "2"), ("2", "0"), ("2", "1"), ("2", "2")]
    order = Order(23)
    rows = [order.row(*divmod(place, 23)) for place in range(25 + 32)]
    assert [int(line["row"]) for line in first + second] == rows


def test_max_batches_ends_early(archive: Path, tmp_path: Path) -> None:
    assert len(audited(archive, tmp_path, "--batch_size=4", "--max_batches=2")) == 8


@pytest.fixture
def damaged(archive: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "damaged"
    shutil.copytree(archive, folder)
    (folder / "05.fits").write_bytes((folder / "05.fits").read_bytes()[:3000])
    (folder / "11.fits").write_text("hello")
    return folder


def test_raise_ends_with_one_message(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [f"--data={damaged}", "--device=cpu", "--batch_size=4", "--no-shuffle"]
    started = time.monotonic()
    assert main(flags) == 1
    assert time.monotonic() - started < 20
    message = capsys.readouterr().err.splitlines()
    assert len(message) == 1
    assert "05.fits (row 5): " in message[0]


def test_skip_delivers_the_others_and_lists_it(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    lines = audited(damaged, tmp_path, "--batch_size=4", "--bad_sample=skip", f"--report={report}")
    rows = [int(line["row"]) for line in lines]
    assert sorted(rows) == [row for row in range(23) if row not in (5, 11)]
    rejected = {bad["row"]: bad for bad in json.loads(report.read_text())["rejected"]}
    assert sorted(rejected) == [5, 11]
    assert rejected[11]["path"] == str(damaged / "11.fits")
    assert "2 files could not be read:" in capsys.readouterr().out


def test_skipped_files_are_written(damaged: Path, tmp_path: Path) -> None:
    path = tmp_path / "rejected.csv"
    audited(damaged, tmp_path, "--batch_size=4", "--bad_sample=skip", f"--rejected={path}")
    with path.open(newline="") as file:
        lines = {int(line["row"]): line for line in csv.DictReader(file)}
    assert sorted(lines) == [5, 11]
    assert list(lines[5]) == ["path", "hdu", "row", "reason", "epoch", "step"]
    assert lines[11]["path"] == str(damaged / "11.fits")
    assert lines[11]["reason"]
    assert lines[11]["epoch"] == "0"


def test_more_bad_files_than_allowed(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rejected.csv"
    flags = ["--batch_size=4", "--bad_sample=skip", "--max_bad=1", f"--rejected={path}"]
    audited(damaged, tmp_path, *flags, code=1)
    assert "rejected rows: 2, more than --max_bad=1 allows" in capsys.readouterr().err
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize(("given", "code"), [("1", 1), ("1.0", 0), ("2", 0)])
@pytest.mark.parametrize("where", ["flag", "file"])
def test_a_share_of_bad_files_is_no_number_of_them(
    damaged: Path, tmp_path: Path, given: str, code: int, where: str
) -> None:
    flags = ["--batch_size=4", "--bad_sample=skip"]
    if where == "flag":
        flags.append(f"--max_bad={given}")
    else:
        (tmp_path / "run.toml").write_text(f"max_bad = {given}\n")
        flags.append(f"--config={tmp_path / 'run.toml'}")
    audited(damaged, tmp_path, *flags, code=code)


def test_resume_on_other_shards(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state.json"
    before = audited(
        archive, tmp_path, "--batch_size=3", "--num_gpus=2", "--max_batches=2", f"--state={state}"
    )
    after = audited(
        archive, tmp_path, "--batch_size=4", "--seed=9", "--epochs=2", f"--resume={state}"
    )
    note = f"--resume={state}: the run continues with seed 0, not 9.\n"
    assert capsys.readouterr().err.count(note) == 1
    whole = audited(archive, tmp_path, "--batch_size=1", "--epochs=2")
    assert [line["row"] for line in before + after] == [line["row"] for line in whole]
    assert [line["epoch"] for line in before + after] == [line["epoch"] for line in whole]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a file that --state wrote: Expecting value: line 1 column 1"),
        ("{}", "the state lacks "),
        ("1", "a state is the dict that state_dict() returned, got int"),
    ],
)
def test_what_is_no_state_is_told(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    state = tmp_path / "state.json"
    state.write_text(text)
    assert main([f"--data={archive}", "--batch_size=4", f"--resume={state}"]) == 2
    assert f"dali-pipelines run: --resume={state}: {reason}" in capsys.readouterr().err


def test_drop_resumed_with_a_larger_step_goes_on_with_the_next_epoch(
    archive: Path, tmp_path: Path
) -> None:
    """20 of 23 rows are delivered: 3 are left, which drop leaves out of steps of 6."""
    state, flags = tmp_path / "state.json", ["--tail=drop", "--batch_size=2", "--max_batches=10"]
    before = audited(archive, tmp_path, *flags, f"--state={state}")
    more = ["--tail=drop", "--batch_size=6", "--epochs=2", f"--resume={state}"]
    after = audited(archive, tmp_path, *more)
    assert len({line["row"] for line in before}) == 20
    assert {line["epoch"] for line in after} == {"1"}
    assert len({line["row"] for line in after}) == 18


def test_an_epoch_without_a_step_is_an_error(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dali_pipelines.loader.Loader.__iter__", lambda loader: iter(()))
    flags = ["--device=cpu", "--batch_size=4", "--num_read_processes=1"]
    assert main([f"--data={archive}", *flags]) == 1
    assert "dali-pipelines run: the Loader gave no step of epoch 0" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["report", "rejected", "audit", "state"])
def test_a_full_disk_names_the_file(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    """What else is written, is written."""
    flags = ["--device=cpu", "--batch_size=23", "--num_read_processes=1", "--max_batches=1"]
    files = {name: str(tmp_path / name) for name in ("report", "rejected", "audit", "state")}
    files[flag] = "/dev/full"
    outputs = [f"--{name}={path}" for name, path in files.items()]
    assert main([f"--data={archive}", *flags, *outputs]) == 1
    assert capsys.readouterr().err == "dali-pipelines run: /dev/full: No space left on device\n"
    assert {path.name for path in tmp_path.iterdir()} == set(files) - {flag}


def test_a_kill_leaves_no_half_file(archive: Path, tmp_path: Path) -> None:
    """The audit of an earlier run stays as it is until that of the next one is whole."""
    audit, state = tmp_path / "audit.csv", tmp_path / "state.json"
    audit.write_text("of an earlier run")
    flags = [f"--data={archive}", "--device=cpu", "--batch_size=1", "--num_read_processes=1"]
    command = [sys.executable, str(SCRIPT), *flags, f"--audit={audit}", f"--state={state}"]
    with Job([*command, "--epochs=1000000"], stdout=subprocess.DEVNULL) as run:
        part = tmp_path / "audit.csv.part"
        while not (part.exists() and part.stat().st_size > 200):
            assert run.poll() is None
            time.sleep(0.01)
        run.kill()
    assert audit.read_text() == "of an earlier run"
    assert not state.exists()


def test_names_of_files_are_shown_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the terminal; in a CSV file they stand as they are, and a spreadsheet takes none to
    compute."""
    folder = tmp_path / "archive"
    folder.mkdir()
    names = ["=1+1", "+1", "@SUM(1)", "-2", "a,b\n", "\x1b]0;title\x07"]
    names = [f"{name}.fits" for name in names]
    for name in names:
        (folder / name).write_text("no FITS")
    report, rejected, audit = (tmp_path / name for name in ("a.json", "b.csv", "c.csv"))
    flags = ["--device=cpu", "--batch_size=3", "--num_read_processes=1", f"--report={report}"]
    flags += [f"--audit={audit}", f"--data={folder}"]
    assert main([*flags, "--bad_sample=skip", f"--rejected={rejected}"]) == 1
    assert main(flags) == 1
    out, err = capsys.readouterr()
    assert (out + err).replace("\n", "").isprintable()
    assert r"/\x1b]0;title\x07.fits: " in out
    with rejected.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["path"] for line in lines} == {str(folder / name) for name in names}
    assert not [cell for line in lines for cell in line.values() if cell[:1] in tuple("=+-@\t\r")]
    assert all(line["reason"].isprintable() for line in lines)
    assert "\x1b" not in report.read_text()


def test_nothing_is_left(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state.json"
    flags = [f"--data={archive}", "--device=cpu", "--batch_size=4"]
    assert main([*flags, f"--state={state}"]) == 0
    assert main([*flags, f"--resume={state}"]) == 0
    assert "Nothing was left to deliver: 1 of --epochs=1 are done. Give more --epochs." in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("bad_sample", "content", "remedy"),
    [
        ("skip", b"not FITS", ""),
        ("raise", b"not FITS", "; --bad_sample=skip leaves out such files\n"),
        (
            "raise",
            b"\x89PNG\r\n",
            "; --pipeline=jpeg reads such files; --bad_sample=skip leaves out such files\n",
        ),
    ],
)
def test_files_of_which_none_can_be_read(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    bad_sample: str,
    content: bytes,
    remedy: str,
) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.fits").write_bytes(content)
    flags = [f"--data={tmp_path}", "--device=cpu", "--batch_size=2", "--num_read_processes=1"]
    assert main([*flags, f"--bad_sample={bad_sample}"]) == 1
    out, err = capsys.readouterr()
    if bad_sample == "skip":
        assert "\nNo file could be read.\n20 files could not be read:\n" in out
    else:
        assert err.endswith(remedy)


def test_a_run_ended_by_sigterm_is_resumed_exactly(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: each row once per epoch."""
    epochs, state, pipe = 20, tmp_path / "state.json", tmp_path / "audit"
    flags = [f"--data={archive}", "--device=cpu", "--batch_size=1", f"--epochs={epochs}"]
    flags += ["--num_read_processes=1", f"--state={state}"]
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    fcntl.fcntl(held, fcntl.F_SETPIPE_SZ, 4096)
    with Job(
        [sys.executable, str(SCRIPT), *flags, f"--audit={pipe}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as run:
        with pipe.open(newline="") as file:
            header = file.readline()  # a full pipe stops the run, so that the signal is in time
            os.close(held)
            run.send_signal(signal.SIGTERM)
            lines = list(csv.DictReader([header, *file]))
        _, error = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM, error

    deliver = Run.deliver

    def deliver_until(self: Run, *step: Any) -> None:
        deliver(self, *step)
        if self.steps_done == 40:
            signal.raise_signal(signal.SIGTERM)

    resume = [*flags[1:], f"--resume={state}"]
    with monkeypatch.context() as patch:
        patch.setattr(Run, "deliver", deliver_until)
        more = audited(archive, tmp_path, *resume, code=128 + signal.SIGTERM)
    assert len(more) >= 40
    lines += more
    lines += audited(archive, tmp_path, *resume)
    assert sorted((int(line["epoch"]), int(line["row"])) for line in lines) == [
        (epoch, row) for epoch in range(epochs) for row in range(23)
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch_size=24", "--tail=drop"], "tail 'drop' leaves nothing: a step takes 24 rows"),
        (["--batch_size=4", "--crop=21"], "crop 21x21 is larger than the image 20x24"),
        (["--batch_size=4", "--crop", "1", "2", "3"], "--crop takes one number or two"),
        (["--batch_size=0"], "--batch_size must be at least 1, got 0"),
        (["--num_threads=0"], "--num_threads must be at least 1, got 0"),
        (["--mean=inf"], "--mean must be finite, got [inf]"),
        (["--std", "1", "nan"], "--std must be finite, got [1.0, nan]"),
        (["--rotate=inf"], "--rotate must be finite, got inf"),
        (["--num_read_processes=0"], "--num_read_processes must be at least 1, got 0"),
        (["--num_read_processes=all"], "expected a number or auto, got 'all'"),
        (["--batch_size=4", "--pipeline=jpeg"], "no file in this folder ends in .jpg"),
        (["--batch_size=4", "--data=/nowhere"], "/nowhere: no such folder or file"),
        (["--batch_size=4", "--data=/nowhere/*.fits"], "no file matches this pattern"),
        (["--batch_size=4", "--std=0"], "std must be positive"),
        (["--batch_size=4", "--seed=-1"], "seed must be an integer, at least 0, got -1"),
        (["--batch_size=12", "--num_gpus=2", "--tail=drop"], "tail 'drop' leaves nothing"),
        (["--preset=iti"], "--preset is for --pipeline=aia, got fits"),
        (["--no-exposure"], "--exposure is for --pipeline=aia, got fits"),
        (["--rotate=5", "--batch_size=4"], "rotate and zoom need a crop"),
        (["--random_area", "0.1", "1", "--batch_size=4"], "random_area needs resize"),
        (["--random_area", "0.1", "nan"], "--random_area must be finite, got [0.1, nan]"),
        (["--random_aspect_ratio", "1", "2", "--batch_size=4"], "needs random_area, such as"),
        (["--mode=eval", "--resume=state.json"], "--resume is for --mode=train: eval begins each"),
        (["--mode=test"], "argument --mode: invalid choice: 'test'"),
        (["--resize_shorter=9", "--batch_size=4"], "resize_shorter needs a crop"),
        (["--outside=fill", "--batch_size=4"], "--outside=fill is for windows of the image itself"),
        (["--missing=nan", "--batch_size=4"], "--missing must be finite, got nan"),
        (["--missing=3", "--pipeline=aia"], "--missing is for --outside=fill, got --outside=rej"),
        (["--state=/nowhere/state.json"], "/nowhere/state.json cannot be written: expected a file"),
        (["--report=/"], "/ cannot be written: expected a file in a writable folder"),
        (
            ["--audit=q", "--state=./q"],
            "--audit and --state both name ./q: give each a file of its",
        ),
        (["--batch=4"], "unrecognized arguments: --batch=4"),
        (["--tail=pad"], "argument --tail: invalid choice: 'pad'"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    archive: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert main([f"--data={archive}", "--device=cpu", *flags]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("dali-pipelines run: ")
    assert message in line


def test_an_empty_folder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--data={tmp_path}", "--device=cpu"]) == 2
    assert f"{tmp_path}: no file in this folder ends in .fits" in capsys.readouterr().err


def test_a_missing_gpu_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dali_pipelines.cli.run_config import choose_devices
    from dali_pipelines.runtime.ranks import Ranks

    monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: 0)
    assert choose_devices(RunConfig(num_gpus=2), Ranks()) == [None, None]
    assert capsys.readouterr().err == "No GPU is visible: 2 shards on the CPU.\n"


def test_memory_that_is_not_there_is_refused(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dali_pipelines.memory.free_memory", lambda: 1 << 20)
    assert main([f"--data={archive}", "--device=cpu", "--batch_size=4"]) == 2
    assert "1 MiB are free" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGINT, True),
        (signal.SIGTERM, True),
    ],
)
def test_signals_end_everything(archive: Path, number: int, to_all: bool) -> None:
    """To all processes, as a terminal sends Ctrl-C, and Slurm and torchrun SIGTERM."""
    flags = ["--batch_size=4", "--epochs=1000000", "--device=cpu", "--num_gpus=2"]
    with Job(
        [sys.executable, str(SCRIPT), f"--data={archive}", *flags],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        try:
            children = wait_for_readers(run.pid)
            (os.killpg if to_all else os.kill)(run.pid, number)
            assert run.wait(60) == 128 + number
            _, alive = psutil.wait_procs(children, timeout=30)
            assert not alive
        finally:
            run.kill()


def wait_for_readers(pid: int) -> list[psutil.Process]:
    for _ in range(1000):
        children = psutil.Process(pid).children(recursive=True)
        if len(children) >= 6:  # 4 readers, the fork server and the resource tracker
            time.sleep(1)
            return children
        time.sleep(0.1)
    raise AssertionError(f"no readers, only {children}")


# ---- AIA ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine level 1 frames of AIA, 128x128, and one of them that is out of focus."""
    folder = tmp_path_factory.mktemp("aia")
    pixels, header = solar_files.frame()
    for row in range(9):
        words = solar_files.changed(header, QUALITY=1 << 20 if row == 4 else 0)
        solar_files.save(folder / f"{row}.fits", pixels + row, words)
    return folder


def test_aia_frames_are_registered_and_resumed(
    frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, state = tmp_path / "report.json", tmp_path / "state.json"
    flags = ["--pipeline=aia", "--size=64", "--exposure", "--bad_sample=skip"]
    flags += ["--crop=32", "--window=random", "--rotate=10", "--zoom", "0.9", "1.1"]
    first = audited(
        frames, tmp_path, *flags, "--batch_size=3", "--max_batches=1", f"--state={state}"
    )
    flags += [f"--resume={state}", f"--report={report}"]
    rest = audited(frames, tmp_path, *flags, "--batch_size=2")
    rows = sorted(int(line["row"]) for line in first + rest)
    assert rows == [row for row in range(9) if row != 4]
    found = json.loads(report.read_text())
    assert found["config"]["zoom"] == [0.9, 1.1]
    assert found["tables"] == {}
    assert found["output_mpix_per_s"] == pytest.approx(found["images_per_s"] * 32**2 / 1e6)
    assert "20 (out of focus)" in capsys.readouterr().out


def test_a_preset_and_the_table_that_it_was_run_with(
    frames: Path, shared_data: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    table = shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"
    flags = ["--pipeline=aia", "--preset=sdoml", f"--correction_table={table}", "--batch_size=4"]
    flags += ["--bad_sample=skip", f"--report={report}"]
    assert len(audited(frames, tmp_path, *flags)) == 8
    found = json.loads(report.read_text())
    assert found["output_mpix_per_s"] == pytest.approx(found["images_per_s"] * 512**2 / 1e6)
    known = {"name": table.name, "sha256": OFFICIAL_SHA256, "version": 10}
    assert found["tables"] == {"correction_table": known}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--preset=sdoml"],
            "give correction_table, the path of SolarSoft's response table, which",
        ),
        (["--preset=sdo"], "there is no preset 'sdo': give one of fdl, iti"),
        (["--correction_table=/no.txt"], "/no.txt: No such file or directory"),
        (["--psf", "1600"], "the PSF is known for the EUV channels"),
        (["--order=2"], "argument --order: invalid choice: 2"),
        (["--resize=64"], "resize is not for aia_pipeline: give size, or scale and reduce"),
        (["--rotate=5"], "rotate and zoom need a crop"),
    ],
)
def test_wrong_usage_for_aia(
    frames: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    always = [f"--data={frames}", "--batch_size=2", "--device=cpu", "--pipeline=aia"]
    assert main([*always, *flags]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
