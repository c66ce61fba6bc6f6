"""Samples of several files: each is decoded and transformed by itself, then they are joined."""

from __future__ import annotations

import functools
import operator
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import Decode, Decoded, Files, mean_and_std
from readers.channels import ChannelsReader


def decode_parts(
    decode: Decode, reader: ChannelsReader, times: int | None = None, *, missing: bool
) -> Decode:
    """Return the decoder of samples of several files.

    Parameters
    ----------
    decode : Decode
        Decoder of one file.
    reader : ChannelsReader
        Their Reader.
    times : int, optional
        Frames of a sequence, of which each has as many files; None for samples of one time.
    missing : bool
        Whether the graph must replace missing files by NaN, or 0.

    Returns
    -------
    Decode
        The output ``present`` is bool, shape (files,), or (times, files of one time).
    """

    def decode_all(arrays: Any, config: PipelineConfig) -> Decoded:
        names = [spec.name for spec in reader.reader.specs]
        configs = _configs(config, len(reader.parts), times, reader.reader.channels)
        images = tuple(
            decode(ChainMap({name: arrays[f"{name}_{number}"] for name in names}, arrays), one)
            for number, one in enumerate(configs)
        )
        first, present = images[0], arrays["present"]
        files = Files(images, configs, times, present if missing else None)
        if times is not None:
            present = fn.reshape(present, shape=[times, -1])
        statuses = () if first.status is None else tuple(one.status for one in images)
        return first._replace(
            status=functools.reduce(operator.add, statuses) if statuses else None,
            statuses=statuses,
            others={"present": present},
            cupy_nbytes=first.cupy_nbytes and functools.partial(_cupy_of_files, files),
            files=files,
        )

    return decode_all


def _cupy_of_files(files: Files, batch: int, decoded: int, image: int) -> int:
    count, of_one = len(files.images), files.images[0].cupy_nbytes
    # One after the other.
    return 0 if of_one is None else of_one(batch, decoded // count, image // count)


def _configs(
    config: PipelineConfig, files: int, times: int | None, channels: int
) -> tuple[PipelineConfig, ...]:
    """Return the settings for each file, of so many channels, with its own mean and std."""
    if config.mean is None and config.std is None:
        return (config,) * files
    of_time = files // (times or 1)
    mean, std = mean_and_std(config, of_time * channels)
    own = []
    for number in range(of_time):
        part = slice(number * channels, (number + 1) * channels)
        own.append(replace(config, mean=tuple(mean[part]), std=tuple(std[part])))
    return tuple(own) * (times or 1)


def joined(images: Sequence[Any], axis: int) -> Any:
    """Return the images of all files, one after the other along the channels."""
    return images[0] if len(images) == 1 else fn.cat(*images, axis=axis)


def without_missing(
    image: Any, files: Files, channels: int, layout: Literal["HWC", "CHW"], dtype: str
) -> Any:
    """Replace missing files in joined images, of so many channels, by NaN, or 0 in integers."""
    if files.present is None:
        return image
    is_float = dtype in ("float32", "float16")
    factor = fn.cast(files.present, dtype=types.FLOAT if is_float else to_dali_type(dtype))
    if is_float:
        factor = factor / factor  # NaN of 0
    factor = fn.stack(*[factor] * (channels // len(files.images)), axis=1)
    factor = fn.reshape(factor, shape=[1, 1, channels] if layout == "HWC" else [channels, 1, 1])
    factor = factor if image.device == "cpu" else factor.gpu()
    if dtype != "float16":
        return image * factor
    # DALI calculates nothing in float16.
    return fn.cast(fn.cast(image, dtype=types.FLOAT) * factor, dtype=types.FLOAT16)


def by_time(image: Any, files: Files) -> Any:
    """Return images CHW of sequences as FCHW, (times, channels, height, width)."""
    if files.times is None:
        return image
    of_time = [files.times, 1 / files.times, 1, 1]
    return fn.reshape(image, src_dims=[-1, 0, 1, 2], rel_shape=of_time, layout="FCHW")
