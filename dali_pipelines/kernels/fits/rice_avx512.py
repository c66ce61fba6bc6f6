"""Read a block of sixteen RICE_1 tiles at a time, in vector registers.

`read_code` and `read_block` of `dali_pipelines.kernels.fits.rice_stream`, written for vectors of
eight 64-bit words, one for each tile: numba has no such type, and LLVM does not vectorise them. Of
two vectors one computes while the other waits. With AVX-512 this is three times as fast as four
tiles in lockstep; other CPUs do not use it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import config, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

_WIDTH = 8
_VECTORS = 2
LANES = _VECTORS * _WIDTH
"""Tiles that are decoded at a time."""
STEPS = 8
"""Pixels of each tile per iteration: as many as a vector has words, to be transposed."""

ENDED = -2
"""Returned instead of the highest code if a tile ends before it."""


def _has_vectors() -> bool:
    features = (config.CPU_FEATURES or get_host_cpu_features()).split(",")
    needed = ("+avx512f", "+avx512bw", "+avx512cd")
    return config.CPU_NAME != "generic" and all(feature in features for feature in needed)


HAS_VECTORS = _has_vectors()
"""Whether numba compiles for a CPU that shifts, counts zeros and swaps bytes in vectors."""

_WORD, _HALF, _BIT = ir.IntType(64), ir.IntType(32), ir.IntType(1)
_WORDS, _HALVES, _BITS = (ir.VectorType(kind, _WIDTH) for kind in (_WORD, _HALF, _BIT))
_VALID = 57
"""Valid bits of a loaded word, for any first bit."""


def _all(value: int, kind: ir.VectorType = _WORDS) -> ir.Constant:
    return ir.Constant(kind, [value] * _WIDTH)


def _call(builder: Any, name: str, result: ir.Type, *args: Any) -> Any:
    signature = ir.FunctionType(result, [arg.type for arg in args])
    known = builder.module.globals
    function = known[name] if name in known else ir.Function(builder.module, signature, name)
    return builder.call(function, args)


def _left(builder: Any, words: Any, by: Any) -> Any:
    """Logical left shift; 0 for shifts outside 0..63, where LLVM's own shift is undefined."""
    return _call(builder, "llvm.x86.avx512.psllv.q.512", _WORDS, words, by)


def _right(builder: Any, words: Any, by: Any) -> Any:
    """Logical right shift; 0 for shifts outside 0..63."""
    return _call(builder, "llvm.x86.avx512.psrlv.q.512", _WORDS, words, by)


def _places(builder: Any, address: Any, first: int) -> list[Any]:
    """Point at a row of numbers, one for each tile, that begins at number `first`: by vectors."""
    starts = [8 * (first + _WIDTH * vector) for vector in range(_VECTORS)]
    return [
        builder.inttoptr(builder.add(address, ir.Constant(_WORD, start)), _WORDS.as_pointer())
        for start in starts
    ]


