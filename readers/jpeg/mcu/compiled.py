"""The decorators of the compiled functions of this folder, see `readers.cache.compiled`."""

from __future__ import annotations

from pathlib import Path

from readers.cache.compiled import Compiler
from readers.cache.stamp import stamp_of

_compiler = Compiler(stamp_of(Path(__file__).parent.glob("*.py")))
compiled, expanded = _compiler.compiled, _compiler.expanded
