"""Master pointing of each telescope, in slots of three hours, as in aiapy's update_pointing.

The table is read once. Reader processes map its numbers into memory (`readers.index.columns`) and
use binary search.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from readers.aia.keywords import number, text
from readers.aia.tables import TableFile
from readers.aia.times import tai_nanoseconds
from readers.aia.wcs import FULL_FRAME
from readers.index.columns import Columns

_COLUMN = re.compile(r"A_(\d{3,4})_X0")
_QUANTITIES = ("X0", "Y0", "IMSCALE", "INSTROT")


class Pointing(NamedTuple):
    """The pointing of a telescope."""

    x0: float
    """Column of the Sun's centre, in pixels from the centre of the first pixel."""
    y0: float
    """Row of the Sun's centre, in pixels from the centre of the first pixel."""
    imscale: float
    """Arcsec/pixel."""
    instrot: float
    """Rotation of the CCD, in degrees."""


@dataclass(frozen=True)
class PointingTable:
    """The pointing of each telescope in each time slot. See `read`."""

    name: str
    """Name of the file."""
    sha256: str
    """SHA-256 of the file, in hexadecimal."""
    channels: tuple[int, ...]
    """Wavelengths in angstrom."""
    span: tuple[str, str]
    """First T_START and last T_STOP, as written in the file."""
    columns: Columns = field(repr=False, compare=False)
    """For each slot ``T_START``; ``reach``, the latest T_STOP of all slots up to this one; and a
    column for each channel with X0, Y0, IMSCALE and INSTROT."""
    path: str = field(default="", repr=False, compare=False)
    """Path of the file."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> PointingTable:
        """Read a local copy of JSOC's aia.master_pointing3h.

        Parameters
        ----------
        path : path
            CSV of LM-SAL (``aia_pointing_table.csv``), or CSV or ECSV written from the result of
            aiapy's ``get_pointing_table``. Columns T_START and T_STOP, and for each channel
            ``A_171_X0``, ``A_171_Y0`` (pixel, counted from 0), ``A_171_IMSCALE`` (arcsec/pixel) and
            ``A_171_INSTROT`` (degree).

        Raises
        ------
        ValueError
            If the file is not such a table, or its rows are not in the order of T_START.
        """
        from readers.index.index_file import store_columns  # not in reader processes

        file = TableFile.read(path)
        names = [found[1] for name in file.columns if (found := _COLUMN.fullmatch(name))]
        needed = [f"A_{name}_{quantity}" for name in names or ["171"] for quantity in _QUANTITIES]
        file.check(("T_START", "T_STOP", *needed), "a master pointing table")
        starts, stops = file.times("T_START"), file.times("T_STOP")
        if (np.diff(starts) < 0).any():
            raise ValueError(f"{file.path}: T_START must be ascending: sort the table")
        columns = {"T_START": starts, "reach": np.maximum.accumulate(stops)}
        for name in names:
            values = [file.numbers(f"A_{name}_{quantity}") for quantity in _QUANTITIES]
            columns[name.lstrip("0")] = np.stack(values, axis=1)
        return cls(
            name=file.name,
            sha256=file.sha256,
            channels=tuple(sorted(int(name) for name in names)),
            span=(file.texts("T_START")[0], file.texts("T_STOP")[int(np.argmax(stops))]),
            columns=Columns(store_columns(columns)),
            path=file.path,
        )

    def pointing(self, channel: int, time: str) -> Pointing:
        """Return the pointing of a telescope: of the first slot with T_START <= time < T_STOP.

        Parameters
        ----------
        channel : int
            Wavelength in angstrom.
        time : str
            T_OBS, see `readers.aia.times`.

        Raises
        ------
        ValueError
            If the table has no such channel, no slot for the time, or no value there.
        """
        if channel not in self.channels:
            known = ", ".join(map(str, self.channels))
            raise ValueError(f"pointing table {self.name} has no channel {channel}, it has {known}")
        when = tai_nanoseconds(time)
        # The first slot with a `reach` after the time also has its T_STOP after the time.
        slot = int(np.searchsorted(self.columns.array("reach"), when, side="right"))
        starts = self.columns.array("T_START")
        if slot == len(starts) or starts[slot] > when:
            raise ValueError(
                f"pointing table {self.name} has no slot for T_OBS {time}, it covers "
                f"{self.span[0]} to {self.span[1]}, perhaps with gaps: use a newer table"
            )
        values = self.columns.array(str(channel))[slot]
        for quantity, value in zip(_QUANTITIES, values, strict=True):
            if not np.isfinite(value):
                raise ValueError(
                    f"pointing table {self.name} has no A_{channel:03d}_{quantity} for T_OBS "
                    f"{time}: leave the row out, or use a newer table"
                )
        return Pointing(*(float(value) for value in values))


def update_pointing(header: Mapping[str, Any], table: PointingTable) -> dict[str, float]:
    """Return new keywords for a full frame of 4096x4096, from a pointing table.

    WAVELNTH, T_OBS, SAT_ROT, NAXIS1 and NAXIS2 of the header are used. PCi_j and CDi_j must be
    removed from the header.

    Returns
    -------
    dict
        CRPIX1 and CRPIX2 (pixel, counted from 1), CDELT1 and CDELT2 (arcsec/pixel), CROTA2
        (degree), X0_MP and Y0_MP (pixel, counted from 0).

    Raises
    ------
    ValueError
        If the table has no value, or the frame has another size.

    Notes
    -----
    ``aiapy.calibrate.update_pointing`` of release 0.10. However, aiapy keeps keywords without a
    value in the table, and so mixes old and new pointing. Release 0.12 adds the change of X0_MP and
    Y0_MP to CRPIX1 and CRPIX2. The result is the same if X0_MP and Y0_MP agree with CRPIX1 and
    CRPIX2, as in frames of JSOC.
    """
    height, width = header.get("NAXIS2"), header.get("NAXIS1")
    if (height, width) != FULL_FRAME:
        raise ValueError(
            f"the image is {height}x{width}, but a pointing table needs frames of 4096x4096: leave "
            "the row out, or set no pointing table"
        )
    found = table.pointing(round(number(header, "WAVELNTH")), text(header, "T_OBS"))
    return {
        "CRPIX1": found.x0 + 1,
        "CRPIX2": found.y0 + 1,
        "CDELT1": found.imscale,
        "CDELT2": found.imscale,
        "CROTA2": found.instrot + number(header, "SAT_ROT"),
        "X0_MP": found.x0,
        "Y0_MP": found.y0,
    }
