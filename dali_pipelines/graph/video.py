"""Graph of clips of videos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import Decoded, DecodedImages, mean_and_std
from dali_pipelines.runtime.dali_private import merge, split
from readers.video.reader import COLOURS, ENCODED, VideoReader

_BT601, _BT709 = (0.299, 0.114), (0.2126, 0.0722)
"""Shares of red and of blue in the brightness."""


def decode_clips(
    arrays: Mapping[str, Any], config: PipelineConfig, *, reader: VideoReader
) -> DecodedImages:
    """Return the frames of clips, decoded by the graph, or by `reader` if it has decoded them."""
    if reader.graph is None:
        image = arrays["image"] if config.device_id is None else arrays["image"].gpu()
    else:
        image = _by_graph_or_reader(arrays, config, repeats=reader.short == "pad")
    others = {name: arrays[name] for name in ("frame", "time", "length")}
    decoded = Decoded(image, "uint8", others=others, layout="HWC", largest=255)
    if config.mean is not None or config.std is not None:
        mean, std = mean_and_std(config, COLOURS)
        frames = reader.frames
        config = replace(config, mean=tuple(mean) * frames, std=tuple(std) * frames)
    return DecodedImages((decoded,), (config,), times=reader.frames)


def _by_graph_or_reader(arrays: Mapping[str, Any], config: PipelineConfig, *, repeats: bool) -> Any:
    where = arrays["in_graph"]
    names = [spec.name for spec in ENCODED if spec.name != "in_graph"]
    clip = {name: split(arrays[name], where)[0] for name in names}
    image = split(arrays["image"], where)[1]
    if config.device_id is not None:
        image = image.gpu()
    return merge(_decoded(clip, config, repeats=repeats), image, where)


def _decoded(clip: Mapping[str, Any], config: PipelineConfig, *, repeats: bool) -> Any:
    """Decode clips to images of layout HWC, with the colours of one frame after the other."""
    device = "cpu" if config.device_id is None else "mixed"
    # Threads that are bound to cores would compete with the readers, and with other pipelines.
    video = fn.decoders.video(clip["encoded"], device=device, affine=False, frames=clip["picked"])
    # As of other decoders on a GPU: an empty part of a batch has no layout there.
    video = fn.reinterpret(video, layout="FHWC")
    cut = clip["cut"]
    video = fn.slice(video, cut[0:2], cut[2:4], axis_names="HW")
    wrong, right = split(video, clip["is_bt709"])
    wrong = fn.coord_transform(wrong, M=_CORRECTION.reshape(-1).tolist(), dtype=types.UINT8)
    video = merge(fn.reinterpret(wrong, layout="FHWC"), right, clip["is_bt709"])
    if repeats:
        video = fn.sequence_rearrange(video, new_order=clip["order"])
    is_transposed, flip_y, flip_x = (clip["turn"][at] for at in range(3))
    across, upright = split(video, is_transposed)
    image = merge(_as_image(across, [2, 1, 0, 3]), _as_image(upright, [1, 2, 0, 3]), is_transposed)
    is_flipped = flip_y | flip_x
    flipped, others = split(image, is_flipped)
    flags = (split(flag, is_flipped)[0] for flag in (flip_x, flip_y))
    horizontal, vertical = (fn.cast(flag, dtype=types.INT32) for flag in flags)
    flipped = fn.flip(flipped, horizontal=horizontal, vertical=vertical)
    return merge(flipped, others, is_flipped)


def _as_image(video: Any, axes: list[int]) -> Any:
    image = fn.transpose(video, perm=axes, output_layout="HWFC")
    return fn.reshape(image, src_dims=[0, 1, 2], rel_shape=[1, 1, COLOURS], layout="HWC")


def _to_rgb(red: float, blue: float) -> NDArray[np.float64]:
    """Return the matrix from brightness and the two differences to red, green and blue."""
    green = 1 - red - blue
    return np.array(
        [
            [1, 0, 2 * (1 - red)],
            [1, -2 * blue * (1 - blue) / green, -2 * red * (1 - red) / green],
            [1, 2 * (1 - blue), 0],
        ]
    )


_CORRECTION = _to_rgb(*_BT709) @ np.linalg.inv(_to_rgb(*_BT601))
"""Matrix that corrects colours of BT.709 that were converted as if they were of BT.601."""
