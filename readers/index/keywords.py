"""Columns of the header keywords of FITS files, for the rows of an Index."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

from readers.contract import Row
from readers.errors import ReadError
from readers.fits.file import read_errors
from readers.fits.headers import HduName, Value
from readers.fits.metadata import image_metadata
from readers.index.arrow import pa
from readers.index.columns import Columns
from readers.index.fact_table import COLUMNS, FactTable, check_keys, column_name, keys_to_read
from readers.index.file_facts import in_threads
from readers.index.scan import SUFFIXES
from readers.index.schema import with_column
from readers.messages import FIRST_BYTES, begins_like, printable
from readers.places.contract import Place
from readers.places.span import SpanPlace

logger = logging.getLogger(__name__)

ReadAll = Callable[[Callable[["Row"], Any], Sequence["Row"]], Iterable[Any]]
"""Function that yields ``function(row)`` for each row, in order."""

_FITS = (b"SIMPLE  =", b"\x1f\x8b")


def checked_keys(keys: Sequence[str]) -> list[str]:
    """Return keywords in capitals. ValueError if they are not a sequence of str."""
    wanted = [*keys]
    if isinstance(keys, str) or not all(isinstance(key, str) for key in wanted):
        raise ValueError(f"keys must be a sequence of keywords, got {keys!r}")
    return [key.strip().upper() for key in wanted]


def with_keywords(
    table: pa.Table,
    columns: Columns,
    keys: Sequence[str],
    read_all: ReadAll = in_threads,
    *,
    hdu: HduName | None = None,
    inherit: bool = False,
) -> pa.Table:
    """Return the table of an Index with a column for each keyword, see `FactTable`.

    `columns` are the columns of the Index, with the Places of its files; `keys` come from
    `checked_keys`; `hdu` is the HDU of rows without one. With `inherit`, keywords are also taken
    from the primary header.

    Raises
    ------
    ValueError
        As in `check_keys`.
    """
    facts = FactTable(keys)
    check_keys(facts.keys, table.column_names)
    rows, numbers = each_image(columns)
    read_keys = keys_to_read(facts.keys)
    nothing = dict.fromkeys((*COLUMNS, *read_keys))
    bad: list[ReadError] = []
    for found in read_all(partial(_keywords_of, read_keys, hdu, inherit), rows):
        if isinstance(found, ReadError):
            bad.append(found)
        facts.add(nothing if isinstance(found, ReadError) else nothing | found)
    made = facts.table().select([*map(column_name, facts.keys)])
    _log_missing(facts, made, bad, inherit=inherit)
    for name in made.column_names:
        column = made[name].take(numbers)
        without = pa.types.is_null(column.type)  # readers can use NaN
        table = with_column(table, name, column.cast(pa.float64()) if without else column)
    return table


def each_image(columns: Columns) -> tuple[list[Row], pa.Array]:
    """Return a row for each distinct image, and the number of the image of each row."""
    images: dict[Hashable, int] = {}
    numbers: list[int] = []
    rows: list[Row] = []
    for row in map(columns.row, range(len(columns))):
        key = row.name, row.hdu, row.plane
        if key not in images:
            images[key] = len(rows)
            rows.append(row)
        numbers.append(images[key])
    return rows, pa.array(numbers, pa.int64())


def is_encoded(place: Place) -> bool:
    """Return whether a file has the suffix of an encoded image, or a member is not FITS."""
    return _is_of("jpeg", place, lambda begin: not begin.startswith(_FITS))


def is_recording(place: Place) -> bool:
    """Return whether a file has the suffix of a recording, or a member begins like one."""
    return _is_of("audio", place, lambda begin: begins_like(begin, "audio"))


def is_video(place: Place) -> bool:
    """Return whether a file has the suffix of a video, or a member begins like one."""
    return _is_of("video", place, lambda begin: begins_like(begin, "video"))


def _is_of(kind: str, place: Place, is_begin: Callable[[bytes], bool]) -> bool:
    if not isinstance(place, SpanPlace):
        return place.name.lower().endswith(SUFFIXES[kind])
    with read_errors(place.name, None, None), place:
        return is_begin(place.read(0, FIRST_BYTES))


def _keywords_of(
    keys: Sequence[str], hdu: HduName | None, inherit: bool, row: Row
) -> dict[str, Value] | ReadError:
    try:
        if is_encoded(row.place):
            return {}
        wanted = hdu if row.hdu is None else row.hdu
        (facts,) = image_metadata(row.place, keys, wanted, inherit=inherit)
    except ReadError as error:
        return error
    return facts


def _log_missing(
    facts: FactTable, columns: pa.Table, bad: Sequence[ReadError], *, inherit: bool
) -> None:
    """Log a warning for unreadable images, and for each keyword without values."""
    if bad:
        message = "%d of %d images cannot be read, so they have no keywords, the first: %s"
        logger.warning(message, len(bad), columns.num_rows, printable(bad[0]))
    remedy = "" if inherit else "; if the header of HDU 0 has it, use with_keys, inherit=True"
    for key in facts.absent(columns):
        logger.warning("key %s has no value in the header of any image%s", key, remedy)
    for line in facts.not_times_lines():
        logger.warning("%s", line)
