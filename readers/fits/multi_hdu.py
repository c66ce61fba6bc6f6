"""Several images of each row, with one size and window: HDUs, planes, and files of parts.

`Hdu` locates an image of a row, `HduKind` describes it in all rows, and `HdusReader` reads the
images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.fits.file import FitsFile, Where, hdu_names, read_errors
from readers.fits.headers import HduName, NoSuchHduError, checked, no_such_hdu, plain_name
from readers.fits.image import FitsImage, find_image
from readers.fits.plain_image import plan_of_pixels
from readers.fits.planes import Planes, check_num_planes
from readers.fits.reader import FitsReader, scaling_of
from readers.values import is_integer, is_number
from readers.window import Window

DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float32")
"""Element types of images."""
_DTYPES: dict[tuple[int, float], str] = {
    (8, 0): "uint8",
    (8, -128): "int8",
    (16, 0): "int16",
    (16, 1 << 15): "uint16",
    (32, 0): "int32",
    (32, 1 << 31): "int64",
    (64, 0): "int32",
}
"""Types of values by BITPIX and BZERO, if BSCALE is 1."""
STORED = {"int8": "uint8", "uint16": "int16", "int64": "int32"}
"""Types of stored integers by types of values, where the two differ."""
OFFSETS = {"int8": -128, "uint16": 1 << 15, "int64": 1 << 31}
"""Values minus stored integers, by types of values."""
Names = tuple[str, int]
"""EXTNAME, in capitals, and EXTVER of an HDU."""
Beside = Mapping[str, frozenset[Names]]
"""Map from the EXTNAME of a row's HDU to names of the other HDU: EXTNAME, and its EXTVER minus the
EXTVER of the row's HDU."""


@dataclass(frozen=True)
class Hdu:
    """An image of a row that becomes a separate output, see `fits_pipeline`.

    Parameters
    ----------
    hdu : int, str or (str, int), optional
        HDU of the image, as for `fits_pipeline`. The default is the HDU of the row (column
        ``hdu``), or the first HDU with an image if the row has none. If the row has an HDU, an
        EXTNAME means the HDU with this name and the EXTVER of the row's HDU (1 if the header has
        none, as in astropy). Otherwise it means the first HDU with this name.
    relative : int, optional
        HDU of the image, counted from the HDU of the row: 2 is the second HDU after it. For files
        of several detectors whose HDUs have no EXTVER. EXTNAME and the difference of EXTVER must be
        the same as in the first file, for HDUs of rows with the same EXTNAME. Other rows are
        rejected.
    part : str, optional
        The image is in another file, in column ``path_{part}``. `relative` still counts from column
        ``hdu``. Without `relative` and `hdu`, column ``hdu_{part}`` is used.
    planes : int, sequence of int or "all", optional
        Planes of the image, as for `fits_pipeline`. The default is column ``plane``, or
        ``plane_{part}`` for a part.
    num_planes : int, optional
        With planes "all": number of planes that each image must have. The default is the number in
        the first readable row.
    outside : number, optional
        Value of pixels outside the image. Such pixels appear with rotation, zoom and windows with
        ``outside="fill"`` (by default 0, but NaN for filled floats), and as the padding of
        ``ragged="pad"`` (by default 0).
    dtype : {"uint8", "int8", "uint16", "int16", "int32", "int64", "float32"}, optional
        Element type of the output. The default is the type of the first readable row. Images with
        values of another type are rejected, unless it is float32.

    Raises
    ------
    ValueError
        If a setting makes no sense, or contradicts another.
    """

    hdu: HduName | None = None
    _: KW_ONLY
    relative: int | None = None
    part: str | None = None
    planes: Planes | None = None
    num_planes: int | None = None
    dtype: str | None = None
    outside: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hdu", checked(self.hdu))
        if self.relative is not None:
            if not is_integer(self.relative):
                raise ValueError(f"relative must be an integer, got {self.relative!r}")
            if self.hdu is not None:
                raise ValueError("hdu and relative both choose the HDU: leave out one of them")
            object.__setattr__(self, "relative", int(self.relative))
        if self.part is not None and not (isinstance(self.part, str) and self.part):
            raise ValueError(f"part must be the name of a part, got {self.part!r}")
        if self.outside is not None and not is_number(self.outside):
            raise ValueError(f"outside must be a number, got {self.outside!r}")
        if self.dtype not in (None, *DTYPES):
            raise ValueError(f"dtype must be one of {DTYPES} or None, got {self.dtype!r}")
        planes = FitsReader(planes=self.planes, num_planes=self.num_planes or 1).planes
        object.__setattr__(self, "planes", planes)
        check_num_planes(planes, self.num_planes)

    @property
    def is_counted(self) -> bool:
        """Whether the number of planes is known without files."""
        return self.planes != "all" or self.num_planes is not None

    @property
    def is_known(self) -> bool:
        """Whether dtype and number of planes are known without files."""
        return self.dtype is not None and self.is_counted

    def of(self, row: Row) -> tuple[Row, HduName | None]:
        """Return the file of the image, and the HDU in this file.

        Raises
        ------
        ValueError
            If the row lacks the file, or lacks the HDU that `relative` counts from.
        """
        file = row if self.part is None else row.part(self.part)
        if file is None:
            raise ValueError(f"the row has no file of part {self.part!r}: leave the row out")
        if self.planes is not None:
            file = replace(file, plane=None)
        if self.relative is None:
            return file, file.hdu if self.hdu is None else self.hdu
        if row.hdu is None:
            raise ValueError(
                f"relative={self.relative} counts from column 'hdu', but this is null for the row"
            )
        if row.hdu + self.relative < 0:
            raise ValueError(f"there is no HDU {row.hdu}{self.relative:+d}")
        return file, row.hdu + self.relative


