"""Level 1.5 files against those of aiapy, pixels and coordinates, as SunPy reads both."""

from __future__ import annotations

import hashlib
import math
import warnings
from pathlib import Path
from typing import Any

import astropy.units as u
import numpy as np
import pytest
import sunpy.map
from aiapy.calibrate import correct_degradation, register, update_pointing
from aiapy_releases import get_correction_table
from astropy.coordinates import SkyCoord
from astropy.io import fits
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage
from solar_files import (
    changed,
    frame,
    full_header,
    hmi_header,
    pointed,
    pointing_table,
    save,
    save_pointing,
)

from dali_pipelines.aia.level15 import Level15
from readers import CorrectionTable, PointingTable, ReadError, Row

PIXELS, HEADER = frame()
COUNTS = np.rint(PIXELS).astype(np.int16)
TURNED = changed(HEADER, CROTA2=17.3)

CORRECTION = """\
DATE,VER_NUM,WAVE_STR,WAVELNTH,T_START,T_STOP,EFFA_P1,EFFA_P2,EFFA_P3,EFF_AREA,EFF_WVLN
2010-03-24T00:00:00Z,10,171_THIN,171,2010-03-24T00:00:00Z,2011-01-01T00:00:00Z,0,0,0,2.5,171.1
2011-01-01T00:00:00Z,10,171_THIN,171,2011-01-01T00:00:00Z,2030-01-01T00:00:00Z,-1e-4,0,0,2.4,171.1
"""


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Write a level 1 file, and the level 1.5 file of it; give the path of that."""

    def made(pixels: Any, header: fits.Header, /, compression: Any = None, **settings: Any) -> Path:
        row = Row(0, str(save(tmp_path / "level1.fits", pixels, header, **compression or {})))
        path = tmp_path / "level15.fits"
        Level15(**settings).write(row, str(path))
        return path

    return made


@pytest.fixture
def correction_file(tmp_path: Path) -> Path:
    path = tmp_path / "V10.csv"
    path.write_text(CORRECTION)
    return path


def map_of(*source: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # metadata
        return sunpy.map.Map(*source)


def by_aiapy(pixels: Any, header: fits.Header, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # HMI has no LVL_NUM
        return register(map_of(pixels, changed(header, BLANK=None)), **settings)


def image(path: Path) -> tuple[NDArray[Any], fits.Header]:
    """Return the image, after all of the file was found to be sound."""
    stored = fits.getheader(path, -1, disable_image_compression=True)
    assert {"CHECKSUM", "DATASUM"} <= set(stored)
    with fits.open(path, checksum=True, memmap=False) as hdus:  # warns of wrong checksums
        hdus.verify("exception")
        hdu = hdus[-1]
        return hdu.data, hdu.header


def history(header: fits.Header) -> str:
    return " ".join(header["HISTORY"])


def overlaid(ours: Any, theirs: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the pixels of two maps at the same places, which their coordinates tell."""
    rows, columns = theirs.data.shape
    y, x = np.mgrid[0 : rows - 1 : 5j, 0 : columns - 1 : 5j]
    there = ours.world_to_pixel(theirs.pixel_to_world(x * u.pix, y * u.pix))
    dx, dy = (np.array(axis) - own for axis, own in zip(there, (x, y), strict=True))
    left, top = round(dx.mean()), round(dy.mean())
    arcsec = 0.01 / ours.scale[0].to_value(u.arcsec / u.pix)
    np.testing.assert_allclose(dx, left, rtol=0, atol=arcsec)
    np.testing.assert_allclose(dy, top, rtol=0, atol=arcsec)
    at = ours.data[max(top, 0) : top + rows, max(left, 0) : left + columns]
    at_theirs = theirs.data[max(-top, 0) :, max(-left, 0) :][: at.shape[0], : at.shape[1]]
    return at, at_theirs


