"""Commands that run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dali_pipelines.cli.main import main

Command = Callable[..., tuple[str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``dali-pipelines NAME FLAG ...`` and check its exit status; give stdout and stderr."""

    def command(name: str, *flags: object, status: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        found = main([name, *map(str, flags)])
        out, err = capsys.readouterr()
        assert found == status, f"dali-pipelines {name} ends with {found}:\n{out}{err}"
        assert "Traceback" not in err
        return out, err

    return command


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Return the contents of all files below a folder, by their relative paths."""

    def contents(folder: Path) -> dict[str, bytes]:
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    return contents


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let prep and verify decode in this process instead of one that they start.

    The pool has its own tests, and test_processes.py runs both commands with it.
    """

    def in_order(
        function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], *_: object
    ) -> Iterator[Any]:
        yield from (function(*task) for task in tasks)

    monkeypatch.setattr("dali_pipelines.cli.prep.main.isolated_map", in_order)
    monkeypatch.setattr("dali_pipelines.cli.verify.compare.isolated_map", in_order)
