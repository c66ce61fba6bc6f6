"""Levels of a variable as channels of batches: settings by name, statistics, resume, commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from read_here import read_here

from dali_pipelines import Index, Loader, Mask, Stretch, chunked_pipeline, pixel_statistics
from dali_pipelines.cli.main import main as command

QUIET: dict[str, Any] = {"devices": [None], "num_read_processes": 1}
LEVELS = [3, 0]
NAMES = ["z_500", "z_1000", "t2m"]


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    rng = np.random.default_rng(3)
    times = np.datetime64("2020-01-01", "ns") + np.arange(7) * np.timedelta64(6, "h")
    return xr.Dataset(
        {
            "z": (("time", "level", "lat", "lon"), rng.normal(280, 9, (7, 4, 20, 18)).astype("f4")),
            "t2m": (("time", "lat", "lon"), rng.normal(0, 5, (7, 20, 18)).astype("f4")),
            "front": (("time", "lat", "lon"), rng.integers(0, 3, (7, 20, 18)).astype("u1")),
        },
        {"time": times, "level": [1000, 850, 700, 500]},
    )


@pytest.fixture(scope="module", params=["zarr", "nc"])
def path(dataset: xr.Dataset, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("levels") / f"a.{request.param}"
    chunks = (2, 4, 8, 18)
    if request.param == "zarr":
        dataset.to_zarr(path, zarr_format=2, encoding={"z": {"chunks": chunks}})
    else:
        how = {"chunksizes": chunks, "zlib": True}
        dataset.to_netcdf(path, encoding={"z": how}, engine="h5netcdf")
    return path


def index_of(path: Path, variables: tuple[str, ...] = ("z", "t2m")) -> Index:
    make = Index.from_zarr if path.suffix == ".zarr" else Index.scan_arrays
    return make(path, variables=variables, dim="time", isel={"level": LEVELS})


@pytest.fixture
def index(path: Path) -> Index:
    return index_of(path)


@pytest.fixture
def truth(dataset: xr.Dataset) -> Any:
    z = dataset.z.isel(level=LEVELS).values
    return np.concatenate([z, dataset.t2m.values[:, None]], axis=1)


def images(index: Index, **settings: Any) -> Any:
    found = read_here(chunked_pipeline, index, shuffle=False, **settings)
    return np.stack([one["image"] for one in found.values()])


def test_channels(index: Index, truth: Any) -> None:
    np.testing.assert_array_equal(images(index), truth, strict=True)
    np.testing.assert_array_equal(images(index, crop=(5, 7)), truth[:, :, 7:12, 5:12], strict=True)
    for names, channels in (
        (["t2m", "z"], [2, 0, 1]),
        (["z_1000"], [1]),
        (["z_1000", "z_500"], [1, 0]),
    ):
        np.testing.assert_array_equal(images(index, variables=names), truth[:, channels])
    with pytest.raises(ValueError, match=r"'z_850'.*z_500, z_1000, t2m"):
        images(index, variables=["z_850"])


def test_settings_by_level(index: Index, truth: Any) -> None:
    curve = Stretch(unit=10, kind="asinh")
    found = images(index, stretch={"z": curve, "z_1000": Stretch(mean=280, std=2)})
    np.testing.assert_allclose(found[:, 0], curve(truth[:, 0]), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[:, 1], (truth[:, 1] - 280) / 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[:, 2], truth[:, 2])
    found = images(index, mean=(280, 270, 0), std=(9, 8, 5))
    mean, std = (np.array(one, "f4")[:, None, None] for one in ([280, 270, 0], [9, 8, 5]))
    np.testing.assert_allclose(found, (truth - mean) / std, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"'q'.*z_500, z_1000, t2m"):
        images(index, stretch={"q": curve})


def test_statistics(index: Index, truth: Any) -> None:
    found = pixel_statistics(chunked_pipeline, index, num_read_processes=1)
    np.testing.assert_allclose(found.mean, truth.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found.std, truth.std((0, 2, 3)), rtol=1e-4)


def test_sequences(index: Index, truth: Any) -> None:
    sequences = index.group(offsets=("-6h", "0", "+12h"), time="time", tolerance="1h")
    found = images(sequences)
    assert len(found) == 4
    for row, sample in enumerate(found):
        np.testing.assert_array_equal(sample, truth[[row, row + 1, row + 3]], strict=True)


def test_masks(path: Path, dataset: xr.Dataset, truth: Any) -> None:
    index = index_of(path, ("z", "t2m", "front"))
    targets = {"mask": Mask(variable="front")}
    settings = {"targets": targets, "crop": (9, 8), "window": "random", "seed": 4}
    found = read_here(chunked_pipeline, index, shuffle=False, outputs=["window"], **settings)
    for row, one in found.items():
        assert one["image"].shape == (3, 9, 8)
        y, x = map(int, one["window"][:2])
        np.testing.assert_array_equal(one["image"], truth[row, :, y : y + 9, x : x + 8])
        front = dataset.front.values[row, y : y + 9, x : x + 8]
        np.testing.assert_array_equal(one["mask"], front)


def test_resume(index: Index, truth: Any) -> None:
    settings: dict[str, Any] = {"batch_size": 2, "seed": 5, **QUIET}
    rows = []
    with Loader(chunked_pipeline, index, **settings) as loader:
        for (batch,) in loader:
            np.testing.assert_array_equal(batch["image"].numpy(), truth[batch["row"].numpy()])
            rows += batch["row"].tolist()
            if len(rows) == 4:
                state = loader.state_dict()
                break
    with Loader(chunked_pipeline, index, **settings) as loader:
        loader.load_state_dict(state)
        for (batch,) in loader:
            np.testing.assert_array_equal(batch["image"].numpy(), truth[batch["row"].numpy()])
            rows += batch["row"].tolist()
    assert sorted(rows) == list(range(7))


@pytest.mark.parametrize(("isel", "positions"), [("level=3,0", [3, 0]), ("level=1:", [1, 2, 3])])
def test_commands(
    path: Path,
    tmp_path: Path,
    isel: str,
    positions: list[int],
    dataset: xr.Dataset,
    capfd: pytest.CaptureFixture[str],
) -> None:
    made = str(tmp_path / "a.parquet")
    flags = ["--variables", "z,t2m", "--dim", "time", "--isel", isel]
    assert command(["index", str(path), *flags, "-o", made]) == 0
    names = [f"z_{label}" for label in dataset.level.values[positions]]
    out, _ = capfd.readouterr()
    assert ", ".join([*names, "t2m"]) in out
    assert command(["verify", made, "--window", "0,0,9,9"]) == 0
    assert command(["stats", made, "--pipeline", "chunked"]) == 0
    expected = dataset.z.isel(level=positions).values
    np.testing.assert_array_equal(images(Index.load(made))[:, :-1], expected)
    show = ["show", made, "--pipeline", "chunked", "--variables", "z", "--count", "1"]
    assert command([*show, "-o", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "isel", ["level", "level=", "level=1,,2", "3", "level=1,level=2", "level=1:2,3"]
)
def test_flags_that_are_no_positions(
    path: Path, isel: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(["index", str(path), "--variables", "z", "--isel", isel]) == 2
    assert "level=3" in capfd.readouterr().err
