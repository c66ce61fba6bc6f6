"""Frames calibrated without a graph, against aiapy."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sunpy.map
from aiapy.calibrate import correct_degradation, register
from aiapy_releases import deconvolve as aiapy_deconvolve
from aiapy_releases import get_correction_table
from astropy.io import fits
from numpy.typing import NDArray
from solar_files import changed, frame, full_header, hmi_header, save

from dali_pipelines import Calibration, Stretch
from dali_pipelines.aia import calibrate as module
from dali_pipelines.aia.calibrate import calibrate
from dali_pipelines.aia.deconvolve import Deconvolver
from dali_pipelines.aia.psf import psf
from readers import CorrectionTable, ReadError, Row, Window
from readers.aia import reader as aia_reader

PIXELS, HEADER = frame()
GRID: dict[str, Any] = {"size": 128, "scale": 19.2}


def by_aiapy(pixels: NDArray[Any], header: fits.Header, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # units, dates, and that HMI has no level
        return register(sunpy.map.Map(pixels.astype(np.float64), header), **settings)


def cut(image: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Cut or pad about the middle: aiapy's images grow as they turn."""
    y, x = (found - size for found, size in zip(image.shape, shape, strict=True))
    padded = np.pad(image, [(max(-y, 0) // 2,) * 2, (max(-x, 0) // 2,) * 2])
    y, x = max(y, 0) // 2, max(x, 0) // 2
    return padded[y : y + shape[0], x : x + shape[1]]


def disk(shape: tuple[int, int], radius: float) -> NDArray[np.bool_]:
    y, x = (np.arange(size) - (size - 1) / 2 for size in shape)
    return np.hypot(y[:, None], x) < radius


HEADERS = {
    "0.02": HEADER,
    "17.3": changed(HEADER, CROTA2=17.3),
    "180": changed(HEADER, CROTA2=180.0, CRPIX1=65.2, CRPIX2=63.9),
    "hmi": hmi_header(CDELT1=16.14, CDELT2=16.14, CRPIX1=64.2, CRPIX2=64.9),
}


@pytest.mark.parametrize(
    ("name", "order"),
    [("0.02", 1), ("0.02", 3), ("17.3", 1), ("17.3", 3), ("180", 3), ("hmi", 3)],
)
def test_a_real_frame(tmp_path: Path, name: str, order: Any) -> None:
    header = HEADERS[name]
    path = save(tmp_path / "frame.fits", PIXELS, header)
    scale = round(header["CDELT1"] / 0.6) * 0.6
    calibration = Calibration(size=(128, 128), scale=scale, order=order)
    found = calibrate(Row(0, str(path)), calibration)
    expected = cut(by_aiapy(PIXELS, header, order=order).data, found.shape)
    # 1.25 radii leave the frame; where it is turned, aiapy's zero padding shows beyond 1.1.
    inside = disk(found.shape, min(1.1 * header["RSUN_OBS"] / scale, 60))
    difference = np.abs(found - expected)[inside]
    if order == 3:
        assert (difference <= 1e-3 + 1e-5 * np.abs(expected[inside])).all()
    else:
        assert difference.max() < 0.1
    flux = found[inside].sum(dtype=np.float64) / expected[inside].sum()
    assert abs(flux - 1) < 1e-5


@pytest.fixture(scope="module")
def level1(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NDArray[np.int16], fits.Header]:
    """Return a frame of full size with the noise of photons, which is hardest to interpolate."""
    header = full_header(CRPIX1=2052.6, CRPIX2=2046.3)
    random = np.random.default_rng(0)
    pixels = np.kron(PIXELS, np.ones((32, 32))).clip(1)
    pixels = (pixels + random.normal(size=pixels.shape) * np.sqrt(pixels)).astype(np.int16)
    path = tmp_path_factory.mktemp("level1") / "frame.fits"
    return save(path, pixels, header, compression_type="RICE_1"), pixels, header


@pytest.mark.slow
def test_a_full_frame(level1: tuple[Path, NDArray[np.int16], fits.Header]) -> None:
    path, pixels, header = level1
    found = calibrate(Row(0, str(path)), Calibration(size=(4096, 4096)))
    expected = by_aiapy(pixels, header, order=3).data
    assert expected.shape == (4094, 4094)  # CDELT1 < 0.6
    found = found[1:-1, 1:-1]
    inside = disk(found.shape, 1.25 * header["RSUN_OBS"] / 0.6)
    difference = np.abs(found - expected)
    assert (difference <= 1e-3 + 1e-5 * np.abs(expected))[inside].all()


def test_reduced_by_area(level1: tuple[Path, NDArray[np.int16], fits.Header]) -> None:
    row = Row(0, str(level1[0]))
    full = calibrate(row, Calibration(size=(4096, 4096)))
    means = full.reshape(512, 8, 512, 8).mean(axis=(1, 3), dtype=np.float64)
    reduced = calibrate(row, Calibration(size=(512, 512)))
    np.testing.assert_allclose(reduced, means, rtol=1e-5, atol=1e-3)
    window = Window(height=40, width=60, y=0.3, x=0.6)
    y, x = window.place(512, 512)
    part = calibrate(row, Calibration(size=(512, 512)), window)
    np.testing.assert_allclose(part, reduced[y : y + 40, x : x + 60], atol=1e-3)


def test_degradation_and_exposure(tmp_path: Path, shared_data: Path) -> None:
    path = save(tmp_path / "frame.fits", PIXELS, HEADER)
    table = next((shared_data / "tables").iterdir())
    plain = calibrate(Row(0, str(path)), Calibration(**GRID))
    calibration = Calibration.of(correction_table=table, exposure=True, **GRID)
    found = calibrate(Row(0, str(path)), calibration)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = sunpy.map.Map(np.ones((128, 128)), HEADER)
        corrected = correct_degradation(image, correction_table=get_correction_table(table))
    factor = corrected.data[0, 0] / image.exposure_time.to_value("s")
    assert abs(factor - 1) > 0.1
    np.testing.assert_allclose(found, plain * factor, rtol=1e-6)


def test_deconvolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = psf(171, diffraction_orders=range(-3, 4), shape=(128, 128))
    # Deconvolution is for full frames, of 4096x4096, which aiapy takes minutes for.
    monkeypatch.setattr(aia_reader, "FULL_FRAME", (128, 128))
    monkeypatch.setattr(module, "_deconvolver", lambda channel: Deconvolver.of(kernel))
    path = save(tmp_path / "frame.fits", PIXELS, HEADER)
    found = calibrate(Row(0, str(path)), Calibration(psf=(171,), **GRID))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sharp = aiapy_deconvolve(sunpy.map.Map(PIXELS, HEADER), psf=kernel)
    expected = cut(by_aiapy(sharp.data, HEADER, order=3).data, found.shape)
    inside = disk(found.shape, 55)
    assert np.abs(calibrate(Row(0, str(path)), Calibration(**GRID)) - found)[inside].max() > 100
    np.testing.assert_allclose(found[inside], expected[inside], rtol=2e-4, atol=0.05)


def test_stretch_and_values_for_pixels(tmp_path: Path) -> None:
    pixels = np.full((128, 128), 100, np.int16)
    pixels[64, 64], pixels[30, 30] = -32768, -5
    header = changed(HEADER, BLANK=-32768, CRPIX1=64.5, CRPIX2=64.5, CROTA2=0.0, CDELT1=19.2)
    header = changed(header, CDELT2=19.2)
    row = Row(0, str(save(tmp_path / "frame.fits", pixels, header, compression_type="RICE_1")))
    plain = calibrate(row, Calibration(order=1, missing=math.nan, **GRID))
    assert (plain[1, 1], plain[30, 30]) == (100, -5)
    assert np.isnan(plain[64, 64])
    root = Stretch(kind="sqrt", clip=(0, math.inf))
    found = calibrate(row, Calibration(order=1, missing=4.0, stretch=root, **GRID))
    assert (found[1, 1], found[30, 30], found[64, 64]) == (10, 0, 2)
    found = calibrate(row, Calibration(order=1, missing=7.0, negative="missing", **GRID))
    assert (found[30, 30], found[64, 64]) == (7, 7)
    found = calibrate(row, Calibration(order=1, negative="zero", **GRID))
    assert (found[30, 30], found[64, 64]) == (0, 0)


def test_presets(tmp_path: Path, shared_data: Path) -> None:
    table = next((shared_data / "tables").iterdir())
    calibration = Calibration.of("iti", correction_table=table)
    assert calibration.exposure
    sdoml = Calibration.of("sdoml", correction_table=table)
    assert sdoml.radius is not None
    half = Calibration.of("sdoml", correction_table=table, size=256)
    assert half.radius == sdoml.radius / 2
    assert Calibration.of("sdoml", correction_table=table, scale=1.0).radius is None
    path = save(tmp_path / "frame.fits", PIXELS, HEADER)
    small = Calibration.of("iti", correction_table=table, **GRID)
    found = calibrate(Row(0, str(path)), small)
    assert -1 <= found.min() < found.max() <= 1
    row = Row(0, str(save(tmp_path / "4500.fits", PIXELS, changed(HEADER, WAVELNTH=4500))))
    with pytest.raises(ReadError, match=r"aia_V10_.*4500.*94, 131"):
        calibrate(row, small)
    with pytest.raises(ReadError, match=r"4500.*stretch.*94, 131"):
        calibrate(row, Calibration(stretch=calibration.stretch, **GRID))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale": 1, "radius": 2}, "scale or radius"),
        ({"scale": 0}, "scale.*positive.*0"),
        ({"radius": "50"}, "radius.*positive.*'50'"),
        ({"reduce": 0}, "reduce.*at least 1.*0"),
        ({"order": 2}, "order.*1, 3.*2"),
        ({"order": "3"}, "order.*1, 3.*'3'"),
        ({"order": True}, "order.*1, 3.*True"),
        ({"center": "disk"}, "center.*'reference_pixel', 'sun'.*'disk'"),
        ({"missing": "nan"}, r"missing.*math\.nan.*'nan'"),
        ({"missing": True}, r"missing.*math\.nan.*True"),
        ({"negative": "drop"}, "negative.*'keep', 'zero', 'missing'.*'drop'"),
        ({"size": (1, 2, 3)}, r"size.*\(height, width\).*\(1, 2, 3\)"),
        ({"size": "64"}, r"size.*\(height, width\).*'64'"),
        ({"size": None}, r"size.*\(height, width\).*None"),
        (
            {"size": "64", "preset": "iti", "correction_table": CorrectionTable("", "", None, {})},
            r"size.*\(height, width\).*'64'",
        ),
        ({"exposure": "yes"}, "exposure.*True or False.*'yes'"),
        ({"rules": "aia"}, "rules.*HeaderRules.*'aia'"),
        ({"psf": True}, r"psf.*tuple.*\(171,\).*True"),
        ({"psf": ("171",)}, r"psf.*tuple.*\(171,\).*'171'"),
        ({"psf": (1600,)}, "1600"),
        ({"hdu": -1}, "hdu.*EXTNAME.*-1"),
        ({"stretch": "asinh"}, "stretch.*Stretch.*'asinh'"),
        ({"stretch": {}}, "stretch.*Stretch.*{}"),
        ({"stretch": {None: Stretch()}}, "stretch.*by channel.*{None"),
        ({"stretch": {171.0: Stretch()}}, r"stretch.*by channel.*{171\.0"),
        ({"stretch": {171: "log1p"}}, "stretch.*Stretch.*{171: 'log1p'}"),
        ({"pointing_table": 3}, r"PointingTable\.read.*3"),
        ({"correction_table": True}, "correction_table.*CorrectionTable.*True"),
        ({"correction_table": "/nowhere"}, "/nowhere"),
        ({"preset": 3}, "preset.*name.*path.*3"),
        ({"preset": "iti"}, "'iti'.*correction_table"),
        ({"preset": "itti"}, "preset.*'itti'"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        Calibration.of(**settings)


def test_settings_of_other_types_that_make_sense() -> None:
    given: dict[str, Any] = {"size": np.int64(64), "psf": [np.int32(171)], "exposure": np.True_}
    given["radius"] = np.float32(20)
    calibration = Calibration(**given)
    assert (calibration.size, calibration.psf) == ((64, 64), (171,))
    assert Calibration(psf=[]).psf == ()  # type: ignore[arg-type]
    assert Calibration(psf=np.array([])).psf == ()  # type: ignore[arg-type]


def test_the_hdu_is_found_by_its_name(tmp_path: Path) -> None:
    other = fits.ImageHDU(PIXELS + 1, HEADER, name="OTHER")
    file = fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(PIXELS, HEADER, name="SUN"), other])
    file.writeto(tmp_path / "frames.fits")
    row = Row(0, str(tmp_path / "frames.fits"))
    found = [calibrate(row, Calibration(hdu=hdu, **GRID)) for hdu in ("OTHER", 2, "SUN")]
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()
    with pytest.raises(ReadError, match="MOON"):
        calibrate(row, Calibration(hdu="MOON"))


def test_unknown_settings() -> None:
    with pytest.raises(TypeError, match=r"'sizes'.*size"):
        Calibration.of(sizes=4)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("settings", "window", "reduce"),
    [
        ({"size": 4096}, None, 1),
        ({"size": 512}, None, 8),
        ({"size": 512}, Window(height=9, width=9, zoom=0.5), 16),
        ({"size": 512, "reduce": 2}, None, 2),
        ({"size": 512, "radius": 200.0}, None, 8),
    ],
)
def test_what_is_reduced(
    level1: tuple[Path, NDArray[np.int16], fits.Header],
    settings: dict[str, Any],
    window: Window | None,
    reduce: int,
) -> None:
    sample = Calibration(**settings).reader().read(Row(0, str(level1[0])), window)
    assert sample["reduce"] == [reduce]
