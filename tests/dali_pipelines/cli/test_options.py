from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dali_pipelines.cli.errors import EXTRA, CommandError, command
from dali_pipelines.cli.flag_types import location, number_of_bytes
from dali_pipelines.cli.main import main
from dali_pipelines.cli.options import option, parse


@dataclass(frozen=True, kw_only=True)
class Config:
    size: int = option(3, "a number")
    kind: str = option("a", "a word", choices=("a", "b"))
    crop: list[int] | None = option(None, "numbers", type=int, nargs="+")
    fast: bool = option(True, "yes or no")
    place: str | None = option(None, "a file", type=location)

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


def test_of_several_files_the_later_ones_win(toml: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.toml"
    more.write_text('kind = "a"\n')
    files = [f"--config={toml}", "--config", str(more)]
    assert parse(Config, files, None, "test") == Config(size=5, kind="a", crop=[4, 6], fast=False)
    more.write_text("kin = 1\n")
    with pytest.raises(CommandError, match=r"more\.toml.*kin"):
        parse(Config, files, None, "test")


@pytest.mark.parametrize("first", [True, False])
def test_flags_win_wherever_they_stand(toml: Path, first: bool) -> None:
    flags = ["--size=7", "--crop", "1", "--fast"]
    file = [f"--config={toml}"]
    found = parse(Config, [*flags, *file] if first else [*file, *flags], None, "test")
    assert found == Config(size=7, kind="b", crop=[1], fast=True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sise = 3", "sise.*size.*crop, fast, kind, place, size"),
        ("x = 3", "x.*crop, fast, kind, place, size"),
        ("size = ", "TOML"),
        ('size = "3"', "size.*without quotes.*'3'"),
        ("size = 3.5", "--size.*'3.5'"),
        ('kind = "c"', "--kind.*'c'"),
        ("size = 0", "--size.*at least 1.*0"),
        ("size = [1, 2]", "--size.*'1,2'"),
        ("size = true", "size.*value.*True"),
        ('place = ["a", "b"]', r"place.*one path.*\['a', 'b'\]"),
        ('fast = "yes"', "fast.*true or false.*'yes'"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(CommandError, match=named) as caught:
        parse(Config, [f"--config={path}"], None, "test")
    assert caught.value.status == 2


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


@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("--siz=3", r"--siz=3.*--size\?"),
        ("--fats", r"--fats.*--fast\?"),
        ("--colour=red", "--colour=red.*--help"),
        ("--kind=c", "--kind.*'c'.*'a'"),
        ("--config=/nowhere.toml", "/nowhere.toml"),
    ],
)
def test_wrong_flags(flag: str, named: str) -> None:
    with pytest.raises(CommandError, match=named) as caught:
        parse(Config, [flag], None, "test")
    assert caught.value.status == 2


@dataclass(frozen=True, kw_only=True)
class Lists:
    crop: list[int] | None = option(None, "numbers", type=int, nargs="+")
    keys: list[str] | None = option(None, "words", type=lambda text: text.split(","))
    size: int = option(3, "a number")


def test_a_list_is_given_once(tmp_path: Path) -> None:
    """argparse would forget the first one; the last of several single values counts."""
    for flags in (["--crop=1", "--crop=2"], ["--keys=a,b", "--keys=c"]):
        with pytest.raises(CommandError, match=rf"{flags[1][:6]} .*twice.*at once"):
            parse(Lists, flags, None, "test")
    assert parse(Lists, ["--size=1", "--size=2"], None, "test").size == 2
    path = tmp_path / "config.toml"
    path.write_text("crop = [1, 2]\n")
    assert parse(Lists, [f"--config={path}", "--crop=3"], None, "test").crop == [3]


@dataclass(frozen=True, kw_only=True)
class Words:
    order: bool | str | None = option(
        None, "an order", nargs="?", const=True, choices=("blocks", "buckets")
    )


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("", None),
        ("--order", True),
        ("--no-order", False),
        ("--order=blocks", "blocks"),
        ("--order buckets", "buckets"),
        ("--order --no-order", False),
    ],
)
def test_a_pair_of_flags_may_have_choices(flags: str, found: bool | str | None) -> None:
    assert parse(Words, flags.split(), None, "test").order == found
    for wrong in ("--order=rows", "--no-order=blocks", "--no-order blocks"):
        with pytest.raises(CommandError, match=wrong.replace("=", ".*").replace(" ", ".*")[-6:]):
            parse(Words, [wrong] if "=" in wrong else wrong.split(), None, "test")


