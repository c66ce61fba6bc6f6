"""Memory that a graph needs, see `dali_pipelines.memory`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import DecodedImages
from dali_pipelines.graph.transform import normalises
from readers.contract import Peek


class Footprint(NamedTuple):
    """Bytes that a graph needs per sample, estimated from the first readable row."""

    image_nbytes: int
    """Bytes of the output image and the sample's other images; 0 if unknown."""
    frame_nbytes: int
    """Bytes of the decoded image before a turn, resize or warp, and of images during augmentation;
    0 if there are none of these steps."""
    num_stages: int
    """Number of operators that each hold a batch of images: decode or warp, turn, fill, flip,
    resize, normalise, combine channels or files, replace missing files, pad."""
    cupy_nbytes: int
    """Bytes of CuPy per batch, if the pipeline runs on a GPU."""
    targets_nbytes: int = 0
    """Bytes of masks and boxes in each batch that is ready or held."""
    decoder_nbytes: int = 0
    """Bytes of whole images that the threads decode, each one at a time, to cut windows."""

    @classmethod
    def of(
        cls,
        peek: Peek | None,
        channels: int,
        decoded: DecodedImages,
        config: PipelineConfig,
        *,
        turned: int = 0,
        targets_nbytes: int = 0,
    ) -> Footprint:
        """Return the sizes for images with this many channels.

        `turned` is the largest number of pixels from which the graph makes a turned window, or 0.
        """
        whole = (0, 0) if peek is None else (peek.height, peek.width)
        crop = config.crop if config.resize_shorter is None else None
        pixels = math.prod(crop or whole) * channels
        others = math.prod(crop or whole) * decoded.pixel_nbytes
        first, cupy = decoded.first, 0
        if peek is not None:
            image = pixels * np.dtype(first.dtype).itemsize + others
            cupy = decoded.cupy_nbytes(config.batch_size, peek.between_nbytes or image, image)
        if config.resized_to is not None:
            frame = 0 if peek is None else pixels * np.dtype(first.dtype).itemsize + others
            pixels = math.prod(config.resized_to) * channels
            others = math.prod(config.resized_to) * decoded.pixel_nbytes
        else:
            frames = 1 if first.memory is None else first.memory.frames
            frame = 0 if peek is None else peek.between_nbytes * frames
        frame += turned * (4 * channels + decoded.pixel_nbytes)  # float32
        stretched = int(config.stretch is not None)
        augmented = (stretched + sum(one.num_images for one in config.augment)) * pixels
        frame += 0 if peek is None else 4 * augmented
        stages = 1 + (config.resized_to is not None) + (turned > 0) + (config.outside == "fill")
        stages += (len(decoded.images) > 1) + (decoded.present is not None)
        channels //= len(decoded.images)
        if first.finished:
            stages += (config.dtype == "float16") + (channels > 1)
        elif config.device_id is not None or config.resize is None or config.has_own_operators:
            # Otherwise the resize also flips and normalises.
            stages += bool(config.flip) + normalises(first, channels, config)
        stages += config.ragged == "pad"
        image = pixels * np.dtype(config.dtype).itemsize + others
        at_a_time = min(config.num_threads, config.batch_size)
        decoder = 0 if peek is None else at_a_time * peek.decoder_nbytes
        return cls(image, frame, stages, cupy, targets_nbytes, decoder)
