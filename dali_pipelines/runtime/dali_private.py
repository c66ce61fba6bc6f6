"""All private parts of DALI that this project uses; no other module uses any.

They are those of DALI 2.4.0. Importing this module checks that they exist, and a test checks that
no other module names them. If DALI 2.5 differs, change this file and `SUPPORTED`.
"""

from __future__ import annotations

import ctypes
import os
import pkgutil
import sys
from functools import cache
from typing import Any

import nvidia.dali
import nvidia.dali.fn
from nvidia.dali import Pipeline, types

SUPPORTED = "nvidia-dali-cuda120>=2.4,<2.5"
"""The requirement in pyproject.toml."""


def _private(name: str) -> Any:
    """Return a private part of DALI by its name, ``module:attribute``, or raise ImportError."""
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise _unsupported(name) from error


def _unsupported(name: str) -> ImportError:
    return ImportError(
        f"DALI {nvidia.dali.__version__} has no {name.replace(':', '.')}, which dali_pipelines "
        f"needs: pip install '{SUPPORTED}'"
    )


# The graph.

_split: Any = _private("nvidia.dali.fn:_conditional.split")
_merge: Any = _private("nvidia.dali.fn:_conditional.merge")


def split(node: Any, where: Any) -> tuple[Any, Any]:
    """Split a batch in two: the samples for which a DataNode of bool is True, and the others.

    DALI does this for an ``if`` in a function with `enable_conditionals`, and has no public
    operator for it. `merge` is the counterpart.
    """
    true, false = _split(node, predicate=where, _if_stmt=True)
    return true, false


def merge(true: Any, false: Any, where: Any) -> Any:
    """Merge the two batches that `split` returned."""
    return _merge(true, false, predicate=where)


def random_operator(node: Any) -> str | None:
    """Return the name of a random operator of DALI on which a DataNode depends, or None."""
    seen, waiting = set(), [node]
    while waiting:
        operator = getattr(waiting.pop(), "source", None)
        if operator is None or id(operator) in seen:
            continue
        seen.add(id(operator))
        schema = operator._op.schema
        if schema.HasRandomSeedArg():
            return ".".join((*schema.ModulePath(), schema.OperatorName()))
        waiting += operator.inputs
    return None


if _private("nvidia.dali.backend:TryGetSchema")("NumbaFuncImpl") is None:
    raise _unsupported("nvidia.dali.ops:NumbaFuncImpl")
CompiledFunction: Any = _private("nvidia.dali.ops:python_op_factory")(
    "CompiledFunction", "NumbaFunction", "NumbaFuncImpl"
)
"""DALI's operator that calls compiled functions on the CPU, by their addresses.

`nvidia.dali.plugin.numba` also has this operator, but compiles the functions itself, and imports
numba for CUDA.
"""


# The pipeline.

if "_pipe" not in _private("nvidia.dali:Pipeline._shutdown").__code__.co_names:
    raise _unsupported("nvidia.dali:Pipeline._pipe")


class ForkSafePipeline(Pipeline):
    """A Pipeline that a forked copy of its process can drop."""

    started_in: int | None = None
    """Process that started the reader processes."""
    _pipe: Any = None  # until it is made

    def shut_down(self) -> None:
        """Free the graph; the pipeline cannot be used any more."""
        self._shutdown()

    def _shutdown(self) -> None:
        if self.started_in not in (None, os.getpid()) and self._pipe:
            # A forked process has no copies of the graph's threads. If it freed the graph, it would
            # wait for them forever.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._pipe))
            self._pipe = None
        super()._shutdown()


def allow_unsigned_tensors() -> None:
    """Let DALI's iterators for PyTorch, if they are imported, convert uint16, uint32 and uint64."""
    if "nvidia.dali.plugin.pytorch" in sys.modules:
        _add_unsigned()


@cache
def _add_unsigned() -> None:
    """Add the entries that the table of these iterators lacks."""
    table = _private("nvidia.dali.plugin.pytorch.torch_utils:to_torch_type")
    torch = sys.modules["torch"]
    table.setdefault(types.UINT16, torch.uint16)
    table.setdefault(types.UINT32, torch.uint32)
    table.setdefault(types.UINT64, torch.uint64)
