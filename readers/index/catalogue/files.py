"""Files of catalogues: CSV, Parquet, and all that astropy reads."""

from __future__ import annotations

import gzip
import warnings
from typing import TYPE_CHECKING

from readers.index.paths.absolute import check_local
from readers.index.rows.joining import column_of
from readers.index.text_tables import loses, read_csv

if TYPE_CHECKING:
    import pyarrow as pa
    from astropy.table import Table

_ECSV = b"# %ECSV "
"""First bytes of ECSV, which says the types of its columns, whatever its suffix."""
_TEXT = (".txt", ".dat", ".tbl", ".tsv", ".cat")
"""Suffixes of text files whose format astropy finds out by trying."""


def read_catalogue(path: str) -> tuple[pa.Table | Table, str]:
    """Read a catalogue: Parquet and CSV by PyArrow, all else by astropy.

    Return it, and an end for messages if the file has other tables that were not read.

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
            f"{path}: expected a catalogue (CSV, ECSV, Parquet, FITS table, VOTable), it cannot be "
            f"read: {reason}"
        ) from error


def _read_by_astropy(path: str, begin: bytes) -> Table:
    from astropy.table import Table

    if begin == _ECSV:
        return Table.read(path, format="ascii.ecsv")
    if path.lower().endswith(_TEXT):
        return _read_text(path)
    return Table.read(path)


def _read_text(path: str) -> Table:
    """Read a table of a format that astropy finds out; what numbers would not hold stays text."""
    import pyarrow as pa
    from astropy.io import ascii
    from astropy.table import Table

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "OverflowError")  # of long integers, which become text
        table = Table.read(path, format="ascii")
    texts = Table.read(path, format="ascii", converters={"*": [ascii.convert_numpy(str)]})
    for name in table.colnames:
        if table[name].dtype.kind in "iuf" and table[name].ndim == 1:
            kind = pa.from_numpy_dtype(table[name].dtype)
            if loses(column_of(name, texts[name]), kind):
                table[name] = texts[name]
    return table


def _read_fits(path: str) -> tuple[Table, str]:
    """Read the first table of a FITS file, or that of SExtractor's objects.

    Pairs of Julian dates, as which astropy writes its times, become those.
    """
    from astropy.io import fits
    from astropy.table import Table

    with fits.open(path) as hdus:
        tables = [n for n, hdu in enumerate(hdus) if type(hdu) in (fits.BinTableHDU, fits.TableHDU)]
        chosen = [number for number in tables if hdus[number].name == "LDAC_OBJECTS"][:1]
        read = (chosen or tables or [0])[0]
        named = [f"{n} ({hdus[n].name})" if hdus[n].name else f"{n}" for n in tables if n != read]
        columns = hdus[read].columns if tables else ()
        # Of other times astropy passes over offsets and, where one is missing, the unit.
        pairs = [column.name for column in columns if column.format == "2D" and column.coord_type]
    others = (
        f". This is HDU {read}; tables are also in HDU {', '.join(named)}: to use another one, "
        "give astropy's Table.read(path, hdu=...) in place of the path"
    )
    options = {"hdu": chosen[0]} if chosen else {}
    table = Table.read(path, format="fits", **options)
    if pairs:
        native = Table.read(path, format="fits", astropy_native=True, **options)
        for name in pairs:
            table[name] = native[name]
    return table, others if named else ""
