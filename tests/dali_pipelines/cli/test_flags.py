"""The names of commands and flags that are published: flags.toml holds them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dali_pipelines.cli.main import COMMANDS, main

FROZEN = tomllib.loads(Path(__file__).with_name("flags.toml").read_text())


def test_the_commands_are_these() -> None:
    assert {*COMMANDS} == {*FROZEN}


@pytest.mark.parametrize("command", FROZEN)
def test_the_flags_are_these(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags are forever: add one to flags.toml only after thinking twice."""
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    # A line of a flag has its names, a gap, and its help.
    lines = re.findall(r"^  (-.*?)(?:   ?|$)", capsys.readouterr().out, re.MULTILINE)
    found = {name for line in lines for name in re.findall(r"--(\w+)", line)}
    assert found - {"help", "config", "no"} == {*FROZEN[command].split()}
