"""Graph of clips of videos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import Decoded, DecodedImages, mean_and_std
from readers.video.reader import COLOURS


def decode_clips(
    arrays: Mapping[str, Any], config: PipelineConfig, *, frames: int
) -> DecodedImages:
    """Return the frames that a `readers.video.reader.VideoReader` has decoded."""
    image = arrays["image"] if config.device_id is None else arrays["image"].gpu()
    others = {name: arrays[name] for name in ("frame", "time", "length")}
    decoded = Decoded(image, "uint8", others=others, layout="HWC", largest=255)
    if config.mean is not None or config.std is not None:
        mean, std = mean_and_std(config, COLOURS)
        config = replace(config, mean=tuple(mean) * frames, std=tuple(std) * frames)
    return DecodedImages((decoded,), (config,), times=frames)
