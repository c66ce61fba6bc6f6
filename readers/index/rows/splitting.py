"""Split an Index into parts for training, validation and test."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa, pc
from readers.index.grouping.frames import Frames, frames_of
from readers.index.schema import as_nanoseconds, decoded, is_binary, is_text
from readers.index.times import nanoseconds, times_of
from readers.messages import did_you_mean, printable
from readers.sampling.order import mix_all
from readers.values import check_integer, is_number

if TYPE_CHECKING:
    from astropy.units import Quantity

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 1 << 16
"""Number of values to convert to Python objects at a time."""
_RUN = 10
"""Number of consecutive blocks with hashes in different tenths."""
_MOST_TRIES, _MOST_HASHED = 100, 1_000_000
"""Maximum numbers of seeds and of hashed rows in the search for a seed without empty parts."""
_GAMMA = 0x9E3779B97F4A7C15
"""Step of SplitMix64 (Steele et al., OOPSLA 2014)."""


@dataclass(frozen=True)
class TimeBlocks:
    """Blocks of time that a split keeps whole, with gaps between parts.

    For images that resemble their neighbours in time, such as images of the Sun. The fractions hold
    for each ten consecutive blocks, in random order.

    Raises
    ------
    ValueError
        If a duration is out of range.
    """

    column: str
    """Column of times."""
    block: float | str | Quantity
    """Length of a block: in seconds, or a duration for ``astropy.units.Quantity``, e.g. ``"30 d"``.
    Blocks begin at the multiples of this length since 1970-01-01T00:00."""
    gap: float | str | Quantity = 0.0
    """Minimum distance in time between rows of different parts, shorter than a block. If the next
    block is in another part, rows in the last `gap` of a block are in no part. Small parts lose
    more rows, because nearly all their blocks have neighbours in other parts. For example, with
    fractions 0.8, 0.1 and 0.1, blocks of 10 d and a gap of 2 d, the parts have 0.827, 0.087 and
    0.087 of the remaining rows."""

    def __post_init__(self) -> None:
        if not self._gap_ns < self._block_ns:
            raise ValueError(
                f"gap must be shorter than block, which is above 0, got gap={self.gap!r} and "
                f"block={self.block!r}"
            )

    @property
    def _block_ns(self) -> int:
        return nanoseconds("block", self.block)

    @property
    def _gap_ns(self) -> int:
        return nanoseconds("gap", self.gap)

    def parts(self, table: pa.Table, bounds: NDArray[np.uint64], seed: int) -> NDArray[np.intp]:
        """Return the part of each row, -1 for rows in gaps."""
        times = _times_of(table, self.column)
        blocks, in_block = np.divmod(times, self._block_ns)
        start = _hashes([b""], seed)[0]

        def part(numbers: NDArray[np.int64]) -> NDArray[np.intp]:
            return np.searchsorted(bounds, _hashes_of_blocks(numbers, start), side="right")

        parts = part(blocks)
        in_gap = (in_block >= self._block_ns - self._gap_ns) & (part(blocks + 1) != parts)
        return np.where(in_gap, -1, parts)


@dataclass(frozen=True)
class TimeOrder:
    """Parts of a split in the order of time: the first part has the earliest rows.

    For forecasts: the test set must be later than the training set. Rows with the same time are in
    the same part. Unlike other splits, this one depends on all rows. If rows are added later,
    others may move to another part, so save the parts.

    Raises
    ------
    ValueError
        If the gap is not a duration.
    """

    column: str
    """Column of times."""
    gap: float | str | Quantity = 0.0
    """Minimum distance in time between rows of different parts: in seconds, or a duration for
    ``astropy.units.Quantity``, e.g. ``"1 d"``. Rows in the last `gap` before the first row of the
    next part are in no part."""

    def __post_init__(self) -> None:
        nanoseconds("gap", self.gap)

    def parts(self, table: pa.Table, bounds: NDArray[np.uint64], seed: int) -> NDArray[np.intp]:
        """Return the part of each row, -1 for rows in gaps."""
        if seed:
            raise ValueError(
                f"seed={seed} has no effect on TimeOrder, which is not random: omit the seed"
            )
        times, gap = _times_of(table, self.column), nanoseconds("gap", self.gap)
        places = np.rint(bounds / 2**64 * len(times)).astype(np.int64)
        starts = np.sort(times)[places.clip(0, len(times) - 1)]
        parts = np.searchsorted(starts, times, side="right")
        until = times + np.minimum(gap, np.iinfo(np.int64).max - times)
        in_gap = np.searchsorted(starts, until, side="right") != parts
        return np.where(in_gap, -1, parts)


def _times_of(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Return a column of times in nanoseconds; ValueError if a row has none."""
    times, timed = times_of(table, name)
    _check_present(table, name, timed)
    return times


