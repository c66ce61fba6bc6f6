from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from astropy.table import Table
from astropy.wcs import WCS

from dali_pipelines.cli.index import main as script
from dali_pipelines.cli.index.config import IndexConfig
from dali_pipelines.cli.options import parse

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on mosaics of two exposures, in their folder; give status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("survey")
    for number in range(2):
        hdus = [fits.PrimaryHDU(), *(image(150 + number, n) for n in range(2))]
        fits.HDUList(hdus).writeto(f"survey/e{number}.fits")
    fits.writeto("survey/dark.fits", np.zeros((40, 40)))
    stars = Table({"RA": [150.0, 151.01, 150.0, np.nan], "DE": [0.0, 3.01, 0.19, 1.0]})
    stars["mag"] = [18, 19, 20, 21]
    stars.write("stars.csv")

    def run(*arguments: str) -> tuple[int, str, str]:
        status = script.main([*arguments, "--num_processes=1"])
        return status, *capsys.readouterr()

    return run


def image(ra: float, number: int) -> fits.ImageHDU:
    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["RA---TAN", "DEC--TAN"]
    wcs.wcs.crval, wcs.wcs.crpix, wcs.wcs.cdelt = [ra, 3 * number], [20.5, 20.5], [-0.01, 0.01]
    return fits.ImageHDU(np.zeros((40, 40), np.int16), wcs.to_header(), f"SCI{number}")


def rows(*names: str) -> list[tuple[Any, ...]]:
    table = pq.read_table("index.parquet")
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


SKY = ("--cutouts=stars.csv", "--ra=RA", "--dec=DE", "--size=8")
HDUS = "--hdus=SCI*"


def test_a_survey(run: Run) -> None:
    """The file without such an HDU is rejected; objects without a row are counted and listed."""
    status, out, err = run("survey", HDUS, *SKY, "--keys=", "--rejected=bad.csv")
    assert status == 0
    assert rows("hdu", "y", "x", "mag", "catalogue_row") == [(1, 16, 16, 18, 0), (2, 17, 15, 19, 1)]
    for figure in ("3 files found: 4 rows kept, 1 rejected", "2 cutouts", "2 of 4 objects"):
        assert figure in out
    for figure in ("2 of 4 objects", "8x8", "catalogue row 2", "catalogue row 3"):
        assert figure in err
    bad = list(csv.reader(Path("bad.csv").read_text().splitlines()))
    assert bad[0] == ["path", "reason"]
    assert [os.path.basename(path) for path, _ in bad[1:]] == ["dark.fits", *["stars.csv"] * 2]
    assert bad[2][1].startswith("catalogue row 2: ")


def test_an_index(run: Run) -> None:
    """Images without sky coordinates are left out, and listed as well."""
    assert run("survey", "-o", "images.parquet", "--hdu=all")[0] == 0
    status, out, err = run("images.parquet", *SKY, "--outside=fill", "--rejected=bad.csv")
    assert status == 0
    assert rows("hdu", "y", "catalogue_row") == [(1, 16, 0), (1, 35, 2), (2, 17, 1)]
    assert "5 rows found: 5 rows kept" in out
    for text in (err, Path("bad.csv").read_text()):
        assert "dark.fits HDU 0" in text
        assert "CTYPE" in text


def test_settings_reach_the_cutouts(run: Run) -> None:
    pixels = pa.table(
        {"X": [10.0, 20.0], "Y": [8.25, 0], "path": ["e0.fits", "e1.fits"], "m": [1, 2]}
    )
    pq.write_table(pixels, "pixels.parquet")
    settings = ("--x=X", "--y=Y", "--origin=1", "--subpixel", "--size=8,4", "--columns=m,Z=X")
    status, _, _ = run("survey", "--hdus=1", "--cutouts=pixels.parquet", *settings)
    assert status == 0
    assert rows("y", "x", "m", "Z") == [(3.75, 7.5, 1, 10.0)]
    assert pq.read_table("index.parquet").column_names[-5:] == ["y", "x", "m", "Z", "catalogue_row"]
    assert (
        run("survey", "--hdus=1", "--cutouts=pixels.parquet", *settings, "--outside=fill")[0] == 0
    )
    assert rows("y", "m") == [(3.75, 1), (-4.5, 2)]


def test_with_where_and_split(run: Run) -> None:
    """Images are chosen before, cutouts are split."""
    split = ("--split=train=0.5,val=0.5", "--split_by=catalogue_row")
    flags = (HDUS, *SKY, *split, "--outside=shift", "--where=hdu < 3")
    assert run("survey", *flags)[0] == 0
    parts = [pq.read_table(f"index.{name}.parquet")["catalogue_row"] for name in ("train", "val")]
    assert sorted(row for part in parts for row in part.to_pylist()) == [0, 1, 2]
    assert run("survey", *SKY, HDUS, "--where=hdu = 2")[0] == 0
    assert rows("catalogue_row") == [(1,)]


def test_a_configuration(run: Run) -> None:
    Path("index.toml").write_text(
        'data = "survey"\nhdus = "SCI*"\ncutouts = "stars.csv"\nsize = [8, 8]\n'
        'ra = "RA"\ndec = "DE"'
    )
    assert run("--config=index.toml")[0] == 0
    assert rows("catalogue_row") == [(0,), (1,)]
    assert parse(IndexConfig, ["--config=index.toml"], "", "index").size == (8, 8)


def test_no_row_is_left(run: Run) -> None:
    status, out, err = run("survey", HDUS, *SKY[:-1], "--size=50", "--rejected=bad.csv")
    assert (status, out) == (1, "")
    assert "4 of 4 objects" in err
    assert "3 with a window of 50x50" in err
    assert Path("bad.csv").read_text().count("catalogue row ") == 4
    assert not os.path.exists("index.parquet")


def test_columns_that_are_there_twice(run: Run) -> None:
    status, _, err = run("survey", HDUS, *SKY, "--columns=width=mag")
    assert status == 1
    for word in ("--cutouts", "stars.csv", "width", "--columns", "catalogue_mag=mag"):
        assert word in err
