"""Positions on the sky are found on images where astropy alone finds them, without a search."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy import units as u
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.table import Table
from astropy.wcs import WCS
from hypothesis import given
from hypothesis import strategies as st

from readers import Index
from readers.index.catalogue.headers import ImageFacts, image_facts
from readers.index.catalogue.sky import Sky

SHAPE = 90, 120


def tan(ra: float, dec: float, turn: float = 0.0, pixel: float = 0.01, **cards: Any) -> fits.Header:
    """Return the header of an image in a tangent plane, rotated by `turn` degrees."""
    cos, sin = np.cos(np.radians(turn)), np.sin(np.radians(turn))
    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["RA---TAN", "DEC--TAN"]
    wcs.wcs.crval, wcs.wcs.crpix = [ra, dec], [50.5, 30.5]
    wcs.wcs.cd = pixel * np.array([[-cos, sin], [sin, cos]])
    header = wcs.to_header()
    header.update(cards)
    return header


def with_sip(header: fits.Header) -> fits.Header:
    for axis, name in ((1, "RA---TAN-SIP"), (2, "DEC--TAN-SIP")):
        header[f"CTYPE{axis}"] = name
    header.update(A_ORDER=2, B_ORDER=2, A_2_0=3e-5, A_1_1=-2e-5, B_0_2=4e-5, B_2_0=-1e-5)
    return header


def on_image(wcs: WCS, ra: Any, dec: Any) -> tuple[list[int], np.ndarray]:
    found = Sky(np.asarray(ra), np.asarray(dec)).on_image(ImageFacts(*SHAPE, wcs), (0, 0), None)
    inside = ((found[1] >= -0.5) & (found[1] <= np.array(SHAPE) - 0.5)).all(axis=1)
    return found[0][inside].tolist(), found[1][inside]


@given(
    st.floats(0, 360),
    st.floats(-90, 90),
    st.floats(0, 360),
    st.sampled_from([1e-5, 1e-3, 0.1]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_no_position_on_an_image_is_missed(
    ra: float, dec: float, turn: float, pixel: float, sip: bool, random: Any
) -> None:
    """At poles, at RA 0, for rotated and distorted images; others are nowhere near the image."""
    header = tan(ra, dec, turn, pixel)
    wcs = WCS(with_sip(header) if sip else header)
    rng = np.random.default_rng(random.getrandbits(32))
    y, x = (rng.uniform(-0.4, side - 0.6, 40) for side in SHAPE)
    world = np.array(wcs.all_pix2world(x, y, 0))
    elsewhere = rng.uniform(0, 360, 50), np.degrees(np.arcsin(rng.uniform(-1, 1, 50)))
    turns = rng.choice([0, 360, -360, 720], 90)  # of right ascension
    ra_all, dec_all = np.concatenate([world, elsewhere], axis=1) + np.stack([turns, 0 * turns])
    rows, pixels = on_image(wcs, ra_all, np.clip(dec_all, -90, 90))
    assert rows[:40] == list(range(40))
    np.testing.assert_allclose(pixels[:40], np.stack([y, x], -1), atol=2e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vectors = SkyCoord(ra_all * u.deg, dec_all * u.deg)
        centre = SkyCoord(*wcs.all_pix2world(60, 45, 0), unit="deg")
        assert (vectors[rows].separation(centre).deg < 90).all()


@pytest.mark.parametrize("projection", ["CAR", "AIT", "MOL", "HPX"])
def test_images_of_the_whole_sky(projection: str) -> None:
    wcs = WCS(naxis=2)
    wcs.wcs.ctype = [f"RA---{projection}", f"DEC--{projection}"]
    wcs.wcs.crval, wcs.wcs.crpix, wcs.wcs.cdelt = [180, 0], [60.5, 45.5], [-3, 2]
    rng = np.random.default_rng(0)
    ra, dec = rng.uniform(1, 359, 500), np.degrees(np.arcsin(rng.uniform(-0.99, 0.99, 500)))
    x, y = wcs.all_world2pix(ra, dec, 0)
    inside = (np.abs(x - 59.5) < 60) & (np.abs(y - 44.5) < 45)
    rows, pixels = on_image(wcs, ra, dec)
    assert rows == np.flatnonzero(inside).tolist()
    assert len(rows) > 300
    np.testing.assert_allclose(pixels, np.stack([y, x], -1)[inside])


@pytest.mark.parametrize(
    ("frame", "cards"),
    [
        ("fk5", {"RADESYS": "FK5", "EQUINOX": 1975.0}),
        ("fk5", {"RADESYS": "FK5", "EQUINOX": 2000.0}),
        ("fk4", {"RADESYS": "FK4", "EQUINOX": 1950.0}),
        ("galactic", {"CTYPE1": "GLON-TAN", "CTYPE2": "GLAT-TAN"}),
        ("icrs", {"CTYPE1": "DEC--TAN", "CTYPE2": "RA---TAN", "CRVAL1": 20.0, "CRVAL2": 120.0}),
    ],
)
def test_frames(frame: str, cards: dict[str, Any]) -> None:
    """A catalogue is in ICRS; images need not be, and may have declination first."""
    wcs = WCS(tan(120, 20, 30, **cards))
    rng = np.random.default_rng(1)
    sky = (
        SkyCoord(120 * u.deg, 20 * u.deg, frame=frame)
        if frame != "fk5"
        else SkyCoord(120 * u.deg, 20 * u.deg, frame="fk5", equinox=f"J{cards['EQUINOX']}")
    )
    near = sky.directional_offset_by(
        rng.uniform(0, 360, 50) * u.deg, rng.uniform(0, 0.2, 50) * u.deg
    )
    icrs = near.icrs
    rows, pixels = on_image(wcs, icrs.ra.deg, icrs.dec.deg)
    x, y = wcs.world_to_pixel(icrs)
    assert rows == list(range(50))
    np.testing.assert_allclose(pixels, np.stack([y, x], -1), atol=1e-6)


def test_distant_points_of_a_distorted_image_are_not_on_it() -> None:
    """Where SIP has no inverse the iteration ends anywhere, also on the image."""
    header = with_sip(tan(10, 10))
    header.update(A_2_0=3e-3, B_0_2=-4e-3)
    wcs = WCS(header)
    grid = np.stack(np.meshgrid(np.linspace(8, 12, 60), np.linspace(8, 12, 60)), -1).reshape(-1, 2)
    rows, pixels = on_image(wcs, *grid.T)
    back = np.stack(wcs.all_pix2world(pixels[:, 1], pixels[:, 0], 0), -1)
    assert len(rows) > 20
    np.testing.assert_allclose(back, grid[rows], atol=2e-3)


def write(path: Path, header: fits.Header, *, compressed: bool = False) -> str:
    pixels = np.zeros(SHAPE, np.int16)
    hdu = fits.CompImageHDU(pixels, header) if compressed else fits.PrimaryHDU(pixels, header)
    hdu.writeto(path)
    return str(path)


def sky_of(path: str) -> np.ndarray:
    (facts,) = image_facts([(path, -1)], with_wcs=True)
    assert isinstance(facts, ImageFacts), facts
    assert (facts.height, facts.width) == SHAPE
    assert facts.wcs is not None
    return np.array(facts.wcs.all_pix2world(*np.mgrid[:90:7, :120:7].reshape(2, -1), 0))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["tan", "sip", "tpv", "lookup"])
def test_sky_coordinates_are_those_of_astropy(tmp_path: Path, kind: str, compressed: bool) -> None:
    header = tan(359.9, -45, 12)
    header.update({"EXPTIME": 3.0, "FILTER": "r", "COMMENT": "CRVAL1 = 7"})
    if kind == "sip":
        header = with_sip(header)
    if kind == "tpv":
        header.update({"CTYPE1": "RA---TPV", "CTYPE2": "DEC--TPV", "PV1_1": 1.01, "PV2_4": 0.02})
    path = write(tmp_path / "image.fits", header, compressed=compressed)
    if kind == "lookup":
        add_lookup(path, -1 if compressed else 0)
    number = 1 if compressed else 0
    with fits.open(path) as hdus:
        wcs = WCS(hdus[number].header, hdus)
        expected = np.array(wcs.all_pix2world(*np.mgrid[:90:7, :120:7].reshape(2, -1), 0))
        plain = np.array(wcs.wcs_pix2world(*np.mgrid[:90:7, :120:7].reshape(2, -1), 0))
    np.testing.assert_array_equal(sky_of(path), expected)
    assert (np.abs(plain - expected).max() > 1e-4) == (kind in ("sip", "lookup"))


def add_lookup(path: str, number: int) -> None:
    """Add a distortion in HDUs of its own, as the ACS of HST has them."""
    with fits.open(path, "append") as hdus:
        table = fits.ImageHDU(np.full((3, 4), 0.7, np.float32), name="WCSDVARR")
        table.header.update(
            CRPIX1=1.0, CRPIX2=1.0, CRVAL1=1.0, CRVAL2=1.0, CDELT1=40.0, CDELT2=40.0
        )
        hdus.append(table)
    with fits.open(path, "update", disable_image_compression=True) as hdus:
        header = hdus[number if number == 0 else 1].header
        for axis in (1, 2):
            header[f"CPDIS{axis}"] = "LOOKUP"
            for field, value in (("EXTVER", 1.0), ("NAXES", 2.0), ("AXIS.1", 1.0), ("AXIS.2", 2.0)):
                header.append(fits.Card(f"DP{axis}", f"{field}: {value}"))


def test_axes_of_cubes(tmp_path: Path) -> None:
    """Frequency comes third; before the sky's axes it is an error."""
    header = tan(100, 10)
    header.update(WCSAXES=3, CTYPE3="FREQ", CRVAL3=1e9, CRPIX3=1.0, CDELT3=1e6, CUNIT3="Hz")
    path = tmp_path / "cube.fits"
    fits.writeto(path, np.zeros((2, *SHAPE), np.int16), header)
    index = Index.from_paths([path]).each_plane([1, 0])
    made = Index.cutouts(index, Table({"ra": [100.0, 100.1], "dec": [10.0, 10.1]}), 8)
    assert made.table["plane"].to_pylist() == [1, 1, 0, 0]
    assert made.table["catalogue_row"].to_pylist() == [0, 1, 0, 1]
    assert made.table["x"].to_pylist()[0] == 46
    for key in ("CTYPE", "CRVAL", "CRPIX", "CDELT", "CUNIT"):
        first, third = header.get(f"{key}1"), header.get(f"{key}3")
        header[f"{key}1"], header[f"{key}3"] = third, first
    fits.writeto(path, np.zeros((2, *SHAPE), np.int16), header, overwrite=True)
    (why,) = image_facts([(str(path), -1)], with_wcs=True)
    assert "first two axes" in str(why)


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ({"CRVAL1": "abc"}, "CRVAL1.*'abc'.*number"),
        ({"CTYPE1": "RA---XXX"}, "XXX in CTYPE1"),
        ({"CD1_1": 0.0, "CD2_1": 0.01}, "singular"),
        ({"A_ORDER": 2}, "A_ORDER.*B_ORDER"),
        ({"CTYPE1": "LINEAR", "CTYPE2": "LINEAR"}, "CTYPE is LINEAR, LINEAR"),
    ],
)
def test_headers_that_astropy_rejects(tmp_path: Path, cards: dict[str, Any], words: str) -> None:
    header = tan(10, 10)
    for key in ("CDELT1", "CDELT2", "PC1_1", "PC1_2", "PC2_1", "PC2_2"):
        header.remove(key, ignore_missing=True)
    header.update({"CD1_1": 0.01, "CD2_2": 0.01} | cards)
    (why,) = image_facts([(write(tmp_path / "a.fits", header), -1)], with_wcs=True)
    assert isinstance(why, str)
    assert re.search(words, why)
    assert "\n" not in why
    (facts,) = image_facts([(str(tmp_path / "a.fits"), -1)], with_wcs=False)
    assert facts == ImageFacts(*SHAPE, None)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_sky_coordinates_only_in_the_primary_header_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.fits{suffix}"
    image = fits.ImageHDU(np.zeros(SHAPE, np.int16))
    fits.HDUList([fits.PrimaryHDU(header=tan(10, 10)), image]).writeto(path)
    with pytest.raises(ValueError, match=r"a.fits.*HDU 0"):
        Index.cutouts([path], Table({"ra": [10.0], "dec": [10.0]}), 8)
    fits.HDUList([fits.PrimaryHDU(), image]).writeto(path, overwrite=True)
    with pytest.raises(ValueError, match="CTYPE"):
        Index.cutouts([path], Table({"ra": [10.0], "dec": [10.0]}), 8)


@pytest.mark.parametrize("axes", [("HPLN-TAN", "HPLT-TAN"), ("TLON-TAN", "TLAT-TAN")])
def test_planets_have_no_right_ascension(axes: tuple[str, str]) -> None:
    header = tan(10, 10, CTYPE1=axes[0], CTYPE2=axes[1])
    with pytest.raises(ValueError, match=f"{axes[0]} and {axes[1]}.*frame"):
        on_image(WCS(header), [10.0], [10.0])


def test_real_images(shared_data: Path) -> None:
    """DECam has TPV; a compressed image has the sky of the plain one."""
    for name, number in (("decam_dither1.fits.fz", 1), ("m13.fits", 0), ("m13_rice.fits", 1)):
        path = str(shared_data / "fits" / name)
        (facts,) = image_facts([(path, -1)], with_wcs=True)
        assert isinstance(facts, ImageFacts)
        assert facts.wcs is not None
        with fits.open(path) as hdus:
            expected = WCS(hdus[number].header).all_pix2world([0, 200], [0, 100], 0)
            assert (facts.height, facts.width) == hdus[number].shape
        np.testing.assert_array_equal(facts.wcs.all_pix2world([0, 200], [0, 100], 0), expected)
