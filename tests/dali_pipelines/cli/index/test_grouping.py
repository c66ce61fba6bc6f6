"""The flags --group and --offsets: samples of several files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SUN = {
    "171_0.fits": (171, "2015-01-01T00:00:00.34"),
    "193_0.fits": (193, "2015-01-01T00:00:06.84"),
    "171_1.fits": (171, "2015-01-01T00:00:12.34"),
    "193_2.fits": (193, "2015-01-01T00:00:30.84"),
    "171_2.fits": (171, "2015-01-01T00:00:24.34"),
}


@pytest.fixture
def sun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]) -> Path:
    """Three frames of one channel, 12 s apart, and two of another."""
    for name, (wavelength, moment) in SUN.items():
        quality = 4 if name == "193_2.fits" else 0
        header = {"WAVELNTH": wavelength, "T_OBS": f"{moment}Z", "QUALITY": quality}
        write(tmp_path / "sun" / name, header)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sun"


def test_of_a_scan(sun: Path, index: Run) -> None:
    found = index(sun, "--group", "171,193", "--tolerance=7")
    assert found.err == ""
    for figure in ("5 rows kept", "2 samples of 2 channels", "1 of 3 samples dropped"):
        assert figure in found.out
    assert found.names == ["171_1.fits", "171_2.fits"]
    assert found.table["dt_193"].to_pylist() == [-5.5, 6.5]
    part = found.made.columns(parts=("193",)).row(0).part("193")
    assert (part.path, part.hdu) == (str(sun / "193_0.fits"), 0)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_of_an_index(sun: Path, index: Run, suffix: str) -> None:
    whole = index(sun)
    if suffix == "csv":
        whole.table.to_pandas().to_csv("index.csv")
    flags = "--group=171, 193", "--missing=keep", "--where=quality = 0", "--tolerance=7s"
    found = index(f"index.{suffix}", *flags, out="samples.parquet")
    assert found.err == ""
    for figure in ("4 rows kept, 1 dropped by --where", "3 samples", "193 is missing in 2"):
        assert figure in found.out
    assert found.table["path_193"].to_pylist() == [None, str(sun / "193_0.fits"), None]
    assert index(sun, *flags, out="again.parquet").made.digest == found.made.digest


def test_an_index_is_filtered(sun: Path, index: Run) -> None:
    columns = index(sun).table.column_names
    later = "--where=\"T_OBS\" > '2015-01-01 00:00:20'"
    few = index("index.parquet", later, out="few.parquet")
    assert few.names == ["171_2.fits", "193_2.fits"]
    assert few.table.column_names == columns


def test_a_cadence(sun: Path, index: Run) -> None:
    flags = ("--by=wavelnth", "--time=t_obs", "--cadence=1min", "--tolerance=10")
    assert index(sun, "--group=193,171", *flags).table["dt_171"].to_pylist() == [0.34]


def test_rows_in_no_sample(
    sun: Path, index: Run, write: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("171_3.fits", "171_4.fits"):
        write(sun / name, {"WAVELNTH": 171, "T_OBS": f"{SUN['171_1.fits'][1]}Z"})
    index(sun, "--group=171")
    [message] = caplog.messages
    for fact in ("2 of 5 rows", "'t_obs'", f"{sun}/171_3.fits"):
        assert fact in message


def test_sequences(sun: Path, index: Run) -> None:
    offsets = ("--offsets", "-12s,0", "--tolerance=1")
    found = index(sun, "--group=171,193", *offsets, "--missing=keep")
    assert "3 samples of 2 channels at 2 times" in found.out
    for figure in ("171-12s is missing in 1", "193-12s is missing in 3", "193+0 is missing in 3"):
        assert figure in found.out
    assert (found.made.channels, found.made.offsets) == (("171", "193"), ("-12s", "0"))
    found = index(sun, "--where=wavelnth = 171", "--overwrite", *offsets)
    assert "2 samples of 2 frames" in found.out
    assert "1 of 3 samples dropped" in found.out
    assert found.made.parts == ("-12s", "0")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--group=171,94"], ["--group", "'wavelnth'", "'94'", "171 (3 rows)"]),
        (["--group=171,193", "--tolerance=1"], ["3 have '171'", "5.5 s", "--tolerance", "keep"]),
        (["--group=171", "--where=wavelnth = 1"], ["--where"]),
    ],
)
def test_no_sample_is_left(sun: Path, index: Run, flags: list[str], named: list[str]) -> None:
    found = index(sun, *flags, status=1)
    assert found.out == ""
    assert [word for word in named if word not in found.err] == []
    assert os.listdir() == ["sun"]
