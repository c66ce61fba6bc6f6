"""Calibrated images on a GPU are those on the CPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_pipelines import Index, Stretch, aia_pipeline
from on_gpu import archives
from on_gpu.devices import DEVICES, check, epoch, named, one_by_one

GRID: dict[str, Any] = {"size": 128, "scale": 19.2}
TURNED: dict[str, Any] = {
    **GRID,
    "crop": (60, 70),
    "window": "random",
    "flip": "hv",
    "rotate": 40.0,
    "zoom": (0.8, 1.5),
}
DN = {"rtol": 1e-5, "atol": 0.01}
"""Of values up to 1500 DN: sums of float32 in another order."""
STRETCHED = {"rtol": 1e-5, "atol": 1e-4}


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return archives.aia_frames(tmp_path_factory.mktemp("frames"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        (GRID, DN),
        (TURNED | {"exposure": True}, DN),
        ({"size": 32, "scale": 76.8, "missing": math.nan, "radius": 40.0, "center": "sun"}, DN),
        (TURNED | {"dtype": "float16"}, {"rtol": 2**-9, "atol": 0.01}),
    ],
    ids=named,
)
def test_frames(
    frames: Index,
    settings: dict[str, Any],
    tolerance: dict[str, float],
    order: int,
    device: int | None,
) -> None:
    settings = {**settings, "order": order}
    if "radius" in settings:
        settings["scale"] = None
    expected = one_by_one(aia_pipeline, frames, **settings)
    check(epoch(aia_pipeline, frames, [device], **settings), expected, **tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "stretch",
    [
        Stretch(kind="asinh", a=50, mean=1, std=2),
        Stretch(kind="sqrt", clip=(0, 500)),
        Stretch(kind="log1p", clip=(0, 900), unit=3),
        Stretch(kind="signed_log1p", unit=9),
    ],
    ids=lambda stretch: stretch.kind,
)
def test_stretches(frames: Index, stretch: Stretch, device: int | None) -> None:
    settings = {**TURNED, "stretch": stretch}
    expected = one_by_one(aia_pipeline, frames, **settings)
    check(epoch(aia_pipeline, frames, [device], **settings), expected, **STRETCHED)


@pytest.mark.parametrize("device", DEVICES)
def test_several_channels(tmp_path: Path, device: int | None) -> None:
    """A channel that is missing is NaN in all of its image."""
    index = archives.aia_samples(tmp_path)
    expected = one_by_one(aia_pipeline, index, **TURNED)
    assert [bool(np.isnan(image[1]).all()) for image in expected.values()] == [0, 0, 1, 0]
    check(epoch(aia_pipeline, index, [device], **TURNED), expected, **DN)
