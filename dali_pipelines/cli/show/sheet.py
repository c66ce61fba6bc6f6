"""A contact sheet: pictures in a grid, with captions, as a PNG file."""

from __future__ import annotations

import io
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dali_pipelines.cli.paths import write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

DPI = 100
GAP = 12
"""Pixels between the pictures, and around them."""
LINE = 13
"""Pixels from one line of text to the next."""
FONT = 7
"""Font size in points."""
CHARACTER = 6.05
"""Largest width of a character of that size in pixels."""


class Outline(NamedTuple):
    """A rectangle over a picture, in pixels from the outer edge of the picture's first pixel."""

    x: float
    y: float
    width: float
    height: float
    text: str
    """Text beside the box."""
    color: str


@dataclass(frozen=True, slots=True)
class Picture:
    """One cell of a sheet."""

    caption: tuple[str, ...]
    """Lines under the picture; a long line is cut at its end, a long path at its beginning."""
    pixels: NDArray[np.uint8] | None
    """RGB, shape (height, width, 3), first row on top; None for a cell without a picture."""
    remark: str = ""
    """Text in a cell without a picture."""
    circle: tuple[float, float, float] | None = None
    """Circle over the picture: x, y and radius, in pixels from the middle of its first pixel."""
    outlines: Sequence[Outline] = ()
    """Boxes over the picture."""


def save_sheet(path: str, rows: Sequence[Sequence[Picture]], *, heading: str, size: int) -> None:
    """Draw rows of pictures below a heading, and write the PNG file.

    Pictures shrink or grow to their cell, a square of `size` pixels.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pitch = size + max(len(picture.caption) for row in rows for picture in row) * LINE + GAP
    width = max(map(len, rows)) * (size + GAP) + GAP
    head = textwrap.wrap(heading, int((width - 2 * GAP) / CHARACTER))
    top = GAP + len(head) * LINE + GAP // 2
    height = top + len(rows) * pitch
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _write(figure, GAP, GAP, head)
    for number, row in enumerate(rows):
        for column, picture in enumerate(row):
            x, y = GAP + column * (size + GAP), top + number * pitch
            _draw(figure, x, y, size, picture)
            _write(figure, x + 6, y + 6, _wrapped(picture.remark, size), "firebrick")
            _write(figure, x, y + size + 3, [_fitting(line, size) for line in picture.caption])
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DPI)
    write_file(path, image.getvalue())


def _draw(figure: Figure, x: int, y: int, size: int, picture: Picture) -> None:
    """Draw a picture in the middle of its cell; `x` and `y` are the upper left corner in pixels."""
    width, height = figure.get_size_inches() * DPI
    rectangle = (x / width, 1 - (y + size) / height, size / width, size / height)
    axes = figure.add_axes(rectangle, xticks=[], yticks=[], facecolor="0.93")
    axes.spines[:].set_visible(False)
    if picture.pixels is None:
        return
    axes.imshow(picture.pixels, interpolation="nearest")
    rows, columns = picture.pixels.shape[:2]
    side = max(rows, columns)
    axes.set_xlim((columns - side - 1) / 2, (columns + side - 1) / 2)
    axes.set_ylim((rows + side - 1) / 2, (rows - side - 1) / 2)
    for left, top, width, height, text, color in picture.outlines:
        from matplotlib.patches import Rectangle

        corner = left - 0.5, top - 0.5
        box = Rectangle(corner, width, height, edgecolor=color, linewidth=1.2, fill=False)
        axes.add_patch(box)
        _label(axes, (*corner, width, height), text, color, pixel=side / size)
    if picture.circle is not None:
        from matplotlib.patches import Circle

        *_, radius = picture.circle
        # Two colours, as one of them is visible on any picture.
        for color, dashes in (("black", "solid"), ("white", (0, (4, 4)))):
            line = {"edgecolor": color, "linestyle": dashes, "linewidth": 0.8, "fill": False}
            axes.add_patch(Circle(picture.circle[:2], radius, **line))


def _label(
    axes: Axes, box: tuple[float, float, float, float], text: str, color: str, *, pixel: float
) -> None:
    """Write a label on its box (x, y, width, height): above it, or inside if it is at the edge.

    `pixel` is the size of a pixel of the sheet in pixels of the picture. A label that would reach
    beyond the right edge begins further left.
    """
    x, y, *_ = box
    (left, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    x = max(left, min(x, right - len(text) * CHARACTER * pixel))
    y = max(y, top)
    fits = y - LINE * pixel >= top
    axes.text(
        *(x + pixel, y - pixel if fits else y + pixel),
        text,
        {"size": FONT, "family": "DejaVu Sans Mono"},
        color="white",
        va="bottom" if fits else "top",
        bbox={"facecolor": color, "edgecolor": "none", "pad": 0.7},
        clip_on=True,
        parse_math=False,
    )


def _write(figure: Figure, x: int, y: int, lines: Sequence[str], color: str = "black") -> None:
    """Write lines of text below each other; the first begins at (x, y) in pixels."""
    width, height = figure.get_size_inches() * DPI
    font = {"size": FONT, "family": "DejaVu Sans Mono"}
    for number, line in enumerate(lines):
        at = x / width, 1 - (y + number * LINE) / height
        figure.text(*at, line, font, va="top", color=color, parse_math=False)


def _wrapped(text: str, size: int) -> list[str]:
    """Break a text into lines that fit into a cell."""
    lines = textwrap.wrap(text, int((size - 12) / CHARACTER))
    most = (size - 12) // LINE
    return lines if len(lines) <= most else [*lines[: most - 1], "…"]


def _fitting(line: str, size: int) -> str:
    """Shorten a line to a cell; a path keeps its end, because the end says more."""
    most = int(size / CHARACTER)
    if len(line) <= most:
        return line
    return "…" + line[len(line) - most + 1 :] if "/" in line else line[: most - 1] + "…"
