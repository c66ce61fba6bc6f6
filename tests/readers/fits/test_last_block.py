"""Files whose last block is not filled to 2880 bytes: read as by astropy, if all data are there."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from fits_files import decoded, truth

from readers import FitsReader, Hdu, ReadError, Row, Window
from readers.fits.multi_hdu import HdusReader
from readers.header_scan import file_facts
from readers.testing import NUMBER, refused

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 999, (61, 47)).astype(np.int16)
FLOATS = RNG.normal(9, 2, (61, 47)).astype(np.float32)


def table(**compression: Any) -> Any:
    return fits.CompImageHDU(FLOATS if "quantize_level" in compression else PIXELS, **compression)


FILES: dict[str, list[Any]] = {
    "primary": [fits.PrimaryHDU(PIXELS)],
    "extension": [fits.PrimaryHDU(), fits.ImageHDU(FLOATS)],
    "64 bits": [fits.PrimaryHDU(), fits.ImageHDU(PIXELS.astype(np.int64))],
    "rice": [fits.PrimaryHDU(), table(compression_type="RICE_1", tile_shape=(7, 47))],
    "gzip": [fits.PrimaryHDU(), table(compression_type="GZIP_2", quantize_level=0)],
    "dithered": [fits.PrimaryHDU(), table(quantize_level=8, quantize_method=1, dither_seed=3)],
    "hcompress": [fits.PrimaryHDU(), table(compression_type="HCOMPRESS_1")],
    "left to astropy": [fits.PrimaryHDU(), fits.ImageHDU(PIXELS, fits.Header({"LOWER": 1}))],
    "several": [fits.PrimaryHDU(PIXELS), table(), fits.ImageHDU(PIXELS[::-1].copy())],
}


@pytest.fixture(params=FILES)
def content(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    """The bytes of a file up to the end of its last HDU's data."""
    path = tmp_path / "whole.fits"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits.HDUList([hdu.copy() for hdu in FILES[request.param]]).writeto(path)
        with fits.open(path, disable_image_compression=True) as hdus:
            last = hdus[-1]
            end = last.fileinfo()["datLoc"] + last.size
    whole = path.read_bytes().replace(b"LOWER   =", b"lower   =")
    assert end < len(whole)
    return whole[:end]


def in_file(folder: Path, content: bytes) -> Row:
    (folder / "a.fits").write_bytes(content)
    return Row(NUMBER, str(folder / "a.fits"))


def in_gzip(folder: Path, content: bytes) -> Row:
    (folder / "a.fits.gz").write_bytes(gzip.compress(content))
    return Row(NUMBER, str(folder / "a.fits.gz"))


def in_container(folder: Path, content: bytes) -> Row:
    (folder / "a.tar").write_bytes(b"before" + content + b"behind")
    return Row(NUMBER, str(folder / "a.tar"), offset=6, nbytes=len(content))


FORMS: list[Callable[[Path, bytes], Row]] = [in_file, in_gzip, in_container]


@pytest.mark.parametrize(
    ("form", "padding"), [(in_file, 0), (in_file, 1), (in_gzip, 0), (in_container, 0)]
)
def test_all_pixels_are_delivered(
    tmp_path: Path, content: bytes, form: Callable[[Path, bytes], Row], padding: int
) -> None:
    row = form(tmp_path, content + bytes(padding))
    (tmp_path / "plain.fits").write_bytes(content)
    numbers = [int(facts["hdu"] or 0) for facts in file_facts(row.place, hdu="all")]
    for number in numbers:
        expected = truth(tmp_path / "plain.fits", number)
        reader = FitsReader(number)
        np.testing.assert_array_equal(decoded(reader.read(row, None))[..., 0], expected)
        part = decoded(reader.read(row, Window(height=9, width=8, y=0.999, x=0.999)))[..., 0]
        np.testing.assert_array_equal(part, expected[-9:, -8:])
        assert reader.peek(row, None).height == len(expected)
        assert reader.header(row, ["BITPIX"])["BITPIX"]
        reader.verify(row)
    images = {"image": Hdu(numbers[0]), "last": Hdu(numbers[-1])}
    several = HdusReader(images, {}, FitsReader())
    several = HdusReader(images, {"last": several.kinds_of(row)["last"]}, FitsReader())
    assert several.read(row, None).image_size == PIXELS.shape


@pytest.mark.parametrize("form", FORMS)
def test_cut_data_are_refused(
    tmp_path: Path, content: bytes, form: Callable[[Path, bytes], Row]
) -> None:
    row = form(tmp_path, content[:-1])
    with fits.open(tmp_path / "whole.fits") as hdus:
        last = len(hdus) - 1
    refused(FitsReader(last), row, Window(height=2, width=2, y=0.999, x=0.999))
    refused(FitsReader(last), row, None) if form is not in_gzip else None
    with pytest.raises(ReadError):
        FitsReader(last).verify(row)
    if form is not in_gzip:  # whose end is not looked at by a scan
        with pytest.raises(ReadError):
            file_facts(row.place, hdu=last)
        with pytest.raises(ReadError):
            file_facts(row.place, hdu="all")


@pytest.mark.parametrize("form", FORMS)
def test_a_header_without_data_may_be_cut_after_its_end(
    tmp_path: Path, form: Callable[[Path, bytes], Row]
) -> None:
    fits.HDUList([fits.PrimaryHDU(PIXELS), fits.ImageHDU(name="E")]).writeto(tmp_path / "b.fits")
    whole = (tmp_path / "b.fits").read_bytes()
    row = form(tmp_path, whole[: whole.rindex(b"END" + b" " * 77) + 80])
    assert [facts["hdu"] for facts in file_facts(row.place, hdu="all")] == [0]
    np.testing.assert_array_equal(decoded(FitsReader().read(row, None))[..., 0], PIXELS)