@dataclass(frozen=True)
class HduKind:
    """Properties of an image that are the same in all rows."""

    dtype: str
    """Element type of the values."""
    planes: int
    """Number of planes."""
    outside: float | None = None
    """Value of pixels outside the image, see `Hdu`."""

    @classmethod
    def of(cls, image: Hdu, dtype: str = "float32", planes: int = 1) -> HduKind:
        """Return the kind of an image; `dtype` and `planes` of a file complete the settings."""
        if image.planes != "all":
            planes = len(image.planes) if isinstance(image.planes, tuple) else 1
        elif image.num_planes is not None:
            planes = image.num_planes
        return cls(image.dtype or dtype, planes, image.outside)


def dtype_of(found: FitsImage) -> str:
    """Return the element type of an image's values: float32, or integers with BZERO applied.

    It is int32 for 64-bit integers. `read` rejects values that do not fit.
    """
    bitpix = found.keywords["BITPIX"]
    scaling = scaling_of({**found.keywords, "BITPIX": 32 if bitpix == 64 else bitpix})
    if scaling is None or bitpix < 0:
        return "float32"
    bscale, bzero, blank = scaling
    return _DTYPES.get((bitpix, bzero), "float32") if bscale == 1 and blank != blank else "float32"


def _read_wide(
    reader: FitsReader, file: FitsFile, found: FitsImage, row: Row, window: Window | None
) -> Sample:
    """Read 64-bit integers as 32-bit integers; ValueError if they do not fit."""
    size = found.shape.height, found.shape.width
    window = window and window.within(*size)
    pixels = found.pixels(file, window, reader.chosen(row, found.shape), scaled=False)
    narrow = pixels.astype(np.int32)
    if (narrow != pixels).any():
        raise ValueError("64-bit values do not fit into int32: set dtype='float32'")
    payload, plans = plan_of_pixels(narrow)
    arrays: dict[str, NDArray[Any]] = {
        "shape": np.zeros((*pixels.shape[1:], 0), np.uint8),
        "payload": payload,
        "plan": plans.reshape(-1),
        "scaling": np.tile(np.array((1, 0, math.nan)), len(pixels)),
    }
    return Sample(arrays, image_size=size)


class _Wanted(NamedTuple):
    """An image of a row."""

    place: int
    """Number of the image among all images of the row."""
    name: str
    row: Row
    """File and plane of the image."""
    hdu: HduName | None

    @property
    def is_named(self) -> bool:
        """Whether the HDU is only known by EXTNAME."""
        return isinstance(self.hdu, str)


