import math
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS
from PIL import Image

from dali_pipelines.cli.samples import sets, sun


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A frame of each channel, made in this process, which draws the Sun once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "whole_cores", lambda: 1)
        folder = sets.fits_samples(tmp_path_factory.mktemp("fits"), num_frames=7)
    return sorted(folder.iterdir())


def read(path: Path) -> tuple[np.ndarray, Any]:
    """Image and header; as stored, since astropy gives floats where a BLANK might occur."""
    found: Any = fits.getdata(path, 1, header=True, do_not_scale_image_data=True)
    return found


def test_files_have_the_layout_of_jsoc(frames: list[Path]) -> None:
    assert [path.name for path in frames[:2]] == [
        "aia_20150101T000000_0094.fits",
        "aia_20150101T000012_0131.fits",
    ]
    with fits.open(frames[0]) as hdus:
        assert len(hdus) == 2
    assert fits.getheader(frames[0], 0)["NAXIS"] == 0
    header = fits.getheader(frames[0], 1, disable_image_compression=True)
    expected = {
        "ZIMAGE": True,
        "ZCMPTYPE": "RICE_1",
        "ZBITPIX": 16,
        "ZNAXIS1": 4096,
        "ZNAXIS2": 4096,
        "ZTILE1": 4096,
        "ZTILE2": 1,
        "ZNAME1": "BLOCKSIZE",
        "ZVAL1": 32,
        "ZNAME2": "BYTEPIX",
        "ZVAL2": 2,
        "TFIELDS": 1,
        "BLANK": -32768,
    }
    assert {key: header[key] for key in expected} == expected
    assert not {"BZERO", "BSCALE", "ZBLANK"} & set(header)
    assert 150 < len(header) < 230  # 216 in a real file


def test_frames_are_as_large_as_said(frames: list[Path]) -> None:
    # 5 to 6 bits per pixel in each channel, as in a real file.
    for path in frames:
        assert path.stat().st_size == pytest.approx(sets.FRAME_BYTES, rel=0.06)


def test_the_disk_is_bright_and_noisy(frames: list[Path]) -> None:
    for path in frames[:2]:
        image, header = read(path)
        x, y = round(header["CRPIX1"]), round(header["CRPIX2"])
        centre = image[y - 200 : y + 200, x - 800 : x + 800].astype(float)
        corner = image[:200, :200].astype(float)
        assert centre.mean() > 20 * corner.mean() > 0
        # Photon noise: neighbours differ by far more than the read noise of 1.2 DN.
        assert np.median(np.abs(np.diff(centre))) > 3
        assert 0.8 < np.std(np.diff(corner)) / np.sqrt(2) < 4


@pytest.mark.slow
def test_a_frame_is_the_same_each_time(frames: list[Path], tmp_path: Path) -> None:
    # In another process, which draws its own Sun.
    again = multiprocessing.get_context("spawn").Process(
        target=sun.save_frame, args=(tmp_path / "again.fits", 1)
    )
    again.start()
    again.join()
    assert (tmp_path / "again.fits").read_bytes() == frames[1].read_bytes()


def test_no_two_frames_are_alike(frames: list[Path]) -> None:
    first, second = (read(path)[0] for path in frames[:2])
    assert first.dtype == np.int16
    assert np.mean(first == second) < 0.2


def test_pixels_obey_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    # A spot on the Sun must be where the world coordinates say; the roll tells the signs apart. A
    # scene with only a spot, and without noise, cannot be had from outside.
    y, x = np.mgrid[:2048, :2048]
    spot_x, spot_y = 1500.0, 1310.0
    spot = np.exp(-((x - spot_x) ** 2 + (y - spot_y) ** 2) / 50).astype(np.float32)
    monkeypatch.setattr(sun, "_channel_scene", lambda _: Image.fromarray(spot))
    header = sun.frame_header(2)
    header["CROTA2"] = 17.3
    wcs = WCS(header, fix=False)  # no MJD-OBS from DATE-OBS
    arcsec = header["RSUN_OBS"] / sun.SCENE_RADIUS
    sky = np.array([spot_x - 1023.5, spot_y - 1023.5]) * arcsec / 3600  # degrees, as in wcs
    expected_x, expected_y = wcs.wcs.s2p([sky], 0)["pixcrd"][0]

    image = sun.scene_in_frame(header)
    rows, columns = np.nonzero(image > 1e-3)
    weights = image[rows, columns]
    assert np.average(columns, weights=weights) == pytest.approx(expected_x, abs=0.05)
    assert np.average(rows, weights=weights) == pytest.approx(expected_y, abs=0.05)


# ---- The header --------------------------------------------------------------------------------


def test_headers_have_the_words_of_level_1(frames: list[Path]) -> None:
    header = fits.getheader(frames[0], 1)
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


def test_headers_agree_with_themselves() -> None:
    for number in range(3):
        header = sun.frame_header(number)
        assert header["RSUN_OBS"] == pytest.approx(975.9, abs=0.2)
        assert header["R_SUN"] * header["CDELT1"] == pytest.approx(header["RSUN_OBS"])
        observer = math.hypot(header["HAEX_OBS"], header["HAEY_OBS"], header["HAEZ_OBS"])
        assert observer == pytest.approx(header["DSUN_OBS"])


def test_frames_differ_in_channel_time_and_pointing() -> None:
    first, second = (sun.frame_header(number) for number in range(2))
    assert second["WAVELNTH"] == 131
    assert second["T_REC"] == "2015-01-01T00:00:12.000"
    for key in ("EXPTIME", "CRPIX1", "CRPIX2", "CROTA2", "CDELT1", "DSUN_OBS", "T_OBS"):
        assert first[key] != second[key], key


def test_statistics_are_those_of_the_pixels(frames: list[Path]) -> None:
    image, header = read(frames[0])
    assert header["DATAMIN"] == image.min() < 0
    assert header["DATAMAX"] == image.max()
    assert header["DATAMEAN"] == pytest.approx(image.mean())
    assert header["DATARMS"] == pytest.approx(image.std())
    assert header["DATAMEDN"] == np.median(image)
    assert header["DATAP90"] == pytest.approx(np.percentile(image, 90), abs=1)
    saturated = np.full((8, 8), 1, np.int16)
    saturated[0, :5] = sun.SATURATION_DN
    assert sun.statistics(saturated)["NSATPIX"] == 5


def test_every_16th_frame_is_flagged() -> None:
    quality = [sun.frame_header(number)["QUALITY"] for number in range(64)]
    flagged = {number: word for number, word in enumerate(quality) if word}
    assert flagged == {15: 1 << 17, 31: 1 << 12, 47: 1 << 17, 63: 1 << 12}
