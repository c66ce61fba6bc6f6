"""Structure of HDF5 and netCDF4 files: their variables, and where the chunks of these are.

h5py reads it once, when the Index is made. Pixels never pass through HDF5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.chunks.array import ROW, ChunkedArray, Codec, Inline, beside_or_above
from readers.chunks.filters import missing_library
from readers.chunks.table import ChunkTable
from readers.chunks.values import check_dtype, packing_of
from readers.places.file_object import BlockFile
from readers.places.opener import Places
from readers.places.urls import is_url

if TYPE_CHECKING:
    import h5py

SUFFIXES = (".nc", ".nc4", ".h5", ".hdf5", ".he5", ".hdf")
"""Suffixes that a folder is searched for, in lower case."""
_NETCDF3 = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_BITSHUFFLE_COMPRESSION = {0: "", 2: "lz4", 3: "zstd"}
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
"""Start of the attribute NAME of an axis without coordinates."""
_BESIDE_AXIS = "_nc4_non_coord_"
"""Start of the name of a netCDF variable that is named like an axis, but is not its coordinate."""
_NOT_READ = {4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
"""Names of filters that are not read; names of other filters come from the file."""


@contextmanager
def open_hdf5(path: str, places: Places, names: Sequence[str] | None = ()) -> Iterator[Hdf5File]:
    """Open a file or object to read its structure.

    Parameters
    ----------
    path : str
        Path or URL.
    places : Places
        Finds it.
    names : sequence of str, optional
        Variables whose descriptions are needed, None for all: of a remote file they are read at the
        same time, instead of one after the other.

    Raises
    ------
    ImportError
        If h5py is not installed.
    OSError
        If it cannot be read.
    ValueError
        If it is not HDF5.
    """
    try:
        import h5py
    except ImportError as error:
        raise missing_library(error) from error
    with places.at(path) as place:
        head = bytearray(min(4, place.nbytes))
        place.read_many([(0, memoryview(head))])
        if bytes(head) in _NETCDF3:
            raise ValueError(
                "this is netCDF 3, which is not read: convert it by nccopy -k netCDF-4, or by "
                "xarray's to_netcdf(engine='h5netcdf')"
            )
        try:
            if is_url(path):
                blocks = BlockFile(place)
                if names != ():
                    blocks.look_ahead(partial(_rehearse, blocks, names))
                with h5py.File(blocks, "r") as opened:
                    yield Hdf5File(opened, place.nbytes)
            else:
                # Locks fail on some network file systems, and nothing is written.
                with h5py.File(path, "r", locking=False) as opened:
                    yield Hdf5File(opened, place.nbytes)
        except (OSError, RuntimeError, KeyError) as error:
            raise ValueError(f"its structure cannot be read as HDF5: {error}") from error


def _rehearse(blocks: BlockFile, names: Sequence[str] | None) -> None:
    """Read the descriptions of variables in a file, except those that cannot be read."""
    import h5py

    with h5py.File(blocks, "r") as opened:
        file = Hdf5File(opened, 0)
        for name in list(opened) if names is None else names:
            with suppress(Exception):  # of any kind: who reads the variable meets it again
                if (one := file.get(name)) is not None:
                    _ = one.attributes, one.shape, one.dimensions
                    one.dataset.id.get_num_chunks()


@dataclass(frozen=True)
class Hdf5File:
    """An open file."""

    file: h5py.File
    nbytes: int
    array: None = None
    """None: a file is not an array itself, unlike a store of Zarr."""
    title: str = ""
    """Empty, because `array` is None."""
    _lengths: dict[str, int] = field(default_factory=dict, init=False)
    """Lengths of unlimited axes that are known, by the paths of their scales."""

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the file; text is str."""
        return _attributes(self.file)

    def names(self) -> list[str]:
        """Return the paths of all variables in this file; links to other files are not followed."""
        import h5py

        found = list[str]()

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and not _is_only_an_axis(item):
                folder, slash, last = name.rpartition("/")
                found.append(folder + slash + last.removeprefix(_BESIDE_AXIS))

        self.file.visititems(visit)
        return sorted(found)

    def links(self) -> dict[str, str]:
        """Return the file that each external link at the root leads to, by the name of the link."""
        import h5py

        found = {name: self.file.get(name, getlink=True) for name in self.file}
        return {
            name: link.filename
            for name, link in found.items()
            if isinstance(link, h5py.ExternalLink)
        }

    def get(self, name: str) -> Hdf5Variable | None:
        """Return a variable by its path, or None.

        Raises
        ------
        ValueError
            If it is in another file.
        """
        import h5py

        folder, found = "", None
        for part in name.strip("/").split("/"):
            beside = f"{folder}/{_BESIDE_AXIS}{part}"
            folder = f"{folder}/{part}"
            link = self.file.get(folder, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise ValueError(
                    f"{name!r} is a link to another file, {link.filename!r}, and is not read: pass "
                    "that file"
                )
            found = self.file.get(beside) or self.file.get(folder)
            if found is None:
                return None
        if not isinstance(found, h5py.Dataset) or _is_only_an_axis(found):
            return None
        return self._variable(name, found)

    def coordinate(self, variable: Hdf5Variable, dim: str) -> Hdf5Variable | None:
        """Return the variable with the coordinates of an axis, or None."""
        for name, scale in zip(variable.dimensions or (), variable.scales, strict=False):
            if name == dim and scale is not None:
                return None if _is_only_an_axis(scale) else self._variable(scale.name, scale)
        names = beside_or_above(variable.name, dim)
        return next((one for name in names if (one := self.get(name)) is not None), None)

    def _variable(self, name: str, dataset: h5py.Dataset) -> Hdf5Variable:
        return Hdf5Variable(name, dataset, self.nbytes, self._lengths)

    def line(self, variable: Hdf5Variable) -> NDArray[Any]:
        """Return the stored elements of a variable with at most one axis.

        They are fewer than its shape says if it is shorter than its unlimited axis of netCDF4.
        """
        values = np.atleast_1d(variable.dataset[()])
        if values.dtype.kind == "O":  # text of any length
            return np.array([one.decode("utf-8", "replace") for one in values.ravel()])
        return values


@dataclass(frozen=True)
class Hdf5Variable:
    """A data set of an open file."""

    name: str
    dataset: h5py.Dataset
    file_bytes: int
    """Bytes of the file."""
    lengths: dict[str, int]
    """Lengths of unlimited axes that are known, by the paths of their scales."""

    @property
    def shown(self) -> str:
        """Name of the variable, for messages."""
        return repr(self.name)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the variable; text is str."""
        return _attributes(self.dataset)

    @cached_property
    def scales(self) -> list[Any]:
        """For each axis the data set with its coordinates, or None."""
        found = list[Any]()
        for axis in self.dataset.dims if self.dataset.shape else ():
            found.append(axis[0] if len(axis) else None)
        is_scale = self.attributes.get("CLASS") == "DIMENSION_SCALE"
        if is_scale and len(found) == 1 and found[0] is None:
            found[0] = self.dataset
        return found

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of positions on each axis.

        An unlimited axis of netCDF4 is as long as the longest variable along it; shorter ones end
        with fill values.
        """
        found = list(self.dataset.shape or ())
        for axis, scale in enumerate(self.scales):
            if scale is not None and self.dataset.maxshape[axis] is None:
                found[axis] = max(found[axis], self._length(scale))
        return tuple(found)

    def _length(self, scale: h5py.Dataset) -> int:
        """Return the length of an unlimited axis."""
        if (known := self.lengths.get(scale.name)) is not None:
            return known
        users = scale.attrs.get("REFERENCE_LIST", ())
        lengths = [self.dataset.file[user].shape[axis] for user, axis in users if user]
        longest: int = max([*lengths, *scale.shape[:1]])
        self.lengths[scale.name] = longest
        return longest

    @cached_property
    def dimensions(self) -> tuple[str, ...] | None:
        """Names of the axes, or None if they have none."""
        names = tuple(
            scale.name.rpartition("/")[2] if scale is not None else axis.label
            for scale, axis in zip(self.scales, self.dataset.dims, strict=True)
        )
        return names if all(names) else None

    def chunked(self, name: str, select: tuple[int | None, ...]) -> ChunkedArray:
        """Return where its chunks are, and how they are decoded.

        Parameters
        ----------
        name : str
            Name of the variable.
        select : tuple of (int or None)
            See `ChunkedArray.select`.

        Raises
        ------
        ValueError
            If it cannot be read: its type, a filter, or the way in which it is stored.
        """
        import h5py

        dtype = self.dataset.dtype
        check_dtype(self.shown, dtype)
        if not _is_plain(self.dataset.id.get_type(), dtype):
            raise ValueError(
                f"{self.shown} holds numbers of a type of its own, which are not read: write it "
                f"again as {dtype.newbyteorder('=')}"
            )
        settings = self.dataset.id.get_create_plist()
        layout = settings.get_layout()
        if layout == h5py.h5d.VIRTUAL:
            parts = sorted({one.file_name for one in self.dataset.virtual_sources()})
            raise ValueError(
                f"{self.shown} is a virtual data set, which is not read: pass the files that hold "
                f"its parts: {', '.join(parts[:5])}"
            )
        if settings.get_external_count():
            raise ValueError(f"{self.shown} is stored in other files, and is not read")
        codecs = tuple(_codecs(self.shown, settings, dtype))
        is_chunked = layout == h5py.h5d.CHUNKED
        chunks = self.dataset.chunks if is_chunked else self.shape
        places: Inline | ChunkTable
        if layout == h5py.h5d.COMPACT:
            places = Inline(np.ascontiguousarray(self.dataset[()]).tobytes())
        else:
            places = self._table(chunks, is_chunked)
        fill = np.zeros((), dtype)
        if settings.fill_value_defined() != h5py.h5d.FILL_VALUE_UNDEFINED:
            settings.get_fill_value(fill)
        return ChunkedArray(
            name=name,
            variable=self.name,
            dtype=dtype.str,
            shape=self.shape,
            chunks=tuple(chunks),
            select=select,
            dimensions=self.dimensions or (),
            places=places,
            codecs=codecs,
            fill=fill.tobytes() if fill.tobytes().strip(b"\0") else b"",
            packing=packing_of(dtype, self.attributes, self.shown),
            file_bytes=self.file_bytes,
        )

    def _table(self, chunks: tuple[int, ...], is_chunked: bool) -> ChunkTable:
        """Return where the chunks are."""
        grid = tuple(-(-length // chunk) for length, chunk in zip(self.shape, chunks, strict=True))
        table = ChunkTable.of_grid(grid)
        if is_chunked:
            found = list[tuple[tuple[int, ...], Any]]()

            def add(chunk: Any) -> None:
                at = tuple(o // c for o, c in zip(chunk.chunk_offset, chunks, strict=True))
                found.append((at, chunk))

            self.dataset.id.chunk_iter(add)
            self._check_positions([at for at, _ in found])
            for at, chunk in found:
                if all(number < count for number, count in zip(at, grid, strict=True)):
                    table.add(at, chunk.byte_offset, chunk.size, chunk.filter_mask)
        elif (start := self.dataset.id.get_offset()) is not None:
            table.add((0,) * len(grid), start, self.dataset.id.get_storage_size(), 0)
        return table

    def _check_positions(self, listed: Sequence[tuple[int, ...]]) -> None:
        """Raise ValueError if HDF5 lists the chunks at wrong positions, as version 2.0 does.

        With ``libver="latest"`` a single unlimited axis comes first in the index of the chunks,
        which the list does not undo: all numbers on the axes before it are 0.
        """
        maxshape = self.dataset.maxshape
        if maxshape.count(None) != 1:
            return
        unlimited = maxshape.index(None)
        before = zip(maxshape[:unlimited], self.dataset.chunks, strict=False)
        if all(most <= chunk for most, chunk in before):
            return
        if not any(any(at[:unlimited]) for at in listed) and any(any(at) for at in listed):
            raise ValueError(
                f"{self.shown} has an unlimited axis ({unlimited}) that is not the first one, and "
                "HDF5 lists its chunks at wrong positions: write it again without libver='latest', "
                "or with all axes fixed"
            )


def for_plane(array: ChunkedArray, plane: int | None) -> ChunkedArray:
    """Return a variable with the places of only those chunks that a row can need."""
    if not isinstance(array.places, ChunkTable):
        return array
    blocks = []
    for selected, chunk, count in zip(
        array.select, array.chunks, array.places.starts.shape, strict=True
    ):
        position = plane if selected == ROW else selected
        number = None if position is None else position // chunk
        blocks.append(slice(0, count) if number is None else slice(number, number + 1))
    return replace(array, places=array.places.part(tuple(blocks)))


def _is_only_an_axis(item: h5py.Dataset) -> bool:
    """Return whether a data set is an axis of netCDF4 without coordinates."""
    name = item.attrs.get("NAME", b"") if len(item.shape or ()) == 1 else b""
    return isinstance(name, bytes) and name.startswith(_NO_VARIABLE)


def _attributes(item: Any) -> dict[str, Any]:
    """Return attributes, except those that are empty or cannot be read."""
    import h5py

    found: dict[str, Any] = {}
    for name in item.attrs:
        try:
            value = item.attrs[name]
        except (OSError, TypeError, ValueError):
            continue
        if isinstance(value, h5py.Empty):
            continue
        if isinstance(value, np.ndarray) and value.size == 1:  # netCDF4 writes these
            value = value.ravel()[0]
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        found[name] = value
    return found


def _is_plain(stored: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether elements are stored as in NumPy's arrays; h5py converts all others."""
    import h5py

    if isinstance(stored, h5py.h5t.TypeEnumID):
        stored = stored.get_super()
    kind = np.dtype(np.int8) if dtype.kind == "b" else dtype
    plain = h5py.h5t.py_create(np.dtype(kind.str))
    if kind.itemsize == 1 and isinstance(stored, h5py.h5t.TypeIntegerID):
        stored = stored.copy()
        stored.set_order(plain.get_order())  # a single byte has none
    return bool(stored.equal(plain))


def _codecs(owner: str, settings: Any, dtype: np.dtype[Any]) -> Iterator[Codec]:
    """Yield the filters of a data set, by the ids of `readers.chunks.filters`."""
    for number in range(settings.get_nfilters()):
        code, _, values, name = settings.get_filter(number)
        match code:
            case 1:
                yield {"id": "zlib"}
            case 2:
                yield {"id": "shuffle", "elementsize": dtype.itemsize}
            case 3:
                yield {"id": "fletcher32"}
            case 307:
                yield {"id": "bz2"}
            case 32001:
                yield {"id": "blosc"}
            case 32004:
                yield {"id": "hdf5_lz4"}
            case 32008 if len(values) >= 5 and values[4] in _BITSHUFFLE_COMPRESSION:
                compression = _BITSHUFFLE_COMPRESSION[values[4]]
                yield {
                    "id": "hdf5_bitshuffle",
                    "elementsize": values[2],
                    "block": values[3],
                    "compression": compression,
                }
            case 32015:
                yield {"id": "zstd"}
            case _:
                shown = _NOT_READ.get(code) or name.decode("utf-8", "replace") or "no name"
                raise ValueError(
                    f"{owner} has the filter {code} ({shown}), which is not supported: write it "
                    "again, for instance by h5repack, with gzip, shuffle, fletcher32, bzip2, "
                    "Blosc, LZ4, bitshuffle or zstd"
                )
