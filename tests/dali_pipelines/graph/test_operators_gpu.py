"""The kernel of the GPU in numba's CUDA simulator, against that of the CPU: bit for bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from astropy.io import fits
from simulation import simulated

from dali_pipelines.kernels.fits.image import DAMAGED, decode_image
from readers import FitsReader, Row, Sample, Window
from readers.fits.payload import HEAD, OFFSET

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"


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


def check(jobs: list[Job]) -> None:
    found = simulated("decode", [tuple(job) for job in jobs])
    for job, (images, statuses) in zip(jobs, found, strict=True):
        for sample, image, status in zip(job.samples, images, statuses, strict=True):
            expected, expected_status = on_cpu(sample, job)
            assert status == expected_status
            assert image.dtype == job.dtype
            if status == 0:
                np.testing.assert_array_equal(image, expected)


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> Row:
    """Square tiles, short at the edges, of which some are plain: read by several warps."""
    path = tmp_path_factory.mktemp("frames") / "square.fits"
    image = np.random.default_rng(0).normal(500, 30, (61, 83)).astype(np.int16)
    image[:, 40:50] = 3
    fits.CompImageHDU(image, compression_type="RICE_1", tile_shape=(7, 9)).writeto(path)
    return Row(0, str(path))


def test_real_files(shared_data: Path) -> None:
    reader, window = FitsReader(), None if LONG else Window(height=12, width=70)
    paths = sorted((shared_data / "fits").iterdir())
    small = {"compressed_with_nan.fits"}
    settings: list[Any] = [("float32", (1, 0), ((3.0, 0.5),)), ("float32", (0, 1))] * 9
    check(
        [
            Job([reader.read(Row(0, str(p)), None if p.name in small else window)], *how)
            for p, how in zip(paths, settings, strict=False)
        ]
    )


def test_a_batch_of_all_sorts(frame: Row) -> None:
    """Windows of several sizes, an image of zeros, and a last one that ends a block early."""
    reader = FitsReader()
    windows = [None, Window(height=20, width=20, y=0.9, x=0.4), Window(height=1, width=1)]
    samples = [reader.read(frame, window) for window in windows]
    samples.insert(1, reader.blank(5, 6))
    check([Job(samples, flip=(1, 1), finish=((10.0, 0.25),))])


def test_stored_integers(frame: Row) -> None:
    check([Job([FitsReader(stored="int16").read(frame, None)], "int16", (0, 1))])


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_planes(tmp_path: Path, dtype: str) -> None:
    """Several planes of an image, one of which is damaged in the last sample."""
    cube = np.random.default_rng(1).normal(500, 30, (4, 21, 33)).astype(np.int16)
    fits.CompImageHDU(cube, tile_shape=(1, 7, 9)).writeto(tmp_path / "cube.fits")
    row = Row(0, str(tmp_path / "cube.fits"))
    reader = FitsReader(planes=(3, 0, 2), stored=None if dtype == "float32" else dtype)
    good = reader.read(row, Window(height=12, width=20, y=0.6, x=0.2))
    bad = good["plan"].copy()
    bad[len(bad) // 3 + HEAD + OFFSET] = -1
    samples = [reader.read(row, None), good, reader.blank(5, 6), broken(good, plan=bad)]
    check([Job(samples, dtype, (1, 0), ((10.0, 0.25), (0.0, 1.0), (-3.0, 2.0)))])
    assert on_cpu(samples[-1], Job([], dtype, finish=((0, 1),) * 3))[1] == DAMAGED


def broken(sample: Sample, **arrays: np.ndarray) -> Sample:
    return Sample({**sample.arrays, **arrays})


def test_damaged_images_are_told_and_leave_others_alone(frame: Row) -> None:
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
    check([Job(samples)])
    statuses = [on_cpu(sample, Job([sample]))[1] for sample in samples]
    assert statuses[2:] == [DAMAGED] * 6 + [0]
