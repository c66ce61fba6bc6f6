"""The advice on real runs: what is made slow on purpose is what it names.

Whether it helps to follow the advice is for bench.py to show: that takes an idle machine.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import _bench_bottlenecks as bench
import pytest
from _advice import Advice


@pytest.mark.parametrize("name", bench.SETUPS)
def test_what_is_slow_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_SIZE", 512)
    setup = bench.SETUPS[name]
    if setup.step_s:
        # In every contrast: on a busy machine batches come late, too.
        setup = replace(setup, step_s=0.4)
    index = bench.write_archive(tmp_path / "files", setup.compression)
    advice, rate = bench.measured(setup, index, 0.4)
    # On a machine whose cores are all taken, that is what the advice must say of what computes.
    computes = setup.limit in ("readers", "graph")
    assert advice.limit in ((setup.limit, "cpu") if computes else (setup.limit,))
    assert rate > 0


def test_a_sheet_tells_right_from_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """From made-up rates, where four readers help, or do not."""
    helped = {"readers": True}

    def measured(setup: bench.Setup, *_: object) -> tuple[Advice, float]:
        change = {"num_read_processes": 4}
        if setup.limit == "consumer":
            return Advice("consumer", ""), 1 / setup.step_s
        followed = setup.flags["num_read_processes"] == 4
        return Advice(setup.limit, "", change), 40.0 if followed and helped["readers"] else 10.0

    monkeypatch.setattr(bench, "measured", measured)
    monkeypatch.setattr(bench, "write_archive", lambda *_: None)

    class Settings:
        quick = True

    sheet = bench.bottleneck_sheet(Settings())  # type: ignore[arg-type]
    assert [line[-1] for line in sheet.lines] == ["right"] * 4
    assert sheet.lines[0][1:5] == ("storage", "10.0", "--num_read_processes=4", "40.0")
    helped["readers"] = False
    sheet = bench.bottleneck_sheet(Settings())  # type: ignore[arg-type]
    assert [line[-1] for line in sheet.lines] == ["WRONG", "WRONG", "WRONG", "right"]
