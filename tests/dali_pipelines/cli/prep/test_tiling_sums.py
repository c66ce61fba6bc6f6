"""Checksums that a header announces, but does not know."""

from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from dali_pipelines.cli.prep.tiling import Tiling
from readers.contract import Row
from readers.errors import ReadError


@pytest.mark.parametrize(
    ("datasum", "is_good"), [("", True), ("   ", True), ("00{}", True), ("{}", True), ("7", False)]
)
def test_unknown_sums_are_not_compared(tmp_path: Path, datasum: str, is_good: bool) -> None:
    path, copy = tmp_path / "a.fits", tmp_path / "copy.fits"
    image = fits.PrimaryHDU(np.arange(600, dtype=np.int16).reshape(20, 30))
    image.add_datasum()
    image.header["DATASUM"] = datasum.format(image.header["DATASUM"])
    image.header["CHECKSUM"] = ""
    image.writeto(path)
    if not is_good:
        with pytest.raises(ReadError, match="DATASUM is 7"):
            Tiling(16).write(Row(0, str(path)), str(copy))
        return
    Tiling(16).write(Row(0, str(path)), str(copy))
    np.testing.assert_array_equal(fits.getdata(copy), image.data)
