"""The report of a reader process about one slot, sent along with the pixels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_REASON_BYTES = 400
_RECORD = struct.Struct(f"=dd5q??{_REASON_BYTES}s")
REPORT_BYTES = _RECORD.size


@dataclass(slots=True)
class ReadReport:
    """The record of one slot; sent to the consumer as bytes, since DALI has no text."""

    read_s: float = 0.0
    """Seconds that the reader process spent on this slot."""
    read_cpu_s: float = 0.0
    """Of these, seconds of CPU time; otherwise it waited for files or for a core."""
    input_bytes: int = 0
    """Bytes of the file that were read."""
    rejected_row: int | None = None
    """Row of the Index that belongs to this slot and could not be read."""
    reason: str = ""
    """Why the row could not be read."""
    is_of_store: bool = False
    """See `readers.errors.ReadError`."""
    traffic: tuple[int, int, int] = (0, 0, 0)
    """Requests to remote storage, bytes of their answers, and bytes from the cache, of the whole
    reader process since its last report."""
    is_blank: bool = False
    """Whether the slot should hold another row, with tail `fill`, and none could be read."""
    status: int = 0
    """That of the graph's decoder, 0 if good; of several images that of the first damaged one. Set
    only by `unpack`."""
    image: int | None = None
    """Number of that image, if the sample has several, of files or HDUs."""

    @property
    def damaged(self) -> bool:
        """Whether the graph could not decode the bytes."""
        return self.status != 0

    def reject(self, row: int, reason: str, is_of_store: bool = False) -> None:
        """Record that a row cannot be read; a long reason is truncated."""
        self.rejected_row, self.reason, self.is_of_store = row, reason, is_of_store

    def pack(self) -> NDArray[np.uint8]:
        """Return the record as bytes, of the same length for every slot."""
        rejected = -1 if self.rejected_row is None else self.rejected_row
        reason = self.reason.encode(errors="replace")  # unpack drops a character that is cut in two
        numbers = self.read_s, self.read_cpu_s, self.input_bytes, *self.traffic, rejected
        record = _RECORD.pack(*numbers, self.is_of_store, self.is_blank, reason)
        return np.frombuffer(record, np.uint8)

    @classmethod
    def unpack(cls, packed: NDArray[np.uint8]) -> list[ReadReport]:
        """Read the records of a batch.

        Parameters
        ----------
        packed : ndarray, shape (batch, bytes), uint8
            The ``report`` output of a pipeline: the record, then the decoder's status as int32 if
            it has one, for each image of a sample, 0 if good.
        """
        records = map(_RECORD.unpack_from, np.ascontiguousarray(packed))
        statuses = np.ascontiguousarray(packed[:, REPORT_BYTES:]).view(np.int32).tolist()
        return [
            cls._of(*record, *_first_damaged(status))
            for record, status in zip(records, statuses, strict=True)
        ]

    @classmethod
    def _of(cls, read_s: float, read_cpu_s: float, input_bytes: int, *rest: Any) -> ReadReport:
        *traffic, rejected, is_of_store, is_blank, reason, status, image = rest
        return cls(
            read_s,
            read_cpu_s,
            input_bytes,
            None if rejected < 0 else rejected,
            reason.rstrip(b"\0").decode(errors="ignore"),
            is_of_store,
            tuple(traffic),
            is_blank,
            status,
            image,
        )


def _first_damaged(statuses: Sequence[int]) -> tuple[int, int | None]:
    """Return the status and the number of the first damaged image; 0 and None if there is none."""
    for number, status in enumerate(statuses):
        if status:
            return status, number if len(statuses) > 1 else None
    return 0, None
