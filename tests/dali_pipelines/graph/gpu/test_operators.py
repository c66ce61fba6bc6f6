"""The decoder of the GPU, its PTX run on the CPU, against that of the CPU: bit for bit."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from astropy.io import fits
from fits_files import write
from fuzz_rice import PER_BATCH, batch_of, sample_of
from gpu_offline.device import Device, emulated
from hypothesis import given
from hypothesis import strategies as st
from numba import cuda
from numba.cuda.core import config
from strategies import compressed_floats, compressed_integers, fractions, plain_images

from dali_pipelines.graph.gpu import cupy_operator
from dali_pipelines.kernels.fits.image import DAMAGED, decode_image
from dali_pipelines.kernels.resample.warp_cuda import warp
from readers import FitsReader, Row, Sample, Window
from readers.fits.payload import HEAD, LENGTH, OFFSET, PADDING, PER_TILE

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
IMAGES = compressed_integers() | compressed_floats() | plain_images()
FLIPS = st.tuples(st.integers(0, 1), st.integers(0, 1))


class Job(NamedTuple):
    samples: list[Sample]
    dtype: str = "float32"
    flip: tuple[int, int] = (0, 0)
    finish: tuple[tuple[float, float], ...] = ((0.0, 1.0),)


def on_cpu(sample: Sample, job: Job) -> tuple[np.ndarray, int]:
    planes = len(job.finish)
    out = np.full((planes, *sample["shape"].shape[:2], 1), 7, job.dtype)
    plans, scalings = (np.split(sample[name], planes) for name in ("plan", "scaling"))
    status = 0
    for image, plan, scaling, numbers in zip(out, plans, scalings, job.finish, strict=True):
        finish = np.array(numbers if job.dtype == "float32" else (), np.float32)
        flip = np.array(job.flip, np.int32)
        status |= decode_image(image, sample["payload"], plan, scaling, flip, finish)
    return out[0] if planes == 1 else out[..., 0], status


def check(gpu: Device, job: Job) -> list[int]:
    """Compare the images that are not damaged; return the statuses."""
    images, statuses = gpu.decode(*job)
    for sample, image, status in zip(job.samples, images, statuses, strict=True):
        expected, expected_status = on_cpu(sample, job)
        assert status == expected_status
        assert image.dtype == job.dtype
        if status == 0:
            np.testing.assert_array_equal(image, expected)
    return statuses


def damaged(good: Sample, random: np.random.Generator) -> Sample:
    """Flip bits of the tiles, overwrite them, or cut or move a stream."""
    payload, plan = good["payload"].copy(), good["plan"].copy()
    tiles = payload[: max(payload.size - PADDING, 1)]
    numbers = plan[HEAD:].reshape(-1, PER_TILE)
    tile = numbers[random.integers(len(numbers))]
    match random.integers(5):
        case 0:
            places = random.integers(0, tiles.size, random.choice((1, 2, 20)))
            tiles[places] ^= 1 << random.integers(0, 8, places.size).astype(np.uint8)
        case 1:
            tiles[random.integers(tiles.size) :] = random.choice((0, 255))
        case 2:
            tiles[:] = random.integers(0, 256, tiles.size)
        case 3:
            tile[LENGTH] -= random.integers(0, tile[LENGTH] + 2)
        case _:
            tile[random.integers(PER_TILE)] += random.choice((-1, 1, 10**6, -(10**15), 10**15))
    return broken(good, payload=payload, plan=plan)


def broken(sample: Sample, **arrays: np.ndarray) -> Sample:
    return Sample({**sample.arrays, **arrays})


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> Row:
    """Square tiles, short at the edges, of which some are plain: read by several warps."""
    path = tmp_path_factory.mktemp("frames") / "square.fits"
    image = np.random.default_rng(0).normal(500, 30, (61, 83)).astype(np.int16)
    image[:, 40:50] = 3
    fits.CompImageHDU(image, compression_type="RICE_1", tile_shape=(7, 9)).writeto(path)
    return Row(0, str(path))


def test_real_files(gpu: Device, shared_data: Path) -> None:
    """Whole, in windows, and damaged."""
    random = np.random.default_rng(1)
    reader, window = FitsReader(), Window(height=12, width=70, y=0.6, x=0.3)
    statuses = []
    for path in sorted((shared_data / "fits").iterdir()):
        row = Row(0, str(path))
        good = [reader.read(row, None)]
        if good[0]["shape"].shape[1] > window.width:
            good.append(reader.read(row, window))
        bad = [damaged(good[-1], random) for _ in range(200 if LONG else 10)]
        assert check(gpu, Job(good, "float32", (1, 0), ((3.0, 0.5),))) == [0] * len(good)
        statuses += check(gpu, Job(bad, "float32", (0, 1)))
    assert 0.2 < np.mean(statuses) < 0.9


@given(IMAGES, FLIPS, st.tuples(fractions, fractions), st.integers(0, 2**32))
def test_made_files(
    gpu: Device,
    tmp_path_factory: pytest.TempPathFactory,
    image: Any,
    flip: tuple[int, int],
    place: tuple[float, float],
    seed: int,
) -> None:
    """All codecs and types; whole, a window, an image of zeros, and damaged."""
    path, random = tmp_path_factory.getbasetemp() / "made.fits", np.random.default_rng(seed)
    write(path, image)
    height, width = (int(random.integers(1, size + 1)) for size in image.stored.shape)
    window = Window(height=height, width=width, y=place[0], x=place[1])
    reader, row = FitsReader(), Row(0, str(path))
    whole, part = reader.read(row, None), reader.read(row, window)
    bad = [damaged(sample, random) for sample in (whole, part) * 3]
    statuses = check(gpu, Job([whole, *bad, reader.blank(5, 6), part], "float32", flip))
    assert statuses[0] == statuses[-1] == statuses[-2] == 0


def test_a_batch_of_all_sorts(gpu: Device, frame: Row) -> None:
    """Windows of several sizes, an image of zeros, and a last one that ends a block early."""
    reader = FitsReader()
    windows = [None, Window(height=20, width=20, y=0.9, x=0.4), Window(height=1, width=1)]
    samples = [reader.read(frame, window) for window in windows]
    samples.insert(1, reader.blank(5, 6))
    check(gpu, Job(samples, flip=(1, 1), finish=((10.0, 0.25),)))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
def test_stored_integers(gpu: Device, tmp_path: Path, dtype: str) -> None:
    image = np.random.default_rng(2).integers(0, 100, (30, 41)).astype(dtype)
    fits.CompImageHDU(image, tile_shape=(7, 9)).writeto(tmp_path / "image.fits")
    sample = FitsReader(stored=dtype).read(Row(0, str(tmp_path / "image.fits")), None)
    check(gpu, Job([sample], dtype, (0, 1)))


def test_damaged_streams(gpu: Device) -> None:
    """One tile an image: all forms of the CPU refuse the same ones, see `test_forms`."""
    statuses = []
    for seed in range(300 if LONG else 6):
        batch = batch_of(seed)
        samples = [sample_of(batch, lane) for lane in range(PER_BATCH)]
        statuses += check(gpu, Job(samples))
    assert 0.1 < np.mean(statuses) < 0.9


def test_differences_of_all_widths(gpu: Device, tmp_path: Path) -> None:
    """Up to those that do not fit into the bits that a thread has at hand."""
    random, reader, samples = np.random.default_rng(4), FitsReader(stored="int32"), []
    for bits in range(8, 30):
        image = np.clip(random.normal(0, 2.0**bits, (33, 200)), -(2**31), 2**31 - 1)
        path = tmp_path / f"{bits}.fits"
        fits.CompImageHDU(image.astype(np.int32), tile_shape=(1, 200)).writeto(path)
        samples.append(reader.read(Row(0, str(path)), None))
    assert check(gpu, Job(samples, "int32")) == [0] * len(samples)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_planes(gpu: Device, tmp_path: Path, dtype: str) -> None:
    """Several planes of an image, one of which is damaged in the last sample."""
    cube = np.random.default_rng(1).normal(500, 30, (4, 21, 33)).astype(np.int16)
    fits.CompImageHDU(cube, tile_shape=(1, 7, 9)).writeto(tmp_path / "cube.fits")
    row = Row(0, str(tmp_path / "cube.fits"))
    reader = FitsReader(planes=(3, 0, 2), stored=None if dtype == "float32" else dtype)
    good = reader.read(row, Window(height=12, width=20, y=0.6, x=0.2))
    bad = good["plan"].copy()
    bad[len(bad) // 3 + HEAD + OFFSET] = -1
    samples = [reader.read(row, None), good, reader.blank(5, 6), broken(good, plan=bad)]
    job = Job(samples, dtype, (1, 0), ((10.0, 0.25), (0.0, 1.0), (-3.0, 2.0)))
    assert check(gpu, job) == [0, 0, 0, DAMAGED]


def test_damaged_images_are_told_and_leave_others_alone(gpu: Device, frame: Row) -> None:
    good = FitsReader().read(frame, Window(height=20, width=20))
    random = np.random.default_rng(3)
    noise = random.integers(0, 256, good["payload"].size, np.uint8)
    outside = good["plan"].copy()
    outside[11] = 10**12
    negative = good["plan"].copy()
    negative[12] = -1
    bad: list[dict[str, Any]] = [
        {"payload": noise},
        {"payload": np.zeros_like(good["payload"])},
        {"payload": good["payload"][: good["payload"].size // 2]},
        {"plan": good["plan"][:-3]},
        {"plan": outside},
        {"plan": negative},
        {"scaling": good["scaling"][:2]},
    ]
    samples = [good, *(broken(good, **arrays) for arrays in bad), good]
    assert check(gpu, Job(samples))[2:] == [DAMAGED] * 6 + [0]


def test_each_gpu_has_its_own_random_numbers(kernels_folder: Path, tmp_path: Path) -> None:
    """They are copied there once, before any other stream uses them."""
    image = np.random.default_rng(5).normal(50, 9, (20, 30)).astype(np.float32)
    path = tmp_path / "dithered.fits"
    fits.CompImageHDU(image, quantize_method=1, dither_seed=7).writeto(path)
    job = Job([FitsReader().read(Row(0, str(path)), None)])
    first = emulated(kernels_folder, "sm_90")
    for gpu in (first, Device(kernels_folder, "sm_90", number=1)) * 2:
        assert check(gpu, job) == [0]


def test_numba_does_not_warn_of_small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs: numba warns, which is an error here, when a launch is configured."""
    monkeypatch.setattr(config, "CUDA_LOW_OCCUPANCY_WARNINGS", 1)
    cupy: Any = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=0))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda, "external_stream", lambda address: address)
    launched = []
    monkeypatch.setattr(type(warp), "call", lambda *launch: launched.append(launch))
    cupy_operator.launch(warp, (1, 1), (1, 32))
    assert len(launched) == 1
