"""dtype bfloat16: the values of float32, rounded as PyTorch rounds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import solar_files
import torch
from astropy.io import fits
from PIL import Image

from dali_pipelines import (
    ColorJitter,
    Index,
    Loader,
    PipelineConfig,
    Preprocessor,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)

SETTINGS: list[dict[str, Any]] = [
    {},
    {"resize": (17, 13), "flip": "hv", "mean": 100, "std": 50},
    {"crop": 20, "augment": (ColorJitter(0.4, 0.4),)},
    {"crop": 50, "outside": "fill", "missing": 1e20},
    {"crop": 50, "outside": "fill"},  # NaN
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("photos")
    for row in range(4):
        pixels = np.random.default_rng(row).integers(0, 256, (40, 30, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    return Index.scan(folder)


def delivered(factory: Any, index: Index, **settings: Any) -> Any:
    always: dict[str, Any] = {"num_read_processes": 1, "devices": "cpu", "seed": 5}
    with Loader(factory, index, **{"batch_size": 3, **always, **settings}) as loader:
        return [step["image"] for step in loader]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_they_are_the_floats_as_torch_rounds_them(photos: Index, settings: Any) -> None:
    exact = delivered(jpeg_pipeline, photos, **settings)
    for dtype in ("bfloat16", torch.bfloat16, ml_dtypes.bfloat16):
        found = delivered(jpeg_pipeline, photos, dtype=dtype, **settings)
        for a, b in zip(found, exact, strict=True):
            assert a.dtype == torch.bfloat16
            assert torch.equal(a.nan_to_num(7), b.to(torch.bfloat16).nan_to_num(7))


@pytest.mark.parametrize("sharded", [False, True])
def test_jax(photos: Index, sharded: bool) -> None:
    settings: dict[str, Any] = {"resize": (17, 13), "mean": 100, "std": 50, "framework": "jax"}
    if sharded:
        mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
        spec = jax.sharding.PartitionSpec("data")  # type: ignore[no-untyped-call]
        settings |= {"sharding": jax.sharding.NamedSharding(mesh, spec), "tail": "drop"}
        del settings["resize"]
        settings |= {"crop": 13, "batch_size": 2}
    exact = delivered(jpeg_pipeline, photos, **settings)
    found = delivered(jpeg_pipeline, photos, dtype="bfloat16", **settings)
    assert len(found) == len(exact) > 1
    for a, b in zip(found, exact, strict=True):
        assert isinstance(a, jax.Array)
        assert a.dtype == jnp.bfloat16
        assert jnp.array_equal(a, b.astype(jnp.bfloat16))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_lists(photos: Index, framework: Any) -> None:
    settings: dict[str, Any] = {"ragged": "list", "framework": framework}
    (found, *_) = delivered(jpeg_pipeline, photos, dtype="bfloat16", **settings)
    (exact, *_) = delivered(jpeg_pipeline, photos, **settings)
    assert len(found) == 3
    for a, b in zip(found, exact, strict=True):
        assert "bfloat16" in str(a.dtype)
        assert a.tolist() == b.tolist()  # 8 bits are exact


def test_other_formats(tmp_path: Path) -> None:
    """Of ties, which are rounded to even, and values beyond float16."""
    pixels = np.array([[1 + 2**-8, 1 + 3 * 2**-8, -1e30, 65520, np.inf, np.nan]], np.float32)
    fits.writeto(tmp_path / "a.fits", pixels)
    np.save(tmp_path / "a.npy", pixels)
    for factory, suffix in ((fits_pipeline, ".fits"), (npy_pipeline, ".npy")):
        index = Index.scan(tmp_path, suffixes=(suffix,))
        (found,) = delivered(factory, index, dtype=torch.bfloat16)
        expected = torch.from_numpy(pixels).to(torch.bfloat16)
        assert torch.equal(found[0, 0].nan_to_num(3), expected.nan_to_num(3))
        assert found[0, 0, 0, :2].tolist() == [1, 1 + 2**-6]


def test_calibrated_frames(tmp_path: Path) -> None:
    pixels, header = solar_files.frame()
    index = Index.from_paths([solar_files.save(tmp_path / "a.fits", pixels, header)])
    (exact,) = delivered(aia_pipeline, index, size=64)
    (found,) = delivered(aia_pipeline, index, size=64, dtype="bfloat16")
    assert torch.equal(found.nan_to_num(7), exact.to(torch.bfloat16).nan_to_num(7))


@pytest.mark.parametrize("framework", ["numpy", "dlpack", "cupy"])
def test_others_have_none(photos: Index, framework: Any) -> None:
    given: dict[str, Any] = {"dtype": torch.bfloat16, "framework": framework}
    message = rf"framework='{framework}'.*bfloat16.*'float32'.*'torch'"
    try:
        with pytest.raises(ValueError, match=message):
            Loader(jpeg_pipeline, photos, batch_size=1, **given)
        with pytest.raises(ValueError, match=message):
            Preprocessor(jpeg_pipeline, **given)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))


def test_a_preprocessor_gives_the_same(photos: Index) -> None:
    settings: dict[str, Any] = {"resize": 16, "mean": 100, "std": 50, "dtype": "bfloat16"}
    paths = photos.table["path"].to_pylist()
    options: dict[str, Any] = {"batch_size": 4, "mode": "eval", "devices": "cpu"}
    with Loader(jpeg_pipeline, photos, num_read_processes=1, **options, **settings) as loader:
        (batch,) = next(iter(loader))
        assert "preprocess" in loader.state_dict()
        with loader.preprocessor() as pre:
            assert torch.equal(pre(paths)["image"], batch["image"])


def test_a_pipeline_without_a_loader_delivers_float32(photos: Index) -> None:
    pipeline = jpeg_pipeline(photos, batch_size=4, num_read_processes=0, dtype="bfloat16")
    pipeline.build()
    assert np.array(pipeline.run()[0].as_tensor()).dtype == np.float32


def test_values_are_those_of_floats() -> None:
    assert PipelineConfig(batch_size=1, dtype=torch.bfloat16).dtype == "bfloat16"
    with pytest.raises(ValueError, match=r"missing.*bfloat16"):
        PipelineConfig(batch_size=1, dtype="bfloat16", crop=9, outside="fill", missing=1e39)