def _load_words(builder: Any, at: Any) -> Any:
    """Load 8 bytes from each position, given in bits; the first `_VALID` bits count.

    One by one: the instruction that gathers is slower.
    """
    addresses = builder.lshr(at, _all(3))
    words: Any = ir.Constant(_WORDS, ir.Undefined)
    for lane in range(_WIDTH):
        place = ir.Constant(_HALF, lane)
        address = builder.extract_element(addresses, place)
        source = builder.inttoptr(address, _WORD.as_pointer())
        words = builder.insert_element(words, builder.load(source, align=1, typ=_WORD), place)
    words = _call(builder, f"llvm.bswap.v{_WIDTH}i64", _WORDS, words)
    return _left(builder, words, builder.and_(at, _all(7)))


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose 8 vectors of 8 halves."""
    for width in (1, 2, 4):
        swapped: list[Any] = [None] * _WIDTH
        for i in range(_WIDTH):
            if i & width:
                continue
            low = [j if not j & width else j - width + _WIDTH for j in range(_WIDTH)]
            high = [j + width if not j & width else j + _WIDTH for j in range(_WIDTH)]
            for row, order in ((i, low), (i + width, high)):
                mask = ir.Constant(_HALVES, order)
                swapped[row] = builder.shuffle_vector(rows[i], rows[i + width], mask)
        rows = swapped
    return rows


def _store_transposed(
    builder: Any, pixels: list[Any], start: Any, lanes: range, pitch: int
) -> None:
    """Store the low halves of 8 vectors of pixels, those of each lane at its address."""
    rows = _transposed(builder, [builder.trunc(words, _HALVES) for words in pixels])
    for lane, row in zip(lanes, rows, strict=False):
        place = builder.add(start, ir.Constant(_WORD, lane * pitch))
        builder.store(row, builder.inttoptr(place, _HALVES.as_pointer()), align=4)


@intrinsic
def read_codes(typing_context: Any, state: Any, end: Any, length_bits: Any) -> Any:
    """Read the codes of the next blocks, one of each tile.

    Parameters
    ----------
    state : int
        Address of positions, last pixels and codes, as for `block_reader`. Positions and codes are
        written.
    end : int
        Address of the position where each tile ends, int64.
    length_bits : int
        Bits of a code.

    Returns
    -------
    int
        The highest code; or `ENDED`, and then the state is unchanged.
    """
    del typing_context

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        state_at, end_at, length = args
        first = builder.insert_element(_all(0), length, ir.Constant(_HALF, 0))
        lengths = builder.shuffle_vector(first, first, _all(0, _HALVES))
        places, ends = _places(builder, state_at, 0), _places(builder, end_at, 0)
        positions, codes, highest, over = [], [], _all(-1), _all(0, _BITS)
        for place, end_place in zip(places, ends, strict=True):
            at, limit = (builder.load(p, align=8, typ=_WORDS) for p in (place, end_place))
            after = builder.add(at, lengths)
            over = builder.or_(over, builder.icmp_signed(">", after, limit))
            positions.append((at, after))
        inside = builder.icmp_unsigned(
            "==", builder.bitcast(over, ir.IntType(_WIDTH)), ir.Constant(ir.IntType(_WIDTH), 0)
        )
        result = builder.alloca(_WORD)
        builder.store(ir.Constant(_WORD, ENDED), result)
        with builder.if_then(inside):
            for place, code_place, (at, after) in zip(
                places, _places(builder, state_at, 2 * LANES), positions, strict=True
            ):
                words = _load_words(builder, at)
                raised = _right(builder, words, builder.sub(_all(64), lengths))
                code = builder.sub(raised, _all(1))
                builder.store(after, place, align=8)
                builder.store(code, code_place, align=8)
                codes.append(code)
            for code in codes:
                higher = builder.icmp_signed(">", code, highest)
                highest = builder.select(higher, code, highest)
            reduce = f"llvm.vector.reduce.smax.v{_WIDTH}i64"
            builder.store(_call(builder, reduce, _WORD, highest), result)
        return builder.load(result, typ=_WORD)

    return types.int64(types.int64, types.int64, types.int64), codegen


class _Lanes:
    """Eight of the tiles while one of their blocks is read."""

    def __init__(self, builder: Any, at: Any, last: Any, codes: Any) -> None:
        self._b = builder
        self.at, self.last = at, last
        self._active = builder.icmp_signed(">=", codes, _all(0))
        self._codes = builder.select(self._active, codes, _all(0))
        self._shortest = builder.add(self._codes, _all(1))
        self._one = _left(builder, _all(1), self._codes)

    def enter_loop(self) -> None:
        """Add the variables of the loop to its head."""
        self._phis = [self._b.phi(kind) for kind in (_WORDS, _WORDS, _BITS)]
        self._first = (self.at, self.last, _all(0, _BITS))
        self.at, self.last, self.too_long = self._phis
        self.pixels: list[Any] = []

    def load(self) -> None:
        """Load the words of the next differences."""
        self._begun, self._words = self.at, _load_words(self._b, self.at)

    def take(self) -> None:
        """Read a difference from each word.

        From the left a word has zeros, a one, and the low bits: as many as the code. The difference
        is folded to be positive: an odd one means -(folded + 1) / 2.
        """
        b = self._b
        zeros = _call(b, f"llvm.ctlz.v{_WIDTH}i64", _WORDS, self._words, ir.Constant(_BIT, 0))
        taken = b.add(zeros, self._shortest)
        low = _right(b, self._words, b.sub(_all(64), taken))
        high = _left(b, zeros, self._codes)
        folded = b.or_(high, b.and_(low, b.not_(self._one)))
        folded = b.select(self._active, folded, _all(0))
        even = b.add(self.last, b.lshr(folded, _all(1)))
        is_odd = b.icmp_signed("!=", b.and_(folded, _all(1)), _all(0))
        self.last = b.select(is_odd, b.sub(even, folded), even)
        self.at = b.add(self.at, b.select(self._active, taken, _all(0)))
        self._words = _left(b, self._words, taken)
        self.pixels.append(self.last)

    def check(self) -> None:
        """Note where more bits were read from a word than it has."""
        taken = self._b.sub(self.at, self._begun)
        far = self._b.icmp_unsigned(">", taken, _all(_VALID))
        self.too_long = self._b.or_(self.too_long, far)

    def leave_loop(self, before: Any, end_of_loop: Any) -> None:
        """Set the variables of the next iteration."""
        following = (self.at, self.last, self.too_long)
        for phi, first, then in zip(self._phis, self._first, following, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(then, end_of_loop)


def block_reader(per_word: int, pitch: int | None = None) -> Any:
    """Return a function that reads a block of each tile.

    Parameters
    ----------
    per_word : int
        Pixels that are read from each loaded word: 1, 2, 4 or 8.
    pitch : int, optional
        Bytes from the pixels of one tile to those of the next. By default no pixel is written: the
        blocks after this one only need its last pixels.

    Returns
    -------
    (pixels, state, size) -> bool
        `pixels` is the address of the first int32 to write, for the first tile. `state` is that of
        `LANES` positions in bits, last pixels, and codes, int64, -1 for a block without
        differences; positions and pixels are written. `size` is the number of pixels in the block,
        a multiple of 8. Returns False if a difference was too long for its word, and then the state
        is unchanged. A position may go 64 x 89 bits too far before that is noticed.
    """

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        address, state_at, count = args
        places = [_places(builder, state_at, LANES * k) for k in range(3)]
        loaded = [[builder.load(p, align=8, typ=_WORDS) for p in row] for row in places]
        lanes = [_Lanes(builder, *numbers) for numbers in zip(*loaded, strict=True)]
        before = builder.block
        loop = builder.append_basic_block("eight_pixels")
        after = builder.append_basic_block("block_ends")
        builder.branch(loop)

        builder.position_at_end(loop)
        done = builder.phi(_WORD)
        for some in lanes:
            some.enter_loop()
        for step in range(STEPS):
            for some in lanes:
                if step % per_word == 0:
                    some.load()
                some.take()
                if step % per_word == per_word - 1:
                    some.check()
        if pitch is not None:
            start = builder.add(address, builder.shl(done, ir.Constant(_WORD, 2)))
            for first, some in zip(range(0, LANES, _WIDTH), lanes, strict=True):
                _store_transposed(builder, some.pixels, start, range(first, LANES), pitch)
        more = builder.add(done, ir.Constant(_WORD, STEPS))
        end_of_loop = builder.block
        done.add_incoming(ir.Constant(_WORD, 0), before)
        done.add_incoming(more, end_of_loop)
        for some in lanes:
            some.leave_loop(before, end_of_loop)
        builder.cbranch(builder.icmp_signed("<", more, count), loop, after)

        builder.position_at_end(after)
        too_long = lanes[0].too_long
        for some in lanes[1:]:
            too_long = builder.or_(too_long, some.too_long)
        flags = ir.IntType(_WIDTH)
        good = builder.icmp_unsigned("==", builder.bitcast(too_long, flags), ir.Constant(flags, 0))
        with builder.if_then(good):
            for some, at_place, last_place in zip(lanes, *places[:2], strict=True):
                builder.store(some.at, at_place, align=8)
                builder.store(some.last, last_place, align=8)
        return good

    @intrinsic
    def read_blocks(typing_context: Any, pixels: Any, state: Any, size: Any) -> Any:
        del typing_context
        return types.boolean(types.int64, types.int64, types.int64), codegen

    return read_blocks
