"""Streams against astropy's decoder, which is CFITSIO's: as they were encoded, changed, and cut."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from astropy.io.fits.hdu.compressed._codecs import HCompress1
from fuzz_files import before_a_hole
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from readers.cache.locks import locked
from readers.fits.tiles import hcompress
from readers.fits.tiles.hcompress import (
    JIT,
    PADDING,
    decode_tile,
    invert,
    read_coefficients,
)

HEADER = 25
BIT_PLANES = slice(22, 25)
"""Where the header has their numbers."""


@st.composite
def encoded(draw: st.DrawFn) -> tuple[NDArray[np.uint8], HCompress1]:
    """Return a stream of noise, sparse pixels or a ramp, without loss or with; and its codec."""
    rows, columns = draw(st.tuples(st.integers(4, 40), st.integers(4, 70)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    image = rng.normal(
        draw(st.sampled_from([0, 100, -500, 30000])),
        draw(st.sampled_from([0.3, 5, 60, 3000, 1e8])),
        (rows, columns),
    )
    kind = draw(st.sampled_from(["noise", "sparse", "ramp"]))
    if kind == "sparse":
        image[rng.random(image.shape) < 0.95] = 0
    elif kind == "ramp":
        image = np.add.outer(37.0 * np.arange(rows), np.arange(columns) ** 2.0)
    scale = draw(st.sampled_from([0, 1, 2, 5, 100]))
    codec = HCompress1(scale=scale, smooth=False, bytepix=8, nx=rows, ny=columns)
    return np.frombuffer(codec.encode(np.rint(image).astype(np.int64)), np.uint8), codec


def by_astropy(data: NDArray[np.uint8], codec: HCompress1) -> NDArray[np.int32] | None:
    try:
        return np.asarray(codec.decode(data)).reshape(codec.nx, codec.ny)
    except Exception:  # its own CfitsioException, of which it leaves some without the message
        return None


def by_us(data: NDArray[np.uint8], codec: HCompress1) -> NDArray[np.int32] | None:
    try:
        return decode_tile(data, codec.nx, codec.ny).astype(np.int32)
    except ValueError:
        return None


@given(encoded())
def test_gives_the_pixels_that_astropy_gives(drawn: tuple[NDArray[np.uint8], HCompress1]) -> None:
    data, codec = drawn
    np.testing.assert_array_equal(by_us(data, codec), by_astropy(data, codec))


def changed(data: NDArray[np.uint8], random: Random) -> NDArray[np.uint8]:
    """Change scale, sum, numbers of bit planes, or bytes behind; insert some, and cut some off."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.choice((random.randrange(10, HEADER), random.randrange(HEADER, len(found))))
        kind = random.randrange(4)
        if at in range(len(found))[BIT_PLANES]:
            found[at] = random.choice((random.randrange(63), min(found[at] + 1, 62)))
        elif kind == 0:
            found[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            found[at] = random.randrange(256)
        elif kind == 2:
            found[HEADER + 1 :] = found[HEADER + 1 :][: random.randrange(len(found))]
        elif at >= HEADER:
            found[at:at] = random.randbytes(random.choice((1, 4)))
    return np.frombuffer(bytes(found), np.uint8)


@given(encoded(), st.integers(0, 2**32))
@settings(max_examples=40)
def test_changed_streams(drawn: tuple[NDArray[np.uint8], HCompress1], seed: int) -> None:
    """The same pixels as astropy's, or none.

    astropy reads on behind the end, so it gets zeros there, more than any stream can take.
    """
    data, codec = drawn
    random, room = Random(seed), np.zeros(16 * codec.nx * codec.ny + 200, np.uint8)
    for _ in range(20):
        one = changed(data, random)
        longer = np.concatenate((one, room))
        expected, found = by_astropy(longer, codec), by_us(longer, codec)
        np.testing.assert_equal(found, expected)
        cut = by_us(one, codec)
        if cut is not None:
            np.testing.assert_array_equal(cut, expected)


@given(encoded(), st.integers(0, 2**32))
@settings(max_examples=40)
def test_reads_nothing_after_the_words(
    drawn: tuple[NDArray[np.uint8], HCompress1], seed: int
) -> None:
    """Not even of streams that were cut or changed: no memory follows that could be read."""
    data, codec = drawn
    one = changed(data, Random(seed))
    body = one[HEADER:]
    words = np.zeros(-(-len(body) // 8) + PADDING, ">u8")
    words.view(np.uint8)[: len(body)] = body
    codes = -(-codec.nx // 4) * -(-codec.ny // 4)
    read_coefficients(
        before_a_hole(words.astype(np.uint64).view(np.uint8)).view(np.uint64),
        8 * len(body),
        one[BIT_PLANES].astype(np.int64),
        np.int64(1),
        0,
        np.empty((4, 4, codes), np.int64),
        np.empty((2, codes), np.uint8),
        np.empty(codes, np.uint32),
        np.empty((codec.nx, codec.ny), np.int64),
    )


@given(
    st.tuples(st.integers(2, 40), st.integers(2, 70)),
    st.integers(0, 2**32),
    st.floats(0.9, 1),
    st.booleans(),
)
def test_32_bits_are_enough_where_they_are_used(
    shape: tuple[int, int], seed: int, share: float, at_the_limit: bool
) -> None:
    """The inverse transform gives the same with 64 bits, up to the largest coefficients allowed."""
    rng, unit = np.random.default_rng(seed), 4 << max(shape).bit_length()
    total, largest = (int(share * ((1 << bits) - unit - 1)) for bits in (29, 28))
    # Private: no stream is short whose coefficients are exactly at the limit.
    assert not hcompress._needs_int64(*shape, total, largest)
    wide = rng.integers(-largest, largest + 1, shape)
    if at_the_limit:
        wide = np.where(wide < 0, -largest, largest)
    wide[0, 0] = total * rng.choice((-1, 1))
    narrow, expected = np.empty(shape, np.int32), np.empty(shape, np.int64)
    for pixels in (narrow, expected):
        invert(wide.astype(pixels.dtype), pixels, np.zeros((2, shape[1]), pixels.dtype))
    np.testing.assert_array_equal(narrow, expected)


@pytest.mark.parametrize(
    ("start", "content", "reason"),
    [
        (0, b"\xdd\x98", r"xdd\\x98.*expected.*xdd\\x99"),
        (23, b"\x3f", "63 bit planes, .*62"),
        (HEADER, b"\x10", "damaged"),
    ],
)
def test_faults_are_named(start: int, content: bytes, reason: str) -> None:
    codec = HCompress1(scale=0, smooth=False, bytepix=8, nx=8, ny=9)
    data = bytearray(codec.encode(np.arange(72, dtype=np.int64).reshape(8, 9)))
    data[start : start + len(content)] = content
    with pytest.raises(ValueError, match=reason):
        decode_tile(np.frombuffer(data, np.uint8), 8, 9)


def test_readers_that_start_together_compile_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds that another compiles waits for it."""
    order: list[str] = []
    monkeypatch.setattr(JIT, "folder", tmp_path)

    def noted(_: Any, tile: Any) -> None:
        order.append(f"compiled, 64 bits: {tile.is_wide}")

    # Private, as compiling is once for each process, and this one has compiled already.
    monkeypatch.setattr(hcompress, "_decoded", noted)
    hcompress._compile_once.__wrapped__(False)
    thread = threading.Thread(target=hcompress._compile_once.__wrapped__, args=(True,))
    with locked(str(tmp_path / "lock"), 0, 1, 60):
        thread.start()
        thread.join(0.05)
        order.append("the other is ready")
    thread.join()
    assert order == ["compiled, 64 bits: False", "the other is ready", "compiled, 64 bits: True"]
