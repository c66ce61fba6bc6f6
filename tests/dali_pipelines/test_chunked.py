"""Chunked arrays as batches: channels, stretches, stored integers, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from read_here import in_this_process, read_here

from dali_pipelines import Index, Loader, Stretch, chunked_pipeline, pixel_statistics
from dali_pipelines.cli.main import main as command

QUIET: dict[str, Any] = {"devices": [None], "num_read_processes": 1}


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
    with Loader(chunked_pipeline, index, batch_size=7, stretch={"u10": stretch}, **QUIET) as loader:
        (batch,) = next(iter(loader))
        np.testing.assert_array_equal(batch["image"].numpy(), found[batch["row"].numpy()])
    np.testing.assert_array_equal(found[:, 0], dataset.t2m.values)
    np.testing.assert_allclose(found[:, 1], stretch(dataset.u10.values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variables": ["t2n"]}, "no variable 't2n'.*has t2m, u10"),
        ({"variables": "t2m"}, "must be names"),
        ({"variables": []}, "must be names"),
        ({"stretch": {"t2n": Stretch()}}, "'t2n'.*variable.*t2m, u10"),
    ],
)
def test_settings(index: Index, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        chunked_pipeline(index, batch_size=1, num_read_processes=0, **settings)


def test_another_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Index.from_zarr"):
        chunked_pipeline(Index.from_paths([tmp_path / "a"]), batch_size=1)


def test_sequences(index: Index, dataset: xr.Dataset) -> None:
    sequences = index.group(offsets=("-6h", "0", "+12h"), time="time", tolerance="1h")
    assert len(sequences) == 4
    found = read_here(chunked_pipeline, sequences, shuffle=False, variables=["u10", "t2m"])
    assert list(found) == [0, 1, 2, 3]
    for row, sample in found.items():
        times = [row, row + 1, row + 3]
        expected = np.stack([dataset.u10.values[times], dataset.t2m.values[times]], axis=1)
        np.testing.assert_array_equal(sample["image"], expected, strict=True)


def test_integers_as_stored(tmp_path: Path) -> None:
    stored = np.arange(4 * 9 * 8).reshape(4, 9, 8) - 7
    packed = {"dtype": "int16", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -7}
    values = xr.DataArray(stored * 0.5 + 3.0, dims=("time", "y", "x"))
    root = tmp_path / "packed.zarr"
    values.to_dataset(name="v").to_zarr(root, encoding={"v": packed}, zarr_format=2)
    index = Index.from_zarr(root)
    as_stored = images(index, dtype="int16")
    np.testing.assert_array_equal(as_stored[:, 0], stored.astype(np.int16), strict=True)
    truth = xr.open_zarr(root)["v"].values.astype(np.float32)
    np.testing.assert_array_equal(images(index)[:, 0], truth, strict=True)
    assert np.isnan(truth).sum() == 1


def test_geometry_and_statistics(index: Index, dataset: xr.Dataset) -> None:
    """What other Readers with `regions` can do: turn, resize, measure."""
    settings: dict[str, Any] = {"crop": 12, "window": "random", "flip": "hv", "seed": 4}
    turned = images(index, rotate=30, zoom=(0.8, 1.2), **settings)
    assert turned.shape == (7, 2, 12, 12)
    whole = images(index, resize=(10, 9))
    assert np.abs(whole.mean() - images(index).mean()) < 1
    found = pixel_statistics(partial(in_this_process, chunked_pipeline), index, count=7)
    np.testing.assert_allclose(found.mean, [dataset.t2m.mean(), dataset.u10.mean()], rtol=1e-3)


def test_a_loader_resumes_in_mid_epoch(index: Index) -> None:
    settings: dict[str, Any] = {"crop": 8, "window": "random", "seed": 2, "devices": [None]}
    with Loader(chunked_pipeline, index, batch_size=2, num_read_processes=2, **settings) as loader:
        batches = [batch for (batch,) in loader]
        rows = [row for batch in batches for row in batch["row"].tolist()]
        assert sorted(rows) == list(range(7))
    with Loader(chunked_pipeline, index, batch_size=2, num_read_processes=2, **settings) as loader:
        steps = iter(loader)
        next(steps)
        state = loader.state_dict()
    with Loader(chunked_pipeline, index, batch_size=3, num_read_processes=1, **settings) as loader:
        loader.load_state_dict(state)
        rest = [batch for (batch,) in loader]
    assert [row for batch in rest for row in batch["row"].tolist()] == rows[2:]
    np.testing.assert_array_equal(
        np.concatenate([batch["image"].numpy() for batch in rest]),
        np.concatenate([batch["image"].numpy() for batch in batches])[2:],
    )


def test_a_damaged_chunk_is_skipped_and_named(dataset: xr.Dataset, tmp_path: Path) -> None:
    root = tmp_path / "damaged.zarr"
    encoding = {"t2m": {"chunks": (1, 20, 18)}}
    dataset[["t2m"]].to_zarr(root, zarr_format=2, encoding=encoding)
    (root / "t2m" / "3.0.0").write_bytes(b"not Blosc at all")
    index = Index.from_zarr(root)
    settings: dict[str, Any] = {"batch_size": 2, "devices": [None], "bad_sample": "skip"}
    with Loader(chunked_pipeline, index, num_read_processes=1, **settings) as loader:
        rows = [row for (batch,) in loader for row in batch["row"].tolist()]
        assert sorted(rows) == [0, 1, 2, 4, 5, 6]
        assert list(loader.stats.rejected) == [3]


def test_commands_take_a_store(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--pipeline=chunked", "--batch_size=2", "--num_read_processes=1", "--crop=8"]
    assert command(["run", f"--data={index.path(0)}", *settings]) == 0
    assert "7" in capsys.readouterr().out
    assert command(["run", "--pipeline=chunked"]) == 2
    store, picture = index.path(0), tmp_path / "sheet.png"
    assert command(["stats", store, "--pipeline=chunked"]) == 0
    assert command(["show", store, "--pipeline=chunked", "-o", str(picture), "--count=2"]) == 0
    assert picture.stat().st_size
    assert command(["show", str(tmp_path), "--pipeline=chunked", "-o", str(picture)]) != 0
