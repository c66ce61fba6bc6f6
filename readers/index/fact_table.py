"""Build the columns of an Index from the metadata of many files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from readers.index.arrow import pa, pc
from readers.index.columns import ETAG, SPAN
from readers.index.times import UTC, time_of_text

if TYPE_CHECKING:
    from readers.fits.headers import Value

COLUMNS = {
    "path": "large_string",
    "hdu": "int64",
    "planes": "int64",
    "plane": "int64",
    "height": "int64",
    "width": "int64",
    "bitpix": "int64",
    "codec": "string",
    "file_bytes": "int64",
}
"""Names and Arrow types of the columns before the header keywords. ``planes`` is the number of
planes of an image. ``plane`` exists if each plane has a row."""

_TIME_KEY = re.compile(r"DATE.*|T_(OBS|REC|START|STOP|END)")
_IN_UTC = "DATE"
_BATCH_ROWS = 8192


def keys_to_read(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keywords to read for these columns, including TIMESYS for each time."""
    times = (key for key in keys if _TIME_KEY.fullmatch(key) and key != _IN_UTC)
    return (*keys, *map(_scale_of, times))


def _scale_of(key: str) -> str:
    return f"TIMESYS:{key}"  # see readers.fits.metadata


class FactTable:
    """Metadata of many files, with a row for each, in the order of `add`.

    Parameters
    ----------
    keys : sequence of str
        Header keywords, in capitals. Their columns are named by `column_name`.
    has_planes : bool
        Whether there is a row for each plane, with a column ``plane``.

    Notes
    -----
    A column has the narrowest type that holds all its values: integer, float, or text. Integers
    among floats become floats if none of them changes. Some files mark a missing number by the text
    ``NaN``: it is null in a column of numbers or times.

    Text of the keywords DATE..., T_OBS, T_REC, T_START, T_STOP and T_END becomes a time in UTC. The
    text is ISO 8601, or from 1972 on in HMI's format (``2011.02.15_02:00:00_TAI``). Its time scale
    is the value of TIMESYS, unless the text ends with a scale (``Z``, ``_TAI``). DATE is always in
    UTC (FITS Standard 4.0, sections 4.4.2.1 and 9.2.1). The scales UTC, TAI, TT, TDB and GPS are
    converted, others are not. TDB is treated as TT: they differ by less than 2 ms. A leap second
    counts as the second after it, see `readers.leapseconds.utc_nanoseconds`.

    QUALITY is an unsigned 32-bit integer. FITS can only store it signed, so negative values have
    the highest bit set.
    """

    def __init__(self, keys: Sequence[str], *, has_planes: bool = False) -> None:
        self.keys = tuple(keys)
        self._names = (*COLUMNS, *keys_to_read(keys))
        self._has_planes = has_planes
        self.not_times: dict[str, tuple[int, str]] = {}
        """By column: number of texts that are not times or have an unknown time scale, and the
        first of them. In `table` these texts are null."""
        self._rows: list[tuple[Value, ...]] = []
        self._batches: list[list[_Batch]] = []

    def add(self, facts: Mapping[str, Value]) -> None:
        """Add a row of `readers.header_scan.file_facts` with the keywords of `keys_to_read`."""
        self._rows.append(tuple(facts[name] for name in self._names))
        if len(self._rows) == _BATCH_ROWS:  # Arrow needs a fifth of the memory
            self._pack()

    def table(self) -> pa.Table:
        """Return all rows. If no file has a keyword, its column has type null."""
        self._pack()
        found = {
            name: _joined([batch[position] for batch in self._batches])
            for position, name in enumerate(self._names)
        }
        columns: dict[str, pa.Array] = {}
        for name in (*COLUMNS, *self.keys):
            column = found[name]
            if name == "plane" and not self._has_planes:
                continue
            if name in COLUMNS:
                columns[name] = column.cast(COLUMNS[name])
            elif _TIME_KEY.fullmatch(name) and column.type in (pa.string(), pa.null()):
                scales = _scales(found.get(_scale_of(name)), len(column))
                columns[column_name(name)], bad = _times(column, scales)
                if bad:
                    self.not_times[column_name(name)] = len(bad), bad[0]
            else:
                columns[column_name(name)] = _bits(column) if name == "QUALITY" else column
        return pa.table(columns)

    def absent(self, table: pa.Table) -> list[str]:
        """Return the keywords that no file has. Invalid times count as values here."""
        names = {key: column_name(key) for key in self.keys}
        without = {name for name in names.values() if table[name].null_count == table.num_rows}
        return [key for key, name in names.items() if name in without - {*self.not_times}]

    def not_times_lines(self) -> list[str]:
        """Return a line for each column of `table` with texts that are not times."""
        total = sum(batch[0].count for batch in self._batches)
        return [
            f"{name}: {count} of {total} values become null: they are not ISO 8601 times in UTC, "
            f"or from 1972 on in TAI, TT, TDB or GPS, the first: {text!r}"
            for name, (count, text) in self.not_times.items()
        ]

    def _pack(self) -> None:
        if self._rows:
            self._batches.append([_Batch(values) for values in zip(*self._rows, strict=True)])
            self._rows.clear()


def column_name(key: str) -> str:
    """Return the column name of a keyword, e.g. ``date_obs`` for DATE-OBS."""
    return re.sub(r"\W", "_", key.lower())


