"""Calibration tables, read from a local file: CSV, ECSV, or columns of text as SolarSoft has them.

Whoever uses one keeps its name and SHA-256, so that results can say what they were made with.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.aia.times import tai_nanoseconds
from readers.files import open_regular

if TYPE_CHECKING:
    from astropy.table import Table

_MISSING = [(word, "nan") for word in ("", "MISSING", "Missing", "--")]


@dataclass(frozen=True)
class TableFile:
    """The columns of a table."""

    path: str
    sha256: str
    """Of the file, in hexadecimal."""
    table: Table

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TableFile:
        """Read a file, whose first lines tell in which of the formats it is.

        Raises
        ------
        OSError
            If there is no such file.
        ValueError
            If it is no table.
        """
        from astropy.io import ascii as tables

        path = os.fspath(path)
        with open_regular(path) as file:
            content = file.read()
        try:
            lines = content.decode().splitlines()
            header = next((line for line in lines if line.strip() and line[0] != "#"), "")
            words = "ecsv" if lines[:1] and lines[0].startswith("# %ECSV") else "basic"
            if words == "basic" and "," in header:
                words = "csv"
            with warnings.catch_warnings():
                # ERFA warns of years to come: the epochs of V10 end in 2030.
                warnings.simplefilter("ignore")
                table = tables.read(lines, format=words, fill_values=_MISSING)
                for name in table.colnames:  # in ECSV times are Times
                    if hasattr(table[name], "isot"):
                        table[name] = table[name].utc.isot
        except Exception as error:  # astropy raises many types on what is no table
            raise ValueError(f"{path}: expected a table, CSV or ECSV: {error}") from error
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
        """Refuse a table that lacks a column, or has no rows.

        Parameters
        ----------
        needed : tuple of str
            Names of columns.
        what : str
            What the table should be, for the error.

        Raises
        ------
        ValueError
            If it is another table.
        """
        missing = [name for name in needed if name not in self.columns]
        if missing or len(self.table) == 0:
            lacks = f"no column {', '.join(missing)}" if missing else "no rows"
            found = ", ".join(self.columns[:8]) + (", ..." if len(self.columns) > 8 else "")
            raise ValueError(f"{self.path}: expected {what}, it has {lacks}; its columns: {found}")

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers, NaN where one is missing, shape (rows,)."""
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
