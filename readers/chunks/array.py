"""Description of a variable that is stored in chunks, as an Index notes it."""

from __future__ import annotations

import itertools
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.chunks.table import ChunkTable, Stored

NOTE = "chunks"
"""Column of the Index with the arrays of a row, see `packed`."""
ROW = -1
"""Value of `ChunkedArray.select` for the axis of the rows: the position is the plane of the row."""
SHARD = "sharding_indexed"
"""Id of the codec of shards (Zarr 3). Its settings are ``chunks``, ``codecs`` and ``order`` of the
chunks in a shard, and ``checksum``, ``at_start`` and ``index_dtype`` of its index."""
_HEAD = struct.Struct("<BII")
_VERSION = 3
SAME_AXES = slice(0, 5)
"""Bytes of a note with its version and a checksum of the axes of its images."""

Packing = Mapping[str, Any]
"""How stored elements become values, see `readers.chunks.values.packing_of`."""
Codec = Mapping[str, Any]
"""How a filter is called and set, like the configurations of numcodecs: ``{"id": "zstd"}``."""


class ChunkPlaces(Protocol):
    """Finds the bytes of chunks."""

    def find(self, at: tuple[int, ...]) -> Stored | None:
        """Return where the chunk of this number along each axis is; None if it has no bytes.

        A chunk without bytes holds fill values. ValueError if it was not noted.
        """
        ...

    def note(self) -> tuple[dict[str, Any], bytes]:
        """Return fields for JSON, and bytes, from which ``of_note`` makes this object again."""
        ...


@dataclass(frozen=True, slots=True)
class Keys:
    """Chunks that are objects of their own, named by their number along each axis, as in Zarr."""

    folder: str
    """Folder of the array in its store, with a slash; "" if the store is the array."""
    begin: str
    """Start of the names: "" in Zarr 2, ``c/`` in Zarr 3."""
    separator: str

    def find(self, at: tuple[int, ...]) -> Stored:
        """Return the object of a chunk; whether it exists is not known."""
        return Stored(self.folder + self.begin + self.separator.join(map(str, at)))

    def note(self) -> tuple[dict[str, Any], bytes]:
        """Return the fields that describe it, for JSON, and no bytes."""
        return {"folder": self.folder, "begin": self.begin, "separator": self.separator}, b""

    @classmethod
    def of_note(cls, fields: Mapping[str, Any], content: bytes) -> Keys:
        """Make the object from the result of `note`."""
        del content
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Inline:
    """The only chunk of a small variable, whose bytes are in the Index."""

    content: bytes

    def find(self, at: tuple[int, ...]) -> Stored:
        """Return the bytes."""
        return Stored("", nbytes=len(self.content), content=self.content)

    def note(self) -> tuple[dict[str, Any], bytes]:
        """Return the bytes."""
        return {}, self.content

    @classmethod
    def of_note(cls, fields: Mapping[str, Any], content: bytes) -> Inline:
        """Make the object from the result of `note`."""
        return cls(content)


