"""Commands whose standard streams are closed, as by some schedulers and services."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from jobs import ROOT, run


@pytest.mark.parametrize(
    ("name", "closed"), [("index", "2>&-"), ("prep", "2>&-"), ("index", "<&- >&- 2>&-")]
)
def test_a_command_does_its_work(tmp_path: Path, name: str, closed: str) -> None:
    (tmp_path / "archive").mkdir()
    fits.writeto(tmp_path / "archive" / "a.fits", np.zeros((20, 20), np.int16))
    output = {"index": ["a.parquet"], "prep": ["tiled", "--tiles", "16"]}[name]
    command = [sys.executable, "-m", "dali_pipelines", name, "archive", "-o", *output]
    env = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    found = run(["sh", "-c", f'"$@" {closed}', "sh", *command], cwd=tmp_path, env=env)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / output[0]).exists()
