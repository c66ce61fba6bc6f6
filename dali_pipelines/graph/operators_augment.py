"""Operators of augmentations: kernels of this project on the CPU and on the GPU.

All their inputs are nodes, not constants, so that they can also run on a part of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_pipelines.graph.gpu.cupy_operator import launch, python_operator
from dali_pipelines.graph.operators import changed, compiled_operator
from dali_pipelines.kernels.launch_table import blocks_of, launch_table


def retouch(image: Any, numbers: Any) -> Any:
    """Add `dali_pipelines.kernels.augment.color.retouch` to the graph.

    Parameters
    ----------
    image : DataNode
        float32, layout HWC, on the CPU or the GPU.
    numbers : DataNode
        float32, shape (1 + 2 steps,), on the CPU: the upper limit of values, or infinity; then the
        code and the magnitude of each step.

    Returns
    -------
    DataNode
        float32, layout HWC, on the device of the image.
    """
    if image.device == "gpu":
        return python_operator(Retouch(), [image, numbers], ["HWC"])
    from dali_pipelines.kernels import entries

    return changed(entries.retouch_entry(), image, numbers)


def noise(image: Any, numbers: Any, *, of_photons: bool) -> Any:
    """Add a kernel of `dali_pipelines.kernels.augment.noise` to the graph.

    Parameters
    ----------
    image : DataNode
        float32, layout HWC, on the CPU or the GPU.
    numbers : DataNode
        float32, arguments of the kernel; on the CPU.
    of_photons : bool
        True for `add_photon_noise`, False for `add_noise`.

    Returns
    -------
    DataNode
        float32, layout HWC, on the device of the image.
    """
    if image.device == "gpu":
        return python_operator(AddNoise(of_photons), [image, numbers], ["HWC"])
    from dali_pipelines.kernels import entries

    entry = entries.photon_noise_entry() if of_photons else entries.noise_entry()
    return changed(entry, image, numbers)


@dataclass(frozen=True)
class Retouch:
    """Function for fn.python_function that changes the colours of a batch."""

    def __call__(self, images: list[Any], numbers: list[Any]) -> list[Any]:
        """Change a batch of CuPy arrays on the current stream."""
        import cupy

        from dali_pipelines.kernels.augment import color_cuda

        outs = [cupy.empty(image.shape, np.float32) for image in images]
        sums = [cupy.empty((color_cuda.PARTS, 2), np.float64) for _ in images]
        described = [
            color_cuda.RetouchedImage(
                out=out.data.ptr,
                image=image.data.ptr,
                pixels=image.shape[0] * image.shape[1],
                channels=image.shape[2],
                numbers=values.data.ptr,
                num_steps=values.size // 2,
                sums=scratch.data.ptr,
            )
            for out, image, values, scratch in zip(outs, images, numbers, sums, strict=True)
        ]
        if not described:  # no sample of the batch drew this
            return outs
        table, threads = cupy.asarray(launch_table(described)), color_cuda.THREADS
        grid = (color_cuda.PARTS, len(outs))
        launch(color_cuda.sum_gray, grid, threads, table.data.ptr)
        blocks = blocks_of((one.pixels for one in described), color_cuda.TILE)
        grid = (blocks, len(outs))
        launch(color_cuda.retouch, grid, threads, table.data.ptr)
        return outs


@dataclass(frozen=True)
class AddNoise:
    """Function for fn.python_function that adds noise to a batch."""

    of_photons: bool

    def __call__(self, images: list[Any], numbers: list[Any]) -> list[Any]:
        """Change a batch of CuPy arrays on the current stream."""
        import cupy

        from dali_pipelines.kernels.augment import noise_cuda

        outs = [cupy.empty(image.shape, np.float32) for image in images]
        described = [
            noise_cuda.NoisyImage(out.data.ptr, image.data.ptr, image.size, values.data.ptr)
            for out, image, values in zip(outs, images, numbers, strict=True)
        ]
        if described:
            kernel = noise_cuda.add_photon_noise if self.of_photons else noise_cuda.add_noise
            table = cupy.asarray(launch_table(described))
            blocks = blocks_of((one.values for one in described), noise_cuda.TILE)
            launch(kernel, (blocks, len(outs)), noise_cuda.THREADS, table.data.ptr)
        return outs


def choose_part(fractions: Any, shape: Any, settings: Any) -> Any:
    """Add `dali_pipelines.kernels.augment.erase.choose_part` to the graph.

    Parameters
    ----------
    fractions, settings : DataNode
        float32, arguments of the kernel.
    shape : DataNode
        int64, shape (3,): height, width and channels of the image.

    Returns
    -------
    DataNode
        float32, shape (4,). All nodes are on the CPU.
    """
    from dali_pipelines.kernels import entries

    inputs = [("float32", 1), ("int64", 1), ("float32", 1)]
    operator = compiled_operator(entries.choose_part_entry(), [("float32", 1)], inputs)
    return operator(fractions, shape, settings)
