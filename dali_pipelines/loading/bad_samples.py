"""The bad-sample policy of a Loader: raise, or note and log up to a limit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, get_args

from dali_pipelines.loading.cursor import Cursor
from dali_pipelines.loading.stats import LoaderStats, Rejected
from readers.errors import ReadError
from readers.index.table import Index
from readers.messages import printable
from readers.values import is_integer, is_number
from readers.worker.read_report import ReadReport

logger = logging.getLogger(__name__)

BadSample = Literal["raise", "skip"]

DAMAGED = "the compressed bytes of a tile are damaged"


def damage_of(image: int | None, names: Sequence[str]) -> str:
    """Return why a sample is rejected, with the name of its damaged image, if it has several."""
    return f"{names[image]}: {DAMAGED}" if image is not None and image < len(names) else DAMAGED


def image_names(hdus: Any) -> tuple[str, ...]:
    """Return the names of the setting ``hdus``, the image of the settings first; () without it."""
    names = tuple(hdus) if isinstance(hdus, Mapping) else ()  # the factory rejects others
    return tuple(sorted(names, key=lambda name: name != "image"))


_LISTED = 10
"""Rejected rows that are named in the log."""


class BadSamplePolicy:
    """Handle rows that cannot be read, as `bad_sample` and `max_bad` of the Loader say."""

    def __init__(
        self,
        index: Index,
        cursor: Cursor,
        stats: LoaderStats,
        bad_sample: BadSample,
        max_bad: float | None,
    ) -> None:
        if bad_sample not in get_args(BadSample):
            raise ValueError(f"bad_sample must be 'raise' or 'skip', got {bad_sample!r}")
        if max_bad is not None:
            is_share = is_number(max_bad) and not is_integer(max_bad) and 0 <= max_bad <= 1
            if not is_integer(max_bad, 0) and not is_share:
                raise ValueError(
                    "max_bad must be a number of rows, an integer, or a share of them, from 0.0 "
                    f"to 1.0, got {max_bad!r}"
                )
            if bad_sample == "raise":
                raise ValueError(f"max_bad={max_bad!r} limits what bad_sample='skip' leaves out")
        self.raises = bad_sample == "raise"
        self._index, self._cursor, self._max_bad = index, cursor, max_bad
        self._rejected = stats.rejected
        self._unlisted = 0  # rejected rows that were neither named in the log nor counted there

    def damage(self, row: int, file: int | None) -> str:
        """Return why a row with damaged bytes was rejected, and in which of its files they are."""
        parts = self._index.frames.parts
        if file is None or file >= len(parts):
            return DAMAGED
        part, path = parts[file], self._index.table[f"path_{parts[file]}"][row].as_py()
        named = "" if path == self._index.path(row) else f", {path}"
        return f"part {part}{named}: {DAMAGED}"

    def reject(self, row: int, reason: str, is_of_store: bool = False) -> None:
        """Add a row to the rejected ones; ReadError if the policy is to raise, or by `max_bad`."""
        path, name = self._index.path(row), self._index.name(row)
        if self.raises:
            raise ReadError(name, reason, row=row, is_of_store=is_of_store)
        if row in self._rejected:
            return
        hdu, epoch, step = self._index.hdu(row), self._cursor.counted_epoch, self._cursor.step
        self._rejected[row] = Rejected(row, path, reason, hdu, epoch, step, is_of_store)
        count = len(self._rejected)
        if count <= _LISTED:
            logger.warning("left out: %s (row %d): %s", printable(name), row, reason)
        else:
            self._unlisted += 1
        most = self._max_bad
        # A share times the rows could round to less than it is of them.
        amount = count if is_integer(most) else count / len(self._index)
        if most is not None and amount > most:
            reason = f"{reason}; rejected rows: {count}, more than max_bad={most} allows"
            raise ReadError(name, reason, row=row)

    def refuse_blank(self, report: ReadReport) -> NoReturn:
        """Raise ReadError for a slot that should hold another row, where none can be read."""
        row = report.rejected_row or 0
        cause = f"{report.reason}; " if report.reason else ""
        raise ReadError(
            self._index.name(row),
            f"{cause}tail 'fill' puts another row into its slot, and none of the "
            f"{len(self._index)} rows can be read: check that the files are there, or give "
            "another tail",
            row=row,
        )

    def log_rest(self) -> None:
        """Log how many rows were rejected that are not named in the log."""
        if self._unlisted:
            logger.warning("left out: and %d more, see stats.rejected", self._unlisted)
            self._unlisted = 0
