"""The place in the graph for operators of users."""

from __future__ import annotations

from typing import Any

from nvidia.dali import fn
from nvidia.dali.data_node import DataNode

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.chance import Chance
from dali_pipelines.runtime.dali_private import random_operator


def own_operators(image: Any, chance: Chance, config: PipelineConfig) -> Any:
    """Add what the settings ask for between the flips, and mean and std.

    Parameters
    ----------
    image : DataNode
        float32, or uint8 where that is the dtype of the settings; layout HWC.
    chance : Chance
        Random numbers.
    config : PipelineConfig
        Settings.

    Returns
    -------
    DataNode
        Layout HWC, with as many channels.

    Raises
    ------
    TypeError
        If `config.transform` does not return a DataNode.
    ValueError
        If it uses random operators of DALI, or returns an image on another device.
    """
    if config.transform is not None:
        image = _call(config.transform, image, chance, config)
    return image


def _call(transform: Any, image: Any, chance: Chance, config: PipelineConfig) -> Any:
    name = f"transform {getattr(transform, '__qualname__', transform)!r}"
    made = transform(image, chance, config)
    if not isinstance(made, DataNode):
        raise TypeError(f"{name} must return the image, a DataNode of DALI, got {made!r}")
    if made.device != image.device:
        raise ValueError(
            f"{name} returned an image on the {made.device}, and this graph runs on the "
            f"{image.device}: leave it there"
        )
    if (operator := random_operator(made)) is not None:
        raise ValueError(
            f"{name} uses {operator}, whose results depend on the place in the batch and are not "
            "repeated after a resume: give it numbers of `chance` as arguments, e.g. "
            "chance.uniform(a, b), chance.bernoulli(p) or chance.choice(n)"
        )
    return fn.reshape(made, layout="HWC")
