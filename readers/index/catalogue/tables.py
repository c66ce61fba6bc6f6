"""Catalogues: files and tables with a row for each object, and their columns."""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa
from readers.index.columns import PART
from readers.index.list_columns import is_number
from readers.index.paths import check_local
from readers.index.rows.joining import check_name, column_of
from readers.index.schema import decoded, holds_text, part_names, without_views
from readers.index.text_tables import loses, read_csv
from readers.index.times import astropy_times, text_times, times_of
from readers.messages import did_you_mean, near

if TYPE_CHECKING:
    from astropy.table import Table

Catalogue = Any
"""A path, an astropy Table, or a table that pyarrow accepts."""

ROW = "catalogue_row"
"""Name of the column with the number of an object's row in the catalogue."""

_OWN_NAMES = {"y": "catalogue_y", "x": "catalogue_x"}
"""New names of columns of the catalogue, because ``y`` and ``x`` are the corners of windows."""


class Objects:
    """The objects of a catalogue, a row for each.

    Parameters
    ----------
    catalogue : path, astropy Table or pyarrow Table
        See `readers.index.table.Index.cutouts`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TypeError
        If it is of another type.
    ValueError
        If the file cannot be read, or the table has no rows.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        from astropy.table import Table

        self.folder = os.getcwd()
        self.name = "the catalogue"
        self._others = ""
        if isinstance(catalogue, str | os.PathLike):
            self.name = os.fspath(catalogue)
            self.folder = os.path.dirname(os.path.abspath(self.name))
            catalogue, self._others = read_catalogue(self.name)
        elif not isinstance(catalogue, Table | pa.Table):
            if not hasattr(catalogue, "__arrow_c_stream__"):
                raise TypeError(
                    "catalogue must be a path, an astropy Table or a pyarrow Table, got a "
                    f"{type(catalogue).__name__}"
                )
            catalogue = pa.table(catalogue)
        is_astropy = isinstance(catalogue, Table)
        self._table = _with_positions(catalogue) if is_astropy else without_views(catalogue)
        self.names: list[str] = list(
            self._table.colnames if isinstance(self._table, Table) else self._table.column_names
        )
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ValueError(f"{self.name} has several columns {', '.join(twice)}")
        if not len(self._table):
            raise ValueError(f"{self.name} has no rows")

    def __len__(self) -> int:
        return len(self._table)

    def has(self, names: Sequence[str]) -> bool:
        """Return whether there are columns with all of these names."""
        return set(names) <= set(self.names)

    def check(self, names: Sequence[str]) -> None:
        """Raise KeyError for the first name that is not a column. It lists the existing columns."""
        for name in names:
            if name not in self.names:
                meant = did_you_mean(name, self.names)
                raise KeyError(f"{self.name} has no column {name!r}; {meant}{self._it_has}")

    def check_either(self, *pairs: Sequence[str]) -> None:
        """Raise KeyError if the catalogue has none of these pairs of columns."""
        found = ([(name, near(name, self.names)[:1]) for name in pair] for pair in pairs)
        guesses = (
            f"set {', '.join(f'{name}={guess[0]!r}' for name, guess in pair)}"
            for pair in found
            if all(guess for _, guess in pair)
        )
        wanted = " nor ".join(" and ".join(map(repr, pair)) for pair in pairs)
        arguments = " or ".join(", ".join(f"{name}=" for name in pair) for pair in pairs)
        remedy = next(guesses, f"pass the names of its columns as {arguments}")
        raise KeyError(f"{self.name} has neither columns {wanted}: {remedy}; {self._it_has}")

    @property
    def _it_has(self) -> str:
        return f"it has {', '.join(self.names)}{self._others}"

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        """Return a column. TypeError if an Index cannot hold it, e.g. complex numbers."""
        values = self._table[name]
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values
        if type(values).__name__ == "Time":
            return astropy_times(name, self.name, values)
        _check_kind(name, self.name, values)
        if values.dtype.kind == "S":  # FITS pads text
            values = _decoded(values)
        values = getattr(values, "value", values)
        return column_of(name, values)

    def kept(
        self, columns: Sequence[str] | Mapping[str, str] | None, without: Sequence[str]
    ) -> pa.Table:
        """Return the columns to keep, by default all except `without`. A mapping renames them."""
        if isinstance(columns, str) or not isinstance(columns, Iterable | None):
            raise TypeError(f"columns must be a sequence of names, or a mapping, got {columns!r}")
        if columns is None:
            columns = [name for name in self.names if name not in without]
        new = (
            columns if isinstance(columns, Mapping) else {n: _OWN_NAMES.get(n, n) for n in columns}
        )
        for name in (*new, *new.values()):
            check_name(name)
        self.check(list(columns))
        names = [*new.values()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"columns: there would be two columns {', '.join(twice)}")
        kept = pa.table({new[name]: self.column(name) for name in new})
        for part in part_names(kept):
            raise ValueError(
                f"column {PART + part!r} of {self.name} has a name for the paths of a part of a "
                f"sample: leave it out by columns=, or rename it, {{{PART + part!r}: {part!r}}}"
            )
        return kept

    def times(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return a column of times in nanoseconds since 1970, and a mask of the rows with a time.

        Text is read as by `readers.index.times.time_of_text`.
        """
        column = decoded(self.column(name))
        if holds_text(column):
            column = text_times(name, self.name, column)
        return times_of(pa.table({name: column}), name, f" of {self.name}")

    def pixels(self, name: str) -> NDArray[np.float64]:
        """Return a column of pixel coordinates, shape (len,); NaN for missing ones."""
        unit = getattr(self._table[name], "unit", None)
        if unit is not None and str(unit) not in ("", "pix", "pixel"):
            raise ValueError(f"column {name!r} of {self.name} has unit {unit}, expected pixels")
        return self._numbers(name, "pixels")

    def degrees(self, name: str) -> NDArray[np.float64]:
        """Return a column of angles in degrees, shape (len,); NaN for missing ones.

        A unit of the column is taken into account.
        """
        from astropy import units

        numbers = self._numbers(name, "degrees")
        unit = getattr(self._table[name], "unit", None)
        if unit is None or str(unit) == "":
            return numbers
        try:
            # FITS and VOTable have fewer units, without hourangle, for example.
            return numbers * units.Unit(str(unit)).to(units.deg)
        except (units.UnitConversionError, ValueError, TypeError) as error:
            raise ValueError(
                f"column {name!r} of {self.name} has unit {unit}, expected an angle"
            ) from error

    def _numbers(self, name: str, what: str) -> NDArray[np.float64]:
        column = decoded(self.column(name))
        if not (is_number(column.type) or pa.types.is_decimal(column.type)):
            raise ValueError(_not_numbers(self.name, name, column, what))
        found = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.asarray(found, np.float64)


