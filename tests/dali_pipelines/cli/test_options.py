from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import requires, version
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from jobs import SCRIPTS, Job
from packaging.requirements import Requirement

from dali_pipelines.cli.errors import EXTRA, Refusal, command
from dali_pipelines.cli.main import main
from dali_pipelines.cli.options import option, parse


@dataclass(frozen=True, kw_only=True)
class Config:
    size: int = option(3, "a number")
    kind: str = option("a", "a word", choices=("a", "b"))
    crop: list[int] | None = option(None, "numbers", type=int, nargs="+")
    fast: bool = option(True, "yes or no")

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"--size must be at least 1, got {self.size}")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('size = 5\nkind = "b"\ncrop = [4, 6]\nfast = false\n')
    return path


def test_defaults() -> None:
    assert parse(Config, [], None, "test") == Config()


def test_a_file_fills_in(toml: Path) -> None:
    assert parse(Config, ["--config", str(toml)], None, "test") == Config(
        size=5, kind="b", crop=[4, 6], fast=False
    )


@pytest.mark.parametrize("first", [True, False])
def test_flags_win_wherever_they_stand(toml: Path, first: bool) -> None:
    flags = ["--size=7", "--crop", "1", "--fast"]
    file = [f"--config={toml}"]
    found = parse(Config, [*flags, *file] if first else [*file, *flags], None, "test")
    assert found == Config(size=7, kind="b", crop=[1], fast=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sise = 3", "unknown keys sise; did you mean size? known are crop, fast, kind, size"),
        ("x = 3", "unknown keys x; known are crop, fast, kind, size"),
        ("size = ", "is not TOML: "),
        ('size = "3"', "wrong.toml: size must be a number, without quotes, got '3'"),
        ("size = 3.5", "argument --size: invalid int value: '3.5'"),
        ('kind = "c"', "argument --kind: invalid choice: 'c'"),
        ("size = 0", "--size must be at least 1, got 0"),
        ("size = [1, 2]", "wrong.toml: argument --size: invalid int value: '1,2'"),
        ("size = true", "wrong.toml: size must be a value or several, got True"),
        ('fast = "yes"', "wrong.toml: fast must be true or false, got 'yes'"),
    ],
)
def test_wrong_files_end_with_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(Refusal) as caught:
        parse(Config, [f"--config={path}"], None, "test")
    assert caught.value.status == 2
    assert message in str(caught.value)


@dataclass(frozen=True, kw_only=True)
class Files:
    files: list[str] = option(None, "files", positional=True, nargs="+")
    group: str | None = option(None, "channels")
    mean: list[float] | None = option(None, "subtracted", type=float, nargs="+")


def test_values_of_a_file_stay_with_their_names(tmp_path: Path) -> None:
    """A list is several values, or one with commas; dashes and exponents are no flags."""
    path = tmp_path / "config.toml"
    path.write_text('files = ["-a.fits"]\ngroup = [171, 193]\nmean = [-1e-5, 2]\n')
    found = Files(files=["-a.fits"], group="171,193", mean=[-1e-5, 2.0])
    assert parse(Files, [f"--config={path}"], None, "test") == found
    again = ["--group=171,193", "--mean", "-1e-5", "2", "--", "-a.fits"]
    assert parse(Files, again, None, "test") == found
    assert parse(Files, ["b.fits", f"--config={path}"], None, "test").files == ["b.fits"]


