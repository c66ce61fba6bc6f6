"""Choose among the HDUs of a file that astropy has opened, and name them in errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

from astropy.io import fits

from readers.fits.hdus import HduName, no_such_hdu, unusual_hdu
from readers.places.contract import Place

_LISTED = 8
"""HDUs that an error names."""


def find_wanted(hdus: fits.HDUList, wanted: HduName | None, place: Place) -> int:
    """Return the number of the wanted HDU; ValueError if there is none, or it holds no image.

    `place` has the bytes of the file.
    """
    if wanted is None:
        number = next((n for n, hdu in enumerate(hdus) if _holds_image(hdu)), None)
        if number is None:
            raise no_such_hdu(None, (), _after(hdus, place))
        return number
    try:
        number = hdus.index_of(wanted)
        hdu = hdus[number]
    except (IndexError, KeyError):
        names = [hdu.name for hdu in hdus]
        raise no_such_hdu(wanted, names, _after(hdus, place)) from None
    if not _holds_image(hdu):
        reason, images = f"HDU {wanted!r} holds no image, it is a {type(hdu).__name__}", {}
        with suppress(Exception):  # of a damaged HDU, not of the one that was asked for
            for other, hdu in enumerate(hdus):
                if _holds_image(hdu):
                    images[other] = hdu.name
        if images:
            reason += f"; images are in HDU {_listed(images)}: give hdu={min(images)}"
        raise ValueError(reason)
    return number


def check_data(hdu: Any, number: int, place: Place) -> None:
    """Raise ValueError if the data of an HDU are cut off; some of its padding may be missing."""
    found = hdu.fileinfo()
    start, data, nbytes = found["hdrLoc"], found["datLoc"], place.nbytes
    if data + found["datSpan"] <= nbytes:
        return
    stop = unusual_hdu(place.read(start, data), start, number).stop
    if stop > max(data, nbytes):
        raise ValueError(
            f"the file is truncated: it ends at byte {nbytes}, the data of HDU {number} at {stop}"
        )


def names_of(hdu: Any) -> tuple[str, int]:
    """Return EXTNAME, in capitals, and EXTVER."""
    return hdu.name.strip().upper(), hdu.ver if isinstance(hdu.ver, int) else 1


def with_pixels(hdus: fits.HDUList, place: Place) -> list[int]:
    """Return the numbers of the HDUs that hold images with pixels.

    Raises
    ------
    ValueError
        If there is none, or data of an HDU are cut off.
    """
    for number, hdu in enumerate(hdus):
        check_data(hdu, number, place)
    images = [n for n, hdu in enumerate(hdus) if _holds_image(hdu) and math.prod(hdu.shape)]
    if not images:
        raise no_such_hdu(None, ())
    return images


def images_among(names: Mapping[int, str], wanted: Sequence[int | str]) -> list[int]:
    """Return which HDUs are wanted, by number or by EXTNAME with ``*`` for any characters.

    `names` has the EXTNAMEs in capitals by the numbers of the HDUs. Raise ValueError if there is no
    HDU for one that is wanted.
    """
    chosen: set[int] = set()
    for each in wanted:
        if isinstance(each, int):
            found = {each} & names.keys()
        else:
            pattern = each.strip().upper()
            found = {number for number, name in names.items() if fnmatchcase(name, pattern)}
        if not found:
            raise ValueError(f"no image in HDU {each!r}, the file has images in {_listed(names)}")
        chosen |= found
    return sorted(chosen)


def _listed(names: Mapping[int, str]) -> str:
    """Return numbers and EXTNAMEs of HDUs, and how many more there are than fit into a line."""
    each = [f"{number} ({name})" if name else f"{number}" for number, name in names.items()]
    more = [f"and {len(each) - _LISTED} more"] if len(each) > _LISTED else []
    return ", ".join(each[:_LISTED] + more)


def _after(hdus: fits.HDUList, place: Place) -> str:
    """Return the end of an error: that astropy cannot read what follows these HDUs, if so."""
    last = hdus[-1].fileinfo()
    end = last["datLoc"] + last["datSpan"]
    if place.read(end, end + 8) != b"XTENSION":
        return ""
    return (
        f"; the header of a further one, in the last {place.nbytes - end} bytes of the file, is "
        "cut off or damaged: copy the file again"
    )


def _holds_image(hdu: Any) -> bool:
    if hdu.header.get("ZIMAGE") is True and hdu.header.get("XTENSION") == "BINTABLE":
        return True
    # astropy takes any HDU of the name PRIMARY for an image.
    return bool(hdu.is_image) and hasattr(hdu, "shape") and hdu.header.get("NAXIS", 0) >= 1
