"""A `WarmJob` against a new interpreter: what a script can see of itself, and how it ends."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest
import warm_python
from warm_python import WarmJob

KINDS: dict[str, Any] = {"new": subprocess.Popen, "warm": WarmJob}

SEEN = r"""
import json, multiprocessing, os, re, signal, sys, tempfile, threading
from pathlib import Path

def double(number):
    return 2 * number, os.path.basename(sys.argv[0]), __name__

def seen():
    status = Path("/proc/self/status").read_text()
    main = sys.modules["__main__"]
    return {
        "streams": [(each.encoding, each.errors, each.line_buffering, each.isatty(), each.mode)
                    for each in (sys.stdin, sys.stdout, sys.stderr)],
        "names": {name: repr(value) for name, value in vars(main).items() if name.startswith("__")
                  and name not in ("__builtins__", "__loader__", "__spec__", "__annotations__")},
        "main": seen.__globals__ is vars(main) and seen.__module__ == "__main__",
        "words": [sys.argv, sys.orig_argv, sys.path, sys.executable, sys.prefix, os.getcwd()],
        "flags": [str(sys.flags), sys.warnoptions, sys._xoptions],
        "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
        "threads_in_all": re.search(r"Threads:.*", status)[0],
        # Not 32 and 33, which glibc takes for itself as soon as it needs them.
        "masks": [int(mask, 16) & ~(3 << 31) for mask in re.findall(r"Sig[BI].*\t(.*)", status)],
        "environ": dict(os.environ),
        "files": sorted(os.listdir("/proc/self/fd")),
        "ids": [os.getppid(), os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid()],
        "limits": Path("/proc/self/limits").read_text(),
        "threads": [thread.name for thread in threading.enumerate()],
        "children": [str(each) for each in multiprocessing.active_children()],
        "temporary": tempfile.gettempdir(),
        "stdin": sys.stdin.read(),
    }

if __name__ == "__main__":
    found = seen()
    methods = ["fork", "spawn", "forkserver"]
    for method in methods if "__file__" in globals() else methods[:1]:
        with multiprocessing.get_context(method).Pool(1) as pool:
            found[method] = pool.map(double, [1, 2])
    print(json.dumps(found))
