"""The command run: the rows that it delivers, what it reports, and how it is resumed."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import solar_files
from astropy.io import fits
from astropy.table import Table

from dali_pipelines.cli.options import parse
from dali_pipelines.cli.run_config import RunConfig, choose_devices, open_index
from dali_pipelines.runtime.ranks import Ranks
from readers import BlockOrder, BucketOrder, Index, Order, WeightedOrder
from readers.aia.degradation import OFFICIAL_SHA256

Run = Callable[..., Any]
ALL = list(range(23))


class TestRows:
    def test_each_once_per_epoch(self, archive: Path, run: Run) -> None:
        flags = ["--num_read_processes=4", "--num_gpus=3", "--epochs=2", "--batch_size=4"]
        lines = run(archive, *flags).lines
        assert list(lines[0]) == ["epoch", "step", "shard", "slot", "row", "path", "valid"]
        for epoch in "01":
            rows = [int(line["row"]) for line in lines if line["epoch"] == epoch]
            assert sorted(rows) == ALL
            assert rows != ALL
        for line in lines:
            assert line["valid"] == "1"
            assert line["path"].endswith(f"/{int(line['row']):02d}.fits")

    def test_processes_and_repetition_change_nothing_and_the_seed_does(
        self, archive: Path, run: Run
    ) -> None:
        always = ["--batch_size=4", "--tail=fill", "--num_gpus=2"]
        one, five, other = (
            run(archive, *always, flag).lines
            for flag in ("--seed=0", "--num_read_processes=5", "--seed=1")
        )
        assert one == five != other

    @pytest.mark.parametrize(
        "flags",
        [
            "--random_area 0.1 1 --random_aspect_ratio 0.5 2 --resize=8",
            "--rotate=10 --zoom 0.5 2 --crop=8",
            "--resize_shorter=16 --crop=8 --flip=h --mode=eval",
        ],
    )
    def test_with_flags_of_the_geometry(self, archive: Path, run: Run, flags: str) -> None:
        found = run(archive, "--batch_size=4", *flags.split())
        is_eval = "eval" in flags
        assert (found.rows if is_eval else sorted(found.rows)) == ALL
        assert found.report["config"]["shuffle"] is not is_eval
        side = 8 if "=8" in flags else 16
        pixels = found.report["output_mpix_per_s"] * 1e6 / found.report["images_per_s"]
        assert pixels == pytest.approx(side**2)

    @pytest.mark.parametrize("flags", [["--outside=fill", "--missing=-1"], ["--outside=shift"]])
    def test_windows_of_rows_across_edges(
        self, archive: Path, tmp_path: Path, run: Run, flags: list[str]
    ) -> None:
        index, file = Index.scan(archive), tmp_path / "index.parquet"
        index.with_column("y", [-4.5] * 23).with_column("x", [20.0] * 23).save(file)
        assert sorted(run(file, "--batch_size=4", "--crop=8", "--window=row", *flags).rows) == ALL

    def test_windows_of_an_index_need_no_flags(
        self, archive: Path, tmp_path: Path, run: Run
    ) -> None:
        """And the flags of a message are flags."""
        images, file = Index.scan(archive), tmp_path / "cutouts.arrow"
        paths = images.table["path"].to_pylist()
        objects = Table({"path": paths, "x": [1] * 23, "y": [9] * 23})
        Index.cutouts(images, objects, (8, 6), outside="fill").save(file)
        found = run(file, "--batch_size=4")
        assert sorted(found.rows) == ALL
        pixels = found.report["output_mpix_per_s"] * 1e6 / found.report["images_per_s"]
        assert pixels == pytest.approx(48)
        err = run(file, "--batch_size=4", "--window=random", "--crop=8", status=2).err
        assert "--window=row" in err
        assert "--crop 8 6" in err
        err = run(file, "--batch_size=4", "--outside=reject", status=1).err
        assert "--outside=fill" in err
        turned = run(file, "--batch_size=4", "--outside=fill", "--missing=0", "--rotate=20")
        assert sorted(turned.rows) == ALL

    def test_several_folders_and_files(self, archive: Path, tmp_path: Path, run: Run) -> None:
        data = [str(archive / "later"), str(archive / "03.fits")]
        found = run(data, "--batch_size=4")
        assert sorted(line["path"] for line in found.lines) == sorted(
            [f"{data[0]}/21.fits", f"{data[0]}/22.fits", data[1]]
        )
        settings = tmp_path / "run.toml"
        settings.write_text(f"data = {data}\nbatch_size = 4\n")
        config = parse(RunConfig, [f"--config={settings}"], None, "run")
        assert len(open_index(config)) == 3

    def test_a_report_has_no_numbers_that_json_lacks(self, archive: Path, run: Run) -> None:
        """The fixture refuses NaN and infinity, as other languages do."""
        flags = ("--batch_size=4", "--crop=30", "--outside=fill", "--missing=nan")
        assert run(archive, *flags).report["config"]["missing"] is None

    def test_images_of_several_sizes(self, tmp_path: Path, run: Run) -> None:
        folder, settings = tmp_path / "mixed", tmp_path / "run.toml"
        folder.mkdir()
        for row in range(4):
            fits.writeto(folder / f"{row}.fits", np.zeros((9 + row, 8), np.int16))
        for ragged in ("list", "pad"):
            settings.write_text(f'ragged = "{ragged}"')
            assert sorted(run(folder, f"--config={settings}", "--batch_size=2").rows) == ALL[:4]
        err = run(folder, "--batch_size=2", status=2).err
        for word in ("size", "crop", "resize", "--ragged"):
            assert word in err

    @pytest.mark.parametrize(("planes", "count"), [(["all"], 3), (["2", "0"], 2)])
    def test_an_hdu_by_its_name_and_its_planes(
        self, tmp_path: Path, run: Run, planes: list[str], count: int
    ) -> None:
        (tmp_path / "cubes").mkdir()
        cube = fits.ImageHDU(np.zeros((3, 8, 9), np.int16), name="SCI")
        fits.HDUList([fits.PrimaryHDU(), cube]).writeto(tmp_path / "cubes/a.fits")
        found = run(tmp_path / "cubes", "--hdu=sci", "--batch_size=1", "--planes", *planes)
        pixels = found.report["output_mpix_per_s"] * 1e6 / found.report["images_per_s"]
        assert (found.rows, pixels) == ([0], pytest.approx(72 * count))

    def test_several_images_of_each_row(self, tmp_path: Path, run: Run) -> None:
        """One of three rows lacks an HDU, and another has no number to count from."""
        folder, rejected = tmp_path / "archive", tmp_path / "rejected.csv"
        folder.mkdir()
        sci, dq = (fits.ImageHDU(np.zeros((8, 9), np.int16), name=name) for name in ("SCI", "DQ"))
        for number, hdus in enumerate(([sci, dq], [sci], [sci, dq])):
            fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(folder / f"{number}.fits")
        flags = ["--batch_size=2", "--bad_sample=skip", "--no-shuffle", f"--rejected={rejected}"]
        found = run(folder, *flags, "--hdus", "image=SCI", "dq=DQ", "e=1")
        assert [line["row"] for line in found.lines if line["valid"] == "1"] == ["0", "2"]
        assert "dq: there is no HDU 'DQ'" in rejected.read_text()
        with rejected.open(newline="") as file:
            assert [line["image"] for line in csv.DictReader(file)] == ["dq"]
        assert found.report["config"]["hdus"][1] == ["dq", "DQ"]
        index = Index.scan(folder).with_column("hdu", pa.array([1, 1, None], pa.int64()))
        index.save(tmp_path / "index.parquet")
        settings = tmp_path / "run.toml"
        settings.write_text('hdus = ["image=+0", "dq=+1"]\ncolumns = ["hdu"]\n')
        found = run(tmp_path / "index.parquet", *flags, f"--config={settings}")
        valid = [(line["row"], line["hdu"]) for line in found.lines if line["valid"] == "1"]
        assert valid == [("0", "1")]
        assert "column 'hdu', but this is null" in rejected.read_text()

    def test_drawn_by_weights(self, archive: Path, tmp_path: Path, run: Run) -> None:
        index = Index.scan(archive).with_column("w", [0] * 20 + [1, 1, 2])
        index = index.with_column("name", [f"star {row}" for row in range(23)])
        index.save(tmp_path / "weighted.parquet")
        flags = ["--batch_size=4", "--weights=w", "--columns", "name", "w"]
        found = run(tmp_path / "weighted.parquet", *flags)
        order = WeightedOrder(index.running_weights("w"))
        assert found.rows == [order.row(0, place) for place in range(23)]
        assert {(line["row"], line["w"], line["name"]) for line in found.lines} == {
            (str(row), weight, f"star {row}") for row, weight in ((20, "1"), (21, "1"), (22, "2"))
        }


class TestResume:
    def test_on_other_shards(
        self, archive: Path, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        state = tmp_path / "state.json"
        first = ["--batch_size=3", "--num_gpus=2", "--max_batches=2", f"--state={state}"]
        before = run(archive, *first)
        after = run(archive, "--batch_size=4", "--seed=9", "--epochs=2", f"--resume={state}")
        assert "seed 0" in caplog.text  # and nothing is said of values that were not given
        assert "shuffle" not in caplog.text
        whole = run(archive, "--batch_size=1", "--epochs=2")
        epochs = [[epoch for epoch, _ in each.places] for each in (before, after, whole)]
        assert before.rows + after.rows == whole.rows
        assert epochs[0] + epochs[1] == epochs[2]

    @pytest.mark.parametrize(
        ("flags", "order"),
        [
            (["--block_rows=2"], BlockOrder(23, block_rows=2)),
            (["--shuffle", "blocks", "--block_rows=2"], BlockOrder(23, block_rows=2)),
            (["--shuffle=blocks"], BlockOrder(23)),
            (["--shuffle=buckets", "--block_rows=4"], BucketOrder(23, block_rows=4)),
        ],
    )
    def test_shuffled_in_blocks(
        self,
        archive: Path,
        tmp_path: Path,
        run: Run,
        flags: list[str],
        order: BlockOrder | BucketOrder,
    ) -> None:
        state = tmp_path / "state.json"
        rows = run(archive, "--batch_size=4", *flags, "--max_batches=2", f"--state={state}").rows
        rows += run(archive, "--batch_size=5", f"--resume={state}").rows
        assert rows == [order.row(0, place) for place in range(23)]

    def test_the_order_in_a_file(self, tmp_path: Path) -> None:
        settings = tmp_path / "run.toml"
        for value, shuffle in (("true", True), ("false", False), ('"blocks"', "blocks")):
            settings.write_text(f"shuffle = {value}\n")
            assert parse(RunConfig, [f"--config={settings}"], None, "run").shuffle == shuffle
        again = [f"--config={settings}", "--no-shuffle"]
        assert parse(RunConfig, again, None, "run").shuffle is False

    def test_epochs_of_steps(self, archive: Path, tmp_path: Path, run: Run) -> None:
        """Stopped in the second one, and resumed with another batch size."""
        state, flags = tmp_path / "state.json", ["--epoch_steps=3", "--epochs=3"]
        first = run(archive, "--batch_size=5", *flags, "--max_batches=5", f"--state={state}")
        assert first.places[::5] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
        second = run(archive, "--batch_size=8", *flags, f"--resume={state}")
        assert second.places[::8] == [(1, 2), (2, 0), (2, 1), (2, 2)]
        order = Order(23)
        rows = [order.row(*divmod(place, 23)) for place in range(25 + 32)]
        assert first.rows + second.rows == rows

    def test_drop_with_a_larger_step_goes_on_with_the_next_epoch(
        self, archive: Path, tmp_path: Path, run: Run
    ) -> None:
        """20 of 23 rows are delivered: 3 are left, which drop leaves out of steps of 6."""
        state, flags = tmp_path / "state.json", ["--tail=drop", "--batch_size=2"]
        before = run(archive, *flags, "--max_batches=10", f"--state={state}")
        after = run(archive, "--tail=drop", "--batch_size=6", "--epochs=2", f"--resume={state}")
        assert len({*before.rows}) == 20
        assert {epoch for epoch, _ in after.places} == {1}
        assert len({*after.rows}) == 18

    def test_of_a_finished_run(self, archive: Path, tmp_path: Path, run: Run) -> None:
        state = tmp_path / "state.json"
        run(archive, f"--state={state}")
        found = run(archive, f"--resume={state}")
        assert found.rows == []
        assert found.report["samples"] == 0
        assert "--epochs" in found.report["bottleneck"]


class TestReport:
    def test_of_a_short_run(self, archive: Path, run: Run) -> None:
        found = run(archive, "--batch_size=5", "--num_gpus=2", "--crop=8", "--window=random")
        report = found.report
        expected = """config versions hardware device num_shards epochs batches samples seconds
            first_batch_s images_per_s input_mb_per_s output_mpix_per_s stages wait_fraction
            bottleneck rejected"""
        assert set(expected.split()) <= set(report)
        assert (report["samples"], report["batches"], report["num_shards"]) == (23, 3, 2)
        assert report["config"]["crop"] == 8
        assert report["images_per_s"] == pytest.approx(23 / report["seconds"])
        assert report["output_mpix_per_s"] == pytest.approx(report["images_per_s"] * 64 / 1e6)
        sizes = sum(path.stat().st_size for path in archive.rglob("*.fits"))
        assert 0 < report["input_mb_per_s"] * report["seconds"] * 1e6 <= sizes
        assert 0 <= report["wait_fraction"] <= 1
        assert (report["limit"], report["measured"], report["advised"]) == (None, None, None)
        assert "too short" in report["bottleneck"]
        assert "23 images in 3 steps on 2 CPU shards: " in found.out
        assert report["bottleneck"] in found.out

    def test_of_a_long_run_is_timed_from_its_first_batch(self, archive: Path, run: Run) -> None:
        report = run(archive, "--batch_size=2", "--num_read_processes=2").report
        assert report["images_per_s"] == pytest.approx(21 / report["seconds"])
        assert report["limit"] in ("consumer", "storage", "readers", "graph", "cpu", "transport")
        measured = report["measured"]
        assert (measured["num_read_processes"], measured["num_shards"]) == (2, 1)
        assert measured["samples"] == 21
        assert 0 < measured["read_cpu_s"] <= measured["read_s"]
        assert measured["graph_cpu_s"] > 0  # DALI's threads are known by their names


class TestBadFiles:
    @pytest.fixture
    def damaged(self, archive: Path, tmp_path: Path) -> Path:
        """The archive, with one file cut off and another of text."""
        folder = tmp_path / "damaged"
        shutil.copytree(archive, folder)
        (folder / "05.fits").write_bytes((folder / "05.fits").read_bytes()[:3000])
        (folder / "11.fits").write_text("hello")
        return folder

    def test_raise_ends_with_one_line(self, damaged: Path, run: Run) -> None:
        found = run(damaged, "--batch_size=4", "--no-shuffle", status=1)
        (line,) = found.err.splitlines()
        assert "05.fits (row 5): " in line
        assert "--bad_sample=skip" in line

    def test_skip_delivers_the_others_and_lists_them(
        self, damaged: Path, tmp_path: Path, run: Run
    ) -> None:
        path = tmp_path / "rejected.csv"
        found = run(damaged, "--batch_size=4", "--bad_sample=skip", f"--rejected={path}")
        assert sorted(found.rows) == [row for row in ALL if row not in (5, 11)]
        with path.open(newline="") as file:
            lines = {int(line["row"]): line for line in csv.DictReader(file)}
        assert list(lines[5]) == ["path", "hdu", "row", "reason", "epoch", "step", "image"]
        reported = {bad["row"]: bad for bad in found.report["rejected"]}
        assert sorted(lines) == sorted(reported) == [5, 11]
        for row in 5, 11:
            assert lines[row]["path"] == reported[row]["path"] == str(damaged / f"{row:02d}.fits")
            assert lines[row]["reason"] == reported[row]["reason"] != ""
        assert lines[11]["epoch"] == "0"
        assert "2 files" in found.out

    @pytest.mark.parametrize(
        ("limit", "in_file", "status"),
        [("1", False, 1), ("1.0", False, 0), ("2", False, 0), ("1", True, 1), ("1.0", True, 0)],
    )
    def test_a_limit_is_a_number_or_a_share(
        self, damaged: Path, tmp_path: Path, run: Run, limit: str, in_file: bool, status: int
    ) -> None:
        settings, rejected = tmp_path / "run.toml", tmp_path / "rejected.csv"
        settings.write_text(f"max_bad = {limit}\n" if in_file else "")
        flags = ["--batch_size=4", "--bad_sample=skip", f"--config={settings}"]
        flags += [f"--rejected={rejected}", *([] if in_file else [f"--max_bad={limit}"])]
        found = run(damaged, *flags, status=status)
        assert ("--max_bad=1 " in found.err) == bool(status)
        assert len(rejected.read_text().splitlines()) == 3

    @pytest.mark.parametrize(
        ("policy", "content", "remedies"),
        [
            ("skip", b"not FITS", []),
            ("raise", b"not FITS", ["--bad_sample=skip"]),
            ("raise", b"\x89PNG\r\n", ["--pipeline=jpeg", "--bad_sample=skip"]),
        ],
    )
    def test_no_file_can_be_read(
        self, tmp_path: Path, run: Run, policy: str, content: bytes, remedies: list[str]
    ) -> None:
        (tmp_path / "bad").mkdir()
        for number in range(20):
            (tmp_path / f"bad/{number:02}.fits").write_bytes(content)
        flags = ["--batch_size=2", f"--bad_sample={policy}"]
        found = run(tmp_path / "bad", *flags, status=1)
        if policy == "skip":
            assert "20 files" in found.out
            assert len(found.report["rejected"]) == 20
        assert [word for word in remedies if word not in found.err] == []

    def test_control_characters_of_names_are_not_printed(self, tmp_path: Path, run: Run) -> None:
        """In the terminal; a CSV file holds them, but no cell that a spreadsheet computes."""
        folder, rejected = tmp_path / "archive", tmp_path / "b.csv"
        folder.mkdir()
        names = ["=1+1", "+1", "@SUM(1)", "-2", "a,b\n", "\x1b]0;title\x07"]
        for name in names:
            (folder / f"{name}.fits").write_text("no FITS")
        flags = ["--batch_size=3", f"--rejected={rejected}"]
        skipped = run(folder, *flags, "--bad_sample=skip", status=1)
        assert r"/\x1b]0;title\x07.fits: " in skipped.out
        with rejected.open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert {line["path"] for line in lines} == {str(folder / f"{name}.fits") for name in names}
        cells = [cell for line in lines for cell in line.values()]
        assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r"))]
        assert all(line["reason"].isprintable() for line in lines)
        raised = run(folder, *flags, status=1)
        for text in (skipped.out, skipped.err, raised.out, raised.err):
            assert text.replace("\n", "").isprintable()


class TestFailures:
    @pytest.mark.parametrize("flag", ["report", "rejected", "audit", "state"])
    def test_a_full_disk_names_the_file(
        self, archive: Path, tmp_path: Path, command: Callable[..., tuple[str, str]], flag: str
    ) -> None:
        """What else is written, is written."""
        names = "report", "rejected", "audit", "state"
        files = {name: str(tmp_path / name) for name in names} | {flag: "/dev/full"}
        flags = ["--device=cpu", "--num_read_processes=1", "--max_batches=1"]
        outputs = [f"--{name}={path}" for name, path in files.items()]
        _, err = command("run", f"--data={archive}", *flags, *outputs, status=1)
        assert err.count("\n") == 1
        assert "/dev/full: No space left on device" in err
        assert {path.name for path in tmp_path.iterdir()} == {*names} - {flag}

    def test_an_epoch_without_a_step(
        self, archive: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Made by a Loader that gives none, as ours never does."""
        monkeypatch.setattr("dali_pipelines.loader.Loader.__iter__", lambda loader: iter(()))
        assert "epoch 0" in run(archive, status=1).err

    def test_a_missing_gpu(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: 0)
        assert choose_devices(RunConfig(num_gpus=2), Ranks()) == [None, None]
        assert "2 shards on the CPU" in capsys.readouterr().err

    def test_too_little_memory(
        self, archive: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dali_pipelines.memory.free_memory", lambda: 1 << 20)
        assert "1 MiB" in run(archive, "--batch_size=4", status=2).err


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine level 1 frames of AIA, 128x128, the fifth out of focus."""
    folder = tmp_path_factory.mktemp("aia")
    pixels, header = solar_files.frame()
    for row in range(9):
        words = solar_files.changed(header, QUALITY=1 << 20 if row == 4 else 0)
        solar_files.save(folder / f"{row}.fits", pixels + row, words)
    return folder


class TestAia:
    def test_frames_are_registered_and_resumed(
        self, frames: Path, tmp_path: Path, run: Run
    ) -> None:
        state = tmp_path / "state.json"
        flags = ["--pipeline=aia", "--size=64", "--exposure", "--bad_sample=skip", "--crop=32"]
        flags += ["--window=random", "--rotate=10", "--zoom", "0.9", "1.1"]
        first = run(frames, *flags, "--batch_size=3", "--max_batches=1", f"--state={state}")
        rest = run(frames, *flags, f"--resume={state}", "--batch_size=2")
        assert sorted(first.rows + rest.rows) == [row for row in range(9) if row != 4]
        report = rest.report
        assert report["config"]["zoom"] == [0.9, 1.1]
        assert report["tables"] == {}
        assert report["output_mpix_per_s"] == pytest.approx(report["images_per_s"] * 32**2 / 1e6)
        assert "out of focus" in first.out + rest.out

    def test_the_report_names_the_table_of_a_preset(
        self, frames: Path, shared_data: Path, run: Run
    ) -> None:
        table = shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"
        flags = ["--pipeline=aia", "--preset=sdoml", f"--correction_table={table}"]
        found = run(frames, *flags, "--batch_size=4", "--bad_sample=skip")
        assert len(found.rows) == 8
        report = found.report
        assert report["output_mpix_per_s"] == pytest.approx(report["images_per_s"] * 512**2 / 1e6)
        known = {"name": table.name, "sha256": OFFICIAL_SHA256, "version": 10}
        assert report["tables"] == {"correction_table": known}
