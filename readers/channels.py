"""Reader of samples of several files: it applies a Reader of single files to each part of a row."""

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
    """Read each part of a row with the same Reader; missing parts are blank.

    Parameters
    ----------
    reader : Reader
        Reads one file.
    parts : tuple of str
        Parts of the Index, in the order of the channels. See `readers.index.table.Index.group`.

    Notes
    -----
    The window has the same relative position in each channel, so the same pixels if the images have
    one size; the graph decides whether they must. If one file cannot be read, the sample is
    rejected.
    """

    reader: Reader
    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.parts, str) or not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError(
                f"parts must be names of parts, at least one, each once, got {self.parts!r}"
            )

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """The arrays of the Reader for each part, with its number appended, e.g. ``_0``.

        The last one is ``present``, bool of shape (parts,): False for blank parts.
        """
        return (
            *(
                replace(spec, name=f"{spec.name}_{number}")
                for number in range(len(self.parts))
                for spec in self.reader.specs
            ),
            SampleSpec(name="present", dtype="bool", ndim=1),
        )

    @property
    def channels(self) -> int:
        """Number of channels of all parts together."""
        return len(self.parts) * self.reader.channels

    @property
    def turns(self) -> bool:
        """Whether the Reader rotates and zooms windows, all parts in the same way."""
        return getattr(self.reader, "turns", False)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read all parts; a missing one is blank, with the size of the window or the first part."""
        samples = {}
        for part, file in self._present(row).items():
            with _named(row, part):
                samples[part] = self.reader.read(file, window)
        if len(samples) < len(self.parts):
            shape = window or self._first(row)
            for part in self.parts:
                samples.setdefault(part, self.reader.blank(shape.height, shape.width))
        return self._joined(samples, [row.part(part) is not None for part in self.parts])

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers of all parts; the size is that of the first present one."""
        peeks = []
        for part, file in self._present(row).items():
            with _named(row, part):
                peeks.append(self.reader.peek(file, window))
        shape = window or peeks[0]
        blank = self.reader.blank(shape.height, shape.width)
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
        """Return a sample without any part."""
        blanks = {part: self.reader.blank(height, width) for part in self.parts}
        return self._joined(blanks, [False] * len(self.parts))

    def _joined(self, samples: Mapping[str, Sample], present: list[bool]) -> Sample:
        arrays: dict[str, NDArray[Any]] = {
            f"{spec.name}_{number}": samples[part][spec.name]
            for number, part in enumerate(self.parts)
            for spec in self.reader.specs
        }
        arrays["present"] = np.array(present)
        nbytes = sum(sample.input_bytes for sample in samples.values())
        sizes = {sample.image_size for sample in samples.values() if sample.image_size}
        return Sample(arrays, nbytes, sizes.pop() if len(sizes) == 1 else None)

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
    """Convert the ReadError of a file to one of the row, which names the channel and the file."""
    try:
        yield
    except ReadError as error:
        if error.path == row.path:
            hdu, file = error.hdu, ""
        else:
            hdu, file = None, f", {error.path}" + ("" if error.hdu is None else f"[{error.hdu}]")
        reason = f"channel {part}{file}: {error.reason}"
        raise ReadError(row.path, reason, hdu=hdu, row=row.number) from error