def disk(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return what is on the disk, and a little beyond: at the frame's border splines differ.

    There aiapy pads the frame with its least pixel before it resamples.
    """
    y, x = np.mgrid[: shape[0], : shape[1]] - np.array(shape)[:, None, None] / 2
    return np.hypot(x, y) < 54


class TestAsAiapy:
    @pytest.mark.parametrize(
        ("angle", "order"), [(0.02, 3), (17.3, 1), (17.3, 3), (180.0, 1), (180.0, 3)]
    )
    def test_floats(self, made: Any, angle: float, order: int) -> None:
        header = changed(HEADER, CROTA2=angle)
        ours = map_of(made(PIXELS, header, order=order))
        assert (ours.data.shape, ours.data.dtype) == ((128, 128), np.dtype(">f4"))
        found, expected = overlaid(ours, by_aiapy(PIXELS, header, order=order))
        inner = disk(found.shape)
        np.testing.assert_allclose(found[inner], expected[inner], rtol=1e-5, atol=1e-3)

    def test_integers_are_rounded_as_there(self, made: Any) -> None:
        ours = map_of(made(COUNTS, TURNED))
        assert ours.data.dtype == np.int16
        theirs = by_aiapy(COUNTS, TURNED)
        assert theirs.data.dtype == np.int16
        found, expected = overlaid(ours, theirs)
        _, exact = overlaid(ours, by_aiapy(COUNTS.astype(np.float64), TURNED))
        inner = disk(found.shape)
        tie = np.abs(exact - np.floor(exact) - 0.5)[inner] < 1e-3
        assert tie.mean() < 0.01
        np.testing.assert_array_equal(found[inner][~tie], expected[inner][~tie])

    def test_halves_are_rounded_away_from_0(self, made: Any) -> None:
        """By the order 1, and half a pixel; SciPy's conversion is what aiapy has."""
        pixels = np.random.default_rng(0).integers(-20, 20, (128, 128)).astype(np.int16)
        words = {"CROTA2": 0.0, "CDELT1": 19.2, "CDELT2": 19.2, "CRPIX1": 65.0, "CRPIX2": 64.5}
        found, _ = image(made(pixels, changed(HEADER, **words), order=1))
        expected = ndimage.shift(pixels, (0, -0.5), order=1)
        np.testing.assert_array_equal(found[:, :-1], expected[:, :-1])
        assert np.unique(pixels[:, 1:] + pixels[:, :-1] & 1).size == 2  # some are halves

    def test_beyond_the_frame_is_its_least_pixel(self, made: Any) -> None:
        found, _ = image(made(COUNTS + np.int16(3), TURNED))
        theirs = by_aiapy(COUNTS + np.int16(3), TURNED)
        assert {found[0, 0], found[-1, -1]} == {COUNTS.min() + 3} == {theirs.data[0, 0]}

    def test_the_limb_is_where_it_should_be(self, made: Any) -> None:
        ours, theirs = map_of(made(PIXELS, TURNED)), by_aiapy(PIXELS, TURNED)
        angles = np.linspace(0, 2 * np.pi, 24)
        rsun = theirs.rsun_obs.to_value(u.arcsec) * np.append(np.ones(24), 0)
        places = [rsun * np.append(axis, 0) for axis in (np.cos(angles), np.sin(angles))]
        points = SkyCoord(*places, unit="arcsec", frame=theirs.coordinate_frame)
        x, y = theirs.world_to_pixel(points)
        there = ours.pixel_to_world(*(axis for axis in self._aligned(ours, theirs, x, y)))
        assert there.separation(points).to_value(u.arcsec).max() < 0.01

    @staticmethod
    def _aligned(ours: Any, theirs: Any, x: Any, y: Any) -> Any:
        """Count pixels of aiapy's image as those of ours, which has the same middle."""
        (rows, columns), (height, width) = theirs.data.shape, ours.data.shape
        return x + (width - columns) / 2 * u.pix, y + (height - rows) / 2 * u.pix

    def test_degradation_and_exposure(self, made: Any, correction_file: Path) -> None:
        table = CorrectionTable.read(correction_file)
        path = made(COUNTS, HEADER, correction_table=table, exposure=True)
        ours = map_of(path)
        assert ours.unit == u.DN / u.s
        level15 = by_aiapy(COUNTS.astype(np.float64), HEADER)
        level15 = correct_degradation(
            level15, correction_table=get_correction_table(correction_file)
        )
        found, expected = overlaid(ours, level15 / level15.exposure_time)
        inner = disk(found.shape)
        np.testing.assert_allclose(found[inner], expected[inner], 1e-5, 1e-3)
        text = history(image(path)[1])
        factor = table.degradation(171, HEADER["DATE-OBS"])
        assert f"degradation: divided by {factor:.9g}, table V10.csv, VER_NUM 10, sha256" in text
        assert hashlib.sha256(correction_file.read_bytes()).hexdigest() in text
        assert f"divided by EXPTIME, {HEADER['EXPTIME']:g} s" in text

    @pytest.mark.slow
    def test_a_whole_frame_with_a_pointing_table(self, made: Any, tmp_path: Path) -> None:
        table = pointing_table()
        save_pointing(table, tmp_path / "pointing.csv")
        pixels = np.random.default_rng(0).poisson(300, (4096, 4096)).astype(np.int16)
        header = pointed(full_header())
        path = made(
            pixels,
            header,
            {"compression_type": "RICE_1"},
            order=1,
            pointing_table=PointingTable.read(tmp_path / "pointing.csv"),
        )
        ours = map_of(path)
        assert ours.data.shape == (4096, 4096)
        level1 = update_pointing(map_of(pixels, changed(header, BLANK=None)), pointing_table=table)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = register(level1, order=1)
        found, expected = overlaid(ours, theirs)
        inner = slice(14, -14)
        difference = found[inner, inner].astype(int) - expected[inner, inner]
        assert np.abs(difference).max() <= 1
        assert np.mean(difference != 0) < 1e-3  # ties
        header = image(path)[1]
        assert header["X0_MP"] == pytest.approx(theirs.meta["x0_mp"], rel=1e-12)
        sha256 = hashlib.sha256((tmp_path / "pointing.csv").read_bytes()).hexdigest()
        assert f"pointing: table pointing.csv, sha256 {sha256}" in history(header)


class TestHeader:
    def test_words(self, made: Any) -> None:
        _, header = image(made(COUNTS, TURNED))
        _, plain = image(made(COUNTS, TURNED, compress="none"))
        for found in header, plain:
            assert (found["LVL_NUM"], found["CROTA2"]) == (1.5, 0)
            assert (found["CDELT1"], found["CRPIX1"]) == (pytest.approx(19.2), 64.5)
            assert found["R_SUN"] == pytest.approx(HEADER["RSUN_OBS"] / 19.2)
            assert (found["BITPIX"], found["NAXIS1"], found["NAXIS2"]) == (16, 128, 128)
        new = {"LVL_NUM", "CROTA2", "R_SUN", "XCEN", "YCEN", "DATAMIN", "DATAMAX", "BITPIX"}
        changing = {*new, "CRPIX1", "CRPIX2", "CDELT1", "CDELT2", "CUNIT1", "CUNIT2", "HISTORY"}
        kept = {*HEADER} - {*changing, "CHECKSUM", "DATASUM", "BLANK", "SIMPLE", "EXTEND", ""}
        kept -= {"COMMENT", "BSCALE", "BZERO"}
        assert len(kept) > 100
        assert {key: header[key] for key in kept} == {key: HEADER[key] for key in kept}

    def test_history(self, made: Any) -> None:
        text = history(image(made(COUNTS, HEADER))[1])
        assert "prep, of level1.fits pointing: of the level 1 header" in text
        assert "spline of order 3, 128x128 pixels of 19.2 arcsec" in text
        assert "pixels: rounded to int16" in text
        assert not {"degradation", "exposure", "deconvolved"} & {*text.replace(":", "").split()}

    def test_limits(self, made: Any) -> None:
        pixels, header = image(made(COUNTS, changed(TURNED, DATAMIN=-9, DATAMAX=9)))
        assert (header["DATAMIN"], header["DATAMAX"]) == (pixels.min(), pixels.max())
        assert isinstance(header["DATAMIN"], int)

    def test_words_that_break_the_standard_are_mended(self, tmp_path: Path) -> None:
        level1, level15 = tmp_path / "level1.fits", tmp_path / "level15.fits"
        save(level1, COUNTS, changed(HEADER, OSCNMEAN=0.5))
        level1.write_bytes(level1.read_bytes().replace(b"0.5 ", b"nan ", 1))
        assert b"OSCNMEAN=                  nan " in level1.read_bytes()
        Level15().write(Row(0, str(level1)), str(level15))
        assert image(level15)[1]["OSCNMEAN"] == "nan"

    @given(
        places=st.lists(st.integers(0, 160 * 80 - 1), min_size=1, max_size=6),
        values=st.lists(st.integers(0, 255), min_size=6, max_size=6),
        rice=st.booleans(),
    )
    def test_damaged_headers(
        self, tmp_path: Path, places: list[int], values: list[int], rice: bool
    ) -> None:
        """Each is refused with a ReadError, or gives a sound file."""
        level1, level15 = tmp_path / "level1.fits", tmp_path / "level15.fits"
        save(level1, COUNTS, HEADER, **({"compression_type": "RICE_1"} if rice else {}))
        content = bytearray(level1.read_bytes())
        for place, value in zip(places, values, strict=False):
            content[(2880 if rice else 0) + place] = value
        level1.write_bytes(content)
        try:
            Level15().write(Row(0, str(level1)), str(level15))
        except ReadError:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd words stay odd
            warnings.filterwarnings("error", message=r".*[Cc]hecksum")
            with fits.open(level15, checksum=True) as hdus:
                assert hdus[-1].data.shape == (128, 128)

    def test_odd_names(self, correction_file: Path, tmp_path: Path) -> None:
        table = CorrectionTable.read(correction_file.rename(tmp_path / "Größe.csv"))
        row = Row(0, str(save(tmp_path / "Sonne größer\n.fits", COUNTS, HEADER)))
        Level15(correction_table=table).write(row, str(tmp_path / "out.fits"))
        text = history(image(tmp_path / "out.fits")[1])
        assert "of Sonne gr??er?.fits pointing" in text
        assert "table Gr??e.csv," in text


class TestStored:
    @pytest.mark.parametrize(
        ("pixels", "header", "settings", "expected"),
        [
            (COUNTS, HEADER, {}, ("i2", "RICE_1")),
            (COUNTS.astype(np.int32), HEADER, {}, ("i2", "RICE_1")),
            (COUNTS, HEADER, {"exposure": True}, ("f4", None)),
            (PIXELS, HEADER, {}, ("f4", None)),
            (PIXELS, HEADER, {"dtype": "int16"}, ("i2", "RICE_1")),
            (COUNTS, HEADER, {"compress": "none"}, ("i2", None)),
            (COUNTS, HEADER, {"dtype": "float32", "compress": "rice"}, ("f4", "RICE_1")),
        ],
    )
    def test_type_and_codec(
        self, made: Any, pixels: Any, header: Any, settings: Any, expected: Any
    ) -> None:
        path = made(pixels, header, **settings)
        with fits.open(path) as hdus:
            codec = getattr(hdus[-1], "compression_type", None)
            assert (hdus[-1].data.dtype.str[1:], codec) == expected

    def test_codecs_hold_the_same(self, made: Any) -> None:
        rice, plain = (image(made(COUNTS, TURNED, compress=how))[0] for how in ("rice", "none"))
        np.testing.assert_array_equal(rice, plain)

    def test_quantised_only_on_demand_and_told(self, made: Any) -> None:
        exact, header = image(made(PIXELS, TURNED))
        assert "quantised" not in history(header)
        rice, header = image(made(PIXELS, TURNED, compress="rice", quantize_level=4))
        assert "quantised to 1/4 of the noise of each tile" in history(header)
        assert 0 < np.abs(rice - exact).max() < 0.05 * exact.std()

    @pytest.mark.parametrize("dtype", ["int16", "float32"])
    def test_missing_pixels_stay_missing(self, made: Any, dtype: Any) -> None:
        pixels = COUNTS.copy()
        pixels[40:43, 60:64] = -32768
        header = changed(HEADER, BLANK=-32768)
        path = made(pixels, header, {"compression_type": "RICE_1"}, dtype=dtype)
        found, header = image(path)
        whole, _ = image(made(COUNTS, HEADER, dtype="float32"))
        missing = np.isnan(found)
        assert np.abs(int(missing.sum()) - 12) <= 4
        assert header.get("BLANK") == (-32768 if dtype == "int16" else None)
        near = ndimage.binary_dilation(missing, iterations=8)
        np.testing.assert_allclose(found[~near], whole[~near], rtol=1e-3, atol=0.51)
        assert np.isfinite(found[~missing]).all()

    def test_all_are_missing(self, made: Any) -> None:
        pixels, header = np.full_like(COUNTS, -5), changed(HEADER, BLANK=-5, DATAMIN=1, DATAMAX=2)
        found, header = image(made(pixels, header))
        assert np.isnan(found).all()
        assert header["DATAMIN"] == 1

    @pytest.mark.parametrize("value", [40000, -32768, math.inf])
    def test_beyond_int16(self, made: Any, value: float) -> None:
        pixels = PIXELS.copy()
        pixels[60:70, 60:70] = value
        with pytest.raises(ReadError, match=r"int16.*float32"):
            made(pixels, HEADER, dtype="int16")

    def test_hmi(self, made: Any, correction_file: Path) -> None:
        """Scaled integers, half of them missing; nothing of AIA's is done to them."""
        header = changed(
            hmi_header(), CRPIX1=64.9, CRPIX2=64.2, CDELT1=18.2, CDELT2=18.2, BUNIT="Gauss"
        )
        values = np.random.default_rng(0).normal(0, 30, (128, 128))
        values[:30] = np.nan
        correction = CorrectionTable.read(correction_file)
        path = made(values, header, exposure=True, correction_table=correction)
        found, written = image(path)
        assert (found.dtype, written["BUNIT"]) == (np.dtype(">f4"), "Gauss")
        assert np.isnan(found[100:, 20:100]).all()  # CROTA2 is 180
        assert "divided" not in history(written)
        expected = by_aiapy(np.nan_to_num(values), header)
        ours = overlaid(map_of(path), expected)
        np.testing.assert_allclose(ours[0][20:80, 20:100], ours[1][20:80, 20:100], atol=1e-3)


class TestGrid:
    @pytest.mark.parametrize(
        ("settings", "shape", "scale"),
        [
            ({}, 128, 19.2),
            ({"scale": 38.4}, 64, 38.4),
            ({"size": 64}, 64, 38.4),
            ({"size": 100, "scale": 20.0}, 100, 20.0),
        ],
    )
    def test_size_and_scale(self, made: Any, settings: Any, shape: int, scale: float) -> None:
        pixels, header = image(made(PIXELS, HEADER, **settings))
        assert pixels.shape == (shape, shape)
        assert (header["CDELT1"], header["CRPIX1"]) == (pytest.approx(scale), (shape + 1) / 2)

    def test_reduced_by_area(self, made: Any) -> None:
        whole, half = (image(made(PIXELS, HEADER, size=size))[0] for size in (128, 64))
        means = whole.reshape(64, 2, 64, 2).mean(axis=(1, 3))
        np.testing.assert_allclose(half, means, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 0},
        {"scale": 0.0},
        {"scale": math.nan},
        {"order": 2},
        {"dtype": "int32"},
        {"compress": "gzip"},
        {"quantize_level": -1.0},
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=rf"{name}.*got {value!r}"):
        Level15(**settings)
