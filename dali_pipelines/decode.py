"""Graph fragments that turn what a Reader sends into an image of layout HWC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from nvidia.dali import fn, types

Decode = Callable[[Mapping[str, Any], bool, bool], Any]
"""(the Reader's arrays by name, is there a GPU, is a window cut) -> image, layout HWC."""


def decode_fits(arrays: Mapping[str, Any], gpu: bool, windowed: bool) -> Any:
    """Turn stored FITS values into float32 physical values, shape (height, width, 1)."""
    del windowed  # cut by the Reader
    image = _physical_values()(arrays["shape"], arrays["stored"], arrays["scaling"])
    image = fn.reshape(image, layout="HWC")
    return image.gpu() if gpu else image


def decode_jpeg(arrays: Mapping[str, Any], gpu: bool, windowed: bool) -> Any:
    """Decode to uint8 RGB, shape (height, width, 3); of a window no more is decoded.

    EXIF orientation is honoured, and the window lies in the image as it is displayed.
    """
    options = {"device": "mixed" if gpu else "cpu", "output_type": types.RGB}
    if not windowed:
        return fn.decoders.image(arrays["encoded"], **options)
    return fn.decoders.image_slice(
        arrays["encoded"], arrays["anchor"], arrays["shape"], axis_names="HW", **options
    )


def decode_array(arrays: Mapping[str, Any], gpu: bool, windowed: bool) -> Any:
    """Give the array ``image`` as float32, for Readers that decode for themselves."""
    del windowed
    image = arrays["image"].gpu() if gpu else arrays["image"]
    return fn.cast(image, dtype=types.FLOAT)


@cache
def _physical_values() -> Callable[..., Any]:
    # The operator is compiled once for all pipelines of the process, which takes over a second.
    # numba is imported here to keep it out of processes that decode no FITS.
    from nvidia.dali.plugin.numba import NumbaFunction

    from dali_pipelines.kernels.stored import physical_values

    def shape_of_output(outs, ins):  # type: ignore[no-untyped-def]
        # DALI 2.4 shows no more inputs here than there are outputs, so `shape` comes first.
        for i in range(len(outs[0])):
            outs[0][i][0] = ins[0][i][0]
            outs[0][i][1] = ins[0][i][1]
            outs[0][i][2] = 1

    def run(out, shape, stored, scaling):  # type: ignore[no-untyped-def]
        physical_values(out, stored, scaling)

    return NumbaFunction(
        run_fn=run,
        setup_fn=shape_of_output,
        out_types=[types.FLOAT],
        in_types=[types.UINT8, types.UINT8, types.FLOAT64],
        outs_ndim=[3],
        ins_ndim=[3, 1, 1],
        batch_processing=False,
    )
