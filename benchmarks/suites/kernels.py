"""CUDA kernels without a GPU: what each takes on an SM, and what it executes for a pixel."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from astropy.io import fits
from gpu_offline.compiler import ARCHS, Usage, build
from gpu_offline.device import Device
from gpu_offline.emulator import CC, COUNTED
from gpu_offline.kernels import KERNELS, fingerprint

from benchmarks.main import BenchConfig
from benchmarks.report.tables import Sheet, number
from dali_pipelines.graph.gpu.operators import StretchImages
from dali_pipelines.graph.operators_augment import AddNoise, Retouch
from dali_pipelines.kernels.augment.color import BRIGHTNESS, CONTRAST, HUE, SATURATION
from dali_pipelines.stretch import Stretch
from readers import FitsReader, Row

_HEIGHT, _WIDTH = 256, 1024
"""Pixels of the decoded images; the warped ones are square."""
_KERNELS = "gpu_offline.kernels:KERNELS"


def kernels_suite(_config: BenchConfig) -> Iterator[Sheet]:
    """Compile the kernels, and count what they execute."""
    with TemporaryDirectory() as folder:
        yield resources_sheet(build(_KERNELS, Path(folder), tuple(ARCHS)))
        if CC is None:
            raise FileNotFoundError("no C compiler, cc, to run kernels of a GPU on the CPU")
        for arch in ARCHS:
            yield counts_sheet(arch, Path(folder))


def resources_sheet(usages: list[Usage]) -> Sheet:
    """Show what ptxas says of registers and memory, and how many warps an SM holds so."""
    sources = {kernel.name: fingerprint(kernel) for kernel in KERNELS}
    return Sheet(
        title="Resources of CUDA kernels on an SM",
        header=(
            *("kernel", "architecture", "threads per block", "registers", "stack", "spills"),
            *("shared memory", "warps", "of", "source"),
        ),
        lines=tuple(
            (
                *(usage.kernel, usage.arch, str(usage.threads), str(usage.registers)),
                *(str(usage.stack), str(usage.spills), str(usage.shared)),
                *(str(usage.warps), str(ARCHS[usage.arch].warps), sources[usage.kernel]),
            )
            for usage in usages
        ),
        data="compiled by numba-cuda and ptxas, without a GPU",
        note="Per thread: registers, and bytes of stack and spills. Per block: bytes of shared "
        "memory. Warps that an SM runs at a time, of the largest possible number. Source: a hash "
        "of the functions and constants that a kernel uses.",
    )


def counts_sheet(arch: str, folder: Path) -> Sheet:
    """Show what threads execute for an output pixel."""
    lines = []
    for name, pixels, device in _worked(arch, folder):
        for kernel, counts in device.counts.items():
            cells = (number(counts[key] / pixels) for key in COUNTED[:-1])
            moved = 32 * counts["sectors"] / pixels
            lines.append((name, kernel, *cells, number(moved)))
    return Sheet(
        title=f"Instructions of CUDA kernels per pixel, {arch}",
        header=("work", "kernel", *COUNTED[:-1], "bytes moved"),
        lines=tuple(lines),
        data="PTX, run on the CPU",
        note="For each pixel of the output: PTX instructions, loads and stores of global memory, "
        "accesses to shared memory, and bytes that warps move to and from global memory, in units "
        "of 32, without any cache. The time on a GPU is not measured.",
    )


def _worked(arch: str, folder: Path) -> Iterator[tuple[str, int, Device]]:
    """Do each piece of work; give its name, output pixels and the device."""
    for name, options in DECODED.items():
        device = Device(folder, arch, count_sectors=True)
        sample = _fits_sample(folder / f"{name}.{arch}.fits", **options)
        _, statuses = device.decode([sample], "float32", (0, 0), ((0.0, 1.0),))
        if statuses != [0]:
            raise ValueError(f"{name} was not decoded")
        yield name, _HEIGHT * _WIDTH, device
    for name, (order, holes) in WARPED.items():
        device = Device(folder, arch, count_sectors=True)
        (image,) = device.warp([_warp_sample(holes)], order)
        yield name, image.size, device
    for name, (operator, numbers) in AUGMENTED.items():
        device = Device(folder, arch, count_sectors=True)
        pixels = np.random.default_rng(0).integers(0, 256, (_HEIGHT, _WIDTH, 3))
        columns = [[pixels.astype(np.float32)], [np.array(numbers, np.float32)]]
        device.apply(operator, *columns[: 1 + bool(numbers)])
        yield name, pixels.size, device


DECODED: dict[str, dict[str, Any]] = {
    "RICE_1 of int16, 9 bits per pixel": {"scale": 60.0},
    "RICE_1 of int16, 5 bits per pixel": {"scale": 4.0},
    "RICE_1 of float32, dithered": {"kind": "float32", "scale": 60.0},
    "RICE_1 of int16, tiles of 32 x 32": {"scale": 60.0, "tile_shape": (32, 32)},
    "int16, uncompressed": {"scale": 60.0, "compression_type": "NOCOMPRESS"},
}
"""Images that are decoded: standard deviation of their noise, and how they are compressed."""

WARPED = {
    "warp of order 3": (3, 0.0),
    "warp of order 3, 1 % holes": (3, 0.01),
    "warp of order 1": (1, 0.0),
    "warp of order 1, 1 % holes": (1, 0.01),
}
"""Images that are warped: order, and share of holes."""


_ASINH = tuple(Stretch(kind="asinh", unit=100, a=0.1).parameters().tolist())
AUGMENTED: dict[str, tuple[Any, tuple[float, ...]]] = {
    "asinh of three channels": (StretchImages((_ASINH,) * 3), ()),
    "noise": (AddNoise(of_photons=False), (0.1, 0.2, 5)),
    "photon noise, at most 15": (AddNoise(of_photons=True), (0.1, 0.2, 1 / 17, 2)),
    "photon noise, thousands": (AddNoise(of_photons=True), (0.1, 0.2, 1000, 2)),
    "brightness of RGB": (Retouch(), (255, BRIGHTNESS, 1.2)),
    "brightness, contrast, saturation and hue of RGB": (
        Retouch(),
        (255, BRIGHTNESS, 1.2, CONTRAST, 0.8, SATURATION, 1.1, HUE, 0.1),
    ),
}
"""Curves and augmentations: operator, and the numbers of a sample, if it takes any."""


def _fits_sample(path: Path, *, scale: float, kind: str = "int16", **options: Any) -> Any:
    noise = np.random.default_rng(0).normal(3000, scale, (_HEIGHT, _WIDTH)).astype(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"compression_type": "RICE_1", "tile_shape": (1, _WIDTH), **options}
        fits.CompImageHDU(noise, dither_seed=1, quantize_method=1, **settings).writeto(
            path, overwrite=True
        )
    return FitsReader().read(Row(0, str(path)), None)


def _warp_sample(holes: float) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    image = random.poisson(400, (_HEIGHT, _HEIGHT, 1)).astype(np.float32)
    image[random.random(image.shape) < holes] = np.nan
    return (
        image,
        np.zeros((_HEIGHT, _HEIGHT, 0), np.uint8),
        np.array([[0.9999, 0.0035, 0.3], [-0.0035, 0.9999, 0.7]]),  # 0.2 degrees
        np.array([1]),
        np.array([0.5]),
        Stretch(kind="asinh", a=100).parameters(),
        np.array((0, np.nan, -np.inf, -np.inf)),
        np.array((0, 0, _HEIGHT, _HEIGHT)),
        np.zeros(2, np.int32),
    )
