"""Which files are fit for use, by their headers: asked of each file read, or of an Index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.aia.channel import is_hmi
from readers.aia.keywords import number, text
from readers.aia.wcs import CD, PC, AffineWCS

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONAL_KEYS = ("CTYPE1", "CROTA2", *PC, *CD)
KEYS = (
    *("INSTRUME", "QUALITY", "LVL_NUM", "IMG_TYPE", "EXPTIME", "PERCENTD", "RSUN_OBS"),
    *("CRPIX1", "CRPIX2", "CDELT1", "CDELT2", "CRVAL1", "CRVAL2", "CUNIT1", "CUNIT2"),
    *OPTIONAL_KEYS,
)
"""Header keys that the rules look at, besides the size of the image."""

_FLAGS = {
    8: "values are missing",
    9: "over 1 % are missing",
    10: "over 5 % are missing",
    11: "over 25 % are missing",
    12: "not in science pointing",
    13: "eclipse",
    14: "no Sun presence",
    15: "safe mode",
    16: "dark image",
    17: "ISS loop open",
    18: "calibration image",
    20: "out of focus",
    21: "register flag",
    30: "quicklook",
    31: "no image",
}
"""What bits of QUALITY say, SDO User Guide, table 2 of section 7.7.6."""


class Violation(NamedTuple):
    """Why a file is refused."""

    rule: str
    """The word of the header that is to blame, or ``full disk``."""
    message: str
    """What was expected and what was found."""


class Selection(NamedTuple):
    """What the rules make of a table."""

    rows: NDArray[np.int64]
    """Those that are fit, in order, shape (k,)."""
    refused: dict[int, Violation]
    """All others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderRules:
    """What the header of an AIA or HMI image has to say.

    HMI has neither LVL_NUM nor IMG_TYPE, and other bits in QUALITY: of an HMI image just that and
    the geometry are asked. The rotation must always be told, by CROTA2, PCi_j or CDi_j.
    """

    quality: int = 0xFFFF_FFFF & ~(0x1F | 1 << 30)
    """Bits of AIA's QUALITY that refuse a file; 0 for none. By default all but those that tell of
    missing ancillary data (0 to 4) and of a quicklook image (30)."""
    hmi_quality: int = 0xFFFE_0000 | 0x4000 | 0x200 | 0x20
    """Bits of HMI's QUALITY that refuse a file. By default: no observable could be made, the ISS
    loop was open, eclipse, poor quality (JSOC, Quality_Bits/QUALITY.txt of 2013-05-24)."""
    level: float | None = 1.0
    """LVL_NUM. A file of level 1.5 is registered already. None for any."""
    img_type: str | None = "LIGHT"
    """IMG_TYPE. None for any."""
    exposed: bool = True
    """EXPTIME must be above 0."""
    percentd: float = 100.0
    """Least PERCENTD, the share of pixels that are not missing. 0 for any."""
    full_disk: bool = True
    """All of the Sun must be in the image, as aiapy asks."""

    def check(self, header: Mapping[str, Any]) -> None:
        """Refuse a header that breaks a rule.

        Parameters
        ----------
        header : mapping
            The `KEYS`, and NAXIS1 and NAXIS2 of the image.

        Raises
        ------
        ValueError
            Which says which rule, and what was found.
        """
        violation = self.violation(header)
        if violation is not None:
            raise ValueError(violation.message)

    def violation(self, header: Mapping[str, Any]) -> Violation | None:
        """Return the first rule that a header breaks, None for none; see `check`."""
        rules = {
            "INSTRUME": self._instrument,
            "QUALITY": self._quality,
            "LVL_NUM": self._level,
            "IMG_TYPE": self._img_type,
            "EXPTIME": self._exposed,
            "PERCENTD": self._percentd,
            "geometry": self._geometry,
        }
        for rule, ask in rules.items():
            try:
                ask(header)
            except _FullDiskError as error:
                return Violation("full disk", str(error))
            except ValueError as error:
                # A rule of several words says first which it is.
                return Violation(str(error).split()[0] if rule == "geometry" else rule, str(error))
        return None

    def select(self, table: pa.Table) -> Selection:
        """Ask the rules of the rows of an Index.

        Parameters
        ----------
        table : pyarrow.Table
            ``Index.table``, with height, width and the `KEYS` in lower case, as
            ``scripts/index.py --rules aia`` makes it. `OPTIONAL_KEYS` may be missing.

        Raises
        ------
        ValueError
            If another column is missing.
        """
        columns = {key: key.lower() for key in KEYS} | {"NAXIS1": "width", "NAXIS2": "height"}
        for key, name in list(columns.items()):
            if name not in table.column_names:
                if key not in OPTIONAL_KEYS:
                    raise ValueError(
                        f"the Index has no column {name!r}, which the rules need: scan the archive "
                        "by scripts/index.py --rules aia"
                    )
                del columns[key]
        refused: dict[int, Violation] = {}
        row = 0
        for batch in table.select(list(columns.values())).to_batches(max_chunksize=8192):
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                words = zip(columns, values, strict=True)
                header = {key: value for key, value in words if value is not None}
                if (violation := self.violation(header)) is not None:
                    refused[row] = violation
                row += 1
        kept = np.setdiff1d(np.arange(row), np.fromiter(refused, np.int64, len(refused)))
        return Selection(kept, refused)

    def _instrument(self, header: Mapping[str, Any]) -> None:
        if not text(header, "INSTRUME").startswith(("AIA", "HMI")):
            raise ValueError(f"INSTRUME is {header['INSTRUME']!r}, expected AIA or HMI")

    def _quality(self, header: Mapping[str, Any]) -> None:
        mask = self.hmi_quality if is_hmi(header) else self.quality
        if mask == 0:
            return
        # FITS has no unsigned integers: bit 31 makes the word negative.
        quality = int(number(header, "QUALITY")) & 0xFFFF_FFFF
        if bad := quality & mask:
            bits = [bit for bit in range(32) if bad >> bit & 1]
            names = {} if is_hmi(header) else _FLAGS
            told = ", ".join(f"{bit} ({names[bit]})" if bit in names else f"{bit}" for bit in bits)
            raise ValueError(f"QUALITY is {quality:#010x}: bits that should not be set: {told}")

    def _level(self, header: Mapping[str, Any]) -> None:
        if self.level is None or is_hmi(header):
            return
        level = number(header, "LVL_NUM")
        if level != self.level:
            why = ": it is registered already, and must not be resampled twice" * (level == 1.5)
            raise ValueError(f"LVL_NUM is {level:g}, expected {self.level:g}{why}")

    def _img_type(self, header: Mapping[str, Any]) -> None:
        if self.img_type is None or is_hmi(header):
            return
        found = text(header, "IMG_TYPE")
        if found != self.img_type:
            raise ValueError(f"IMG_TYPE is {found!r}, expected {self.img_type!r}")

    def _exposed(self, header: Mapping[str, Any]) -> None:
        if self.exposed and not is_hmi(header) and number(header, "EXPTIME") <= 0:
            raise ValueError(f"EXPTIME is {header['EXPTIME']}, expected more than 0 seconds")

    def _percentd(self, header: Mapping[str, Any]) -> None:
        if self.percentd > 0 and not is_hmi(header) and number(header, "PERCENTD") < self.percentd:
            raise ValueError(
                f"PERCENTD is {header['PERCENTD']}, expected at least {self.percentd:g} % of pixels"
            )

    def _geometry(self, header: Mapping[str, Any]) -> None:
        wcs = AffineWCS.of(header)
        if self.full_disk and not wcs.holds_disk(number(header, "RSUN_OBS")):
            x, y = wcs.sun_centre
            height, width = wcs.shape
            raise _FullDiskError(
                f"expected a full disk, got a cutout: the Sun has its centre at pixel x {x:.1f}, "
                f"y {y:.1f} of {width}x{height} (width x height), and a radius of "
                f"{header['RSUN_OBS']:.1f} arcsec"
            )


class _FullDiskError(ValueError):
    """The image does not hold all of the Sun."""
