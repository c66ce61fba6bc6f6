"""The decoder of masks against astropy's, on what it encoded and on words that were changed."""

from __future__ import annotations

import numpy as np
from astropy.io.fits.hdu.compressed._codecs import PLIO1
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_pipelines.kernels.fits.plio import read_runs
from readers.fits.payload import PADDING

HEADER = 7
"""Words before the first instruction, as astropy writes them."""


def encoded(pixels: NDArray[np.int32]) -> NDArray[np.int16]:
    return np.frombuffer(PLIO1(tilesize=pixels.size).encode(pixels), np.int16).copy()


def decoded(words: NDArray[np.int16], size: int, chunk: int) -> NDArray[np.int32] | None:
    """Decode a tile some pixels at a time; None if it is damaged."""
    data = np.concatenate((words[HEADER:].astype(">i2").view(np.uint8), np.zeros(PADDING, "u1")))
    at, high, left = data.ctypes.data, np.int32(1), np.zeros(2, np.int32)
    end, pixels = at + 2 * (len(words) - HEADER), np.full(size, -7, np.int32)
    for start in range(0, size, chunk):
        part = pixels[start : start + chunk]
        at, high = read_runs(part, at, end, np.int32(high), left)
        if at < 0:
            return None
    return pixels


@st.composite
def masks(draw: st.DrawFn) -> NDArray[np.int32]:
    """Runs of values up to 2**24; not short ones: astropy's encoder would write out of bounds."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    runs = draw(st.integers(1, 40))
    most = draw(st.sampled_from([2, 9, 5000, 2**24]))
    lengths = rng.integers(20, draw(st.sampled_from([21, 60, 6000])), runs)
    return np.repeat(rng.integers(0, most, runs), lengths).astype(np.int32)


@given(masks(), st.sampled_from([1, 7, 32, 4096]))
def test_gives_back_what_astropy_encoded(mask: NDArray[np.int32], chunk: int) -> None:
    found = decoded(encoded(mask), mask.size, max(chunk, mask.size // 500))
    np.testing.assert_array_equal(found, mask)


@given(masks(), st.integers(0, 2**32))
def test_changed_words(mask: NDArray[np.int32], seed: int) -> None:
    """The same pixels as astropy's, or none."""
    words, rng = encoded(mask), np.random.default_rng(seed)
    for _ in range(50):
        changed = words.copy()
        place = HEADER + rng.integers(len(words) - HEADER)
        changed[place] = rng.integers(-(2**15), 2**15)
        found = decoded(changed, mask.size, 4096)
        if found is not None:
            expected = PLIO1(tilesize=mask.size).decode(changed)
            np.testing.assert_array_equal(found, expected)
