import io
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS
from PIL import Image

from dali_pipelines.cli.samples import header as aia
from dali_pipelines.cli.samples import sets, sun


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two frames, made in this process, which draws the Sun once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "whole_cores", lambda: 1)
        folder = sets.fits_samples(tmp_path_factory.mktemp("fits"), num_frames=2)
    return sorted(folder.iterdir())


def read(path: Path) -> tuple[np.ndarray, Any]:
    """Image and header; as stored, since astropy gives floats where a BLANK might occur."""
    found: Any = fits.getdata(path, 1, header=True, do_not_scale_image_data=True)
    return found


def test_files_have_the_layout_of_jsoc(frames: list[Path]) -> None:
    assert [path.name for path in frames] == [
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
    for path in frames:
        assert path.stat().st_size == pytest.approx(sets.FRAME_BYTES, rel=0.06)


@pytest.mark.parametrize("number", range(len(aia.CHANNELS)))
def test_every_channel_is_hard_to_compress(number: int) -> None:
    # To 5 to 7 bits per pixel, as in a real file. A whole frame of each channel takes too long:
    # the rows at disk centre stand for all.
    wavelength = aia.frame_wavelength(number)
    band = sun._scene_band(wavelength, aia.frame_pointing(number), 2048)
    sun._add_noise(band, wavelength, np.random.default_rng(1))
    tiled = fits.CompImageHDU(band.round().astype(np.int16), compression_type="RICE_1")
    written = io.BytesIO()
    tiled.writeto(written)
    assert 5 < written.tell() * 8 / band.size < 7


def test_the_disk_is_bright_and_noisy(frames: list[Path]) -> None:
    for path in frames:
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
    first, second = (read(path)[0] for path in frames)
    assert first.dtype == np.int16
    assert np.mean(first == second) < 0.2


def test_pixels_obey_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    # A spot on the Sun must be where the world coordinates say; the roll tells the signs apart. A
    # scene with only a spot, and without noise, cannot be had from outside.
    y, x = np.mgrid[:2048, :2048]
    spot_x, spot_y = 1500.0, 1310.0
    spot = np.exp(-((x - spot_x) ** 2 + (y - spot_y) ** 2) / 50).astype(np.float32)
    monkeypatch.setattr(sun, "_channel_scene", lambda _: Image.fromarray(spot))
    pointing = aia.frame_pointing(2) | {"CROTA2": 17.3}
    wcs = WCS(fits.Header(aia.pointing_cards(pointing)))
    arcsec = pointing["RSUN_OBS"] / sun.SCENE_RADIUS
    sky = np.array([spot_x - 1023.5, spot_y - 1023.5]) * arcsec / 3600  # degrees, as in wcs
    expected_x, expected_y = wcs.wcs.s2p([sky], 0)["pixcrd"][0]

    bands = [sun._scene_band(171, pointing, row) for row in range(0, 4096, sun.BAND_ROWS)]
    image = np.vstack(bands)
    rows, columns = np.nonzero(image > 1e-3)
    weights = image[rows, columns]
    assert np.average(columns, weights=weights) == pytest.approx(expected_x, abs=0.05)
    assert np.average(rows, weights=weights) == pytest.approx(expected_y, abs=0.05)
