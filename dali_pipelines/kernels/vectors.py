"""A block of eight RICE_1 tiles at once, in vector registers.

What `dali_pipelines.kernels.rice.read_block` does pixel by pixel, written as vectors of eight words
of 64 bits, one for each tile: numba has no such type, and LLVM does not find them by itself. On a
CPU with AVX-512 this is twice as fast as four tiles in lockstep; elsewhere it would be slower, and
is not used.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import config, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

LANES = 8
STEPS = 8
"""Pixels of each tile in a turn of the loop: as many as there are tiles, to be transposed."""


def _has_vectors() -> bool:
    features = (config.CPU_FEATURES or get_host_cpu_features()).split(",")
    needed = ("+avx512f", "+avx512bw", "+avx512cd")
    return config.CPU_NAME != "generic" and all(feature in features for feature in needed)


HAS_VECTORS = _has_vectors()
"""Whether numba compiles for a CPU that gathers, counts zeros and swaps bytes in vectors."""

_WORD, _HALF, _BIT = ir.IntType(64), ir.IntType(32), ir.IntType(1)
_WORDS, _HALVES, _BITS = (ir.VectorType(kind, LANES) for kind in (_WORD, _HALF, _BIT))
_VALID = 57
"""Bits of a loaded word that count, whatever the bit that it begins with."""


def _all(value: int, kind: ir.VectorType = _WORDS) -> ir.Constant:
    return ir.Constant(kind, [value] * LANES)


def _call(builder: Any, name: str, result: ir.Type, *args: Any) -> Any:
    signature = ir.FunctionType(result, [arg.type for arg in args])
    known = builder.module.globals
    function = known[name] if name in known else ir.Function(builder.module, signature, name)
    return builder.call(function, args)


def _load_words(builder: Any, at: Any) -> Any:
    """Load 8 bytes from each position, given in bits; the first `_VALID` bits count."""
    pointers = builder.inttoptr(builder.lshr(at, _all(3)), ir.VectorType(_WORD.as_pointer(), LANES))
    words = _call(
        builder,
        f"llvm.masked.gather.v{LANES}i64.v{LANES}p0",
        _WORDS,
        pointers,
        ir.Constant(_HALF, 1),
        _all(1, _BITS),
        _all(0),
    )
    words = _call(builder, f"llvm.bswap.v{LANES}i64", _WORDS, words)
    return builder.shl(words, builder.and_(at, _all(7)))


def _take(builder: Any, words: Any, codes: Any) -> tuple[Any, Any]:
    """Take a difference out of each word; give them and the bits that they took.

    As `_near_difference` of `dali_pipelines.kernels.rice`. Shifts are kept below 64, beyond which
    nothing is defined: what comes of it then is told by the bits taken.
    """
    zeros = _call(builder, f"llvm.ctlz.v{LANES}i64", _WORDS, words, ir.Constant(_BIT, 0))
    used = builder.add(zeros, codes)
    right = builder.and_(builder.xor(used, _all(63)), _all(63))
    high = builder.shl(builder.sub(zeros, _all(1)), codes)
    folded = builder.add(builder.lshr(words, right), high)
    sign = builder.sub(_all(0), builder.and_(folded, _all(1)))
    return builder.xor(builder.ashr(folded, _all(1)), sign), builder.add(used, _all(1))


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose 8 vectors of 8 halves."""
    for width in (1, 2, 4):
        swapped: list[Any] = [None] * LANES
        for i in range(LANES):
            if i & width:
                continue
            low = [j if not j & width else j - width + LANES for j in range(LANES)]
            high = [j + width if not j & width else j + LANES for j in range(LANES)]
            for row, order in ((i, low), (i + width, high)):
                mask = ir.Constant(_HALVES, order)
                swapped[row] = builder.shuffle_vector(rows[i], rows[i + width], mask)
        rows = swapped
    return rows


def block_reader(pitch: int, per_word: int) -> Any:
    """Make the function that reads a block of eight tiles.

    Parameters
    ----------
    pitch : int
        Bytes from the pixels of one tile to those of the next.
    per_word : int
        Pixels that are taken out of each word that is loaded: 1, 2, 4 or 8.

    Returns
    -------
    (pixels, state, size) -> bool
        `pixels` is the address of the first int32 to write, for the first tile. `state` is that of
        8 positions in bits, 8 last pixels, and 8 codes, int64, -1 for a block without differences;
        positions and pixels are written. `size` are the pixels of the block, a multiple of 8.
        False is given if a difference was too long for its word, and then the state is as it was.
        A position may go 64 x 89 bits too far before that is seen.
    """

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        address, state_at, count = args
        places = [
            builder.inttoptr(
                builder.add(state_at, ir.Constant(_WORD, 8 * LANES * k)), _WORDS.as_pointer()
            )
            for k in range(3)
        ]
        at, last, codes = (builder.load(place, align=8, typ=_WORDS) for place in places)
        active = builder.icmp_signed(">=", codes, _all(0))
        codes = builder.select(active, codes, _all(0))
        before = builder.block
        loop = builder.append_basic_block("eight_pixels")
        after = builder.append_basic_block("block_ends")
        builder.branch(loop)

        builder.position_at_end(loop)
        done = builder.phi(_WORD)
        at_now, last_now, too_long = (builder.phi(kind) for kind in (_WORDS, _WORDS, _BITS))
        position, pixel, wrong = at_now, last_now, too_long
        rows = []
        for step in range(STEPS):
            if step % per_word == 0:
                begun, words = position, _load_words(builder, position)
            difference, taken = _take(builder, words, codes)
            pixel = builder.add(pixel, builder.select(active, difference, _all(0)))
            rows.append(builder.trunc(pixel, _HALVES))
            position = builder.add(position, builder.select(active, taken, _all(0)))
            if step % per_word == per_word - 1:
                far = builder.icmp_unsigned(">", builder.sub(position, begun), _all(_VALID))
                wrong = builder.or_(wrong, far)
            else:
                words = builder.shl(words, builder.and_(taken, _all(63)))
        for lane, row in enumerate(_transposed(builder, rows)):
            place = builder.add(address, ir.Constant(_WORD, lane * pitch))
            place = builder.add(place, builder.shl(done, ir.Constant(_WORD, 2)))
            builder.store(row, builder.inttoptr(place, _HALVES.as_pointer()), align=4)
        more = builder.add(done, ir.Constant(_WORD, STEPS))
        end_of_loop = builder.block
        for phi, first, following in (
            (done, ir.Constant(_WORD, 0), more),
            (at_now, at, position),
            (last_now, last, pixel),
            (too_long, _all(0, _BITS), wrong),
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(following, end_of_loop)
        builder.cbranch(builder.icmp_signed("<", more, count), loop, after)

        builder.position_at_end(after)
        good = builder.icmp_unsigned(
            "==", builder.bitcast(wrong, ir.IntType(LANES)), ir.Constant(ir.IntType(LANES), 0)
        )
        with builder.if_then(good):
            builder.store(position, places[0], align=8)
            builder.store(pixel, places[1], align=8)
        return good

    @intrinsic
    def read_block_of_eight(typing_context: Any, pixels: Any, state: Any, size: Any) -> Any:
        del typing_context
        return types.boolean(types.int64, types.int64, types.int64), codegen

    return read_block_of_eight
