"""Commands whose files are read by the workers of an Executor, Dask's among them."""

from __future__ import annotations

import filecmp
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import numpy as np
import pytest
from astropy.io import fits
from deadly import die_of
from distributed import Client, LocalCluster
from distributed.nanny import WorkerProcess
from PIL import Image

from dali_pipelines import with_mcu_rows, with_tiles
from dali_pipelines.cli.index.main import main as index
from dali_pipelines.cli.prep.main import main as prep
from dali_pipelines.cli.verify import compare
from dali_pipelines.cli.verify.main import main as verify
from dali_pipelines.parallel import worker
from dali_pipelines.parallel.process_pool import Crash
from dali_pipelines.parallel.task_map import isolated_map, process_map
from dali_pipelines.parallel.worker import WorkerError
from readers import Index
from readers.contract import Row

# Dask warns of machines that are slow, have no network, or other versions.
pytestmark = pytest.mark.filterwarnings("default")
ROWS = 70
NOTHING = property(lambda _: {}, lambda *_: None)


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
        # With those that Python reads at its start, workers would be no forks, see warm_python.py.
        mock.patch.object(WorkerProcess, "pre_spawn_env", NOTHING, create=True),
        LocalCluster(n_workers=2, **settings) as cluster,
        Client(cluster.scheduler_address, set_as_default=False) as found,
    ):
        yield found


def kill_one(marker: str) -> None:
    """Let a worker kill itself while it reads a file, but only one of all workers."""
    from dali_pipelines.cli.index import scan

    facts = scan._facts

    def deadly(row: Row, *settings: Any) -> Any:
        if row.path.endswith("40.fits") and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return facts(row, *settings)

    scan._facts = deadly  # type: ignore[assignment]


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
    client.wait_for_workers(2)  # of which the test above has killed one
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


class Here(Executor):
    """Does tasks at once in this process, as a worker does them, or fails as one fails."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.futures = error, list[Future[Any]]()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        self.futures.append(future)
        try:
            if self.error is not None:
                raise self.error
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def test_reports_of_workers_are_those_of_this_machine(
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Image.fromarray(np.zeros((9, 7, 3), np.uint8)).save(tmp_path / "a.png")
    files = [tmp_path / "a.png", archive / "00.fits", archive / "text.fits"]
    monkeypatch.setattr(compare, "apart", not_apart)
    assert verify([*map(str, files), "--device=cpu"], executor=Here()) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"{files[1]}  RICE_1  20x24  int16  0  OK"
    assert out.splitlines()[1].startswith(f"{files[2]}  -  -  -  -  REJECTED  ")
    assert out.splitlines()[2:] == [f"{files[0]}  PNG  9x7x3  uint8  0  OK"]
    assert err == "3 files on the CPU: 2 OK, 0 DIFFERS, 1 REJECTED\n"


def not_apart(function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> list[Any]:
    return [function(*task) for task in tasks]


def test_notes_of_workers_are_those_of_threads(archive: Path) -> None:
    files = Index.scan(archive)
    for noted in (with_tiles, with_mcu_rows):
        assert noted(files, executor=Here()).table.equals(noted(files).table)


FAILURES = {
    "other version": "the worker on .* has dali-pipelines 0.0.1, expected 0.0.2: install the same",
    "no folder": "the worker on .* sees no folder /nowhere/far: the files must lie on a file ",
    "not installed": "a worker cannot import what it needs, install the same dali-pipelines th",
    "killed": "the executor has lost a worker: memory?",
    "shut down": "the executor takes no tasks: cannot schedule .* shutdown: give a running one",
    "cannot write": "the worker on .* fails: .*No space left on device",
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_worker_that_fails_is_one_line(
    case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    function: Callable[..., Any] = os.fspath
    task: tuple[Any, ...] = (tmp_path,)
    executor: Executor = Here()
    if case == "other version":
        monkeypatch.setattr("dali_pipelines.parallel.task_map.own_version", lambda: "0.0.2")
        monkeypatch.setattr(worker, "own_version", lambda: "0.0.1")
    elif case == "no folder":
        task = ([Row(0, "/nowhere/far/a.fits")],)
    elif case == "not installed":
        executor = Here(ModuleNotFoundError("No module named 'dali_pipelines'"))
    elif case == "killed":
        executor = Here(BrokenExecutor("memory?"))
    elif case == "shut down":
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
    else:
        function = full
    with pytest.raises(WorkerError, match=FAILURES[case]):
        list(process_map(function, [task], 1, executor))


def full(_: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_cannot_be_sent_is_one_line_and_what_waits_is_cancelled() -> None:
    executor = Here()
    executor.submit = lambda *_: executor.futures.append(Future()) or executor.futures[-1]  # type: ignore[method-assign,func-returns-value]
    results = process_map(os.fspath, iter([(Path(),), (lambda: None,)]), 1, executor)
    with pytest.raises(WorkerError, match=r"a task cannot be sent to the workers: .*pickle"):
        next(results)
    assert [future.cancelled() for future in executor.futures] == [True]


WRONG = {
    "nothing": "--executor=nothing: it is no MODULE:FUNCTION",
    "no_such_module:f": "--executor=no_such_module:f: No module named 'no_such_module'",
    "my_cluster:start": "--executor=my_cluster:start: the function raises KeyError: 'QUEUE'",
    "my_broken:start": "--executor=my_broken:start: its module raises ZeroDivisionError: division",
    "os:getcwd": "--executor=os:getcwd: expected a concurrent.futures.Executor, got '/",
    "dask://127.0.0.1:1": "Timed out trying to connect to tcp://127.0.0.1:1 after 0.01 s",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_names(
    name: str,
    archive: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    modules = tmp_path_factory.mktemp("modules")
    (modules / "my_cluster.py").write_text("def start():\n    raise KeyError('QUEUE')\n")
    (modules / "my_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(modules)
    with dask.config.set({"distributed.comm.timeouts.connect": "10ms"}):
        assert index([str(archive), f"-o={tmp_path}/a.arrow", f"--executor={name}"]) == 2
    _, err = capsys.readouterr()
    assert err.startswith(f"dali-pipelines index: {WRONG[name]}")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_by_mpi(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    mpi = ["mpiexec", "-n", "2", sys.executable, "-m", "mpi4py.futures", "-m", "dali_pipelines"]
    command = [*mpi, "index", str(archive), "-o=two.arrow", "--executor=mpi"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
    assert index([str(archive), f"-o={tmp_path}/one.arrow"]) == 0
    assert filecmp.cmp(tmp_path / "one.arrow", tmp_path / "two.arrow", shallow=False)
