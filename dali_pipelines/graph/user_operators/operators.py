"""Stage of the graph for augmentations and operators of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nvidia.dali import fn
from nvidia.dali.data_node import DataNode

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.runtime.dali_private import random_operator


class ImageKind(NamedTuple):
    """Properties of the images at this stage, for augmentations."""

    dtype: str
    """Element type: float32 or uint8."""
    channels: int
    """Channels of all files together. If a file has three, they are red, green and blue."""
    largest: float | None
    """Largest possible value, see `dali_pipelines.graph.decode.Decoded`."""
    files: int = 1
    """Number of files of a sample, or of frames of a clip."""


def own_operators(
    image: Any,
    chance: Chance,
    config: PipelineConfig,
    kind: ImageKind,
    augmented: Callable[[Any], Any] = lambda image: image,
) -> Any:
    """Add the augmentations and the transform of the settings, after flips, before mean and std.

    Parameters
    ----------
    image : DataNode
        float32, or uint8 if that is the dtype of the settings; layout HWC.
    chance : Chance
        Random numbers.
    config : PipelineConfig
        Settings.
    kind : ImageKind
        Properties of the image.
    augmented : callable
        Function of the image, called after the augmentations and before the transform.

    Returns
    -------
    DataNode
        Layout HWC. A transform may return another type or number of channels.

    Raises
    ------
    TypeError
        If `config.transform` does not return a DataNode.
    ValueError
        If an augmentation does not fit the images; if `config.transform` uses random operators of
        DALI, or returns an image on another device.
    """
    for one in config.augment:
        name = f"augmentation {type(one).__qualname__!r}"
        image = _checked(name, image, one.add, chance, kind)
    image = augmented(image)
    if config.transform is not None:
        name = f"transform {getattr(config.transform, '__qualname__', config.transform)!r}"
        image = _checked(name, image, config.transform, chance, config)
    return image


def _checked(name: str, image: Any, add: Callable[..., Any], *arguments: Any) -> Any:
    """Return the image that a function makes; raise an error for a wrong device or operator."""
    try:
        made = add(image, *arguments)
    except TypeError as error:
        error.add_note(
            f"{name} gets no pixels, but nodes of a graph: use DALI's operators and arithmetic "
            "instead of NumPy and Python's `if`"
        )
        raise
    if not isinstance(made, DataNode):
        raise TypeError(f"{name} must return the image as a DataNode of DALI, got {made!r}")
    if made.device != image.device:
        raise ValueError(
            f"{name} returned an image on the {made.device}, but this graph runs on the "
            f"{image.device}: leave it there"
        )
    if (operator := random_operator(made)) is not None:
        raise ValueError(
            f"{name} uses {operator}, whose results depend on the position in the batch and change "
            "after a resume: use an operator with arguments of `chance` instead, e.g. "
            "chance.uniform(a, b), chance.bernoulli(p) or chance.choice(n)"
        )
    return fn.reshape(made, layout="HWC")
