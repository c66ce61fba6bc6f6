"""The geometry of an image in the graph: turn, resize and flip, linear or by nearest neighbour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph import operators
from dali_pipelines.graph.decode import Decoded
from dali_pipelines.graph.gpu import operators as operators_gpu

Interpolation = Literal["linear", "nearest"]
Finish = tuple[list[float], list[float]]
"""Mean and standard deviation of each channel."""


def place(
    decoded: Decoded,
    nodes: Mapping[str, Any],
    channels: int,
    config: PipelineConfig,
    *,
    select: Callable[[Any], Any] = lambda node: node,
    interpolation: Interpolation = "linear",
    finish: Finish | None = None,
) -> Decoded:
    """Turn, resize and flip the images, where the decoder has not.

    Parameters
    ----------
    decoded : Decoded
        The images; if `finished`, they are flipped.
    nodes : mapping of str to DataNode
        What the Source sends, of which this takes ``flip``, ``part`` and ``affine``, and for
        interpolation ``nearest``, where one of these or the settings ask for another size or place,
        ``nearest``; see `readers.sampling.geometry.Geometry` and `readers.source.Source`.
    channels : int
        Channels of the images.
    config : PipelineConfig
        Settings, of which this takes device, crop, sizes and flip.
    select : callable
        Takes the samples with such images from a node of all.
    interpolation : {"linear", "nearest"}
        ``linear`` makes float32 of what is turned or resized. ``nearest`` keeps the type, and does
        all in one step, exactly as `readers.targets.nearest.NearestPixels`.
    finish : tuple of (mean, std), optional
        Applied on the way where that saves a pass over the images; then they are `finished`.

    Returns
    -------
    Decoded
        With other images, of another type or layout.
    """
    image, layout = decoded.image, decoded.layout
    flips = bool(config.flip) and not decoded.finished
    resamples = "affine" in nodes or config.resized_to is not None
    if layout == "CHW" and (resamples or flips):
        image, layout = permute(image, "HWC", channels), "HWC"
    decoded = decoded._replace(image=image, layout=layout)
    if resamples and interpolation == "nearest":
        return _nearest(decoded, select(nodes["nearest"]), config, select)
    if "affine" in nodes:
        image = _turn(image, select(nodes["affine"]), config)
        decoded = decoded._replace(image=image, dtype="float32")
    if config.resized_to is not None:
        on_cpu = config.device_id is None and "part" not in nodes
        if on_cpu:
            flip = select(nodes["flip"] if flips else _constant(np.zeros(2, np.int32)))
            return _resize_and_finish(decoded, config.resized_to, channels, select, flip, finish)
        part = select(nodes["part"]) if "part" in nodes else None
        image = _resize(image, config.resized_to, part)
        decoded = decoded._replace(image=image, dtype="float32")
    if flips:
        # After the resize, where there is less to copy; the filter is symmetric.
        flags = select(nodes["flip"])
        image = fn.flip(image, horizontal=flags[0], vertical=flags[1])
    return decoded._replace(image=image)


def permute(image: Any, layout: str, channels: int) -> Any:
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


def _resize(image: Any, shape: tuple[int, int], part: Any) -> Any:
    """Resize the image, or a part of it, to float32."""
    region = {} if part is None else {"roi_start": part[0:2], "roi_end": part[2:4]}
    options = {"size": shape, "dtype": types.FLOAT, "interp_type": types.INTERP_LINEAR}
    return fn.resize(image, **options, **region)


def _resize_and_finish(
    decoded: Decoded,
    shape: tuple[int, int],
    channels: int,
    select: Callable[[Any], Any],
    flip: Any,
    finish: Finish | None,
) -> Decoded:
    """Resize by the same filter on the CPU; flip, normalise and permute to CHW on the way."""
    image, dtype = decoded.image, decoded.dtype
    if dtype == "uint16":
        image, dtype = fn.cast(image, dtype=types.FLOAT), "float32"
    mean, std = finish or ([0.0] * channels, [1.0] * channels)
    numbers = np.stack((mean, 1 / np.array(std)), axis=1).astype(np.float32)
    carrier = select(_constant(np.zeros(shape, np.uint8)))
    image = operators.resize(dtype, image, carrier, flip, select(_constant(numbers)))
    finished = decoded.finished or finish is not None
    return decoded._replace(image=image, layout="CHW", dtype="float32", finished=finished)


def _nearest(
    decoded: Decoded, numbers: Any, config: PipelineConfig, select: Callable[[Any], Any]
) -> Decoded:
    """Take the nearest pixels, turned, resized and flipped; 0 outside the image."""
    shape = config.resized_to or config.crop or (1, 1)
    outside = select(fn.cast(_constant(np.zeros(1, np.float32)), dtype=types.FLOAT64))
    if config.device_id is None:
        carrier = select(_constant(np.zeros(shape, np.uint8)))
        image = operators.nearest(decoded.dtype, decoded.image, carrier, numbers, outside)
    else:
        image = operators_gpu.nearest(decoded.image, shape, numbers, outside)
    return decoded._replace(image=image, layout="CHW")


def _constant(value: NDArray[Any]) -> Any:
    return types.Constant(value, device="cpu")
