"""Damaged chunks end no process, and are refused where that can be seen.

``FUZZED_CHUNKS=20000 pytest tests/readers/chunks/test_damaged_chunks.py`` damages as many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CHUNKS = int(os.environ.get("FUZZED_CHUNKS", "400"))


def test_damaged_chunks(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "damaged_chunks", str(tmp_path), str(CHUNKS), "1"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": tests, "PYTHONWARNINGS": "ignore"},
        timeout=max(300, CHUNKS / 10),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert sum(found.values()) == CHUNKS
    assert found["refused"] > CHUNKS / 5
