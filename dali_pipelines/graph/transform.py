"""The graph after decoding: resize, flip, normalise, permute to CHW, in that order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from nvidia.dali import fn, types

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph import operators
from dali_pipelines.graph.decode import Decoded, mean_and_std
from dali_pipelines.runtime.dali_private import merge, split

_NORMALISED = {"float32": types.FLOAT, "float16": types.FLOAT16, "uint8": types.UINT8}


def normalises(decoded: Decoded, channels: int, config: PipelineConfig) -> bool:
    """Return whether the graph must normalise, convert or permute the decoded image."""
    dtype = decoded.dtype if config.resize is None else "float32"
    changes = config.dtype != dtype or config.mean is not None or config.std is not None
    return channels > 1 or changes


def check_decoded(decoded: Any, config: PipelineConfig, *, uses_flip: bool) -> None:
    """Check the result of a decoder against the settings.

    `uses_flip` says whether the decoder has asked for the array ``flip``. TypeError if it is not a
    Decoded; ValueError if the layout is unknown, or a finished image not what the settings ask for.
    """
    if not isinstance(decoded, Decoded):
        raise TypeError(f"a decoder must return a Decoded, got {type(decoded).__name__}")
    if decoded.layout not in ("HWC", "CHW"):
        raise ValueError(f"layout of Decoded must be 'HWC' or 'CHW', got {decoded.layout!r}")
    if not decoded.finished:
        return
    if config.flip and not uses_flip:
        raise ValueError(
            f"the settings have flip={config.flip!r}, but the decoder returned finished=True "
            "without using arrays['flip']: flip the image by it, or return finished=False"
        )
    if decoded.dtype != ("float32" if config.dtype == "float16" else config.dtype):
        raise ValueError(
            f"the decoder returned finished=True, and {decoded.dtype} instead of "
            f"dtype={config.dtype!r}: convert it in the decoder, or return finished=False"
        )


def transform(decoded: Decoded, flip: Any, channels: int, config: PipelineConfig) -> Any:
    """Add the nodes that turn a decoded image into the input of a network: CHW, of config.dtype.

    Parameters
    ----------
    decoded : Decoded
        Checked by `check_decoded`.
    flip : DataNode
        int32, shape (2,), on the CPU: whether to flip left-right and up-down.

    Raises
    ------
    ValueError
        If the images cannot be converted to the dtype, or mean and std do not fit the channels.
    """
    if decoded.other is None:
        return _transform(decoded, flip, channels, config)
    where, image, dtype = decoded.other
    others = decoded._replace(image=image, dtype=dtype)
    false = _transform(decoded, flip, channels, config, lambda node: split(node, where)[1])
    true = _transform(others, flip, channels, config, lambda node: split(node, where)[0])
    return merge(true, false, where)


def _transform(
    decoded: Decoded,
    flip: Any,
    channels: int,
    config: PipelineConfig,
    select: Callable[[Any], Any] = lambda node: node,
) -> Any:
    """Do `transform` to some images of a batch: `select` takes theirs from a node of all."""
    image, layout = decoded.image, decoded.layout
    flips = bool(config.flip) and not decoded.finished
    done = decoded.finished or not normalises(decoded, channels, config)
    if layout == "CHW" and (config.resize is not None or flips or not done):
        image, layout = _permute(image, "HWC", channels), "HWC"
    if config.resize is not None:
        gpu = config.device_id is not None
        image = _resize(image, decoded.dtype, config.resize, select, gpu=gpu)
    if flips:
        # After the resize, where there is less to copy; the filter is symmetric.
        flags = select(flip)
        image = fn.flip(image, horizontal=flags[0], vertical=flags[1])
    if done:
        image = image if layout == "CHW" else _permute(image, "CHW", channels)
        return fn.cast(image, dtype=types.FLOAT16) if config.dtype == "float16" else image
    if config.dtype == decoded.dtype == "uint16":  # of the others the operator below is faster
        return fn.transpose(image, perm=[2, 0, 1])
    if config.dtype not in _NORMALISED or config.dtype == "uint8" != decoded.dtype:
        raise ValueError(f"{decoded.dtype} images cannot be converted to {config.dtype}")
    mean, std = mean_and_std(config, channels)
    return fn.crop_mirror_normalize(
        image, dtype=_NORMALISED[config.dtype], output_layout="CHW", mean=mean, std=std
    )


def _permute(image: Any, layout: str, channels: int) -> Any:
    """Permute the axes from CHW to HWC, or from HWC to CHW."""
    axes = [2, 0, 1] if layout == "CHW" else [1, 2, 0]
    if channels == 1:
        # The same bytes: no need to copy the frame.
        return fn.reshape(image, src_dims=axes, layout=layout)
    return fn.transpose(image, perm=axes, output_layout=layout)


def _resize(
    image: Any, dtype: str, shape: tuple[int, int], select: Callable[[Any], Any], *, gpu: bool
) -> Any:
    """Resize to float32 by the same filter on both devices."""
    if gpu:
        return fn.resize(image, size=shape, dtype=types.FLOAT, interp_type=types.INTERP_LINEAR)
    if dtype == "uint16":
        image, dtype = fn.cast(image, dtype=types.FLOAT), "float32"
    carrier = types.Constant(np.zeros(shape, np.uint8), device="cpu")
    return operators.resize(dtype, image, select(carrier))
