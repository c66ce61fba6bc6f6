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


ROWS_CORNERS = [(0, 0), (5, 7), (1, 6), (4, 2), (3, 3)]


@pytest.mark.parametrize(
    ("window", "corners", "corner_dtype"),
    [
        ("random", [(2, 3)] * 5, int),
        ("center", [(2, 3)] * 5, int),
        ("row", ROWS_CORNERS, int),
        ("row", ROWS_CORNERS, float),
    ],
)
def test_all_chance_is_off(
    ramps: Index, window: str, corners: list[tuple[int, int]], corner_dtype: type
) -> None:
    index = ramps
    for name, values in zip("yx", np.array(ROWS_CORNERS, corner_dtype).T, strict=True):
        index = index.with_column(name, values)
    settings = {**CHANCE, "window": window}
    with Loader(
        npy_pipeline, index, batch_size=4, devices=[None], mode="eval", seed=3, **settings
    ) as loader:
        for _ in range(2):
            images = [image.numpy() for (batch,) in loader for image in batch["image"]]
            assert len(images) == 5
            for row, (image, (y, x)) in enumerate(zip(images, corners, strict=True)):
                expected = np.load(ramps.path(row))[y : y + 4, x : x + 4]
                np.testing.assert_array_equal(image[0], expected, f"row {row}")


def test_regions_are_nothing_but_chance() -> None:
    with pytest.raises(ValueError, match=r"random_area .*mode 'eval'.*resize_shorter"):
        PipelineConfig(batch_size=1, mode="eval", random_area=(0.1, 1), resize=8)
    with pytest.raises(ValueError, match=r"mode.*'train', 'eval'.*'test'"):
        PipelineConfig(batch_size=1, mode="test")  # type: ignore[arg-type]