By = str | TimeBlocks | TimeOrder
"""Rule that selects the part of a row."""


def _hashes_of_blocks(blocks: NDArray[np.int64], start: np.uint64) -> NDArray[np.uint64]:
    """Return the hash of each block, see `Index.split`.

    To spread parts over time, the hashes of a run of ten blocks are in different tenths of [0,
    2**64), and the hashes of two runs in different twentieths. The order in a run is random: a
    fixed order could have the period of a year.
    """

    def drawn(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        return mix_all(numbers.view(np.uint64) * np.uint64(_GAMMA) + start)

    own, run = drawn(blocks), blocks // _RUN
    tenth = np.zeros(len(blocks), np.uint64)
    for number in range(_RUN):
        tenth += drawn(run * _RUN + number) < own
    half = (mix_all(drawn(run // 2) + tenth) + run.view(np.uint64)) % np.uint64(2)
    part = np.uint64(2) * tenth + half
    within = own & np.uint64(2**32 - 1)
    return part * np.uint64(2**64 // (2 * _RUN)) + within * np.uint64(2**32 // (2 * _RUN))


def usual_column(names: Collection[str]) -> str:
    """Return the default column of a split."""
    return "key" if {"key", "offset"} <= set(names) else "path"


def check_column(by: By, names: list[str]) -> None:
    """Raise KeyError if the names lack the column of a split."""
    name = by if isinstance(by, str) else by.column
    if name not in names:
        raise KeyError(
            f"splitting needs a column {name!r}: {did_you_mean(str(name), names)}the Index has "
            f"{', '.join(names)}"
        )


def split_rows(
    table: pa.Table, fractions: Mapping[str, float], by: By | None, seed: int
) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each part, see `readers.index.table.Index.split`."""
    if by is None:
        by = usual_column(table.column_names)
        table = _with_keys_of_files(table) if by == "key" else table
    bounds, seed = bounds_of(fractions), seed_of(seed)
    check_column(by, table.column_names)
    parts = _parts(table, by, bounds, seed)
    rows = {name: np.flatnonzero(parts == number) for number, name in enumerate(fractions)}
    gaps = int((parts < 0).sum())
    if empty := [name for name, found in rows.items() if not len(found)]:
        in_gaps = f", {gaps} are in gaps" if gaps else ""
        raise ValueError(
            f"{', '.join(map(repr, empty))} would get none of {table.num_rows} rows{in_gaps}: "
            f"{_remedy(table, by, bounds, seed)}"
        )
    if gaps:
        logger.info("%d of %d rows are in gaps, and in no part", gaps, table.num_rows)
    if (frames := frames_of(table)).offsets and (count := shared_frames(table, frames, rows)):
        logger.warning(
            "%d frames are in sequences of more than one part: split by TimeBlocks('time', block, "
            "gap), or TimeOrder('time', gap), with a gap of the length of a sequence plus twice "
            "the tolerance",
            count,
        )
    return rows


def _parts(table: pa.Table, by: By, bounds: NDArray[np.uint64], seed: int) -> NDArray[np.intp]:
    """Return the part of each row, -1 for rows in no part."""
    if isinstance(by, str):
        return np.searchsorted(bounds, _hashes_of(table, by, seed), side="right")
    return by.parts(table, bounds, seed)


def _remedy(table: pa.Table, by: By, bounds: NDArray[np.uint64], seed: int) -> str:
    """Return the remedy if a part would get no row."""
    if isinstance(by, TimeOrder):
        return "use fewer parts, larger fractions, or a shorter gap"
    others = "fewer parts, larger fractions, or a column or blocks with more values"
    tries = min(_MOST_TRIES, _MOST_HASHED // table.num_rows)
    for other in range(seed + 1, min(seed + 1 + tries, 2**64)):
        if len({*_parts(table, by, bounds, other).tolist()} - {-1}) > len(bounds):
            return f"with seed={other} each part gets rows; or use {others}"
    return f"use another seed, {others}" if not tries else f"use {others}"


def _with_keys_of_files(table: pa.Table) -> pa.Table:
    """Return the table with the path as key in rows without a key, i.e. rows of plain files."""
    keys, paths = (_bytes_of(name, table[name]) for name in ("key", "path"))
    return table.set_column(table.column_names.index("key"), "key", pc.coalesce(keys, paths))


def shared_frames(table: pa.Table, frames: Frames, rows: Mapping[str, NDArray[np.int64]]) -> int:
    """Return the number of frames that are in sequences of more than one part."""
    kind = pa.large_string()
    found = []
    for own in rows.values():
        samples = table.take(pa.array(own, pa.int64()))
        columns = [_names_of_frames(samples, part) for part in frames.parts]
        chunks = [chunk for column in columns for chunk in column.chunks]
        found.append(pc.unique(pa.chunked_array(chunks, kind)).drop_null())
    counts = pa.chunked_array(found, kind).value_counts().field("counts")
    return int(pc.sum(pc.greater(counts, 1)).as_py() or 0)


def _names_of_frames(samples: pa.Table, part: str) -> pa.ChunkedArray:
    """Return the files of a part, with their plane if there are planes; null if missing."""
    kind = pa.large_string()
    paths = samples[f"path_{part}"].cast(kind)
    if (plane := f"plane_{part}") not in samples.column_names:
        return paths
    return pc.binary_join_element_wise(paths, samples[plane].cast(kind), pa.scalar("\0", kind))


def bounds_of(fractions: Mapping[str, float]) -> NDArray[np.uint64]:
    """Return the first hash of the second, third, ... part."""
    if not isinstance(fractions, Mapping) or not fractions:
        raise ValueError(
            f"fractions must be a dict such as {{'train': 0.9, 'val': 0.1}}, got {fractions!r}"
        )
    shares = list(fractions.values())
    if not all(is_number(share) and share > 0 for share in shares):
        raise ValueError(f"fractions must be numbers above 0, got {dict(fractions)}")
    if not math.isclose(total := math.fsum(shares), 1, abs_tol=1e-6):
        raise ValueError(f"fractions must add up to 1, got {dict(fractions)}, which is {total:g}")
    starts = [min(round(start / total * 2**64), 2**64 - 1) for start in accumulate(shares[:-1])]
    return np.array(starts, np.uint64)


def seed_of(number: int) -> int:
    """Return the seed of a split as an int; ValueError if it is out of range."""
    check_integer("seed", number, 0, 2**64 - 1)
    return int(number)


def _hashes_of(table: pa.Table, name: str, seed: int) -> NDArray[np.uint64]:
    column = _bytes_of(name, table[name])
    _check_present(table, name, column.is_valid().to_numpy())
    hashes = np.empty(table.num_rows, np.uint64)
    for start in range(0, len(column), _CHUNK_ROWS):
        chunk = column.slice(start, _CHUNK_ROWS).combine_chunks().dictionary_encode()
        found = _hashes(chunk.dictionary.to_pylist(), seed)
        hashes[start : start + _CHUNK_ROWS] = found[chunk.indices.to_numpy()]
    return hashes


def _hashes(values: list[bytes], seed: int) -> NDArray[np.uint64]:
    salt = seed.to_bytes(8, "little")
    digests = (blake2b(value, digest_size=8, salt=salt).digest() for value in values)
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def _bytes_of(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the bytes to hash for each value: text as UTF-8, numbers in decimal."""
    column = as_nanoseconds(name, decoded(column))
    kind, is_bytes = column.type, is_binary(column.type)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if not (is_bytes or is_text(kind) or pa.types.is_integer(column.type)):
        raise TypeError(
            f"column {name!r} is {kind}: split by text, bytes, integers, bools or times"
        )
    return (column if is_bytes else column.cast(pa.large_string())).cast(pa.large_binary())


def _check_present(table: pa.Table, name: str, present: NDArray[np.bool_]) -> None:
    if not present.all():
        row = int(present.argmin())
        raise ValueError(
            f"column {name!r} is empty in {int((~present).sum())} rows, the first is row {row} "
            f"({printable(table['path'][row])}): fill in values, or leave these rows out"
        )
