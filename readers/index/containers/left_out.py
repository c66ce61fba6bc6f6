"""What is left out of the rows of containers, counted."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from readers.messages import printable

logger = logging.getLogger(__name__)


@dataclass
class LeftOut:
    """Counts of what is left out, by reason, with the first example of each."""

    counts: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, reason: str, example: str, count: int = 1) -> None:
        """Count `count` entries, of which `example` is the first."""
        known, first = self.counts.get(reason, (0, example))
        self.counts[reason] = known + count, first

    def add_all(self, other: LeftOut) -> None:
        """Count what another container leaves out."""
        for reason, (count, example) in other.counts.items():
            self.add(reason, example, count)

    def log(self) -> None:
        """Write one warning for each reason."""
        for reason, (count, example) in self.counts.items():
            logger.warning("left out: %d %s, the first: %s", count, reason, printable(example))
