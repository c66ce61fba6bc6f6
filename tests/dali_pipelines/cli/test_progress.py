"""Progress bars: how often they are drawn, and where they are not."""

from __future__ import annotations

import io
import sys
import time

import pytest
from jobs import ROOT

from dali_pipelines.cli.progress import INTERVAL_S, Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("with_lines", [True, False])
def test_a_bar_is_drawn_at_most_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch, with_lines: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    started = time.monotonic()
    with Bar(total=500, unit="files") as bar:
        for number in range(500):
            if with_lines:
                bar.write(f"line {number}", file=sys.stderr)
            bar.refresh()
            bar.update()
    seconds = time.monotonic() - started
    shown = terminal.getvalue()
    assert "500/500" in shown
    assert shown.count("/500") <= 2 + seconds / INTERVAL_S
    if with_lines:  # each begins a line of its own
        lines = [line.rpartition("\r")[2] for line in shown.split("\n")]
        assert [line for line in lines if line[:4] == "line"] == [f"line {n}" for n in range(500)]


def test_nothing_is_drawn_into_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in Bar(range(3), unit="files"):
        pass
    assert capsys.readouterr() == ("", "")


def test_all_commands_have_this_bar() -> None:
    folders = ("dali_pipelines", "readers", "benchmarks", "scripts")
    sources = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    found = [file.name for file in sources if "import tqdm" in file.read_text()]
    assert found == ["progress.py"]
