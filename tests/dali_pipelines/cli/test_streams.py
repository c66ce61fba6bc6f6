"""Commands whose standard streams are closed, as by some schedulers and services."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from jobs import ROOT, run


@pytest.mark.parametrize(
    ("name", "first"), [("index", 2), ("prep", 2), ("index", 0)], ids=["index", "prep", "all"]
)
def test_a_command_does_its_work(tmp_path: Path, name: str, first: int) -> None:
    (tmp_path / "archive").mkdir()
    fits.writeto(tmp_path / "archive" / "a.fits", np.zeros((20, 20), np.int16))
    output = {"index": ["a.parquet"], "prep": ["tiled", "--tiles", "16"]}[name]
    command = [sys.executable, "-m", "dali_pipelines", name, "archive", "-o", *output]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    closed = partial(os.closerange, first, 3)
    found = run(command, cwd=tmp_path, env=env, preexec_fn=closed, warm_children=False)
    assert found.returncode == 0
    assert (tmp_path / output[0]).exists()
