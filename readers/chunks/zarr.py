"""Metadata of Zarr 2 and 3: the arrays of a store, and where their chunks are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.chunks.array import ROW, SHARD, ChunkedArray, Codec, Keys, beside_or_above
from readers.chunks.chunk import read_line
from readers.chunks.fetch import run, together
from readers.chunks.filters import check_codecs
from readers.chunks.values import KINDS, packing_of
from readers.places.contract import Place
from readers.places.opener import Places
from readers.places.urls import is_url

_V2, _V2_GROUP, _V2_ATTRIBUTES = ".zarray", ".zgroup", ".zattrs"
_V3, _CONSOLIDATED = "zarr.json", ".zmetadata"
_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute of arrays of Zarr 2 with the names of their axes, as xarray writes it."""
_LIMITS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
_OF_NUMCODECS = "numcodecs."
_TYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")
"""Settings of filters that are types of elements."""


class NoZarrError(FileNotFoundError):
    """There is no array or group of Zarr."""


@dataclass(frozen=True)
class ZarrArray:
    """An array of a store, as its metadata describe it."""

    name: str
    """Path below the root of the store; "" for an array that is the root."""
    metadata: Mapping[str, Any]
    """Content of ``.zarray`` or ``zarr.json``."""
    attributes: Mapping[str, Any]
    """Attributes of the array."""

    def __post_init__(self) -> None:
        shape = self.metadata.get("shape")
        is_shape = isinstance(shape, list) and all(_is_length(length, 0) for length in shape)
        if not is_shape or self.metadata.get("zarr_format") not in (2, 3):
            raise ValueError(f"{self.shown} does not have metadata of Zarr 2 or 3")

    @property
    def is_v3(self) -> bool:
        """Whether it is of Zarr 3."""
        return self.metadata["zarr_format"] == 3

    @property
    def shown(self) -> str:
        """Its name, for messages."""
        return repr(self.name) if self.name else "the array"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions on each axis."""
        return tuple(self.metadata["shape"])

    @property
    def dimensions(self) -> tuple[str, ...] | None:
        """Names of the axes, or None if they have none."""
        names = self.metadata.get("dimension_names") or self.attributes.get(_DIMENSIONS)
        if not isinstance(names, list) or len(names) != len(self.shape):
            return None
        return tuple(names) if all(isinstance(name, str) and name for name in names) else None

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
            If it cannot be read: its type, a filter, or its grid of chunks is not known.
        """
        try:
            return (self._of_v3 if self.is_v3 else self._of_v2)(name, select)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            kind = type(error).__name__
            raise ValueError(
                f"the metadata of {self.shown} are not valid in Zarr ({kind}: {error})"
            ) from error

    @property
    def check(self) -> str:
        """Path, below the root, of the object with its metadata."""
        return self._folder + (_V3 if self.is_v3 else _V2)

    @property
    def _folder(self) -> str:
        return f"{self.name}/" if self.name else ""

    def _of_v2(self, name: str, select: tuple[int | None, ...]) -> ChunkedArray:
        found = self.metadata
        dtype = _v2_dtype(self.shown, found["dtype"], found.get("filters"))
        codecs = [*(found.get("filters") or ())]
        codecs += [found["compressor"]] if found.get("compressor") else []
        check_codecs(self.shown, codecs)
        fill = _fill(self.shown, found.get("fill_value"), dtype)
        attributes = dict(self.attributes)
        # As xarray reads it, but for bools, which would be NaN in place of False.
        if self.dimensions and found.get("fill_value") is not None and dtype.kind != "b":
            attributes["_FillValue"] = fill.item()
        ndim, separator = len(self.shape), found.get("dimension_separator", ".")
        if (order := found.get("order", "C")) not in ("C", "F") or separator not in (".", "/"):
            raise ValueError(f"{self.shown} has order {order!r} and separator {separator!r}")
        return ChunkedArray(
            name=name,
            variable=self.name,
            dtype=dtype.str,
            shape=self.shape,
            chunks=self._chunks(found["chunks"]),
            select=select,
            dimensions=self.dimensions or (),
            places=Keys(self._folder, "", separator),
            codecs=tuple(codecs),
            order=tuple(range(ndim))[::-1] if order == "F" else (),
            fill=_bytes(fill, dtype),
            packing=packing_of(dtype, attributes, self.shown) if dtype.kind in KINDS else None,
            check=self.check,
        )

    def _of_v3(self, name: str, select: tuple[int | None, ...]) -> ChunkedArray:
        found = self.metadata
        if found.get("storage_transformers"):
            raise ValueError(f"{self.shown} has storage transformers, which are not read")
        grid = found["chunk_grid"]
        if grid["name"] != "regular":
            raise ValueError(
                f"{self.shown} has a {grid['name']} grid of chunks, expected a regular one: write "
                "it again with chunks of one shape"
            )
        keys = found["chunk_key_encoding"]
        if keys["name"] not in ("default", "v2"):
            raise ValueError(
                f"{self.shown} names its chunks by {keys['name']!r}, which is not read"
            )
        is_default = keys["name"] == "default"
        separator = (keys.get("configuration") or {}).get("separator", "/" if is_default else ".")
        if separator not in (".", "/"):
            raise ValueError(f"{self.shown} has the separator {separator!r} of chunks")
        begin = f"c{separator}" if is_default else ""
        dtype = _v3_dtype(self.shown, found["data_type"])
        fill = _fill(self.shown, found.get("fill_value"), dtype)
        chunks = self._chunks(grid["configuration"]["chunk_shape"])
        decoding = _Decoding.of(self.shown, found["codecs"], dtype, chunks)
        return ChunkedArray(
            name=name,
            variable=self.name,
            dtype=decoding.dtype.str,
            shape=self.shape,
            chunks=chunks,
            select=select,
            dimensions=self.dimensions or (),
            places=Keys(self._folder, begin, separator),
            codecs=decoding.codecs,
            order=decoding.order,
            fill=_bytes(fill, decoding.dtype),
            packing=packing_of(dtype, self.attributes, self.shown) if dtype.kind in KINDS else None,
            check=self.check,
        )

    def _chunks(self, chunks: Sequence[Any]) -> tuple[int, ...]:
        if len(chunks) != len(self.shape) or not all(_is_length(length, 1) for length in chunks):
            raise ValueError(
                f"{self.shown} has chunks of {chunks}, expected a length for each of its "
                f"{len(self.shape)} axes: such chunks are not read"
            )
        return tuple(chunks)


