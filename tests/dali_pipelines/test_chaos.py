"""Readers die or stop, runs end anywhere and go on elsewhere: each row once an epoch.

A short form by default; the long form is ``CHAOS_EPOCHS=50 CHAOS_ROWS=200 pytest
tests/dali_pipelines/test_chaos.py --log-cli-level=INFO``.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import Job

pytestmark = pytest.mark.slow

logger = logging.getLogger(__name__)

EPOCHS = int(os.environ.get("CHAOS_EPOCHS", "2"))
ROWS = int(os.environ.get("CHAOS_ROWS", "40"))
BAD = {ROWS // 7: b"", ROWS // 2: b"\x93NUMPY\x01\x00 no header"}
"""Contents of files that cannot be read."""


@pytest.mark.timeout(60 * EPOCHS + 200)
def test_each_row_once_whatever_happens(tmp_path: Path) -> None:
    for row in range(ROWS):
        path = tmp_path / f"{row:04d}.npy"
        np.save(path, np.full((128, 128), row, np.float32))
        if row in BAD:
            path.write_bytes(BAD[row])
    script = Path(__file__).with_name("chaos.py")
    command = [sys.executable, str(script), str(tmp_path), str(EPOCHS)]
    with Job(command, stdout=subprocess.PIPE, text=True) as job:
        out, _ = job.communicate()
    assert job.returncode == 0
    found = json.loads(out)
    seen = {(epoch, row): times for epoch, row, times in found.pop("seen")}
    logger.info("%d epochs of %d rows: %s", EPOCHS, ROWS, found)
    assert found["kills"]
    assert found["rejected"] <= len(BAD)
    assert seen == dict.fromkeys(
        ((epoch, row) for epoch in range(EPOCHS) for row in range(ROWS) if row not in BAD), 1
    )
    assert found["processes"] <= 2
