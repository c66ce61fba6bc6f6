"""Read a block of many RICE_1 tiles at a time, in vectors with a slot for each tile.

This is `rice_stream` as vectors, because LLVM does not vectorise it. Two vectors are processed in
turn, so that one computes while the other waits.

Notes
-----
AVX2 cannot count leading zeros. Instead integers are converted to float32: the exponent gives the
number of leading zeros, and the mantissa the bits after the first one. This is less work than
counting and shifting, also with AVX-512.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from dali_pipelines.kernels import vectors
from dali_pipelines.kernels.vectors import (
    SLOTS,
    SLOTS_OF_VECTOR,
    WORD,
    WORDS_OF_VECTOR,
    slots,
    words,
)

_VECTORS = 2
LANES = _VECTORS * SLOTS
"""Tiles decoded at a time."""
_STEPS = 8
"""Pixels of each tile per iteration."""

ENDED = -2
"""Result of `read_codes` if a tile ends before its code."""
READ = -1
"""Code of a block that has no differences, or that has been read."""
RAW = -2
"""Code of a block whose differences are stored raw, for any number of bytes per pixel."""

_WINDOW, _WORD = 32, 57
"""Bits of a window, and valid bits of a word that begins at any bit."""
_MANTISSA, _EXPONENT = 23, 127 + 23
"""Mantissa bits of a float32, and the exponent of integers of 24 bits."""


def _row(builder: Any, address: Any, row: int) -> list[Any]:
    """Return pointers to a row of words, one word per tile: two pointers per vector of slots."""
    starts = [8 * (row * LANES + first) for first in range(0, LANES, SLOTS // 2)]
    places = [builder.add(address, ir.Constant(WORD, start)) for start in starts]
    return [builder.inttoptr(place, WORDS_OF_VECTOR.as_pointer()) for place in places]


def _load(builder: Any, pointers: list[Any]) -> list[Any]:
    return [builder.load(pointer, align=8, typ=WORDS_OF_VECTOR) for pointer in pointers]


def _readable(builder: Any, state: Any) -> Any:
    """Return a readable address, as positions in bits, for tiles that have no block to read."""
    return vectors.filled(builder, builder.shl(state, ir.Constant(WORD, 3)))


@intrinsic
def read_codes(
    typing_context: Any, state: Any, end: Any, counts: Any, after: Any, bits: Any, raw: Any
) -> Any:
    """Read the codes of the next blocks, one per tile.

    Parameters
    ----------
    state : int
        Address of positions, last pixels and codes, as in `block_reader`. Positions and codes are
        updated. Tiles without another whole block get the code `READ`.
    end, counts : int
        Addresses of each tile's end position and number of pixels, int64.
    after : int
        Index of the first pixel after the block.
    bits : int
        Bits per code.
    raw : int
        Code of raw differences; it is replaced by `RAW`.

    Returns
    -------
    int
        Highest code, except for raw ones. Or `ENDED`, and the state is not changed.
    """
    del typing_context

    def codegen(_context: Any, b: Any, _signature: Any, args: Any) -> Any:
        state_at, end_at, counts_at = args[:3]
        following, length, raw_code = (vectors.filled(b, word) for word in args[3:])
        rows = ((state_at, 0), (end_at, 0), (counts_at, 0), (state_at, 2))
        places, ends, sizes, code_places = (_row(b, *row) for row in rows)
        begun = _load(b, places)
        has = [b.icmp_signed(">=", size, following) for size in _load(b, sizes)]
        then = [b.add(at, length) for at in begun]
        past = [
            b.and_(one, b.icmp_signed(">", at, limit))
            for one, at, limit in zip(has, then, _load(b, ends), strict=True)
        ]
        result = b.alloca(WORD)
        b.store(ir.Constant(WORD, ENDED), result)
        with b.if_then(b.not_(vectors.any_of(b, reduce(b.or_, past)))):
            highest, elsewhere = words(READ), _readable(b, state_at)
            for i in range(len(places)):
                word = vectors.load_words(b, b.select(has[i], begun[i], elsewhere))
                code = b.sub(b.lshr(word, b.sub(words(64), length)), words(1))
                code = b.select(b.icmp_signed("==", code, raw_code), words(RAW), code)
                code = b.select(has[i], code, words(READ))
                b.store(b.select(has[i], then[i], begun[i]), places[i], align=8)
                b.store(code, code_places[i], align=8)
                highest = b.select(b.icmp_signed(">", code, highest), code, highest)
            b.store(vectors.highest(b, highest), result)
        return b.load(result, typ=WORD)

    return types.int64(*[types.int64] * 6), codegen


class _Tiles:
    """Tiles of a vector while a block of each is read. Tiles with a code below 0 do not move.

    One word per tile is loaded. Its high half, the window, contains the next difference; or, if
    differences are short, two of at most 24 bits. Then the word is shifted for the next window.
    """

    def __init__(self, builder: Any, state: list[list[Any]], elsewhere: Any, short: bool) -> None:
        b = self._b = builder
        self._state, self._short = state, short
        at, last, codes = state
        self._takes = [b.icmp_signed(">=", code, words(0)) for code in codes]
        self._at = [b.select(*one, elsewhere) for one in zip(self._takes, at, strict=True)]
        self._last = vectors.halves(b, last, high=False)
        self._code = code = vectors.halves(b, codes, high=False)

        def of_active(count: Any, otherwise: int) -> Any:
            return b.select(b.icmp_signed(">=", code, slots(0)), count, slots(otherwise))

        # A shift by 32 clears all bits: inactive tiles neither move nor get differences.
        self._to_zeros = of_active(slots(_MANTISSA), 32)
        self._exponent = of_active(slots(_EXPONENT), 0)
        self._shortest = of_active(b.add(code, slots(1)), 0)
        self._to_low = of_active(b.sub(slots(32), code), 32)
        self._to_half = of_active(b.sub(slots(_MANTISSA + 1), code), 32)
        self._to_sign = of_active(b.add(code, slots(31 - _MANTISSA)), 32)

    def enter_loop(self) -> None:
        """Add the variables of the loop at its beginning."""
        kinds = (WORDS_OF_VECTOR, WORDS_OF_VECTOR, *[SLOTS_OF_VECTOR] * 3)
        self._phis = [self._b.phi(kind) for kind in kinds]
        self._first = (*self._at, self._last, slots(0), slots(0))
        self._at = self._phis[:2]
        self._last, self._of_window, self._of_word = self._phis[2:]
        self.pixels: list[Any] = []

    def leave_loop(self, before: Any, end_of_loop: Any) -> None:
        """Set the variables of the next iteration."""
        following = (*self._at, self._last, self._of_window, self._of_word)
        for phi, first, then in zip(self._phis, self._first, following, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(then, end_of_loop)

    def load(self) -> None:
        """Load the next words."""
        self._words = [vectors.load_words(self._b, at) for at in self._at]
        self._taken = slots(0)

    def shift(self) -> None:
        """Move the window past the differences that were read from it."""
        by = vectors.widened(self._b, self._taken, slots(0))
        self._words = [vectors.left(self._b, *one) for one in zip(self._words, by, strict=True)]

    def advance(self) -> None:
        """Move the position past the differences that were read, by 64 bits at most."""
        b = self._b
        self._of_word = vectors.larger(b, self._of_word, self._taken)
        by = vectors.widened(b, vectors.smaller(b, self._taken, slots(64)), slots(0))
        self._at = [b.add(*one) for one in zip(self._at, by, strict=True)]

    def read_window(self) -> None:
        """Read the differences in a window."""
        b = self._b
        window, in_window = vectors.halves(b, self._words, high=True), slots(0)
        for _ in range(1 + self._short):
            taken, difference = self._difference(window)
            window = vectors.left(b, window, taken)
            in_window = b.add(in_window, taken)
            self._last = b.add(self._last, difference)
            self.pixels.append(self._last)
        self._of_window = vectors.larger(b, self._of_window, in_window)
        self._taken = b.add(self._taken, in_window)

    def _difference(self, window: Any) -> tuple[Any, Any]:
        """Return the number of bits of a difference, and its value.

        If it begins with 24 zeros, the number is larger than any window.
        """
        b = self._b
        number = vectors.floats(b, b.lshr(window, slots(32 - _MANTISSA - 1)))
        zeros = b.sub(self._exponent, vectors.right(b, number, self._to_zeros))
        if self._short:
            # Each zero lowers the exponent by one; 31 - zeros has the inverted bits of `zeros`.
            folded = b.sub(number, slots((_EXPONENT - 31) << _MANTISSA))
            folded = b.xor(folded, slots(31 << _MANTISSA))
            sign = b.ashr(vectors.left(b, folded, self._to_sign), slots(31))
            half = vectors.right(b, folded, self._to_half)
        else:
            low = vectors.left(b, b.shl(window, slots(1)), zeros)
            low = vectors.right(b, low, self._to_low)
            folded = b.or_(vectors.left(b, zeros, self._code), low)
            sign = b.sub(slots(0), b.and_(folded, slots(1)))
            half = b.lshr(folded, slots(1))
        return b.add(zeros, self._shortest), b.xor(half, sign)

    def _too_long(self) -> Any:
        """Return the slots whose window or word had too few bits."""
        b, most = self._b, slots(_WINDOW)
        if self._short:  # one has at most 24 bits, the other at least code + 1
            most = vectors.smaller(b, b.add(self._code, slots(25)), most)
        of_window = b.icmp_unsigned(">", self._of_window, most)
        return b.or_(of_window, b.icmp_unsigned(">", self._of_word, slots(_WORD)))

    def finish(self, places: list[Any]) -> Any:
        """Store the state of tiles that were read completely; return words that mark the others."""
        b = self._b
        bad = b.sext(self._too_long(), SLOTS_OF_VECTOR)
        last = vectors.widened(b, self._last, slots(0))
        left_over = []
        for i, bad_words in enumerate(vectors.widened(b, bad, bad)):
            good = b.and_(self._takes[i], b.icmp_signed("==", bad_words, words(0)))
            for row, found in enumerate((self._at[i], last[i], words(READ))):
                value = b.select(good, found, self._state[row][i])
                b.store(value, places[row][i], align=8)
            left_over.append(b.icmp_signed("!=", value, words(READ)))
        return b.or_(*left_over)


def block_reader(*, short: bool, pitch: int | None = None) -> Any:
    """Return a function that reads one block of each tile.

    Parameters
    ----------
    short : bool
        True to read four differences from a loaded word, False for two.
    pitch : int, optional
        Bytes from the pixels of one tile to those of the next. By default no pixels are written,
        and only the last pixels are stored in the state, for the next blocks.

    Returns
    -------
    (pixels, state, size) -> bool
        `pixels` is the address of the output, int32, of the first tile. `state` is the address of
        `LANES` positions in bits, last pixels and codes, int64. `size` is the number of pixels in
        the block, a multiple of 8. The result is True if all tiles were read. The code of a tile
        that was read becomes `READ`. Tiles with the code `RAW`, or with too long differences, keep
        their state, and their pixels are invalid.
    """

    def codegen(_context: Any, b: Any, _signature: Any, args: Any) -> Any:
        address, state_at, count = args
        rows = [_row(b, state_at, row) for row in range(3)]
        places = [[row[first : first + 2] for row in rows] for first in range(0, 2 * _VECTORS, 2)]
        elsewhere = _readable(b, state_at)
        tiles = [_Tiles(b, [_load(b, row) for row in some], elsewhere, short) for some in places]
        before = b.block
        loop, after = (b.append_basic_block(name) for name in ("eight_pixels", "block_ends"))
        b.branch(loop)

        b.position_at_end(loop)
        done = b.phi(WORD)
        for some in tiles:
            some.enter_loop()
        steps = (_Tiles.load, _Tiles.read_window, _Tiles.shift, _Tiles.read_window, _Tiles.advance)
        for step in steps * (_STEPS // (4 if short else 2)):
            for some in tiles:
                step(some)
        if pitch is not None:
            start = b.add(address, b.shl(done, ir.Constant(WORD, 2)))
            for first, some in zip(range(0, LANES, SLOTS), tiles, strict=True):
                place = b.add(start, ir.Constant(WORD, first * pitch))
                vectors.store_columns(b, some.pixels, place, pitch)
        more = b.add(done, ir.Constant(WORD, _STEPS))
        end_of_loop = b.block
        done.add_incoming(ir.Constant(WORD, 0), before)
        done.add_incoming(more, end_of_loop)
        for some in tiles:
            some.leave_loop(before, end_of_loop)
        b.cbranch(b.icmp_signed("<", more, count), loop, after)

        b.position_at_end(after)
        left_over = [some.finish(where) for some, where in zip(tiles, places, strict=True)]
        return b.not_(vectors.any_of(b, reduce(b.or_, left_over)))

    @intrinsic
    def read_blocks(typing_context: Any, pixels: Any, state: Any, size: Any) -> Any:
        del typing_context
        return types.boolean(types.int64, types.int64, types.int64), codegen

    return read_blocks
