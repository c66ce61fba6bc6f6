"""The graph after decoding: place the image, own operators, normalise, permute to CHW."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph import operators
from dali_pipelines.graph.decode import MOVED, Decoded, Files, mean_and_std
from dali_pipelines.graph.gpu import operators as operators_gpu
from dali_pipelines.graph.own.chance import Chance
from dali_pipelines.graph.own.operators import ImageKind, own_operators
from dali_pipelines.graph.parts import by_time, joined, without_missing
from dali_pipelines.graph.place import permute, place
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
            f"the decoder returned finished=True, and {decoded.dtype} instead of "
            f"dtype={config.dtype!r}: convert it in the decoder, or return finished=False"
        )


def transform(
    decoded: Decoded,
    nodes: Mapping[str, Any],
    channels: int,
    config: PipelineConfig,
    chance: Chance,
    missing: float | None = None,
) -> Any:
    """Add the nodes that turn a decoded image into the input of a network: CHW, of config.dtype.

    Parameters
    ----------
    decoded : Decoded
        Checked by `check_decoded`.
    nodes : mapping of str to DataNode
        What the Source sends, of which this takes ``flip`` (int32, shape (2,): whether to flip
        left-right and up-down) and those of `readers.sampling.graph_arrays`, where they are sent.
    channels : int
        Channels of the image.
    config : PipelineConfig
        Settings.
    chance : Chance
        Random numbers for own operators.
    missing : float, optional
        Value of pixels outside the image, where there are no own operators; by default that of
        `config`.

    Raises
    ------
    TypeError
        If `config.transform` does not return a DataNode.
    ValueError
        If the images cannot be converted to the dtype, mean and std do not fit the channels, an
        augmentation does not fit the images, or `config.transform` uses random operators of DALI.
    """
    if decoded.finished and not MOVED.isdisjoint(nodes):
        raise ValueError(
            "rotate, zoom and resize_shorter come before flips, mean and std, which this decoder "
            "has applied, as do windows between pixels and outside='fill': return finished=False"
        )
    files = decoded.files or Files((decoded,), (config,))
    of_file = channels // len(files.images)
    if not config.has_own_operators:
        made = [
            _of_types(one, functools.partial(_made, nodes, of_file, own, missing))
            for one, own in zip(files.images, files.configs, strict=True)
        ]
        image = without_missing(joined(made, 0), files, channels, "CHW", config.dtype)
        return by_time(image, files)
    if decoded.finished and (config.mean is not None or config.std is not None):
        raise ValueError(
            "augment and transform come before mean and std, which this decoder has applied: "
            "return finished=False if config.has_own_operators"
        )
    dtype = "uint8" if config.dtype == "uint8" else "float32"

    def prepared(one: Decoded, select: Callable[[Any], Any]) -> Any:
        _check_dtype(one.dtype, config)
        placed = place(one, nodes, of_file, config, select=select, missing=config.missing)
        image = placed.image if placed.layout == "HWC" else permute(placed.image, "HWC", of_file)
        return image if placed.dtype == dtype else fn.cast(image, dtype=to_dali_type(dtype))

    def augmented(image: Any) -> Any:
        return without_missing(image, files, channels, "HWC", dtype)

    image = joined([_of_types(one, prepared) for one in files.images], 2)
    largest = decoded.largest
    if config.stretch is not None:
        device: Any = operators if config.device_id is None else operators_gpu
        image, largest = device.stretch(image, _curves(config, channels, files)), None
    kind = ImageKind(dtype, channels, largest, len(files.images))
    image = own_operators(image, chance, config, kind, augmented)
    # A transform may return another type, or another number of channels.
    image = fn.cast(image, dtype=to_dali_type(dtype))
    if config.dtype == dtype and config.mean is None and config.std is None:
        return by_time(fn.transpose(image, perm=[2, 0, 1], output_layout="CHW"), files)
    times = files.times or 1
    mean_and_std(config, channels // times)  # raises an error if they do not fit
    mean, std = config.mean or (0.0,), config.std or (1.0,)
    image = fn.crop_mirror_normalize(
        image,
        dtype=_NORMALISED[config.dtype],
        output_layout="CHW",
        mean=list(mean) * (times if len(mean) > 1 else 1),
        std=list(std) * (times if len(std) > 1 else 1),
    )
    return by_time(image, files)


def _curves(config: PipelineConfig, channels: int, files: Files) -> NDArray[np.float64]:
    """Return the parameters of the stretch of each channel, shape (channels, 9)."""
    stretches, times = config.stretch or (), files.times or 1
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
    """Call `make` for the images of each element type, and merge what it returns.

    It also gets a function that takes the samples with such images from a node of all.
    """
    if decoded.other is None:
        return make(decoded, lambda node: node)
    where, image, dtype = decoded.other
    others = decoded._replace(image=image, dtype=dtype)
    false = make(decoded, lambda node: split(node, where)[1])
    true = make(others, lambda node: split(node, where)[0])
    return merge(true, false, where)


def _finish(placed: Decoded, channels: int, config: PipelineConfig) -> Any:
    """Normalise, convert to config.dtype and permute to CHW what is still to be."""
    image = placed.image
    if config.dtype == "uint8" != placed.dtype:  # it was resampled, and is rounded
        image = fn.cast(image, dtype=types.UINT8)
        return image if placed.layout == "CHW" else permute(image, "CHW", channels)
    if _is_done(placed, channels, config):
        image = image if placed.layout == "CHW" else permute(image, "CHW", channels)
        return fn.cast(image, dtype=types.FLOAT16) if config.dtype == "float16" else image
    if placed.layout == "CHW":
        image = permute(image, "HWC", channels)
    if config.dtype == placed.dtype and config.dtype not in _NORMALISED:
        # For the others the operator below is faster.
        return fn.transpose(image, perm=[2, 0, 1], output_layout="CHW")
    mean, std = mean_and_std(config, channels)
    return fn.crop_mirror_normalize(
        image, dtype=_NORMALISED[config.dtype], output_layout="CHW", mean=mean, std=std
    )


def _is_done(decoded: Decoded, channels: int, config: PipelineConfig) -> bool:
    return decoded.finished or not normalises(decoded, channels, config)


def _check_dtype(dtype: str, config: PipelineConfig) -> None:
    """Raise ValueError if decoded images of this dtype cannot become that of the settings."""
    if config.dtype not in (*_NORMALISED, dtype) or config.dtype == "uint8" != dtype:
        raise ValueError(
            f"{dtype} images cannot be converted to {config.dtype}: choose float32, or for a "
            "Reader of your own a decoder that keeps integers, as decode_array with stored does"
        )
