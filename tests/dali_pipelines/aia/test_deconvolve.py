"""Richardson-Lucy against aiapy's, and where aiapy's would give NaN."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import sunpy.map
from aiapy_releases import deconvolve as aiapy_deconvolve
from hypothesis import given
from hypothesis import strategies as st

from dali_pipelines.aia.deconvolve import Deconvolver
from dali_pipelines.aia.psf import psf

SIZE = 256


def deconvolve(image: Any, kernel: Any, **options: Any) -> Any:
    return Deconvolver.of(kernel, **options)(image)


@pytest.fixture(scope="module")
def psf_171() -> np.ndarray:
    return psf(171, shape=(SIZE, SIZE))


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    """A disk with bright points and a dim surrounding, DN."""
    random = np.random.default_rng(5)
    y, x = np.mgrid[:SIZE, :SIZE]
    radius = np.hypot(y - SIZE / 2, x - SIZE / 2)
    image = np.where(radius < 90, 300.0, 40 * np.exp(-np.maximum(radius - 90, 0) / 60))
    for at_y, at_x in random.integers(40, SIZE - 40, (40, 2)):
        distance = (y - at_y) ** 2 + (x - at_x) ** 2
        image += random.uniform(50, 3000) * np.exp(-distance / random.uniform(2, 40))
    return image


@pytest.fixture(scope="module")
def image(truth: np.ndarray, psf_171: np.ndarray) -> np.ndarray:
    """The same as AIA would see it: blurred and noisy, float64, DN; some pixels are 0."""
    blurred = blur(truth, psf_171)
    return np.random.default_rng(6).poisson(blurred).astype(float)


def blur(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    spectrum = np.fft.rfft2(image) * np.fft.rfft2(np.fft.ifftshift(kernel))
    return np.fft.irfft2(spectrum, s=image.shape)


def by_aiapy(image: np.ndarray, kernel: np.ndarray, **options: Any) -> np.ndarray:
    header = {"cunit1": "arcsec", "cunit2": "arcsec", "cdelt1": 0.6, "cdelt2": 0.6}
    header |= {"ctype1": "HPLN-TAN", "ctype2": "HPLT-TAN", "date-obs": "2020-01-01"}
    smap = sunpy.map.Map(image, header)
    return aiapy_deconvolve(smap, psf=kernel, **options).data


@pytest.mark.parametrize(("options", "rows"), [({}, SIZE), ({"iterations": 3}, SIZE // 2)])
def test_equals_aiapy(
    image: np.ndarray, psf_171: np.ndarray, options: dict[str, Any], rows: int
) -> None:
    image, kernel = image[:rows] + 1, psf_171[SIZE // 2 - rows // 2 :][:rows]
    image[3, 5] = -7  # clipped by both
    found = deconvolve(image, kernel, dtype=np.float64, **options)
    expected = by_aiapy(image, kernel, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_psf_of_another_sum(image: np.ndarray, psf_171: np.ndarray) -> None:
    options: dict[str, Any] = {"iterations": 3}
    found = deconvolve(image + 1, 1.3 * psf_171, dtype=np.float64, **options)
    expected = by_aiapy(image + 1, 1.3 * psf_171, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_float32_is_enough(image: np.ndarray, psf_171: np.ndarray) -> None:
    single = deconvolve(image.astype(np.int16), psf_171)
    double = deconvolve(image, psf_171, dtype=np.float64)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    bright = double > 1
    assert (~bright).any()
    # On whole frames, with more and brighter pixels, it is 5e-5; convolving all, not the changes,
    # gives 3e-5 here, and 2e-4 there.
    np.testing.assert_allclose(single[bright], double[bright], rtol=2e-5)
    np.testing.assert_allclose(single[~bright], double[~bright], rtol=0, atol=2e-5)
    for found in (single, double):
        assert found.sum(dtype=float) == pytest.approx(image.sum(), rel=1e-6)


def test_it_sharpens(truth: np.ndarray, psf_171: np.ndarray) -> None:
    blurred = blur(truth, psf_171)
    sharpened = deconvolve(blurred, psf_171)
    assert np.abs(sharpened - truth).mean() < np.abs(blurred - truth).mean() / 20


def test_the_image_is_left_alone(image: np.ndarray, psf_171: np.ndarray) -> None:
    given = image.astype(np.float32)
    given[0, 0] = np.nan
    given.flags.writeable = False
    before = given.copy()
    deconvolve(given, psf_171, iterations=1)
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize(
    ("value", "spike", "dtype"),
    [
        (0.0, 0.0, np.float32),
        (0.0, 1.0, np.float64),
        (0.0, 16383.0, np.float32),
        (-3.0, 0.0, np.float64),
        (-3.0, 1.0, np.float32),
        (-3.0, 16383.0, np.float64),
        (5.0, 0.0, np.float32),
        (5.0, 1.0, np.float64),
        (5.0, 16383.0, np.float32),
    ],
)
def test_nothing_becomes_nan(psf_171: np.ndarray, value: float, spike: float, dtype: Any) -> None:
    image = np.full((SIZE, SIZE), value)
    image[7, 9] = spike
    found = deconvolve(image, psf_171, dtype=dtype)
    assert np.isfinite(found).all()
    expected = np.maximum(image, 0).sum()
    assert found.sum(dtype=float) == pytest.approx(expected, rel=1e-6)


def holes(kind: str) -> np.ndarray:
    mask = np.zeros((SIZE, SIZE), bool)
    if kind == "pixels":
        mask.flat[np.random.default_rng(1).integers(0, mask.size, 200)] = True
    elif kind == "block":
        mask[60:90, 100:140] = True
    else:
        mask[:] = True
    return mask


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("pixels", np.nan),
        ("pixels", np.inf),
        ("block", -np.inf),
        ("block", np.nan),
        ("all", np.nan),
    ],
)
def test_holes_stay_holes(
    image: np.ndarray, psf_171: np.ndarray, kind: str, missing: float
) -> None:
    mask = holes(kind)
    found = deconvolve(np.where(mask, missing, image), psf_171)
    np.testing.assert_array_equal(np.isnan(found), mask)


@pytest.mark.parametrize("kind", ["pixels", "block"])
def test_holes_leave_others_alone(truth: np.ndarray, psf_171: np.ndarray, kind: str) -> None:
    """They come out better than with 0 or the mean in the holes."""
    blurred, mask = blur(truth, psf_171), holes(kind)
    found = deconvolve(np.where(mask, np.nan, blurred), psf_171)

    def error(result: np.ndarray) -> Any:
        return np.abs(result - truth)[~mask].mean()

    for filled in (0.0, blurred[~mask].mean()):
        plain = deconvolve(np.where(mask, filled, blurred), psf_171)
        assert error(found) < 0.7 * error(plain)


@given(st.integers(0, 2**32), st.floats(0, 1), st.integers(1, 5))
def test_any_image_stays_finite_where_it_is(seed: int, share: float, iterations: int) -> None:
    random = np.random.default_rng(seed)
    image = np.where(random.random((16, 24)) < share, 0, random.exponential(10.0, (16, 24)))
    image[random.random(image.shape) < share / 2] = np.nan
    image *= 10.0 ** random.integers(-6, 6)
    kernel = psf(193, shape=image.shape, diffraction_orders=[-1, 1])
    found = deconvolve(image, kernel, iterations=iterations)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(image))


def test_sizes_may_be_odd() -> None:
    kernel = np.zeros((9, 7))
    kernel[4, 3] = 1
    image = np.random.default_rng(0).random((9, 7))
    np.testing.assert_allclose(deconvolve(image, kernel, dtype=float), image)


SQUARE = np.ones((4, 4))


@pytest.mark.parametrize(
    ("image", "kernel", "settings", "message"),
    [
        (np.ones((4, 5)), SQUARE, {}, r"shape.*\(4, 4\).*\(4, 5\)"),
        (SQUARE, SQUARE[..., None], {}, r"\(height, width\).*\(4, 4, 1\)"),
        (SQUARE, SQUARE, {"dtype": np.int16}, "float32 or float64.*int16"),
        (SQUARE, SQUARE, {"iterations": 0}, "iterations.*at least 1.*0"),
        (SQUARE, [[1.0]], {}, "NumPy or CuPy.*list"),
    ],
)
def test_wrong_arguments(image: Any, kernel: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        deconvolve(image, kernel, **settings)


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.fft", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[aia\]'"):
        deconvolve(np.ones((4, 4)), np.ones((4, 4)))


@pytest.mark.gpu
def test_arrays_of_cupy_stay_there(image: np.ndarray, psf_171: np.ndarray) -> None:
    cupy = pytest.importorskip("cupy")
    deconvolver = Deconvolver.of(cupy.asarray(psf_171), iterations=5)
    for one in (image, np.where(holes("block"), np.nan, image)):
        found = deconvolver(cupy.asarray(one))
        assert isinstance(found, cupy.ndarray)
        assert found.dtype == np.float32
        expected = deconvolve(one, psf_171, iterations=5)
        np.testing.assert_allclose(found.get(), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(TypeError, match=r"image.*PSF.*numpy"):
        deconvolver(image)
