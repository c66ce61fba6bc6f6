"""Errors name commands and flags that there are, and the settings of the library as flags."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from jobs import ROOT
from PIL import Image

from dali_pipelines.cli.errors import in_flags
from dali_pipelines.cli.main import COMMANDS, main
from dali_pipelines.cli.options import parse
from dali_pipelines.cli.run_config import RunConfig


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the texts in both packages, and what stands between fields of f-strings."""
    for package in ("dali_pipelines", "readers"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield path, node.value


def flags_of(command: str) -> set[str]:
    modules = {name: import_module(f"dali_pipelines.cli.{name}.main") for name in [command]}
    configs = [
        value
        for value in vars(modules[command]).values()
        if isinstance(value, type)
        and dataclasses.is_dataclass(value)
        and "Config" in value.__name__
    ]
    return {field.name for config in configs for field in dataclasses.fields(config)}


def test_commands_and_flags_exist() -> None:
    for path, text in texts():
        for command, flag in re.findall(r"dali-pipelines ([a-z]+)(?: --(\w+))?", text):
            if command in COMMANDS and flag:
                assert flag in flags_of(command), f"{path}: {text}"
        assert "scripts/" not in text, f"{path}: {text}"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--max_bad=0.5"], "--bad_sample=skip"),
        (["--crop", "40", "50"], "--outside=fill"),
        (["--cache=/dev/null/a"], "--cache=/dev/null/a and"),
    ],
)
def test_settings_are_flags(
    tmp_path: Path, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from astropy.io import fits

    fits.writeto(tmp_path / "a.fits", np.zeros((20, 30), np.int16))
    always = [f"--data={tmp_path}", "--device=cpu", "--batch_size=1", "--num_read_processes=1"]
    assert main(["run", *always, *flags]) != 0
    message = capsys.readouterr().err
    assert told in message
    assert not re.search(r"(?<![-\w])\w+='", message)


@pytest.mark.parametrize("folders", [("train/a", "val/a"), ("a", "b/nothing")])
def test_warnings_about_class_folders_name_the_flag(
    tmp_path: Path, folders: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    for folder in folders:
        (tmp_path / "photos" / folder).mkdir(parents=True)
        if not folder.endswith("nothing"):
            Image.new("RGB", (4, 4)).save(tmp_path / "photos" / folder / "1.png")
    data, out = str(tmp_path / "photos"), str(tmp_path / "index.arrow")
    assert main(["index", data, "-o", out, "--class_folders"]) == 0
    (message,) = caplog.messages
    assert in_flags(message).endswith(" --classes")


def test_what_is_no_setting_stays() -> None:
    parse(RunConfig, [], "", "run")
    same = "/a/crop=3/b.fits, crop=3/b.fits, crop=3.fits: feature='b' of f(crop=image), a.crop=3"
    assert in_flags(same) == same
    settings = (
        "crop=(3, 4), flip='h' (anonymous=True): shuffle=False, seed=3. npy_pipeline reads it"
    )
    assert in_flags(settings) == (
        "--crop 3 4, --flip=h (--anonymous): --no-shuffle, --seed=3. npy_pipeline reads it"
    )
