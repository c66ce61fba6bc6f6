"""The graph after decoding: turn, resize, flip, normalise, permute to CHW, in that order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
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
    dtype = decoded.dtype if config.resized_to is None else "float32"
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


def transform(
    decoded: Decoded,
    flip: Any,
    channels: int,
    config: PipelineConfig,
    geometry: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Add the nodes that turn a decoded image into the input of a network: CHW, of config.dtype.

    Parameters
    ----------
    decoded : Decoded
        Checked by `check_decoded`.
    flip : DataNode
        int32, shape (2,), on the CPU: whether to flip left-right and up-down.
    geometry : mapping of str to DataNode
        ``part`` and ``affine``, where they are sent, see
        `readers.sampling.geometry.Geometry.geometry_arrays`.

    Raises
    ------
    ValueError
        If the images cannot be converted to the dtype, or mean and std do not fit the channels.
    """
    if geometry and decoded.finished and not {"affine", "part"}.isdisjoint(geometry):
        raise ValueError(
            "rotate, zoom and resize_shorter come before flips, mean and std, which this decoder "
            "has applied: return finished=False"
        )
    nodes = {**geometry, "flip": flip}
    if decoded.other is None:
        return _transform(decoded, nodes, channels, config)
    where, image, dtype = decoded.other
    others = decoded._replace(image=image, dtype=dtype)
    false = _transform(decoded, nodes, channels, config, lambda node: split(node, where)[1])
    true = _transform(others, nodes, channels, config, lambda node: split(node, where)[0])
    return merge(true, false, where)


def _transform(
    decoded: Decoded,
    nodes: Mapping[str, Any],
    channels: int,
    config: PipelineConfig,
    select: Callable[[Any], Any] = lambda node: node,
) -> Any:
    """Do `transform` to some images of a batch: `select` takes theirs from a node of all."""
    image, layout = decoded.image, decoded.layout
    flips = bool(config.flip) and not decoded.finished
    done = decoded.finished or not normalises(decoded, channels, config)
    resamples = "affine" in nodes or config.resized_to is not None
    if layout == "CHW" and (resamples or flips or not done):
        image, layout = _permute(image, "HWC", channels), "HWC"
    if "affine" in nodes:
        image = _turn(image, select(nodes["affine"]), config)
        decoded = decoded._replace(dtype="float32")
    if config.resized_to is not None:
        part = select(nodes["part"]) if "part" in nodes else None
        image = _resize(image, decoded.dtype, config, select, part)
    if flips:
        # After the resize, where there is less to copy; the filter is symmetric.
        flags = select(nodes["flip"])
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


def _turn(image: Any, matrix: Any, config: PipelineConfig) -> Any:
    """Resample to float32 pixels of the crop, bilinear; 0 outside the image."""
    height, width = config.crop or (1, 1)
    return fn.warp_affine(
        fn.cast(image, dtype=types.FLOAT),
        matrix=matrix,
        size=(height, width),
        fill_value=0.0,
        interp_type=types.INTERP_LINEAR,
    )


def _resize(
    image: Any, dtype: str, config: PipelineConfig, select: Callable[[Any], Any], part: Any
) -> Any:
    """Resize the image, or a part of it, to float32 by the same filter on both devices."""
    shape = config.resized_to or (1, 1)
    if config.device_id is not None or part is not None:
        region = {} if part is None else {"roi_start": part[0:2], "roi_end": part[2:4]}
        options = {"size": shape, "dtype": types.FLOAT, "interp_type": types.INTERP_LINEAR}
        return fn.resize(image, **options, **region)
    if dtype == "uint16":
        image, dtype = fn.cast(image, dtype=types.FLOAT), "float32"
    carrier = types.Constant(np.zeros(shape, np.uint8), device="cpu")
    return operators.resize(dtype, image, select(carrier))