@dataclass(frozen=True)
class HdusReader:
    """Reader of several images of each row, with one size and window; it opens each file once.

    Parameters
    ----------
    images : mapping of str to Hdu
        The images by name; the first one is the image of the settings.
    kinds : mapping of str to HduKind
        Kinds of the other images.
    main : FitsReader
        Reader of the first image; only ``stored``, ``planes`` and ``num_planes`` are used.
    largest_tile : float
        As in FitsReader, for all images.
    beside : mapping of str to Beside
        Required names of HDUs, for images with `relative`.

    Notes
    -----
    Integers are sent as they are stored; the graph adds BZERO.
    """

    images: Mapping[str, Hdu] = field(hash=False)
    kinds: Mapping[str, HduKind] = field(hash=False)
    main: FitsReader
    largest_tile: float = math.inf
    beside: Mapping[str, Beside] = field(default_factory=dict, hash=False)

    regions: ClassVar[bool] = True
    """Whether it reads the pixels of `Window.within`."""

    @property
    def channels(self) -> int:
        """Number of planes of the first image."""
        return self.main.channels

    @property
    def nearest(self) -> bool:
        """Whether the graph resamples by nearest neighbour."""
        return any(kind.dtype != "float32" for kind in self.kinds.values())

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the row whose files are read."""
        return tuple({one.part: None for one in self.images.values() if one.part is not None})

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of a FitsReader for each image; from the second image on numbered: ``plan_1``."""
        each, specs = range(len(self.images)), self.main.specs
        return tuple(replace(one, name=one.name + suffix(n)) for n in each for one in specs)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read all images, or only the tiles that the window touches."""
        samples: dict[int, Sample] = {}

        def read(file: FitsFile, found: FitsImage, several: list[_Wanted]) -> int:
            readers = [self._reader(one, found) for one in several]
            spans = [
                reader.span(found, one.row, window)
                for reader, one in zip(readers, several, strict=True)
            ]
            file.need(min(start for start, _ in spans), max(stop for _, stop in spans))
            for reader, one in zip(readers, several, strict=True):
                wide = one.name in self.kinds and reader.stored is not None
                wide = wide and found.keywords["BITPIX"] == 64
                take = _read_wide if wide else FitsReader.read_found
                samples[one.place] = take(reader, file, found, one.row, window)
            return sum(samples[one.place].input_bytes for one in several)

        nbytes, size = self._visit(row, read)
        return replace(self._joined(samples), input_bytes=nbytes, image_size=size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers of all images."""
        peeks: list[Peek] = []

        def peek(_: FitsFile, found: FitsImage, several: list[_Wanted]) -> int:
            for one in several:
                reader = replace(self._reader(one, found), stored=None)
                peeks.append(reader.peek_found(found, one.row, window))
            return 0

        self._visit(row, peek)
        modules = tuple(name for peek in peeks for name in peek.modules)
        return replace(peeks[0], nbytes=sum(peek.nbytes for peek in peeks), modules=modules)

    def kinds_of(self, row: Row) -> dict[str, HduKind]:
        """Read the kind of each image from its header. Raises like `read`."""
        kinds: dict[str, HduKind] = {}

        def look(_: FitsFile, found: FitsImage, several: list[_Wanted]) -> int:
            for one in several:
                image = self.images[one.name]
                kinds[one.name] = HduKind.of(image, dtype_of(found), found.shape.planes)
            return 0

        self._visit(row, look)
        return {name: kinds[name] for name in self.images}

    def beside_in(self, row: Row) -> dict[str, Beside]:
        """Read the names of HDUs in the files of a row, for images with `relative`.

        Raises ReadError.
        """
        own = hdu_names(row.place)
        found: dict[str, Beside] = {}
        for name, image in self.images.items():
            if image.relative is not None:
                with _errors(row, _Wanted(0, name, row, None)):
                    file, _ = image.of(row)
                others = own if _file_of(file) == _file_of(row) else hdu_names(file.place)
                found[name] = _beside(own, others, image.relative)
        return found

    def verify(self, row: Row) -> None:
        """Decode all images, or the planes that are read, with astropy."""

        def verify(file: FitsFile, found: FitsImage, several: list[_Wanted]) -> int:
            planes = {
                plane
                for one in several
                for plane in self._reader(one, found).chosen(one.row, found.shape)
            }
            file.need(*found.span(None, sorted(planes)))
            found.pixels(file, None, sorted(planes), scaled=False)
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
        """Return the Reader of an image that was found; ValueError for an unexpected type."""
        kind, dtype = self.kinds.get(one.name), dtype_of(found)
        if kind is None or kind.dtype in ("float32", dtype):
            return self._reader_of(one.name)
        facts = ", ".join(f"{key} {value}" for key, value in found.keywords.items())
        raise ValueError(
            f"the values are of type {dtype} ({facts}), expected {kind.dtype}: leave the row out, "
            "or set dtype of its Hdu to the type of most files, or to 'float32' for all files"
        )

    def _visit(
        self, row: Row, visit: Callable[[FitsFile, FitsImage, list[_Wanted]], int]
    ) -> tuple[int, tuple[int, int]]:
        """Call `visit` with each HDU and its images; return the number of bytes read, and the size.

        `visit` returns the number of bytes that it has read.
        """
        nbytes, sizes = 0, {}
        names: dict[tuple[Hashable, int], tuple[str, int]] = {}
        up_to_own: list[Names] = []  # the HDUs up to the row's HDU, if an image has a name
        main = next(iter(self.images))
        for several in self._by_file(row):
            of_file = 0
            with _errors(row, several[0]) as at, FitsFile(several[0].row.place) as file:
                is_own = _file_of(several[0].row) == _file_of(row)
                if not up_to_own and row.hdu is not None and any(one.is_named for one in several):
                    up_to_own = file.names(row.hdu) if is_own else hdu_names(row.place, row.hdu)
                seen: dict[str, Names] = {}
                wanted: list[HduName | None] = []
                for one in several:
                    at.turn_to(one)
                    wanted.append(_of_row(one, row, up_to_own, is_own=is_own))
                for places in file.each(wanted):
                    here = [several[place] for place in places]
                    at.turn_to(here[0])
                    with saying_why(here[0].hdu, row, wanted[places[0]]):
                        found = find_image(file, self.largest_tile)
                    at.where.hdu = found.number
                    names[_file_of(here[0].row), found.number] = found.names
                    sizes[here[0].name] = found.shape.height, found.shape.width, found.number
                    _check_sizes(sizes, here[0].name)
                    seen |= dict.fromkeys((one.name for one in here), found.names)
                    for one in here:
                        if (expected := self.beside.get(one.name)) is not None:
                            at.one = one
                            _check_beside(_own_names(row, names), found.names, expected)
                    at.one = here[0]
                    of_file += visit(file, found, here)
                if row.hdu is None and main in seen:
                    for one in several:
                        at.turn_to(one)
                        _check_version(one, seen[one.name], seen[main], file)
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


