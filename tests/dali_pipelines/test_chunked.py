"""Chunked arrays as batches: channels, stretches, stored integers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from read_here import read_here

from dali_pipelines import Index, Stretch, chunked_pipeline


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    rng = np.random.default_rng(3)
    axes = ("time", "lat", "lon")
    return xr.Dataset(
        {
            "t2m": (axes, rng.normal(280, 9, (7, 20, 18)).astype("f4")),
            "u10": (axes, rng.normal(0, 5, (7, 20, 18)).astype("f4")),
        },
        {"time": np.datetime64("2020-01-01", "ns") + np.arange(7) * np.timedelta64(6, "h")},
    )


@pytest.fixture(scope="module", params=[2, 3])
def index(
    dataset: xr.Dataset, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Index:
    root = tmp_path_factory.mktemp("stores") / f"v{request.param}.zarr"
    chunks = {name: {"chunks": (3, 8, 8)} for name in ("t2m", "u10")}
    is_v2 = request.param == 2
    dataset.to_zarr(root, zarr_format=request.param, encoding=chunks, consolidated=is_v2)
    return Index.from_zarr(root)


def images(index: Index, **settings: Any) -> Any:
    found = read_here(chunked_pipeline, index, shuffle=False, **settings)
    return np.stack([one["image"] for one in found.values()])


def test_variables_are_channels(index: Index, dataset: xr.Dataset) -> None:
    both = np.stack([dataset.t2m.values, dataset.u10.values], axis=1)
    np.testing.assert_array_equal(images(index), both, strict=True)
    one = images(index, variables=["u10"], crop=(5, 7))
    np.testing.assert_array_equal(one, both[:, 1:, 7:12, 5:12], strict=True)


def test_times(index: Index, dataset: xr.Dataset) -> None:
    np.testing.assert_array_equal(index["time"].to_numpy(), dataset.time.values)


def test_a_stretch_for_each_variable(index: Index, dataset: xr.Dataset) -> None:
    stretch = Stretch(unit=100, kind="asinh")
    found = images(index, stretch={"u10": stretch})
    np.testing.assert_array_equal(found[:, 0], dataset.t2m.values)
    np.testing.assert_allclose(found[:, 1], stretch(dataset.u10.values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variables": ["t2n"]}, "no variable 't2n'.*has t2m, u10"),
        ({"variables": "t2m"}, "must be names"),
        ({"variables": []}, "must be names"),
        ({"stretch": {"t2n": Stretch()}}, "'t2n'.*no variable.*t2m, u10"),
    ],
)
def test_settings(index: Index, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        chunked_pipeline(index, batch_size=1, num_read_processes=0, **settings)


def test_another_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Index.from_zarr"):
        chunked_pipeline(Index.from_paths([tmp_path / "a"]), batch_size=1)
