from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sunpy.map
from aiapy.calibrate import register
from astropy.io import fits
from astropy.wcs import WCS
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage
from solar_files import changed, frame, full_header, hmi_header

from readers import Window
from readers.aia.registration import frame_scale, level15_header, register_matrix

SHAPE = (4096, 4096)
GRID = np.stack(np.meshgrid(np.linspace(0, 4095, 9), np.linspace(0, 4095, 7))).reshape(2, -1)
OFF_CENTRE = {"CRPIX1": 2056.06, "CRPIX2": 2043.72}


def mapped(matrix: NDArray[Any], pixels: NDArray[Any]) -> NDArray[Any]:
    return matrix[:, :2] @ pixels + matrix[:, 2:]


def by_wcs(header: fits.Header, target: fits.Header, pixels: NDArray[Any] = GRID) -> NDArray[Any]:
    """Return the pixels of the file that have the world coordinates of pixels of the output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dates, mostly
        to_world, to_pixel = WCS(target, naxis=2), WCS(header, naxis=2)
    return np.array(to_pixel.all_world2pix(*to_world.all_pix2world(*pixels, 0), 0))


def pc(angle: float, skew: float = 0.0) -> dict[str, Any]:
    cos, sin = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    return {"CROTA2": None, "PC1_1": cos, "PC1_2": -sin + skew, "PC2_1": sin, "PC2_2": cos}


def cd(angle: float, scale: float) -> dict[str, Any]:
    matrix = {key.replace("PC", "CD"): value for key, value in pc(angle).items() if value}
    return {"CROTA2": None, **{key: scale * value for key, value in matrix.items()}}


HEADERS = {
    "0.02": full_header(),
    "17.3": full_header(CROTA2=17.3, **OFF_CENTRE),
    "-90": full_header(CROTA2=-90.0, **OFF_CENTRE),
    "180": full_header(CROTA2=180.0, **OFF_CENTRE),
    "crval": full_header(CROTA2=17.3, CRVAL1=-4.53, CRVAL2=2.87),
    "pc": full_header(**pc(17.3), **OFF_CENTRE),
    "pc wins": changed(full_header(CROTA2=3.0), PC1_1=0.0, PC1_2=-1.0, PC2_1=1.0, PC2_2=0.0),
    "pc in part": full_header(CROTA2=None, PC1_2=0.01),
    "skew": full_header(**pc(17.3, skew=0.01)),
    "cd": full_header(**cd(17.3, 0.599489), CDELT1=None, CDELT2=None),
    "degrees": full_header(
        **OFF_CENTRE, CDELT1=0.6 / 3600, CDELT2=0.6 / 3600, CUNIT1="deg", CUNIT2="deg"
    ),
    "oblong": full_header(CROTA2=17.3, CDELT1=0.61, CDELT2=0.59),
    "mirrored": full_header(CROTA2=17.3, CDELT1=-0.6),
    "hmi": hmi_header(),
}


@pytest.mark.parametrize("name", HEADERS)
def test_pixels_have_the_same_world_coordinates(name: str) -> None:
    header = HEADERS[name]
    target = level15_header(header)
    np.testing.assert_allclose(
        mapped(register_matrix(header), GRID), by_wcs(header, target), rtol=0, atol=2e-8
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("0.02", {"shape": (1000, 3000)}),
        ("17.3", {"scale": 2.4, "shape": (1024, 1024)}),
        ("17.3", {"radius": 1600.0}),
        ("hmi", {"shape": (1000, 3000), "radius": 1600.0}),
    ],
)
def test_other_grids(name: str, settings: dict[str, Any]) -> None:
    header = HEADERS[name]
    found = mapped(register_matrix(header, **settings), GRID)
    target = level15_header(header, **settings)
    np.testing.assert_allclose(found, by_wcs(header, target), rtol=0, atol=5e-8)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, 0.6),
        ({"CDELT1": 1.1, "CDELT2": 1.1}, 0.6),  # of 4096x4096 pixels
        ({"NAXIS1": 1024, "NAXIS2": 1024, "CDELT1": 2.42, "CDELT2": 2.42}, 2.4),
        ({"NAXIS1": 128, "NAXIS2": 128, "CDELT1": 19.183648, "CDELT2": 19.183648}, 19.2),
        ({"NAXIS1": 8192, "NAXIS2": 8192, "CDELT1": 0.25, "CDELT2": 0.25}, 0.6),
    ],
    ids=str,
)
def test_the_scale_that_aiapy_takes(words: dict[str, Any], expected: float) -> None:
    assert frame_scale(full_header(**words)) == pytest.approx(expected, rel=1e-12)


class TestCentre:
    header = full_header(CROTA2=17.3, CRVAL1=-4.53, CRVAL2=2.87, **OFF_CENTRE)
    middle = np.array([[2047.5], [2047.5]])

    def test_the_reference_pixel(self) -> None:
        found = mapped(register_matrix(self.header), self.middle)
        np.testing.assert_allclose(found[:, 0], [2055.06, 2042.72], atol=1e-9)

    def test_the_sun(self) -> None:
        found = mapped(register_matrix(self.header, center="sun"), self.middle)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = WCS(self.header, naxis=2).all_world2pix(0, 0, 0)
        np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)

    def test_the_sun_all_over_the_image(self) -> None:
        """TAN is about another point then, which is 2e-4 pixels at the edge."""
        found = mapped(register_matrix(self.header, center="sun"), GRID)
        target = level15_header(self.header, center="sun")
        assert (target["CRVAL1"], target["CRVAL2"]) == (0, 0)
        np.testing.assert_allclose(found, by_wcs(self.header, target), rtol=0, atol=1e-3)

    def test_of_level_1_both_are_the_same(self) -> None:
        header = full_header()
        np.testing.assert_array_equal(
            register_matrix(header), register_matrix(header, center="sun")
        )

    @pytest.mark.parametrize("make", [register_matrix, level15_header])
    def test_another_word(self, make: Callable[..., Any]) -> None:
        with pytest.raises(ValueError, match=r"center.*'disk'"):
            make(self.header, center="disk")


def test_radius() -> None:
    header = full_header()
    matrix = register_matrix(header, radius=1626.0)
    target = level15_header(header, radius=1626.0)
    assert target["R_SUN"] == pytest.approx(1626)
    assert header["RSUN_OBS"] / target["CDELT1"] == pytest.approx(1626)
    limb = mapped(matrix, np.array([[2047.5, 2047.5], [2047.5, 2047.5 + 1626]]))
    pixels = np.hypot(*(limb[:, 1] - limb[:, 0]))
    assert pixels * header["CDELT1"] == pytest.approx(header["RSUN_OBS"])


# ---- Against aiapy's pixels ----------------------------------------------------------------------


def small(header: fits.Header) -> fits.Header:
    """Return the header of a frame that is 32 times smaller."""
    words = {f"CRPIX{n}": (header[f"CRPIX{n}"] - 0.5) / 32 + 0.5 for n in (1, 2)}
    words |= {f"CDELT{n}": header[f"CDELT{n}"] * 32 for n in (1, 2)}
    return changed(header, NAXIS1=128, NAXIS2=128, **words)


AS_AIAPY = {
    "as it is": (frame()[1], 19.2),
    "0.02": (small(HEADERS["0.02"]), 19.2),
    "17.3": (small(HEADERS["17.3"]), 19.2),
    "180": (small(HEADERS["180"]), 19.2),
    "crval": (small(HEADERS["crval"]), 19.2),
    "pc": (small(HEADERS["pc"]), 19.2),
    "hmi": (small(HEADERS["hmi"]), 16.2),
}


@pytest.mark.parametrize("name", AS_AIAPY)
def test_pixels_are_those_of_aiapy(name: str) -> None:
    """SciPy resamples with our matrix as sunpy does: it is where and which way up that counts."""
    header, scale = AS_AIAPY[name]
    pixels = np.rint(frame()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # HMI has no level; dates
        expected = register(sunpy.map.Map(pixels, header), order=3, missing=0.0)
    size = expected.data.shape[0]
    assert abs(size - 128) <= 2
    matrix = register_matrix(header, shape=(size, size), scale=scale)
    found = ndimage.affine_transform(
        pixels, matrix[::-1, 1::-1], matrix[::-1, 2], (size, size), order=3
    )
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    inside = np.hypot(x, y) < 1.1 * 972 / scale
    # aiapy clips to the range of the input, over which splines shoot. Where it turns, it pads with
    # zeros before the prefilter, which is seen to 2e-4 DN that far in.
    found = np.clip(found, pixels.min(), pixels.max())
    np.testing.assert_allclose(found[inside], expected.data[inside], rtol=0, atol=1e-3)

    ours = level15_header(header, shape=(size, size), scale=scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places = WCS(ours, naxis=2).all_pix2world(x, y, 0)
        theirs = expected.wcs.all_pix2world(x, y, 0)
    np.testing.assert_allclose(places, theirs, rtol=0, atol=0.001 / 3600)
    for key in ("LVL_NUM", "R_SUN"):
        assert ours[key] == pytest.approx(expected.meta[key]), key


# ---- Windows -------------------------------------------------------------------------------------

places = st.integers(0, 4096 - 700)


@given(places, places, st.integers(1, 700), st.integers(1, 700))
def test_a_window_is_a_part_of_the_whole(y: int, x: int, height: int, width: int) -> None:
    header = HEADERS["17.3"]
    window = Window.at(y, x, height, width, image=SHAPE)
    pixels = np.array([[0, width - 1, 5], [0, height - 1, 7]], float)
    found = mapped(register_matrix(header, window=window), pixels)
    expected = mapped(register_matrix(header), pixels + np.array([[x], [y]]))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@given(places, places, st.integers(2, 700), st.floats(-180, 180), st.floats(0.3, 3))
def test_a_turned_window_keeps_its_centre(
    y: int, x: int, size: int, angle: float, zoom: float
) -> None:
    header = HEADERS["17.3"]
    straight = Window.at(y, x, size, size, image=SHAPE)
    turned = Window(height=size, width=size, y=straight.y, x=straight.x, angle=angle, zoom=zoom)
    middle = np.full((2, 1), (size - 1) / 2)
    one, other = (register_matrix(header, window=window) for window in (straight, turned))
    np.testing.assert_allclose(mapped(one, middle), mapped(other, middle), rtol=0, atol=1e-8)
    # Its pixels are 1 / zoom as large.
    areas = [np.linalg.det(matrix[:, :2]) for matrix in (one, other)]
    assert areas[1] * zoom**2 == pytest.approx(areas[0])


def test_which_way_a_window_turns() -> None:
    """By 90 degrees counterclockwise: what was to the right is above, rows counted upwards."""
    header = full_header(CROTA2=0.0, CDELT1=0.6, CDELT2=0.6, CRPIX1=2048.5, CRPIX2=2048.5)
    window = Window(height=100, width=100, angle=90.0)
    matrix = register_matrix(header, window=window)
    above_and_middle = mapped(matrix, np.array([[50.0, 50.0], [60.0, 50.0]]))
    np.testing.assert_allclose(above_and_middle @ [1, -1], [10, 0], atol=1e-9)
    # SciPy's rotate turns clockwise with rows counted upwards.
    image = np.zeros((100, 100))
    image[50, 70] = 1
    matrix[:, 2] -= 2047.5 - 49.5
    turned = ndimage.affine_transform(image, matrix[::-1, 1::-1], matrix[::-1, 2], order=1)
    expected = ndimage.rotate(image, -90, reshape=False, order=1)
    np.testing.assert_allclose(turned, expected, atol=1e-9)


def test_a_turn_adds_to_crota2() -> None:
    header = full_header(CROTA2=10.0)
    window = Window(height=4096, width=4096, angle=7.3)
    np.testing.assert_allclose(
        register_matrix(header, window=window),
        register_matrix(changed(header, CROTA2=17.3)),
        rtol=0,
        atol=1e-9,
    )


def test_a_window_that_is_too_large() -> None:
    window = Window(height=5000, width=10, angle=3.0)
    with pytest.raises(ValueError, match=r"crop 5000x10 .*4096x4096"):
        register_matrix(full_header(), window=window)


class TestHeader:
    def test_what_it_says(self) -> None:
        header = full_header(**pc(17.3), HISTORY="read me", CROTA1=0.0)
        made = level15_header(header, scale=0.6)
        assert not {"PC1_1", "PC1_2", "PC2_1", "PC2_2", "CROTA1"} & set(made)
        said: dict[str, Any] = {"CRPIX1": 2048.5, "CRPIX2": 2048.5}
        said |= {"CDELT1": 0.6, "CDELT2": 0.6, "CROTA2": 0}
        said |= {"LVL_NUM": 1.5, "XCEN": 0, "YCEN": 0, "CUNIT1": "arcsec", "WAVELNTH": 171}
        assert {key: made[key] for key in said} == said
        assert made["R_SUN"] == pytest.approx(header["RSUN_OBS"] / 0.6)
        assert "read me" in str(made["HISTORY"])

    def test_the_header_that_it_is_made_of_stays(self) -> None:
        header = full_header()
        before = header.tostring()
        level15_header(header)
        assert header.tostring() == before

    def test_an_even_and_an_odd_size(self) -> None:
        made = level15_header(full_header(), shape=(101, 200))
        assert (made["CRPIX1"], made["CRPIX2"]) == (100.5, 51)


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"CROTA2": None}, "CROTA2 is missing.*PCi_j and CDi_j"),
    ({"CROTA2": "nan"}, "CROTA2 is 'nan'"),
    ({"CRPIX1": None}, "CRPIX1 is missing"),
    ({"CDELT2": None}, "CDELT2 is missing"),
    ({"CRVAL1": None}, "CRVAL1 is missing"),
    ({"NAXIS2": None}, "NAXIS2 is missing"),
    ({"CUNIT1": None}, "CUNIT1 is missing"),
    ({"CUNIT2": "m"}, "CUNIT2 is 'm'"),
    ({"CTYPE1": "CRLN-CEA"}, "CTYPE1 is 'CRLN-CEA'.*helioprojective"),
    ({"CDELT1": 0.0}, "singular"),
    ({"CDELT1": 1e300, "CDELT2": 1e300}, "singular"),
    ({"CDELT1": 1e-7, "CDELT2": 1e5}, "far outside"),
    ({"CRPIX1": 1e12}, "far outside"),
]


@pytest.mark.parametrize(("words", "message"), ERRORS, ids=str)
def test_errors(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register_matrix(full_header(**words))


def test_radius_needs_the_sun() -> None:
    with pytest.raises(ValueError, match="RSUN_OBS is missing"):
        register_matrix(full_header(RSUN_OBS=None), radius=1600.0)