def hdu_beside(
    image: str, wanted: str, number: int, names: Sequence[Names], *, is_own: bool = True
) -> HduName:
    """Return the HDU with an EXTNAME and the same EXTVER as the HDU of the row.

    Parameters
    ----------
    image : str
        Name of the image; "image" itself must be in the HDU of the row.
    wanted : str
        EXTNAME.
    number : int
        HDU of the row.
    names : sequence of (str, int)
        EXTNAME and EXTVER of the HDUs in the file of the row, at least up to the row's HDU.
    is_own : bool
        Whether the image is in the file of the row.

    Raises
    ------
    ValueError
        If the row's HDU does not have the name of "image", or EXTVER does not distinguish HDUs.
    """
    if number >= len(names):
        raise no_such_hdu(number, [name for name, _ in names])
    own, name = names[number], plain_name(wanted)
    if is_own and (name == own[0] or (name == "PRIMARY" and number == 0)):
        return number
    if image == "image" and is_own:
        raise ValueError(
            f"HDU {number} of the row is {_named(*own)}, expected {wanted!r}: make the Index of "
            f"these HDUs with dali-pipelines index --hdus {wanted}, or leave the row out"
        )
    for other, version in (own, (name, own[1]))[: 1 + is_own]:
        if names.count((other, version)) > 1:
            raise ValueError(
                f"several HDUs are {other or 'without EXTNAME'} with EXTVER {version}, so the "
                f"{wanted!r} of HDU {number} is ambiguous: pass Hdu(relative=N) in hdus, in "
                f"commands +N, for the Nth HDU after that of the row, or ({wanted!r}, N) for "
                "EXTVER N in all rows"
            )
    return name, own[1]


def _of_row(one: _Wanted, row: Row, names: Sequence[Names], *, is_own: bool) -> HduName | None:
    """Return the HDU of an image; an EXTNAME gets the EXTVER of the row's HDU."""
    if row.hdu is None or not isinstance(one.hdu, str):
        return one.hdu
    return hdu_beside(one.name, one.hdu, row.hdu, names, is_own=is_own)


