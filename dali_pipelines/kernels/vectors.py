"""Vectors of LLVM, which numba lacks, with a slot of 32 bits or a word of 64 bits for each tile.

Their instructions depend on the CPU, see `FORMS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import config
from numba.core.codegen import get_host_cpu_features


@dataclass(frozen=True)
class Form:
    """Vectors of a CPU, and instructions that LLVM's own operations do not cover."""

    name: str
    features: tuple[str, ...]
    """Features that the CPU must have, in LLVM's names."""
    slots: int
    """32-bit slots per vector."""
    left: str
    """Instruction that shifts slots, each by its own count. For counts from 32 on the result is 0;
    LLVM's own shift would be undefined."""
    right: str
    left_words: str
    """Instruction that shifts words, each by its own count."""


_512, _256 = "llvm.x86.avx512.ps{}.512", "llvm.x86.avx2.ps{}.256"
FORMS = (
    # +avx512bw: shuffles of bytes.
    Form("AVX-512", ("+avx512f", "+avx512bw"), 16, *map(_512.format, ("llv.d", "rlv.d", "llv.q"))),
    Form("AVX2", ("+avx2",), 8, *map(_256.format, ("llv.d", "rlv.d", "llv.q"))),
    Form("no vectors", (), 8, "", "", ""),
)
"""All forms, the fastest first. Every CPU can use the last."""


def form_of(features: str) -> Form:
    """Return the form for a CPU with these features, a list such as "+avx2,-avx512f"."""
    return next(form for form in FORMS if set(form.features) <= set(features.split(",")))


FORM = form_of(get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES)
"""Form of the CPU for which numba compiles. NUMBA_CPU_FEATURES is part of numba's cache key."""
HAS_VECTORS = bool(FORM.features)
SLOTS = FORM.slots

