"""The project's own GPU operator: FITS images decoded, scaled, normalised and flipped.

One launch a batch, on DALI's stream, without waiting for it: CuPy lends the memory, numba-cuda
compiles the kernel. Both come with ``pip install 'dali-pipelines[gpu]'``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from nvidia.dali import fn

from readers.plan import HEAD


def decode_image(dtype: str, inputs: list[Any], mean: float, factor: float) -> tuple[Any, Any]:
    """Add `dali_pipelines.kernels.physical_cuda.decode_images` to the graph.

    Parameters
    ----------
    dtype : {"float32", "uint8", "int16", "int32"}
        Element type of the image.
    inputs : list of DataNode
        shape, payload, plan and scaling, as a FitsReader gives them, and flip, int32 of shape (2,).
    mean, factor : float
        ``(value - mean) * factor`` is what float32 images hold.

    Returns
    -------
    image, status : DataNode
        The image on the GPU, layout HWC, of shape (height, width, 1); and int32 of shape (1,) on
        the CPU, 0 if good.
    """
    outputs: Any = fn.python_function(
        *(node.gpu() for node in inputs),
        function=ImageDecoder(dtype, mean, factor),
        device="gpu",
        batch_processing=True,
        num_outputs=2,
        output_layouts=["HWC", ""],
    )
    image, status = outputs
    return image, status.cpu()


@dataclass(frozen=True)
class ImageDecoder:
    """What the graph calls with the arrays of a batch."""

    dtype: str
    mean: float
    factor: float

    def __call__(
        self,
        shapes: list[Any],
        payloads: list[Any],
        plans: list[Any],
        scalings: list[Any],
        flips: list[Any],
    ) -> tuple[list[Any], list[Any]]:
        """Decode a batch of CuPy arrays; give images and statuses. CuPy's stream is DALI's."""
        import cupy
        import numpy as np
        from numba import cuda

        from dali_pipelines.kernels.physical_cuda import WARP, Image, decode_images, launch_table

        outs = [cupy.empty((*shape.shape[:2], 1), self.dtype) for shape in shapes]
        statuses = cupy.zeros((len(outs), 1), np.int32)
        images = []
        for out, status, payload, plan, scaling, flip in zip(
            outs, statuses, payloads, plans, scalings, flips, strict=True
        ):
            if plan.size <= HEAD:
                out.fill(0)
                continue
            images.append(
                Image(
                    out=out.data.ptr,
                    status=status.data.ptr,
                    payload=payload.data.ptr,
                    payload_size=payload.size,
                    plan=plan.data.ptr,
                    plan_size=plan.size,
                    scaling=scaling.data.ptr,
                    scaling_size=scaling.size,
                    flip=flip.data.ptr,
                    rows=out.shape[0],
                    columns=out.shape[1],
                )
            )
        if images:
            table, blocks = launch_table(images)
            on_device = cupy.asarray(table)
            stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
            item = 0 if self.dtype == "float32" else np.dtype(self.dtype).itemsize
            decode_images[blocks, WARP, stream](
                # An address: numba would wait for the stream of a CuPy array.
                on_device.data.ptr,
                len(images),
                item,
                np.float32(self.mean),
                np.float32(self.factor),
                _random_numbers(cupy.cuda.runtime.getDevice()).data.ptr,
            )
        return outs, list(statuses)


@cache
def _random_numbers(device: int) -> Any:
    """Give the table of random numbers on a device, the current one; it stays there."""
    del device  # tells calls apart
    import cupy

    from dali_pipelines.kernels.dither import RANDOM

    numbers = cupy.asarray(RANDOM)
    cupy.cuda.get_current_stream().synchronize()  # once: other pipelines have other streams
    return numbers
