"""Geometry of images in the graph: turn, fill, resize and flip."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph import operators
from dali_pipelines.graph.decode import Decoded
from dali_pipelines.graph.gpu import operators as operators_gpu
from dali_pipelines.kernels.resample.filters import CUBIC, LANCZOS, LINEAR
from dali_pipelines.values import holds
from readers.sampling.geometry import Interpolation

_FILTERS = {
    "bilinear": (LINEAR, types.INTERP_LINEAR),
    "bicubic": (CUBIC, types.INTERP_CUBIC),
    "lanczos": (LANCZOS, types.INTERP_LANCZOS3),
}
"""Code of each filter in our kernel for the CPU, and in DALI, for GPUs."""
Finish = tuple[list[float], list[float]]
"""Mean and standard deviation of each channel."""


def place(
    decoded: Decoded,
    nodes: Mapping[str, Any],
    channels: int,
    config: PipelineConfig,
    *,
    select: Callable[[Any], Any] = lambda node: node,
    interpolation: Interpolation | None = None,
    missing: float | None = None,
    finish: Finish | None = None,
) -> Decoded:
    """Turn, fill, resize and flip images, except for steps that the decoder has done.

    Parameters
    ----------
    decoded : Decoded
        The images; if `finished`, they are already flipped.
    nodes : mapping of str to DataNode
        Nodes of the Source: ``flip`` and the arrays of `readers.sampling.graph_arrays`, as far as
        they are sent. Nearest pixels need ``nearest``.
    channels : int
        Channels of the images.
    config : PipelineConfig
        Settings: device, crop, sizes, interpolation and flip are used.
    select : callable
        Function that selects the samples of these images from a node of all samples.
    interpolation : str, optional
        By default as in the settings. ``nearest`` keeps the type and does everything in one step,
        exactly like `readers.targets.nearest.NearestPixels`. The others turn images bilinearly and
        resize them, both to float32.
    missing : float, optional
        Value of pixels outside the image; by default 0, or NaN with ``outside="fill"``.
    finish : tuple of (mean, std), optional
        Mean and std to apply, if that saves a pass over the images; they are then `finished`.

    Returns
    -------
    Decoded
        New images, possibly of another type or layout.
    """
    image, layout = decoded.image, decoded.layout or "HWC"
    interpolation = interpolation or config.interpolation
    flips = bool(config.flip) and not decoded.finished
    resamples = "affine" in nodes or config.resized_to is not None
    if layout == "CHW" and (resamples or flips or "inside" in nodes):
        image, layout = permute(image, "HWC", channels), "HWC"
    decoded = decoded._replace(image=image, layout=layout)
    if resamples and interpolation == "nearest":
        return _nearest(decoded, select(nodes["nearest"]), config, select, missing)
    inside = select(nodes["inside"]) if "inside" in nodes else None
    if "affine" in nodes:
        decoded = _turn(decoded, select(nodes["affine"]), inside, config, missing)
    if inside is not None:
        decoded = _fill(decoded, inside, config, missing)
    image = decoded.image
    if config.resized_to is not None:
        part = select(nodes["part"]) if "part" in nodes else None
        if config.device_id is None:
            flip = select(nodes["flip"] if flips else _constant(np.zeros(2, np.int32)))
            return _resize_and_finish(decoded, part, config, channels, select, flip, finish)
        image = _resize(image, config.resized_to, config.interpolation, part)
        decoded = decoded._replace(image=image, dtype="float32")
    if flips:
        # After the resize there is less to copy. The order does not matter: filters are symmetric.
        flags = select(nodes["flip"])
        image = fn.flip(image, horizontal=flags[0], vertical=flags[1])
    return decoded._replace(image=image)


def permute(image: Any, layout: str, channels: int) -> Any:
    """Permute the axes from CHW to HWC, or from HWC to CHW."""
    axes = [2, 0, 1] if layout == "CHW" else [1, 2, 0]
    if channels == 1:
        # The bytes are the same: the image need not be copied.
        return fn.reshape(image, src_dims=axes, layout=layout)
    return fn.transpose(image, perm=axes, output_layout=layout)


def _turn(
    decoded: Decoded, matrix: Any, inside: Any, config: PipelineConfig, missing: float | None
) -> Decoded:
    """Resample bilinearly to float32: the crop, or its part inside the image."""
    size: Any = config.crop if inside is None else fn.cast(inside[2:4], dtype=types.FLOAT)
    outside = _number(missing) if config.outside == "fill" else float(missing or 0)
    # Windows that are not turned stay inside the image: without a fill value edges are repeated.
    is_turned = config.rotate != 0 or tuple(config.zoom) != (1, 1)
    fill: dict[str, Any] = {"fill_value": outside} if is_turned else {}
    image = fn.warp_affine(
        fn.cast(decoded.image, dtype=types.FLOAT),
        matrix=matrix,
        size=size,
        interp_type=types.INTERP_LINEAR,
        **fill,
    )
    return decoded._replace(image=image, dtype="float32")


def _fill(decoded: Decoded, inside: Any, config: PipelineConfig, missing: float | None) -> Decoded:
    """Pad the part of the crop inside the image to the whole crop."""
    image, dtype, value = decoded.image, decoded.dtype, _number(missing)
    if dtype != "float32" and not holds(np.iinfo(dtype), value):
        image, dtype = fn.cast(image, dtype=types.FLOAT), "float32"
    image = fn.slice(
        image,
        start=inside[0:2],
        shape=config.crop,
        axis_names="HW",
        out_of_bounds_policy="pad",
        fill_values=value,
    )
    return decoded._replace(image=image, dtype=dtype)


def _number(missing: float | None) -> float:
    return math.nan if missing is None else float(missing)


def _resize(image: Any, shape: tuple[int, int], interpolation: str, part: Any) -> Any:
    """Resize the image, or a part of it, to float32."""
    region = {} if part is None else {"roi_start": part[0:2], "roi_end": part[2:4]}
    options = {"size": shape, "dtype": types.FLOAT, "interp_type": _FILTERS[interpolation][1]}
    return fn.resize(image, **options, **region)


def _resize_and_finish(
    decoded: Decoded,
    part: Any,
    config: PipelineConfig,
    channels: int,
    select: Callable[[Any], Any],
    flip: Any,
    finish: Finish | None,
) -> Decoded:
    """Resize on the CPU, and flip, normalise, round to uint8 and permute to CHW in the same step.

    `fn.cast` to uint8 would take a third as long as the resize.
    """
    image, dtype = decoded.image, decoded.dtype
    if dtype == "uint16":
        image, dtype = fn.cast(image, dtype=types.FLOAT), "float32"
    mean, std = finish or ([0.0] * channels, [1.0] * channels)
    numbers = np.stack((mean, 1 / np.array(std)), axis=1).astype(np.float32)
    carrier = select(_zeros(config.resized_to or (1, 1)))
    kind = select(_constant(np.array(_FILTERS[config.interpolation][:1], np.int32)))
    scaling = select(_constant(numbers))
    resized = "uint8" if config.dtype == "uint8" else "float32"
    image = operators.resize(dtype, resized, image, carrier, flip, scaling, kind, part)
    finished = decoded.finished or finish is not None
    return decoded._replace(image=image, layout="CHW", dtype=resized, finished=finished)


def _nearest(
    decoded: Decoded,
    numbers: Any,
    config: PipelineConfig,
    select: Callable[[Any], Any],
    missing: float | None,
) -> Decoded:
    """Take the nearest pixels of the turned, resized and flipped image."""
    shape = config.resized_to or config.crop or (1, 1)
    number = _number(missing) if config.outside == "fill" else float(missing or 0)
    if decoded.dtype != "float32" and not holds(np.iinfo(decoded.dtype), number):
        image = fn.cast(decoded.image, dtype=types.FLOAT)
        decoded = decoded._replace(image=image, dtype="float32")
    value = _constant(np.array([number], np.float32))
    outside = select(fn.cast(value, dtype=types.FLOAT64))
    if config.device_id is None:
        carrier = select(_zeros(shape))
        image = operators.nearest(decoded.dtype, decoded.image, carrier, numbers, outside)
    else:
        image = operators_gpu.nearest(decoded.image, shape, numbers, outside)
    return decoded._replace(image=image, layout="CHW")


def _zeros(shape: tuple[int, int]) -> Any:
    """Add zeros of uint8, made by an operator, because DALI copies NumPy arrays slowly."""
    return types.Constant(0, dtype=types.UINT8, shape=shape, device="cpu")


def _constant(value: NDArray[Any]) -> Any:
    return types.Constant(value, device="cpu")
