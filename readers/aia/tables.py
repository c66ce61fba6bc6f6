"""Calibration tables in local files: CSV, ECSV, or columns of text as in SolarSoft.

The name and the SHA-256 of a file are kept, to record the origin of results.
"""

from __future__ import annotations

import errno
import hashlib
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.aia.times import tai_nanoseconds
from readers.places.opener import LOCAL

if TYPE_CHECKING:
    from astropy.table import Table

_MISSING = [(text, "nan") for text in ("", "MISSING", "Missing", "--")]


@dataclass(frozen=True)
class TableFile:
    """The columns of a table."""

    path: str
    sha256: str
    """SHA-256 of the file, in hexadecimal."""
    table: Table

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TableFile:
        """Read a file. The first lines determine the format.

        OSError if the file cannot be read, ValueError if it is not a table.
        """
        from astropy.io import ascii as tables

        path = os.fspath(path)
        if not os.path.exists(path):  # the message of LOCAL is for files of an Index
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        with LOCAL.at(path) as place:
            content = place.read(0, place.nbytes)
        try:
            lines = content.decode().splitlines()
            header = next((line for line in lines if line.strip() and line[0] != "#"), "")
            kind = "ecsv" if lines[:1] and lines[0].startswith("# %ECSV") else "basic"
            if kind == "basic" and "," in header:
                kind = "csv"
            with warnings.catch_warnings():
                # ERFA warns about future years: the epochs of V10 end in 2030.
                warnings.simplefilter("ignore")
                table = tables.read(lines, format=kind, fill_values=_MISSING)
                for name in table.colnames:  # ECSV has Time columns
                    if hasattr(table[name], "isot"):
                        table[name] = table[name].utc.isot
        except Exception as error:  # astropy raises many types for other files
            raise ValueError(f"{path}: expected a table in CSV or ECSV: {error}") from error
        return cls(path, hashlib.sha256(content).hexdigest(), table)

    @property
    def name(self) -> str:
        """Name of the file without its folder."""
        return os.path.basename(self.path)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.table.colnames)

    def check(self, needed: tuple[str, ...], what: str) -> None:
        """Raise ValueError if a column is missing, or without rows; `what` names the table."""
        missing = [name for name in needed if name not in self.columns]
        if missing or len(self.table) == 0:
            lacks = f"no column {', '.join(missing)}" if missing else "no rows"
            found = ", ".join(self.columns[:8]) + (", ..." if len(self.columns) > 8 else "")
            raise ValueError(f"{self.path}: expected {what}, it has {lacks}; its columns: {found}")

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers, NaN for missing ones, shape (rows,)."""
        column = np.ma.asarray(self.table[name].value)
        try:
            return np.ma.filled(column.astype(np.float64), np.nan)
        except ValueError as error:
            raise ValueError(f"{self.path}: column {name} must be numbers: {error}") from error

    def texts(self, name: str) -> list[str]:
        """Return a column as text, length (rows,)."""
        return [str(value) for value in self.table[name]]

    def times(self, name: str) -> NDArray[np.int64]:
        """Return a column of times, shape (rows,): nanoseconds of TAI, see `readers.aia.times`."""
        texts = self.texts(name)
        try:
            return np.array([tai_nanoseconds(text) for text in texts], np.int64)
        except ValueError as error:
            raise ValueError(f"{self.path}: column {name}: {error}") from error