def check_keys(keys: Iterable[str], columns: Iterable[str]) -> None:
    """Raise ValueError if columns of keywords would clash, or would locate the data of rows."""
    others, made = {*COLUMNS, *columns}, [*map(column_name, keys)]
    if twice := sorted({name for name in made if name in others or made.count(name) > 1}):
        raise ValueError(f"there would be two columns {', '.join(twice)}: leave out these keywords")
    for names in (SPAN, (ETAG,)):
        if set(names) <= others.union(made) and not set(names) <= others:
            raise ValueError(
                f"columns {' and '.join(names)} locate the data of a row: leave out the keywords "
                f"{' or '.join(map(str.upper, names))}, or add their values by Index.with_column, "
                "under another name"
            )


class _Batch:
    """Some values of a column, in an array for each type of value."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.count = len(values)
        self.arrays: dict[str, pa.Array] = {}
        """Values of each type, with null for values of other types."""
        names = {kind.__name__ for kind in {*map(type, values)}} - {_NONE}
        if len(names) == 1:
            with suppress(OverflowError):  # for integers
                self.arrays = {name: pa.array(values, _ARROW[name]) for name in names}
                return
        kinds = [*map(_kind, values)]
        for kind in {*kinds} - {_NONE}:
            own = (v if k == kind else None for v, k in zip(values, kinds, strict=True))
            texts = (v if v is None else str(v) for v in own)
            self.arrays[kind] = pa.array(texts if kind == _HUGE else own, _ARROW[kind])

    def has_words(self) -> bool:
        """Return whether there is a text other than ``NaN``."""
        texts = self.arrays.get("str")
        return texts is not None and not all(map(_is_nan, texts.drop_null().to_pylist()))

    def has_exact_integers(self) -> bool:
        """Return whether all integers are exact as floats."""
        arrays = [self.arrays[kind] for kind in ("int", _HUGE) if kind in self.arrays]
        integers = (n for array in arrays for n in array.drop_null().to_pylist())
        return all(float(n) == int(n) for n in integers)

    def all(
        self, kinds: Iterable[str], convert: Callable[[Any], Value], kind: pa.DataType
    ) -> pa.Array:
        """Return the converted values of some types, with null for other values."""
        arrays = [
            pa.array([v if v is None else convert(v) for v in array.to_pylist()], kind)
            for name, array in self.arrays.items()
            if name in kinds
        ]
        return pc.coalesce(pa.nulls(self.count, kind), *arrays)


_NONE, _HUGE = "NoneType", "huge"
_ARROW = {"bool": "bool", "int": "int64", "float": "float64", "str": "string", _HUGE: "string"}


def _kind(value: Value) -> str:
    """Return the name of a value's type. Integers beyond int64 have the name _HUGE."""
    is_huge = type(value) is int and not -(1 << 63) <= value < 1 << 63
    return _HUGE if is_huge else type(value).__name__


def _is_nan(text: str) -> bool:
    return text.strip().lower() == "nan"


def _joined(batches: list[_Batch]) -> pa.Array:
    """Concatenate the batches of a column, in the narrowest type that holds all values."""
    kinds = {kind for batch in batches for kind in batch.arrays}
    if kinds > {"str"} and not any(batch.has_words() for batch in batches):
        kinds.remove("str")
    if len(kinds) <= 1 and _HUGE not in kinds:
        only = "".join(kinds)
        kind = pa.type_for_alias(_ARROW[only]) if only else pa.null()
        found = [batch.arrays.get(only, pa.nulls(batch.count, kind)) for batch in batches]
    elif "str" in kinds or not all(batch.has_exact_integers() for batch in batches):
        kind = pa.string()
        found = [batch.all(kinds, str, kind) for batch in batches]
    else:
        kind = pa.float64()
        found = [batch.all(kinds, float, kind) for batch in batches]
    return pa.concat_arrays([pa.nulls(0, kind), *found])


def _bits(column: pa.Array) -> pa.Array:
    if column.type not in (pa.int64(), pa.float64(), pa.null()):
        return column
    try:
        bits = column.cast(pa.int64())
    except pa.ArrowInvalid:  # fractions: another instrument uses the keyword differently
        return column
    signed = pc.and_(pc.less(bits, 0), pc.greater_equal(bits, -(1 << 31)))
    return pc.if_else(signed, pc.add(bits, 1 << 32), bits)


def _scales(column: pa.Array | None, count: int) -> list[str]:
    """Return the time scale of each row from the values of TIMESYS; '' if there is none."""
    if column is None:
        return [""] * count
    # TT(TAI) is TT as realised by TAI.
    return [str(text or "").partition("(")[0].strip().upper() for text in column.to_pylist()]


def _times(column: pa.Array, scales: Sequence[str]) -> tuple[pa.Array, list[str]]:
    """Return text as times in these scales, and the texts that are not times."""
    texts = ("" if text is None or _is_nan(text) else text.strip() for text in column.to_pylist())
    found = [*zip(texts, scales, strict=True)]
    times = [time_of_text(text, scale) for text, scale in found]
    bad = [
        text if scale in UTC else f"{text} (TIMESYS {scale})"
        for (text, scale), time in zip(found, times, strict=True)
        if text and time is None
    ]
    return pa.array(times, pa.timestamp("ns")), bad
