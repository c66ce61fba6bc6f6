"""Rows that cannot be used: a Loader rejects them, and finds those on which a graph fails.

A reader reports a row that it cannot read, and our decoders report damage. But an image that DALI
cannot decode fails the whole batch, with an error that names no row.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Literal, NoReturn, get_args

from dali_pipelines.frameworks.contract import Batch
from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.loading.batches import bad_slots
from dali_pipelines.loading.position import Position
from dali_pipelines.loading.stats import LoaderStats, Rejected
from readers.errors import ReadError
from readers.index.table import Index
from readers.messages import printable
from readers.values import is_integer, is_number
from readers.worker.read_report import ReadReport

logger = logging.getLogger(__name__)

BadSample = Literal["raise", "skip"]

_DAMAGED = "the compressed bytes of a tile are damaged"
_LISTED = 10
"""Rejected rows that are named in the log."""


def damage_of(image: int | None, names: Sequence[str]) -> str:
    """Return why a sample is rejected, with the name of its damaged image, if it has several."""
    if image is None or image >= len(names):
        return _DAMAGED
    return f"{names[image]}: {_DAMAGED}"


def image_names(hdus: Any) -> tuple[str, ...]:
    """Return the names in the setting ``hdus``, that of the main image first; () without it."""
    names = tuple(hdus) if isinstance(hdus, Mapping) else ()  # the factory rejects others
    return tuple(sorted(names, key=lambda name: name != "image"))


class BadRows:
    """Rejects the rows of a Loader that cannot be read, according to `bad_sample` and `max_bad`.

    Parameters
    ----------
    index : Index
        The rows.
    settings : mapping
        Keywords of the pipelines: ``rejected``, and ``hdus``.
    position : Position
        Gives the step at which a row is rejected.
    stats : LoaderStats
        Gets the rejected rows.
    bad_sample, max_bad
        See `dali_pipelines.Loader`.
    """

    def __init__(
        self,
        index: Index,
        settings: Mapping[str, Any],
        position: Position,
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
                raise ValueError(
                    f"max_bad={max_bad!r} limits the rows that bad_sample='skip' leaves out"
                )
        self.raises = bad_sample == "raise"
        self.left_out: dict[int, str] = dict(settings["rejected"])
        """Rows that pipelines must not try again, and why."""
        self._index, self._position, self._max_bad = index, position, max_bad
        self._images = image_names(settings.get("hdus"))
        self._rejected = stats.rejected
        self._unlisted = 0  # rejected rows that were neither named in the log nor counted there

    def reject(self, row: int, reason: str, is_of_store: bool = False) -> None:
        """Record and log an unreadable row; ReadError if `bad_sample` or `max_bad` asks for it."""
        path, name = self._index.path(row), self._index.name(row)
        if self.raises:
            raise ReadError(name, reason, row=row, is_of_store=is_of_store)
        if row in self._rejected:
            return
        hdu, epoch, step = self._index.hdu(row), self._position.counted_epoch, self._position.step
        self._rejected[row] = Rejected(row, path, reason, hdu, epoch, step, is_of_store, name)
        count = len(self._rejected)
        if count <= _LISTED:
            logger.warning("left out: %s (row %d): %s", printable(name), row, reason)
        else:
            self._unlisted += 1
        most = self._max_bad
        # share * rows could round down and reject a row too early
        amount = count if is_integer(most) else count / len(self._index)
        if most is not None and amount > most:
            reason = f"{reason}; rejected rows: {count}, more than max_bad={most} allows"
            raise ReadError(name, reason, row=row)

    def leave_out(self, row: int, reason: str) -> bool:
        """Reject a row that pipelines must not try again; return False if it already was."""
        if row in self.left_out:
            return False
        self.reject(row, reason)
        self.left_out[row] = reason
        return True

    def leave_out_damaged(self, batches: Iterable[Batch]) -> bool:
        """Leave out the rows that the graph found damaged; return whether there were any."""
        damaged = {
            row: self._damage(row, report.image)
            for batch in batches
            for _, row, report in bad_slots(batch)
            if report.damaged and row not in self.left_out
        }
        for row, reason in damaged.items():
            self.leave_out(row, reason)
        return bool(damaged)

    def reject_reported(self, batch: Batch) -> None:
        """Reject the rows that readers or the graph report in a batch.

        Raises the ReadError of `reject`, or one if no row can be read to fill a slot.
        """
        blank = None
        for _, row, report in bad_slots(batch):
            if report.damaged:
                report.reject(row, self._damage(row, report.image))
            if report.rejected_row is not None:
                self.reject(report.rejected_row, report.reason, report.is_of_store)
            if report.is_blank:
                blank = report
        if blank is not None:
            self._refuse_blank(blank)

    def _damage(self, row: int, image: int | None) -> str:
        """Return why a row is rejected after the graph could not decode one of its images."""
        parts = self._index.frames.parts
        if self._images:
            return damage_of(image, self._images)
        if image is None or image >= len(parts):
            return _DAMAGED
        part, path = parts[image], self._index.table[f"path_{parts[image]}"][row].as_py()
        named = "" if path == self._index.path(row) else f", {path}"
        return f"part {part}{named}: {_DAMAGED}"

    def _refuse_blank(self, report: ReadReport) -> NoReturn:
        """Raise ReadError because no row can be read to fill a slot."""
        row = report.rejected_row or 0
        cause = f"{report.reason}; " if report.reason else ""
        raise ReadError(
            self._index.name(row),
            f"{cause}tail 'fill' puts another row into its slot, and none of the "
            f"{len(self._index)} rows can be read: check that the files are there, or set another "
            "tail",
            row=row,
        )

    def log_rest(self) -> None:
        """Log the number of rejected rows that the log does not name."""
        if self._unlisted:
            logger.warning("left out: and %d more, see stats.rejected", self._unlisted)
            self._unlisted = 0


# ---- Rows on which a graph fails ---------------------------------------------------------------

_READABLE = "it can be read, but the graph (decoder or transform) fails on it"

MakePipeline = Callable[[int, Mapping[int, str]], ReaderPipeline]
"""Function of the first position in the epoch, and of the rows to leave out, with reasons. It makes
a pipeline with batches of one sample, which reads in this process, and not ahead."""


def find_undecodable(make: MakePipeline, positions: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Run samples through a graph one by one; yield each row on which it fails, and the reason.

    If the graph also fails without the row (e.g. because the device is lost), the row is not the
    cause. The reason comes from the Reader if it cannot decode the row either, and otherwise from
    the graph.
    """
    pipeline, following = None, -1
    for position in positions:
        if pipeline is None or position != following:
            pipeline = make(position, {})
            pipeline.build()
        following = position + 1
        try:
            pipeline.run()
        except RuntimeError as error:
            source = pipeline.source
            slot = source.schedule.locate(position - source.schedule.position)
            row = source.order.row(slot.epoch, slot.position)
            pipeline.close()
            pipeline = None
            if _runs(make(position, {row: ""})):
                try:
                    source.reader.verify(source.columns.row(row))
                    yield row, f"{_READABLE}: {_cause(error)}"
                except ReadError as bad:
                    yield row, bad.reason
    if pipeline is not None:
        pipeline.close()


def _runs(pipeline: ReaderPipeline) -> bool:
    with closing(pipeline):
        try:
            pipeline.build()
            pipeline.run()
        except RuntimeError:
            return False
    return True


def _cause(error: RuntimeError) -> str:
    """Return the line of DALI's message that gives the cause."""
    text = " ".join(str(error).split())
    found = re.search(r"encountered: (.*?)[ :]*(C\+\+ context|Current pipeline|$)", text)
    return found[1] if found else text
