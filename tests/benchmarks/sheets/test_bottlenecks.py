"""The advice on real runs: what is made slow on purpose is what it names.

Whether it helps to follow the advice is for bench.py to show: that takes an idle machine.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import benchmarks.sheets.bottlenecks as bench
from dali_pipelines.cli.run.advice import Advice


@pytest.mark.parametrize("name", bench.SETUPS)
def test_what_is_slow_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_SIZE", 512)
    setup = bench.SETUPS[name]
    if setup.step_s:
        # In every contrast: on a busy machine batches come late, too.
        setup = replace(setup, step_s=0.4)
    index = bench.write_archive(tmp_path / "files", setup.compression)
    # On a machine whose cores are all taken, that is what the advice must say of what computes.
    right = {setup.limit, "cpu"} if setup.limit in ("readers", "graph") else {setup.limit}
    # There, too, a short time may hold a few reads alone, which began before it or end after it.
    named = []
    for seconds in (0.4, 2, 10):
        advice, rate, _ = bench.measured(setup, index, seconds)
        assert rate > 0
        named.append(advice.limit)
        if advice.limit in right:
            return
    raise AssertionError(f"expected {right}, the advice named {named}")


def made_up(limit: str | None, helps: bool, elsewhere: float) -> object:
    """Return runs where four readers help, or do not, and the advice is as it should be, or not."""

    def measured(setup: bench.Setup, *_: object) -> bench.Measured:
        advice = Advice(limit or setup.limit, "", {"num_read_processes": 4})  # type: ignore[arg-type]
        if advice.limit == "consumer":
            return bench.Measured(Advice("consumer", ""), 1 / setup.step_s, elsewhere)
        followed = helps and setup.flags["num_read_processes"] == 4
        return bench.Measured(advice, 40.0 if followed else 10.0, elsewhere)

    return measured


@pytest.mark.parametrize(
    ("limit", "helps", "elsewhere", "verdicts"),
    [
        (None, True, 0.0, ["right"] * 4),
        (None, False, 2.0, [*["WRONG"] * 3, "right"]),
        ("transport", True, 0.0, ["WRONG"] * 4),
        ("cpu", False, 0.1, ["WRONG"] * 4),
        ("cpu", False, 1.0, ["no core is idle"] * 4),
    ],
)
def test_a_sheet_tells_right_from_wrong(
    monkeypatch: pytest.MonkeyPatch,
    limit: str | None,
    helps: bool,
    elsewhere: float,
    verdicts: list[str],
) -> None:
    monkeypatch.setattr(bench, "measured", made_up(limit, helps, elsewhere))
    monkeypatch.setattr(bench, "write_archive", lambda *_: None)
    sheet = bench.bottleneck_sheet(SimpleNamespace(quick=True))
    assert [line[-1] for line in sheet.lines] == verdicts
    if helps and limit is None:
        assert sheet.lines[0][1:5] == ("storage", "10.0", "--num_read_processes=4", "40.0")
