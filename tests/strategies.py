"""What Hypothesis draws from: schedules, and FITS images of all kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from readers.sampling.schedule import Schedule, Tail
from readers.sampling.shard import Shard

seeds = st.integers(0, 2**64 - 1)
fractions = st.floats(0, 1, exclude_max=True)


@st.composite
def schedules(draw: st.DrawFn) -> list[Schedule]:
    """Return the Schedules of all shards of one run."""
    num_rows = draw(st.integers(1, 60))
    tail = draw(st.sampled_from(get_args(Tail)))
    batch_size = draw(st.integers(1, num_rows if tail == "drop" else num_rows + 5))
    num_shards = draw(st.integers(1, num_rows // batch_size if tail == "drop" else 5))
    epoch, position = draw(st.integers(0, 3)), draw(st.integers(0, num_rows))
    return [
        Schedule(
            num_rows=num_rows,
            shard=Shard(shard_id, num_shards),
            batch_size=batch_size,
            tail=tail,
            epoch=epoch,
            position=position,
        )
        for shard_id in range(num_shards)
    ]


@dataclass(frozen=True)
class StoredImage:
    """An image as it is stored in a FITS file."""

    stored: np.ndarray
    cards: dict[str, Any] = field(default_factory=dict)
    """BSCALE, BZERO and BLANK."""
    compression: dict[str, Any] | None = None
    """Arguments of CompImageHDU; None for a plain HDU."""


_BITPIX = {"uint8": 8, "int16": 16, "int32": 32, "int64": 64, "float32": -32, "float64": -64}
_LOSSLESS = ("RICE_1", "GZIP_1", "GZIP_2", "NOCOMPRESS", "HCOMPRESS_1", "PLIO_1")


def stored_arrays(name: str) -> st.SearchStrategy[np.ndarray]:
    """Draw arrays of shape (height, width) whose values repeat and reach their type's limits."""
    shapes = st.tuples(st.integers(4, 40), st.integers(4, 40))
    if name.startswith("float"):
        elements = st.floats(-(2.0**99), 2.0**99, width=64 if name == "float64" else 32) | st.just(
            np.nan
        )
    else:
        limits = np.iinfo(name)
        elements = st.integers(int(limits.min), int(limits.max)) | st.sampled_from(
            [int(limits.min), int(limits.max), 0, 1, 7]
        )
    return hnp.arrays(name, shapes, elements=elements, fill=elements)


def _zeros(name: str) -> st.SearchStrategy[float]:
    offset = {"uint8": -128, "int16": 2**15, "int32": 2**31, "int64": 2**63}[name]
    return st.sampled_from([offset, 0, 0.0, 100, -3.25, 32768])


@st.composite
def plain_images(draw: st.DrawFn) -> StoredImage:
    name = draw(st.sampled_from(sorted(_BITPIX)))
    stored = draw(stored_arrays(name))
    if name.startswith("float"):
        cards = {"BSCALE": st.sampled_from([1.0, 0.5]), "BZERO": st.sampled_from([0.0, 10.0])}
    else:
        cards = {
            "BSCALE": st.sampled_from([1, 1.0, 2, 0.1, -1.0, 1e-7]),
            "BZERO": _zeros(name),
            "BLANK": st.sampled_from([*stored.reshape(-1)[:3].tolist(), 0, -1]),
        }
    return StoredImage(stored, drawn_cards(draw, name, cards))


def drawn_cards(draw: st.DrawFn, name: str, cards: dict[str, Any]) -> dict[str, Any]:
    drawn = draw(st.fixed_dictionaries({}, optional=cards))
    if name == "uint8" and drawn.get("BZERO") == -128:
        # Signed bytes: astropy fails on any BLANK.
        drawn.pop("BLANK", None)
    return drawn


