"""Rules for the headers of usable files, checked for each file or for a whole Index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.aia.channel import is_hmi
from readers.aia.keywords import number, text
from readers.aia.wcs import CD, PC, AffineWCS
from readers.values import check_bool, check_number, is_integer, is_number

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONAL_KEYS = ("CTYPE1", "CROTA2", *PC, *CD)
KEYS = (
    *("INSTRUME", "QUALITY", "LVL_NUM", "IMG_TYPE", "EXPTIME", "PERCENTD", "RSUN_OBS"),
    *("CRPIX1", "CRPIX2", "CDELT1", "CDELT2", "CRVAL1", "CRVAL2", "CUNIT1", "CUNIT2"),
    *OPTIONAL_KEYS,
)
"""Keywords that the rules check, besides the size of the image."""

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
"""Meaning of the bits of QUALITY (SDO User Guide, table 2 of section 7.7.6)."""


class _Bits(int):
    """Integer that is shown as bits."""

    def __repr__(self) -> str:
        return f"{int(self):#010x}"


class Violation(NamedTuple):
    """The reason to reject a file."""

    rule: str
    """The wrong keyword, or ``full disk``."""
    message: str
    """Expected and found values."""


class Selection(NamedTuple):
    """The rows of a table that keep or break the rules."""

    rows: NDArray[np.int64]
    """Rows that keep the rules, in order, shape (k,)."""
    refused: dict[int, Violation]
    """All other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderRules:
    """Rules for the header of an AIA or HMI image.

    The header must have INSTRUME, QUALITY, LVL_NUM, IMG_TYPE, EXPTIME, PERCENTD, RSUN_OBS, CRPIXi,
    CRVALi, CUNITi, CDELTi (not with CDi_j), and the rotation as CROTA2, PCi_j or CDi_j. The keyword
    of a rule that is switched off may be missing. For HMI only QUALITY and the geometry are
    checked, because HMI has no LVL_NUM and IMG_TYPE, and other bits in QUALITY.
    """

    quality: int = _Bits(0xFFFF_FFFF & ~(0x1F | 1 << 30))
    """Bits of AIA's QUALITY that reject a file; 0 for none. By default all bits but 0 to 4 (missing
    ancillary data) and 30 (quicklook image)."""
    hmi_quality: int = _Bits(0xFFFE_0000 | 0x4000 | 0x200 | 0x20)
    """Bits of HMI's QUALITY that reject a file; 0 for none. By default no observable, ISS loop
    open, eclipse, and poor quality (JSOC, Quality_Bits/QUALITY.txt of 2013-05-24)."""
    level: float | None = 1.0
    """Required LVL_NUM; None for any. Files of level 1.5 are already registered."""
    img_type: str | None = "LIGHT"
    """Required IMG_TYPE; None for any."""
    exposed: bool = True
    """Whether EXPTIME must be above 0."""
    percentd: float = 100.0
    """Minimum of PERCENTD, the percentage of pixels that are not missing; 0 for any."""
    full_disk: bool = True
    """Whether the whole Sun must be in the image, as in aiapy."""

    def __post_init__(self) -> None:
        for name in ("exposed", "full_disk"):
            check_bool(name, getattr(self, name))
        if self.level is not None and not is_number(self.level):
            raise ValueError(f"level must be a number, or None, got {self.level!r}")
        if self.img_type is not None and not isinstance(self.img_type, str):
            raise ValueError(f"img_type must be text, or None, got {self.img_type!r}")
        check_number("percentd", self.percentd)
        for name in ("quality", "hmi_quality"):
            if not is_integer(getattr(self, name)):
                raise ValueError(
                    f"{name} must be an integer of bits that reject a file, got "
                    f"{getattr(self, name)!r}"
                )
            object.__setattr__(self, name, _Bits(getattr(self, name)))

    def check(self, header: Mapping[str, Any]) -> None:
        """Check the `KEYS`, NAXIS1 and NAXIS2 of a header.

        Raises
        ------
        ValueError
            If the header breaks a rule. The message has the rule and the value.
        """
        violation = self.violation(header)
        if violation is not None:
            raise ValueError(violation.message)

    def violation(self, header: Mapping[str, Any]) -> Violation | None:
        """Return the first rule that a header breaks; None if it keeps all. See `check`."""
        try:
            if not text(header, "INSTRUME").startswith(("AIA", "HMI")):
                raise ValueError(f"INSTRUME is {header['INSTRUME']!r}, expected AIA or HMI")
            self._check_quality(header)
            if not is_hmi(header):
                self._check_aia(header)
            self._check_geometry(header)
        except _FullDiskError as error:
            return Violation("full disk", str(error))
        except ValueError as error:  # the message begins with the wrong keyword
            return Violation(str(error).split()[0], str(error))
        return None

    def select(self, table: pa.Table) -> Selection:
        """Check the rows of an Index.

        Parameters
        ----------
        table : pyarrow.Table
            ``Index.table`` with the columns height, width and `KEYS` in lower case, made by
            ``dali-pipelines index --rules aia``. `OPTIONAL_KEYS` may be missing.

        Raises
        ------
        ValueError
            If any other column is missing.
        """
        columns = {key: key.lower() for key in KEYS} | {"NAXIS1": "width", "NAXIS2": "height"}
        for key, name in list(columns.items()):
            if name not in table.column_names:
                if key not in OPTIONAL_KEYS:
                    raise ValueError(
                        f"the Index has no column {name!r}, which the rules need: scan the archive "
                        "with dali-pipelines index --rules aia"
                    )
                del columns[key]
        refused: dict[int, Violation] = {}
        row = 0
        for batch in table.select(list(columns.values())).to_batches(max_chunksize=8192):
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                keywords = zip(columns, values, strict=True)
                header = {key: value for key, value in keywords if value is not None}
                if (violation := self.violation(header)) is not None:
                    refused[row] = violation
                row += 1
        kept = np.setdiff1d(np.arange(row), np.fromiter(refused, np.int64, len(refused)))
        return Selection(kept, refused)

    def _check_quality(self, header: Mapping[str, Any]) -> None:
        mask = self.hmi_quality if is_hmi(header) else self.quality
        if mask == 0:
            return
        # FITS has no unsigned integers: bit 31 makes the number negative.
        quality = int(number(header, "QUALITY")) & 0xFFFF_FFFF
        if bad := quality & mask:
            bits = [bit for bit in range(32) if bad >> bit & 1]
            names = {} if is_hmi(header) else _FLAGS
            listed = (f"{bit} ({names[bit]})" if bit in names else f"{bit}" for bit in bits)
            reason = f"bits that should not be set: {', '.join(listed)}"
            raise ValueError(f"QUALITY is {quality:#010x}: {reason}")

    def _check_aia(self, header: Mapping[str, Any]) -> None:
        if self.level is not None and (level := number(header, "LVL_NUM")) != self.level:
            why = ": the image is already registered, use fits_pipeline" * (level == 1.5)
            raise ValueError(f"LVL_NUM is {level:g}, expected {self.level:g}{why}")
        if self.img_type is not None and (found := text(header, "IMG_TYPE")) != self.img_type:
            raise ValueError(f"IMG_TYPE is {found!r}, expected {self.img_type!r}")
        if self.exposed and number(header, "EXPTIME") <= 0:
            raise ValueError(f"EXPTIME is {header['EXPTIME']}, expected more than 0 seconds")
        if self.percentd > 0 and number(header, "PERCENTD") < self.percentd:
            raise ValueError(
                f"PERCENTD is {header['PERCENTD']}, expected at least {self.percentd:g} % of pixels"
            )

    def _check_geometry(self, header: Mapping[str, Any]) -> None:
        wcs = AffineWCS.of(header)
        if self.full_disk and not wcs.holds_disk(number(header, "RSUN_OBS")):
            x, y = wcs.sun_centre
            height, width = wcs.shape
            raise _FullDiskError(
                f"expected a full disk, got a cutout of {width}x{height} pixels (width x height): "
                f"the centre of the Sun is at x {x:.1f}, y {y:.1f}, its radius is "
                f"{header['RSUN_OBS']:.1f} arcsec"
            )


class _FullDiskError(ValueError):
    """The image does not contain the whole Sun."""
