"""CPU operators of this project: compiled kernels that DALI runs in its threads.

numba is imported only when an operator is made: pipelines without one do not need it. All nodes are
on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.runtime.dali_private import CompiledFunction

if TYPE_CHECKING:
    from dali_pipelines.kernels.entries import Entry

Typed = tuple[str, int]
"""NumPy name of the element type of an array, and its number of axes."""


def decode_image(dtype: str, inputs: list[Any], planes: int = 1) -> tuple[Any, Any]:
    """Add `dali_pipelines.kernels.fits.image.decode_image` to the graph.

    Parameters
    ----------
    dtype : {"float32", "uint8", "int16", "int32"}
        Element type of the image.
    inputs : list of DataNode
        shape, payload, plan and scaling of a FitsReader; then flip and finish of the kernel, with
        one finish for each plane.
    planes : int
        Planes of the image.

    Returns
    -------
    image, status : DataNode
        Image of layout HWC, shape (height, width, 1), or layout CHW with several planes; and
        int32 of shape (1,), 0 if good.
    """
    from dali_pipelines.kernels import entries

    arrays = [("uint8", 3), ("uint8", 1), ("int64", 1), ("float64", 1), ("int32", 1)]
    operator = compiled_operator(
        entries.decode_entry(dtype), [(dtype, 3), ("int32", 1)], [*arrays, ("float32", 1)]
    )
    image, status = operator(*inputs)
    return fn.reshape(image, layout="HWC" if planes == 1 else "CHW"), status


def resize(
    dtype: str,
    out_dtype: str,
    image: Any,
    carrier: Any,
    flip: Any,
    finish: Any,
    kind: Any,
    part: Any = None,
) -> Any:
    """Add `dali_pipelines.kernels.resample.resize.resize` to the graph.

    Parameters
    ----------
    dtype, out_dtype : {"uint8", "float32"}
        Element types of the image and of the result. ``uint8`` results are rounded, and limited to
        0 to 255.
    image : DataNode
        Layout HWC.
    carrier : DataNode
        uint8, any values; its shape is (height, width) of the output.
    flip, finish : DataNode
        Arguments of the kernel.
    kind : DataNode
        int32, shape (1,): filter of the kernel.
    part : DataNode, optional
        float32, shape (4,), see the kernel; by default the whole image.

    Returns
    -------
    DataNode
        Layout CHW.
    """
    from dali_pipelines.kernels import entries

    parts = [] if part is None else [part]
    inputs = [(dtype, 3), ("uint8", 2), ("int32", 1), ("float32", 2), ("int32", 1)]
    operator = compiled_operator(
        entries.resize_entry(dtype, out_dtype),
        [(out_dtype, 3)],
        inputs + [("float32", 1)] * len(parts),
    )
    return fn.reshape(operator(image, carrier, flip, finish, kind, *parts), layout="CHW")


def nearest(dtype: str, image: Any, carrier: Any, numbers: Any, outside: Any) -> Any:
    """Add `dali_pipelines.kernels.resample.nearest.nearest` to the graph.

    Parameters
    ----------
    dtype : str
        NumPy name of the element type of the image and of the result.
    image : DataNode
        Layout HWC.
    carrier : DataNode
        uint8, any values; its shape is (height, width) of the output.
    numbers, outside : DataNode
        float64, arguments of the kernel.

    Returns
    -------
    DataNode
        Layout CHW.
    """
    from dali_pipelines.kernels import entries

    inputs = [(dtype, 3), ("uint8", 2), ("float64", 1), ("float64", 1)]
    operator = compiled_operator(entries.nearest_entry(dtype), [(dtype, 3)], inputs)
    return fn.reshape(operator(image, carrier, numbers, outside), layout="CHW")


def stretch(image: Any, parameters: NDArray[np.float64]) -> Any:
    """Add `dali_pipelines.kernels.stretch.stretch_line` to the graph.

    Parameters
    ----------
    image : DataNode
        float32, layout HWC.
    parameters : ndarray, shape (channels, 9), float64
        Result of `dali_pipelines.stretch.Stretch.parameters` for each channel.

    Returns
    -------
    DataNode
        float32, layout HWC.
    """
    from dali_pipelines.kernels import entries

    numbers = types.Constant(parameters.astype(np.float32).ravel(), device="cpu")
    return changed(entries.stretch_entry(), image, numbers)


def warp(inputs: list[Any], order: int) -> Any:
    """Add `dali_pipelines.kernels.resample.warp.warp` to the graph.

    Parameters
    ----------
    inputs : list of DataNode
        The image, float32, layout HWC with one channel; grid, matrix, reduce, gain, stretch,
        special and frame of `readers.aia.AiaReader`; and flip.
    order : {1, 3}
        Order of the spline.

    Returns
    -------
    DataNode
        float32, layout CHW, shape (1, height, width).
    """
    from dali_pipelines.kernels import entries

    image, grid, matrix, reduce, gain, stretch, special, frame, flip = inputs
    constant = types.Constant(np.array([order], np.int64), device="cpu")
    # DALI's numba operator takes at most six inputs.
    numbers = fn.cat(
        fn.reshape(matrix, shape=[6]),
        gain,
        stretch,
        special,
        *(fn.cast(node, dtype=types.FLOAT64) for node in (frame, constant, reduce)),
        axis=0,
    )
    arrays = [("float32", 3), ("uint8", 3), ("float64", 1), ("int32", 1)]
    operator = compiled_operator(entries.warp_entry(), [("float32", 3)], arrays)
    return fn.reshape(operator(image, grid, numbers, flip), layout="CHW")


def changed(entry: Entry, image: Any, numbers: Any) -> Any:
    """Add a kernel that makes an image, layout HWC, from an image and numbers; all are float32."""
    operator = compiled_operator(entry, [("float32", 3)], [("float32", 3), ("float32", 1)])
    return fn.reshape(operator(image, numbers), layout="HWC")


def compiled_operator(entry: Entry, outputs: Sequence[Typed], inputs: Sequence[Typed]) -> Any:
    """Return DALI's operator for a kernel with outputs and inputs of these types."""
    run, setup = (function.address for function in entry)
    return CompiledFunction(
        run_fn=run,
        setup_fn=setup,
        out_types=[to_dali_type(dtype) for dtype, _ in outputs],
        in_types=[to_dali_type(dtype) for dtype, _ in inputs],
        outs_ndim=[ndim for _, ndim in outputs],
        ins_ndim=[ndim for _, ndim in inputs],
        batch_processing=False,
    )
