"""What numba lacks for reading bit streams: loads from an address, and counting leading zeros."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """Make a pointer of an address: numba cannot view the bytes of DALI's arrays as numbers."""
    del typing_context

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), codegen


@intrinsic
def load_big_endian(typing_context: Any, address: Any) -> Any:
    """Load 8 bytes from any address as a big-endian uint64. The caller answers for the bounds."""
    del typing_context

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        source = builder.inttoptr(args[0], word.as_pointer())
        return builder.bswap(builder.load(source, align=1, typ=word))

    return types.uint64(types.uintp), codegen


@intrinsic
def leading_zeros(typing_context: Any, word: Any) -> Any:
    """Count the leading zeros of a uint64; 64 for 0."""
    del typing_context, word

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen
