"""The exception that Readers raise."""

from __future__ import annotations

from functools import partial

from readers.messages import printable


class ReadError(OSError):
    """A row of the Index cannot be read.

    Parameters
    ----------
    path : str
        File as named in the Index.
    reason : str
        What was expected and what was found. Control characters are escaped.
    hdu : int, optional
        FITS HDU, 0 for the primary.
    row : int, optional
        Row of the Index.
    is_of_store : bool
        Whether remote storage does not answer or denies access. Other objects would then have the
        same error.
    """

    def __init__(
        self,
        path: str,
        reason: str,
        *,
        hdu: int | None = None,
        row: int | None = None,
        is_of_store: bool = False,
    ) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = printable(reason.replace("\n", " "))
        self.hdu = hdu
        self.row = row
        self.is_of_store = is_of_store

    def __str__(self) -> str:
        hdu = "" if self.hdu is None else f"[{self.hdu}]"
        row = "" if self.row is None else f" (row {self.row})"
        return f"{printable(self.path)}{hdu}{row}: {self.reason}"

    def of_sample(self, path: str, row: int, image: str) -> ReadError:
        """Convert the error of a named image, perhaps in another file, to an error of its sample.

        `path` and `row` are those of the sample.
        """
        hdu, file = self.hdu, ""
        if self.path != path:
            hdu, file = None, f", {self.path}" + ("" if self.hdu is None else f"[{self.hdu}]")
        return ReadError(path, f"{image}{file}: {self.reason}", hdu=hdu, row=row)

    def __reduce__(self) -> tuple[object, ...]:
        of = partial(ReadError, hdu=self.hdu, row=self.row, is_of_store=self.is_of_store)
        return of, (self.path, self.reason)


def reason_of(error: BaseException, path: str) -> str:
    """Return an error's message without a path at its end, because ReadError adds the path.

    Messages of ``open`` and of places end with a colon and the path.
    """
    return str(error).removesuffix(f": {path!r}")
