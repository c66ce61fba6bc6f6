"""Plots of what was timed: bars for ways, curves where a setting is varied."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure.race import Result, Table
from benchmarks.report.tables import Sheet, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 10.0
"""Inches."""
_BAR = 0.36
_CURVES = 3.2
_OURS, _OTHERS = "#2a6f97", "#b0b7bd"
_HERE, _ELSEWHERE = "#7f5539", "#ddb892"
_PARTS = {
    "read": "#e9c46a",
    "decode": "#c8553d",
    "graph": "#6a994e",
    "transport": "#7b6d8d",
    "wait": "#e4e7ea",
}
"""Colours of the fields of `Parts`."""
_LEGEND: dict[str, Any] = {
    "frameon": False,
    "fontsize": 8,
    "loc": "lower right",
    "bbox_to_anchor": (1, 1),
}


def save_plots(folder: Path, suite: str, shown: Sequence[Table | Sheet]) -> None:
    """Write SUITE.png and SUITE.svg, one panel for each Table, if there are any."""
    from matplotlib.figure import Figure

    tables = [table for table in shown if isinstance(table, Table)]
    if not tables:
        return
    heights = [_CURVES if table.axis else 1.2 + _BAR * len(_timed(table)) for table in tables]
    figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, table in zip(parts, tables, strict=True):
        if table.axis:
            panels = [part.subplots()]
            _draw_curves(panels[0], table)
        else:
            panels = part.subplots(1, 2, sharey=True, width_ratios=(3, 2))
            _draw_bars(panels[0], table)
            counted = any(result.parts for result in table.results)
            (_draw_parts if counted else _draw_cpu)(panels[1], table)
        panels[0].set_title(table.title, loc="left", fontsize=11, fontweight="bold")
        for panel in panels:
            panel.spines[["top", "right"]].set_visible(False)
    for words in ("png", "svg"):
        figure.savefig(folder / f"{suite}.{words}", dpi=130)


def _timed(table: Table) -> list[Result]:
    return [result for result in table.results if not result.note]


def _spread(results: Sequence[Result]) -> tuple[list[float], tuple[list[float], list[float]]]:
    """Return the medians, and how far the lowest and the highest are from them."""
    rates = [result.rates() for result in results]
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
    furthest = max(max(result.rates()) for result in results)
    for place, (result, median) in enumerate(zip(results, medians, strict=True)):
        text = f"{number(median)}  ({table.speedup(result):.1f}x)"
        panel.text(max(result.rates()) + 0.015 * furthest, place, text, va="center")
    panel.set_xlim(0, 1.3 * furthest)
    panel.set_xlabel("images/s, median and range (speedup)")


def _draw_cpu(panel: Axes, table: Table) -> None:
    """Draw where the CPU time goes."""
    results = _timed(table)[::-1]
    names = [result.name for result in results]
    rounds = [result.rounds for result in results]
    here = [1e3 * statistics.median(one.cpu_s_here for one in some) for some in rounds]
    elsewhere = [1e3 * statistics.median(one.cpu_s_elsewhere for one in some) for some in rounds]
    panel.barh(names, here, color=_HERE, label="this process")
    panel.barh(names, elsewhere, left=here, color=_ELSEWHERE, label="others")
    panel.set_xlim(0, 1.05 * max(panel.get_xlim()))  # bars of no width would end it at the others
    panel.set_xlabel("CPU ms per image")
    panel.legend(**_LEGEND, ncols=2)


def _draw_parts(panel: Axes, table: Table) -> None:
    """Draw how the cores spend the time of an image."""
    results = [result for result in _timed(table)[::-1] if result.parts]
    names = [result.name for result in results]
    left = [0.0] * len(results)
    for part, colour in _PARTS.items():
        widths = [1e3 * getattr(result.parts, part) for result in results]
        panel.barh(names, widths, left=left, color=colour, label=part)
        left = [one + width for one, width in zip(left, widths, strict=True)]
    panel.set_xlabel("core-ms per image")
    panel.legend(**_LEGEND, ncols=len(_PARTS), handlelength=1, handletextpad=0.4, columnspacing=0.8)


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
    panel.margins(x=0.1)
    panel.set_ylim(0, 1.15 * max(panel.get_ylim()))
    panel.set_ylabel("images/s")
    panel.set_xlabel(table.axis)
    panel.legend(**_LEGEND, ncols=len(curves))
