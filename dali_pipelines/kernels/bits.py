"""Intrinsics that numba lacks: loads and stores at an address, and bits as floats.

They work on the CPU and in numba-cuda, and do not check bounds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_GLOBAL = 1
"""LLVM's number for the global memory of a GPU, which all threads share."""


def _is_cuda(context: Any) -> bool:
    return "CUDA" in type(context).__name__


@intrinsic
def load_big_endian(typing_context: Any, address: Any) -> Any:
    """Load 8 bytes from any address as a big-endian uint64.

    A GPU cannot load across a word boundary and loads two words instead, so up to 15 bytes after
    the address and up to 7 before it must be readable.
    """
    del typing_context

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        if not _is_cuda(context):
            source = builder.inttoptr(args[0], _WORD.as_pointer())
            return builder.bswap(builder.load(source, align=1, typ=_WORD))
        base = builder.and_(args[0], ir.Constant(_WORD, -8))
        bits = builder.shl(builder.and_(args[0], ir.Constant(_WORD, 7)), ir.Constant(_WORD, 3))
        pair = builder.inttoptr(base, _WORD.as_pointer())
        first = builder.bswap(builder.load(pair, align=8, typ=_WORD))
        behind = builder.gep(pair, [ir.Constant(_WORD, 1)], source_etype=_WORD)
        second = builder.bswap(builder.load(behind, align=8, typ=_WORD))
        # Two shifts, because one by 64 is undefined.
        rest = builder.sub(ir.Constant(_WORD, 63), bits)
        low = builder.lshr(builder.lshr(second, ir.Constant(_WORD, 1)), rest)
        return builder.or_(builder.shl(first, bits), low)

    return types.uint64(types.int64), codegen


@intrinsic
def load_big_endian_word(typing_context: Any, address: Any) -> Any:
    """Load 4 bytes from a multiple of 4 as a big-endian uint32."""
    del typing_context, address

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        source = builder.inttoptr(args[0], word.as_pointer())
        loaded = builder.load(source, align=4, typ=word)
        if not _is_cuda(context):
            return builder.bswap(loaded)
        # One instruction; NVVM would emit nine.
        signature = ir.FunctionType(word, (word,))
        return builder.asm(signature, "prmt.b32 $0, $1, 0, 0x0123;", "=r,r", [loaded], False)

    return types.uint32(types.int64), codegen


@intrinsic
def leading_zeros(typing_context: Any, word: Any) -> Any:
    """Count the leading zeros of a uint64; 64 for 0."""
    del typing_context, word

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def leading_zeros_of_word(typing_context: Any, word: Any) -> Any:
    """Count the leading zeros of a uint32; 32 for 0."""
    del typing_context, word

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int32(types.uint32), codegen


def _pointer(context: Any, builder: Any, address: Any, kind: ir.Type) -> Any:
    """Convert an address to a pointer; to global memory on a GPU, which takes fewer registers."""
    return builder.inttoptr(address, kind.as_pointer(_GLOBAL if _is_cuda(context) else 0))


def _loader(number: Any, kind: ir.Type) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        del typing_context

        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.load(_pointer(context, builder, args[0], kind), typ=kind)

        return number(types.int64), codegen

    return load


def _storer(number: Any, kind: ir.Type) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        del typing_context

        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            builder.store(args[1], _pointer(context, builder, args[0], kind))
            return context.get_dummy_value()

        return types.void(types.int64, number), codegen

    return store


load_int64 = _loader(types.int64, _WORD)
load_int32 = _loader(types.int32, ir.IntType(32))
load_uint8 = _loader(types.uint8, ir.IntType(8))
load_float32 = _loader(types.float32, ir.FloatType())
load_float64 = _loader(types.float64, ir.DoubleType())
store_int64 = _storer(types.int64, _WORD)
store_float32 = _storer(types.float32, ir.FloatType())
store_float64 = _storer(types.float64, ir.DoubleType())
store_int32 = _storer(types.int32, ir.IntType(32))
store_int16 = _storer(types.int16, ir.IntType(16))
store_uint8 = _storer(types.uint8, ir.IntType(8))


def _caster(source: Any, target: Any, kind: ir.Type) -> Any:
    @intrinsic
    def cast(typing_context: Any, bits: Any) -> Any:
        del typing_context

        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], kind)

        return target(source), codegen

    return cast


float32_of_bits = _caster(types.int32, types.float32, ir.FloatType())
bits_of_float32 = _caster(types.float32, types.int32, ir.IntType(32))
float64_of_bits = _caster(types.uint64, types.float64, ir.DoubleType())


def _multiplier(number: Any, kind: ir.Type, ptx: str, constraints: str) -> Any:
    @intrinsic
    def multiply(typing_context: Any, a: Any, b: Any) -> Any:
        del typing_context

        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            if not _is_cuda(context):
                return builder.fmul(*args)
            signature = ir.FunctionType(kind, (kind, kind))
            return builder.asm(signature, ptx, constraints, args, side_effect=False)

        return number(number, number), codegen

    return multiply


# A GPU would fuse a product and a sum into one operation, and round once where a CPU rounds twice.
product32 = _multiplier(types.float32, ir.FloatType(), "mul.rn.f32 $0, $1, $2;", "=f,f,f")
product64 = _multiplier(types.float64, ir.DoubleType(), "mul.rn.f64 $0, $1, $2;", "=d,d,d")


@intrinsic
def quotient32(typing_context: Any, a: Any, b: Any) -> Any:
    """Divide float32 by float32 as in IEEE 754; Python's check for 0 would prevent vectors."""
    del typing_context, a, b

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.fdiv(*args)

    return types.float32(types.float32, types.float32), codegen


@intrinsic
def quotient64(typing_context: Any, a: Any, b: Any) -> Any:
    """Divide float64 by float64, like `quotient32`."""
    del typing_context, a, b

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.fdiv(*args)

    return types.float64(types.float64, types.float64), codegen
