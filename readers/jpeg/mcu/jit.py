"""Decorator of this folder's compiled functions, see `readers.cache.jit`."""

from __future__ import annotations

from pathlib import Path

from readers.cache.jit import Jit

JIT = Jit(Path(__file__).parent.glob("*.py"))
njit = JIT.njit