def _with_positions(table: Table) -> Table:
    """Return a table with columns ``NAME_ra`` and ``NAME_dec`` in place of each SkyCoord ``NAME``.

    They are ICRS in degrees, NaN where it is masked. A SkyCoord stays if it cannot be converted, or
    if there are such columns already.
    """
    from astropy.table import Column

    for name in table.colnames:
        if type(table[name]).__name__ != "SkyCoord":
            continue
        if {f"{name}_ra", f"{name}_dec"} & {*table.colnames}:
            continue
        try:
            icrs = table[name].icrs
        except Exception:  # astropy raises many types, as for AltAz without a place on Earth
            continue
        table = table.copy(copy_data=False)  # not that of the user
        at = table.index_column(name)
        table.remove_column(name)
        for angle, part in ((icrs.dec, "dec"), (icrs.ra, "ra")):
            degrees = angle.to_value("deg")
            if hasattr(degrees, "filled"):
                degrees = degrees.filled(np.nan)
            table.add_column(Column(degrees, unit="deg"), name=f"{name}_{part}", index=at)
    return table


def _check_kind(name: str, catalogue: str, values: Any) -> None:
    """Raise TypeError for a column of astropy that an Index cannot hold."""
    kind, place = type(values).__name__, "numbers or text"
    if hasattr(values, "dtype") and not values.dtype.names:
        if values.dtype.kind != "c" and values.ndim <= 2 and 0 not in values.shape[1:]:
            return
        kind = f"{kind} of {values.dtype} and shape {values.shape}"
        if values.ndim > 2:
            place = f"a vector for each row, table[{name!r}].reshape(len(table), -1),"
    raise TypeError(
        f"column {name!r} of {catalogue} is a {kind}, which an Index cannot hold: leave it out by "
        f"columns=, or replace it by {place}"
    )


