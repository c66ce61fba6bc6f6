"""The setting `flip_probability`, of images and of what follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_pipelines import Index, Loader, npy_pipeline

NUM_ROWS = 300


@pytest.fixture(scope="module")
def ramps(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder: Path = tmp_path_factory.mktemp("ramps")
    np.save(folder / "ramp.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    return Index.scan(folder).select(np.zeros(NUM_ROWS, int))


def flips_of(index: Index, batch_size: int = 100, **settings: Any) -> np.ndarray:
    """Return whether each row was flipped, left-right and up-down, by its pixels."""
    found = np.zeros((len(index), 2), bool)
    options: dict[str, Any] = {"num_read_processes": 1, "devices": "cpu", "outputs": ("flip",)}
    with Loader(npy_pipeline, index, batch_size=batch_size, **options, **settings) as loader:
        for step in loader:
            for row, image, flip in zip(step["row"], step["image"], step["flip"], strict=True):
                found[row] = image[0, 0, 0] > image[0, 0, 1], image[0, 0, 0] > image[0, 1, 0]
                assert found[row].tolist() == flip.tolist()
    return found


@pytest.mark.parametrize("flip", ["h", "hv"])
@pytest.mark.parametrize("probability", [0, 0.2, 1])
def test_as_often_as_it_says(ramps: Index, flip: Any, probability: float) -> None:
    found = flips_of(ramps, flip=flip, flip_probability=probability)
    share = found.mean(axis=0)
    assert abs(share[0] - probability) < 0.08
    assert abs(share[1] - (probability if flip == "hv" else 0)) < 0.08
    if probability in (0, 1):
        assert share[0] == probability
    other = flips_of(ramps, 70, flip=flip, flip_probability=probability)
    np.testing.assert_array_equal(found, other)


def test_half_is_the_default(ramps: Index) -> None:
    np.testing.assert_array_equal(
        flips_of(ramps, flip="hv"), flips_of(ramps, flip="hv", flip_probability=0.5)
    )
