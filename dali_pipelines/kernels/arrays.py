"""Arrays at an address, for kernels on the CPU."""

from __future__ import annotations

from typing import Any

from numba import carray, types
from numba.extending import intrinsic

from dali_pipelines.kernels.jit import njit


@intrinsic
def _pointer(_typing_context: Any, address: Any) -> Any:
    """Return an address, an integer, as a ``void *``."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), codegen


@njit(inline="always")
def array_at(address, shape, dtype):  # type: ignore[no-untyped-def]
    """Return the C-contiguous array at an address, which does not own its memory."""
    return carray(_pointer(address), shape, dtype)
