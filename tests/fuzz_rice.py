"""Damaged RICE_1 streams, and what the decoder makes of them beside astropy.

    PYTHONPATH=tests python -m fuzz_rice FIRST STOP

decodes the batches of these seeds, by the form that numba's variables say.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from astropy.io.fits.hdu.compressed._codecs import Rice1
from astropy.io.fits.hdu.compressed._compression import CfitsioException
from numpy.typing import NDArray
from rice_tiles import DTYPES, decoded_together, encoded

from dali_pipelines.kernels.fits.rice_vector import LANES
from dali_pipelines.kernels.vectors import FORM
from readers import FitsReader, Sample
from readers.fits.payload import PADDING, RICE, make_plan

PER_BATCH = 32
"""Streams: those that AVX-512 decodes together."""

_SCALES = (0, 1, 3, 40, 1000, 10**6, 2**31)
_LONGEST = 300

Pixels = NDArray[np.int32]


class Batch(NamedTuple):
    """Streams with the same settings."""

    streams: list[bytes]
    are_damaged: list[bool]
    sizes: list[int]
    """Pixels of each tile."""
    needed: list[int]
    """First pixels of each tile that are decoded: all, or fewer for a window."""
    unwanted: int
    """Of these, the first ones that need not be written."""
    bytepix: int
    blocksize: int

    @property
    def whole(self) -> bool:
        """Whether all pixels are decoded."""
        return self.needed == self.sizes


def batch_of(seed: int) -> Batch:
    """Return the same batch for a seed: of its streams none, some, or all are damaged."""
    rng = np.random.default_rng(seed)
    bytepix, blocksize = int(rng.choice(list(DTYPES))), int(rng.choice((16, 32, 64)))
    shortest = int(rng.integers(1, _LONGEST))
    longest = shortest if rng.random() < 0.5 else _LONGEST
    sizes = rng.integers(shortest, longest, PER_BATCH, endpoint=True)
    sound = [encoded(_tile(rng, size, bytepix), blocksize) for size in sizes]
    are_damaged = rng.random(PER_BATCH) < rng.choice((0, 0.05, 0.5, 1))
    streams = [
        _damaged(stream, sound, rng) if is_damaged else stream
        for stream, is_damaged in zip(sound, are_damaged, strict=True)
    ]
    needed = sizes if rng.random() < 0.5 else np.minimum(sizes, rng.integers(1, _LONGEST))
    numbers = sizes.tolist(), needed.tolist(), int(rng.integers(shortest))
    return Batch(streams, are_damaged.tolist(), *numbers, bytepix, blocksize)


def _tile(rng: np.random.Generator, size: int, bytepix: int) -> NDArray[np.generic]:
    scale = int(rng.choice(_SCALES))
    noise = rng.integers(-scale, scale, size, endpoint=True)
    noise[rng.random(size) < rng.choice((0, 0.1, 0.9))] = 0
    return noise.astype(DTYPES[bytepix])


def _damaged(stream: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    content = np.frombuffer(stream, np.uint8).copy()
    place, size = int(rng.integers(content.size)), int(rng.choice((1, 4, 30)))
    match rng.integers(7):
        case 0:
            places = rng.integers(0, content.size, int(rng.choice((1, 2, 20))))
            content[places] ^= 1 << rng.integers(0, 8, places.size).astype(np.uint8)
        case 1:
            content[place : place + size] = rng.choice((0, 255))
        case 2:
            content[place:] = rng.integers(0, 256, content.size - place)
        case 3:
            content = content[:place]
        case 4:
            content = np.delete(content, slice(place, place + size))
        case 5:
            content = np.insert(content, place, rng.integers(0, 256, size, np.uint8))
        case _:
            other = np.frombuffer(others[rng.integers(len(others))], np.uint8)
            content = np.concatenate((content[:place], other[place:]))
    return content.tobytes()


def decoded(batch: Batch) -> list[Pixels | None]:
    """Decode the streams of a batch; None for what is refused.

    Each is decoded alone, and in company: a stream that is refused makes all of these refused, and
    no others.
    """
    alone: list[Pixels | None] = []
    for lane in range(PER_BATCH):
        alone += _together(batch, [lane]) or [None]
    for first in range(0, PER_BATCH, LANES):
        group = range(first, min(first + LANES, PER_BATCH))
        sound = [lane for lane in group if alone[lane] is not None]
        for lanes in {tuple(group), tuple(sound)} - {()}:
            found = _together(batch, lanes, batch.unwanted)
            assert (found is None) == (len(lanes) > len(sound))
            for lane, pixels in zip(lanes, found or (), strict=found is not None):
                expected = alone[lane]
                assert expected is not None
                np.testing.assert_array_equal(pixels, expected[batch.unwanted :])
    return alone


def _together(batch: Batch, lanes: Sequence[int], unwanted: int = 0) -> list[Pixels] | None:
    """Decode some streams; return the pixels that are not unwanted, None if one is refused."""
    good, pixels = decoded_together(
        [batch.streams[lane] for lane in lanes],
        [batch.needed[lane] for lane in lanes],
        batch.bytepix,
        batch.blocksize,
        whole=batch.whole,
        unwanted=unwanted,
    )
    dtype = DTYPES[batch.bytepix]
    return [part[unwanted:].astype(dtype).astype(np.int32) for part in pixels] if good else None


def sample_of(batch: Batch, lane: int) -> Sample:
    """Return a stream as an image of one row, or of the first pixels of one."""
    stream = batch.streams[lane]
    plan = make_plan(
        np.array([(0, len(stream), RICE)]),
        bitpix=8 * batch.bytepix,
        height=1,
        width=batch.sizes[lane],
        tile_height=1,
        tile_width=batch.sizes[lane],
        bytepix=batch.bytepix,
        blocksize=batch.blocksize,
    )
    payload = np.frombuffer(stream + bytes(PADDING), np.uint8)
    arrays = dict(FitsReader().blank(1, batch.needed[lane]).arrays)
    arrays |= {"payload": payload, "plan": plan, "scaling": np.array((1, 0, np.nan))}
    return Sample(arrays)


def by_astropy(batch: Batch, lane: int) -> Pixels | None:
    """Decode a stream by astropy; None if it is refused."""
    codec = Rice1(blocksize=batch.blocksize, bytepix=batch.bytepix, tilesize=batch.sizes[lane])
    try:
        pixels = codec.decode(np.frombuffer(batch.streams[lane], np.uint8))
    except CfitsioException:
        return None
    return pixels.view(DTYPES[batch.bytepix]).astype(np.int32)[: batch.needed[lane]]


def judged(batch: Batch, lane: int, found: Pixels | None) -> str:
    """Return what became of a stream.

    Returns
    -------
    str
        same: astropy's pixels; refused: by both; strict: by us alone; window: damage behind what is
        needed was not seen; bug: the rest.
    """
    expected = by_astropy(batch, lane)
    if found is None:
        # astropy decodes blocks with the codes 26 to 30, which the format does not have.
        alone = "strict" if batch.bytepix == max(DTYPES) else "bug"
        return "refused" if expected is None else alone
    if expected is None:
        return "bug" if batch.whole else "window"
    return "same" if np.array_equal(found, expected) else "bug"


def main(first: int, stop: int) -> None:
    """Decode batches, and print JSON: the form, what became of streams, and a hash of all pixels.

    Raises
    ------
    AssertionError
        If a stream has other pixels than astropy's.
    """
    kinds, digest = Counter[str](), hashlib.sha256()
    for seed in range(first, stop):
        batch = batch_of(seed)
        for lane, found in enumerate(decoded(batch)):
            kind = judged(batch, lane, found)
            assert kind != "bug", f"seed {seed}, stream {lane}"
            kinds[kind] += batch.are_damaged[lane]
            digest.update(b"refused" if found is None else found.tobytes())
    result = {"form": FORM.name, "damaged": kinds, "digest": digest.hexdigest()}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
