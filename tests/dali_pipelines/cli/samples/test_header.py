from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_pipelines.cli.samples import header as aia


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    """Noise with a few saturated pixels."""
    image = np.random.default_rng(1).normal(50, 40, (256, 256)).round().astype(np.int16)
    image[0, :5] = aia.SATURATION_DN
    return image


def test_headers_have_the_words_of_level_1(image: NDArray[Any]) -> None:
    header = aia.frame_header(0, image)
    expected = {
        "TELESCOP": "SDO/AIA",
        "INSTRUME": "AIA_4",
        "WAVELNTH": 94,
        "WAVEUNIT": "angstrom",
        "LVL_NUM": 1.0,
        "IMG_TYPE": "LIGHT",
        "QUALITY": 0,
        "PERCENTD": 100.0,
        "NSPIKES": 0,
        "CTYPE1": "HPLN-TAN",
        "CTYPE2": "HPLT-TAN",
        "CUNIT1": "arcsec",
        "CUNIT2": "arcsec",
        "CRVAL1": 0.0,
        "CRVAL2": 0.0,
        "BLANK": -32768,
        "T_REC": "2015-01-01T00:00:00.000",
        "DATE-OBS": "2015-01-01T00:00:00.340",
    }
    assert {key: header[key] for key in expected} == expected
    assert "SYNTHETIC" in str(header["COMMENT"])
    assert 150 < len(header) < 230  # 216 in a real file


def test_headers_agree_with_themselves(image: NDArray[Any]) -> None:
    for number in range(3):
        header = aia.frame_header(number, image)
        assert header["RSUN_OBS"] == pytest.approx(975.9, abs=0.2)
        assert header["R_SUN"] * header["CDELT1"] == pytest.approx(header["RSUN_OBS"])
        observer = math.hypot(header["HAEX_OBS"], header["HAEY_OBS"], header["HAEZ_OBS"])
        assert observer == pytest.approx(header["DSUN_OBS"])


def test_frames_differ_in_channel_time_and_pointing(image: NDArray[Any]) -> None:
    first, second = (aia.frame_header(number, image) for number in range(2))
    assert second["WAVELNTH"] == 131
    assert second["T_REC"] == "2015-01-01T00:00:12.000"
    for key in ("EXPTIME", "CRPIX1", "CRPIX2", "CROTA2", "CDELT1", "DSUN_OBS", "T_OBS"):
        assert first[key] != second[key], key


def test_statistics_words_are_those_of_the_pixels(image: NDArray[Any]) -> None:
    header = aia.frame_header(0, image)
    assert header["DATAMIN"] == image.min() < 0
    assert header["DATAMAX"] == image.max()
    assert header["DATAMEAN"] == pytest.approx(image.mean())
    assert header["DATARMS"] == pytest.approx(image.std())
    assert header["DATAMEDN"] == np.median(image)
    assert header["DATAP90"] == pytest.approx(np.percentile(image, 90), abs=1)
    assert header["NSATPIX"] == 5


def test_every_16th_frame_is_flagged(image: NDArray[Any]) -> None:
    quality = [aia.frame_header(number, image[:8, :8])["QUALITY"] for number in range(64)]
    flagged = {number: word for number, word in enumerate(quality) if word}
    assert flagged == {15: 1 << 17, 31: 1 << 12, 47: 1 << 17, 63: 1 << 12}