def _is_length(length: Any, least: int) -> bool:
    return type(length) is int and least <= length < 1 << 62


@dataclass(frozen=True)
class _Decoding:
    """How the elements of a chunk of Zarr 3 are stored."""

    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...]
    order: tuple[int, ...]

    @classmethod
    def of(
        cls, owner: str, given: Sequence[Any], dtype: np.dtype[Any], chunks: Sequence[int]
    ) -> _Decoding:
        """Read the codecs of chunks of this shape; ValueError if one is not known."""
        codecs: list[Codec] = []
        order: tuple[int, ...] = ()
        stored: np.dtype[Any] | None = None  # as bytes
        for one in given:
            one = {"name": one} if isinstance(one, str) else one
            name, settings = one["name"], dict(one.get("configuration") or {})
            if name == "transpose" and not codecs and stored is None:
                added = tuple(settings["order"])
                if sorted(added) != list(range(len(chunks))):
                    raise ValueError(f"{owner} has a transpose of {added}")
                order = tuple(order[axis] for axis in added) if order else added
            elif name in ("bytes", "endian") and stored is None:
                stored = dtype
                if settings.get("endian") == "big" and dtype.itemsize > 1:
                    if codecs:
                        raise ValueError(f"{owner} has filters of big-endian elements: not read")
                    stored = dtype.newbyteorder(">")
            elif name == SHARD and stored is None and not codecs and not order:
                codec, stored = _sharding(owner, settings, dtype, chunks)
                codecs.append(codec)
            elif codecs and codecs[0]["id"] == SHARD:
                raise ValueError(f"{owner} has shards with the filter {name!r}: not read")
            else:
                name = name.removeprefix(_OF_NUMCODECS)
                check_codecs(owner, [{"id": name}])
                if name in ("delta", "fixedscaleoffset", "quantize"):
                    settings.setdefault("dtype", dtype.str)
                types = [settings.get(key) for key in _TYPES]
                if any(one is not None and np.dtype(one).str[0] == ">" for one in types):
                    raise ValueError(f"{owner} has filters of big-endian elements: not read")
                codecs.append({"id": name, **settings})
        if stored is None:
            raise ValueError(f"{owner} has no codec 'bytes' that is read")
        return cls(stored, tuple(codecs), order)