@contextmanager
def saying_why(hdu: HduName | None, row: Row | None, wanted: HduName | None) -> Iterator[None]:
    """Add to the error of a missing HDU that its EXTVER comes from the row's HDU."""
    try:
        yield
    except NoSuchHduError as error:
        if row is None or not (isinstance(hdu, str) and isinstance(wanted, tuple)):
            raise
        raise ValueError(
            f"{error}; {wanted[1]} is the EXTVER of the row's HDU {row.hdu}: leave the row out, or "
            f"pass ({hdu!r}, N) for EXTVER N in all rows"
        ) from None


def _check_version(one: _Wanted, found: Names, image: Names, file: FitsFile) -> None:
    """Raise ValueError if another HDU with the name of an image has the EXTVER of the main image.

    An EXTNAME without EXTVER means the first HDU with this name. It would belong to another
    detector than the main image.
    """
    name, version = found[0], image[1]
    if not one.is_named or found[1] == version or (name, version) not in file.names():
        return
    raise ValueError(
        f"the first {one.hdu!r} has EXTVER {found[1]}, but the image has EXTVER {version}: pass "
        f"({one.hdu!r}, {version}), or ({one.hdu!r}, {found[1]}) for the first one; to get a row "
        "for each detector, make the Index with dali-pipelines index --hdus"
    )


def _own_names(row: Row, known: Mapping[tuple[Hashable, int], tuple[str, int]]) -> tuple[str, int]:
    """Return EXTNAME and EXTVER of the HDU of a row, even if it has no image of the sample."""
    number = row.hdu or 0
    return known.get((_file_of(row), number)) or hdu_names(row.place)[number]


def _file_of(row: Row) -> tuple[str, int | None]:
    return row.path, row.offset


def suffix(place: int) -> str:
    """Return the suffix of the array names of image number `place`."""
    return f"_{place}" if place else ""


def _check_sizes(sizes: Mapping[str, tuple[int, int, int]], name: str) -> None:
    other, (height, width, number) = next(iter(sizes.items()))
    if sizes[name][:2] != (height, width):
        raise ValueError(
            f"HDU {sizes[name][2]} has {sizes[name][0]}x{sizes[name][1]} pixels, but HDU {number} "
            f"({other}) has {height}x{width} (height x width): the images of a row must have one "
            "size"
        )


@dataclass
class _At:
    """Image and HDU in the message of an error."""

    one: _Wanted
    where: Where

    def turn_to(self, one: _Wanted) -> None:
        """Change the image and its HDU."""
        self.one, self.where.hdu = one, one.hdu if isinstance(one.hdu, int) else None


@contextmanager
def _errors(row: Row, one: _Wanted) -> Iterator[_At]:
    """Convert any exception inside to a ReadError of the row, with the image and its file."""
    at = _At(one, Where(None))
    try:
        with read_errors(one.row.name, one.hdu, row.number) as at.where:
            yield at
    except ReadError as error:
        raise error.of_sample(row.name, row.number, at.one.name) from error


def _beside(
    own: Sequence[Names], others: Sequence[Names], relative: int
) -> dict[str, frozenset[Names]]:
    """Return the names of the HDUs in `others` that are `relative` HDUs after each of `own`."""
    found: dict[str, set[Names]] = {}
    for number, (name, version) in enumerate(own):
        pairs = found.setdefault(name, set())
        if 0 <= number + relative < len(others):
            other, other_version = others[number + relative]
            pairs.add((other, other_version - version))
    return {name: frozenset(pairs) for name, pairs in found.items()}


def _check_beside(own: Names, found: Names, expected: Beside) -> None:
    """Raise ValueError if an HDU has another name than in the first file.

    HDUs of rows with a name that the first file lacks are not checked.
    """
    pairs = expected.get(own[0])
    if pairs is None or (found[0], found[1] - own[1]) in pairs:
        return
    there = " or ".join(sorted(_named(name, own[1] + more) for name, more in pairs)) or "none"
    raise ValueError(
        f"relative leads from HDU {_named(*own)} to {_named(*found)}, but in the first file to "
        f"{there}: leave the row out, or pass the name of the HDU, such as 'ERR' or 'DQ', in place "
        "of relative, if its EXTVER is that of the row's HDU"
    )


def _named(name: str, version: int) -> str:
    return f"{name or 'without EXTNAME'}" + (f" (EXTVER {version})" if version != 1 else "")
