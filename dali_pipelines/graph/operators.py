"""CPU operators of this project: compiled kernels that DALI runs in its threads.

numba is imported only when an operator is made: pipelines without one do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.runtime.dali_private import CompiledFunction

if TYPE_CHECKING:
    from dali_pipelines.kernels.entries import Entry


def decode_image(dtype: str, inputs: list[Any], planes: int = 1) -> tuple[Any, Any]:
    """Add `dali_pipelines.kernels.fits.image.decode_image` to the graph.

    Parameters
    ----------
    dtype : {"float32", "uint8", "int16", "int32"}
        Element type of the image.
    inputs : list of DataNode
        shape, payload, plan and scaling of a FitsReader, then flip and finish of the kernel (one
        finish per plane); all on the CPU.
    planes : int
        Planes of the image.

    Returns
    -------
    image, status : DataNode
        Image of layout HWC, shape (height, width, 1), or layout CHW with several planes; and
        int32 of shape (1,), 0 if good.
    """
    from dali_pipelines.kernels import entries

    operator = compiled_operator(
        entries.decode_entry(dtype),
        out_types=[to_dali_type(dtype), types.INT32],
        in_types=[types.UINT8, types.UINT8, types.INT64, types.FLOAT64, types.INT32, types.FLOAT],
        outs_ndim=[3, 1],
        ins_ndim=[3, 1, 1, 1, 1, 1],
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
    dtype : {"uint8", "float32"}
        Element type of the image.
    out_dtype : {"uint8", "float32"}
        Element type of the result. ``uint8`` is rounded, and limited to 0 to 255.
    image : DataNode
        Layout HWC, on the CPU.
    carrier : DataNode
        uint8, shape (height, width) of the output, any values; on the CPU.
    flip : DataNode
        int32, shape (2,): whether to flip left-right and up-down; on the CPU.
    finish : DataNode
        float32, shape (channels, 2): subtracted from, then multiplied with, each channel; on the
        CPU.
    kind : DataNode
        int32, shape (1,): filter of the kernel; on the CPU.
    part : DataNode, optional
        float32, shape (4,): y and x of the start, then of the end, of the part of the image that is
        resized; on the CPU. By default the whole image.

    Returns
    -------
    DataNode
        Layout CHW.
    """
    from dali_pipelines.kernels import entries

    in_types = [to_dali_type(dtype), types.UINT8, types.INT32, types.FLOAT, types.INT32]
    parts = [] if part is None else [part]
    operator = compiled_operator(
        entries.resize_entry(dtype, out_dtype),
        out_types=[to_dali_type(out_dtype)],
        in_types=in_types + [types.FLOAT] * len(parts),
        outs_ndim=[3],
        ins_ndim=[3, 2, 1, 2, 1] + [1] * len(parts),
    )
    return fn.reshape(operator(image, carrier, flip, finish, kind, *parts), layout="CHW")


def nearest(dtype: str, image: Any, carrier: Any, numbers: Any, outside: Any) -> Any:
    """Add `dali_pipelines.kernels.resample.nearest.nearest` to the graph.

    Parameters
    ----------
    dtype : str
        NumPy name of the image's element type.
    image : DataNode
        Layout HWC, on the CPU.
    carrier : DataNode
        uint8, shape (height, width) of the output, any values; on the CPU.
    numbers, outside : DataNode
        float64, arguments of the kernel; on the CPU.

    Returns
    -------
    DataNode
        Type of the image, layout CHW.
    """
    from dali_pipelines.kernels import entries

    operator = compiled_operator(
        entries.nearest_entry(dtype),
        out_types=[to_dali_type(dtype)],
        in_types=[to_dali_type(dtype), types.UINT8, types.FLOAT64, types.FLOAT64],
        outs_ndim=[3],
        ins_ndim=[3, 2, 1, 1],
    )
    return fn.reshape(operator(image, carrier, numbers, outside), layout="CHW")


def stretch(image: Any, parameters: NDArray[np.float64]) -> Any:
    """Add `dali_pipelines.kernels.stretch.stretch_line` to the graph.

    Parameters
    ----------
    image : DataNode
        float32, layout HWC, on the CPU.
    parameters : ndarray, shape (channels, 9), float64
        Result of `dali_pipelines.stretch.Stretch.parameters` for each channel.

    Returns
    -------
    DataNode
        float32, layout HWC.
    """
    from dali_pipelines.kernels import entries

    operator = compiled_operator(
        entries.stretch_entry(),
        out_types=[types.FLOAT],
        in_types=[types.FLOAT, types.FLOAT],
        outs_ndim=[3],
        ins_ndim=[3, 1],
    )
    numbers = types.Constant(parameters.astype(np.float32).ravel(), device="cpu")
    return fn.reshape(operator(image, numbers), layout="HWC")


def warp(inputs: list[Any], order: int) -> Any:
    """Add `dali_pipelines.kernels.resample.warp.warp` to the graph.

    Parameters
    ----------
    inputs : list of DataNode
        The image, float32, layout HWC with one channel; grid, matrix, reduce, gain, stretch,
        special and frame of `readers.aia.AiaReader`; and flip. All on the CPU.
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
    operator = compiled_operator(
        entries.warp_entry(),
        out_types=[types.FLOAT],
        in_types=[types.FLOAT, types.UINT8, types.FLOAT64, types.INT32],
        outs_ndim=[3],
        ins_ndim=[3, 3, 1, 1],
    )
    return fn.reshape(operator(image, grid, numbers, flip), layout="CHW")


def compiled_operator(entry: Entry, **options: Any) -> Any:
    """Return DALI's operator for a kernel; `options` are its types and numbers of axes."""
    run, setup = (function.address for function in entry)
    return CompiledFunction(run_fn=run, setup_fn=setup, batch_processing=False, **options)
