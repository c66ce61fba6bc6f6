"""Graph fragments that decode a Reader's arrays to images."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.aia.calibration import Calibration
from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph import operators
from dali_pipelines.graph.gpu import operators as operators_gpu
from dali_pipelines.graph.gpu.memory import (
    decoder_nbytes,
    deconvolver_nbytes,
    nearest_nbytes,
    warp_nbytes,
)
from dali_pipelines.runtime.dali_private import merge, split
from dali_pipelines.settings import Augmentation
from readers.contract import Reader

MOVED = frozenset(("part", "affine", "inside"))
"""Arrays that the Source sends if the graph does geometry. Geometry comes before flips, mean and
std, so with one of these arrays a decoder must leave flips, mean and std to the graph."""


class Decoded(NamedTuple):
    """The nodes that a decoder adds to the graph."""

    image: Any
    """DataNode in the layout `layout`, on the device where the rest of the graph runs."""
    dtype: str
    """Element type of `image`, which DALI itself knows only at run time."""
    status: Any = None
    """DataNode of int32, shape (1,): 0 if the image is good. None if bad images make the graph
    fail."""
    finished: bool = False
    """True if the decoder also flips by ``arrays["flip"]``, normalises by mean and std, and
    converts to the dtype of the settings (float32 for float16). This saves one pass over the
    image."""
    layout: Literal["HWC", "CHW"] | None = None
    """Order of the axes of `image`. None for the layout in the SampleSpec of the Reader's array
    ``image``, or HWC if it has none."""
    channels: int | None = None
    """Channels of `image`; None for the Reader's number."""
    others: Mapping[str, Any] = {}
    """More outputs of the pipeline, by name."""
    largest: float | None = None
    """Largest possible value of images with values from 0 on, before mean and std: 255 for 8 bits.
    None if it is unknown or differs between images."""
    other: Other | None = None
    """Images of a second element type, if a batch may hold both."""
    memory: DecoderMemory | None = None
    """Memory that the decoder needs in addition to one image, if any."""
    name: str = "image"
    """Name of the output. Only an output ``image`` has a ``size`` with ``ragged="pad"``."""
    is_flat: bool = False
    """Whether the image is a single row of pixels, and the output lacks the axis of rows."""
    outside: float = 0.0
    """Value beyond the image, for ``ragged="pad"``."""


class Other(NamedTuple):
    """Images of a batch with a second element type, beside `Decoded.image`.

    An operator takes a single type. Therefore each type has its own branch of the graph, and the
    results are merged. A type that is missing from a batch costs nothing.
    """

    where: Any
    """DataNode of bool, shape (), on the CPU: True where the image has this type."""
    image: Any
    """DataNode, like `Decoded.image`."""
    dtype: str
    """Element type of `image`."""


class DecoderMemory(NamedTuple):
    """Additional memory of a decoder."""

    cupy_nbytes: Callable[[int, int, int], int]
    """Function that returns the bytes of CuPy on a GPU, see `dali_pipelines.graph.gpu.memory`. It
    takes the batch size, the decoded bytes of a sample, and the bytes of its output image."""
    frames: int = 1
    """Number of images that the graph makes from each file before the resize or warp."""


class ImageOutput(NamedTuple):
    """Image of a sample that is a separate output, with the size of the first image."""

    image: Any
    """DataNode, layout CHW."""
    status: Any
    """DataNode as in `Decoded`."""
    outside: float
    """Value beyond the image, for ``ragged="pad"``."""
    pixel_nbytes: int
    """Bytes of this image per pixel of the first image."""
    is_nearest: bool
    """Whether it is resampled by nearest pixels."""


