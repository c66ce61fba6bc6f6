"""The memory of a batch is used again for the next: the kernel gives no new pages."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dali_pipelines import Index, npy_pipeline
from dali_pipelines.runtime.malloc_pool import outputs_kept

VARIABLE = "DALI_MALLOC_POOL_THRESHOLD"
PIXELS, BATCH, RUNS = 1024, 4, 20
PAGES = PIXELS * PIXELS * 4 * BATCH // 4096

SCRIPT = f"""
import resource, sys
from dali_pipelines import Index, npy_pipeline

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if __name__ == "__main__":
    index = Index.scan(sys.argv[1])
    pipeline = npy_pipeline(index, batch_size={BATCH}, device_id=None, num_read_processes=1)
    pipeline.build()
    for _ in range(6):
        pipeline.run()
    before = page_faults()
    for _ in range({RUNS}):
        pipeline.run()
    print(page_faults() - before)
    pipeline.close()
"""


@pytest.mark.slow
def test_no_new_pages(tmp_path: Path) -> None:
    for number in range(BATCH):
        np.save(f"{tmp_path}/{number}.npy", np.full((PIXELS, PIXELS), number, np.float32))
    # Not a `Job`: glibc would keep the memory there, whatever DALI does.
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    # On a machine that is busy, one more batch may be under way than was in the first six.
    assert int(found.stdout) < RUNS * PAGES / 4


def test_the_variable_is_set_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with outputs_kept():
        assert os.environ[VARIABLE] == "1M"
    assert VARIABLE not in os.environ


def test_a_user_s_own_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "16M")
    with outputs_kept():
        assert os.environ[VARIABLE] == "16M"
    assert os.environ[VARIABLE] == "16M"


def test_runs_leave_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DALI builds in each run what is built already; other threads may read the environment."""
    np.save(f"{tmp_path}/0.npy", np.ones((2, 2), np.float32))
    index = Index.scan(tmp_path)
    with closing(npy_pipeline(index, batch_size=1, num_read_processes=0)) as pipeline:
        pipeline.build()
        monkeypatch.delattr("dali_pipelines.graph.pipeline.outputs_kept")
        pipeline.run()
