"""Reader of windows of arrays that are stored in chunks: Zarr, HDF5 and netCDF4."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from readers.buffers import buffer
from readers.chunks.array import NOTE, ChunkedArray, Piece, unpacked
from readers.chunks.chunk import read_piece
from readers.chunks.fetch import chunk_at, run, together
from readers.chunks.filters import MODULES
from readers.chunks.values import put_values, viewed, viewed_dtype
from readers.chunks.zarr import check_unchanged
from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError, reason_of
from readers.messages import printable
from readers.places.contract import Place
from readers.places.urls import is_url
from readers.window import Window

_DTYPES = (
    *("float32", "uint8", "uint16", "uint32", "uint64"),
    *("int8", "int16", "int32", "int64", "bool"),
)

_COMPARED: set[tuple[str, str, bytes]] = set()
"""Arrays whose metadata this process has compared with what was noted: path, name, note."""
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MOST_COMPARED = 1 << 12
_WITH_GAPS: set[tuple[str, str]] = set()
"""Arrays of which this process has logged that a chunk is missing: path, name."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChunkedReader:
    """Reader of variables that are stored in chunks; each becomes a channel of the image.

    Rows are those of an Index that notes where the chunks are, see `Index.from_zarr` and
    `Index.scan_arrays`.

    Parameters
    ----------
    variables : tuple of str
        Names of the variables, in the order of the channels.
    dtype : str
        ``float32`` for values, with ``scale_factor`` and ``add_offset`` applied, and NaN for
        ``_FillValue`` and ``missing_value``; else the type in which all of them are stored, for
        the elements as they are.

    Raises
    ------
    ValueError
        If no variable is named or one is twice, or dtype is not a type of numbers.
    """

    variables: tuple[str, ...]
    dtype: str = "float32"

    regions: ClassVar[bool] = True
    """It reads the pixels of `Window.within`."""
    notes: ClassVar[tuple[str, ...]] = (NOTE,)
    """Column of the Index that describes the arrays."""

    def __post_init__(self) -> None:
        names = self.variables
        are_names = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        if not are_names or not names or len(set(names)) < len(names):
            raise ValueError(f"variables must be names, each once, got {names!r}")
        if not isinstance(self.dtype, str) or self.dtype not in _DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {self.dtype!r}")

    @property
    def channels(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Spec of the one array, ``image``, of shape (variables, height, width)."""
        return (SampleSpec(name="image", dtype=self.dtype, ndim=3, layout="CHW"),)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the chunks of the window, or what it needs of them."""
        try:
            arrays, size = self._arrays(row)
            y, x, (height, width) = 0, 0, size
            if window is not None:
                window = window.within(*size)
                y, x = window.place(*size)
                height, width = window.height, window.width
            nbytes = self.channels * height * width * np.dtype(self.dtype).itemsize
            image = buffer(nbytes).view(self.dtype).reshape(self.channels, height, width)
            pieces = [
                (array, piece, plane_of_image)
                for array, plane_of_image in zip(arrays, image, strict=True)
                for piece in array.pieces(row.plane, y, x, height, width)
            ]
            readings = [read_piece(array, piece) for array, piece, _ in pieces]
            found, input_bytes = run(together(readings), *_places(row))
            for (array, piece, channel), elements in zip(pieces, found, strict=True):
                if elements is None:
                    _check_there(row, array)
                self._put(array, piece, elements, channel)
        except Exception as error:
            raise _read_error(row, error) from error
        return Sample({"image": image}, input_bytes, size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Return the size that the Index has noted."""
        try:
            _, size = self._arrays(row)
            needed = window and window.within(*size)
        except Exception as error:
            raise _read_error(row, error) from error
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
        note = row.notes.get(NOTE)
        if not note:
            raise ValueError(
                f"the row has no column {NOTE!r} that says where the chunks are: make the Index by "
                "Index.from_zarr or Index.scan_arrays"
            )
        noted = unpacked(note)
        if missing := [name for name in self.variables if name not in noted]:
            raise ValueError(
                f"there is no variable {missing[0]!r} in the Index, it has {', '.join(noted)}"
            )
        arrays = [noted[name] for name in self.variables]
        sizes = {array.image_size: array.name for array in arrays}
        if len(sizes) > 1:
            (one, name), (other, other_name), *_ = sizes.items()
            raise ValueError(
                f"the variables of an image must have one size (height x width): {name!r} has "
                f"{one[0]}x{one[1]}, {other_name!r} {other[0]}x{other[1]}"
            )
        for array in arrays:
            if self.dtype != "float32":
                _check_stored(array, np.dtype(self.dtype))
            if (array.check or array.file_bytes) and (
                key := (row.path, array.name, note)
            ) not in _COMPARED:
                if array.file_bytes:
                    _check_file(row, array.file_bytes)
                else:
                    check_unchanged(row.places, row.path, array)
                if len(_COMPARED) >= _MOST_COMPARED:
                    _COMPARED.clear()
                _COMPARED.add(key)
        return arrays, arrays[0].image_size

    def _put(self, array: ChunkedArray, piece: Piece, elements: Any, channel: NDArray[Any]) -> None:
        """Write the elements of a piece into its channel; None stands for fill values."""
        y_axis, x_axis = array.image_axes
        height, width = (stop - start for start, stop in (piece.box[y_axis], piece.box[x_axis]))
        if elements is None:
            elements = np.broadcast_to(array.fill_value, (height, width))
        out = channel[piece.top : piece.top + height, piece.left : piece.left + width]
        if self.dtype == "float32":
            put_values(elements, array.packing, out)
        else:
            out[...] = viewed(elements, array.packing)


def _check_file(row: Row, nbytes: int) -> None:
    """Raise ValueError if a file is another one than when it was indexed.

    Remote objects have versions, which their requests check.
    """
    if is_url(row.path):
        return
    with row.place as place:
        if place.nbytes != nbytes:
            raise ValueError(
                f"the file has {place.nbytes} bytes, it had {nbytes} when it was indexed: index it "
                "again"
            )
        starts = [0, *(512 << n for n in range(20) if 512 << n < nbytes)]  # behind a user block
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
    """Return a function that finds the objects of a row, and how they are requested if remote."""

    def open_place(key: str) -> Place:
        return chunk_at(row.places, joined(row.path, key)) if key else row.place

    return open_place, row.places.storage if is_url(row.path) else None


def joined(path: str, key: str) -> str:
    """Return the path of an object below that of a row."""
    return f"{path.rstrip('/')}/{key}"


def _check_there(row: Row, array: ChunkedArray) -> None:
    """Raise FileNotFoundError if an array is not there, so that its chunks are all missing.

    The first one that is missing is logged.
    """
    if not array.check:
        return
    with row.places.at(joined(row.path, array.check)) as place:
        place.read(0, 1)
    if (key := (row.path, array.name)) not in _WITH_GAPS:
        _WITH_GAPS.add(key)
        logger.warning(
            "%s: a chunk of %r has no object, and is read as the fill value %s; there may be more. "
            "If the store was copied in part, copy it again",
            *(printable(row.path), array.name, array.fill_value),
        )


def _read_error(row: Row, error: Exception) -> ReadError:
    return ReadError(row.name, reason_of(error, row.path), row=row.number)
