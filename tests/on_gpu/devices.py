"""The devices that tests compare with the CPU, and how they read an archive there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_pipelines import Index, Loader
from dali_pipelines.frameworks.contract import Batch

Images = dict[int, NDArray[Any]]
"""Row -> image, shape (channels, height, width)."""

DEVICES = [
    pytest.param(None, id="cpu"),
    pytest.param(0, id="gpu", marks=pytest.mark.gpu),
]
"""A test that takes these runs without a GPU, too: another batch size, against one by one."""

SEED = 11

GEOMETRY: list[dict[str, Any]] = [
    {"crop": (24, 31), "window": "random", "rotate": 30.0, "zoom": (0.8, 1.5), "flip": "hv"},
    {"random_area": (0.2, 1), "resize": (17, 13), "flip": "h"},
    {"resize_shorter": 30, "crop": (24, 28), "window": "random"},
]
"""Windows that are resampled, each in its way."""

RESIZED = {"rtol": 1e-3, "atol": 0.05}
"""Tolerance of a resize: DALI's filter on the GPU, and ours on the CPU."""


def named(value: Any) -> str:
    """Return the id of a parameter, the same in all processes."""
    names = value if isinstance(value, dict) else (getattr(value, "__name__", str(value)),)
    return "-".join(names)


def one_by_one(factory: Callable[..., Any], index: Index, **settings: Any) -> Images:
    """Read an epoch on the CPU, an image at a time, without reader processes."""
    pipeline = factory(
        index, batch_size=1, num_read_processes=0, shuffle=False, seed=SEED, **settings
    )
    pipeline.build()
    found: Images = {}
    for row in range(len(index)):
        outputs = dict(zip(pipeline.output_names, pipeline.run(), strict=True))
        assert np.asarray(outputs["row"].as_tensor()).tolist() == [row]
        assert np.asarray(outputs["valid"].as_tensor()).all()
        found[row] = np.array(outputs["image"].as_tensor())[0]
    pipeline.close()
    return found


def epoch(
    factory: Callable[..., Any],
    index: Index,
    devices: Sequence[int | None],
    *,
    batch_size: int = 3,
    **settings: Any,
) -> Images:
    """Read an epoch by a Loader, each row once."""
    with Loader(
        factory,
        index,
        batch_size=batch_size,
        num_read_processes=len(devices),
        devices=devices,
        seed=SEED,
        **settings,
    ) as loader:
        return gathered(loader)


def gathered(steps: Iterable[list[Batch]]) -> Images:
    """Return the images of some steps, none of which comes twice."""
    found: Images = {}
    for batches in steps:
        for batch in batches:
            for row, image in zip(batch["row"].tolist(), batch["image"].cpu(), strict=True):
                assert row not in found
                found[row] = image.numpy()
    return found


def check(found: Images, expected: Images, *, rtol: float = 0, atol: float = 0) -> None:
    """Compare images by row; those that are expected must not be all of one value."""
    assert sorted(found) == sorted(expected)
    for row, image in expected.items():
        assert found[row].dtype == image.dtype
        assert np.nanmax(image) > np.nanmin(image)
        as_floats = found[row].astype(np.float64), image.astype(np.float64)
        np.testing.assert_allclose(*as_floats, rtol, atol, err_msg=f"row {row}")


def check_most(found: Images, expected: Images, most: float = 3) -> None:
    """Compare where roundings differ: 1 % of the values may be further off.

    Of subsampled colours nvJPEG differs from the CPU by 3 of 255 at most on an H100, but for
    progressive files, of which 1 of 10,000 values does.
    """
    assert sorted(found) == sorted(expected)
    for row, image in expected.items():
        assert found[row].dtype == image.dtype
        assert np.nanstd(image) > 5
        both = np.isnan(found[row]) & np.isnan(image)
        far = ~(both | (np.abs(found[row].astype(float) - image.astype(float)) <= most))
        assert far.mean() < 0.01, f"row {row}"
