"""Graph fragments that turn what a Reader sends into an image of layout HWC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from nvidia.dali import fn, types

from dali_pipelines import operators


class Decoded(NamedTuple):
    """What a decoder adds to the graph."""

    image: Any
    """DataNode of layout HWC, on the device where the rest shall run."""
    dtype: Literal["uint8", "float32"]
    """Its element type, which DALI knows only when it runs."""
    status: Any = None
    """DataNode of int32, shape (1,), on the CPU: 0 where the image is good. None if a bad one makes
    the graph fail."""


Decode = Callable[[Mapping[str, Any], bool, bool], Decoded]
"""(the Reader's arrays by name, is there a GPU, is a window cut) -> what was decoded."""


def decode_fits(arrays: Mapping[str, Any], gpu: bool, windowed: bool) -> Decoded:
    """Decode FITS tiles or stored values to float32 physical values, shape (height, width, 1)."""
    del windowed  # cut by the Reader
    values = operators.physical_values()
    names = ("shape", "payload", "plan", "scaling")
    image, status = values(*(arrays[name] for name in names))
    image = fn.reshape(image, layout="HWC")
    return Decoded(image.gpu() if gpu else image, "float32", status)


def decode_jpeg(arrays: Mapping[str, Any], gpu: bool, windowed: bool) -> Decoded:
    """Decode to uint8 RGB, shape (height, width, 3); of a window no more is decoded.

    EXIF orientation is honoured, and the window lies in the image as it is displayed.
    """
    options = {"device": "mixed" if gpu else "cpu", "output_type": types.RGB}
    if not windowed:
        return Decoded(fn.decoders.image(arrays["encoded"], **options), "uint8")
    image = fn.decoders.image_slice(
        arrays["encoded"], arrays["anchor"], arrays["shape"], axis_names="HW", **options
    )
    return Decoded(image, "uint8")


def decode_array(arrays: Mapping[str, Any], gpu: bool, windowed: bool) -> Decoded:
    """Give the array ``image`` as float32, for Readers that decode for themselves."""
    del windowed
    image = arrays["image"].gpu() if gpu else arrays["image"]
    return Decoded(fn.cast(image, dtype=types.FLOAT), "float32")
