"""The chart of the benchmarks page, drawn from the files of measured figures."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot as plt

RACES = {
    "loader_2cores_2026-11-22": ("Whole frames", "Random 512x512 windows of frames"),
    "photographs_2cores_2026-11-29": (
        "Random regions, resized to 224x224, flipped (large)",
        "Random regions, resized to 224x224, flipped (small)",
        "Random windows of 224x224, flipped (small)",
    ),
    "aia_2cores_2026-11-21": ("AIA level 1 to calibrated images",),
}
"""Files of results, and the titles of those of their tables that are drawn."""


def draw_speeds(results: Path, out: Path) -> None:
    """Draw images per second of each way, a panel for each race, as an SVG file.

    Parameters
    ----------
    results : Path
        Folder of the files that bench.py wrote.
    out : Path
        File to write.
    """
    figure, panels = plt.subplots(3, 2, figsize=(13, 9), layout="constrained")
    races = ((name, title) for name, titles in RACES.items() for title in titles)
    for axis, (name, title) in zip(panels.flat, races, strict=True):
        tables = json.loads((results / f"{name}.json").read_text())["tables"]
        (table,) = (table for table in tables if table["title"] == title)
        ways = [way for way in table["results"][::-1] if way["rounds"]]
        speeds = [median(r["images_per_s"] for r in way["rounds"]) for way in ways]
        colors = ["#0b7285" if way["ours"] else "#adb5bd" for way in ways]
        names = [way["name"] for way in ways]
        bars = axis.barh(names, speeds, color=colors)
        axis.bar_label(
            bars, fmt=lambda speed: f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}", padding=3
        )
        axis.set_title(title, loc="right", fontsize=11)
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("images/s")
    figure.savefig(out)
    plt.close(figure)
