"""Intrinsics that numba lacks: loads and stores at an address, and casts between bits and floats.

They work in numba and in numba-cuda, and do not check bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_BYTE, _SHORT, _INT, _WORD = map(ir.IntType, (8, 16, 32, 64))
_FLOAT, _DOUBLE = ir.FloatType(), ir.DoubleType()
_GLOBAL = 1
"""LLVM's number for the global memory of a GPU, which all threads share."""


def _is_cuda(context: Any) -> bool:
    return "CUDA" in type(context).__name__


def _unary(result: Any, operand: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of one argument from a function that builds its LLVM instructions."""

    def intrinsic_of(build: Callable[..., Any]) -> Any:
        @intrinsic
        def unary(typing_context: Any, value: Any) -> Any:
            del typing_context, value
            return result(operand), lambda context, builder, _, args: build(context, builder, *args)

        return unary

    return intrinsic_of


def _binary(result: Any, *operands: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of two arguments, like `_unary`."""

    def intrinsic_of(build: Callable[..., Any]) -> Any:
        @intrinsic
        def binary(typing_context: Any, first: Any, second: Any) -> Any:
            del typing_context, first, second
            return result(*operands), lambda context, builder, _, args: build(
                context, builder, *args
            )

        return binary

    return intrinsic_of


@_unary(types.uint64, types.int64)
def load_big_endian(context: Any, builder: Any, address: Any) -> Any:
    """Load 8 bytes from any address as a big-endian uint64.

    A GPU cannot load across a word boundary, and loads two words instead. Therefore up to 15 bytes
    after the address and up to 7 bytes before it must be readable.
    """
    if not _is_cuda(context):
        source = builder.inttoptr(address, _WORD.as_pointer())
        return builder.bswap(builder.load(source, align=1, typ=_WORD))
    base = builder.and_(address, ir.Constant(_WORD, -8))
    bits = builder.shl(builder.and_(address, ir.Constant(_WORD, 7)), ir.Constant(_WORD, 3))
    pair = builder.inttoptr(base, _WORD.as_pointer())
    first = builder.bswap(builder.load(pair, align=8, typ=_WORD))
    behind = builder.gep(pair, [ir.Constant(_WORD, 1)], source_etype=_WORD)
    second = builder.bswap(builder.load(behind, align=8, typ=_WORD))
    # Two shifts, because one by 64 is undefined.
    rest = builder.sub(ir.Constant(_WORD, 63), bits)
    low = builder.lshr(builder.lshr(second, ir.Constant(_WORD, 1)), rest)
    return builder.or_(builder.shl(first, bits), low)


@_unary(types.uint32, types.int64)
def load_big_endian_word(context: Any, builder: Any, address: Any) -> Any:
    """Load 4 bytes as a big-endian uint32; the address is a multiple of 4."""
    loaded = builder.load(builder.inttoptr(address, _INT.as_pointer()), align=4, typ=_INT)
    if not _is_cuda(context):
        return builder.bswap(loaded)
    # One instruction; NVVM would emit nine.
    signature = ir.FunctionType(_INT, (_INT,))
    return builder.asm(signature, "prmt.b32 $0, $1, 0, 0x0123;", "=r,r", [loaded], False)


def _leading_zeros(_context: Any, builder: Any, word: Any) -> Any:
    """Count the leading zeros of a word; for 0 return the number of its bits."""
    return builder.ctlz(word, ir.Constant(ir.IntType(1), 0))


leading_zeros = _unary(types.uint64, types.uint64)(_leading_zeros)
leading_zeros_of_word = _unary(types.int32, types.uint32)(_leading_zeros)


def _pointer(context: Any, builder: Any, address: Any, kind: ir.Type) -> Any:
    """Convert an address to a pointer; on a GPU to global memory, to need fewer registers."""
    return builder.inttoptr(address, kind.as_pointer(_GLOBAL if _is_cuda(context) else 0))


def _load(kind: ir.Type, context: Any, builder: Any, address: Any) -> Any:
    return builder.load(_pointer(context, builder, address, kind), typ=kind)


def _store(kind: ir.Type, context: Any, builder: Any, address: Any, value: Any) -> Any:
    builder.store(value, _pointer(context, builder, address, kind))
    return context.get_dummy_value()


load_int64 = _unary(types.int64, types.int64)(partial(_load, _WORD))
load_int32 = _unary(types.int32, types.int64)(partial(_load, _INT))
load_uint8 = _unary(types.uint8, types.int64)(partial(_load, _BYTE))
load_float32 = _unary(types.float32, types.int64)(partial(_load, _FLOAT))
load_float64 = _unary(types.float64, types.int64)(partial(_load, _DOUBLE))
store_int64 = _binary(types.void, types.int64, types.int64)(partial(_store, _WORD))
store_float32 = _binary(types.void, types.int64, types.float32)(partial(_store, _FLOAT))
store_float64 = _binary(types.void, types.int64, types.float64)(partial(_store, _DOUBLE))
store_int32 = _binary(types.void, types.int64, types.int32)(partial(_store, _INT))
store_int16 = _binary(types.void, types.int64, types.int16)(partial(_store, _SHORT))
store_uint8 = _binary(types.void, types.int64, types.uint8)(partial(_store, _BYTE))


def _cast(kind: ir.Type, _context: Any, builder: Any, bits: Any) -> Any:
    return builder.bitcast(bits, kind)


float32_of_bits = _unary(types.float32, types.int32)(partial(_cast, _FLOAT))
bits_of_float32 = _unary(types.int32, types.float32)(partial(_cast, _INT))
float64_of_bits = _unary(types.float64, types.uint64)(partial(_cast, _DOUBLE))


def _product(kind: ir.Type, letter: str, context: Any, builder: Any, a: Any, b: Any) -> Any:
    """Multiply without fusing a sum: a GPU would round once where a CPU rounds twice."""
    if not _is_cuda(context):
        return builder.fmul(a, b)
    ptx = f"mul.rn.f{32 if kind == _FLOAT else 64} $0, $1, $2;"
    signature = ir.FunctionType(kind, (kind, kind))
    return builder.asm(signature, ptx, f"={letter},{letter},{letter}", (a, b), side_effect=False)


def _quotient(_context: Any, builder: Any, a: Any, b: Any) -> Any:
    """Divide as in IEEE 754, without Python's check for 0, which would prevent vectors."""
    return builder.fdiv(a, b)


product32 = _binary(types.float32, types.float32, types.float32)(partial(_product, _FLOAT, "f"))
product64 = _binary(types.float64, types.float64, types.float64)(partial(_product, _DOUBLE, "d"))
quotient32 = _binary(types.float32, types.float32, types.float32)(_quotient)
quotient64 = _binary(types.float64, types.float64, types.float64)(_quotient)
