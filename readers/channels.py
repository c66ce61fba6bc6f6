"""Samples of several files: one Reader of single files, used on each part of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.contract import Peek, Reader, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.window import Window


@dataclass(frozen=True)
class ChannelsReader:
    """Reads each part of a row by the same Reader; what is missing is blank.

    Parameters
    ----------
    reader : Reader
        Reads one file.
    parts : tuple of str
        Parts of the Index, in the order of the channels. See `readers.index.table.Index.group`.

    Notes
    -----
    The window lies at the same fraction of the free play in each channel, so at the same pixels
    where their images are of one size; the graph decides whether they must be. If one file cannot
    be read, the sample cannot.
    """

    reader: Reader
    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.parts, str) or not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError(
                f"parts must be at least one name of a part, each once, got {self.parts!r}"
            )

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """The arrays of the Reader for each part, with its place as ``_0`` appended to the names.

        The last one is ``present``, bool of shape (parts,): which of them are not blank.
        """
        return (
            *(
                replace(spec, name=f"{spec.name}_{place}")
                for place in range(len(self.parts))
                for spec in self.reader.specs
            ),
            SampleSpec(name="present", dtype="bool", ndim=1),
        )

    @property
    def channels(self) -> int:
        """Those of all parts."""
        return len(self.parts) * self.reader.channels

    @property
    def turns(self) -> bool:
        """Whether the Reader turns and zooms windows, all parts alike."""
        return getattr(self.reader, "turns", False)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read all parts; a missing one is a blank of the window, or else of the first's size."""
        samples = {}
        for part, file in self._present(row).items():
            with _named(row, part):
                samples[part] = self.reader.read(file, window)
        if len(samples) < len(self.parts):
            head = window or self._first(row)
            for part in self.parts:
                samples.setdefault(part, self.reader.blank(head.height, head.width))
        return self._joined(samples, [row.part(part) is not None for part in self.parts])

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the heads of all parts; the size is that of the first that is present."""
        peeks = []
        for part, file in self._present(row).items():
            with _named(row, part):
                peeks.append(self.reader.peek(file, window))
        size = window or peeks[0]
        blank = self.reader.blank(size.height, size.width)
        blank_bytes = sum(array.nbytes for array in blank.arrays.values())
        missing = len(self.parts) - len(peeks)
        nbytes = sum(peek.nbytes for peek in peeks) + missing * blank_bytes + len(self.parts)
        between = sum(peek.between_nbytes for peek in peeks)
        return replace(peeks[0], nbytes=nbytes, between_nbytes=between)

    def verify(self, row: Row) -> None:
        """Decode all parts."""
        for part, file in self._present(row).items():
            with _named(row, part):
                self.reader.verify(file)

    def blank(self, height: int, width: int) -> Sample:
        """Return a sample none of whose parts is present."""
        blanks = {part: self.reader.blank(height, width) for part in self.parts}
        return self._joined(blanks, [False] * len(self.parts))

    def _joined(self, samples: Mapping[str, Sample], present: list[bool]) -> Sample:
        arrays: dict[str, NDArray[Any]] = {
            f"{spec.name}_{place}": samples[part][spec.name]
            for place, part in enumerate(self.parts)
            for spec in self.reader.specs
        }
        arrays["present"] = np.array(present)
        return Sample(arrays, sum(sample.input_bytes for sample in samples.values()))

    def _present(self, row: Row) -> dict[str, Row]:
        files = {part: row.part(part) for part in self.parts}
        present = {part: file for part, file in files.items() if file is not None}
        if not present:
            reason = f"none of the channels {', '.join(self.parts)} is present: leave the row out"
            raise ReadError(row.path, reason, row=row.number)
        return present

    def _first(self, row: Row) -> Peek:
        part, file = next(iter(self._present(row).items()))
        with _named(row, part):
            return self.reader.peek(file, None)


@contextmanager
def _named(row: Row, part: str) -> Iterator[None]:
    """Make the ReadError of a file one of the whole row, that names the channel and the file."""
    try:
        yield
    except ReadError as error:
        if error.path == row.path:
            hdu, place = error.hdu, ""
        else:
            hdu, place = None, f", {error.path}" + ("" if error.hdu is None else f"[{error.hdu}]")
        reason = f"channel {part}{place}: {error.reason}"
        raise ReadError(row.path, reason, hdu=hdu, row=row.number) from error
