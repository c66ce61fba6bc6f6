"""The only exception that a Reader raises."""

from __future__ import annotations

from functools import partial

from readers.messages import printable


class ReadError(OSError):
    """A row of the Index that cannot be turned into a Sample.

    Parameters
    ----------
    path : str
        The file, as named in the Index.
    reason : str
        What was expected and what was found. Control characters in it are escaped.
    hdu : int, optional
        FITS HDU, 0 for the primary.
    row : int, optional
        Row of the Index.
    """

    def __init__(
        self, path: str, reason: str, *, hdu: int | None = None, row: int | None = None
    ) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = printable(reason.replace("\n", " "))
        self.hdu = hdu
        self.row = row

    def __str__(self) -> str:
        hdu = "" if self.hdu is None else f"[{self.hdu}]"
        row = "" if self.row is None else f" (row {self.row})"
        return f"{printable(self.path)}{hdu}{row}: {self.reason}"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(ReadError, hdu=self.hdu, row=self.row), (self.path, self.reason)
