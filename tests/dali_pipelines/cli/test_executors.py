"""Commands by the workers of an Executor: the same reports, and failures in one line."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from dali_pipelines import with_mcu_rows, with_tiles
from dali_pipelines.cli.verify import compare
from dali_pipelines.cli.verify.main import main as verify
from dali_pipelines.parallel import worker
from dali_pipelines.parallel.task_map import process_map
from dali_pipelines.parallel.worker import WorkerError
from readers import Index
from readers.contract import Row


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A photograph, a FITS file, and a file that is none."""
    names = [tmp_path / name for name in ("a.png", "b.fits", "text.fits")]
    Image.fromarray(np.zeros((9, 7, 3), np.uint8)).save(names[0])
    fits.CompImageHDU(np.zeros((20, 24), np.int16)).writeto(names[1])
    names[2].write_text("not FITS")
    return names


class Here(Executor):
    """Does tasks at once in this process, as a worker does them, or fails as one fails."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            if self.error is not None:
                raise self.error
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Waiting(Executor):
    """Does nothing."""

    def __init__(self) -> None:
        self.futures = list[Future[Any]]()
        self.has_one = threading.Event()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.futures.append(Future())
        self.has_one.set()
        return self.futures[-1]


def not_isolated(function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> list[Any]:
    return [function(*task) for task in tasks]


@pytest.mark.slow
def test_reports_of_workers_are_those_of_this_machine(
    files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = [*map(str, files), "--device=cpu"]
    assert verify(flags) == 0
    expected = capsys.readouterr()
    monkeypatch.setattr(compare, "isolated", not_isolated)  # else a worker starts an interpreter
    assert verify(flags, executor=Here()) == 0
    assert capsys.readouterr() == expected
    assert "2 OK, 0 DIFFERS, 1 REJECTED" in expected.err


def test_notes_of_workers_are_those_of_threads(files: list[Path]) -> None:
    index = Index.from_paths(files[:2])
    for noted in (with_tiles, with_mcu_rows):
        assert noted(index, executor=Here()).table.equals(noted(index).table)


def full(_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("executor", "named"),
    [
        (Here(ModuleNotFoundError("No module named 'dali_pipelines'")), "install"),
        (Here(BrokenExecutor("memory?")), r"worker.*memory\?"),
    ],
)
def test_a_worker_that_fails(executor: Executor, named: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=named):
        list(process_map(os.fspath, [(tmp_path,)], 1, executor))


def faulty(path: Any) -> Any:
    return path.nothing


def test_a_fault_of_a_task_is_not_a_missing_package(tmp_path: Path) -> None:
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(WorkerError, match=r"AttributeError.*nothing"),
    ):
        list(process_map(faulty, [(tmp_path,)], 1, executor))


def test_an_executor_that_is_shut_down(tmp_path: Path) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(WorkerError, match=r"shutdown.*running"):
        list(process_map(os.fspath, [(tmp_path,)], 1, executor))


@pytest.mark.parametrize(
    ("function", "argument", "named"),
    [
        (len, [Row(0, "/nowhere/far/a.fits")], "folder /nowhere/far"),
        (full, None, "No space left on device"),
    ],
)
def test_a_machine_that_lacks_something(
    function: Callable[..., Any], argument: Any, named: str
) -> None:
    with pytest.raises(WorkerError, match=named):
        list(process_map(function, [(argument,)], 1, Here()))


def test_a_worker_of_another_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dali_pipelines.parallel.task_map.own_version", lambda: "0.0.2")
    monkeypatch.setattr(worker, "own_version", lambda: "0.0.1")
    with pytest.raises(WorkerError, match=r"0\.0\.1.* 0\.0\.2.*install"):
        list(process_map(os.fspath, [(tmp_path,)], 1, Here()))


def test_a_task_that_cannot_be_sent_cancels_those_that_wait() -> None:
    executor = Waiting()

    def tasks() -> Iterator[tuple[Any]]:
        yield (Path(),)
        assert executor.has_one.wait(60)
        yield (lambda: None,)

    results = process_map(os.fspath, tasks(), 1, executor)
    with pytest.raises(WorkerError, match="pickle"):
        next(results)
    assert [future.cancelled() for future in executor.futures] == [True]
