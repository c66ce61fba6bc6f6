"""The decoder against astropy's encoder, and against streams that lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rice_tiles import DTYPES, decoded_together, encoded

from dali_pipelines.kernels.fits.rice_vector import LANES


def decoded(
    stream: bytes, num_pixels: int, bytepix: int, blocksize: int, *, whole: bool = False
) -> tuple[bool, np.ndarray]:
    """Decode one tile alone."""
    good, pixels = decoded_together([stream], [num_pixels], bytepix, blocksize, whole=whole)
    return good, pixels[0].astype(DTYPES[bytepix])


@st.composite
def tiles(draw: st.DrawFn) -> np.ndarray:
    """Pixels of any type: noise of any width, steps, and runs of the same value."""
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    size = draw(st.integers(1, 300))
    scale = draw(st.sampled_from([0, 1, 3, 40, 1000, 10**6, 2**31]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    noise = rng.integers(-scale, scale, size, endpoint=True).astype(np.int64)
    noise[rng.random(size) < draw(st.sampled_from([0, 0.1, 0.9]))] = 0
    return noise.astype(dtype)


@given(tiles(), st.sampled_from([16, 32, 64]), st.data())
def test_gives_back_what_astropy_encoded(
    pixels: np.ndarray, blocksize: int, data: st.DataObject
) -> None:
    stream = encoded(pixels, blocksize)
    wanted = data.draw(st.integers(1, pixels.size))
    whole = wanted == pixels.size
    good, found = decoded(stream, wanted, pixels.itemsize, blocksize, whole=whole)
    assert good
    np.testing.assert_array_equal(found, pixels[:wanted])


@given(arrays(np.int32, st.integers(1, 100)))
def test_any_integers(pixels: np.ndarray) -> None:
    good, found = decoded(encoded(pixels, 32), pixels.size, 4, 32)
    assert good
    np.testing.assert_array_equal(found, pixels)


@given(st.binary(max_size=400), st.sampled_from([1, 2, 4]), st.integers(1, 2000))
def test_any_bytes_stay_inside(stream: bytes, bytepix: int, num_pixels: int) -> None:
    decoded(stream, num_pixels, bytepix, 32)  # the guard and the canary watch


@given(tiles(), st.data())
def test_a_cut_stream_is_told(pixels: np.ndarray, data: st.DataObject) -> None:
    stream = encoded(pixels, 32)
    cut = data.draw(st.integers(0, len(stream) - 1))
    good, found = decoded(stream[:cut], pixels.size, pixels.itemsize, 32)
    # Padding bits at the end are no loss.
    assert not good or np.array_equal(found, pixels)


def test_bytes_behind_the_last_pixel_are_told_as_astropy_does() -> None:
    stream = encoded(np.arange(40, dtype=np.int16), 32) + b"x"
    assert decoded(stream, 40, 2, 32)[0]
    assert not decoded(stream, 40, 2, 32, whole=True)[0]


@pytest.mark.parametrize("bytepix", [1, 2, 4])
def test_long_runs_of_zero_bits(bytepix: int) -> None:
    """A difference whose unary part spans several words, which no encoder would write."""
    length_bits = {1: 3, 2: 4, 4: 5}[bytepix]
    bits = "0" * 8 * bytepix + f"{1:0{length_bits}b}" + "0" * 200 + "1"
    stream = int(bits.ljust(-len(bits) % 8 + len(bits), "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    good, found = decoded(stream, 1, bytepix, 32)
    assert good
    assert found.tolist() == [100]
    assert not decoded(stream[:-1], 1, bytepix, 32)[0]


@pytest.mark.parametrize("code", range(1, 25))
def test_differences_of_any_length_at_any_bit(code: int) -> None:
    """Some fit into the 57 bits that a word has for sure, and some do not."""
    low = (1 << code) - 1  # as the bits that would be missed are ones
    for before in range(8):
        for zeros in range(20, 50):
            pair = [(before << code) + low, (zeros << code) + low]
            unary = ("0" * number + "1" + "1" * code for number in (before, zeros))
            bits = f"{0:032b}{code + 1:05b}{''.join(unary)}"
            nbytes = -(-len(bits) // 8)
            stream = int(bits.ljust(8 * nbytes, "0"), 2).to_bytes(nbytes, "big")
            good, found = decoded(stream, 2, 4, 32)
            expected = np.cumsum([-(folded + 1) // 2 for folded in pair]).astype(np.int32)
            assert good
            np.testing.assert_array_equal(found, expected, err_msg=f"{before}, {zeros} zeros")


@given(st.lists(tiles(), min_size=1, max_size=LANES), st.integers(0, LANES - 1), st.data())
def test_tiles_together_are_as_each_alone(
    some: list[np.ndarray], which: int, data: st.DataObject
) -> None:
    which %= len(some)
    dtype = some[which].dtype
    streams = [encoded(tile.astype(dtype), 32) for tile in some]
    if data.draw(st.booleans()):
        streams[which] = streams[which][: data.draw(st.integers(0, len(streams[which])))]
    whole = data.draw(st.booleans())
    needed = [t.size if whole else data.draw(st.integers(1, t.size)) for t in some]
    alone = [
        decoded(stream, size, dtype.itemsize, 32, whole=whole)
        for stream, size in zip(streams, needed, strict=True)
    ]
    good, found = decoded_together(streams, needed, dtype.itemsize, whole=whole)
    assert good == all(fine for fine, _ in alone)
    if good:
        for together, (_, expected) in zip(found, alone, strict=True):
            np.testing.assert_array_equal(together.astype(dtype), expected)


@given(
    st.lists(tiles(), min_size=LANES, max_size=LANES),
    st.sampled_from([16, 32, 64]),
    st.integers(0, 400),
)
def test_unwanted_pixels_are_passed_over(
    some: list[np.ndarray], blocksize: int, unwanted: int
) -> None:
    size = min(tile.size for tile in some)
    alike = [tile[:size].astype(np.int16) for tile in some]
    streams = [encoded(tile, blocksize) for tile in alike]
    good, found = decoded_together(
        streams, [size] * LANES, 2, blocksize, whole=True, unwanted=unwanted
    )
    assert good
    for pixels, expected in zip(found, alike, strict=True):
        np.testing.assert_array_equal(pixels[unwanted:].astype(np.int16), expected[unwanted:])


@given(
    st.lists(st.binary(max_size=200), min_size=LANES, max_size=LANES),
    st.sampled_from([1, 2, 4]),
    st.lists(st.integers(1, 999), min_size=LANES, max_size=LANES),
)
def test_any_streams_together_stay_inside(
    streams: list[bytes], bytepix: int, needed: list[int]
) -> None:
    decoded_together(streams, needed, bytepix, whole=False)
