"""Reader of several images of a row, of one size, under one window."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from numpy.typing import NDArray

from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.fits.file import FitsFile, hdu_names, read_errors
from readers.fits.hdus import HduName
from readers.fits.image import FitsImage, find_image
from readers.fits.reader import FitsReader
from readers.fits.several.beside import Beside, beside, check_beside
from readers.fits.several.hdu import Hdu, ImageKind
from readers.fits.several.meaning import STORED, meant, read_wide
from readers.window import Window


class _Wanted(NamedTuple):
    """An image of a row."""

    place: int
    """Among all images of the row."""
    name: str
    row: Row
    """Its file, and its plane."""
    hdu: HduName | None


@dataclass(frozen=True)
class HdusReader:
    """Several images of each row, of one size, under one window; each file is opened once.

    Parameters
    ----------
    images : mapping of str to Hdu
        The images by name; the first one is the image of the settings.
    kinds : mapping of str to ImageKind
        Of the other images.
    main : FitsReader
        Reader of the first image, of which only ``stored``, ``planes`` and ``num_planes`` count.
    largest_tile : float
        As of FitsReader, for all images.
    beside : mapping of str to Beside
        Names that HDUs must have, of images that are counted from the HDU of the row.

    Notes
    -----
    Integers are sent as they are stored; the graph adds BZERO.
    """

    images: Mapping[str, Hdu] = field(hash=False)
    kinds: Mapping[str, ImageKind] = field(hash=False)
    main: FitsReader
    largest_tile: float = math.inf
    beside: Mapping[str, Beside] = field(default_factory=dict, hash=False)

    regions: ClassVar[bool] = True
    """It reads what `Window.within` gives."""

    @property
    def channels(self) -> int:
        """Number of planes of the first image."""
        return self.main.channels

    @property
    def nearest(self) -> bool:
        """Whether the graph takes the nearest pixels where it resamples."""
        return any(kind.dtype != "float32" for kind in self.kinds.values())

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the row with files that are read."""
        return tuple({one.part: None for one in self.images.values() if one.part is not None})

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Those of a FitsReader for each image, from the second on with a number: ``plan_1``."""
        each, specs = range(len(self.images)), self.main.specs
        return tuple(replace(one, name=one.name + suffix(n)) for n in each for one in specs)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read all images, or only the tiles that the window touches."""
        samples: dict[int, Sample] = {}

        def read(found: FitsImage, several: list[_Wanted]) -> int:
            readers = [self._reader(one, found) for one in several]
            spans = [
                reader.span(found, one.row, window)
                for reader, one in zip(readers, several, strict=True)
            ]
            found.file.need(min(start for start, _ in spans), max(stop for _, stop in spans))
            for reader, one in zip(readers, several, strict=True):
                wide = one.name in self.kinds and reader.stored is not None
                wide = wide and found.keywords["BITPIX"] == 64
                take = read_wide if wide else FitsReader.read_found
                samples[one.place] = take(reader, found, one.row, window)
            return sum(samples[one.place].input_bytes for one in several)

        nbytes, size = self._visit(row, read)
        return replace(self._joined(samples), input_bytes=nbytes, image_size=size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers of all images."""
        peeks: list[Peek] = []

        def peek(found: FitsImage, several: list[_Wanted]) -> int:
            for one in several:
                reader = replace(self._reader(one, found), stored=None)
                peeks.append(reader.peek_found(found, one.row, window))
            return 0

        self._visit(row, peek)
        modules = tuple(name for peek in peeks for name in peek.modules)
        return replace(peeks[0], nbytes=sum(peek.nbytes for peek in peeks), modules=modules)

    def kinds_of(self, row: Row) -> dict[str, ImageKind]:
        """Read the kind of each image from its header. Raises like `read`."""
        kinds: dict[str, ImageKind] = {}

        def look(found: FitsImage, several: list[_Wanted]) -> int:
            for one in several:
                image = self.images[one.name]
                kinds[one.name] = ImageKind.of(image, meant(found), found.shape.planes)
            return 0

        self._visit(row, look)
        return {name: kinds[name] for name in self.images}

    def beside_in(self, row: Row) -> dict[str, Beside]:
        """Return, for images with `relative`, the names in the files of a row; or ReadError."""
        own = hdu_names(row.place)
        found: dict[str, Beside] = {}
        for name, image in self.images.items():
            if image.relative is not None:
                with _errors(row, _Wanted(0, name, row, None)):
                    file, _ = image.of(row)
                others = own if _file_of(file) == _file_of(row) else hdu_names(file.place)
                found[name] = beside(own, others, image.relative)
        return found

    def verify(self, row: Row) -> None:
        """Decode all images with astropy, or the planes of them that are read."""

        def verify(found: FitsImage, several: list[_Wanted]) -> int:
            planes = {
                plane
                for one in several
                for plane in self._reader(one, found).chosen(one.row, found.shape)
            }
            found.file.need(*found.span(None, sorted(planes)))
            found.pixels(None, sorted(planes), scaled=False)
            return 0

        self._visit(row, verify)

    def blank(self, height: int, width: int) -> Sample:
        """Return a sample without payloads, which decode to zeros."""
        readers = [self._reader_of(name) for name in self.images]
        blanks = {place: one.blank(height, width) for place, one in enumerate(readers)}
        return self._joined(blanks)

    def _joined(self, samples: Mapping[int, Sample]) -> Sample:
        arrays: dict[str, NDArray[Any]] = {
            spec.name + suffix(place): samples[place][spec.name]
            for place in range(len(self.images))
            for spec in self.main.specs
        }
        return Sample(arrays)

    def _reader_of(self, name: str) -> FitsReader:
        """Return the Reader of an image."""
        if (kind := self.kinds.get(name)) is None:
            return self.main
        stored = None if kind.dtype == "float32" else STORED.get(kind.dtype, kind.dtype)
        return FitsReader(None, stored, self.images[name].planes, kind.planes)

    def _reader(self, one: _Wanted, found: FitsImage) -> FitsReader:
        """Return the Reader of an image that was found; ValueError if it is of another type."""
        kind, dtype = self.kinds.get(one.name), meant(found)
        if kind is None or kind.dtype in ("float32", dtype):
            return self._reader_of(one.name)
        facts = ", ".join(f"{key} {value}" for key, value in found.keywords.items())
        raise ValueError(
            f"the values are of type {dtype} ({facts}), expected {kind.dtype}: leave the row out, "
            "give its Hdu the dtype that most files have, or 'float32' for all"
        )

    def _visit(
        self, row: Row, visit: Callable[[FitsImage, list[_Wanted]], int]
    ) -> tuple[int, tuple[int, int]]:
        """Call `visit` with each HDU and the images that are in it; return bytes read, and size.

        `visit` returns the bytes that it has read.
        """
        nbytes, sizes = 0, {}
        names: dict[tuple[Hashable, int], tuple[str, int]] = {}
        for several in self._by_file(row):
            of_file = 0
            with _errors(row, several[0]) as at, FitsFile(several[0].row.place) as file:
                for places in file.each([one.hdu for one in several]):
                    here = [several[place] for place in places]
                    at.turn_to(here[0])
                    found = find_image(file, self.largest_tile)
                    at.hdu = found.number
                    names[_file_of(here[0].row), found.number] = found.names
                    sizes[here[0].name] = found.shape.height, found.shape.width, found.number
                    _check_sizes(sizes, here[0].name)
                    for one in here:
                        if (expected := self.beside.get(one.name)) is not None:
                            at.one = one
                            check_beside(_own_names(row, names), found.names, expected)
                    at.one = here[0]
                    of_file += visit(found, here)
                nbytes += file.input_bytes(of_file)
        height, width, _ = next(iter(sizes.values()))
        return nbytes, (height, width)

    def _by_file(self, row: Row) -> list[list[_Wanted]]:
        files: dict[Hashable, list[_Wanted]] = {}
        for place, (name, image) in enumerate(self.images.items()):
            with _errors(row, _Wanted(place, name, row, None)):
                file, hdu = image.of(row)
            files.setdefault(_file_of(file), []).append(_Wanted(place, name, file, hdu))
        return list(files.values())


def _own_names(row: Row, known: Mapping[tuple[Hashable, int], tuple[str, int]]) -> tuple[str, int]:
    """Return EXTNAME and EXTVER of the HDU of a row, which may hold no image of the sample."""
    number = row.hdu or 0
    return known.get((_file_of(row), number)) or hdu_names(row.place)[number]


def _file_of(row: Row) -> tuple[str, int | None]:
    return row.path, row.offset


def suffix(place: int) -> str:
    """Return what the names of an image's arrays end in."""
    return f"_{place}" if place else ""


def _check_sizes(sizes: Mapping[str, tuple[int, int, int]], name: str) -> None:
    other, (height, width, number) = next(iter(sizes.items()))
    if sizes[name][:2] != (height, width):
        raise ValueError(
            f"HDU {sizes[name][2]} has {sizes[name][0]}x{sizes[name][1]} pixels, and HDU {number} "
            f"({other}) {height}x{width} (height x width): the images of a row must have one size"
        )


@dataclass
class _At:
    """The image that the error of a row names."""

    one: _Wanted
    hdu: int | None = None

    def turn_to(self, one: _Wanted) -> None:
        """Name another image from now on."""
        self.one, self.hdu = one, one.hdu if isinstance(one.hdu, int) else None


@contextmanager
def _errors(row: Row, one: _Wanted) -> Iterator[_At]:
    """Convert any exception inside to a ReadError of the row, which names image and file."""
    at = _At(one)
    at.turn_to(one)
    try:
        with read_errors(one.row.name, None, row.number):
            yield at
    except ReadError as error:
        hdu, file = at.hdu, ""
        if one.row.name != row.name:
            hdu, file = None, f", {one.row.name}" + ("" if at.hdu is None else f"[{at.hdu}]")
        reason = f"{at.one.name}{file}: {error.reason}"
        raise ReadError(row.name, reason, hdu=hdu, row=row.number) from error
