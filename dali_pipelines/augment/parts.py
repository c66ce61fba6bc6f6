"""Functions that several augmentations use to add operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from nvidia.dali import fn, types

from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.runtime.dali_private import merge, split


def in_float(image: Any, kind: ImageKind, change: Callable[[Any], Any]) -> Any:
    """Change an image as float32. An image of uint8 is converted, and the result is rounded."""
    if kind.dtype == "float32":
        return change(image)
    return fn.cast(change(fn.cast(image, dtype=types.FLOAT)), dtype=types.UINT8)


def side_by_side(image: Any, kind: ImageKind, change: Callable[[Any], Any]) -> Any:
    """Change the colours of a sample of several files, as one image with the files side by side.

    `change` then sees the red, green and blue, or gray, of each file as channels of a pixel.
    """
    if kind.files == 1:
        return change(image)
    wide = fn.reshape(image, rel_shape=[1, kind.files, 1 / kind.files], layout="HWC")
    return fn.reshape(change(wide), rel_shape=[1, 1 / kind.files, kind.files], layout="HWC")


def in_some(where: Any, image: Any, change: Callable[..., Any], *arguments: Any) -> Any:
    """Change the images for which `where`, bool, is True; the others cost nothing.

    `change` gets the images and arguments of these samples only. Pass random numbers and constants
    as arguments: nodes that `change` makes itself would have the size of the whole batch.
    """
    those, others = split(image, where)
    return merge(change(those, *(split(node, where)[0] for node in arguments)), others, where)


def constant(values: Any, dtype: Any = np.float32) -> Any:
    """Return a DataNode on the CPU with the same array for each sample of a whole batch."""
    return types.Constant(np.array(values, dtype), device="cpu")
