"""Kernels whose parts are compiled into them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jobs import run
from numba import types

from dali_pipelines.kernels.fits.tile_geometry import number
from readers.cache import parts

SCRIPT = """
import numpy as np
from numba.core.registry import cpu_target
from dali_pipelines.kernels.compiled import compiled, inlined, optimized

@inlined
def added(a, b):
    return a + b

@optimized
def total(values, start):
    for value in values:
        start = added(start, value)
    return start

@compiled
def kernel(values):
    return total(values, 1) + total(values, 10) + added(values[0], np.int16(2))

if __name__ == "__main__":
    print(kernel(np.array([3, 4], np.int64)), total(np.array([1.5, 2.0]), 0.5))
    print([len(made._part.overloads) for made in (kernel, total, added)])
    print([len(made.overloads) for made in (kernel, total, added)])
    print(*(sum(made.stats.cache_misses.values()) for made in (kernel, total)))
    print(*(sum(made._part.stats.cache_misses.values()) for made in (total, added)))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def lines_of(script: Path) -> list[str]:
    done = run([sys.executable, str(script)])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_parts_are_compiled_into_what_python_calls_and_kept(script: Path) -> None:
    first = lines_of(script)
    assert first[:3] == [
        f"{8 + 17 + 5} 4.0",
        "[0, 1, 3]",  # one of `total` for both constants; one of `added` for each type
        "[1, 1, 0]",
    ]
    assert first[3:] == ["1 1", "1 3"]
    second = lines_of(script)
    assert second[0] == first[0]
    assert second[3:] == ["0 0", "0 0"]  # nothing is compiled, and parts are not even asked for


def test_parts_have_no_code_of_their_own() -> None:
    arguments = (types.int64, types.int64)
    number._part.compile(arguments)
    part = number._part.overloads[arguments]
    assert isinstance(part.library, parts._Part)
    assert not part.library._codegen._engine.is_symbol_defined(part.fndesc.llvm_func_name)
    number.compile(arguments)
    whole = number.overloads[arguments]
    assert whole.library._codegen._engine.is_symbol_defined(whole.fndesc.llvm_func_name)
