"""What may happen while readers are started, and how it ends."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.popen_fork
import multiprocessing.util
import os
import signal
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import pytest
from gpu_memory import FakeCuda

from dali_pipelines import (
    Index,
    Loader,
    PipelineConfig,
    ReaderPipeline,
    ReaderProcessError,
    decode_array,
    npy_pipeline,
    reader_pipeline,
)
from dali_pipelines.runtime.processes.reader_pool import ReaderPool
from dali_pipelines.settings import StartMethod
from readers import NpyReader

LIMIT_S = 60


def make(index: Index, start_method: StartMethod, **config: Any) -> Loader:
    return Loader(
        npy_pipeline, index, batch_size=4, devices=[None], start_method=start_method, **config
    )


class Deadly(NpyReader):
    """Kills its process when it arrives there."""

    def __setstate__(self, state: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def __getstate__(self) -> Any:
        return {"a": 1}


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_reader_that_dies_while_it_starts(npy_index: Index, start_method: StartMethod) -> None:
    def factory(index: Index, **config: Any) -> ReaderPipeline:
        return reader_pipeline(index, Deadly(), decode_array, PipelineConfig(**config))

    loader = Loader(factory, npy_index, batch_size=4, devices=[None], start_method=start_method)
    with pytest.raises(ReaderProcessError, match="killed from outside"):
        loader.start()


@pytest.mark.slow
def test_tasks_and_answers_that_do_not_fit_into_the_socket(npy_index: Index) -> None:
    """Readers wait until answers are received, and take no tasks meanwhile."""
    settings: dict[str, Any] = {"batch_size": 1, "prefetch": 1000, "num_read_processes": 2}
    with Loader(
        npy_pipeline, npy_index, devices=[None], framework="numpy", shuffle=False, **settings
    ) as loader:
        for _ in range(2):
            rows = [row for (batch,) in loader for row in batch["row"].tolist()]
            assert rows == list(range(len(npy_index)))


def fail_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail as fork() does where there may be no more processes."""
    start = BaseProcess.start

    def start_two(process: BaseProcess) -> None:
        if process.name.endswith("3"):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        start(process)

    monkeypatch.setattr("multiprocessing.process._process_counter", iter(range(1, 9)))
    monkeypatch.setattr(BaseProcess, "start", start_two)


def interrupt_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C come between a fork and the note of it."""
    launch = multiprocessing.popen_fork.Popen._launch  # type: ignore[attr-defined]

    def launch_and_lose(popen: Any, process: BaseProcess) -> None:
        launch(popen, process)
        if process.name.endswith("2"):
            raise KeyboardInterrupt

    monkeypatch.setattr("multiprocessing.process._process_counter", iter(range(1, 9)))
    monkeypatch.setattr(multiprocessing.popen_fork.Popen, "_launch", launch_and_lose)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("fail", [fail_to_start, interrupt_a_fork])
def test_a_start_that_fails_leaves_no_reader(
    npy_index: Index,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[pytest.MonkeyPatch], None],
) -> None:
    before = psutil.Process().children()
    loader = make(npy_index, "fork", num_read_processes=3)
    handler = signal.signal(signal.SIGTERM, lambda *_: None)  # which forked readers have at first
    try:
        with monkeypatch.context() as patch:
            fail(patch)
            with pytest.raises((BlockingIOError, KeyboardInterrupt)):
                loader.start()
    finally:
        signal.signal(signal.SIGTERM, handler)
    left = [child for child in psutil.Process().children() if child not in before]
    assert psutil.wait_procs(left, LIMIT_S)[1] == []
    with loader:
        assert next(iter(loader))


def test_a_fork_server_that_can_have_no_socket(
    npy_index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux allows 107 characters for its name."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    process: Any = multiprocessing.current_process()
    monkeypatch.delitem(process._config, "tempdir", raising=False)
    monkeypatch.setattr(
        "multiprocessing.forkserver.ensure_running",
        multiprocessing.forkserver.ForkServer().ensure_running,
    )
    with pytest.raises(OSError, match="xx, is too long; set TMPDIR"):
        make(npy_index, "forkserver").start()


def test_ctrl_c_before_a_spawned_reader_has_imported_anything(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal sends it to all processes; the readers leave it to this one."""
    spawn = multiprocessing.util.spawnv_passfds

    def interrupted(*args: Any) -> int:
        pid = spawn(*args)
        os.kill(pid, signal.SIGINT)
        return pid

    resource_tracker.ensure_running()
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", interrupted)
    with make(npy_index, "spawn", num_read_processes=1) as loader:
        assert sum(len(batch["row"]) for (batch,) in loader) == len(npy_index)


@pytest.mark.parametrize(
    ("on_gpu", "outputs_come", "most"),
    [(False, False, 2), (True, True, 3), (True, False, 9)],
)
def test_a_slot_is_used_again_when_its_batch_is_dropped_and_on_a_gpu_has_come_out(
    npy_index: Index, on_gpu: bool, outputs_come: bool, most: int
) -> None:
    source = npy_pipeline(npy_index, batch_size=4, device_id=None).source
    cuda: Any = FakeCuda(most=0) if on_gpu else None
    pool = ReaderPool(source, 1, "forkserver", ahead=1, cuda=cuda)
    pool.start()
    row = [spec.name for spec in source.specs].index("row")
    places = set()
    for _ in range(9):
        batch = pool()
        places.add(batch[row].data_ptr())
        del batch
        if outputs_come:
            pool.note_outputs()
    assert pool.readers is not None
    pool.readers.close()
    assert len(places) == most


def slabs(pid: int) -> int:
    """Return the number of slabs with memory that a process has open."""
    folder = Path(f"/proc/{pid}/fd")
    found = [fd.stat() for fd in folder.iterdir() if "memfd:samples" in os.readlink(fd)]
    return len({stat.st_ino for stat in found if stat.st_blocks})


def test_memory_is_given_back_at_the_end_although_other_readers_were_forked_meanwhile(
    npy_index: Index,
) -> None:
    first = make(npy_index, "fork", num_read_processes=1)
    for _ in first:
        pass
    before = psutil.Process().children()
    with make(npy_index, "fork", num_read_processes=1) as second:
        list(second)
        (reader,) = (child for child in psutil.Process().children() if child not in before)
        assert slabs(reader.pid) == 2
        first.close()
        gc.collect()
        assert slabs(reader.pid) == 1
        assert sum(len(batch["row"]) for (batch,) in second) == len(npy_index)


def test_a_forked_copy_does_not_take_the_memory_away(npy_index: Index) -> None:
    with make(npy_index, "fork", num_read_processes=1) as loader:
        expected = [batch["image"].clone() for (batch,) in loader]
        if (pid := os.fork()) == 0:
            loader.close()
            gc.collect()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert len([batch for (batch,) in loader]) == len(expected)
