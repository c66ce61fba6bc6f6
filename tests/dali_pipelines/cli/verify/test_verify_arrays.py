"""Verify of arrays in chunks, against xarray."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr_stores import BLOSC, frames, write_array

from dali_pipelines import Index

Verify = Callable[..., dict[str, str]]


@pytest.fixture
def dataset() -> xr.Dataset:
    numbers = frames((3, 31, 23))
    axes = ("time", "y", "x")
    return xr.Dataset(
        {
            "a": (axes, numbers),
            "packed": (axes, np.round(numbers / 8) / 4 + 3),
            "wide": (axes, numbers.astype("f8") / 3),
            "count": (axes, numbers.astype("u2")),
        }
    )


ENCODING: dict[str, Any] = {"packed": {"dtype": "i2", "scale_factor": 0.25, "add_offset": 3.0}}
ENCODING["packed"]["_FillValue"] = -1


@pytest.mark.parametrize("version", [2, 3])
def test_zarr(verify: Verify, dataset: xr.Dataset, tmp_path: Path, version: Any) -> None:
    how: Any = {"zarr_format": version, "consolidated": False}
    dataset.to_zarr(tmp_path / "a.zarr", encoding=ENCODING, **how)
    found = verify(tmp_path / "a.zarr", "--window=3,4,20,11")
    assert sorted(found) == [f"a.zarr plane {number}" for number in range(3)]
    for line in found.values():
        assert line.split("  ")[1] == "4x20x11"
        assert "float32" in line
        assert line.endswith("0  OK")


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_netcdf(verify: Verify, dataset: xr.Dataset, tmp_path: Path, engine: Any) -> None:
    filters = {name: {"zlib": True, "shuffle": True, "chunksizes": (2, 16, 16)} for name in dataset}
    encoding: Any = {name: {**one, **ENCODING.get(str(name), {})} for name, one in filters.items()}
    dataset.to_netcdf(tmp_path / "a.nc", engine=engine, encoding=encoding)
    index = Index.scan_arrays(tmp_path / "a.nc", dim="time", variables=["packed", "wide"])
    index.save(tmp_path / "index.parquet")
    found = verify(tmp_path / "index.parquet")
    assert len(found) == 3
    assert all(line.startswith("shuffle+zlib  2x31x23") for line in found.values())
    assert all(line.endswith("OK") for line in found.values())
    # Rows of sequences are compared once each.
    with_times = index.with_column("time", np.arange("2020-01-01", "2020-01-04", dtype="M8[D]"))
    with_times.group(offsets=("0", "1d"), time="time").save(tmp_path / "sequences.parquet")
    assert verify(tmp_path / "sequences.parquet") == found


def test_what_xarray_does_not_open(verify: Verify, tmp_path: Path) -> None:
    """Arrays without names of axes, alone and in groups."""
    write_array(tmp_path / "array.zarr", frames(), (2, 16, 16), compressors=BLOSC)
    group = zarr.create_group(str(tmp_path / "group.zarr"), zarr_format=3)
    made = group.create_array("2014/171A", shape=(5, 31, 23), dtype="i2", chunks=(2, 16, 16))
    made[...] = frames(dtype="i2")
    made.attrs["scale_factor"] = 0.5
    Index.from_zarr(tmp_path / "group.zarr", variables=["2014/171A"]).save(tmp_path / "i.arrow")
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file.create_dataset("b/a", data=frames((31, 23)), chunks=(16, 16), compression="gzip")
        file["flags"] = frames((31, 23), "|b1")
    for name, count in (("array.zarr", 5), ("i.arrow", 5), ("plain.h5", 1)):
        found = verify(tmp_path / name)
        assert len(found) == count
        assert all(line.endswith("OK") for line in found.values())


def test_differences_and_damage(
    verify: Verify, change_truth: Callable[..., None], tmp_path: Path
) -> None:
    path = write_array(tmp_path / "a.zarr", frames(), (1, 31, 23), compressors=BLOSC)
    (path / "3.0.0").write_bytes(b"not Blosc")
    Index.from_zarr(path).save(tmp_path / "index.parquet")

    def change(_: str, truth: Any) -> None:
        if truth.values is not None and truth.values[0, 0, 0] == frames()[1, 0, 0]:
            truth.values[0, 2, 3] += 0.5

    change_truth(change)
    report = tmp_path / "report.json"
    found = verify(tmp_path / "index.parquet", f"--json={report}", status=1)
    words = {
        name: line.split("  ")[-1 if line.endswith("OK") else -2] for name, line in found.items()
    }
    verdicts = ["OK", "DIFFERS", "OK", "REJECTED", "OK"]
    assert words == {f"a.zarr plane {n}": word for n, word in enumerate(verdicts)}
    files = json.loads(report.read_text())["files"]
    assert [one["plane"] for one in files] == [0, 1, 2, 3, 4]
    assert files[1]["max_difference"] == 0.5


def test_what_is_missing_is_said(
    command: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_array(tmp_path / "a.zarr", frames(), (2, 16, 16))
    xr.Dataset().to_netcdf(tmp_path / "empty.nc", engine="h5netcdf")
    _, err = command("verify", tmp_path / "empty.nc", status=2)
    assert "no array has two axes" in err
    _, err = command("verify", tmp_path / "a.zarr", "--hdu=1", status=2)
    assert "--hdu is for FITS" in err
    (tmp_path / "frame.fits").write_bytes(b"")
    _, err = command("verify", tmp_path / "a.zarr", tmp_path / "frame.fits", status=2)
    assert "frame.fits" in err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    _, err = command("verify", tmp_path / "a.zarr", status=2)
    assert "pip install xarray zarr" in err
