"""The estimate of CuPy's memory, against NumPy's in its place, or its own on a GPU."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_offline.device import Device, emulated

from dali_pipelines import Index, aia_pipeline, fits_pipeline, memory
from dali_pipelines.aia import psf
from dali_pipelines.graph import operators_psf
from dali_pipelines.graph.gpu import memory as cupy_memory
from dali_pipelines.graph.gpu import operators as operators_gpu
from dali_pipelines.graph.gpu.operators import ImageDecoder, Warp
from dali_pipelines.graph.operators_psf import FrameDeconvolver
from dali_pipelines.stretch import Stretch
from readers import FitsReader, Row

SHAPE = (512, 640)
FRAME = 4 * math.prod(SHAPE)
SLACK = 200_000
"""Bytes of small arrays and of Python; less than a mask of a frame."""


def peak_of(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the most bytes that a call held, beside what it was given."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function(*arguments)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture
def gpu(kernels_folder: Path) -> Device:
    """An emulated GPU, whose memory is NumPy's."""
    return emulated(kernels_folder, "sm_90")


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the peak of each call of an operator."""
    found: list[int] = []
    for operator in (ImageDecoder, Warp):
        call: Any = operator.__call__

        def measured(self: Any, *batch: Any, call: Any = call) -> Any:
            made = []
            found.append(peak_of(lambda: made.append(call(self, *batch))))
            return made[0]

        monkeypatch.setattr(operator, "__call__", measured)
    return found


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for module in (psf, operators_psf):
        monkeypatch.setattr(module, "FRAME_SHAPE", SHAPE)
    # Transfer functions are kept for the process: none of this size may be used by other tests.
    operators_psf._deconvolver.cache_clear()
    yield
    operators_psf._deconvolver.cache_clear()


@pytest.mark.gpu
@pytest.mark.usefixtures("small_frames")
def test_a_deconvolution() -> None:
    """What the pool holds, transfer functions and work areas included, is no more than was said."""
    import cupy

    image = cupy.ones((*SHAPE, 1), np.float32)
    channels = [cupy.array([channel]) for channel in (171, 304, 171)]
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    FrameDeconvolver((171, 304), 1)([image] * 3, channels)
    taken = pool.total_bytes() - before
    assert 3 * FRAME < taken <= cupy_memory.deconvolver_nbytes(3, 2) + SLACK


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_decoder(gpu: Device, peaks: list[int], tmp_path: Path, dtype: str) -> None:
    from astropy.io import fits

    image = np.zeros(SHAPE, np.int16)
    fits.CompImageHDU(image, tile_shape=(1, SHAPE[1])).writeto(tmp_path / "image.fits")
    stored = None if dtype == "float32" else dtype
    sample = FitsReader(stored=stored).read(Row(0, str(tmp_path / "image.fits")), None)
    gpu.decode([sample] * 2, dtype, (0, 0), ((0.0, 1.0),))
    nbytes = math.prod(SHAPE) * np.dtype(dtype).itemsize
    assert peaks[0] == pytest.approx(cupy_memory.decoder_nbytes(2, nbytes), abs=SLACK)


@pytest.mark.parametrize(("order", "most"), [(1, 1 << 26), (3, 1 << 26), (3, 1)])
def test_a_warp(
    gpu: Device, peaks: list[int], monkeypatch: pytest.MonkeyPatch, order: int, most: int
) -> None:
    """All frames in one launch, or each in its own."""
    for module in (operators_gpu, cupy_memory):
        monkeypatch.setattr(module, "PIXELS", most)
    image = np.random.default_rng(0).poisson(9, (*SHAPE, 1)).astype(np.float32)
    size = (256, 200)
    sample = (
        image,
        np.zeros((*size, 0), np.uint8),
        np.array([[2, 0, 0.25], [0, 2, 0.25]], np.float64),
        np.array([1]),
        np.array([1.0]),
        Stretch().parameters(),
        np.array([0, 0, -np.inf, -np.inf], np.float64),
        np.array((0, 0, *SHAPE)),
        np.zeros(2, np.int32),
    )
    gpu.warp([sample] * 2, order)
    expected = cupy_memory.warp_nbytes(2, FRAME, 4 * math.prod(size), order)
    assert peaks[0] == pytest.approx(expected, abs=SLACK)


def test_pipelines_know_what_cupy_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, npy_index: Index
) -> None:
    import solar_files

    from dali_pipelines import npy_pipeline

    def cupy_of(factory: Any, index: Index, **settings: Any) -> int:
        made = factory(index, batch_size=2, **settings)
        estimate = memory.estimate_memory([made, made], num_consumers=2)
        assert estimate.total == estimate.shared + estimate.images + estimate.processes
        return estimate.cupy

    monkeypatch.setattr(operators_psf, "_deconvolver", lambda *_: None)
    pixels, header = solar_files.frame()
    index = Index.from_paths([solar_files.save(tmp_path / "a.fits", pixels, header)])
    frame, image = 128 * 128 * 4, 32 * 32 * 4
    assert cupy_of(npy_pipeline, npy_index) == 0
    assert cupy_of(fits_pipeline, index) == 2 * frame
    assert cupy_of(fits_pipeline, index, crop=16, dtype="float16") == 2 * 16 * 16 * 4
    assert cupy_of(fits_pipeline, index, resize=16) == 2 * frame
    assert cupy_of(aia_pipeline, index, size=32, order=1) == 2 * frame + 2 * image
    cubic = cupy_of(aia_pipeline, index, size=32)
    assert cubic == 2 * frame + 2 * image + 2 * 2 * frame + 2 * frame // 512
    with_psf = cupy_of(aia_pipeline, index, size=32, psf=(171, 193))
    assert with_psf == cubic + cupy_memory.deconvolver_nbytes(2, 2)


@pytest.mark.gpu
def test_nearest_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the block is one image."""
    import cupy

    for module in (operators_gpu, cupy_memory):
        monkeypatch.setattr(module, "BLOCK_PIXELS", math.prod(SHAPE))
    numbers = np.array([*(np.eye(2, 3) + 0.1).flat, 0, 0, *SHAPE])
    arrays = np.ones((*SHAPE, 1), np.int32), numbers, np.zeros(1)
    inputs = [[cupy.asarray(one)] * 2 for one in arrays]
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    operators_gpu.Nearest(SHAPE)(*inputs)
    taken = pool.total_bytes() - before
    assert 2 * FRAME <= taken <= cupy_memory.nearest_nbytes(2, FRAME) + SLACK