def _sharding(
    owner: str, settings: Mapping[str, Any], dtype: np.dtype[Any], chunks: Sequence[int]
) -> tuple[Codec, np.dtype[Any]]:
    """Return the codec of shards, and the type of the elements in them."""
    inner = settings["chunk_shape"]
    fits = len(inner) == len(chunks) and all(_is_length(length, 1) for length in inner)
    if not fits or any(one % other for one, other in zip(chunks, inner, strict=True)):
        raise ValueError(f"{owner} has chunks of {inner}, which do not fill shards of {chunks}")
    index = settings.get("index_codecs") or []
    names = [one["name"] for one in index]
    if names not in (["bytes"], ["bytes", "crc32c"]):
        raise ValueError(f"{owner} has an index of shards with the filters {names}: not read")
    location = settings.get("index_location", "end")
    if location not in ("start", "end"):
        raise ValueError(f"{owner} has the index of shards at {location!r}, not 'start' or 'end'")
    is_big = (index[0].get("configuration") or {}).get("endian") == "big"
    decoding = _Decoding.of(owner, settings["codecs"], dtype, inner)
    codec = {
        "id": SHARD,
        "chunks": tuple(inner),
        "codecs": decoding.codecs,
        "order": decoding.order,
        "checksum": len(names) == 2,
        "at_start": location == "start",
        "index_dtype": ">u8" if is_big else "<u8",
    }
    return codec, decoding.dtype


def _v2_dtype(owner: str, given: Any, filters: Any) -> np.dtype[Any]:
    """Return the type of the elements; ValueError if these are objects or records."""
    ids = [one.get("id") for one in filters or ()]
    if not isinstance(given, str) or given.startswith("|O"):
        kind = f"objects ({', '.join(map(str, ids))})" if given == "|O" else "records"
        raise ValueError(f"{owner} holds {kind}, expected numbers")
    return np.dtype(given)


def _v3_dtype(owner: str, given: Any) -> np.dtype[Any]:
    if isinstance(given, dict):
        name, settings = given["name"], given.get("configuration") or {}
        if name == "numpy.datetime64":
            return np.dtype(f"<M8[{settings.get('scale_factor', 1)}{settings['unit']}]")
        if name == "fixed_length_utf32":
            return np.dtype(f"<U{settings['length_bytes'] // 4}")
        given = name
    names = ("bool", "float16", "float32", "float64", "complex64", "complex128")
    if given in names or (isinstance(given, str) and given.strip("uint0123456789") == ""):
        return np.dtype(given).newbyteorder("<")
    raise ValueError(f"{owner} holds {given!r}, expected numbers")


def _fill(owner: str, given: Any, dtype: np.dtype[Any]) -> Any:
    """Return the fill value as an element; ValueError if it is not of this type."""
    native = dtype.newbyteorder("=")
    if given is None or dtype.kind in "SU":
        return np.zeros((), native)[()]
    try:
        if dtype.kind == "f" and isinstance(given, str):
            if given.startswith("0x"):
                raw = bytes.fromhex(given[2:].zfill(2 * dtype.itemsize))
                return np.frombuffer(raw, dtype.newbyteorder(">"))[0].astype(native)
            return native.type(_LIMITS[given])
        if dtype.kind == "M":
            return (
                np.array(given, native)[()]
                if isinstance(given, str)
                else (np.array(given, np.int64).view(native)[()])
            )
        if dtype.kind == "c":
            return native.type(0)
        if dtype.kind == "b" and not isinstance(given, bool):
            given = {0: False, 1: True}[given]
        if dtype.kind in "iu" and (isinstance(given, bool | str) or given != int(given)):
            raise ValueError
        with np.errstate(over="ignore"):
            return np.array(int(given) if dtype.kind in "iu" else given, native)[()]
    except (ValueError, TypeError, KeyError, OverflowError):
        raise ValueError(f"{owner} has the fill value {given!r}, which is not {dtype}") from None


