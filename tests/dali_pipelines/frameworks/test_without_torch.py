"""Only the framework whose batches are asked for is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_PROGRAM = """
import sys
import numpy as np

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked")

sys.meta_path.insert(0, Blocked())

def main(framework, folder):
    from dali_pipelines import Index, Loader, npy_pipeline
    index = Index.scan(folder)
    settings = {"num_read_processes": 1, "framework": framework}
    with Loader(npy_pipeline, index, batch_size=4, **settings) as loader:
        kept = [batch for epoch in range(3) for [batch] in loader]
    rows = np.concatenate([batch["row"] for batch in kept])
    assert rows.dtype == np.int64 and sorted(rows.tolist()) == sorted([*range(23)] * 3)
    for batch in kept:  # the pixels of each file are its row
        assert (np.asarray(batch["image"])[:, 0].T == batch["row"]).all()
    if framework == "jax":
        train(npy_pipeline, index, settings)
    assert {"jax", "torch"} & set(sys.modules) == {framework} - {"numpy"}
    try:
        Loader(npy_pipeline, index, batch_size=4)
    except ImportError as error:
        print(error)

def train(factory, index, settings):
    import jax
    from dali_pipelines import Loader
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.P("batch"))
    grad = jax.jit(jax.grad(lambda a, image, row: ((a * image[:, 0, 0, 0] - row) ** 2).mean()))
    a = 0.0
    with Loader(factory, index, batch_size=4, sharding=sharding, tail="drop", **settings) as loader:
        for epoch in range(3):
            for batch in loader:
                assert len(batch["image"].sharding.device_set) == 2
                a -= 0.001 * grad(a, batch["image"], batch["row"])
    assert abs(a - 1) < 0.1, a

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_a_loop_never_imports_torch(framework: str, npy_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(_PROGRAM)
    found = subprocess.run(
        [sys.executable, script, framework, npy_folder],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "torch is blocked\n"), found.stderr
