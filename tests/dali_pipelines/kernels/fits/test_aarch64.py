"""The decoder on a CPU of another kind: all codecs as astropy, and damaged tiles as here."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import aarch64
import numpy as np
import pytest
from astropy.io import fits
from fits_files import truth
from fuzz_rice import PER_BATCH, batch_of, sample_of
from numpy.typing import NDArray

from dali_pipelines.kernels.fits.image import DAMAGED, decode_image
from readers import FitsReader, Row, Window

pytestmark = pytest.mark.slow

pytestmark = pytest.mark.skipif(
    bool(aarch64.MISSING), reason=f"needs {', '.join(aarch64.MISSING)}; see tests/aarch64.py"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return aarch64.build(tmp_path_factory.mktemp("aarch64"))


def hdus() -> Iterator[fits.CompImageHDU | fits.PrimaryHDU]:
    noise = np.random.default_rng(0).normal(500, 60, (61, 83))
    mask = np.repeat(noise[::2] > 540, 2, axis=0)[:61]
    images: list[NDArray[np.generic]] = [noise.astype(kind) for kind in ("u1", "i2", "i4", "f4")]
    for image in images:
        yield fits.PrimaryHDU(image)
        for codec in ("RICE_1", "GZIP_1", "GZIP_2", "HCOMPRESS_1"):
            yield fits.CompImageHDU(image, compression_type=codec, tile_shape=(7, 83))
    for method in (-1, 1, 2):
        options = {"quantize_method": method, "dither_seed": 77, "tile_shape": (7, 9)}
        yield fits.CompImageHDU(images[-1], compression_type="RICE_1", **options)
    yield fits.CompImageHDU(mask.astype(np.int16), compression_type="PLIO_1")


def test_all_codecs(program: Path, tmp_path: Path) -> None:
    """Whole images and windows of them."""
    reader, window = FitsReader(), Window(height=20, width=30, y=0.4, x=0.7)
    samples, expected = [], []
    for number, hdu in enumerate(hdus()):
        path = tmp_path / f"{number}.fits"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hdu.writeto(path)
        whole = truth(path)
        y, x = window.place(*whole.shape)
        samples += [reader.read(Row(0, str(path)), part) for part in (None, window)]
        expected += [whole, whole[y : y + window.height, x : x + window.width]]
    for found, pixels in zip(aarch64.decoded(program, samples, tmp_path), expected, strict=True):
        np.testing.assert_array_equal(found, pixels)


def test_damaged_streams(program: Path, tmp_path: Path) -> None:
    samples = [sample_of(batch_of(seed), lane) for seed in range(50) for lane in range(PER_BATCH)]
    there = aarch64.decoded(program, samples, tmp_path)
    for sample, found in zip(samples, there, strict=True):
        out = np.empty((*sample["shape"].shape[:2], 1), np.float32)
        arrays = (sample[name] for name in ("payload", "plan", "scaling"))
        status = decode_image(out, *arrays, np.zeros(2, np.int32), np.array((0, 1), np.float32))
        assert (found is None) == (status == DAMAGED)
        if found is not None:
            np.testing.assert_array_equal(found, out[..., 0])
    assert 0.1 < np.mean([found is None for found in there]) < 0.9
