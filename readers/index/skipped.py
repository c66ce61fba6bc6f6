"""Counts of entries that are left out of an Index."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from readers.messages import printable

logger = logging.getLogger(__name__)

HIDDEN = "files and folders with names that begin with a dot"
"""Reason for hidden files, e.g. ``._a.jpg`` of macOS and ``.ipynb_checkpoints`` of Jupyter."""


@dataclass
class Skipped:
    """Counts of the entries left out, by reason, with the first example of each reason."""

    counts: dict[str, tuple[int, str]] = field(default_factory=dict)
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """Name and error of each entry that cannot be read."""

    def add(self, reason: str, example: str, count: int = 1) -> None:
        """Count entries. `example` is the first of them."""
        known, first = self.counts.get(reason, (0, example))
        self.counts[reason] = known + count, first

    def reject(self, reason: str, name: str, error: object) -> None:
        """Count an entry that cannot be read, and keep its name and error."""
        self.add(reason, f"{name}: {error}")
        self.rejected.append((name, str(error)))

    def add_all(self, other: Skipped) -> None:
        """Add the counts of another object."""
        self.rejected += other.rejected
        for reason, (count, example) in other.counts.items():
            self.add(reason, example, count)

    def lines(self) -> list[str]:
        """Return a line for each reason."""
        return [
            f"{count} {reason}, the first: {printable(example)}"
            for reason, (count, example) in self.counts.items()
        ]

    def log(self) -> None:
        """Log one warning for each reason."""
        for line in self.lines():
            logger.warning("left out: %s", line)


def notes_or_null(column: str, found: Iterable[bytes | OSError | None]) -> list[bytes | None]:
    """Return a column of notes, null for unreadable files. The log counts these files."""
    skipped, notes = Skipped(), list[bytes | None]()
    for each in found:
        if isinstance(each, OSError):
            skipped.add(f"files without {column}, because they cannot be read", str(each))
        notes.append(None if isinstance(each, OSError) else each)
    skipped.log()
    return notes
