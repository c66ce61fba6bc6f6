"""Graph after decoding: geometry, own operators, mean and std, permutation to CHW."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph import operators
from dali_pipelines.graph.decode import MOVED, Decoded, DecodedImages, mean_and_std
from dali_pipelines.graph.gpu import operators as operators_gpu
from dali_pipelines.graph.place import permute, place
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind, own_operators
from dali_pipelines.runtime.dali_private import merge, split

_NORMALISED = {"float32": types.FLOAT, "float16": types.FLOAT16, "uint8": types.UINT8}


def normalises(decoded: Decoded, channels: int, config: PipelineConfig) -> bool:
    """Return whether the graph must normalise, convert or permute the decoded image."""
    keeps = config.resized_to is None or config.interpolation == "nearest"
    dtype = decoded.dtype if keeps else "float32"
    changes = config.dtype != dtype or config.mean is not None or config.std is not None
    return channels > 1 or changes


def check_decoded(decoded: Any, config: PipelineConfig, *, uses_flip: bool) -> DecodedImages:
    """Check the result of a decoder against the settings, and return it as DecodedImages.

    `uses_flip` tells whether the decoder used the array ``flip``. TypeError if the result is not a
    Decoded; ValueError if its layout is unknown, or a finished image does not fit the settings.
    """
    if isinstance(decoded, Decoded):
        decoded = DecodedImages((decoded,), (config,))
    if not isinstance(decoded, DecodedImages):
        raise TypeError(f"a decoder must return a Decoded, got {type(decoded).__name__}")
    for one in decoded.images:
        _check_one(one, config, uses_flip=uses_flip)
    return decoded


def _check_one(decoded: Decoded, config: PipelineConfig, *, uses_flip: bool) -> None:
    if decoded.layout not in ("HWC", "CHW", None):
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
            f"the decoder returned finished=True with {decoded.dtype} instead of "
            f"dtype={config.dtype!r}: convert it in the decoder, or return finished=False"
        )


def transform(
    decoded: DecodedImages,
    nodes: Mapping[str, Any],
    channels: int,
    config: PipelineConfig,
    chance: Chance,
    missing: float | None = None,
) -> Any:
    """Add the nodes from decoded images to the output image, of config.dtype.

    Parameters
    ----------
    decoded : DecodedImages
        Result of `check_decoded`; its `outputs` are not used.
    nodes : mapping of str to DataNode
        Nodes of the Source: ``flip`` (int32, shape (2,): whether to flip left-right and up-down)
        and the arrays of `readers.sampling.graph_arrays`, as far as they are sent.
    channels : int
        Channels of all images together.
    config : PipelineConfig
        Settings.
    chance : Chance
        Random numbers for own operators.
    missing : float, optional
        Value of pixels outside the image, by default as in `config`. It is not used with own
        operators.

    Raises
    ------
    TypeError
        If `config.transform` does not return a DataNode.
    ValueError
        If the images cannot be converted to the dtype, mean and std do not fit the channels, an
        augmentation does not fit the images, or `config.transform` uses random operators of DALI.
    """
    first, count = decoded.first, len(decoded.images)
    is_nearest = config.interpolation == "nearest" and config.resized_to is not None
    if first.finished and (is_nearest or not MOVED.isdisjoint(nodes)):
        raise ValueError(
            "rotate, zoom, resize_shorter, windows between pixels, outside='fill' and nearest "
            "pixels come before flips, mean and std, which this decoder has already applied: "
            "return finished=False"
        )
    if decoded.times is not None and config.layout == "HWC":
        raise ValueError(
            "memory_format 'channels_last' is not for sequences, which have an axis of times: "
            "leave it out"
        )
    of_each = channels // count
    if not config.has_own_operators:
        made = [
            _of_types(one, functools.partial(_made, nodes, of_each, own, missing))
            for one, own in zip(decoded.images, decoded.configs, strict=True)
        ]
        image = _joined(made, config.layout.index("C"))
        image = _without_missing(image, decoded, channels, config.layout, config.dtype)
        return _by_time(image, decoded)
    if first.finished and (config.mean is not None or config.std is not None):
        raise ValueError(
            "augment and transform come before mean and std, which this decoder has already "
            "applied: return finished=False if config.has_own_operators"
        )
    dtype = "uint8" if config.dtype == "uint8" else "float32"

    def prepared(one: Decoded, select: Callable[[Any], Any]) -> Any:
        _check_dtype(one.dtype, config)
        placed = place(one, nodes, of_each, config, select=select, missing=config.missing)
        image = placed.image if placed.layout == "HWC" else permute(placed.image, "HWC", of_each)
        return image if placed.dtype == dtype else fn.cast(image, dtype=to_dali_type(dtype))

    def augmented(image: Any) -> Any:
        return _without_missing(image, decoded, channels, "HWC", dtype)

    image = _joined([_of_types(one, prepared) for one in decoded.images], 2)
    largest = first.largest
    if config.stretch is not None:
        device: Any = operators if config.device_id is None else operators_gpu
        curves = _curves(config, channels, decoded.times or 1)
        image, largest = device.stretch(image, curves), None
    kind = ImageKind(dtype, channels, largest, max(count, decoded.times or 1))
    image = own_operators(image, chance, config, kind, augmented)
    # A transform may return another type, or another number of channels.
    image = fn.cast(image, dtype=to_dali_type(dtype))
    if config.dtype == dtype and config.mean is None and config.std is None:
        if config.layout == "CHW":
            image = fn.transpose(image, perm=[2, 0, 1], output_layout="CHW")
        return _by_time(image, decoded)
    times = decoded.times or 1
    mean_and_std(config, channels // times)  # raises an error if they do not fit
    mean, std = config.mean or (0.0,), config.std or (1.0,)
    image = fn.crop_mirror_normalize(
        image,
        dtype=_NORMALISED[config.dtype],
        output_layout=config.layout,
        mean=list(mean) * (times if len(mean) > 1 else 1),
        std=list(std) * (times if len(std) > 1 else 1),
    )
    return _by_time(image, decoded)


def _curves(config: PipelineConfig, channels: int, times: int) -> NDArray[np.float64]:
    """Return the parameters of the stretch of each channel, shape (channels, 9)."""
    stretches = config.stretch or ()
    if len(stretches) not in (1, channels // times):
        raise ValueError(
            f"stretch must be one Stretch, or {channels // times}, one for each channel of the "
            f"images, got {len(stretches)}"
        )
    return np.stack([one.parameters() for one in stretches * (channels // len(stretches))])


def _made(
    nodes: Mapping[str, Any],
    channels: int,
    config: PipelineConfig,
    missing: float | None,
    one: Decoded,
    select: Callable[[Any], Any],
) -> Any:
    finish = None if one.finished else mean_and_std(config, channels)
    missing = config.missing if missing is None else missing
    how: dict[str, Any] = {"select": select, "missing": missing, "finish": finish}
    if finish is not None:
        _check_dtype(one.dtype, config)
    placed = place(one, nodes, channels, config, **how)
    return _finish(placed, channels, config)


def _of_types(decoded: Decoded, make: Callable[[Decoded, Callable[[Any], Any]], Any]) -> Any:
    """Call `make` for the images of each element type, and merge the results.

    Its second argument is a function that selects the samples of a type from a node of all samples.
    """
    if decoded.other is None:
        return make(decoded, lambda node: node)
    where, image, dtype = decoded.other
    others = decoded._replace(image=image, dtype=dtype)
    false = make(decoded, lambda node: split(node, where)[1])
    true = make(others, lambda node: split(node, where)[0])
    return merge(true, false, where)


def _finish(placed: Decoded, channels: int, config: PipelineConfig) -> Any:
    """Apply the remaining conversions: normalise, convert to config.dtype, permute."""
    image, layout = placed.image, config.layout
    if config.dtype == "uint8" != placed.dtype:  # resampled, so it is rounded
        image = fn.cast(image, dtype=types.UINT8)
        return image if placed.layout == layout else permute(image, layout, channels)
    if placed.finished or not normalises(placed, channels, config):
        image = image if placed.layout == layout else permute(image, layout, channels)
        return fn.cast(image, dtype=types.FLOAT16) if config.dtype == "float16" else image
    if placed.layout == "CHW":
        image = permute(image, "HWC", channels)
    if config.dtype == placed.dtype and config.dtype not in _NORMALISED:
        # For other dtypes the operator below is faster.
        return image if layout == "HWC" else permute(image, layout, channels)
    mean, std = mean_and_std(config, channels)
    return fn.crop_mirror_normalize(
        image, dtype=_NORMALISED[config.dtype], output_layout=layout, mean=mean, std=std
    )


def _check_dtype(dtype: str, config: PipelineConfig) -> None:
    """Raise ValueError if decoded images of this dtype cannot become `config.dtype`."""
    if config.dtype not in (*_NORMALISED, dtype) or config.dtype == "uint8" != dtype:
        raise ValueError(
            f"{dtype} images cannot be converted to {config.dtype}: set dtype='float32'; or, for a "
            "Reader of your own, use a decoder that keeps integers, like decode_array with stored"
        )


def _joined(images: Sequence[Any], axis: int) -> Any:
    """Return the images joined along the channels."""
    return images[0] if len(images) == 1 else fn.cat(*images, axis=axis)


def _without_missing(
    image: Any, decoded: DecodedImages, channels: int, layout: Literal["HWC", "CHW"], dtype: str
) -> Any:
    """Replace missing images by NaN, or 0 in integers; `channels` is the number of all images."""
    if decoded.present is None:
        return image
    is_float = dtype in ("float32", "float16")
    factor = fn.cast(decoded.present, dtype=types.FLOAT if is_float else to_dali_type(dtype))
    if is_float:
        factor = factor / factor  # 0 becomes NaN
    factor = fn.stack(*[factor] * (channels // len(decoded.images)), axis=1)
    factor = fn.reshape(factor, shape=[1, 1, channels] if layout == "HWC" else [channels, 1, 1])
    factor = factor if image.device == "cpu" else factor.gpu()
    if dtype != "float16":
        return image * factor
    # DALI has no arithmetic in float16.
    return fn.cast(fn.cast(image, dtype=types.FLOAT) * factor, dtype=types.FLOAT16)


def _by_time(image: Any, decoded: DecodedImages) -> Any:
    """Reshape sequences of layout CHW to FCHW, (times, channels, height, width)."""
    if decoded.times is None:
        return image
    of_time = [decoded.times, 1 / decoded.times, 1, 1]
    return fn.reshape(image, src_dims=[-1, 0, 1, 2], rel_shape=of_time, layout="FCHW")