def test_paths_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/a")
    expected = Files(files=["/home/a/b.fits", "a~/c"], group="/home/a")
    assert parse(Files, ["--group=~", "~/b.fits", "a~/c"], None, "test") == expected
    (tmp_path / "config.toml").write_text('files = ["~/b.fits", "a~/c"]\ngroup = "~"\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    found = parse(Files, ["--config=~/config.toml"], None, "test")
    assert found == Files(files=[f"{tmp_path}/b.fits", "a~/c"], group=str(tmp_path))


@pytest.mark.parametrize("flag", ["--siz=3", "--colour=red", "--kind=c", "--config=/nowhere.toml"])
def test_wrong_flags_end_with_code_2(flag: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(Config, [flag], None, "test")
    assert caught.value.status == 2


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--siz=3", "unrecognized arguments: --siz=3 (did you mean --size?)"),
        ("--fats", "unrecognized arguments: --fats (did you mean --fast"),
        ("--colour=red", "unrecognized arguments: --colour=red (see --help)"),
    ],
)
def test_flags_that_are_near_are_named(flag: str, message: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(Config, [flag], None, "test")
    assert message in str(caught.value)


@dataclass(frozen=True, kw_only=True)
class FilesConfig:
    files: list[str] = option(None, "what is read", positional=True, nargs="+")
    out_file: str = option(None, "what is written", short="-o", required=True)


def test_positional_and_required_arguments() -> None:
    expected = FilesConfig(files=["a", "b"], out_file="c")
    for argv in (["a", "b", "-o", "c"], ["--out_file=c", "a", "b"], ["a", "b", "--out-file=c"]):
        assert parse(FilesConfig, argv, None, "test") == expected
    for argv in (["a"], ["-o", "c"]):
        with pytest.raises(Refusal, match="the following arguments are required: "):
            parse(FilesConfig, argv, None, "test")


def test_positional_and_required_arguments_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('files = ["a", "b"]\nout_file = "c"\n')
    file = f"--config={path}"
    assert parse(FilesConfig, [file], None, "test") == FilesConfig(files=["a", "b"], out_file="c")
    found = parse(FilesConfig, [file, "d", "-o", "e"], None, "test")
    assert found == FilesConfig(files=["d"], out_file="e")
    path.write_text('files = ["a", "b"]\n')
    with pytest.raises(Refusal, match="the following arguments are required: out_file"):
        parse(FilesConfig, [file], None, "test")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (Refusal("no\nfile", 1), 1, "dali-pipelines test: no file\n"),
        (
            ModuleNotFoundError("No module named 'duckdb'", name="duckdb"),
            2,
            (
                "dali-pipelines test: No module named 'duckdb': install what commands need, "
                "pip install 'dali-pipelines[cli]'\n"
            ),
        ),
        (KeyboardInterrupt(), 130, "dali-pipelines test: interrupted\n"),
        (BrokenPipeError(), 141, ""),
        (OSError(28, "Full"), 1, "dali-pipelines test: [Errno 28] Full\n"),
    ],
)
def test_a_command_reports_errors_in_one_line(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int, line: str
) -> None:
    @command("test")
    def main(argv: Sequence[str] | None = None) -> int:
        raise error

    assert main() == status
    assert capsys.readouterr() == ("", line)


def test_the_extra_is_what_commands_need() -> None:
    declared = [Requirement(text) for text in requires("dali-pipelines") or ()]
    extra = {r.name for r in declared if r.marker and r.marker.evaluate({"extra": "cli"})}
    imported_as = {"nvidia-ml-py": "pynvml"}
    assert {imported_as.get(name, name) for name in extra} == set(EXTRA)


@pytest.mark.parametrize(
    "script", ["run", "index", "doctor", "show", "verify", "prep", "warm", "bench"]
)
def test_a_script_without_the_package_says_what_to_do(script: str, tmp_path: Path) -> None:
    path = SCRIPTS / f"{script}.py"
    found = subprocess.run(
        [sys.executable, "-S", str(path), "archive", "-o", "x"],  # -S: nothing is installed
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 2
    last = found.stderr.splitlines()[-1]
    assert last.startswith(f"{script}.py: ")
    assert last.endswith(
        f"dali_pipelines is not installed for {sys.executable}: run 'make .venv/ready' and "
        "'. .venv/bin/activate', or pip install -e '.[cli]'"
    )


@pytest.mark.parametrize(
    ("flags", "is_full"),
    [
        ("index {} -o a.parquet", True),
        ("doctor --data={}", True),
        ("doctor --data={}", False),
        ("run --data={} --device=cpu --batch_size=1 --num_read_processes=1", False),
    ],
)
def test_output_that_nobody_takes(tmp_path: Path, flags: str, is_full: bool) -> None:
    """A full disk, or a pipe whose reader has gone."""
    name, *rest = flags.format("a.fits").split()
    fits.PrimaryHDU(np.zeros((8, 8), np.int16)).writeto(tmp_path / "a.fits")
    if is_full:
        out = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, out = os.pipe()
        os.close(reader)
    try:
        command = [sys.executable, str(SCRIPTS / f"{name}.py"), *rest]
        with Job(command, cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, text=True) as job:
            _, err = job.communicate(timeout=200)
    finally:
        os.close(out)
    assert job.returncode == (1 if is_full else 128 + signal.SIGPIPE)
    errors = [text for text in err.splitlines() if text.startswith("dali-pipelines ")]
    line = f"dali-pipelines {name}: [Errno 28] No space left on device"
    assert errors == ([line] if is_full else [])
    assert "Traceback" not in err
    assert "Exception ignored" not in err


@pytest.mark.parametrize("flags", [["index", "--help"], ["--help"], ["--version"]])
@pytest.mark.parametrize("ends", ["| true", "> /dev/full"])
def test_help_that_nobody_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str], ends: str
) -> None:
    """It is written as the interpreter ends, if nothing flushes it before."""
    if ends == "| true":
        read, written = os.pipe()
        os.close(read)
    else:
        written = os.open("/dev/full", os.O_WRONLY)
    with open(written, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        found = main(flags), capsys.readouterr().err
    program = " ".join(["dali-pipelines", *flags[:-1]])
    full = (1, f"{program}: [Errno 28] No space left on device\n")
    assert found == {"| true": (141, ""), "> /dev/full": full}[ends]


def test_the_program_as_a_module_names_its_version() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "dali_pipelines", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == f"dali-pipelines {version('dali-pipelines')}\n"
