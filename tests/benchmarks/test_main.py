"""bench.py as a user runs it: what it writes, and what it refuses to time."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from benchmarks import main as script
from benchmarks.report.tables import as_text
from benchmarks.sheets import serving as sheets
from benchmarks.suites import serving
from benchmarks.suites.headers import headers_suite


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the suite that needs no processes writes."""
    folder = tmp_path_factory.mktemp("bench") / "results"
    assert script.main(["--suite=decode", "--quick", "--rounds=7", f"--out={folder}"]) == 0
    return folder


def test_json_says_what_was_measured_where_and_how(written: Path) -> None:
    found = json.loads((written / "decode.json").read_text())
    assert found["command"].startswith("python scripts/bench.py --suite=decode --quick")
    assert found["config"]["rounds"] == 2  # quick
    assert found["hardware"]["cores"] == len(os.sched_getaffinity(0))
    assert found["versions"]["astropy"]
    table = found["tables"][0]
    assert "bits a pixel" in table["title"]
    ours, astropy, *others = table["results"]
    assert (ours["name"], astropy["name"]) == ("decode_image", "astropy")
    assert [other["name"] for other in others] == ["fitsio", "torchfits"]
    for result in (ours, astropy):
        assert [one["cpu_s_here"] > 0 for one in result["rounds"]] == [True, True]
        assert result["difference"] == 0
    assert astropy["speedup"] == 1
    mine, its = (
        np.array([one["images_per_s"] for one in result["rounds"]]) for result in (ours, astropy)
    )
    assert ours["speedup"] == pytest.approx(np.median(mine / its))


def test_csv_has_each_round(written: Path) -> None:
    with (written / "decode.csv").open() as file:
        rows = list(csv.DictReader(file))
    table = json.loads((written / "decode.json").read_text())["tables"][1]
    mine = [row for row in rows if (row["table"], row["way"]) == (table["title"], "astropy")]
    rounds = table["results"][1]["rounds"]
    assert [float(row["images_per_s"]) for row in mine] == [one["images_per_s"] for one in rounds]
    assert [float(row["cpu_s_here"]) for row in mine] == [one["cpu_s_here"] for one in rounds]


def test_markdown_has_a_line_for_each_way(written: Path) -> None:
    text = (written / "decode.md").read_text()
    assert text.count("| astropy |") == text.count("| decode_image |") == 5
    columns = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert columns == {8}


def test_plots_have_a_panel_for_each_table(written: Path) -> None:
    titles = [
        table["title"] for table in json.loads((written / "decode.json").read_text())["tables"]
    ]
    svg = (written / "decode.svg").read_text()
    ElementTree.fromstring(svg)
    for title in titles:
        assert f"<!-- {title} -->" in svg
    with Image.open(written / "decode.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert (pixels == (0x2A, 0x6F, 0x97)).all(-1).mean() > 0.01  # our bars


def test_headers_are_read_both_ways() -> None:
    (table,) = headers_suite(script.BenchConfig(suite="headers", quick=True))
    ours, astropy = table.results
    assert (ours.name, astropy.name) == ("index", "astropy getheader")
    assert ours.difference == astropy.difference == 0
    assert len(ours.rounds) == len(astropy.rounds) == 2


def test_a_preprocessor_is_timed_and_its_pixels_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def small_frame(path: Path, number: int) -> None:
        noise = np.random.default_rng(number).normal(100, 9, (600, 600)).astype(np.int16)
        hdus = fits.CompImageHDU(noise, compression_type="RICE_1", tile_shape=(1, 600))
        hdus.writeto(path)

    monkeypatch.setattr(serving, "save_frame", small_frame)
    monkeypatch.setattr(sheets, "_FEW_CALLS", (2, 5))
    settings = script.BenchConfig(suite="serving", quick=True, rounds=1)
    found: list[Any] = [*serving.serving_suite(settings)]
    tables, (threads, starts, memory) = found[:3], found[3:]
    others = ["Pillow and NumPy"], ["the Loader's graph"], ["astropy", "astropy, section"]
    for table, names in zip(tables, others, strict=True):
        assert [one.name for one in table.results] == [
            *("Preprocessor", "Preprocessor, NumPy"),
            *names,
        ]
        assert table.baseline == names[0]
    assert {one.difference for one in tables[-1].results} == {0}
    for sheet, first in ((threads, ["1", "2", "4"]), (starts, ["JPEG, NumPy"]), (memory, "25")):
        assert [line[0] for line in sheet.lines] == [*first]
        assert {len(line) for line in sheet.lines} == {len(sheet.header)}
        assert all(float(line[1]) > 0 for line in sheet.lines)
        as_text(sheet)


def test_wrong_numbers_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--rounds=0"]) == 2
    assert "--rounds must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.parametrize("suite", ["decode", "remote", "headers", "serving", "kernels"])
def test_data_are_not_for_suites_that_make_their_own(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([f"--suite={suite}", "--data=a"]) == 2
    assert (
        "--data is for the suites loader, strategies, scaling, aia, jpeg, cutouts, containers: "
        f"{suite} makes its own files, leave it out"
    ) in capsys.readouterr().err


def test_a_folder_without_such_files_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.fits").touch()
    assert script.main(["--suite=jpeg", f"--data={tmp_path}"]) == 2
    assert str(tmp_path) in capsys.readouterr().err
