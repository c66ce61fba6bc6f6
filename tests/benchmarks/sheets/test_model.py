"""The cost model: its constants are found again, and the least of the limits counts."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sheets.model import Amounts, Costs, Measured
from benchmarks.ways.peers import Case

AMOUNTS = [
    Amounts(read_mb=read, decoded_mpixel=decoded, delivered_mpixel=delivered)
    for read, decoded, delivered in ((12, 17, 17), (0.8, 1, 1), (3, 4, 1), (0.4, 0.5, 0.02))
]
CASE = Case(kind="fits", batch_size=2)


def runs(costs: Costs) -> list[Measured]:
    return [
        Measured(
            case=CASE,
            amounts=one,
            images_per_s=1.0,
            reader_ms=costs.reader_image + costs.reader_mb * one.read_mb,
            graph_ms=costs.graph_image
            + costs.decoded_mpixel * one.decoded_mpixel
            + costs.delivered_mpixel * one.delivered_mpixel,
        )
        for one in AMOUNTS
    ]


@given(st.lists(st.floats(0.01, 100), min_size=5, max_size=5))
def test_constants_are_found_again(constants: tuple[float, ...]) -> None:
    costs = Costs(*constants)
    found = Costs.fit(runs(costs))
    predicted = [found.images_per_s(one, 2, 2, 2) for one in AMOUNTS]
    assert predicted == pytest.approx([costs.images_per_s(one, 2, 2, 2) for one in AMOUNTS])


def test_no_constant_is_negative() -> None:
    costs = Costs(1, 1, 5, 1, 1)
    noisy = [
        replace(run, graph_ms=run.graph_ms * factor)
        for run, factor in zip(runs(costs), (1.3, 0.6, 1.2, 0.7), strict=True)
    ]
    found = Costs.fit(noisy)
    assert min(astuple(found)) >= 0
    for run in noisy:
        rate = found.images_per_s(run.amounts, 1, 1, 1)
        measured = 1e3 / (run.reader_ms + run.graph_ms)
        assert rate == pytest.approx(measured, rel=0.6)


def test_the_least_of_the_limits_counts() -> None:
    costs = Costs(reader_image=2, reader_mb=1, graph_image=1, decoded_mpixel=1, delivered_mpixel=2)
    amounts = Amounts(read_mb=2, decoded_mpixel=3, delivered_mpixel=1)  # 4 ms and 6 ms
    assert costs.images_per_s(amounts, cores=2, readers=8, threads=8) == pytest.approx(200)
    assert costs.images_per_s(amounts, cores=64, readers=1, threads=8) == pytest.approx(250)
    assert costs.images_per_s(amounts, cores=64, readers=8, threads=3) == pytest.approx(500)
