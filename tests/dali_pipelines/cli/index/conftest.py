"""A small archive, and the command that indexes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from astropy.io import fits

from readers import Index

HEADERS = {
    "a.fits": {"DATE-OBS": "2015-01-01T00:00:00.5", "WAVELNTH": 171, "EXPTIME": 2.0, "QUALITY": 0},
    "b.fits": {"DATE-OBS": "2014-12-31T23:59:59Z", "WAVELNTH": 171, "EXPTIME": 1, "QUALITY": -1},
    "c.fits": {"DATE-OBS": "nan", "WAVELNTH": 193, "QUALITY": 5},
    "sub/d.fits": {"DATE-OBS": "2016-02-30", "WAVELNTH": 171, "EXPTIME": 2.9, "QUALITY": 0},
}


@pytest.fixture
def write() -> Callable[..., None]:
    """Write a FITS file of 4x5 pixels with a header."""

    def write(path: Path, header: dict[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fits.PrimaryHDU(np.zeros((4, 5), np.int16), fits.Header(header)).writeto(path)

    return write


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]) -> Path:
    """Four readable files, a truncated one and a text; the current folder is beside them."""
    folder = tmp_path / "archive"
    for name, header in HEADERS.items():
        write(folder / name, header)
    (folder / "e_truncated.fits").write_bytes((folder / "a.fits").read_bytes()[:-2880])
    (folder / "f_text.fits").write_text("no FITS file\n")
    (folder / "README.md").write_text("not looked at")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.fixture
def index(command: Callable[..., tuple[str, str]]) -> Callable[..., SimpleNamespace]:
    """Run ``index`` in this process.

    Give what it prints as `out` and `err` and, if it succeeds, what it wrote: the Index as `made`,
    its `table`, and the `names` of the files in it.
    """

    def index(
        *flags: object, out: str = "index.parquet", status: int = 0, num_processes: int = 1
    ) -> SimpleNamespace:
        always = f"--num_processes={num_processes}", "-o", out
        printed, err = command("index", *flags, *always, status=status)
        found = SimpleNamespace(out=printed, err=err)
        if status == 0:
            found.made = Index.load(out)
            found.table = found.made.table
            found.names = [os.path.basename(path) for path in found.table["path"].to_pylist()]
        return found

    return index
