"""Files of catalogues: CSV, Parquet, and all that astropy reads."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from readers.index.paths.absolute import check_local

if TYPE_CHECKING:
    import pyarrow as pa
    from astropy.table import Table

_TEXT = (".txt", ".dat", ".tbl", ".tsv", ".cat")
"""Suffixes of text files whose format astropy finds out by trying."""


def read_catalogue(path: str) -> pa.Table | Table:
    """Read a catalogue: Parquet and plain CSV by pyarrow, all else by astropy.

    Raises
    ------
    OSError
        If it cannot be opened.
    ValueError
        If it is no catalogue, or a URL.
    """
    check_local(path)
    name = path.lower()
    with gzip.open(path) if name.endswith(".gz") else open(path, "rb") as file:
        begin = file.read(8)
    try:
        if name.endswith(".parquet"):
            import pyarrow.parquet as pq

            return pq.read_table(path)
        if name.endswith((".csv", ".csv.gz")) and not begin.startswith(b"#"):
            import pyarrow.csv as pacsv

            table = pacsv.read_csv(path)
            return table.rename_columns([name.strip() for name in table.column_names])
        return _read_by_astropy(path, begin)
    except Exception as error:  # astropy raises many types on malformed input
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path}: expected a catalogue (CSV, ECSV, Parquet, FITS table, VOTable), it cannot be "
            f"read: {reason}"
        ) from error


def _read_by_astropy(path: str, begin: bytes) -> Table:
    from astropy.io import fits
    from astropy.table import Table

    if begin == b"# %ECSV ":
        return Table.read(path, format="ascii.ecsv")
    name = path.lower()
    if name.endswith((".csv", ".csv.gz")):
        return Table.read(path, format="ascii.csv", comment="#")
    if begin.startswith(b"SIMPLE"):
        with fits.open(path) as hdus:
            tables = [number for number, hdu in enumerate(hdus) if hdu.name == "LDAC_OBJECTS"]
        return Table.read(path, format="fits", **({"hdu": tables[0]} if tables else {}))
    return Table.read(path, **({"format": "ascii"} if name.endswith(_TEXT) else {}))
