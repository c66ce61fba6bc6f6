"""The graph after decoding: turn, resize, flip, own operators, normalise, permute to CHW."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph import operators
from dali_pipelines.graph.decode import Decoded, mean_and_std
from dali_pipelines.graph.own.chance import Chance
from dali_pipelines.graph.own.operators import ImageKind, own_operators
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
    nodes: Mapping[str, Any],
    channels: int,
    config: PipelineConfig,
    chance: Chance,
) -> Any:
    """Add the nodes that turn a decoded image into the input of a network: CHW, of config.dtype.

    Parameters
    ----------
    decoded : Decoded
        Checked by `check_decoded`.
    nodes : mapping of str to DataNode
        What the Source sends, of which this takes ``flip`` (int32, shape (2,): whether to flip
        left-right and up-down) and ``part`` and ``affine`` of
        `readers.sampling.geometry.Geometry.geometry_arrays`, where they are sent.
    channels : int
        Channels of the image.
    config : PipelineConfig
        Settings.
    chance : Chance
        Random numbers for own operators.

    Raises
    ------
    TypeError
        If `config.transform` does not return a DataNode.
    ValueError
        If the images cannot be converted to the dtype, mean and std do not fit the channels, an
        augmentation does not fit the images, or `config.transform` uses random operators of DALI.
    """
    if decoded.finished and not {"affine", "part"}.isdisjoint(nodes):
        raise ValueError(
            "rotate, zoom and resize_shorter come before flips, mean and std, which this decoder "
            "has applied: return finished=False"
        )
    if not config.has_own_operators:
        return _of_types(
            decoded,
            lambda one, select: _finish(
                _place(one, nodes, channels, config, select), channels, config
            ),
        )
    if decoded.finished and (config.mean is not None or config.std is not None):
        raise ValueError(
            "augment and transform come before mean and std, which this decoder has applied: "
            "return finished=False if config.has_own_operators"
        )
    dtype = "uint8" if config.dtype == "uint8" else "float32"

    def prepared(one: Decoded, select: Callable[[Any], Any]) -> Any:
        placed = _place(one, nodes, channels, config, select)
        _check_dtype(placed.dtype, config)
        image = placed.image if placed.layout == "HWC" else _permute(placed.image, "HWC", channels)
        return image if placed.dtype == dtype else fn.cast(image, dtype=to_dali_type(dtype))

    kind = ImageKind(dtype, channels, decoded.largest)
    image = own_operators(_of_types(decoded, prepared), chance, config, kind)
    # A transform may return another type, or another number of channels.
    image = fn.cast(image, dtype=to_dali_type(dtype))
    if config.dtype == dtype and config.mean is None and config.std is None:
        return fn.transpose(image, perm=[2, 0, 1], output_layout="CHW")
    mean_and_std(config, channels)  # raises an error if they do not fit
    return fn.crop_mirror_normalize(
        image,
        dtype=_NORMALISED[config.dtype],
        output_layout="CHW",
        mean=list(config.mean or (0.0,)),
        std=list(config.std or (1.0,)),
    )


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


def _place(
    decoded: Decoded,
    nodes: Mapping[str, Any],
    channels: int,
    config: PipelineConfig,
    select: Callable[[Any], Any],
) -> Decoded:
    """Turn, resize and flip the images, where the decoder has not.

    The resize on the CPU also finishes them, unless own operators come first.
    """
    image, layout, dtype = decoded.image, decoded.layout, decoded.dtype
    flips = bool(config.flip) and not decoded.finished
    resamples = "affine" in nodes or config.resized_to is not None
    if layout == "CHW" and (resamples or flips or not _is_done(decoded, channels, config)):
        image, layout = _permute(image, "HWC", channels), "HWC"
    if "affine" in nodes:
        image, dtype = _turn(image, select(nodes["affine"]), config), "float32"
    if config.resized_to is not None and (config.device_id is not None or "part" in nodes):
        part = select(nodes["part"]) if "part" in nodes else None
        image, dtype = _resize(image, config.resized_to, part), "float32"
    elif config.resized_to is not None:
        flip = select(nodes["flip"] if flips else _constant(np.zeros(2, np.int32)))
        mean, std = [0.0] * channels, [1.0] * channels
        if finishes := not (decoded.finished or config.has_own_operators):
            mean, std = mean_and_std(config, channels)
        finish = np.stack((mean, 1 / np.array(std)), axis=1).astype(np.float32)
        image = _resize_and_finish(image, dtype, config.resized_to, select, flip, finish)
        finished = decoded.finished or finishes
        return decoded._replace(image=image, layout="CHW", dtype="float32", finished=finished)
    if flips:
        # After the resize, where there is less to copy; the filter is symmetric.
        flags = select(nodes["flip"])
        image = fn.flip(image, horizontal=flags[0], vertical=flags[1])
    return decoded._replace(image=image, layout=layout, dtype=dtype)


def _finish(placed: Decoded, channels: int, config: PipelineConfig) -> Any:
    """Normalise, convert to config.dtype and permute to CHW what is still to be."""
    image = placed.image
    if _is_done(placed, channels, config):
        image = image if placed.layout == "CHW" else _permute(image, "CHW", channels)
        return fn.cast(image, dtype=types.FLOAT16) if config.dtype == "float16" else image
    if config.dtype == placed.dtype == "uint16":  # of the others the operator below is faster
        return fn.transpose(image, perm=[2, 0, 1])
    _check_dtype(placed.dtype, config)
    mean, std = mean_and_std(config, channels)
    return fn.crop_mirror_normalize(
        image, dtype=_NORMALISED[config.dtype], output_layout="CHW", mean=mean, std=std
    )


def _is_done(decoded: Decoded, channels: int, config: PipelineConfig) -> bool:
    return decoded.finished or not normalises(decoded, channels, config)


def _check_dtype(dtype: str, config: PipelineConfig) -> None:
    if config.dtype not in _NORMALISED or config.dtype == "uint8" != dtype:
        raise ValueError(f"{dtype} images cannot be converted to {config.dtype}")


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


def _resize(image: Any, shape: tuple[int, int], part: Any) -> Any:
    """Resize the image, or a part of it, to float32."""
    region = {} if part is None else {"roi_start": part[0:2], "roi_end": part[2:4]}
    options = {"size": shape, "dtype": types.FLOAT, "interp_type": types.INTERP_LINEAR}
    return fn.resize(image, **options, **region)


def _resize_and_finish(
    image: Any,
    dtype: str,
    shape: tuple[int, int],
    select: Callable[[Any], Any],
    flip: Any,
    finish: NDArray[np.float32],
) -> Any:
    """Resize by the same filter on the CPU; flip, normalise and permute to CHW on the way."""
    if dtype == "uint16":
        image, dtype = fn.cast(image, dtype=types.FLOAT), "float32"
    carrier = _constant(np.zeros(shape, np.uint8))
    return operators.resize(dtype, image, select(carrier), flip, select(_constant(finish)))


def _constant(value: Any) -> Any:
    return types.Constant(value, device="cpu")
