"""Print the times of this project's CUDA kernels, by events of CUDA, beside a copy in memory.

A frame is 4096x4096, of 5.8 bits a pixel as RICE_1. The bytes are those that must be read and
written once: GB/s over those of the copy say how far a kernel is from what the memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from dali_pipelines.aia.deconvolve import Deconvolver
from dali_pipelines.graph.gpu.operators import ImageDecoder, Warp
from dali_pipelines.stretch import Stretch
from readers import FitsReader, Row, Sample

SIZE = 4096
ROUNDS = 15


def main() -> None:
    """Time all of them."""
    import cupy

    print(
        f"{'kernel':36}{'ms a launch':>14}{'lowest to highest':>22}{'ms an image':>14}{'GB/s':>8}"
    )
    memory = [cupy.ones(1 << 28, np.float32) for _ in range(2)]
    line("copy of 1 GiB", cupy.copyto, memory, 1, sum(array.nbytes for array in memory))
    memory.clear()
    pixels = frame()
    sample = encoded(pixels)
    for dtype in ("float32", "int16"):
        nbytes = sample["payload"].nbytes + pixels.size * np.dtype(dtype).itemsize
        for batch in (1, 4, 16):
            name, decoder = f"RICE_1 to {dtype}, {batch} images", ImageDecoder(dtype, ((0.0, 1.0),))
            line(name, decoder, decoder_columns(sample, batch), batch, batch * nbytes)
    image = pixels.astype(np.float32)
    for order in (0, 1, 3):
        for batch in (1, 4):
            columns = warp_columns(image, batch)
            line(
                f"warp, order {order}, {batch} images",
                Warp(order),
                columns,
                batch,
                2 * batch * image.nbytes,
            )
    psf = np.exp(-(distance(image.shape) ** 2) / 8).astype(np.float32)
    deconvolver = Deconvolver.of(cupy.asarray(psf / psf.sum()))
    name = f"deconvolution, {deconvolver.iterations} iterations"
    line(name, deconvolver, [cupy.asarray(image)], 1)


def line(
    name: str,
    run: Callable[..., Any],
    arguments: Sequence[Any],
    images: int,
    nbytes: int | None = None,
) -> None:
    """Print the times of one of them."""
    times = milliseconds(lambda: run(*arguments))
    middle = median(times)
    rate = f"{nbytes / middle / 1e6:8.0f}" if nbytes else ""
    spread = f"{min(times):.3f} to {max(times):.3f}"
    print(f"{name:36}{middle:14.3f}{spread:>22}{middle / images:14.3f}{rate}", flush=True)


def milliseconds(run: Callable[[], Any]) -> list[float]:
    """Time a launch and what comes with it, once it has been compiled."""
    import cupy

    for _ in range(3):
        run()
    times = []
    for _ in range(ROUNDS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    return times


def frame() -> NDArray[np.int16]:
    """Draw a disk with noise, shape (SIZE, SIZE)."""
    disk = 300 + 3000 * np.exp(-(distance((SIZE, SIZE)) ** 2) / 1.2e6)
    return (disk + np.random.default_rng(0).normal(0, 8, disk.shape)).astype(np.int16)


def distance(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return how far each pixel is from the middle one."""
    y, x = np.ogrid[: shape[0], : shape[1]]
    return np.hypot(y - shape[0] // 2, x - shape[1] // 2)


def encoded(pixels: NDArray[np.int16]) -> Sample:
    """Return what a reader sends of such an image, compressed by astropy."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "frame.fits"
        fits.CompImageHDU(pixels, compression_type="RICE_1").writeto(path)
        return FitsReader().read(Row(0, str(path)), None)


def decoder_columns(sample: Sample, batch: int) -> list[list[Any]]:
    """Return the inputs of the decoder, of a batch of the same sample."""
    import cupy

    names = ("shape", "payload", "plan", "scaling")
    arrays = [*(sample[name] for name in names), np.array((0, 1), np.int32)]
    return [[cupy.asarray(array) for _ in range(batch)] for array in arrays]


def warp_columns(image: NDArray[np.float32], batch: int) -> list[list[Any]]:
    """Return the inputs of the warp: a small turn, and a scale of 1.02."""
    import cupy

    cos, sin = 1.02 * np.cos(0.01), 1.02 * np.sin(0.01)
    numbers = {
        "matrix": np.array([[cos, sin, -0.3], [-sin, cos, 4.2]]),
        "reduce": np.array([1]),
        "gain": np.array([0.5]),
        "stretch": Stretch(kind="asinh", a=100).parameters(),
        "special": np.array((0, np.nan, -np.inf, -np.inf)),
        "frame": np.array((0, 0, *image.shape)),
        "flip": np.array((1, 0), np.int32),
    }
    arrays = [image[..., None], np.zeros((*image.shape, 0), np.uint8), *numbers.values()]
    return [[cupy.asarray(array)] * batch for array in arrays]


if __name__ == "__main__":
    main()
