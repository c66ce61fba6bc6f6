"""PyArrow, imported when it is first used: reader processes do without it.

`pa` is ``pyarrow``, and `pc` is ``pyarrow.compute``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:

    class _Lazy:
        """A module that is imported when one of its attributes is first used."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            found = getattr(import_module(self._name), name)
            setattr(self, name, found)  # the next access is direct
            return found

    pa, pc = _Lazy("pyarrow"), _Lazy("pyarrow.compute")

__all__ = ["pa", "pc"]
