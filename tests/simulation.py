"""Run operators of the GPU in numba's CUDA simulator, which wants a process of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent


def simulated(operator: str, jobs: list[tuple[Any, ...]]) -> list[Any]:
    """Call an operator of tests/dali_pipelines/simulated.py with each job's arguments."""
    long = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
    found = subprocess.run(
        [sys.executable, str(TESTS / "dali_pipelines" / "simulated.py"), operator],
        input=pickle.dumps(jobs),
        stdout=subprocess.PIPE,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(TESTS.parent)},
        timeout=3600 if long else 200,
        check=True,
    )
    return pickle.loads(found.stdout)
