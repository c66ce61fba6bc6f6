"""A small archive, and the command that iterates it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from astropy.io import fits

ROWS = 23


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 small compressed FITS files, two of them in a subfolder; not to be changed."""
    folder = tmp_path_factory.mktemp("archive")
    (folder / "later").mkdir()
    for row in range(ROWS):
        image = np.full((20, 24), row, np.int16)
        name = f"later/{row:02d}.fits" if row > 20 else f"{row:02d}.fits"
        fits.CompImageHDU(image, compression_type="RICE_1").writeto(folder / name)
    return folder


@pytest.fixture
def run(tmp_path: Path, command: Callable[..., tuple[str, str]]) -> Callable[..., SimpleNamespace]:
    """Run ``run`` in this process on the CPU, by default with one reader.

    Give what it prints as `out` and `err`, its `report`, the `lines` of its audit, and their `rows`
    and `places`, which are pairs of epoch and step.
    """

    def run(data: Path | list[str], *flags: object, status: int = 0) -> SimpleNamespace:
        audit, report = tmp_path / "audit.csv", tmp_path / "report.json"
        audit.unlink(missing_ok=True)
        report.unlink(missing_ok=True)
        always = ["--device=cpu", "--num_read_processes=1", f"--audit={audit}"]
        always += [f"--report={report}", "--data", *(data if isinstance(data, list) else [data])]
        out, err = command("run", *always, *flags, status=status)
        found = SimpleNamespace(out=out, err=err, lines=[])
        if report.exists():
            found.report = json.loads(report.read_text(), parse_constant=pytest.fail)
        if audit.exists():
            with audit.open(newline="") as file:
                found.lines = list(csv.DictReader(file))
        found.rows = [int(line["row"]) for line in found.lines]
        found.places = [(int(line["epoch"]), int(line["step"])) for line in found.lines]
        return found

    return run
