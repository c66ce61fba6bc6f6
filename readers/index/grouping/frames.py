"""Names of the files of a sample: channels, offsets in time, and parts."""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from readers.index.arrow import pa, pc
from readers.index.schema import metadata_of, part_names, with_metadata
from readers.index.times import nanoseconds

logger = logging.getLogger(__name__)

_OF_SEQUENCE = re.compile(r"([+]0|[+-][0-9.]+(e[+-]?[0-9]+)?[a-zA-Z]+)$")
"""End of the name of a part with an offset."""
_KEY = b"dali-pipelines frames"


@dataclass(frozen=True)
class Frames:
    """The channels of a sample, each at the same offsets."""

    channels: tuple[str, ...] = ()
    """Names; empty for a single channel without a name."""
    offsets: tuple[str, ...] = ()
    """Names; empty if samples have only one time."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts: all channels of the first offset, then of the second, and so on."""
        return tuple(
            f"{one}+0" if one and at == "0" else one + at
            for at in self.offsets or ("",)
            for one in self.channels or ("",)
        )


class Offset(NamedTuple):
    """A time of a frame."""

    name: str
    """Name in columns, such as ``-24min``, ``0`` or ``+1.5h``."""
    nanoseconds: int
    """Time of the frame minus that of its sample."""

    @classmethod
    def of(cls, offset: Any) -> Offset:
        """Convert seconds, text or a Quantity; ValueError if it is not a duration."""
        from astropy import units

        found = nanoseconds("offsets", offset, signed=True)
        quantity = units.Quantity(offset)
        unit = str(quantity.unit) or "s"
        return cls(f"{float(quantity.value):+.15g}{unit}" if found else "0", found)


def offsets_of(offsets: Iterable[Any], apart: int) -> tuple[Offset, ...]:
    """Return offsets with their names.

    Raises
    ------
    ValueError
        If `offsets` is empty, or has an item that is not a duration, or if two offsets differ by
        `apart` nanoseconds or less, so that one file could be at both.
    """
    try:
        several = () if isinstance(offsets, str) else tuple(offsets)
    except TypeError:  # a single number or Quantity
        several = ()
    if not several:
        raise ValueError(
            f"offsets must be a sequence of durations, such as ('-12min', '0'), got {offsets!r}"
        )
    found = tuple(map(Offset.of, several))
    ordered = sorted(found, key=lambda one: one.nanoseconds)
    for one, after in itertools.pairwise(ordered):
        if one.nanoseconds == after.nanoseconds or one.name == after.name:
            raise ValueError(f"offsets must differ, got {one.name} twice")
        if after.nanoseconds - one.nanoseconds <= apart:
            raise ValueError(
                f"offsets must be more than twice the tolerance of {apart / 2e9:g} s apart, got "
                f"{one.name} and {after.name}: otherwise one file can be both frames"
            )
    return found


def frames_of(table: pa.Table) -> Frames:
    """Return the channels and offsets of a table; both are empty if a sample is one file."""
    stored = metadata_of(table, _KEY)
    if stored is None:
        return Frames(part_names(table))
    return Frames(**{name: tuple(names) for name, names in stored.items()})


def check_frames(frames: Frames, parts: tuple[str, ...]) -> None:
    """Raise ValueError if one of the frames is not among the parts of a table.

    Log a warning if parts have names like frames of a sequence, but the table has no offsets.
    """
    named = {*parts} - {"0"}
    if not frames.offsets and named and all(map(_OF_SEQUENCE.search, named)):
        _warn_of_lost_offsets(parts)
    if lacking := [part for part in frames.parts if part not in parts]:
        raise ValueError(
            f"the samples of the Index have channels {', '.join(frames.channels) or '(one)'} at "
            f"{', '.join(frames.offsets)}, and there is no column 'path_{lacking[0]}': keep the "
            "columns of Index.group"
        )


@functools.cache  # a Loader makes several pipelines
def _warn_of_lost_offsets(parts: tuple[str, ...]) -> None:
    logger.warning(
        "columns path_%s are named like the frames of a sequence, but the table has no offsets, so "
        "each is a channel. If the metadata of the table were lost, restore them from the Index of "
        "Index.group: Index(table.replace_schema_metadata(index.table.schema.metadata))",
        ", path_".join(parts),
    )


def lacks_files(table: pa.Table, parts: Iterable[str]) -> bool:
    """Return whether a row lacks the file of one of these parts."""
    columns = (table[f"path_{part}"] for part in parts)
    return any(column.null_count or pc.any(pc.equal(column, "")).as_py() for column in columns)


def with_frames(table: pa.Table, frames: Frames) -> pa.Table:
    """Return the table with the offsets, if any, in its metadata."""
    if not frames.offsets:
        return table
    return with_metadata(table, {_KEY: {"channels": frames.channels, "offsets": frames.offsets}})


def common_frames(tables: Sequence[pa.Table]) -> Frames:
    """Return the frames of tables to join; ValueError if offsets differ."""
    several = dict.fromkeys(map(frames_of, tables))
    if len(several) > 1 and any(frames.offsets for frames in several):
        described = " and ".join(
            f"{', '.join(frames.channels) or 'one channel'} "
            + (f"at {', '.join(frames.offsets)}" if frames.offsets else "without offsets")
            for frames in several
        )
        raise ValueError(f"the samples have different channels or offsets in time: {described}")
    return next(iter(several))