@st.composite
def compressed_integers(draw: st.DrawFn) -> StoredImage:
    codec = draw(st.sampled_from(_LOSSLESS))
    name = draw(st.sampled_from(["uint8", "int16", "int32"]))
    stored = draw(stored_arrays(name))
    tile = draw(tile_shapes(codec, stored.shape))
    if codec == "PLIO_1":
        # Masks whose values change by 12 bits, in tiles of at least 16 pixels: with others astropy
        # writes out of bounds. test_plio.py has larger values.
        stored, tile = (
            stored & stored.dtype.type(0xFFF if stored.itemsize > 1 else 0xFF),
            stored.shape,
        )
    if codec == "HCOMPRESS_1":
        # Its sums overflow near the limits of the type.
        stored = stored // 64
    cards = {
        "BSCALE": st.sampled_from([1, 0.1]),
        "BZERO": _zeros(name),
        "BLANK": st.sampled_from([*stored.reshape(-1)[:3].tolist(), 0]),
    }
    compression = {"compression_type": codec, "tile_shape": tile}
    return StoredImage(stored, drawn_cards(draw, name, cards), compression)


@st.composite
def compressed_floats(draw: st.DrawFn) -> StoredImage:
    codec = draw(st.sampled_from(["RICE_1", "GZIP_1", "GZIP_2", "HCOMPRESS_1"]))
    name = draw(st.sampled_from(["float32", "float64"]))
    shape = draw(st.tuples(st.integers(4, 40), st.integers(4, 40)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    stored = random.normal(100, 20, shape).astype(name)
    stored[random.random(shape) < 0.05] = 0
    if codec != "HCOMPRESS_1":
        stored[random.random(shape) < draw(st.sampled_from([0, 0.05]))] = np.nan
    compression = {
        "compression_type": codec,
        "tile_shape": draw(tile_shapes(codec, stored.shape)),
        # 0: not quantised, which GZIP can.
        "quantize_level": draw(st.sampled_from([16.0, 4.0, -0.01]) | st.just(0.0))
        if codec.startswith("GZIP")
        else 16.0,
        "quantize_method": draw(st.sampled_from([-1, 1, 2])),
        "dither_seed": draw(st.integers(1, 10000)),
    }
    return StoredImage(stored, {}, compression)


@st.composite
def cubes(draw: st.DrawFn) -> StoredImage:
    """Draw images of three or four axes, plain or compressed, in tiles of a plane or several."""
    image = draw(plain_images() | compressed_integers() | compressed_floats())
    plane = image.stored[:12, :16]
    leading = draw(st.sampled_from([(1,), (2,), (3,), (2, 2), (1, 3)]))
    count = int(np.prod(leading))
    turned = np.stack([np.roll(plane, 5 * number) for number in range(count)])
    stored = np.ascontiguousarray(turned.reshape(*leading, *plane.shape))
    if image.compression is None:
        return StoredImage(stored, image.cards)
    codec = image.compression["compression_type"]
    tile: tuple[int, ...] | None = draw(tile_shapes(codec, plane.shape))
    # HCOMPRESS_1 knows tiles of two axes only.
    deep = draw(st.sampled_from([1, 1, 2])) if codec != "HCOMPRESS_1" else 1
    if tile is not None:
        tile = (*(1,) * (len(leading) - 1), min(deep, leading[-1]), *tile)
    return StoredImage(stored, image.cards, {**image.compression, "tile_shape": tile})


def tile_shapes(codec: str, shape: tuple[int, ...]) -> st.SearchStrategy[tuple[int, int] | None]:
    """Return tile shapes in NumPy order: slowest axis first."""
    if codec != "HCOMPRESS_1":
        return st.none() | st.tuples(st.integers(1, 17), st.integers(3, 17))

    def sides(size: int) -> st.SearchStrategy[int]:
        # No tile may be smaller than 4, neither may what is left over.
        return st.sampled_from([n for n in range(4, 18) if size % n == 0 or size % n >= 4])

    return st.tuples(sides(shape[0]), sides(shape[1]))


def bitpix(array: np.ndarray) -> int:
    return _BITPIX[array.dtype.name]