"""


def ended(kind: str, command: list[str], **options: Any) -> tuple[int, str, str]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with KINDS[kind]([sys.executable, *command], text=True, **{**pipes, **options}) as job:
        out, err = job.communicate("some\ninput", timeout=100)
    return job.returncode, out, err


@pytest.mark.parametrize("how", ["script", "module", "code"])
def test_a_script_sees_the_same(how: str, tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    (tmp_path / "there").mkdir()
    command = {"script": ["../seen.py"], "module": ["-m", "seen"], "code": ["-c", SEEN]}[how]
    options = {
        "cwd": tmp_path / "there",
        "env": {**os.environ, "PYTHONPATH": f"{tmp_path}:/nowhere", "ADDED": "yes"},
        "start_new_session": how == "module",
    }
    found = {}
    for kind in KINDS:
        status, out, err = ended(kind, [*command, "one", "-two"], **options)
        assert (status, err) == (0, "")
        found[kind] = json.loads(out)
    for name in found["new"]:
        assert found["warm"][name] == found["new"][name], name


ENDS = {
    "nothing": "",
    "exit": "import sys; print(1, end=''); sys.exit(3)",
    "text": "import sys; sys.exit('some text')",
    "error": "import atexit; atexit.register(print, 'at exit'); print(1); 1 / 0",
    "thread": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('later'))).start()",
    "interrupt": "import os; os.kill(os.getpid(), 2); import time; time.sleep(9)",
    "signal": "import os; print(1); os.kill(os.getpid(), 15)",
    "at once": "import os; print(1); os._exit(4)",
    "wrong": "this is no Python",
    "closed": "import os; os.write(1, b'raw'); print('text')",
}


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_a_script_ends_the_same(code: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(code)
    found = {}
    for kind in KINDS:
        status, out, err = ended(kind, [str(tmp_path / "script.py")])
        lines = err.splitlines()
        assert len(lines) < 20
        found[kind] = status, out, lines[-1:]
    assert found["warm"] == found["new"]


@pytest.mark.parametrize(
    "option", [{}, {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}]
)
def test_streams_that_are_not_piped(option: dict[str, Any], tmp_path: Path) -> None:
    code = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)))"
    with (tmp_path / "out").open("w+") as file:
        for kind in KINDS:
            ended(kind, ["-c", code], **{"stdin": subprocess.DEVNULL, "stdout": file, **option})
        file.seek(0)
        lines = file.read().splitlines()
    assert len(lines) == (0 if option else 2)
    if lines:
        assert [line.split()[:2] for line in lines] == [["/dev/null", str(tmp_path / "out")]] * 2


def test_it_can_be_signalled_and_leaves_nothing() -> None:
    with WarmJob([sys.executable, "-c", "import time; time.sleep(100)"]) as job:
        process = psutil.Process(job.pid)
        assert process.ppid() == os.getpid()
        assert job.poll() is None
        job.send_signal(signal.SIGKILL)
        assert job.wait(60) == -signal.SIGKILL
    assert not process.is_running()


def spawned(end: Connection) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    is_daemon = multiprocessing.current_process().daemon
    end.send((os.getppid(), os.getcwd(), os.environ["ADDED"], is_daemon, [*map(int, blocked)]))
    sys.exit(len(end.recv()))


@pytest.mark.parametrize("blocked", [[], [signal.SIGINT]])
def test_what_is_spawned_sees_the_same(
    blocked: list[signal.Signals], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent, folder and environment, a pipe, the signals that are blocked, and its end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADDED", "yes")
    context = multiprocessing.get_context("spawn")
    found = []
    for spawn in (warm_python._spawn, warm_python.warm_spawn):
        monkeypatch.setattr("multiprocessing.util.spawnv_passfds", spawn)
        ours, its = context.Pipe()
        process = context.Process(target=spawned, args=(its,), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        its.close()
        found.append(ours.recv())
        ours.send(bytes(7))
        process.join(60)
        assert process.exitcode == 7
    assert found[0] == found[1] == (os.getpid(), str(tmp_path), "yes", True, blocked)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["-W", "error", "-c", "pass"], {}),
        (["-c", "pass"], {"env": {**os.environ, "PYTHONHASHSEED": "1"}}),
        (["-c", "pass"], {"env": {**os.environ, "NUMBA_DISABLE_JIT": "1"}}),
    ],
)
def test_what_a_fork_cannot_do_is_a_new_interpreter(
    command: list[str], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("warm_python._fork")
    assert ended("warm", command, **options) == (0, "", "")


@pytest.mark.skipif(warm_python.HAS_GPU, reason="nothing is a fork beside a GPU")
def test_what_is_ours_is_that_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "__init__.py").touch()
    code = "import sys; print(sorted({'torch', 'dali_pipelines', 'readers'} & {*sys.modules}))"
    # Variables that another test left behind would mean a new interpreter.
    env = warm_python._first
    expected = (0, "['dali_pipelines', 'readers', 'torch']\n", "")
    assert ended("warm", ["-c", code], env=env) == expected
    assert ended("warm", ["-c", code], env=env, cwd=tmp_path) == (0, "['torch']\n", "")


@pytest.mark.skipif(warm_python.HAS_GPU, reason="nothing is a fork beside a GPU")
def test_a_handler_that_raises_leaves_no_answer_to_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(number: int, frame: object) -> None:
        raise InterruptedError

    def send(*args: Any) -> None:
        sent(*args)
        signal.raise_signal(signal.SIGUSR1)

    command = [sys.executable, "-c", "raise SystemExit(3)"]
    environ = warm_python._first
    WarmJob(command, env=environ).wait(100)  # starts what is forked
    sent, before = socket.send_fds, {*psutil.Process().children()}
    handler = signal.signal(signal.SIGUSR1, stop)
    monkeypatch.setattr(socket, "send_fds", send)
    try:
        with pytest.raises(InterruptedError):
            WarmJob([sys.executable, "-c", "pass"], env=environ)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    monkeypatch.undo()
    with WarmJob(command, env=environ) as job:
        assert job.wait(100) == 3
    (lost,) = {*psutil.Process().children()} - before
    lost.wait(100)
