"""Degradation: sensitivity relative to the launch, as in aiapy.calibrate.degradation.

Pixels are divided by the degradation. The official table is SolarSoft's
``aia_V10_20201119_190000_response_table.txt``. Its values are constant after 2020-06-01.
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
"""SHA-256 of this file, as in aiapy."""

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
    """Effective area relative to the launch."""
    coefficients: tuple[float, float, float]
    """EFFA_P1 to EFFA_P3, per day, per day squared and per day cubed."""


@dataclass(frozen=True, slots=True)
class _Epochs:
    """The rows of a channel in the official table, in the order of DATE."""

    epochs: tuple[_Epoch, ...]

    def at(self, time: int) -> float | None:
        """Return the degradation at a time; None if no row is valid.

        If several rows are valid, the one with the latest DATE is used.
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
        """Return the degradation at a time; None before the first date and after the last date."""
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
    """Degradation over time, by wavelength in angstrom."""
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
            SolarSoft's text file, or CSV or ECSV with the same columns. Or CSV for one channel with
            the columns ``date`` (ascending) and ``factor`` (interpolated linearly).
        version : int
            VER_NUM of the rows to use. JSOC's aia.response mixes versions, which must not be
            combined: at 94 angstrom in 2015 their areas differ by 4.5 %.
        channel : int, optional
            Wavelength in angstrom, for a table that only has dates and factors.

        Raises
        ------
        ValueError
            If the file is not such a table, or lacks the version.
        """
        file = TableFile.read(path)
        if {name.lower() for name in file.columns} == _FACTORS:
            if channel is None:
                raise ValueError(
                    f"{file.path}: a table with the columns date and factor needs a channel: set "
                    "it, e.g. channel=171"
                )
            return cls(file.name, file.sha256, None, {channel: _factors(file)}, file.path)
        file.check(_OFFICIAL, "an AIA response table (or one with the columns date and factor)")
        if channel is not None:
            raise ValueError(
                f"{file.path}: the table has channels of its own: leave out channel={channel}"
            )
        return cls(file.name, file.sha256, version, _official(file, version), file.path)

    def degradation(self, channel: int, time: str) -> float:
        """Return the sensitivity relative to the launch, by which pixels must be divided.

        Parameters
        ----------
        channel : int
            Wavelength in angstrom.
        time : str
            DATE-OBS, as in aiapy, not T_OBS. See `readers.aia.times`.

        Raises
        ------
        ValueError
            If the table has no such channel, or no value for this time.

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
            raise ValueError(
                f"correction table {self.name} has no value for channel {channel} at {time}: use a "
                "newer table, or leave the row out"
            )
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
        # Thick filters have other areas. The UV channels have no suffix.
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
