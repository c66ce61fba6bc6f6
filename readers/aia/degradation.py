"""Degradation: sensitivity relative to that at launch, as aiapy.calibrate.degradation.

Pixels are divided by it. The official table is SolarSoft's ``aia_V10_20201119_190000_
response_table.txt``; after 2020-06-01 its channels no longer change.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from readers.aia.tables import TableFile
from readers.aia.times import tai_nanoseconds
from readers.leapseconds import DAY

OFFICIAL_URL = (
    "https://soho.nascom.nasa.gov/solarsoft/sdo/aia/response/"
    "aia_V10_20201119_190000_response_table.txt"
)
"""URL of SolarSoft's table, as in aiapy."""
OFFICIAL_SHA256 = "0a3f2db39d05c44185f6fdeec928089fb55d1ce1e0a805145050c6356cbc6e98"
"""SHA-256 of that file, as pinned by aiapy."""

_OFFICIAL = (
    *("DATE", "VER_NUM", "WAVE_STR", "T_START", "T_STOP", "EFF_AREA"),
    *("EFFA_P1", "EFFA_P2", "EFFA_P3"),
)
_FACTORS = {"date", "factor"}


class _Epoch(NamedTuple):
    start: int
    """T_START, nanoseconds of TAI."""
    stop: int
    """T_STOP."""
    ratio: float
    """Effective area, relative to that at launch."""
    coefficients: tuple[float, float, float]
    """EFFA_P1 to P3, per day, per day squared, ..."""


@dataclass(frozen=True, slots=True)
class _Epochs:
    """The rows of a channel in the official table, in the order of DATE."""

    epochs: tuple[_Epoch, ...]

    def at(self, time: int) -> float | None:
        """Return the degradation at a time; None if no row is valid.

        If several rows are valid, the one added to the table last is used.
        """
        for epoch in reversed(self.epochs):
            if epoch.start <= time < epoch.stop:
                days = (time - epoch.start) / DAY
                p1, p2, p3 = epoch.coefficients
                return epoch.ratio * (p1 * days + p2 * days**2 + p3 * days**3 + 1)
        return None


@dataclass(frozen=True, slots=True)
class _Factors:
    """Dates and factors of a channel, interpolated linearly."""

    times: tuple[int, ...]
    factors: tuple[float, ...]

    def at(self, time: int) -> float | None:
        """Return the degradation at a time; None before the first and after the last."""
        first, last = self.times[0], self.times[-1]
        if not first <= time <= last:
            return None
        return float(np.interp(time - first, np.subtract(self.times, first), self.factors))


@dataclass(frozen=True)
class CorrectionTable:
    """The degradation of each channel. See `read`."""

    name: str
    """Name of the file."""
    sha256: str
    """SHA-256 of the file, in hexadecimal."""
    version: int | None
    """VER_NUM; None for a table of dates and factors."""
    curves: Mapping[int, _Epochs | _Factors]
    """Curves by wavelength in angstrom."""
    path: str = field(default="", repr=False, compare=False)
    """Path of the file."""

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], version: int = 10, *, channel: int | None = None
    ) -> CorrectionTable:
        """Read a local table.

        Parameters
        ----------
        path : path
            SolarSoft's text file, or CSV or ECSV with columns of the same names; or, for one
            channel, CSV with the columns ``date`` and ``factor``, dates ascending; factors are
            interpolated linearly.
        version : int
            VER_NUM of the rows to use. JSOC's aia.response mixes versions, whose areas must not be
            compared: at 94 angstrom in 2015 they differ by 4.5 %.
        channel : int, optional
            Wavelength in angstrom, for a table that only has dates and factors.

        Raises
        ------
        ValueError
            If it is not such a table, or lacks the version.
        """
        file = TableFile.read(path)
        if {name.lower() for name in file.columns} == _FACTORS:
            if channel is None:
                raise ValueError(
                    f"{file.path}: a table with the columns date and factor does not name its "
                    "channel: set it, e.g. channel=171"
                )
            return cls(file.name, file.sha256, None, {channel: _factors(file)}, file.path)
        file.check(_OFFICIAL, "an AIA response table (or one with the columns date and factor)")
        if channel is not None:
            raise ValueError(f"{file.path}: channel is for tables with the columns date and factor")
        return cls(file.name, file.sha256, version, _official(file, version), file.path)

    def degradation(self, channel: int, time: str) -> float:
        """Return the sensitivity relative to that at launch; pixels are to be divided by it.

        Parameters
        ----------
        channel : int
            Wavelength in angstrom.
        time : str
            DATE-OBS, which aiapy uses too, not T_OBS. See `readers.aia.times`.

        Raises
        ------
        ValueError
            If the table has no such channel, or nothing for that time.

        Notes
        -----
        ``aiapy.calibrate.degradation``, after SolarSoft's aia_bp_corrections.pro.
        """
        curve = self.curves.get(channel)
        if curve is None:
            known = ", ".join(map(str, sorted(self.curves)))
            raise ValueError(
                f"correction table {self.name} has no channel {channel}, it has {known}"
            )
        found = curve.at(tai_nanoseconds(time))
        if found is None:
            raise ValueError(f"correction table {self.name} has nothing for {channel} at {time}")
        return found


def _official(file: TableFile, version: int) -> dict[int, _Epochs]:
    versions = file.numbers("VER_NUM")
    if not (versions == version).any():
        known = ", ".join(f"{number:g}" for number in np.unique(versions))
        raise ValueError(f"{file.path}: expected rows of VER_NUM {version}, it has {known}")
    dates, bands = file.times("DATE"), file.texts("WAVE_STR")
    starts, stops, areas = file.times("T_START"), file.times("T_STOP"), file.numbers("EFF_AREA")
    coefficients = np.stack([file.numbers(f"EFFA_P{n}") for n in (1, 2, 3)], axis=1)
    if not (np.isfinite(areas).all() and (areas > 0).all() and np.isfinite(coefficients).all()):
        raise ValueError(f"{file.path}: EFF_AREA must be positive, and EFFA_P1 to P3 be finite")
    curves: dict[int, list[_Epoch]] = {}
    at_launch: dict[int, float] = {}
    for row in np.argsort(dates, kind="stable").tolist():
        # THICK filters have other areas; the UV channels have no such suffix.
        band = bands[row].removesuffix("_THIN")
        if versions[row] != version or not band.isdigit():
            continue
        area = float(areas[row])
        ratio = area / at_launch.setdefault(int(band), area)
        p1, p2, p3 = coefficients[row].tolist()
        epoch = _Epoch(int(starts[row]), int(stops[row]), ratio, (p1, p2, p3))
        curves.setdefault(int(band), []).append(epoch)
    return {channel: _Epochs(tuple(epochs)) for channel, epochs in curves.items()}


def _factors(file: TableFile) -> _Factors:
    file.check(tuple(file.columns), "dates and factors")
    names = {name.lower(): name for name in file.columns}
    times, factors = file.times(names["date"]), file.numbers(names["factor"])
    if (np.diff(times) <= 0).any():
        raise ValueError(f"{file.path}: expected ascending dates, each once")
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ValueError(f"{file.path}: expected factors above 0")
    return _Factors(tuple(times.tolist()), tuple(factors.tolist()))
