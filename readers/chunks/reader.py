"""Reader of windows of arrays that are stored in chunks: Zarr, HDF5 and netCDF4."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.buffers import buffer
from readers.chunks.array import NOTE, SHARD, ChunkedArray, Piece, unpacked
from readers.chunks.chunk import read_pieces
from readers.chunks.fetch import chunk_at, run, together
from readers.chunks.filters import MODULES
from readers.chunks.table import Stored
from readers.chunks.values import put_values, viewed, viewed_dtype
from readers.chunks.zarr import check_unchanged
from readers.contract import Peek, Row, Sample, SampleSpec, row_errors
from readers.messages import printable
from readers.places.contract import Place
from readers.places.urls import is_url
from readers.values import check_integer
from readers.window import Box, Window

_DTYPES = (
    *("float32", "uint8", "uint16", "uint32", "uint64"),
    *("int8", "int16", "int32", "int64", "bool"),
)

_COMPARED: set[tuple[str, str, bytes]] = set()
"""Variables whose metadata this process has compared with the Index: path, variable, note."""
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MOST_COMPARED = 1 << 12
_HELD_BYTES = 64 << 20
"""Bytes of decoded chunks that are held at the same time; more chunks are read in groups."""
_WITH_GAPS: set[tuple[str, str]] = set()
"""Variables for which this process has logged a missing chunk: path, variable."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChunkedReader:
    """Reader of variables that are stored in chunks; each becomes a channel of the image.

    The Index must note where the chunks are, see `Index.from_zarr` and
    `Index.scan_arrays`.

    Parameters
    ----------
    variables : tuple of str, optional
        Names of the variables, in the order of the channels. None for all variables of a row, whose
        names may differ from row to row.
    dtype : str
        ``float32`` for values, with ``scale_factor`` and ``add_offset`` applied, and NaN for
        ``_FillValue`` and ``missing_value``; else the type in which all of them are stored, for
        the elements as they are.
    num_variables : int, optional
        Number of variables of each row, if `variables` is None.

    Raises
    ------
    ValueError
        If variables are not names, or not each once; if not exactly one of `variables` and
        `num_variables` is set; or if dtype is not a type of numbers.
    """

    variables: tuple[str, ...] | None
    dtype: str = "float32"
    num_variables: int | None = None

    regions: ClassVar[bool] = True
    """True: only the pixels of `Window.within` are read."""
    notes: ClassVar[tuple[str, ...]] = (NOTE,)
    """Column of the Index that describes the arrays."""

    def __post_init__(self) -> None:
        names = self.variables
        if (names is None) == (self.num_variables is None):
            raise ValueError(
                f"set variables, or num_variables with variables=None, got {names!r} and "
                f"{self.num_variables!r}"
            )
        if self.num_variables is not None:
            check_integer("num_variables", self.num_variables, 1)
        are_names = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        if names is not None and (not are_names or not names or len(set(names)) < len(names)):
            raise ValueError(f"variables must be names, each once, got {names!r}")
        if not isinstance(self.dtype, str) or self.dtype not in _DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {self.dtype!r}")

    @property
    def channels(self) -> int:
        """Number of variables."""
        return self.num_variables or len(self.variables or ())

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Spec of the one array, ``image``, of shape (variables, height, width)."""
        return (SampleSpec(name="image", dtype=self.dtype, ndim=3, layout="CHW"),)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the chunks of the window, or only the parts that it needs."""
        with row_errors(row):
            arrays, size = self._arrays(row)
            box = Box(0, 0, *size)
            if window is not None:
                window = window.within(*size)
                box = Box(*window.place(*size), window.height, window.width)
            nbytes = self.channels * box.height * box.width * np.dtype(self.dtype).itemsize
            image = buffer(nbytes).view(self.dtype)
            image = image.reshape(self.channels, box.height, box.width)
            input_bytes = read_box(row, arrays, box, image)
        return Sample({"image": image}, input_bytes, size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Return the size, which the Index notes."""
        with row_errors(row):
            _, size = self._arrays(row)
            needed = window and window.within(*size)
        height, width = (needed.height, needed.width) if needed else size
        nbytes = self.channels * height * width * np.dtype(self.dtype).itemsize
        return Peek(height=size[0], width=size[1], nbytes=nbytes, modules=MODULES)

    def verify(self, row: Row) -> None:
        """Decode all chunks of the row."""
        self.read(row, None)

    def blank(self, height: int, width: int) -> Sample:
        """Return zeros, shape (variables, height, width)."""
        return Sample({"image": np.zeros((self.channels, height, width), self.dtype)})

    def _arrays(self, row: Row) -> tuple[list[ChunkedArray], tuple[int, int]]:
        """Return the variables, and the (height, width) that all have."""
        arrays = noted_arrays(row, self.variables)
        if len(arrays) != self.channels:
            raise ValueError(
                f"the Index notes {len(arrays)} variables, {', '.join(a.name for a in arrays)}, "
                f"expected {self.channels}: name the variables"
            )
        sizes = {array.image_size: array.name for array in arrays}
        if len(sizes) > 1:
            (one, name), (other, other_name), *_ = sizes.items()
            raise ValueError(
                f"the variables of an image must have one size (height x width): {name!r} has "
                f"{one[0]}x{one[1]}, {other_name!r} {other[0]}x{other[1]}"
            )
        if self.dtype != "float32":
            for array in arrays:
                _check_stored(array, np.dtype(self.dtype))
        return arrays, arrays[0].image_size


def noted_arrays(row: Row, names: Sequence[str] | None) -> list[ChunkedArray]:
    """Return variables of a row, by default all; each process checks once that they are unchanged.

    Raises
    ------
    OSError
        If a file or the metadata of a variable cannot be read.
    ValueError
        If the Index does not note these variables, or if they were changed.
    """
    note = row.notes.get(NOTE)
    if not note:
        raise ValueError(
            f"the row has no column {NOTE!r} that says where the chunks are: make the Index by "
            "Index.from_zarr or Index.scan_arrays"
        )
    noted = unpacked(note)
    names = tuple(noted) if names is None else names
    if missing := [name for name in names if name not in noted]:
        raise ValueError(
            f"there is no variable {missing[0]!r} in the Index, it has {', '.join(noted)}"
        )
    arrays = [noted[name] for name in names]
    for array in arrays:
        if (array.check or array.file_bytes) and (
            key := (row.path, array.variable, note)
        ) not in _COMPARED:
            if array.file_bytes:
                _check_file(row, array.file_bytes)
            else:
                check_unchanged(row.places, row.path, array)
            if len(_COMPARED) >= _MOST_COMPARED:
                _COMPARED.clear()
            _COMPARED.add(key)
    return arrays


def read_box(row: Row, arrays: Sequence[ChunkedArray], box: Box, out: NDArray[Any]) -> int:
    """Read a part of each variable.

    Parameters
    ----------
    row : Row
        Row whose plane is read.
    arrays : sequence of ChunkedArray
        Result of `noted_arrays`.
    box : Box
        Part of the image.
    out : ndarray, shape (variables, height, width)
        Gets the values, if it is of floats, else the elements as stored.

    Returns
    -------
    int
        Bytes that were read.

    Raises
    ------
    Exception
        If a chunk cannot be read: libraries of filters have errors of their own.
    """
    wanted: dict[tuple[str, Stored | None], list[Part]] = {}
    for array, channel in zip(arrays, out, strict=True):
        for piece in array.pieces(row.plane, *box):
            chunk = (array.variable, array.places.find(piece.at))
            wanted.setdefault(chunk, []).append(Part(array, piece, channel))
    input_bytes = 0
    for group in _groups(wanted):
        readings = [
            read_pieces(parts[0].array, stored, [part.piece for part in parts])
            for stored, parts in group
        ]
        found, nbytes = run(together(readings), *_places(row))
        input_bytes += nbytes
        for (_, parts), pieces in zip(group, found, strict=True):
            if pieces is None:
                _check_there(row, parts[0].array)
            for number, (array, piece, channel) in enumerate(parts):
                _put(array, piece, None if pieces is None else pieces[number], channel)
    return input_bytes


class Part(NamedTuple):
    """A piece of a variable, and the channel that gets it."""

    array: ChunkedArray
    piece: Piece
    channel: NDArray[Any]


Chunk = tuple[Stored | None, list[Part]]
"""A chunk, and the parts of it to read, such as several levels."""


def _groups(wanted: Mapping[tuple[str, Stored | None], list[Part]]) -> Iterator[list[Chunk]]:
    """Yield the chunks in groups that are read at the same time: all, unless they are large."""
    group: list[Chunk] = []
    held = 0
    for (_, stored), parts in wanted.items():
        array = parts[0].array
        is_cut = all(codec["id"] in ("blosc", SHARD) for codec in array.codecs)
        elements = array.chunk_elements
        if is_cut:
            boxes = (part.piece.box for part in parts)
            elements = sum(math.prod(stop - start for start, stop in box) for box in boxes)
        nbytes = elements * np.dtype(array.dtype).itemsize
        if group and held + nbytes > _HELD_BYTES:
            yield group
            group, held = [], 0
        group.append((stored, parts))
        held += nbytes
    yield group


def _put(array: ChunkedArray, piece: Piece, elements: Any, channel: NDArray[Any]) -> None:
    """Write the elements of a piece into its channel; None stands for fill values."""
    y_axis, x_axis = array.image_axes
    height, width = (stop - start for start, stop in (piece.box[y_axis], piece.box[x_axis]))
    if elements is None:
        elements = np.broadcast_to(array.fill_value, (height, width))
    out = channel[piece.top : piece.top + height, piece.left : piece.left + width]
    if out.dtype.kind == "f":
        put_values(elements, array.packing, out)
    else:
        out[...] = viewed(elements, array.packing)


def read_variable(
    row: Row, name: str, size: tuple[int, int], box: Box, dtype: str
) -> tuple[NDArray[Any], int]:
    """Read a part of one variable, for a mask.

    Parameters
    ----------
    row : Row
        Row whose plane is read.
    name : str
        Name of the variable.
    size : tuple of int
        Required (height, width) of the variable.
    box : Box
        Part to read.
    dtype : str
        Type of the mask: of floats for values, else for the elements as stored.

    Returns
    -------
    tuple of (ndarray, int)
        Shape (height, width) of the box: float64 for float64, else float32 for floats; integers of
        the stored type. And the number of bytes read.

    Raises
    ------
    Exception
        If it cannot be read, has another size, or has values that are not integers.
    """
    (array,) = noted_arrays(row, (name,))
    if array.image_size != size:
        raise ValueError(
            f"has {array.image_size[0]}x{array.image_size[1]} pixels, but the image "
            f"{size[0]}x{size[1]} (height x width): a mask must have the size of its image"
        )
    packing = array.packing
    if np.dtype(dtype).kind == "f":
        held = np.dtype(np.float64 if dtype == "float64" else np.float32)
    elif packing is not None and (packing["scale"], packing["offset"]) != (None, None):
        raise ValueError(
            f"is packed by scale_factor or add_offset, but dtype is {dtype!r}: set dtype='float32'"
        )
    else:
        held = viewed_dtype(np.dtype(array.dtype).newbyteorder("="), packing)
    out = np.empty((1, box.height, box.width), held)
    return out[0], read_box(row, [array], box, out)


def _check_file(row: Row, nbytes: int) -> None:
    """Raise ValueError if a local file has another length than when it was indexed, or is not HDF5.

    Requests of remote objects check their version.
    """
    if is_url(row.path):
        return
    with row.place as place:
        if place.nbytes != nbytes:
            raise ValueError(
                f"the file has {place.nbytes} bytes, it had {nbytes} when it was indexed: index it "
                "again"
            )
        starts = [0, *(512 << n for n in range(20) if 512 << n < nbytes)]  # after a user block
        if not any(place.read(start, start + len(_SIGNATURE)) == _SIGNATURE for start in starts):
            raise ValueError("the file is not HDF5 any more: index it again")


def _check_stored(array: ChunkedArray, dtype: np.dtype[Any]) -> None:
    stored = viewed_dtype(np.dtype(array.dtype).newbyteorder("="), array.packing)
    if stored != dtype:
        raise ValueError(
            f"{array.name!r} is stored as {stored}, expected {dtype}: set dtype to that type, or "
            "to float32 for the values"
        )


def _places(row: Row) -> tuple[Callable[[str], Place], Any]:
    """Return a function that opens the objects of a row, and its Storage, None for local files."""

    def open_place(key: str) -> Place:
        return chunk_at(row.places, joined(row.path, key)) if key else row.place

    return open_place, row.places.storage if is_url(row.path) else None


def joined(path: str, key: str) -> str:
    """Return the path of an object below the path of a row."""
    return f"{path.rstrip('/')}/{key}"


def _check_there(row: Row, array: ChunkedArray) -> None:
    """Raise FileNotFoundError if the whole array is missing, not only one of its chunks.

    The first missing chunk is logged.
    """
    if not array.check:
        return
    with row.places.at(joined(row.path, array.check)) as place:
        place.read(0, 1)
    if (key := (row.path, array.variable)) not in _WITH_GAPS:
        _WITH_GAPS.add(key)
        logger.warning(
            "%s: a chunk of %r has no object, and is read as the fill value %s; there may be more. "
            "If the store was copied in part, copy it again",
            *(printable(row.path), array.name, array.fill_value),
        )