_BIT, WORD, _SLOT = ir.IntType(1), ir.IntType(64), ir.IntType(32)
WORDS_OF_VECTOR, SLOTS_OF_VECTOR = ir.VectorType(WORD, SLOTS // 2), ir.VectorType(_SLOT, SLOTS)
_FLOATS = ir.VectorType(ir.FloatType(), SLOTS)


def slots(value: int) -> ir.Constant:
    """Return the same number in all slots."""
    return ir.Constant(SLOTS_OF_VECTOR, [value % 2**32] * SLOTS)


def words(value: int) -> ir.Constant:
    """Return the same number in all words."""
    return ir.Constant(WORDS_OF_VECTOR, [value % 2**64] * (SLOTS // 2))


def _call(builder: Any, name: str, result: ir.Type, *args: Any) -> Any:
    signature = ir.FunctionType(result, [arg.type for arg in args])
    known = builder.module.globals
    function = known[name] if name in known else ir.Function(builder.module, signature, name)
    return builder.call(function, args)


def left(builder: Any, numbers: Any, by: Any) -> Any:
    """Shift slots or words to the left by `by` bits. Shifts by their width or more clear them."""
    name = FORM.left if numbers.type == SLOTS_OF_VECTOR else FORM.left_words
    return _call(builder, name, numbers.type, numbers, by)


def right(builder: Any, numbers: Any, by: Any) -> Any:
    """Shift slots to the right and fill with zeros."""
    return _call(builder, FORM.right, SLOTS_OF_VECTOR, numbers, by)


def smaller(builder: Any, a: Any, b: Any) -> Any:
    """Return the smaller slot of each pair, unsigned."""
    return _call(builder, f"llvm.umin.v{SLOTS}i32", SLOTS_OF_VECTOR, a, b)


def larger(builder: Any, a: Any, b: Any) -> Any:
    """Return the larger slot of each pair, unsigned."""
    return _call(builder, f"llvm.umax.v{SLOTS}i32", SLOTS_OF_VECTOR, a, b)


def highest(builder: Any, numbers: Any) -> Any:
    """Return the highest word, signed."""
    return _call(builder, f"llvm.vector.reduce.smax.v{SLOTS // 2}i64", WORD, numbers)


def floats(builder: Any, numbers: Any) -> Any:
    """Convert signed slots to float32, and return the bits of the floats."""
    return builder.bitcast(builder.sitofp(numbers, _FLOATS), SLOTS_OF_VECTOR)


def any_of(builder: Any, bits: Any) -> Any:
    """Return whether any bit of a comparison is set."""
    flags = ir.IntType(bits.type.count)
    return builder.icmp_unsigned("!=", builder.bitcast(bits, flags), ir.Constant(flags, 0))


def filled(builder: Any, word: Any) -> Any:
    """Return a vector with the same word everywhere."""
    first = builder.insert_element(words(0), word, ir.Constant(_SLOT, 0))
    order = ir.Constant(ir.VectorType(_SLOT, SLOTS // 2), [0] * (SLOTS // 2))
    return builder.shuffle_vector(first, first, order)


def shuffled(builder: Any, a: Any, b: Any, order: str) -> Any:
    """Choose four slots from each 128 bits of two vectors: 0 to 3 are those of `a`, 4 to 7 of `b`.

    Instructions that cross blocks of 128 bits are slower.
    """
    places = [int(place) % 4 + int(place) // 4 * SLOTS for place in order]
    chosen = [first + place for first in range(0, SLOTS, 4) for place in places]
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_SLOT, SLOTS), chosen))


# A vector of slots corresponds to two vectors of words. Shuffles stay within 128 bits, so the words
# 0 1 2 3 and 4 5 6 7 of tiles correspond to the slots 0 1 4 5 2 3 6 7.


def halves(builder: Any, pair: list[Any], *, high: bool) -> Any:
    """Return the low or high halves of two vectors of words as slots."""
    a, b = (builder.bitcast(some, SLOTS_OF_VECTOR) for some in pair)
    return shuffled(builder, a, b, "1357" if high else "0246")


def widened(builder: Any, low: Any, high: Any) -> list[Any]:
    """Return two vectors of words; each word consists of a slot of `low` and a slot of `high`."""
    pair = (shuffled(builder, low, high, order) for order in ("0415", "2637"))
    return [builder.bitcast(some, WORDS_OF_VECTOR) for some in pair]


def tile_of_slot(slot: int) -> int:
    """Return the index of the word that corresponds to a slot, in two vectors of words."""
    group, place = divmod(slot, 4)
    return 2 * group + place % 2 + place // 2 * (SLOTS // 2)


def load_words(builder: Any, at: Any) -> Any:
    """Load 8 big-endian bytes from each position in bits; the first 57 bits are valid.

    Words are loaded one by one, because the gather instruction is slower on many CPUs.
    """
    addresses = builder.lshr(at, words(3))
    found: Any = ir.Constant(WORDS_OF_VECTOR, ir.Undefined)
    for i in range(SLOTS // 2):
        place = ir.Constant(_SLOT, i)
        source = builder.inttoptr(builder.extract_element(addresses, place), WORD.as_pointer())
        found = builder.insert_element(found, builder.load(source, align=1, typ=WORD), place)
    found = _call(builder, f"llvm.bswap.v{SLOTS // 2}i64", WORDS_OF_VECTOR, found)
    return left(builder, found, builder.and_(at, words(7)))


def store_columns(builder: Any, rows: list[Any], address: Any, pitch: int) -> None:
    """Store eight vectors of slots: the eight slots of each tile together, `pitch` bytes apart."""
    fours = [_transposed(builder, rows[:4]), _transposed(builder, rows[4:])]
    for slot in range(SLOTS):
        first, place = slot // 4 * 4, slot % 4
        chosen = [*range(first, first + 4), *range(SLOTS + first, SLOTS + first + 4)]
        order = ir.Constant(ir.VectorType(_SLOT, 8), chosen)
        column = builder.shuffle_vector(fours[0][place], fours[1][place], order)
        start = builder.add(address, ir.Constant(WORD, tile_of_slot(slot) * pitch))
        builder.store(column, builder.inttoptr(start, column.type.as_pointer()), align=4)


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose each block of four by four slots."""
    a, b, c, d = rows
    low = [shuffled(builder, first, second, "0415") for first, second in ((a, b), (c, d))]
    high = [shuffled(builder, first, second, "2637") for first, second in ((a, b), (c, d))]
    return [
        shuffled(builder, first, second, order)
        for first, second in (low, high)
        for order in ("0145", "2367")
    ]
