"""What may happen while DALI starts readers, and how it ends."""

from __future__ import annotations

import errno
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.popen_fork
import multiprocessing.util
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import pytest
from nvidia.dali._multiproc.pool import ProcPool

from dali_pipelines import Index, Loader, ReaderProcessError, npy_pipeline
from dali_pipelines.runtime.processes.reader_pool import started_readers
from dali_pipelines.settings import StartMethod

LIMIT_S = 60


def make(index: Index, start_method: StartMethod, **config: Any) -> Loader:
    return Loader(
        npy_pipeline, index, batch_size=4, devices=[None], start_method=start_method, **config
    )


@pytest.mark.timeout(60)
def test_a_dead_reader_is_noticed_while_it_is_sent_more_than_a_socket_holds(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = ProcPool._send_queue_handles

    def kill_and_send(pool: Any, sockets: Any) -> None:
        os.kill(pool._processes[-1].pid, signal.SIGKILL)
        send(pool, sockets)

    monkeypatch.setattr(ProcPool, "_send_queue_handles", kill_and_send)
    # 320 handles of shared memory, and a socket holds 278 messages.
    loader = make(npy_index, "forkserver", num_read_processes=2, prefetch=80)
    with pytest.raises(ReaderProcessError, match="killed from outside"):
        loader.start()


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


def test_a_process_that_is_forked_while_another_thread_starts_readers_can_start_its_own() -> None:
    started, go_on = threading.Event(), threading.Event()

    def start() -> None:
        with started_readers():
            started.set()
            go_on.wait()

    thread = threading.Thread(target=start)
    thread.start()
    started.wait()
    try:
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT_S)
            with started_readers():
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        go_on.set()
        thread.join()


def test_other_threads_terminate_their_processes_meanwhile() -> None:
    def run() -> None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        ready.send(None)
        signal.pause()

    receiver, ready = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    receiver.recv()
    with started_readers():
        thread = threading.Thread(target=process.terminate)
        thread.start()
        thread.join()
    process.join(LIMIT_S)
    assert process.exitcode == 7


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
