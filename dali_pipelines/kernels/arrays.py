"""Arrays at an address, for kernels on the CPU."""

from __future__ import annotations

from typing import Any

from numba import carray, types
from numba.extending import intrinsic

from dali_pipelines.kernels.jit import njit


@intrinsic
def _pointer(_typing_context: Any, address: Any) -> Any:
    """Convert an address, an integer, to a ``void *``."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), codegen


@njit(inline="always")
def array_at(address, shape, dtype):  # type: ignore[no-untyped-def]
    """Return a C-contiguous array over the memory at an address, without owning it."""
    return carray(_pointer(address), shape, dtype)
