"""Commands whose files are read by the workers of Dask, and of MPI."""

from __future__ import annotations

import filecmp
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import numpy as np
import pytest
from astropy.io import fits
from deadly import die_of
from distributed import Client, LocalCluster

from dali_pipelines.cli.index.main import main as index
from dali_pipelines.cli.prep.main import main as prep
from dali_pipelines.parallel.interpreter import Crash
from dali_pipelines.parallel.task_map import isolated_map

# Dask warns of machines that are slow, have no network, or other versions.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]
ROWS = 70


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files for three tasks; keys have other types in each; one file is none, one is cut off."""
    folder = tmp_path_factory.mktemp("archive")
    for row in range(ROWS):
        header = fits.Header({"WAVELNTH": (171, 1.5, "a")[row // 30], "EXPTIME": row})
        image = fits.CompImageHDU(np.full((20, 24), row, np.int16), header)
        image.writeto(folder / f"{row:02d}.fits")
    (folder / "text.fits").write_text("not FITS")
    (folder / "cut.fits").write_bytes((folder / "00.fits").read_bytes()[:6000])
    return folder


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, each a process with a thread."""
    # Without a limit of memory: by default it is the machine's for each core, which may be little.
    settings = {"threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
    with (
        mock.patch.dict(os.environ),  # Dask sets variables for its workers, and leaves them
        LocalCluster(n_workers=2, **settings) as cluster,
        Client(cluster.scheduler_address, set_as_default=False) as found,
    ):
        yield found


def kill_one(marker: str) -> None:
    """Let a worker kill itself while it reads a file, but only one of all workers."""
    from readers import header_scan

    facts = header_scan.file_facts

    def deadly(place: Any, *settings: Any, **more: Any) -> Any:
        if place.name.endswith("40.fits") and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return facts(place, *settings, **more)

    header_scan.file_facts = deadly  # type: ignore[assignment]


def test_two_indexes_at_once_by_workers_of_which_one_is_killed(
    archive: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = [str(archive), "--keys=WAVELNTH,EXPTIME"]
    assert index([*flags, "-o=one.arrow", "--rejected=one.csv", "--num_processes=1"]) == 0
    client.run(kill_one, str(tmp_path / "killed"))
    dask_flag = f"--executor=dask://{client.scheduler.address.removeprefix('tcp://')}"
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(index, [*flags, "-o=other.arrow"], executor=client.get_executor())
        assert index([*flags, "-o=two.arrow", "--rejected=two.csv", dask_flag]) == 0
        assert other.result() == 0
    assert os.path.exists("killed")
    for first, second in (("one.arrow", "two.arrow"), ("one.csv", "two.csv")):
        assert filecmp.cmp(first, second, shallow=False)
    assert filecmp.cmp("one.arrow", "other.arrow", shallow=False)


def test_a_task_that_kills_its_interpreter_leaves_the_worker_alone(client: Client) -> None:
    client.wait_for_workers(2)  # the test above has killed one
    pids = client.run(os.getpid)
    names = ["a", "deadly1", "b"]
    tasks = ((name,) for name in names)
    found = list(isolated_map(die_of, tasks, 1, client.get_executor(pure=False)))
    assert [None if isinstance(each, Crash) else each for each in found] == [
        None if name.startswith("deadly") else name for name in names
    ]
    assert client.run(os.getpid) == pids


def test_files_that_workers_make_are_those_of_this_machine(
    archive: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # workers are elsewhere
    files = [str(archive / name) for name in ("00.fits", "01.fits", "text.fits")]
    made = ["-o=one", "-o=two"]
    assert prep([*files, "--tiles=16", made[0], "--num_processes=1"]) == 1
    executor = client.get_executor(pure=False)
    assert prep([*files, "--tiles=16", made[1]], executor=executor) == 1
    one, two = (sorted(tmp_path.glob(f"{name}/*")) for name in ("one", "two"))
    assert [path.name for path in one] == ["00.fits", "01.fits", "prep.json"]
    assert [path.name for path in one] == [path.name for path in two]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_a_scheduler_that_does_not_answer(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dask.config.set({"distributed.comm.timeouts.connect": "10ms"}):
        flags = [str(archive), f"-o={tmp_path}/a.arrow", "--executor=dask://127.0.0.1:1"]
        assert index(flags) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "127.0.0.1:1" in err
    assert not list(tmp_path.iterdir())


def test_by_mpi(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    mpi = ["mpiexec", "-n", "2", sys.executable, "-m", "mpi4py.futures", "-m", "dali_pipelines"]
    command = [*mpi, "index", str(archive), "-o=two.arrow", "--executor=mpi"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
    assert index([str(archive), f"-o={tmp_path}/one.arrow"]) == 0
    assert filecmp.cmp(tmp_path / "one.arrow", tmp_path / "two.arrow", shallow=False)
