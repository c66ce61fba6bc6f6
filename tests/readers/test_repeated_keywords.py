"""Headers that hold a keyword twice, with two values: they count as they do for astropy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from fits_files import card, decoded, truth

from readers import FitsReader, Row
from readers.testing import NUMBER, refused

STORED = np.arange(1, 13, dtype=np.int16).reshape(3, 4)
END = b"END".ljust(80)
BEFORE = pytest.mark.parametrize("before", ["", card("unusual", 1)], ids=["", "by_astropy"])


def write(path: Path, hdu: Any, *cards: str) -> str:
    """Write an image, with more cards at the end of its header, whatever they say."""
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(path)
    content = bytearray(path.read_bytes())
    place = content.index(END, content.index(b"XTENSION"))
    added = "".join(cards).encode() + END
    content[place : place + len(added)] = added
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("kind", [fits.ImageHDU, fits.CompImageHDU])
@BEFORE
@pytest.mark.parametrize("keyword", ["BSCALE", "BZERO", "BLANK"])
def test_scaling(tmp_path: Path, kind: Any, keyword: str, before: str) -> None:
    path = write(tmp_path / "0.fits", kind(STORED), before, card(keyword, 2), card(keyword, 3))

    image = decoded(FitsReader().read(Row(NUMBER, path, 1), None))[..., 0]

    np.testing.assert_array_equal(image, truth(path, 1))


@BEFORE
def test_size(tmp_path: Path, before: str) -> None:
    path = write(tmp_path / "0.fits", fits.ImageHDU(STORED), before, card("NAXIS1", 2))

    assert "NAXIS1 more than once" in refused(FitsReader(), Row(NUMBER, path, 1), None).reason
