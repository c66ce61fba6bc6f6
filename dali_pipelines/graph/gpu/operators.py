"""GPU operators of this project: decode FITS images, warp, stretch, and take nearest pixels.

They run on DALI's stream and do not wait for it. CuPy allocates the memory, and numba-cuda compiles
the kernels; the extra ``gpu`` has both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dali_pipelines.graph.gpu.cupy_operator import launch, python_operator
from dali_pipelines.kernels.launch_table import blocks_of, launch_table
from readers.fits.payload import HEAD
from readers.targets.nearest import TO_NEAREST

Finish = tuple[tuple[float, float], ...]

PIXELS = 1 << 26
"""Maximum number of pixels of a warp launch; each needs 8 bytes of scratch memory, 512 MB in
all."""
BLOCK_PIXELS = 1 << 20
"""Nearest pixels of one step; each needs about 64 bytes of scratch memory."""


def decode_image(dtype: str, inputs: list[Any], finish: Finish) -> tuple[Any, Any]:
    """Add `dali_pipelines.kernels.fits.image_cuda.decode_images` to the graph.

    Parameters
    ----------
    dtype : {"float32", "uint8", "int16", "int32"}
        Element type of the image.
    inputs : list of DataNode
        shape, payload, plan and scaling of a FitsReader, and flip, int32 of shape (2,).
    finish : tuple of (mean, factor)
        One pair for each plane; float32 images hold ``(value - mean) * factor``.

    Returns
    -------
    image, status : DataNode
        Image of layout HWC, shape (height, width, 1), or layout CHW with several planes; and
        int32 of shape (1,), 0 if good. Both are on the GPU.
    """
    layouts = ["HWC" if len(finish) == 1 else "CHW", ""]
    image, status = python_operator(ImageDecoder(dtype, finish), inputs, layouts)
    return image, status


@dataclass(frozen=True)
class ImageDecoder:
    """Function for fn.python_function that decodes a batch."""

    dtype: str
    finish: Finish

    def __call__(
        self,
        shapes: list[Any],
        payloads: list[Any],
        plans: list[Any],
        scalings: list[Any],
        flips: list[Any],
    ) -> tuple[list[Any], list[Any]]:
        """Decode a batch of CuPy arrays on the current stream; return images and statuses."""
        import cupy

        planes = len(self.finish)
        outs = [cupy.empty((planes, *shape.shape[:2]), self.dtype) for shape in shapes]
        statuses = cupy.zeros((len(outs), 1), np.int32)
        for plane, (mean, factor) in enumerate(self.finish):
            images = []
            for out, *arrays in zip(outs, statuses, payloads, plans, scalings, flips, strict=True):
                if arrays[2].size <= planes * HEAD:
                    out.fill(0)
                else:
                    images.append(_plane(plane, planes, out, *arrays))
            if images:
                self._launch(images, mean, factor)
        if planes == 1:
            outs = [out.reshape((*out.shape[1:], 1)) for out in outs]
        return outs, list(statuses)

    def _launch(self, images: list[Any], mean: float, factor: float) -> None:
        import cupy

        from dali_pipelines.kernels.fits import image_cuda_table
        from dali_pipelines.kernels.fits.image_cuda import decode_images

        table, blocks = image_cuda_table.launch_table(images)
        on_device = cupy.asarray(table)
        item = 0 if self.dtype == "float32" else np.dtype(self.dtype).itemsize
        launch(
            decode_images,
            blocks,
            image_cuda_table.WARP,
            on_device.data.ptr,
            len(images),
            item,
            np.float32(mean),
            np.float32(factor),
            _random_numbers(cupy.cuda.runtime.getDevice()).data.ptr,
        )


def _plane(
    plane: int,
    planes: int,
    out: Any,
    status: Any,
    payload: Any,
    plan: Any,
    scaling: Any,
    flip: Any,
) -> Any:
    """Describe one plane of an image; each array holds all planes in sequence."""
    from dali_pipelines.kernels.fits.image_cuda_table import DecodedImage

    plan_size, scaling_size = plan.size // planes, scaling.size // planes
    return DecodedImage(
        out=out.data.ptr + plane * (out.size // planes) * out.itemsize,
        status=status.data.ptr,
        payload=payload.data.ptr,
        payload_size=payload.size,
        plan=plan.data.ptr + 8 * plane * plan_size,
        plan_size=plan_size,
        scaling=scaling.data.ptr + 8 * plane * scaling_size,
        scaling_size=scaling_size,
        flip=flip.data.ptr,
        rows=out.shape[1],
        columns=out.shape[2],
    )


def nearest(image: Any, shape: tuple[int, int], numbers: Any, outside: Any) -> Any:
    """Take nearest pixels on the GPU, like `dali_pipelines.graph.operators.nearest` on the CPU.

    `shape` is (height, width) of the output.
    """
    return python_operator(Nearest(shape), [image, numbers, outside], ["CHW"])


@dataclass(frozen=True)
class Nearest:
    """Function for fn.python_function that takes the nearest pixels of a batch."""

    shape: tuple[int, int]

    def __call__(self, images: list[Any], numbers: list[Any], outside: list[Any]) -> list[Any]:
        """Sample a batch of CuPy arrays on the current stream."""
        return [self._sampled(*sample) for sample in zip(images, numbers, outside, strict=True)]

    def _sampled(self, image: Any, numbers: Any, outside: Any) -> Any:
        import cupy

        height, width = self.shape
        sample = cupy.empty((image.shape[2], height, width), image.dtype)
        step = max(1, BLOCK_PIXELS // width)
        for first in range(0, height, step):
            rows = cupy.arange(first, min(first + step, height), dtype="float64")
            block = self._sampled_rows(image, numbers, outside, rows)
            sample[:, first : first + step] = block
        return sample

    def _sampled_rows(self, image: Any, numbers: Any, outside: Any, rows: Any) -> Any:
        import cupy

        columns = cupy.arange(0, self.shape[1], dtype="float64")
        xx, xy, x0, yx, yy, y0, top, left, height, width = (numbers[i] for i in range(10))
        # The CPU's operations in the same order and not fused, so that both round alike.
        x = cupy.floor((xy * rows + x0)[:, None] + (xx * columns)[None] + TO_NEAREST)
        y = cupy.floor((yy * rows + y0)[:, None] + (yx * columns)[None] + TO_NEAREST)
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        # Clip indices to the part that was read; `inside` discards wrong pixels.
        i = cupy.clip(y - top, 0, image.shape[0] - 1).astype("int64")
        j = cupy.clip(x - left, 0, image.shape[1] - 1).astype("int64")
        found = cupy.where(inside[..., None], image[i, j], outside.astype(image.dtype))
        return found.transpose(2, 0, 1)


def stretch(image: Any, parameters: Any) -> Any:
    """Stretch an image on the GPU, like `dali_pipelines.graph.operators.stretch` on the CPU."""
    numbers = tuple(tuple(channel) for channel in parameters.tolist())
    return python_operator(StretchImages(numbers), [image], ["HWC"])


@dataclass(frozen=True)
class StretchImages:
    """Function for fn.python_function that stretches a batch."""

    parameters: tuple[tuple[float, ...], ...]
    """Parameters of each channel."""

    def __call__(self, images: list[Any]) -> list[Any]:
        """Stretch a batch of CuPy arrays on the current stream."""
        import cupy

        from dali_pipelines.kernels import stretch_cuda

        outs = [cupy.empty(image.shape, np.float32) for image in images]
        described = [
            stretch_cuda.StretchedImage(out.data.ptr, image.data.ptr, image.size)
            for out, image in zip(outs, images, strict=True)
        ]
        if described:
            table = cupy.asarray(launch_table(described))
            numbers = cupy.asarray(np.array(self.parameters, np.float64))
            blocks = blocks_of((one.values for one in described), stretch_cuda.TILE)
            launch(
                stretch_cuda.stretch_images,
                (blocks, len(outs)),
                stretch_cuda.THREADS,
                table.data.ptr,
                len(self.parameters),
                numbers.data.ptr,
            )
        return outs


def warp(inputs: list[Any], order: int) -> Any:
    """Warp an image on the GPU, like `dali_pipelines.graph.operators.warp` on the CPU."""
    return python_operator(Warp(order), inputs, ["CHW"])


@dataclass(frozen=True)
class Warp:
    """Function for fn.python_function that warps a batch."""

    order: int

    def __call__(self, images: list[Any], grids: list[Any], *others: list[Any]) -> list[Any]:
        """Warp a batch of CuPy arrays on the current stream."""
        import cupy

        outs = [cupy.empty((1, *grid.shape[:2]), np.float32) for grid in grids]
        samples = list(zip(outs, images, *others, strict=True))
        for group in _groups([image.size for image in images]):
            self._warp(samples[group])
        return outs

    def _warp(self, samples: list[tuple[Any, ...]]) -> None:
        import cupy

        from dali_pipelines.kernels.resample import prefilter_cuda, warp_cuda
        from dali_pipelines.kernels.resample.warp_cuda_table import blocks

        outs, images = [sample[0] for sample in samples], [sample[1] for sample in samples]
        shapes = [image.shape[:2] for image in images]
        row_blocks = blocks(prefilter_cuda.ROW_TILE, shapes)
        num_ranges = row_blocks[0] * row_blocks[1]
        scratch = self._scratch(shapes, num_ranges)  # keep it until the launch
        described = [_describe(*one, *made) for one, made in zip(samples, scratch, strict=True)]
        table = cupy.asarray(launch_table(described))
        if self.order == 3:
            at, block = table.data.ptr, prefilter_cuda.BLOCK
            launch(prefilter_cuda.prefilter_rows, row_blocks, block, at)
            threads = prefilter_cuda.THREADS
            launch(prefilter_cuda.set_limits, len(samples), threads, at, num_ranges)
            column_blocks = blocks(prefilter_cuda.COLUMN_TILE, shapes)
            launch(prefilter_cuda.prefilter_columns, column_blocks, block, at)
        grid = blocks(warp_cuda.TILE, [out.shape[1:] for out in outs])
        launch(warp_cuda.warp, grid, warp_cuda.BLOCK, table.data.ptr)

    def _scratch(self, shapes: list[Any], num_ranges: int) -> list[tuple[Any, ...]]:
        """Return lines, coefficients, ranges and limits for images of these shapes."""
        import cupy

        if self.order == 3:
            sizes = [(shape, shape, (num_ranges, 2), (2,)) for shape in shapes]
            return [tuple(cupy.empty(size, np.float32) for size in each) for each in sizes]
        unlimited = cupy.asarray(np.array([-np.inf, np.inf], np.float32))
        return [(None, None, None, unlimited)] * len(shapes)


def _describe(
    out: Any,
    image: Any,
    matrix: Any,
    reduce: Any,
    gain: Any,
    stretch: Any,
    special: Any,
    frame: Any,
    flip: Any,
    lines: Any,
    coefficients: Any,
    ranges: Any,
    limits: Any,
) -> Any:
    """Describe an image and its scratch arrays."""
    from dali_pipelines.kernels.resample.warp_cuda_table import WarpedImage

    scratch = (lines, coefficients, ranges)
    arrays = (limits, frame, matrix, reduce, gain, stretch, special, flip)
    return WarpedImage(
        *(out.data.ptr, *out.shape[1:], image.data.ptr, *image.shape[:2]),
        *(0 if array is None else array.data.ptr for array in scratch),
        *(array.data.ptr for array in arrays),
    )


def _groups(sizes: list[int]) -> Iterator[slice]:
    """Split a batch of images of these sizes into launches of at most `PIXELS`, or one image."""
    from dali_pipelines.kernels.resample.warp_cuda_table import MOST_BLOCKS

    first = pixels = 0
    for number, size in enumerate(sizes):
        pixels += size
        if (pixels > PIXELS and number > first) or number - first == MOST_BLOCKS:
            yield slice(first, number)
            first, pixels = number, size
    if sizes:
        yield slice(first, len(sizes))


@cache
def _random_numbers(device: int) -> Any:
    """Return the table of random numbers on the current device; `device` is its number."""
    del device
    import cupy

    from dali_pipelines.kernels.fits.dither import RANDOM

    numbers = cupy.asarray(RANDOM)
    cupy.cuda.get_current_stream().synchronize()  # once: other pipelines have other streams
    return numbers
