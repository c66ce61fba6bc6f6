"""The command verify, and what it says of each file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from dali_pipelines.cli.verify import compare


@pytest.fixture
def verify(command: Callable[..., tuple[str, str]]) -> Callable[..., dict[str, str]]:
    """Run ``verify`` on the CPU in this process; give its lines by the files, without HDUs."""

    def verify(*arguments: object, status: int = 0) -> dict[str, str]:
        out, _ = command("verify", "--device=cpu", *arguments, status=status)
        out = re.sub(r" HDU \d+", "", out)
        lines = dict(line.split("  ", 1) for line in out.splitlines())
        assert len(lines) == out.count("\n")
        return {os.path.basename(path): rest for path, rest in lines.items()}

    return verify


@pytest.fixture
def change_truth(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pass each Truth to a function, with the name of its file, before it is compared.

    A changed answer of astropy or Pillow, which run here, stands for a decoder that errs.
    """

    def change_truth(change: Callable[[str, Any], None]) -> None:
        def changed(
            function: Callable[..., Any], tasks: Iterable[Any], num_processes: int
        ) -> Iterator[Any]:
            del num_processes
            for task in tasks:
                truth = function(*task)
                change(os.path.basename(task[0].path), truth)
                yield truth

        monkeypatch.setattr(compare, "isolated_map", changed)

    return change_truth
