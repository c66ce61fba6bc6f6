"""Objects of a catalogue that make no row, and images that are left out: counts and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from readers.messages import printable

_LISTED = 5
"""Rows and images that the message names."""


@dataclass(frozen=True)
class LeftOut:
    """Objects without a row, by the reason, and images that could not be looked at."""

    count: int
    """Objects of the catalogue."""
    objects: Mapping[str, NDArray[np.int64]]
    """Rows of the catalogue, counted from 0, by the reason; not empty."""
    images: Mapping[str, str]
    """Why an image was left out, by its name."""
    hint: str = ""
    """Remedy for objects on no image."""

    @classmethod
    def of(cls, why: NDArray[np.object_], images: Mapping[str, str], hint: str = "") -> LeftOut:
        """Collect the reason of each object, '' if it makes a row."""
        reasons = sorted(set(why.tolist()) - {""})
        return cls(len(why), {each: np.flatnonzero(why == each) for each in reasons}, images, hint)

    def __bool__(self) -> bool:
        return bool(self.objects or self.images)

    def each(self) -> Iterator[tuple[int, str]]:
        """Yield each row of the catalogue that makes no row, with the reason."""
        for reason, rows in self.objects.items():
            yield from ((row, reason) for row in rows.tolist())

    def message(self) -> str:
        """Return one line that counts them and names the first."""
        parts = []
        if self.objects:
            total = sum(map(len, self.objects.values()))
            reasons = [f"{len(rows)} {why} ({_rows(rows)})" for why, rows in self.objects.items()]
            parts.append(f"{total} of {self.count} objects make no row: {', '.join(reasons)}")
        if self.images:
            first = [f"{name}: {why}" for name, why in list(self.images.items())[:_LISTED]]
            more = len(self.images) - len(first)
            named = "; ".join([*first, f"and {more} more"] if more else first)
            are = "image is" if len(self.images) == 1 else "images are"
            parts.append(f"{len(self.images)} {are} left out: {printable(named)}")
        return "; ".join(filter(None, [*parts, self.hint]))


def _rows(rows: NDArray[np.int64]) -> str:
    listed = ", ".join(map(str, rows[:_LISTED].tolist()))
    more = ", ..." if len(rows) > _LISTED else ""
    return f"catalogue row{'s' if len(rows) > 1 else ''} {listed}{more}"
