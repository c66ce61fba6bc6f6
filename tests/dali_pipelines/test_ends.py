"""What becomes of readers that nobody closes: dropped, at exit, and in a forked process."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import le
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes import MarkingReader
from jobs import run
from nvidia.dali import Pipeline

from dali_pipelines import Index, Loader, npy_pipeline
from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import decode_array
from dali_pipelines.graph.pipeline import ReaderPipeline, reader_pipeline

pytestmark = pytest.mark.slow

LIMIT_S = 60.0


def drop_loader(index: Index) -> None:
    loader = Loader(npy_pipeline, index, batch_size=4, devices=[None], start_method="forkserver")
    batches = iter(loader)
    next(batches)
    assert loader.pipelines


def drop_pipeline(index: Index) -> None:
    pipeline = npy_pipeline(index, batch_size=4, device_id=None, start_method="forkserver")
    pipeline.build()
    pipeline.run()


def belongings() -> tuple[int, int, int, set[psutil.Process]]:
    gc.collect()
    me = psutil.Process()
    servers = me.children()
    return (
        me.num_fds(),
        me.num_threads(),
        threading.active_count(),
        {reader for server in servers for reader in server.children()},
    )


@pytest.mark.parametrize("drop", [drop_loader, drop_pipeline])
def test_what_is_dropped_leaves_nothing(npy_index: Index, drop: Callable[[Index], None]) -> None:
    drop(npy_index)  # what stays for good comes with the first
    before = belongings()
    for _ in range(3):
        drop(npy_index)
    began = time.monotonic()
    # Threads of DALI's graph take a moment to go, so that there may have been some before.
    while not all(map(le, after := belongings(), before)):  # type: ignore[arg-type]
        assert time.monotonic() - began < LIMIT_S, (before, after)
        time.sleep(0.05)


OPEN_AT_EXIT = """
import atexit, sys, threading
from dali_pipelines import Index, Loader, npy_pipeline

def refuse(self):
    raise RuntimeError("can't create new thread at interpreter shutdown")  # as Python 3.12 does

if __name__ == "__main__":
    index = Index.scan(sys.argv[1])
    settings = {"batch_size": 4, "start_method": sys.argv[2]}
    loader = Loader(npy_pipeline, index, devices=[None], framework="numpy", **settings)
    batches = iter(loader)
    next(batches)
    pipeline = npy_pipeline(index, device_id=None, **settings)
    pipeline.build()
    atexit.register(setattr, threading.Thread, "start", refuse)
    print(*(process.pid for each in (*loader.pipelines, pipeline) for process in each.processes()))
    sys.exit("the user's own mistake")
"""


def test_no_thread_is_started_at_exit(npy_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(OPEN_AT_EXIT)
    # Not a `Job`, of which more is imported when it ends.
    command = [sys.executable, str(script), str(npy_folder), "fork"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (found.returncode, found.stderr) == (1, "the user's own mistake\n")
    assert not any(psutil.pid_exists(int(pid)) for pid in found.stdout.split())


THREADS_AT_EXIT = """
import sys, threading
from dali_pipelines import Index, Loader, npy_pipeline

def read(loader, has_begun):
    while True:
        for _ in loader:
            has_begun.set()

if __name__ == "__main__":
    index = Index.scan(sys.argv[1])
    settings = {"batch_size": 4, "devices": [None], "framework": "numpy"}
    for _ in range(3):
        has_begun = threading.Event()
        loader = Loader(npy_pipeline, index, num_read_processes=1, **settings)
        threading.Thread(target=read, args=(loader, has_begun), daemon=True).start()
        has_begun.wait()
    sys.exit("the user's own mistake")
"""


def test_daemon_threads_may_read_at_exit(npy_folder: Path, tmp_path: Path) -> None:
    """As those that prefetch do; Python ends them, and DALI then aborted the process."""
    script = tmp_path / "script.py"
    script.write_text(THREADS_AT_EXIT)
    for _ in range(2):
        command = [sys.executable, str(script), str(npy_folder)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert (found.returncode, found.stderr) == (1, "the user's own mistake\n")


FORKING = """
import gc, multiprocessing, os, sys
if __name__ != "__mp_main__":  # not in readers, for each of which it takes 1.7 s
    import torch
    from dali_pipelines import Index, Loader, npy_pipeline

def exit_at_once(loader, batches):
    sys.exit(0)

def fail(loader, batches):
    raise KeyError("the child's own mistake")

def close_and_drop(loader, batches):
    loader.close()
    del loader, batches
    gc.collect()
    os._exit(0)

def drop(loader, batches):
    pipelines = list(loader.pipelines)
    loader.__dict__.clear()
    del loader, batches, pipelines
    gc.collect()
    os._exit(0)

def go_on(loader, batches):
    try:
        next(batches)
    except RuntimeError as error:
        os.write(1, f"{error}\\n".encode())
    try:
        next(iter(loader))
    except RuntimeError as error:
        os.write(1, f"{error}\\n".encode())
    os._exit(0)

def go_on_with_pipeline(loader, batches):
    try:
        pipeline.run()
    except RuntimeError as error:
        os.write(1, f"{error}\\n".encode())
    os._exit(0)

def start_anew(loader, batches):
    loader.close()
    index = Index.scan(sys.argv[1])
    with Loader(npy_pipeline, index, batch_size=4, devices=[None], start_method="fork") as other:
        for [batch] in other:
            pass
    os._exit(0)

