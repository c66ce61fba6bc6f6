"""Figures that suites compute from what they measured, and their checks of themselves."""

from __future__ import annotations

import functools
import itertools
import os
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measure.race import Result, Round, Table
from benchmarks.sheets import ancestors, bottlenecks
from benchmarks.sheets import index as rows_sheet
from benchmarks.sheets.index import deliver
from benchmarks.sheets.model import Amounts, Costs, Measured
from benchmarks.ways.aiapy import area_mean
from benchmarks.ways.peers import Case
from benchmarks.ways.shards import in_processes
from dali_pipelines.cli.run.advice import Advice
from readers import Order, Schedule, Shard

AMOUNTS = [
    Amounts(read_mb=read, decoded_mpixel=decoded, delivered_mpixel=delivered)
    for read, decoded, delivered in ((12, 17, 17), (0.8, 1, 1), (3, 4, 1), (0.4, 0.5, 0.02))
]


def runs(costs: Costs, noise: tuple[float, ...] = (1, 1, 1, 1)) -> list[Measured]:
    return [
        Measured(
            case=Case(kind="fits", batch_size=2),
            amounts=one,
            images_per_s=1.0,
            reader_ms=costs.reader_image + costs.reader_mb * one.read_mb,
            graph_ms=factor
            * (
                costs.graph_image
                + costs.decoded_mpixel * one.decoded_mpixel
                + costs.delivered_mpixel * one.delivered_mpixel
            ),
        )
        for one, factor in zip(AMOUNTS, noise, strict=True)
    ]


@given(st.lists(st.floats(0.01, 100), min_size=5, max_size=5))
def test_the_cost_model_finds_its_constants_again(constants: list[float]) -> None:
    costs = Costs(*constants)
    found = Costs.fit(runs(costs))
    predicted = [found.images_per_s(one, 2, 2, 2) for one in AMOUNTS]
    assert predicted == pytest.approx([costs.images_per_s(one, 2, 2, 2) for one in AMOUNTS])


def test_no_constant_of_the_cost_model_is_negative() -> None:
    found = Costs.fit(runs(Costs(1, 1, 5, 1, 1), noise=(1.3, 0.6, 1.2, 0.7)))
    assert min(astuple(found)) >= 0


def test_the_least_of_the_limits_counts() -> None:
    costs = Costs(reader_image=2, reader_mb=1, graph_image=1, decoded_mpixel=1, delivered_mpixel=2)
    amounts = Amounts(read_mb=2, decoded_mpixel=3, delivered_mpixel=1)  # 4 ms and 6 ms
    assert costs.images_per_s(amounts, cores=2, readers=8, threads=8) == pytest.approx(200)
    assert costs.images_per_s(amounts, cores=64, readers=1, threads=8) == pytest.approx(250)
    assert costs.images_per_s(amounts, cores=64, readers=8, threads=3) == pytest.approx(500)


def test_a_row_that_is_lost_or_repeated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of a huge Index says that each row came once."""
    whole = Schedule(num_rows=1000, shard=Shard(0, 3), batch_size=8, epoch=2)
    order = Order(1000, 7)
    assert deliver(order, [(whole, None)]).all()
    rest = Schedule(num_rows=1000, shard=Shard(0, 5), batch_size=4, epoch=2, position=48)
    assert deliver(order, [(whole, 2), (rest, None)]).all()
    with pytest.raises(ValueError, match="976 of 1000 rows were dealt out, 24 were not"):
        deliver(order, [(replace(whole, position=24), None)])
    with pytest.raises(ValueError, match="1024 of 1000 rows were dealt out, 0 were not"):
        deliver(order, [(whole, 1), (whole, None)])
    rows = Order.rows

    def repeated(*given: Any) -> Any:
        found = rows(*given)
        found[-1] = found[0]
        return found

    monkeypatch.setattr(Order, "rows", repeated)
    monkeypatch.setattr(rows_sheet, "_ASKED", 10**6)
    with pytest.raises(ValueError, match="1000 of 1000 rows were dealt out, 3 were not"):
        deliver(order, [(whole, None)])
    monkeypatch.setattr(rows_sheet, "_ASKED", 1)
    with pytest.raises(ValueError, match="gives two rows"):
        deliver(order, [(whole, None)])


def made_up(limit: str | None, helps: bool, elsewhere: float) -> object:
    """Return runs where four readers help, or do not, and the advice is as it should be, or not."""

    def measured(setup: bottlenecks.Setup, *_: object) -> bottlenecks.Measured:
        advice = Advice(limit or setup.limit, "", {"num_read_processes": 4})  # type: ignore[arg-type]
        if advice.limit == "consumer":
            return bottlenecks.Measured(Advice("consumer", ""), 1 / setup.step_s, elsewhere)
        followed = helps and setup.flags["num_read_processes"] == 4
        return bottlenecks.Measured(advice, 40.0 if followed else 10.0, elsewhere)

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
def test_right_advice_is_told_from_wrong(
    monkeypatch: pytest.MonkeyPatch,
    limit: str | None,
    helps: bool,
    elsewhere: float,
    verdicts: list[str],
) -> None:
    monkeypatch.setattr(bottlenecks, "measured", made_up(limit, helps, elsewhere))
    monkeypatch.setattr(bottlenecks, "write_archive", lambda *_: None)
    sheet = bottlenecks.bottleneck_sheet(SimpleNamespace(quick=True))
    assert [line[-1] for line in sheet.lines] == verdicts


def test_seconds_of_an_epoch_are_images_by_the_rate() -> None:
    names = ("Loader", "serial source", "process per shard", "pool of readers", "both")
    results = tuple(
        Result(name=name, rounds=(Round(images_per_s=rate, cpu_s_here=0.0, cpu_s_elsewhere=0.0),))
        for name, rate in zip(names, itertools.count(10.0, -2.0), strict=False)
    )
    table = Table(title="T", baseline="serial source", results=results, data="16 files")
    sheet = ancestors.epoch_sheet(table, 16)
    assert sheet.lines[0] == ("serial source", "2.00", "1.00", "81", "1.0")
    assert sheet.lines[3] == ("both", "8.00", "0.25", "16", "5.0")
    assert sheet.lines[4] == ("Loader", "1.60", "1.25", "", "")


def test_area_means_are_of_a_frame_filled_to_whole_squares() -> None:
    """Pixels of AIA are compared with these, and not where they are NaN."""
    image = np.arange(36.0).reshape(6, 6)
    found = area_mean(image, 2)
    assert found.shape == (4, 4)
    assert found[1, 1] == image[1:3, 1:3].mean()
    assert np.isnan(found[0]).all()


def test_a_process_that_dies_is_told() -> None:
    dying = functools.partial(os._exit, 3)
    with in_processes([dying]) as run, pytest.raises(ChildProcessError, match="process died"):
        list(run(False))
