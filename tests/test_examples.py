"""The examples of the gallery run from beginning to end; test_documents has the snippets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jobs
import pytest

EXAMPLES = sorted((jobs.ROOT / "docs" / "examples").glob("plot_*.py"))
LIMIT_S = 1500

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 60)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "MPLBACKEND": "agg", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(example)]
    found = jobs.run(command, cwd=tmp_path, env=environment, timeout=LIMIT_S)
    assert found.returncode == 0, found.stderr
