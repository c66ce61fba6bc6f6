"""Augmentations without a Reader: what one makes of given images, with given random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import Pipeline, fn
from nvidia.dali.types import to_dali_type

from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.settings import Augmentation

NUM_DRAWS = 64


def augmented(
    one: Augmentation,
    images: Sequence[NDArray[Any]],
    *,
    largest: float | None = 255.0,
    seed: int = 0,
    draws: NDArray[Any] | None = None,
) -> list[NDArray[Any]]:
    """Return the images, of one type, as one batch after an augmentation.

    `draws` are random numbers for each image, by default others for each seed.
    """
    if draws is None:
        draws = np.random.default_rng(seed).random((len(images), NUM_DRAWS), np.float32)
    dtype = images[0].dtype.name
    pipeline = Pipeline(batch_size=len(images), num_threads=2, device_id=None)
    with pipeline:
        node = fn.external_source(
            lambda: [*map(np.ascontiguousarray, images)],
            dtype=to_dali_type(dtype),
            ndim=3,
            layout="HWC",
        )
        chance = Chance(fn.external_source(lambda: list(draws.astype(np.float32))))
        kind = ImageKind(dtype, images[0].shape[2], largest)
        pipeline.set_outputs(one.add(node, chance, kind))
    assert chance.num_draws <= draws.shape[1]
    (out,) = pipeline.run()
    assert out.layout() == "HWC"
    found = [np.array(out.at(number)) for number in range(len(images))]
    assert {image.dtype.name for image in found} == {dtype}
    return found