def main():
    global pipeline
    settings = {"batch_size": 4, "num_read_processes": 1, "start_method": sys.argv[2]}
    index = Index.scan(sys.argv[1])
    loader = Loader(npy_pipeline, index, devices=[None], **settings)
    pipeline = npy_pipeline(index, device_id=None, **settings)
    pipeline.build()
    batches = iter(loader)
    rows = next(batches)[0]["row"].tolist()
    for act in exit_at_once, fail, close_and_drop, drop, go_on, go_on_with_pipeline, start_anew:
        child = os.fork()
        if child == 0:
            sys.stderr = open(os.devnull, "w")
            act(loader, batches)
        print(act.__name__, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    process = multiprocessing.get_context("fork").Process(target=gc.collect)
    process.start()
    process.join()
    list(torch.utils.data.DataLoader(list(range(8)), num_workers=2, multiprocessing_context="fork"))
    rows += [row for [batch] in batches for row in batch["row"].tolist()]
    print(sorted(rows) == list(range(23)), loader.stats.restarts, len(pipeline.run()[0]))
    loader.close()

if __name__ == "__main__":
    main()
"""


def test_a_forked_process_leaves_the_readers_alone(npy_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FORKING)
    found = run([sys.executable, str(script), str(npy_folder), "forkserver"])
    assert found.returncode == 0, found.stderr
    refused = "its readers only work for that process"
    lines = found.stdout.splitlines()
    assert [line for line in lines if refused not in line] == [
        "exit_at_once 0",
        "fail 1",
        "close_and_drop 0",
        "drop 0",
        "go_on 0",
        "go_on_with_pipeline 0",
        "start_anew 0",
        "True 0 4",
    ]
    assert len([line for line in lines if refused in line]) == 3


IN_WORKERS = """
import sys
import torch
from dali_pipelines import Index, npy_pipeline

class Rows(torch.utils.data.IterableDataset):
    def __init__(self, num):
        self.num = num

    def __iter__(self):
        pipeline = npy_pipeline(
            Index.scan(sys.argv[1]),
            batch_size=4,
            device_id=None,
            shuffle=False,
            start_method="fork",
            num_read_processes=self.num,
        )
        pipeline.build()
        yield pipeline.run()[pipeline.output_names.index("row")].as_array().ravel().tolist()

for num in 0, 1:
    print(*torch.utils.data.DataLoader(Rows(num), batch_size=None, num_workers=1), flush=True)
"""


def test_a_worker_of_a_dataloader_reads_by_itself(npy_folder: Path, tmp_path: Path) -> None:
    """It is daemonic, and such processes have no children."""
    script = tmp_path / "script.py"
    script.write_text(IN_WORKERS)
    found = run([sys.executable, str(script), str(npy_folder)])
    assert found.stdout == "[0, 1, 2, 3]\n", found.stderr
    assert "with num_read_processes=0" in found.stderr


def slow_pipeline(marks: Path, index: Index, **config: Any) -> ReaderPipeline:
    reader = MarkingReader(folder=str(marks), pause_s=600)
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**config))


def test_another_thread_may_close_it_while_it_waits(npy_index: Index, tmp_path: Path) -> None:
    loader = Loader(
        partial(slow_pipeline, tmp_path),
        npy_index,
        batch_size=4,
        devices=[None],
        start_method="forkserver",
        restart_readers=1,
    )

    def close_when_it_reads() -> None:
        while not any(tmp_path.iterdir()):
            time.sleep(0.01)
        loader.close()

    thread = threading.Thread(target=close_when_it_reads)
    thread.start()
    with pytest.raises(RuntimeError, match="closed by another thread"):
        next(iter(loader))
    thread.join()
    assert (loader.step, loader.stats.restarts, loader.pipelines) == (0, 0, ())


def test_another_thread_may_close_it_while_it_starts(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = ReaderPipeline.start_py_workers, list[Any]()
    loader = Loader(npy_pipeline, npy_index, batch_size=4, devices=[None], num_read_processes=1)

    def closed_after(pipeline: Any) -> Any:
        start(pipeline)
        started.extend(pipeline.processes())
        with ThreadPoolExecutor(1) as pool:
            pool.submit(loader.close).result()

    with monkeypatch.context() as patch:
        patch.setattr(ReaderPipeline, "start_py_workers", closed_after)
        with pytest.raises(RuntimeError, match="closed by another thread"):
            next(iter(loader))
    assert len(started) == 1
    assert not started[0].is_alive()
    assert (loader.step, loader.pipelines) == (0, ())
    assert next(iter(loader))["row"].shape == (4,)
    loader.close()


def test_another_thread_may_close_it_while_dali_takes_the_last_batch_back(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Pipeline.release_outputs
    loader = Loader(npy_pipeline, npy_index, batch_size=4, devices=[None])

    def closed_before(pipeline: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(loader.close).result()
        return release(pipeline)

    loop = iter(loader)
    next(loop)
    monkeypatch.setattr(Pipeline, "release_outputs", closed_before)
    with pytest.raises(RuntimeError, match="closed by another thread"):
        next(loop)
    assert loader.step == 1


def test_no_step_is_lost_where_it_is_closed_before_it_waits(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader(npy_pipeline, npy_index, batch_size=4, devices=[None], shuffle=False)
    with monkeypatch.context() as patch:
        # The moment between the start of the readers and the wait for them, which no other thread
        # can be made to meet: closed again already.
        patch.setattr(loader, "_start", lambda: None)
        with pytest.raises(RuntimeError, match="closed by another thread"):
            next(iter(loader))
    assert loader.step == 0
