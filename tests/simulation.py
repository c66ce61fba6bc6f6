"""Run operators of the GPU in numba's CUDA simulator, which wants a process of its own."""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent


def simulated(operator: str, jobs: list[tuple[Any, ...]]) -> list[Any]:
    """Call an operator of tests/dali_pipelines/simulated.py with each job's arguments."""
    process = _simulator()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump((operator, jobs), process.stdin)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (EOFError, BrokenPipeError):  # it has printed why
        _simulator.cache_clear()
        raise


@cache
def _simulator() -> subprocess.Popen[bytes]:
    """Start it once for all tests of this process: that takes 2 s."""
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "dali_pipelines" / "simulated.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(TESTS.parent)},
    )
    atexit.register(process.communicate)
    return process
