"""Memory for samples: /dev/shm does not matter, limits of a process do, and messages name them."""

from __future__ import annotations

import resource
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from jobs import SCRIPTS, run
from private_shm import private_shm

pytestmark = pytest.mark.slow

GIB = 2**30

CONSUMER = """
def main():
    import sys
    from dali_pipelines import Index, Loader, npy_pipeline
    index = Index.scan(sys.argv[1])
    for start_method in sys.argv[2:]:
        with Loader(npy_pipeline, index, batch_size=4, num_read_processes=2,
                    devices=[None], start_method=start_method) as loader:
            print(sum(len(batch["row"]) for batches in loader for batch in batches))

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 images of 1 MB."""
    folder = tmp_path_factory.mktemp("archive")
    for row in range(16):
        np.save(folder / f"{row:02d}.npy", np.full((512, 512), row, np.float32))
    return folder


@pytest.fixture
def consumer(tmp_path: Path, archive: Path) -> list[str]:
    """A command, without the start methods."""
    script = tmp_path / "consumer.py"
    script.write_text(CONSUMER)
    return [sys.executable, str(script), str(archive)]


def limited(name: str, nbytes: int) -> partial[None]:
    return partial(resource.setrlimit, getattr(resource, name), (nbytes, nbytes))


def test_a_small_shm_is_no_limit(consumer: list[str]) -> None:
    found = run([*consumer, "fork", "forkserver", "spawn"], preexec_fn=private_shm("4k"))
    assert found.stdout.split() == ["16"] * 3, found.stderr


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_FSIZE"])
def test_readers_take_less_address_space_where_a_limit_is_set(
    consumer: list[str], name: str
) -> None:
    """As by schedulers of clusters."""
    found = run([*consumer, "forkserver"], preexec_fn=limited(name, 10 * GIB))
    assert found.stdout.split() == ["16"], found.stderr


def test_a_reader_that_finds_no_room(consumer: list[str]) -> None:
    """Each has 2 MiB for the 2 samples of 1 MiB of a batch, and for those of the next ones."""
    found = run([*consumer, "forkserver"], preexec_fn=limited("RLIMIT_FSIZE", 8 << 20))
    assert found.returncode == 1
    lines = found.stderr.splitlines()
    assert "ReaderProcessError" in lines[-1]
    assert "ulimit -v, -f" in found.stderr
    assert "nvidia" not in found.stderr, "what DALI did at the time is of no use to anybody"


def test_a_run_that_cannot_fit(tmp_path: Path) -> None:
    from astropy.io import fits

    for row in range(4):
        image = fits.PrimaryHDU(np.full((1024, 1024), row, np.int16))
        image.writeto(tmp_path / f"{row}.fits")
    batch_size = 4 << 20
    command = [sys.executable, str(SCRIPTS / "run.py"), f"--data={tmp_path}", "--device=cpu"]
    found = run([*command, f"--batch_size={batch_size}"])
    assert found.returncode == 2
    assert "batch_size" in found.stderr
    assert "free" in found.stderr