def _not_numbers(catalogue: str, name: str, column: pa.ChunkedArray, what: str) -> str:
    message = f"column {name!r} of {catalogue} is {column.type}, expected numbers in {what}"
    texts = column.drop_null().to_pylist() if holds_text(column) else []
    wrong = next(filterfalse(_is_number, texts), None)
    if wrong is None:
        return message
    return (
        f"{message}, but it has {wrong!r}: leave missing values empty, and convert sexagesimal "
        "angles by astropy.coordinates.Angle(text, unit).deg"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _decoded(values: Any) -> Any:
    """Return bytes in UTF-8 as text, without a mask; other bytes unchanged."""
    try:
        text = np.char.decode(np.asarray(values), "utf-8")
    except UnicodeDecodeError:
        return values
    return np.ma.MaskedArray(text, np.ma.getmaskarray(values))


# ---- Files: CSV, Parquet, and the formats of astropy ---------------------------------------------

_ECSV = b"# %ECSV "
"""First bytes of ECSV files, which have any suffix and contain the types of their columns."""
_TEXT = (".txt", ".dat", ".tbl", ".tsv", ".cat")
"""Suffixes of text files. astropy tries formats until one fits."""


def read_catalogue(path: str) -> tuple[pa.Table | Table, str]:
    """Read a catalogue: Parquet and CSV by PyArrow, other formats by astropy.

    Also return a sentence for messages, if the file has other tables.

    Raises
    ------
    OSError
        If it cannot be opened.
    ValueError
        If it is not a catalogue, or a URL.
    """
    check_local(path)
    name = path.lower()
    with gzip.open(path) if name.endswith(".gz") else open(path, "rb") as file:
        begin = file.read(8)
    if name.endswith((".csv", ".csv.gz")) and begin != _ECSV:
        return read_csv(path), ""
    try:
        if name.endswith(".parquet"):
            import pyarrow.parquet as pq

            return pq.read_table(path), ""
        if begin.startswith(b"SIMPLE"):
            return _read_fits(path)
        return _read_by_astropy(path, begin), ""
    except Exception as error:  # astropy raises many types on malformed input
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path}: expected a catalogue (CSV, ECSV, Parquet, FITS table, VOTable), but it "
            f"cannot be read: {reason}"
        ) from error


def _read_by_astropy(path: str, begin: bytes) -> Table:
    from astropy.table import Table

    if begin == _ECSV:
        return Table.read(path, format="ascii.ecsv")
    if path.lower().endswith(_TEXT):
        return _read_text(path)
    return Table.read(path)


def _read_text(path: str) -> Table:
    """Read a table in a format that astropy detects. Integers beyond int64 stay text."""
    from astropy.io import ascii
    from astropy.table import Table

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "OverflowError")  # for integers beyond int64
        table = Table.read(path, format="ascii")
    texts = Table.read(path, format="ascii", converters={"*": [ascii.convert_numpy(str)]})
    for name in table.colnames:
        if table[name].dtype.kind in "iuf" and table[name].ndim == 1:
            kind = pa.from_numpy_dtype(table[name].dtype)
            if loses(column_of(name, texts[name]), kind):
                table[name] = texts[name]
    return table


def _read_fits(path: str) -> tuple[Table, str]:
    """Read the first table of a FITS file, or the table LDAC_OBJECTS of SExtractor.

    Pairs of Julian dates become times: astropy writes times in this form.
    """
    from astropy.io import fits
    from astropy.table import Table

    with fits.open(path) as hdus:
        tables = [n for n, hdu in enumerate(hdus) if type(hdu) in (fits.BinTableHDU, fits.TableHDU)]
        chosen = [number for number in tables if hdus[number].name == "LDAC_OBJECTS"][:1]
        read = (chosen or tables or [0])[0]
        named = [f"{n} ({hdus[n].name})" if hdus[n].name else f"{n}" for n in tables if n != read]
        columns = hdus[read].columns if tables else ()
        # Other times stay numbers, because astropy ignores offsets, and sometimes the unit.
        pairs = [column.name for column in columns if column.format == "2D" and column.coord_type]
    others = (
        f". This is HDU {read}; tables are also in HDU {', '.join(named)}: to use another one, "
        "pass astropy's Table.read(path, hdu=...) in place of the path"
    )
    options = {"hdu": chosen[0]} if chosen else {}
    table = Table.read(path, format="fits", **options)
    if pairs:
        native = Table.read(path, format="fits", astropy_native=True, **options)
        for name in pairs:
            table[name] = native[name]
    return table, others if named else ""