def _bytes(fill: Any, dtype: np.dtype[Any]) -> bytes:
    content = np.asarray(fill).astype(dtype).tobytes()
    return content if any(content) else b""


def _attributes_of_v3(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    attributes = dict(_object_of("attributes", metadata.get("attributes")))
    if isinstance(fill := attributes.get("_FillValue"), str):
        attributes["_FillValue"] = _decoded_fill(fill)
    return attributes


def _object_of(name: str, found: Any) -> dict[str, Any]:
    """Return a part of metadata that is an object of JSON, or missing; else ValueError."""
    if not isinstance(found, dict | None):
        raise ValueError(f"{name} of the metadata must be an object of JSON, got {found!r}")
    return found or {}


def _decoded_fill(text: str) -> float | str:
    """Return the attribute _FillValue as xarray writes it to Zarr 3: a float64 in base 64."""
    import base64
    import binascii
    import struct

    try:
        (value,) = struct.unpack("<d", base64.standard_b64decode(text))
    except (binascii.Error, struct.error):
        return text
    return value


@dataclass
class ZarrStore:
    """A group or an array of Zarr, local or remote.

    Parameters
    ----------
    root : str
        Path or URL.
    places : Places
        Finds its objects.

    Raises
    ------
    NoZarrError
        If there is neither a group nor an array.
    OSError
        If it cannot be read.
    ValueError
        If its metadata are not JSON.
    """

    root: str
    places: Places
    attributes: Mapping[str, Any] = field(default_factory=dict, init=False)
    """Attributes of the group."""
    array: ZarrArray | None = field(default=None, init=False)
    """The array, if the root is one."""
    _consolidated: Mapping[str, Mapping[str, Any]] | None = field(default=None, init=False)
    """Metadata of everything below a group, by object, if they are consolidated."""

    def __post_init__(self) -> None:
        if (found := self._json(_V3)) is not None:
            self.attributes = _attributes_of_v3(found)
            if found.get("node_type") == "array":
                self.array = ZarrArray("", found, self.attributes)
            elif copies := _object_of("consolidated_metadata", found.get("consolidated_metadata")):
                below = _object_of("consolidated_metadata", copies.get("metadata"))
                self._consolidated = {
                    f"{name}/{_V3}": _object_of(name, one) for name, one in below.items()
                }
            return
        if (found := self._json(_CONSOLIDATED)) is not None:
            below = _object_of("metadata", found.get("metadata"))
            self._consolidated = {name: _object_of(name, one) for name, one in below.items()}
            self.attributes = self._consolidated.get(_V2_ATTRIBUTES) or {}
            return
        array = self._json(_V2)
        if array is None and self._json(_V2_GROUP) is None:
            raise NoZarrError(_not_found(self))
        self.attributes = self._json(_V2_ATTRIBUTES) or {}
        if array is not None:
            self.array = ZarrArray("", array, self.attributes)

    def get(self, name: str) -> ZarrArray | None:
        """Return an array of the group by its path below the root, or None."""
        if (found := self._metadata(f"{name}/{_V3}")) is not None:
            if found.get("node_type") != "array":
                return None
            return ZarrArray(name, found, _attributes_of_v3(found))
        if (found := self._metadata(f"{name}/{_V2}")) is None:
            return None
        return ZarrArray(name, found, self._metadata(f"{name}/{_V2_ATTRIBUTES}") or {})

    @property
    def is_consolidated(self) -> bool:
        """Whether the metadata of its arrays are copies in one object, which may be out of date."""
        return self._consolidated is not None

    def coordinate(self, array: ZarrArray, dim: str) -> ZarrArray | None:
        """Return the array with the coordinates of an axis, or None."""
        names = beside_or_above(array.name, dim)
        return next((one for name in names if (one := self.get(name)) is not None), None)

    def names(self) -> list[str]:
        """Return the names of the arrays of the group; [] if a server does not list them."""
        if self._consolidated is not None:
            paths = (key.rpartition("/") for key in self._consolidated)
            names = {folder for folder, _, file in paths if folder and file in (_V2, _V3)}
            return sorted(name for name in names if self.get(name) is not None)
        return sorted(name for name in self._folders() if self.get(name) is not None)

    @property
    def title(self) -> str:
        """Name of an array that is the root."""
        return self.root.rstrip("/").rpartition("/")[2]

    def line(self, array: ZarrArray) -> NDArray[Any]:
        """Return all elements of an array with one axis."""
        chunked = array.chunked(array.name, (None,))
        numbers = range(-(-chunked.shape[0] // chunked.chunks[0]))

        def open_place(key: str) -> Place:
            return self.places.at(f"{self.root.rstrip('/')}/{key}")

        storage = self.places.storage if is_url(self.root) else None
        reading = together([read_line(chunked, number) for number in numbers])
        return np.concatenate(run(reading, open_place, storage)[0])

    def _folders(self) -> Iterator[str]:
        if is_url(self.root):
            from readers.places.listing import folders

            yield from folders(self.root, self.places.storage)
            return
        with os.scandir(self.root) as entries:
            yield from (entry.name for entry in entries if entry.is_dir())

    def _metadata(self, key: str) -> Mapping[str, Any] | None:
        if self._consolidated is not None:
            return self._consolidated.get(key)
        return self._json(key)

    def _json(self, key: str) -> dict[str, Any] | None:
        return read_json(self.places, self.root, key)


def read_json(places: Places, root: str, key: str) -> dict[str, Any] | None:
    """Return the content of a JSON object below a root, or None if it is missing."""
    try:
        return _load(places, f"{root.rstrip('/')}/{key}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _load(places: Places, path: str) -> dict[str, Any]:
    with places.at(path) as place:
        content = place.read(0, place.nbytes)
    try:
        found = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{path}: it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: expected an object of JSON, got {type(found).__name__}")
    return found


def check_unchanged(places: Places, root: str, noted: ChunkedArray) -> None:
    """Compare an array with the description that was noted.

    Raises
    ------
    FileNotFoundError
        If it is missing.
    ValueError
        If it differs.
    """
    if difference := difference_of(places, root, noted):
        raise ValueError(
            f"{noted.name!r} was changed since it was indexed, index it again: {difference}"
        )


def difference_of(places: Places, root: str, noted: ChunkedArray) -> str:
    """Return how an array differs from its description in the Index; "" if only rows were added.

    FileNotFoundError if it is missing.
    """
    name = noted.check.rpartition("/")[0]
    metadata = _load(places, f"{root.rstrip('/')}/{noted.check}")
    found = ZarrArray(name, metadata, {}).chunked(noted.name, noted.select)
    for what in ("dtype", "chunks", "codecs", "order", "fill", "places"):
        if (was := getattr(noted, what)) != (now := getattr(found, what)):
            return f"{what} was {was}, and is {now}"
    lengths = list(zip(noted.select, noted.shape, found.shape, strict=True))
    if any(now < was or (now > was and selected != ROW) for selected, was, now in lengths):
        return f"shape was {noted.shape}, and is {found.shape}"
    return ""


def _not_found(store: ZarrStore) -> str:
    """Return why no Zarr was found."""
    begin = f"expected {_V3}, {_V2_GROUP} or {_V2}, there is none"
    if not is_url(store.root):
        if not os.path.exists(store.root):
            return f"there is no such folder: {store.root!r}"
        if os.path.isfile(store.root):
            return f"expected the folder of a Zarr array or group, got a file: {store.root!r}"
    if store._json("attributes.json") is not None:
        begin = "this is N5, which is not read: write it again as Zarr"
    icechunk = store._json("refs/branch.main/ref.json") is not None
    if icechunk or (not is_url(store.root) and os.path.isdir(f"{store.root}/snapshots")):
        begin = "this is a repository of icechunk, which is not read: copy a snapshot to Zarr"
    return f"{begin}: {store.root!r}"