class DecodedImages(NamedTuple):
    """All images of a sample, which share one geometry."""

    images: tuple[Decoded, ...]
    """Images that are transformed one by one, then joined along the channels to the output
    ``image``. For sequences: all channels of the first time, then all of the second, and so on."""
    configs: tuple[PipelineConfig, ...]
    """Settings of each image, with its mean and std."""
    outputs: Mapping[str, ImageOutput] = {}
    """Images that are separate outputs, by name."""
    times: int | None = None
    """Frames of a sequence; None if all are of one time."""
    present: Any = None
    """DataNode of bool, shape (images,), on the CPU: False for missing images, which the graph
    replaces by NaN or 0. None if no image can be missing."""

    @property
    def first(self) -> Decoded:
        """First image; all `images` have the same properties."""
        return self.images[0]

    @property
    def statuses(self) -> list[Any]:
        """Statuses of all images that have one."""
        statuses = [one.status for one in self.images]
        statuses += [one.status for one in self.outputs.values()]
        return [status for status in statuses if status is not None]

    @property
    def others(self) -> dict[str, Any]:
        """More outputs of the pipeline, by name."""
        return {**self.first.others, **{name: one.image for name, one in self.outputs.items()}}

    @property
    def pixel_nbytes(self) -> int:
        """Bytes of `outputs` per pixel of the image."""
        return sum(one.pixel_nbytes for one in self.outputs.values())

    def cupy_nbytes(self, batch: int, decoded: int, image: int) -> int:
        """Return the bytes that CuPy takes, see `DecoderMemory`."""
        if self.first.memory is None:
            return 0
        count = len(self.images)  # decoded one after the other
        nbytes = self.first.memory.cupy_nbytes(batch, decoded // count, image // count)
        is_nearest = self.configs[0].interpolation == "nearest"
        is_nearest |= any(one.is_nearest for one in self.outputs.values())
        return nbytes + (nearest_nbytes(batch, image) if is_nearest else 0)


Decode = Callable[[Mapping[str, Any], PipelineConfig], Decoded]
"""Function of (arrays, config). `arrays` has the arrays of the Reader and ``flip``, by name."""
DecodeAll = Callable[[Mapping[str, Any], PipelineConfig], Decoded | DecodedImages]
"""Like `Decode`, but may return several images of a sample."""


def with_layout(decoded: Decoded, reader: Reader) -> Decoded:
    """Return an image with the layout of the Reader's specs, unless the decoder has set another."""
    is_chw = any((spec.name, spec.layout) == ("image", "CHW") for spec in reader.specs)
    return decoded._replace(layout="CHW") if is_chw and decoded.layout is None else decoded


def decode_fits(arrays: Mapping[str, Any], config: PipelineConfig, planes: int = 1) -> Decoded:
    """Decode the tiles or rows sent by a FitsReader to physical values or stored integers.

    Each plane is a channel. One plane gives HWC, (height, width, 1); several give CHW.
    """
    dtype = "float32" if config.dtype == "float16" else config.dtype
    # Flips, mean and std come after a resize, which needs several planes transposed to HWC; after
    # turns and fills; and mean and std also after own operators.
    resized = planes > 1 and config.resized_to is not None
    is_nearest = config.interpolation == "nearest" and config.resized_to is not None
    moves = resized or is_nearest or not MOVED.isdisjoint(arrays)
    last = moves or config.has_own_operators
    means, stds = ([0.0] * planes, [1.0] * planes) if last else mean_and_std(config, planes)
    finish = tuple((mean, 1 / std) for mean, std in zip(means, stds, strict=True))
    flip = no_flip() if last else arrays.get("flip", no_flip())
    image, status = decode_file(arrays, dtype, flip, finish, config)
    if last:
        if planes > 1:
            image = fn.transpose(image, perm=[1, 2, 0], output_layout="HWC")
        return Decoded(image, dtype, status, memory=_OF_FITS)
    layout: Literal["HWC", "CHW"] = "HWC" if planes == 1 else "CHW"
    return Decoded(image, dtype, status, finished=True, layout=layout, memory=_OF_FITS)


_OF_FITS = DecoderMemory(lambda batch, decoded, _: decoder_nbytes(batch, decoded))


def mean_and_std(config: PipelineConfig, channels: int) -> tuple[list[float], list[float]]:
    """Return mean and std for each channel, by default 0 and 1; ValueError on a wrong length."""
    found = []
    for name, values in (("mean", config.mean or (0.0,)), ("std", config.std or (1.0,))):
        if len(values) not in (1, channels):
            raise ValueError(
                f"{name} must be one number, or {channels}, one for each channel of the images, "
                f"got {values}"
            )
        found.append(list(values) * (channels // len(values)))
    return found[0], found[1]


def aia_decoder(calibration: Calibration, files: int = 1) -> Decode:
    """Return the decoder for `readers.aia.AiaReader` and samples of this number of files."""

    def decode(arrays: Mapping[str, Any], config: PipelineConfig) -> Decoded:
        finish = ((0.0, 1.0),)
        image, status = decode_file(arrays, "float32", no_flip(), finish, config)
        if calibration.psf:
            from dali_pipelines.graph.operators_psf import deconvolve_node

            threads = config.num_threads
            wavelnth = arrays["wavelnth"]
            image = deconvolve_node(image, wavelnth, calibration.psf, num_threads=threads)
        names = ("grid", "matrix", "reduce", "gain", "stretch", "special", "frame")
        inputs = [image, *(arrays[name] for name in names), arrays.get("flip", no_flip())]
        device: Any = operators if config.device_id is None else operators_gpu
        memory = DecoderMemory(
            functools.partial(_cupy_of_aia, calibration, files),
            frames=3 if calibration.psf else 1,  # DALI copies the outputs of Python functions
        )
        return Decoded(
            device.warp(inputs, calibration.order),
            "float32",
            status,
            finished=True,
            layout="CHW",
            memory=memory,
        )

    return decode


def _cupy_of_aia(calibration: Calibration, files: int, batch: int, frame: int, image: int) -> int:
    deconvolved = deconvolver_nbytes(batch, len(calibration.psf), files) if calibration.psf else 0
    warped = warp_nbytes(batch, frame, image, calibration.order)
    return decoder_nbytes(batch, frame) + deconvolved + warped


def decode_file(
    arrays: Mapping[str, Any],
    dtype: str,
    flip: Any,
    finish: operators_gpu.Finish,
    config: PipelineConfig,
) -> tuple[Any, Any]:
    """Add the decoder of FITS images on the CPU or the GPU; return image and status."""
    inputs = [*(arrays[name] for name in ("shape", "payload", "plan", "scaling")), flip]
    if config.device_id is not None:
        return operators_gpu.decode_image(dtype, inputs, finish)
    inputs.append(types.Constant(np.array(finish, np.float32).reshape(-1), device="cpu"))
    return operators.decode_image(dtype, inputs, len(finish))


def no_flip() -> Any:
    """Return a flip of (0, 0), for operators that must not flip."""
    return types.Constant(np.zeros(2, np.int32), device="cpu")


def decode_jpeg(arrays: Mapping[str, Any], config: PipelineConfig, *, channels: int = 3) -> Decoded:
    """Decode images, or a window of them, to RGB or gray, shape (height, width, channels).

    Images of 8 bits become uint8 and images of 16 bits uint16. A batch may hold both, unless the
    dtype of the settings is one of these, or augmentations need 8 bits. The EXIF orientation is
    applied; windows are in pixels of the displayed image.

    Parameters
    ----------
    arrays : mapping of str to DataNode
        Arrays of a JpegReader.
    config : PipelineConfig
        Settings: the window, dtype and device_id are used.
    channels : {3, 1}
        RGB or gray.
    """
    window = ("anchor", "shape", "sent_shape") if config.is_window else ()
    inputs = [arrays[name] for name in ("colour_png", "encoded", *window)]
    decode = functools.partial(_decode_image, channels=channels, config=config)
    if config.dtype in ("uint8", "uint16") or need_8_bits(config.augment):
        dtype = "uint16" if config.dtype == "uint16" else "uint8"
        return Decoded(decode(inputs, dtype), dtype, largest=255 if dtype == "uint8" else None)
    deep, shallow = zip(*(split(node, arrays["deep"]) for node in inputs), strict=True)
    other = Other(arrays["deep"], decode(deep, "uint16"), "uint16")
    return Decoded(decode(shallow, "uint8"), "uint8", other=other)


def need_8_bits(augment: Iterable[Augmentation]) -> list[str]:
    """Return the names of the augmentations that need 8 bits in all encoded images."""
    return [type(one).__name__ for one in augment if one.of_8_bits]


def _decode_image(
    inputs: Sequence[Any], dtype: str, *, channels: int, config: PipelineConfig
) -> Any:
    colour_png, *image = inputs
    if channels == 3 or dtype == "uint16":
        return _decode_as(types.RGB if channels == 3 else types.GRAY, image, dtype, config)
    # libpng truncates when it converts 8-bit colours to gray: 0.5 too dark on average.
    pngs, others = zip(*(split(node, colour_png) for node in image), strict=True)
    colours = _decode_as(types.RGB, pngs, dtype, config)
    rounded = fn.color_space_conversion(colours, image_type=types.RGB, output_type=types.GRAY)
    return merge(rounded, _decode_as(types.GRAY, others, dtype, config), colour_png)


def _decode_as(output_type: Any, inputs: Sequence[Any], dtype: str, config: PipelineConfig) -> Any:
    on_gpu = config.device_id is not None
    options = {
        "device": "mixed" if on_gpu else "cpu",
        "output_type": output_type,
        "dtype": to_dali_type(dtype),
        # Otherwise a GPU repeats subsampled colours, and a quarter of the values differ from a CPU.
        "jpeg_fancy_upsampling": True,
    }
    encoded, *window = inputs
    if on_gpu:
        image = _on_stream_of_operators(fn.decoders.image(encoded, **options))
        # nvImageCodec 0.9 leaves regions of subsampled images to the CPU, which is slower.
        return fn.slice(image, *window[:2], axis_names="HW") if window else image
    if not window:
        return fn.decoders.image(encoded, **options)
    if _may_be_thin(config):
        return _decode_thin_region(encoded, window, options)
    return fn.decoders.image_slice(encoded, *window[:2], axis_names="HW", **options)


def _on_stream_of_operators(image: Any) -> Any:
    """Move an image from the stream of the GPU decoder to the stream of operators, without a copy.

    If a part of a batch is empty, DALI 2.4 skips its operators, and their result has no dimensions.
    Operators on another stream fail for such a result, unless they accept any layout, as
    ``fn.reinterpret`` does.
    """
    return fn.reinterpret(image, layout="HWC")


def _may_be_thin(config: PipelineConfig) -> bool:
    """Return whether windows may be a single row or column."""
    is_turned = config.rotate != 0 or tuple(config.zoom) != (1, 1)
    if config.crop is None or config.resize_shorter is not None or is_turned:
        return True
    return config.outside == "fill" or min(config.crop) == 1


def _decode_thin_region(encoded: Any, window: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Decode a region. If it is only the first column or row, decode two and cut one out.

    On CPUs DALI 2.4 interpolates the colours of the first column wrongly, in JPEGs that subsample
    colours in both directions. Rows would not need this, but a mask for columns alone would be a
    Constant, whose size is that of a whole batch, and this may be a part of a batch.
    """
    anchor, shape, sent_shape = window
    more = (shape == 1) & (anchor == 0) & (sent_shape > 1)
    image = fn.decoders.image_slice(encoded, anchor, shape + more, axis_names="HW", **options)
    is_one = more[0] | more[1]
    two, other = split(image, is_one)
    one = fn.slice(two, start=(0, 0), shape=split(shape, is_one)[0], axis_names="HW")
    return merge(one, other, is_one)


def decode_array(
    arrays: Mapping[str, Any], config: PipelineConfig, *, stored: str | None = None
) -> Decoded:
    """Return the array ``image`` of Readers that deliver decoded images.

    Parameters
    ----------
    arrays : mapping of str to DataNode
        Arrays of the Reader.
    config : PipelineConfig
        Settings: the image becomes float32, unless dtype is an integer type.
    stored : str, optional
        Element type of the array, as in the Reader's specs. It is required for integer dtypes,
        which must equal it; the integers then stay as they are. ``uint8`` also allows augmentations
        for 8 bits.

    Raises
    ------
    ValueError
        If dtype is an integer type other than `stored`.
    """
    image = arrays["image"] if config.device_id is None else arrays["image"].gpu()
    largest = 255 if stored == "uint8" else None
    if stored is None or config.dtype in ("float32", "float16"):
        return Decoded(fn.cast(image, dtype=types.FLOAT), "float32", largest=largest)
    if stored != config.dtype:
        raise ValueError(
            f"dtype {config.dtype!r} keeps the stored values, which are {stored}: set dtype to "
            "float32, or to the stored type if it is uint8, uint16, int16 or int32"
        )
    return Decoded(image, stored, largest=largest)
