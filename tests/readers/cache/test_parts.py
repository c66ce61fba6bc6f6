"""Kernels whose parts are compiled into them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jobs import run

pytestmark = pytest.mark.slow

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
    print([len(made.overloads) for made in (kernel, total, added)])
    print(*(sum(made.stats.cache_misses.values()) for made in (kernel, total)))
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
    # Parts have no code of their own: `added` is in that of others.
    assert first == [f"{8 + 17 + 5} 4.0", "[1, 1, 0]", "1 1"]
    assert lines_of(script) == [*first[:2], "0 0"], "something was compiled again"
