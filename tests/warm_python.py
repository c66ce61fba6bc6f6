"""Python processes that have imported what takes long: forks of one that does so once.

PyTorch, DALI, astropy and numba take 3 s of a core to import, which is most of what the jobs of
tests do. `WarmJob` starts a script as `subprocess.Popen` does, but as a fork of a process without
threads that has imported them, and what is ours but for kernels; one for all jobs of a pytest
process. The job is a child of the process that starts it. What tells it from a new interpreter: its
command line and environment in /proc, the seed of `hash`, what `sys.modules` holds, frames of this
file in tracebacks, and that objects which live at its end are not deleted, which would take 0.6 s
of a core, unless it ends with an error. Tests of these start their own.

The ranks of torchrun are forks, too, of a second such process, which is a child of torchrun; so are
the Python processes that a job starts by `subprocess`, or that multiprocessing starts in it, the
fork server too, if its environment has `WARM_CHILDREN`. `warm_spawn` does the same for what
multiprocessing starts in a test itself, where the fork server has PyTorch for the workers of its
DataLoader, too. The workers of pytest-xdist are forks of one such process, and each has one for
its jobs that is a fork as well.

A fork copies the page tables of 400 MB, and its end takes them down: `_collapse` lets large pages
hold what is imported, so that both take less than half of the time.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import importlib.machinery
import multiprocessing.process
import multiprocessing.util
import os
import pickle
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

SLOW = (
    "astropy.io.fits",
    "concurrent.futures.process",
    "configparser",
    "isal.isal_zlib",
    "lazy_loader",
    "multiprocessing.forkserver",
    "numba.core.ccallback",
    "numba.cuda",
    "nvidia.dali.plugin.numba.fn.experimental",
    "nvidia.dali.plugin.pytorch",
    "pandas",
    "PIL.Image",
    "platformdirs.unix",
    "tomllib",
    "torch._dynamo",
    "torch.distributed.launcher.api",
)
"""Modules to import once; none starts a thread that is not told not to, see `NO_THREADS`."""

SLOW_IN_WORKERS = ("aiapy.calibrate", "lightning.pytorch")
"""Likewise, in 4 s of a core, for what pytest-xdist forks: each worker imports all tests."""

OURS = ("dali_pipelines.cli.main", "dali_pipelines.loader", "dali_pipelines.reexports")
"""What nearly all jobs import of ours, in 0.15 s. No kernels: they are kept as the job says."""

NO_THREADS = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}

READ_AT_START = ("CUDA_", "DALI_", "LD_", "MALLOC_", "NUMBA_", "OPENBLAS_", "PYTHON", "TMPDIR")
"""How variables begin that Python, or what is imported, reads once."""

READ_LATER = ("PYTHONPATH", "PYTHONSAFEPATH", "DALI_PIPELINES_MAIN")
"""The others that begin so."""

WORKER = "import sys;exec(eval(sys.stdin.readline()))"
"""The code with which execnet starts a worker of pytest-xdist."""

STARTER = """
import atexit, sys
atexit.register(lambda found=sys.modules: found["warm_python"].leave())  # last, as it is the first
sys.path[0] = sys.argv[1]
import warm_python
warm_python.main(int(sys.argv[2]), sys.argv[3:])
"""
TESTS = Path(__file__).parent
HAS_GPU = any(name for kind in ("nvidia[0-9]*", "dxg") for name in Path("/dev").glob(kind))
MADV_COLLAPSE = 25
PR_GET_TID_ADDRESS = 40
SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, 0)
CLONE_FLAGS = 0x8000 | 0x1000000 | 0x200000  # PARENT, CHILD_SETTID, CHILD_CLEARTID
_first = dict(os.environ)
also: list[str] = []
"""Modules that the first process imports as well."""
_status: list[int] = []
"""That of a task which has ended, but for errors."""
_closed: list[object] = []
"""Streams of closed files, which would otherwise close what has their numbers later."""
_one_at_a_time = threading.Lock()
_spawn = multiprocessing.util.spawnv_passfds
_popen = signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


class Task(NamedTuple):
    """What a job is to run, and where: `command` as after ``python``; `before` that, a function.

    `files` are the numbers of those that it has open beside the streams.
    """

    command: list[str]
    folder: str
    environ: dict[str, str]
    new_session: bool
    before: Callable[[], object] | None
    files: tuple[int, ...] = ()


class WarmJob(subprocess.Popen[str]):
    """A process that `subprocess.Popen` starts, or a fork if the command is a script of Python."""

    def _execute_child(self, *args: Any) -> None:
        given = _popen.bind(self, *args).arguments
        python, *command = map(os.fspath, given["args"])
        environ = dict(os.environ if given["env"] is None else given["env"])
        is_python = python == sys.executable and re.match("-[cmu]$|[^-]", command[0])
        knows_how = is_python and not given["pass_fds"]
        alike = _read_at_start(environ) == _read_at_start(_first)
        if not (knows_how and alike and (server := _server())):
            super()._execute_child(*args)  # type: ignore[misc]
            return
        folder = os.path.abspath(given["cwd"] or ".")
        task = Task(command, folder, environ, given["start_new_session"], given["preexec_fn"])
        names = ("p2cread", "c2pwrite", "errwrite")
        fds = [given[name] if given[name] >= 0 else fd for fd, name in enumerate(names)]
        self.pid = _fork(server, task, fds)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*map(given.get, pipes))  # type: ignore[attr-defined]


def warm_spawn(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Do what multiprocessing.util.spawnv_passfds does, with a fork for a child or fork server."""
    command = [*map(os.fsdecode, args)]
    kinds = ("spawn_main(", "forkserver import main")
    knows_how = any(kind in word for word in command for kind in kinds)
    alike = _read_at_start(os.environ) == _read_at_start(_first)
    if not (knows_how and alike and (server := _server())):
        return _spawn(path, args, passfds)
    command = command[command.index("-c") :]  # without the flags, which are those of the server
    numbers = tuple(sorted(passfds))
    task = Task(command, os.getcwd(), dict(os.environ), False, None, numbers)
    return _fork(server, task, [0, 1, 2, *numbers])


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    names = [name for name in environ if name.startswith(READ_AT_START)]
    return {name: environ[name] for name in names if name not in READ_LATER}


