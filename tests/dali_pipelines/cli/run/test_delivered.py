"""A run without --data: the whole job on the sample set, and the sheet of what was delivered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from astropy.io import fits
from PIL import Image

from dali_pipelines.cli.options import parse
from dali_pipelines.cli.run.main import main
from dali_pipelines.cli.run.output import first_images, save_delivered
from dali_pipelines.cli.run_config import RunConfig
from dali_pipelines.cli.samples import sets
from dali_pipelines.cli.samples.job import SAMPLE_JOBS, sample_job
from readers import Index


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight small frames in place of the sample set, and a cache folder of their own."""
    folder = tmp_path / "set"
    folder.mkdir()
    for row in range(8):
        pixels = np.arange(20 * 24, dtype=np.int16).reshape(20, 24)
        fits.writeto(folder / f"{row}.fits", pixels)
    monkeypatch.setattr(sets, "fits_samples", lambda: folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return folder


def configured(*flags: str) -> RunConfig:
    return parse(RunConfig, flags, None, "run", sample_job)


@pytest.mark.parametrize("pipeline", SAMPLE_JOBS)
def test_the_job_and_what_overrides_it(pipeline: str, tmp_path: Path) -> None:
    kind = f"--pipeline={pipeline}"
    found = configured(kind)
    assert found == parse(RunConfig, [kind, *SAMPLE_JOBS[pipeline].split()], None, "run")
    assert found.settings["window"] == "random"
    assert "crop" in found.settings
    assert configured(kind, "--epochs=99", "--flip=").epochs == 99
    file = tmp_path / "run.toml"
    file.write_text('window = "center"\nmean = [1.5]')
    found = configured(kind, f"--config={file}", "--mean=2.5")
    assert found.pipeline_config.window == "center"
    assert found.pipeline_config.mean == (2.5,)
    file.write_text(f'data = "archive"\npipeline = "{pipeline}"')
    assert configured(f"--config={file}") == RunConfig(data="archive", pipeline=pipeline)


def test_a_run_on_the_sample_set(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--device=cpu", "--num_read_processes=2", "--batch_size=2", "--crop=16", "--std=10"]
    assert main(flags) == 0
    out, err = capsys.readouterr()
    assert (err.count("\n"), SAMPLE_JOBS["fits"] in err) == (1, True)
    assert "96 images in 48 steps" in out
    *_, path = out.split()
    with Image.open(path) as sheet:
        assert sheet.width > 2 * 240  # of the two in the first step
    assert path == str(samples.parent / "dali-pipelines" / "run-fits.png")


def test_the_sheet_shows_what_was_delivered(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {
        "row": torch.tensor([5, 0, 3]),
        "valid": torch.tensor([True, False, True]),
        "image": torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 1, 16, 16),
    }
    images = first_images(batch, RunConfig())
    assert [(row, float(image.max())) for row, image in images] == [(5, 0.0), (3, 2.0)]
    padded = first_images(
        {**batch, "size": torch.tensor([[9, 8]] * 3)}, RunConfig(settings={"ragged": "pad"})
    )
    assert [image.shape for _, image in padded] == [(1, 9, 8)] * 2
    drawn = []
    monkeypatch.setattr(
        "dali_pipelines.cli.show.sheet.save_sheet", lambda path, rows, **_: drawn.extend(rows)
    )
    save_delivered(images, Index.scan(samples), RunConfig())
    assert [picture.caption for row in drawn for picture in row] == [
        (str(samples / "5.fits"), "16x16", "0 to 0"),
        (str(samples / "3.fits"), "16x16", "2 to 2"),
    ]


def test_large_images_of_integers_are_drawn(samples: Path) -> None:
    image = torch.full((1, 1, 300, 300), 7, dtype=torch.uint8)
    batch = {"row": torch.tensor([0]), "valid": torch.tensor([True]), "image": image}
    config = RunConfig(settings={"dtype": "uint8"})
    path = save_delivered(first_images(batch, config), Index.scan(samples), config)
    with Image.open(path) as sheet:
        assert sheet.width > 240


def test_photographs_are_drawn_in_their_own_colours(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(
        "dali_pipelines.cli.show.sheet.save_sheet", lambda path, rows, **_: drawn.extend(rows)
    )
    config = RunConfig(pipeline="jpeg", settings={"mean": 128.0, "std": (64.0, 32.0, 16.0)})
    image = torch.ones(3, 4, 4)
    save_delivered([(0, image)], Index.scan(samples), config)
    assert drawn[0][0].pixels[0, 0].tolist() == [192, 160, 144]


def test_a_sheet_that_cannot_be_drawn_is_no_failure(
    samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ImportError("No module named 'sunpy'")

    monkeypatch.setattr("dali_pipelines.cli.run.output.save_delivered", fail)
    flags = ["--device=cpu", "--num_read_processes=1", "--batch_size=4", "--crop=16", "--epochs=1"]
    assert main(flags) == 0
    assert "No module named 'sunpy'" in capsys.readouterr().err
