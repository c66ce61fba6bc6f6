"""The project's own CPU operators: numba kernels that DALI runs in its threads.

Each is compiled once for all pipelines of a process, which takes over a second. numba is imported
here, when an operator is asked for, to keep it out of pipelines that need none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from nvidia.dali import types


@cache
def physical_values() -> Callable[..., Any]:
    """Give the operator (shape, payload, plan, scaling) -> image, status.

    The image is float32 of shape (height, width, 1), the status int32 of shape (1,), 0 if good.
    """
    from nvidia.dali.plugin.numba import NumbaFunction

    from dali_pipelines.kernels.physical import physical_values as kernel

    def shape_of_output(outs, ins):  # type: ignore[no-untyped-def]
        # DALI 2.4 shows no more inputs here than there are outputs, so `shape` comes first.
        for i in range(len(outs[0])):
            outs[0][i][0] = ins[0][i][0]
            outs[0][i][1] = ins[0][i][1]
            outs[0][i][2] = 1
            outs[1][i][0] = 1

    def run(out, status, shape, payload, plan, scaling):  # type: ignore[no-untyped-def]
        status[0] = kernel(out, payload, plan, scaling)

    return NumbaFunction(
        run_fn=run,
        setup_fn=shape_of_output,
        out_types=[types.FLOAT, types.INT32],
        in_types=[types.UINT8, types.UINT8, types.INT64, types.FLOAT64],
        outs_ndim=[3, 1],
        ins_ndim=[3, 1, 1, 1],
        batch_processing=False,
    )


@cache
def resize(dtype: str, height: int, width: int) -> Callable[..., Any]:
    """Give the operator image -> float32, shape (height, width, channels).

    Parameters
    ----------
    dtype : {"uint8", "float32"}
        Element type of the image, whose layout is HWC.
    height, width : int
        Size of the output in pixels.
    """
    from nvidia.dali.plugin.numba import NumbaFunction

    from dali_pipelines.kernels.resize import resize as kernel

    def shape_of_output(outs, ins):  # type: ignore[no-untyped-def]
        for i in range(len(outs[0])):
            outs[0][i][0] = height
            outs[0][i][1] = width
            outs[0][i][2] = ins[0][i][2]

    def run(out, image):  # type: ignore[no-untyped-def]
        kernel(out, image)

    return NumbaFunction(
        run_fn=run,
        setup_fn=shape_of_output,
        out_types=[types.FLOAT],
        in_types=[{"uint8": types.UINT8, "float32": types.FLOAT}[dtype]],
        outs_ndim=[3],
        ins_ndim=[3],
        batch_processing=False,
    )
