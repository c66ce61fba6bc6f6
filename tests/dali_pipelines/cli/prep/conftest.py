"""The command prep, with one process in this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def prep(
    tmp_path: Path, command: Callable[..., tuple[str, str]], no_processes: None
) -> Callable[..., list[str]]:
    """Run ``prep`` into the folder `out`; give the lines that it says."""

    def prep(*arguments: object, status: int = 0) -> list[str]:
        always = ("-o", tmp_path / "out", "--num_processes=1")
        out, err = command("prep", *arguments, *always, status=status)
        assert out == ""
        return err.splitlines()

    return prep