@dataclass(frozen=True)
class ChunkedArray:
    """A variable that is stored in chunks, and the part of it that rows show."""

    name: str
    """Name of the channel: the variable, followed by the level if several levels are channels."""
    variable: str
    """Path of the variable in its file or store; "" if the store is this array."""
    dtype: str
    """Type of the elements as stored, with byte order, such as ``<f4``."""
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    """Shape of all chunks, also of those at the end of an axis."""
    select: tuple[int | None, ...]
    """Position on each axis: a number, `ROW` for the plane of the row, or None for the two axes of
    the image, its rows and columns."""
    places: ChunkPlaces
    dimensions: tuple[str, ...] = ()
    """Names of the axes; () if they have none."""
    codecs: tuple[Codec, ...] = ()
    """Filters in the order in which they were applied to the elements of a chunk."""
    order: tuple[int, ...] = ()
    """Order of the axes in which the elements of a chunk are stored, slowest first; () for C
    order."""
    fill: bytes = b""
    """Element of a chunk without bytes, as stored; empty for 0."""
    packing: Packing | None = None
    """How stored elements become values, see `readers.chunks.values.packing_of`."""
    check: str = ""
    """Object with the metadata of the array, below the path of the row; "" in HDF5."""
    file_bytes: int = 0
    """Bytes of the file that has the chunks; 0 if they are objects of their own."""

    def __post_init__(self) -> None:
        if 0 in self.shape:
            raise ValueError(f"{self.name!r} has shape {self.shape}: it holds no values")

    @cached_property
    def image_axes(self) -> tuple[int, int]:
        """Axes of the rows and columns of an image."""
        y, x = (axis for axis, selected in enumerate(self.select) if selected is None)
        return y, x

    @property
    def image_dimensions(self) -> tuple[str, str] | None:
        """Names of the axes of the rows and columns of an image, or None if they have none."""
        y, x = self.image_axes
        return (self.dimensions[y], self.dimensions[x]) if self.dimensions else None

    @cached_property
    def image_size(self) -> tuple[int, int]:
        """(height, width) of an image."""
        y, x = self.image_axes
        return self.shape[y], self.shape[x]

    @property
    def row_axis(self) -> int:
        """Axis of the rows; ValueError if there is none."""
        return self.select.index(ROW)

    @cached_property
    def num_planes(self) -> int | None:
        """Number of positions on the axis of the rows, or None if there is none."""
        return self.shape[self.row_axis] if ROW in self.select else None

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Elements of a chunk from one position to the next, along each axis."""
        found, step = [0] * len(self.shape), 1
        for axis in reversed(self.order or range(len(self.shape))):
            found[axis], step = step, step * self.chunks[axis]
        return tuple(found)

    @cached_property
    def inner(self) -> ChunkedArray | None:
        """A chunk as an array of the chunks in it, if it is a shard, else None."""
        if not self.codecs or self.codecs[0]["id"] != SHARD:
            return None
        settings = self.codecs[0]
        return replace(
            self,
            shape=self.chunks,
            chunks=settings["chunks"],
            codecs=settings["codecs"],
            order=settings["order"],
        )

    @cached_property
    def chunk_elements(self) -> int:
        """Elements of a chunk."""
        return math.prod(self.chunks)

    @cached_property
    def fill_value(self) -> NDArray[Any]:
        """Element of chunks without bytes, shape ()."""
        dtype = np.dtype(self.dtype)
        return np.frombuffer(self.fill or bytes(dtype.itemsize), dtype)[0]

    def pieces(self, plane: int | None, y: int, x: int, height: int, width: int) -> Iterator[Piece]:
        """Yield the chunks of a window, and the part of each that is in it.

        Raises
        ------
        ValueError
            If there is no such plane.
        """
        first, last = list[int](), list[int]()
        starts = {self.image_axes[0]: (y, height), self.image_axes[1]: (x, width)}
        for axis, selected in enumerate(self.select):
            position = self._plane(plane) if selected == ROW else selected
            begin, length = starts[axis] if position is None else (position, 1)
            first.append(begin)
            last.append(begin + length)
        for at, box in overlaps(first, last, self.chunks):
            top, left = (
                at[axis] * self.chunks[axis] + box[axis][0] - starts[axis][0]
                for axis in self.image_axes
            )
            yield Piece(at, box, top, left)

    def _plane(self, plane: int | None) -> int:
        assert self.num_planes is not None
        if plane is None or plane >= self.num_planes:
            raise ValueError(
                f"{self.name!r} has {self.num_planes} positions, expected one of them as the plane "
                f"of the row, got {plane}"
            )
        return plane


Box = tuple[tuple[int, int], ...]
"""First position and end along each axis."""


class Piece(NamedTuple):
    """Part of a chunk that is in a window."""

    at: tuple[int, ...]
    """Number of the chunk along each axis."""
    box: Box
    """Positions in the chunk."""
    top: int
    """First row in the window."""
    left: int
    """First column in the window."""


def overlaps(
    first: Sequence[int], last: Sequence[int], chunks: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Box]]:
    """Yield the number of each chunk with positions from `first` to before `last`, and these.

    Positions are counted from the first one of the chunk.
    """
    grid = [range(a // n, -(-b // n)) for a, b, n in zip(first, last, chunks, strict=True)]
    for at in itertools.product(*grid):
        yield (
            at,
            tuple(
                (max(a - k * n, 0), min(b - k * n, n))
                for k, a, b, n in zip(at, first, last, chunks, strict=True)
            ),
        )


def beside_or_above(name: str, other: str) -> Iterator[str]:
    """Yield the paths of `other` in the group of a variable, and in the groups above it."""
    folder = name.strip("/")
    while folder:
        folder = folder.rpartition("/")[0]
        yield f"{folder}/{other}".lstrip("/")


def packed(arrays: Sequence[ChunkedArray]) -> bytes:
    """Return arrays as bytes, for the column `NOTE` of an Index."""
    described, contents = [], []
    for one in arrays:
        places, content = one.places.note()
        described.append(
            {
                **{name: getattr(one, name) for name in _PLAIN},
                "fill": one.fill.hex(),
                "kind": type(one.places).__name__,
                "places": places,
                "nbytes": len(content),
            }
        )
        contents.append(content)
    head = zlib.compress(json.dumps(described, separators=(",", ":")).encode(), 9)
    axes = zlib.crc32(repr([one.image_dimensions for one in arrays]).encode())
    return _HEAD.pack(_VERSION, axes, len(head)) + head + b"".join(contents)


_PLAIN = (
    *("name", "variable", "dtype", "shape", "chunks", "select", "dimensions", "codecs", "order"),
    *("packing", "check", "file_bytes"),
)
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Keys, Inline, ChunkTable)}


@lru_cache(maxsize=256)
def unpacked(note: bytes) -> dict[str, ChunkedArray]:
    """Return the arrays of a note by name.

    Raises
    ------
    ValueError
        If it is not a note, or of another version.
    """
    try:
        version, _, nbytes = _HEAD.unpack_from(note)
        if version != _VERSION:
            raise ValueError(f"its version is {version}, expected {_VERSION}")
        start = _HEAD.size + nbytes
        described = json.loads(zlib.decompress(note[_HEAD.size : start]))
        found = {}
        for one in described:
            content, start = note[start : start + one["nbytes"]], start + one["nbytes"]
            plain = {name: _tuples(one[name]) for name in _PLAIN}
            places = _KINDS[one["kind"]].of_note(one["places"], content)
            fill = bytes.fromhex(one["fill"])
            found[one["name"]] = ChunkedArray(**plain, places=places, fill=fill)
    except (struct.error, zlib.error, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"column {NOTE!r} of the Index does not describe arrays ({error}): make it again"
        ) from error
    return found


def _tuples(value: Any) -> Any:
    """Convert the lists that JSON made of tuples back to tuples."""
    if isinstance(value, dict):
        return {name: _tuples(one) for name, one in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