@dataclass(frozen=True, kw_only=True)
class FilesConfig:
    files: list[str] = option(None, "what is read", positional=True, nargs="+")
    out_file: str = option(None, "what is written", short="-o", required=True)


def test_positional_and_required_arguments() -> None:
    expected = FilesConfig(files=["a", "b"], out_file="c")
    for argv in (["a", "b", "-o", "c"], ["--out_file=c", "a", "b"], ["a", "b", "--out-file=c"]):
        assert parse(FilesConfig, argv, None, "test") == expected
    for argv in (["a"], ["-o", "c"]):
        with pytest.raises(CommandError, match="the following arguments are required: "):
            parse(FilesConfig, argv, None, "test")


def test_positional_and_required_arguments_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('files = ["a", "b"]\nout_file = "c"\n')
    file = f"--config={path}"
    assert parse(FilesConfig, [file], None, "test") == FilesConfig(files=["a", "b"], out_file="c")
    found = parse(FilesConfig, [file, "d", "-o", "e"], None, "test")
    assert found == FilesConfig(files=["d"], out_file="e")
    path.write_text('files = ["a", "b"]\n')
    with pytest.raises(CommandError, match="the following arguments are required: out_file"):
        parse(FilesConfig, [file], None, "test")


@pytest.mark.parametrize(
    ("error", "status", "named"),
    [
        (CommandError("no\nfile", 1), 1, "no file"),
        (ModuleNotFoundError("no duckdb", name="duckdb"), 2, r"duckdb.*'\.\[cli\]"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(), 141, ""),
        (OSError(28, "Full"), 1, "Full"),
        (FileNotFoundError(2, "No usable temporary directory found in []"), 1, "set TMPDIR"),
    ],
)
def test_errors_of_a_command_are_one_line(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int, named: str
) -> None:
    @command("test")
    def main(argv: Sequence[str] | None = None) -> int:
        raise error

    assert main() == status
    out, err = capsys.readouterr()
    assert out == ""
    expected = f"dali-pipelines test: .*{named}.*\n" if named else ""
    assert re.fullmatch(expected, err), err


def test_the_extra_is_what_commands_need() -> None:
    declared = [Requirement(text) for text in requires("dali-pipelines") or ()]
    extra = {r.name for r in declared if r.marker and r.marker.evaluate({"extra": "cli"})}
    imported_as = {"nvidia-ml-py": "pynvml"}
    assert {imported_as.get(name, name) for name in extra} == set(EXTRA)


@pytest.mark.parametrize(
    ("flags", "is_full"),
    [("index --help", False), ("index --help", True), ("--help", False), ("--version", True)],
)
def test_help_that_nobody_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str, is_full: bool
) -> None:
    """It is written as the interpreter ends, if nothing flushes it before."""
    if is_full:
        written = os.open("/dev/full", os.O_WRONLY)
    else:
        read, written = os.pipe()
        os.close(read)
    with open(written, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        status, err = main(flags.split()), capsys.readouterr().err
    assert status == (1 if is_full else 141)
    assert ["No space left on device" in line for line in err.splitlines()] == [True] * is_full


@pytest.mark.parametrize(
    ("text", "number"), [("4096", 4096), ("200GB", 200 * 10**9), ("1.5 TB", 15 * 10**11)]
)
def test_numbers_of_bytes(text: str, number: int) -> None:
    assert number_of_bytes(text) == number
