"""Tasks in a worker. Its machine may lack the files, or have another version of this package."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from dali_pipelines.runtime.version import own_version
from readers.contract import Row
from readers.places.urls import is_url


class WorkerError(RuntimeError):
    """The workers of an executor cannot do a task; the message says why."""


def at_worker(wanted: str, function: Callable[..., Any], *task: Any) -> Any:
    """Return ``function(*task)``.

    Raises
    ------
    WorkerError
        If the version of the package on this machine is not `wanted`, if the machine lacks a folder
        of files of the task, or if the task raises OSError, ImportError or AttributeError.
    """
    if own_version() != wanted:
        fail(f"has dali-pipelines {own_version()}, expected {wanted}: install the same version")
    check_folders(row.path for row in _rows(task))
    try:
        return function(*task)
    except OSError as error:
        fail(f"fails: {error}", error)
    except (ImportError, AttributeError) as error:
        # For the error itself, a command would report a missing extra on its own machine.
        fail(f"fails: {error!r}", error)


def check_folders(paths: Iterable[str]) -> None:
    """Raise a WorkerError if this machine lacks the folder of a file."""
    for folder in sorted({os.path.dirname(path) for path in paths if not is_url(path)}):
        if not os.path.isdir(folder):
            fail(
                f"has no folder {folder}: put the files on a file system that all workers mount "
                "at the same path, or pass URLs"
            )


def fail(what: str, cause: Exception | None = None) -> NoReturn:
    """Raise a WorkerError with the name of this machine."""
    raise WorkerError(f"the worker on {platform.node()} {what}") from cause


def _rows(values: Iterable[Any]) -> Iterator[Row]:
    for value in values:
        if isinstance(value, Row):
            yield value
        elif isinstance(value, list | tuple):
            yield from _rows(value)
