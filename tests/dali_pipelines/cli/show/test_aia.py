"""The command show on frames of AIA and HMI: calibrated as by a run, and step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import solar_files
from astropy.io import fits
from astropy.wcs import WCS
from numpy.typing import NDArray

from dali_pipelines import Calibration, Index
from dali_pipelines.aia.calibrate import calibrate
from dali_pipelines.cli.show import sheet
from dali_pipelines.cli.show.steps import step_pictures
from readers import Row

SIZE = 64

Show = Callable[..., tuple[Any, str]]
Captions = list[tuple[tuple[str, ...], str]]
Cell = Callable[..., Any]


def hmi_small(**words: Any) -> fits.Header:
    """Return the header of a magnetogram of 128x128."""
    small = {"CDELT1": 16.14, "CDELT2": 16.14, "CRPIX1": 64.2, "CRPIX2": 64.9}
    return solar_files.hmi_header(**{**small, **words})


def range_of(values: NDArray[Any]) -> str:
    return f"{values.min():.5g} to {values.max():.5g}"


def test_what_the_network_will_see(
    tmp_path: Path, shared_data: Path, show: Show, captions: Captions
) -> None:
    pixels, header = solar_files.frame()
    good = solar_files.save(tmp_path / "a.fits", pixels, header)
    dark = solar_files.changed(header, QUALITY=1 << 16)
    other = solar_files.changed(header, WAVELNTH=4500)
    solar_files.save(tmp_path / "b.fits", pixels, dark)
    solar_files.save(tmp_path / "c.fits", pixels, other)
    table = shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"
    flags = ["--pipeline=aia", "--preset=sdoml", f"--correction_table={table}"]
    _, err = show(tmp_path, *flags)
    assert "1 images, 2 rejected" in err
    (lines, _), (_, quality), (_, channel) = captions
    expected = calibrate(Row(0, str(good)), Calibration.of("sdoml", correction_table=table))
    time = header["T_OBS"][:19] + "Z"
    assert lines == (str(good), f"AIA 171 {time}", "512x512", range_of(expected))
    assert "dark image" in quality
    assert "4500" in channel


def test_frames_are_registered_as_by_a_run(tmp_path: Path, show: Show, captions: Captions) -> None:
    pixels, header = solar_files.frame()
    path = solar_files.save(tmp_path / "a.fits", pixels, header)
    show(path, "--pipeline=aia", "--registered_size", 96, 128, "--order=1", "--crop=32")
    whole = calibrate(Row(0, str(path)), Calibration(size=(96, 128), order=1))
    assert captions[0][0][2:] == ("32x32", range_of(whole[32:64, 48:80]))


def test_samples_have_a_picture_for_each_channel(
    tmp_path: Path, show: Show, captions: Captions, cell: Cell
) -> None:
    pixels, header = solar_files.frame()
    first = str(solar_files.save(tmp_path / "171.fits", pixels, header))
    magnetogram = np.full((128, 128), -5, np.int16)
    magnetogram[:, 64:] = 5
    second = str(solar_files.save(tmp_path / "m.fits", magnetogram, hmi_small()))
    bad = str(solar_files.save(tmp_path / "bad.fits", pixels, hmi_small(CROTA2=None)))
    index = Index(
        pa.table(
            {
                "path": [first, first],
                "path_171": [first, first],
                "path_304": pa.array([None, None], pa.string()),
                "path_hmi": [second, bad],
            }
        )
    )
    index.save(tmp_path / "samples.parquet")
    drawn, err = show(tmp_path / "samples.parquet", "--pipeline=aia", "--exposure")
    for figure in ("2 images", "1 rejected", "1 left out", "2 missing"):
        assert figure in err
    assert [lines[:2] for lines, _ in captions] == [
        (first, f"AIA 171 {header['T_OBS'][:19]}Z"),
        ("part 304", "-"),
        (second, "HMI magnetogram 2011.02.15_00:01:12_TAI"),
        (first, "left out"),
        ("part 304", "-"),
        (bad, "rejected"),
    ]
    for place, word in ((1, "missing"), (3, "left out"), (5, "CROTA2")):
        assert word in captions[place][1]
    expected = calibrate(Row(0, first), Calibration(exposure=True))
    assert captions[0][0][3] == range_of(expected)
    # Turned by 180 degrees; 0, which is what there is off the frame, is in the middle of the greys.
    found = cell(drawn, 2, 3, 4)
    assert (found[20:44, 20:30] == 255).all()
    assert (found[20:44, 34:44] == 0).all()
    assert (np.abs(found[0].astype(int) - 127) <= 1).all()


def sharp_sun(path: Path, crota2: float, *, bright: float = 1000.0, crval1: float = 0.0) -> Path:
    """Write a turned disk, as large as its header says, and of one brightness."""
    header = solar_files.full_header(
        NAXIS1=512,
        NAXIS2=512,
        CDELT1=4.9,
        CDELT2=4.9,
        CRPIX1=259.3,
        CRPIX2=249.9,
        CROTA2=crota2,
        CRVAL1=crval1,
        LVL_NUM=1.0,
    )
    header["NAXIS"] = 2
    world = WCS(header, fix=False).pixel_to_world_values(
        *np.meshgrid(np.arange(512), np.arange(512))
    )
    away = [(value * 3600 + 648000) % 1296000 - 648000 for value in world]
    pixels = np.where(np.hypot(*away) < header["RSUN_OBS"], bright, 0).astype(np.float32)
    return solar_files.save(path, pixels, header)


@pytest.mark.parametrize("crota2", [0.0, 17.3, 179.9])
def test_the_limb_is_where_the_circle_is(tmp_path: Path, crota2: float) -> None:
    path = sharp_sun(tmp_path / "a.fits", crota2)
    pictures = list(step_pictures(Row(0, str(path)), Calibration(size=(512, 512), scale=4.8), SIZE))
    limbs = [picture for picture in pictures if picture.circle is not None]
    assert [limb.caption[0] for limb in limbs] == [
        "level 1: north limb",
        "registered: north limb",
        "level 1: west limb",
        "registered: west limb",
    ]
    for limb in limbs:
        assert limb.circle is not None
        assert limb.pixels is not None
        x, y, radius = limb.circle
        height, width, _ = limb.pixels.shape
        rows, columns = np.indices((height, width))
        away = np.hypot(columns - x, rows - y) - radius
        brightness = limb.pixels.sum(axis=2)
        border = 2 if limb.caption[0].startswith("registered") else 1
        assert brightness[away < -border].min() > 600
        assert brightness[away > border].max() < 100
        assert (away < -border).any()
        assert (away > border).any()
    for limb, side in zip(limbs[1::2], ("north", "west"), strict=True):
        # North is up, and west is right.
        assert limb.pixels is not None
        bright = limb.pixels.sum(axis=2) > 300
        assert bright[-1].all() if side == "north" else bright[:, 0].all()
        assert not (bright[0].any() if side == "north" else bright[:, -1].any())


def test_each_step_that_is_asked_for(
    tmp_path: Path, shared_data: Path, show: Show, captions: Captions
) -> None:
    path = sharp_sun(tmp_path / "a.fits", 17.3)
    table = shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"
    flags = ["--pipeline=aia", "--preset=sdoml", f"--correction_table={table}", "--before_after"]
    drawn, _ = show(path, *flags)
    calibration = Calibration.of("sdoml", correction_table=table)
    gain = calibration.reader().read(Row(0, str(path)), None)["gain"][0]
    titles = [lines[0] for lines, _ in captions]
    assert titles == [
        "level 1",
        "registered",
        f"EXPTIME and degradation: gain {gain:.5g}",
        "stretched and scaled",
        *(
            f"{step}: {side} limb"
            for side in ("north", "west")
            for step in ("level 1", "registered")
        ),
    ]
    assert captions[0][0][1].startswith("AIA 171 ")
    assert "4.9000 arcsec/pixel, CROTA2 17.3" in captions[0][0]
    assert "Sun's centre at CRPIX 259.30, 249.90" in captions[0][0]
    assert "Sun's centre at CRPIX 256.50, 256.50" in captions[1][0]
    final = calibrate(Row(0, str(path)), calibration)
    assert captions[3][0][-1] == range_of(final)
    # The steps in a row, the limbs in another.
    assert drawn.shape[1] == 4 * SIZE + 5 * sheet.GAP


def test_frames_are_deconvolved_before_they_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Fakes of the PSF and the deconvolution, which take minutes: an image gets brighter by 171.
    monkeypatch.setattr("dali_pipelines.aia.psf.cached_psf", lambda channel: channel)
    monkeypatch.setattr(
        "dali_pipelines.aia.deconvolve.Deconvolver.of", lambda psf: lambda image: image + psf
    )
    header = solar_files.full_header()
    path = solar_files.save(tmp_path / "a.fits", np.zeros((4096, 4096), np.int16), header)
    calibration = Calibration(size=(64, 64), scale=2.4, psf=(171,), exposure=True)
    gain = 1 / header["EXPTIME"]
    lit = f"{171 * gain:.5g}"
    captions = [picture.caption for picture in step_pictures(Row(0, str(path)), calibration, SIZE)]
    assert [(lines[0], *lines[-2:]) for lines in captions] == [
        ("level 1", "4096x4096", "0 to 0"),
        ("deconvolved", "4096x4096", "171 to 171"),
        ("registered", "256x256", "171 to 171"),
        (f"EXPTIME: gain {gain:.5g}", "256x256", f"{lit} to {lit}"),
        ("reduced, means of 4x4 pixels", "64x64", f"{lit} to {lit}"),
        ("level 1: north limb", "64x64", "0 to 0"),
        ("level 1: west limb", "64x64", "0 to 0"),
    ]


def test_a_sun_that_is_not_in_the_middle(tmp_path: Path, show: Show, captions: Captions) -> None:
    path = sharp_sun(tmp_path / "a.fits", 0.0, crval1=20.0)
    flags = ["--pipeline=aia", "--registered_size=512", "--before_after"]
    show(path, *flags)
    show(path, *flags, "--center=sun")
    registered = [lines for lines, _ in captions if lines[0] == "registered"]
    assert [any("--center" in line for line in lines) for lines in registered] == [True, False]
    assert "Sun's centre at CRPIX 256.50, 256.50" in registered[1]


def test_before_and_after_of_an_unfit_file(tmp_path: Path, show: Show, captions: Captions) -> None:
    pixels, header = solar_files.frame()
    solar_files.save(tmp_path / "a.fits", pixels, solar_files.changed(header, LVL_NUM=1.5))
    flags = ["--pipeline=aia", "--before_after"]
    show(tmp_path / "a.fits", *flags, status=1)
    assert captions[0][0][1] == "rejected"
    assert "LVL_NUM" in captions[0][1]