def _fork(server: socket.socket, task: Task, fds: list[int]) -> int:
    """Return the process that runs the task, a child of this one."""
    with _one_at_a_time:
        # A handler that raises would leave the answer, which the next job would take for its own.
        blocked = [*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))]  # it inherits them
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            socket.send_fds(server, [pickle.dumps((blocked, pickle.dumps(task)))], fds)
            return int(server.recv(100))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@cache
def _server() -> socket.socket | None:
    """Start what will be forked, with the streams of a job: no terminal, and no file.

    None where there is a GPU, whose libraries may not outlive a fork, if imports start threads, and
    on machines of other kinds.
    """
    if HAS_GPU or not SYS_CLONE:
        return None
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    not_its = ("PYTHONPATH", "OMP_NUM_THREADS")
    environ = {name: value for name, value in _first.items() if name not in not_its}
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(TESTS), str(its.fileno()), *also],
        pass_fds=[its.fileno()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environ, **NO_THREADS},
    )
    its.close()
    if not (threads := ours.recv(100)):
        raise RuntimeError(process.communicate()[1].decode())

    def end() -> None:
        ours.close()
        process.communicate()

    atexit.register(end)
    return ours if threads == b"1" else None


# ---- In the process that is forked, and in the forks ---------------------------------------------


def main(fd: int, also: Sequence[str]) -> None:
    """Import, fork for each task; in the fork, run it, and return or raise as its script does."""
    path = sys.path[1:]
    gc.disable()  # what is imported stays
    from numba.core.registry import cpu_target

    for name in (*SLOW, *OURS, *also):
        importlib.import_module(name)
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    gc.collect()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # PyTorch would undo its own
    gc.freeze()  # or the garbage collection of each fork would copy all pages
    _collapse()
    gc.enable()
    gc.set_threshold(20_000)  # what is frozen does not count as what it has left, which is little
    connection = socket.socket(fileno=fd)
    connection.send(str(len(os.listdir("/proc/self/task"))).encode())
    before, task = None, _serve(connection)
    while task is not before and _has_children(task):
        before, task = task, _with_server(task)
    try:
        _run(task, path)
        _status.append(0)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            _status.append((error.code or 0) & 0xFF)
        raise


def _has_children(task: Task) -> bool:
    """Return whether a task is to start others as forks."""
    is_launcher = task.command[:2] == ["-m", "torch.distributed.run"]
    is_worker = task.command[-1] == WORKER
    return is_launcher or is_worker or ("WARM_CHILDREN" in task.environ and not task.files)


def leave() -> None:
    """End the process without deleting its modules, if its status is known."""
    if _status:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(_status[0])


