"""Arrays at an address or in another shape, for kernels on the CPU.

numba has ``carray`` and ``reshape``, but compiles each for each type of array: 0.05 to 0.3 s.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.core.types.containers import BaseTuple
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array


@intrinsic
def array_at(typing_context: Any, address: Any, shape: Any, dtype: Any) -> Any:
    """Return the C-contiguous array at an address; its memory stays that of others."""
    del typing_context
    array = types.Array(dtype.dtype, _axes(shape), "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = builder.inttoptr(args[0], context.get_data_type(array.dtype).as_pointer())
        return _array(context, builder, array, data, signature.args[1], args[1], None, None)

    return array(address, shape, dtype), codegen


@intrinsic
def reshaped(typing_context: Any, array: Any, shape: Any) -> Any:
    """Return a C-contiguous array in another shape, which must have as many values."""
    del typing_context
    if array.layout != "C":
        return None
    view = types.Array(array.dtype, _axes(shape), "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = make_array(array)(context, builder, args[0])
        rest = signature.args[1], args[1], given.meminfo, given.parent
        made = _array(context, builder, view, given.data, *rest)
        return impl_ret_borrowed(context, builder, view, made)

    return view(array, shape), codegen


def _axes(shape: Any) -> int:
    return shape.count if isinstance(shape, BaseTuple) else 1


def _array(
    context: Any,
    builder: Any,
    array: Any,
    data: Any,
    kind: Any,
    shape: Any,
    meminfo: Any,
    parent: Any,
) -> Any:
    """Return an array of that type, from its pointer and the type and value of its shape."""
    kinds, extents = (kind,), [shape]
    if isinstance(kind, BaseTuple):
        kinds, extents = tuple(kind), cgutils.unpack_tuple(builder, shape)
    extents = [
        context.cast(builder, extent, given, types.intp)
        for extent, given in zip(extents, kinds, strict=True)
    ]
    item = context.get_abi_sizeof(context.get_data_type(array.dtype))
    strides = [context.get_constant(types.intp, item)]
    for extent in extents[:0:-1]:
        strides.insert(0, builder.mul(strides[0], extent))
    made = make_array(array)(context, builder)
    populate_array(
        made, data, extents, strides, itemsize=strides[-1], meminfo=meminfo, parent=parent
    )
    return made._getvalue()
