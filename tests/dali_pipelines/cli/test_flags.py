"""The names of commands and flags that are published: flags.toml holds them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dali_pipelines.cli.main import COMMANDS, main
from dali_pipelines.cli.options import parse
from dali_pipelines.cli.run_config import RunConfig

FROZEN = tomllib.loads(Path(__file__).with_name("flags.toml").read_text())


def test_the_commands_are_these() -> None:
    assert {*COMMANDS} == {*FROZEN}


def test_the_published_command() -> None:
    published = "--num_read_processes=16 --batch_size=16 --num_gpus=4"
    config = parse(RunConfig, published.split(), None, "run")
    assert (config.num_read_processes, config.batch_size, config.num_gpus) == (16, 16, 4)


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert set(COMMANDS) <= set(capsys.readouterr().out.split())


def test_a_misspelt_command_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runn"]) == 2
    assert re.search(r"'runn': did you mean run\?", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("flag", "meant"), [("--num_workers", "--num_read_processes"), ("--hflip", "--flip")]
)
def test_a_flag_of_another_program_is_asked_for(
    flag: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", flag, "2"]) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "doctor", "show", "index"])
def test_the_short_help_is_short(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for flag in ("-h", "--help"):
        with pytest.raises(SystemExit) as caught:
            main([command, flag])
        assert caught.value.code == 0
        found.append(set(re.findall(r"--(\w+)", capsys.readouterr().out)))
    short, whole = found
    assert short < whole
    assert len(short) < len(whole) / 2


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
