"""Pixels of FITS and .npy pipelines on a GPU are those on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_pipelines import Index, fits_pipeline, npy_pipeline
from on_gpu import archives
from on_gpu.devices import (
    DEVICES,
    GEOMETRY,
    RESIZED,
    check,
    check_most,
    epoch,
    named,
    one_by_one,
)

WINDOW: dict[str, Any] = {"crop": (24, 31), "window": "random", "flip": "hv"}
NEAR = {"rtol": 1e-6, "atol": 1e-6}
"""One operation of float32 may be rounded otherwise."""
HALF = {"rtol": 2**-10, "atol": 2**-10}


@pytest.fixture(scope="module")
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Index:
    write: Callable[[Path], Index] = request.param
    return write(tmp_path_factory.mktemp(write.__name__))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("settings", "tolerance", "index"),
    [
        ({}, {}, archives.fits_archive),
        (WINDOW, {}, archives.fits_archive),
        (WINDOW | {"mean": 500.0, "std": 30.0}, NEAR, archives.fits_archive),
        (WINDOW | {"dtype": "float16"}, HALF, archives.fits_archive),
        (WINDOW | {"dtype": "int16"}, {}, archives.integers),
        (WINDOW | {"resize": (17, 13)}, RESIZED, archives.integers),
        (WINDOW | {"planes": (4, 0, 1), "mean": (1, 2, 3)}, NEAR, archives.cubes),
        (WINDOW | {"planes": "all"}, {}, archives.cubes),
        ({"planes": (3, 1), "resize": (50, 20), "flip": "h"}, RESIZED, archives.cubes),
    ],
    ids=named,
    indirect=["index"],
)
def test_fits(
    index: Index, settings: dict[str, Any], tolerance: dict[str, float], device: int | None
) -> None:
    expected = one_by_one(fits_pipeline, index, **settings)
    check(epoch(fits_pipeline, index, [device], **settings), expected, **tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("index", [archives.integers, archives.cubes], ids=named, indirect=True)
@pytest.mark.parametrize("settings", GEOMETRY, ids=named)
def test_resampled_windows(index: Index, settings: dict[str, Any], device: int | None) -> None:
    """Of one plane or two."""
    is_cube = Path(index.path(0)).parent.name.startswith("cubes")
    settings = settings | ({"planes": (4, 1)} if is_cube else {})
    expected = one_by_one(fits_pipeline, index, **settings)
    check_most(epoch(fits_pipeline, index, [device], **settings), expected, 0.5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [({}, {}), (WINDOW | {"mean": 9.0, "std": (1, 2, 3)}, NEAR)],
    ids=named,
)
def test_npy(
    tmp_path: Path, settings: dict[str, Any], tolerance: dict[str, float], device: int | None
) -> None:
    for row in range(5):
        image = np.random.default_rng(row).integers(0, 65536, (*archives.SHAPE, 3), np.uint16)
        np.save(tmp_path / f"{row}.npy", image)
    settings = {"file_dtype": "uint16", "channels": 3, **settings}
    index = Index.scan(tmp_path)
    expected = one_by_one(npy_pipeline, index, **settings)
    check(epoch(npy_pipeline, index, [device], **settings), expected, **tolerance)
