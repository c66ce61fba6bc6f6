"""Arrays in chunks by the command index."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from dali_pipelines import Index

MakeIndex = Callable[..., SimpleNamespace]


@pytest.fixture
def dataset() -> xr.Dataset:
    """Four times of two variables with the same axes, one with levels, and one without times."""
    axes, numbers = ("time", "lat", "lon"), np.arange(4 * 9 * 8, dtype="f4").reshape(4, 9, 8)
    variables: dict[str, Any] = {"t2m": (axes, numbers), "u10": (axes, -numbers)}
    variables["z"] = ("time", "level", "lat", "lon"), np.stack([numbers, numbers + 1], axis=1)
    variables["land"] = axes[1:], (numbers[0] > 30).astype("i1")
    times = np.datetime64("2020-01-01", "ns") + np.arange(4) * np.timedelta64(6, "h")
    return xr.Dataset(variables, {"time": times})


@pytest.fixture
def store(dataset: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    dataset.to_zarr(tmp_path / "era5.zarr", zarr_format=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "era5.zarr"


@pytest.fixture
def files(dataset: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(3):
        part = dataset[["t2m", "z"]].isel(time=[number])
        part.attrs["start"] = f"2020-01-0{number + 1}T00:00:00Z"
        part.to_netcdf(folder / f"{number}.nc", engine="h5netcdf")
    monkeypatch.chdir(tmp_path)
    return folder


def same(found: Index, expected: Index) -> bool:
    return bool(found.table.select(expected.table.column_names).equals(expected.table))


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("--variables all", {}),
        ("--variables t2m,z --isel level=1", {"variables": ["t2m", "z"], "isel": {"level": 1}}),
        ("--variables u10 --columns at=time", {"variables": ["u10"], "columns": {"at": "time"}}),
        ("--variables u10 --dim lat", {"variables": ["u10"], "dim": "lat"}),
    ],
)
def test_a_store(index: MakeIndex, store: Path, flags: str, arguments: dict[str, Any]) -> None:
    found = index(store, *flags.split())
    assert same(found.made, Index.from_zarr(store, **arguments))


def test_several_stores_and_conditions(index: MakeIndex, store: Path) -> None:
    store.rename(store.with_name("2020.zarr"))
    shutil.copytree(store.with_name("2020.zarr"), store.with_name("2021.zarr"))
    flags = ("--variables", "t2m", "--where", "plane > 1", "--split", "train=0.5,val=0.5")
    index(store.with_name("*.zarr"), *flags[:4])
    made = Index.load("index.parquet")
    assert made["plane"].to_pylist() == [2, 3, 2, 3]
    found = index(store.with_name("2020.zarr"), *flags[:2], "--offsets=0,+6h", "--time=time")
    assert found.made.offsets == ("0", "+6h")
    assert len(found.made) == 3


@pytest.mark.parametrize("num_processes", [1, 2])
def test_files(
    index: MakeIndex, files: Path, num_processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dali_pipelines.cli.index.arrays._AT_ONCE", 2)
    flags = ("--variables", "t2m", "--dim", "time")
    found = index(files, *flags, num_processes=num_processes)
    assert same(found.made, Index.scan_arrays(files, variables=["t2m"], dim="time"))
    found = index(files / "*.nc", "--variables=z", "--isel=level=-1,time=0", "--columns=at=start")
    arguments: dict[str, Any] = {"isel": {"level": -1, "time": 0}, "columns": {"at": "start"}}
    assert same(found.made, Index.scan_arrays(files, variables=["z"], **arguments))


def test_files_that_cannot_be_read_are_listed(index: MakeIndex, files: Path) -> None:
    (files / "1.nc").write_bytes((files / "1.nc").read_bytes()[:3000])
    with h5py.File(files / "2.nc", "a") as file:
        del file["t2m"]
    flags = ("--variables", "t2m", "--dim", "time", "--rejected", "bad.csv")
    found = index(files, *flags)
    assert found.names == ["0.nc"]
    assert "2 rejected" in found.out
    with open("bad.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [Path(row["path"]).name for row in rows] == ["1.nc", "2.nc"]
    assert "no variable 't2m'" in rows[1]["reason"]
    (files / "0.nc").unlink()
    assert "none of 2 files can be read" in index(files, *flags, status=1).err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--variables", "t2n"], "no variable 't2n'"),
        (["--variables", "t2m", "--keys", "A"], "--keys is not for arrays"),
        (["--variables", "t2m", "--dim", "run"], "expected 'run'"),
        (["--variables", "t2m", "--isel", "level"], "level=3"),
        (["--variables", "t2m", "--isel", "levl=0"], "no axis 'levl'"),
        (["--variables", "t2m", "--columns", "path=time"], "columns"),
        (["--dim", "time"], "--dim needs --variables"),
        (["--columns", "time"], "--columns needs --cutouts or --variables"),
        ([], "it is Zarr.*--variables all"),
    ],
)
def test_flags_that_do_not_fit(index: MakeIndex, store: Path, flags: list[str], words: str) -> None:

    assert re.search(words, index(store, *flags, status=2).err)


def test_data_that_are_no_arrays(index: MakeIndex, files: Path, tmp_path: Path) -> None:
    assert "some end in .nc" in index(files, status=2).err
    assert "--variables all" in index(files, status=2).err
    (tmp_path / "empty").mkdir()
    found = index(tmp_path / "empty", "--variables", "all", status=2)
    assert "zarr.json" in found.err
    assert ".nc" in found.err
    index(files, "--variables=t2m", "--dim=time")
    assert "is a table" in index("index.parquet", "--variables=t2m", status=2).err
