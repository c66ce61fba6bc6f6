from __future__ import annotations

from pathlib import Path

import pytest
from jobs import ROOT

from dali_pipelines import PipelineConfig, load_preset
from dali_pipelines.cli.options import parse
from dali_pipelines.cli.run_config import RunConfig
from dali_pipelines.cli.show.config import ShowConfig, of_run

FOLDER = ROOT / "configs"
FILES = sorted(FOLDER.rglob("*.toml"))


def test_there_is_one_for_each_kind() -> None:
    names = {"jpeg_folder", "fits", "aia_windows", "aia_full_disk", "aia_sdoml"}
    assert names <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_a_valid_run(path: Path) -> None:
    config = parse(RunConfig, [f"--config={path}"], None, "run")
    PipelineConfig(**config.pipeline_settings())
    if config.preset is not None:
        assert load_preset(config.preset).degradation == ("--correction_table" in path.read_text())
    else:
        assert (config.calibration is not None) == (config.pipeline == "aia")
    flags = ["archive", "-o", "sheet.png", f"--config={path}"]
    shown = parse(ShowConfig, flags, None, "show", translate=of_run)
    assert shown.settings.items() <= config.settings.items()
    assert shown.calibration_settings == config.calibration_settings


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_says_what_it_is_for(path: Path) -> None:
    assert path.read_text().startswith("# ")
