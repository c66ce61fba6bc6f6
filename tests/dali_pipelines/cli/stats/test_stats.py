"""The command stats: its tables, and a file that run and show take."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from dali_pipelines import Stretch, with_keys
from dali_pipelines.cli.main import main
from dali_pipelines.cli.options import parse
from dali_pipelines.cli.run_config import RunConfig
from readers import Index


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    for row in range(6):
        pixels = np.random.default_rng(row).normal(100 * (1 + row % 2), 5, (20, 30))
        header = fits.Header({"WAVELNTH": (171, 193)[row % 2]})
        fits.writeto(folder / f"{row}.fits", pixels.astype(np.float32), header)
    return folder


def test_the_file_is_a_configuration_of_run(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "stats.toml"
    assert main(["stats", str(archive), "-o", str(file)]) == 0
    out = capsys.readouterr().out
    assert "6 of 6 images" in out
    config = parse(RunConfig, [f"--config={file}"], None, "run").pipeline_config
    assert config.mean is not None and config.std is not None  # noqa: PT018
    assert (config.mean[0], config.std[0]) == pytest.approx((150, 50.25), rel=0.02)
    text = re.sub(r"^# (?=\[\[|\w+ = )", "", file.read_text(), flags=re.MULTILINE)
    file.write_text(re.sub(r"^(mean|std) = \[.*\n", "", text, flags=re.MULTILINE))
    config = parse(RunConfig, [f"--config={file}"], None, "run").pipeline_config
    assert config.stretch is not None
    (stretch,) = config.stretch
    assert isinstance(stretch, Stretch)
    assert stretch(np.array([80.0, 250.0])) == pytest.approx([0, 1], abs=0.1)
    assert main(["run", f"--data={archive}", f"--config={file}", "--batch_size=2"]) == 0


def test_groups_have_a_table_each(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = str(tmp_path / "index.parquet")
    with_keys(Index.scan(archive), ["WAVELNTH"]).save(index)
    assert main(["stats", index, "--by=wavelnth", "--count=2", "--crop=10"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"wavelnth (\d+): (\d+) of (\d+)", out) == [
        ("171", "2", "3"),
        ("193", "2", "3"),
    ]


def test_what_goes_wrong(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(archive), "--by=wavelength"]) == 2
    assert "'wavelength'" in capsys.readouterr().err
    bad = tmp_path / "bad.fits"
    bad.write_text("no FITS")
    assert main(["stats", str(bad)]) == 1
    assert str(bad) in capsys.readouterr().err
    assert main(["stats", str(archive), "-o", str(archive / "0.fits")]) == 2