def _serve(connection: socket.socket) -> Task:
    """Return the next task, in a fork; end with the process that asks for forks."""
    while True:
        message, fds, *_ = socket.recv_fds(connection, 1 << 20, 100)
        if not message:
            os._exit(0)
        blocked, pickled = pickle.loads(message)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # now: signals may follow the fork
        if not (pid := _fork_sibling()):
            break
        connection.send(str(pid).encode())
        for fd in fds:
            os.close(fd)
    connection.close()
    task: Task = pickle.loads(pickled)
    # Out of the way first: one may have the number that another is to get.
    given = [fcntl.fcntl(fd, fcntl.F_DUPFD, 1000) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(given, (0, 1, 2, *task.files), strict=True):
        os.dup2(fd, number)
        os.close(fd)
    if task.new_session:
        os.setsid()
    if task.before:
        task.before()
    return task


def _fork_sibling() -> int:
    """Do what os.fork does, but for a child of this process's parent."""
    tid = ctypes.c_long()  # where the C library has the number of this thread
    ctypes.CDLL(None).prctl(PR_GET_TID_ADDRESS, ctypes.byref(tid))
    python = ctypes.pythonapi  # its functions keep the lock of the interpreter
    python.PyOS_BeforeFork()
    # Machines differ in which of the last two is read.
    call = [ctypes.c_long(part) for part in (SYS_CLONE, CLONE_FLAGS, 0, 0, tid.value, tid.value)]
    pid: int = python.syscall(*call)
    if not pid:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("the kernel refuses to fork this process for its parent")
    return pid


def _collapse() -> None:
    """Let large pages hold this process's memory, as far as the kernel can."""
    size = 1 << 21
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, inode, *_ = line.split()
        start, stop = (int(address, 16) for address in addresses.split("-"))
        start, stop = -(-start // size) * size, stop // size * size
        if inode == "0" and access == "rw-p" and start < stop:
            whole = ctypes.c_void_p(start), ctypes.c_size_t(stop - start)
            ctypes.CDLL(None).madvise(*whole, MADV_COLLAPSE)  # what is refused stays as it is


def _with_server(task: Task) -> Task:
    """Let what starts others do so as forks of a process that is forked before it has threads."""
    global _first, _server
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        its.close()
        _first, _server = task.environ, lambda: ours  # type: ignore[assignment]
        if task.command[-1] == WORKER:  # its tests choose what is a fork
            return task
        from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
        from torch.distributed.elastic.rendezvous import dynamic_rendezvous

        # For its log; it would take 1 s of a core to find out, as so many modules are imported.
        dynamic_rendezvous.get_method_name = lambda depth=2: ""
        subprocess_handler.Popen = WarmJob  # type: ignore[assignment,attr-defined]
        subprocess.Popen = WarmJob  # type: ignore[assignment,misc]
        multiprocessing.util.spawnv_passfds = warm_spawn
        return task
    ours.close()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job
    found = _serve(its)
    signal.signal(signal.SIGINT, handler)
    return found


def _forget_what_is_elsewhere() -> None:
    """Let a job import what is ours by itself if that is not where it was imported from."""
    names = {name.partition(".")[0] for name in OURS} | {"readers"}
    for name in names:
        found = importlib.machinery.PathFinder.find_spec(name)
        if found is None or found.origin != sys.modules[name].__file__:
            for module in [one for one in sys.modules if one.partition(".")[0] in names]:
                del sys.modules[module]
            return


def _run(task: Task, path: list[str]) -> None:
    """Run a file, a module or code as Python does."""
    import torch

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # `before` has closed it
            _closed.append(getattr(sys, name))
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
    command = list(task.command)
    os.chdir(task.folder)
    os.environ.clear()
    os.environ.update(task.environ)
    if threads := task.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    multiprocessing.process.ORIGINAL_DIR = task.folder  # type: ignore[attr-defined]
    sys.orig_argv = [sys.executable, *command]
    while command[0] == "-u":
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        del command[0]
    code, name = None, command[0]
    if name in ("-c", "-m"):
        name = command.pop(1)
        first = "" if command[0] == "-c" else task.folder
    else:
        first = str(Path(name).resolve().parent)
    places = [place for place in task.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    unsafe = [] if task.environ.get("PYTHONSAFEPATH") else [first]
    sys.path[:] = [*unsafe, *places, *path]
    _forget_what_is_elsewhere()
    sys.argv[:] = command
    names = vars(sys.modules["__main__"])
    for ours in [name for name in names if not name.startswith("__")]:
        del names[ours]
    if command[0] == "-m":
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    if command[0] == "-c":
        code = compile(name, "<string>", "exec")
    else:
        names.update(__file__=os.path.join(task.folder, name), __cached__=None)
        code = compile(Path(name).read_bytes(), name, "exec")
    exec(code, names)
