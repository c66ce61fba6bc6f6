"""Reader of samples of several files: applies a Reader of single files to each part."""

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
        Reader of one file.
    parts : tuple of str
        Parts of the Index, in the order of the channels. In sequences all parts of the first time
        come before the parts of the second time. See `dali_pipelines.Index.group`.

    Notes
    -----
    All parts get the same window. A sample is rejected if its images differ in size, or if one of
    them cannot be read.
    """

    reader: Reader
    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.parts, str) or not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError(
                f"parts must be a tuple of one or more different names, got {self.parts!r}"
            )

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Arrays of the Reader for each part, with the number of the part appended, e.g. ``_0``.

        The last array is ``present``, bool, shape (parts,), False for blank parts.
        """
        return (
            *(
                replace(spec, name=f"{spec.name}_{number}")
                for number in range(len(self.parts))
                for spec in self.reader.specs
            ),
            SampleSpec(name="present", dtype="bool", shape=(len(self.parts),)),
        )

    @property
    def channels(self) -> int:
        """Number of channels of all parts together."""
        return len(self.parts) * self.reader.channels

    @property
    def regions(self) -> bool:
        """Whether the Reader reads the pixels of `Window.within`."""
        return getattr(self.reader, "regions", False)

    @property
    def turns(self) -> bool:
        """Whether the Reader rotates and zooms windows, in the same way for all parts."""
        return getattr(self.reader, "turns", False)

    @property
    def uses_draws(self) -> bool:
        """Whether the Reader makes random choices, the same for all parts."""
        return getattr(self.reader, "uses_draws", False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Columns that the Reader uses, for each part."""
        return getattr(self.reader, "notes", ())

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read all parts; a missing part is blank, in the size of the other parts."""
        samples = {}
        for part, file in self._present(row).items():
            with _named(row, part):
                samples[part] = self.reader.read(file, window)
        sizes = {part: one.image_size for part, one in samples.items() if one.image_size}
        size = self._one_size(row, sizes)
        if len(samples) < len(self.parts):
            blank = self.reader.blank(*self._read_size(size or self._first_size(row), window))
            samples |= {part: blank for part in self.parts if part not in samples}
        return self._joined(samples, [row.part(part) is not None for part in self.parts], size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers of all parts; return the size of the first present part.

        The bytes of a missing part are estimated as the mean of the other parts.
        """
        peeks = []
        for part, file in self._present(row).items():
            with _named(row, part):
                peeks.append(self.reader.peek(file, window))
        # Other rows may have the parts that are missing here.
        share = len(self.parts) / len(peeks)
        nbytes = round(share * sum(peek.nbytes for peek in peeks)) + len(self.parts)
        between = round(share * sum(peek.between_nbytes for peek in peeks))
        return replace(peeks[0], nbytes=nbytes, between_nbytes=between)

    def verify(self, row: Row) -> None:
        """Decode all parts."""
        for part, file in self._present(row).items():
            with _named(row, part):
                self.reader.verify(file)

    def blank(self, height: int, width: int) -> Sample:
        """Return a sample in which all parts are blank."""
        blanks = dict.fromkeys(self.parts, self.reader.blank(height, width))
        return self._joined(blanks, [False] * len(self.parts), None)

    def _joined(
        self, samples: Mapping[str, Sample], present: list[bool], size: tuple[int, int] | None
    ) -> Sample:
        arrays: dict[str, NDArray[Any]] = {
            f"{spec.name}_{number}": samples[part][spec.name]
            for number, part in enumerate(self.parts)
            for spec in self.reader.specs
        }
        arrays["present"] = np.array(present)
        return Sample(arrays, sum(sample.input_bytes for sample in samples.values()), size)

    def _present(self, row: Row) -> dict[str, Row]:
        files = {part: row.part(part) for part in self.parts}
        present = {
            part: replace(file, draws=row.draws) for part, file in files.items() if file is not None
        }
        if not present:
            reason = f"none of the parts {', '.join(self.parts)} is present: leave the row out"
            raise ReadError(row.name, reason, row=row.number)
        return present

    def _one_size(self, row: Row, sizes: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
        """Return the size of all images, or None if the Reader does not know it."""
        if len(set(sizes.values())) > 1:
            (first, size), *others = sizes.items()
            other = next(part for part, its_size in others if its_size != size)
            reason = (
                f"the files of a sample must have one size (height x width): part {first} has "
                f"{_in_words(size)}, but part {other} ({self._present(row)[other].path}) has "
                f"{_in_words(sizes[other])}: leave the row out"
            )
            raise ReadError(row.name, reason, row=row.number)
        return next(iter(sizes.values()), None)

    def _read_size(self, image: tuple[int, int], window: Window | None) -> tuple[int, int]:
        """Return (height, width) of the pixels that a window reads from an image of this size."""
        if window is None:
            return image
        read = window.within(*image) if self.regions else window
        return read.height, read.width

    def _first_size(self, row: Row) -> tuple[int, int]:
        part, file = next(iter(self._present(row).items()))
        with _named(row, part):
            peek = self.reader.peek(file, None)
        return peek.height, peek.width


def _in_words(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@contextmanager
def _named(row: Row, part: str) -> Iterator[None]:
    """Convert the ReadError of a file to a ReadError of the row, with the part and the file."""
    try:
        yield
    except ReadError as error:
        raise error.of_sample(row.name, row.number, f"part {part}") from error
