"""How a script says no: one line for the user, and an exit status."""

from __future__ import annotations

from readers.messages import printable


class Refusal(Exception):
    """One line for the user, and the exit status that goes with it."""

    def __init__(self, message: object, status: int = 2) -> None:
        super().__init__(one_line(message))
        self.status = status


def one_line(message: object) -> str:
    """Return a message without line breaks, runs of blanks and control characters."""
    return printable(" ".join(str(message).split()))
