"""``--executor``: workers of an existing cluster."""

from __future__ import annotations

import sys
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import CommandError, refusing
from dali_pipelines.cli.flag_types import function_of
from dali_pipelines.parallel.worker import WorkerError
from readers.messages import install

if TYPE_CHECKING:
    from collections.abc import Iterator

_DASK = "dask://"


@contextmanager
def executor_of(name: str | None, given: Executor | None) -> Iterator[Executor | None]:
    """Yield the Executor that ``--executor`` names, or the given one; None for child processes.

    A named one is shut down at the end, without waiting for its tasks. A WorkerError in the block
    becomes a CommandError.
    """
    with ExitStack() as stack:
        if name is not None:
            if given is not None:
                raise CommandError("pass either --executor or the argument executor")
            with refusing(ImportError, OSError, RuntimeError, ValueError):
                given = stack.enter_context(_named(name))
        with refusing(WorkerError, status=1, doing="stopped"):
            yield given


@contextmanager
def _named(name: str) -> Iterator[Executor]:
    if name.startswith(_DASK):
        with _dask(name) as executor:
            yield executor
        return
    executor = _mpi() if name == "mpi" else _returned(name)
    if not isinstance(executor, Executor):
        raise ValueError(
            f"--executor={name}: expected a concurrent.futures.Executor, got {executor!r}"
        )
    try:
        yield executor
    finally:
        executor.shutdown(wait=False)


@contextmanager
def _dask(name: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError(f"--executor={name} needs Dask: {install('dask')}") from error
    address = f"tcp://{name.removeprefix(_DASK)}"
    with Client(address, set_as_default=False) as client:
        if not client.nthreads():  # an adaptive cluster starts workers when there are tasks
            print(f"--executor={name}: waiting for workers, none has started yet", file=sys.stderr)
        # Otherwise Dask would merge calls with equal arguments, even those of other commands.
        yield client.get_executor(pure=False)


def _returned(name: str) -> Any:
    """Call the function that ``--executor`` names."""
    function = function_of("executor", name)
    try:
        return function()
    except Exception as error:
        reason = f"the function raises {type(error).__name__}: {error}"
        raise ValueError(f"--executor={name}: {reason}") from error


def _mpi() -> Any:
    try:
        from mpi4py.futures import MPIPoolExecutor
    except ImportError as error:
        raise ImportError(f"--executor=mpi needs mpi4py: {install('mpi')}") from error
    if "mpi4py.futures" not in sys.orig_argv:  # otherwise each rank would run this command
        raise ValueError(
            "--executor=mpi needs ranks that wait for tasks, so start it as mpiexec -n RANKS "
            "python -m mpi4py.futures -m dali_pipelines COMMAND ..."
        )
    return MPIPoolExecutor()
