"""Progress bars of commands: only on a terminal, and drawn at most ten times a second."""

from __future__ import annotations

import time
from typing import Any

from tqdm import tqdm

INTERVAL_S = 0.1
"""Minimum time between two drawings of a bar: more of them would flood an ssh connection."""


class Bar(tqdm):
    """A bar of tqdm on stderr. Nothing is drawn if that is not a terminal, but e.g. a log.

    tqdm removes and draws its bar for each line that `write` prints above it. This bar stays away
    while lines come faster than `INTERVAL_S`.
    """

    def __init__(self, *args: Any, unit: str, disable: bool | None = None, **options: Any) -> None:
        self._next_s, self._is_shown = 0.0, False
        options |= {
            "unit": f" {unit}",
            "mininterval": INTERVAL_S,
            "dynamic_ncols": True,
            "disable": disable or None,  # None: only if stderr is a terminal
        }
        super().__init__(*args, **options)

    def refresh(self, nolock: bool = False, lock_args: Any = None) -> Any:
        """Draw the bar, unless it was drawn a moment ago."""
        if time.monotonic() < self._next_s:
            return False
        self._next_s, self._is_shown = time.monotonic() + INTERVAL_S, True
        return super().refresh(nolock, lock_args)

    def clear(self, nolock: bool = False) -> None:
        """Remove the bar from the screen, if it is there."""
        if self._is_shown:
            self._is_shown = False
            super().clear(nolock)
