"""Plots of what was timed: bars for ways, curves where a setting is varied."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from _bench_race import Result, Table
from _bench_tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 8.0
"""Inches."""
_BAR = 0.36
_CURVES = 3.2
_OURS, _OTHERS = "#2a6f97", "#b0b7bd"


def save_plots(folder: Path, suite: str, tables: Sequence[Table]) -> None:
    """Write SUITE.png and SUITE.svg, one panel for each table."""
    from matplotlib.figure import Figure

    heights = [_CURVES if table.axis else 1.2 + _BAR * len(_timed(table)) for table in tables]
    figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, table in zip(panels, tables, strict=True):
        (_draw_curves if table.axis else _draw_bars)(panel, table)
        panel.set_title(table.title, loc="left", fontsize=11, fontweight="bold")
        panel.spines[["top", "right"]].set_visible(False)
    for words in ("png", "svg"):
        figure.savefig(folder / f"{suite}.{words}", dpi=130)


def _timed(table: Table) -> list[Result]:
    return [result for result in table.results if not result.note]


def _spread(results: Sequence[Result]) -> tuple[list[float], tuple[list[float], list[float]]]:
    """Give the medians, and how far the lowest and the highest are from them."""
    rates = [result.images_per_s for result in results]
    medians = [statistics.median(one) for one in rates]
    below = [middle - min(one) for middle, one in zip(medians, rates, strict=True)]
    above = [max(one) - middle for middle, one in zip(medians, rates, strict=True)]
    return medians, (below, above)


def _draw_bars(panel: Axes, table: Table) -> None:
    results = _timed(table)[::-1]  # the first on top
    medians, spread = _spread(results)
    names = [result.name for result in results]
    colours = [_OURS if result.ours else _OTHERS for result in results]
    panel.barh(
        names, medians, xerr=spread, color=colours, error_kw={"ecolor": "#555", "capsize": 2}
    )
    furthest = max(max(result.images_per_s) for result in results)
    for place, (result, median) in enumerate(zip(results, medians, strict=True)):
        text = f"{number(median)}  ({table.speedup(result):.1f}x)"
        panel.text(max(result.images_per_s) + 0.015 * furthest, place, text, va="center")
    panel.set_xlim(0, 1.22 * furthest)
    panel.set_xlabel("images/s, median and range of the rounds (speedup)")


def _draw_curves(panel: Axes, table: Table) -> None:
    curves: dict[str, list[Result]] = {}
    for result in _timed(table):
        if result.point is not None:
            curves.setdefault(result.point[0], []).append(result)
    for count, (name, results) in enumerate(curves.items()):
        places = [result.point[1] for result in results if result.point is not None]
        medians, spread = _spread(results)
        ours = results[0].ours
        panel.errorbar(
            places,
            medians,
            yerr=spread,
            marker="os^v"[count % 4],
            capsize=2,
            label=name,
            color=_OURS if ours else _OTHERS,
        )
        for place, median in zip(places, medians, strict=True):
            panel.annotate(number(median), (place, median), (6, 4), textcoords="offset points")
    panel.set_ylim(bottom=0)
    panel.margins(x=0.1, y=0.18)
    panel.set_ylabel("images/s")
    panel.set_xlabel(table.axis)
    panel.legend(frameon=False, fontsize=9)
