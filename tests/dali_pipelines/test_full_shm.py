"""/dev/shm is full: run.py refuses beforehand, and a Loader says what its reader died of."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import SCRIPTS, run
from private_shm import private_shm

pytestmark = pytest.mark.slow

RUN = SCRIPTS / "run.py"

CONSUMER = """
def main():
    import sys, time
    from dali_pipelines import Index, Loader, npy_pipeline
    index = Index.scan(sys.argv[1])
    for start_method in sys.argv[2:]:
        with Loader(npy_pipeline, index, batch_size=4, num_read_processes=2,
                    devices=[None], start_method=start_method) as loader:
            loader.start()
            began = time.monotonic()
            try:
                for _ in loader:
                    pass
            except RuntimeError as error:
                print(time.monotonic() - began, type(error).__name__, error)

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


def test_a_reader_that_finds_no_room(archive: Path, tmp_path: Path) -> None:
    script = tmp_path / "consumer.py"
    script.write_text(CONSUMER)
    command = [sys.executable, str(script), str(archive), "spawn", "forkserver"]
    found = run(command, preexec_fn=private_shm("6m"))
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        seconds, kind, message = line.split(maxsplit=2)
        assert float(seconds) < 60, "a reader without room must not hang its Loader"
        assert kind == "ReaderProcessError"
        assert "/dev/shm" in message


@pytest.mark.parametrize("spare", [None, 64 << 10], ids=["later", "at the start"])
def test_the_reason_is_not_lost_in_a_traceback(
    archive: Path, tmp_path: Path, spare: int | None
) -> None:
    """What DALI was doing at the time is of no use to anybody."""
    script = tmp_path / "consumer.py"
    script.write_text(CONSUMER.replace("except RuntimeError", "except ZeroDivisionError"))
    taken = 0 if spare is None else 6 * 1048576 - spare
    command = [sys.executable, str(script), str(archive), "forkserver"]
    found = run(command, preexec_fn=private_shm("6m", taken))
    assert found.returncode == 1
    lines = found.stderr.splitlines()
    assert "/dev/shm" in lines[-1]
    assert len(lines) < 30, found.stderr
    assert "nvidia" not in found.stderr


def test_a_run_that_cannot_fit(tmp_path: Path) -> None:
    from astropy.io import fits

    for row in range(4):
        image = fits.PrimaryHDU(np.full((1024, 1024), row, np.int16))
        image.writeto(tmp_path / f"{row}.fits")
    command = [sys.executable, str(RUN), f"--data={tmp_path}", "--device=cpu", "--batch_size=4"]
    found = run(command, preexec_fn=private_shm("6m"))
    assert found.returncode == 2
    assert re.search(r"32 MiB.*/dev/shm.*6 MiB", found.stderr)


FULL = """
import os, shutil, sys
from pathlib import Path
from dali_pipelines import Index, npy_pipeline
full = Path("/dev/shm/full")
for spare in map(int, sys.argv[2:]):
    pipeline = npy_pipeline(Index.scan(sys.argv[1]), batch_size=4, device_id=None)
    with full.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage("/dev/shm").free - spare)
    try:
        pipeline.build()
    except OSError as error:
        print(error)
    full.unlink()
"""


def test_a_consumer_that_finds_no_room(archive: Path) -> None:
    """For semaphores, or for the tasks that it would write for its readers."""
    command = [sys.executable, "-c", FULL, str(archive), "0", str(64 << 10)]
    found = run(command, preexec_fn=private_shm("6m"))
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "/dev/shm is full" in line
