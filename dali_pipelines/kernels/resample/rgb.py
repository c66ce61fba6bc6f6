"""Weighted sum of RGB pixels in one vector register.

numba has no vector types, and does not run the pass of LLVM that would combine the three sums.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.containers import UniTuple
from numba.extending import intrinsic

_FLOAT, _LANES = ir.FloatType(), 4
_VECTOR = ir.VectorType(_FLOAT, _LANES)
_INDICES = ir.VectorType(ir.IntType(32), _LANES)


@intrinsic
def sum_rgb(typing_context: Any, pixels: Any, weights: Any, count: Any) -> Any:
    """Sum pixels multiplied by their weights.

    Parameters
    ----------
    pixels : int
        Address of the red, green and blue of the first pixel, float32. One value after the last
        pixel is also read.
    weights : int
        Address of the first weight, float32.
    count : int
        Number of pixels.

    Returns
    -------
    red, green, blue : float32
    """
    del typing_context, pixels, weights, count

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pixels, weights, count = args
        first = builder.inttoptr(pixels, _FLOAT.as_pointer())
        weight = builder.inttoptr(weights, _FLOAT.as_pointer())
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        total = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * _LANES))
        with cgutils.for_range(builder, count) as loop:
            place = builder.mul(loop.index, ir.Constant(loop.index.type, 3))
            pixel = builder.gep(first, [place], source_etype=_FLOAT)
            pixel = builder.bitcast(pixel, _VECTOR.as_pointer())
            factor = builder.load(builder.gep(weight, [loop.index], source_etype=_FLOAT))
            factor = builder.insert_element(undefined, factor, ir.Constant(ir.IntType(32), 0))
            factor = builder.shuffle_vector(factor, undefined, ir.Constant(_INDICES, [0] * _LANES))
            product = builder.fmul(
                builder.load(pixel, align=4, typ=_VECTOR), factor, flags=("contract",)
            )
            product = builder.fadd(builder.load(total), product, flags=("contract",))
            builder.store(product, total)
        found = builder.load(total)
        values = [
            builder.extract_element(found, ir.Constant(ir.IntType(32), one)) for one in range(3)
        ]
        return context.make_tuple(builder, signature.return_type, values)

    returned = UniTuple(types.float32, 3)
    return returned(types.int64, types.int64, types.int64), codegen
