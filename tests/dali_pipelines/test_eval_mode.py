"""Mode eval is without chance; `test_loader_machine.py` tests where its loops begin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_pipelines import Index, Loader, PipelineConfig, npy_pipeline

CHANCE: dict[str, Any] = {
    "crop": (4, 4),
    "window": "random",
    "flip": "hv",
    "rotate": 40.0,
    "zoom": (0.5, 2.0),
}


@pytest.fixture(scope="module")
def ramps(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Images each pixel of which has a value of its own."""
    folder = tmp_path_factory.mktemp("ramps")
    for row in range(5):
        np.save(folder / f"{row}.npy", np.arange(99, dtype=np.float32).reshape(9, 11) + 100 * row)
    return Index.scan(folder)


def test_all_chance_is_off(ramps: Index) -> None:
    with Loader(
        npy_pipeline, ramps, batch_size=4, devices=[None], mode="eval", seed=3, **CHANCE
    ) as loader:
        for _ in range(2):
            images = [image.numpy() for (batch,) in loader for image in batch["image"]]
            for row, image in enumerate(images):
                middle = np.load(ramps.path(row))[2:6, 3:7]
                assert np.array_equal(image[0], middle)
            assert len(images) == 5


def test_what_eval_leaves_as_it_is() -> None:
    config = PipelineConfig(batch_size=1, mode="eval", crop=4, zoom=(2, 2), rotate=9.0)
    assert (config.zoom, config.rotate, config.shuffle) == ((2, 2), 0.0, False)
    assert PipelineConfig(batch_size=1, mode="eval", shuffle=True).shuffle
    assert PipelineConfig(batch_size=1).shuffle


def test_regions_are_nothing_but_chance() -> None:
    with pytest.raises(ValueError, match=r"random_area .*mode 'eval'.*resize_shorter"):
        PipelineConfig(batch_size=1, mode="eval", random_area=(0.1, 1), resize=8)
    with pytest.raises(ValueError, match=r"mode.*'train', 'eval'.*'test'"):
        PipelineConfig(batch_size=1, mode="test")  # type: ignore[arg-type]
