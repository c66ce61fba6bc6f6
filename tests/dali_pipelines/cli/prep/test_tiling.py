"""prep --tiles: the same pixels and headers in square tiles, and files that must not be copied."""

from __future__ import annotations

import gzip
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fits_files
import numpy as np
import pytest
from astropy.io import fits
from hypothesis import given
from hypothesis import strategies as st
from strategies import StoredImage, compressed_floats, compressed_integers, cubes, plain_images

from dali_pipelines.cli.prep.tiling import Tiling, encoded, is_sound, ones_sum, tiled_hdu
from readers.contract import Row
from readers.errors import ReadError
from readers.fits.metadata import image_metadata
from readers.fits.reader import FitsReader
from readers.window import Window

HEIGHT, WIDTH = 300, 280
PIXELS = np.random.default_rng(0).poisson(100, (HEIGHT, WIDTH)).astype(np.int16)


def tiled(path: Path, edge: int = 128) -> tuple[Path, str]:
    """Copy a file; return the path of the copy, and what is said about it."""
    copy = path.with_name(f"tiled_{path.name}")
    return copy, Tiling(edge).write(Row(3, str(path)), str(copy))


def hdus_of(path: Path) -> list[tuple[bytes, bytes]]:
    """Return the bytes of header and data of each HDU."""
    content = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fits.open(path, disable_image_compression=True) as hdus:
            places = [hdu.fileinfo() for hdu in hdus]
    return [
        (
            content[place["hdrLoc"] : place["datLoc"]],
            content[place["datLoc"] : place["datLoc"] + place["datSpan"]],
        )
        for place in places
    ]


def rice(pixels: np.ndarray, **cards: Any) -> fits.CompImageHDU:
    return fits.CompImageHDU(pixels, fits.Header(cards), compression_type="RICE_1")


class TestPixels:
    @given(image=plain_images() | compressed_integers() | compressed_floats() | cubes())
    def test_any_image(self, image: StoredImage, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        fits_files.write(path, image)
        copy, said = tiled(path, 16)
        stored, old = image.stored, 0 if image.compression is None else 1
        stays = stored.dtype.kind == "f" or stored.dtype == np.int64 or stored.ndim > 3
        new = old if stays else 1
        assert bool(said) == stays
        if said:
            assert copy.read_bytes() == path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, found = fits.getdata(path, old), fits.getdata(copy, new)
            assert np.can_cast(found.dtype, expected.dtype, "equiv")
            np.testing.assert_array_equal(found, expected)
            with fits.open(copy, checksum=True) as hdus:
                for hdu in hdus[new:]:
                    if not said:
                        assert (hdu.verify_checksum(), hdu.verify_datasum()) != (0, 0)
        if expected.ndim == 2:
            window = Window.at(1, 2, 3, 2, image=expected.shape)
            sample = FitsReader().read(Row(0, str(copy)), window)
            np.testing.assert_array_equal(
                fits_files.decoded(sample)[..., 0], fits_files.truth(path, old)[1:4, 2:4]
            )

    @pytest.mark.parametrize(
        "name", ["aia_171_cutout", "hmi_sharp_br", "m13", "m13_gzip", "m13_hcomp", "m13_plio"]
    )
    def test_real_files(self, shared_data: Path, tmp_path: Path, name: str) -> None:
        path = tmp_path / "a.fits"
        path.write_bytes((shared_data / f"fits/{name}.fits").read_bytes())
        copy, said = tiled(path)
        assert said == ""
        assert copy.stat().st_size < path.stat().st_size
        number = 0 if name == "m13" else 1
        np.testing.assert_array_equal(fits_files.truth(copy, 1), fits_files.truth(path, number))
        header, data = hdus_of(copy)[1]
        assert is_sound(header + data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            difference = fits.HeaderDiff(
                fits.getheader(path, number),
                fits.getheader(copy, 1),
                ignore_comments=["BITPIX", "NAXIS*", "SIMPLE", "XTENSION"],
                ignore_keywords=["CHECKSUM", "DATASUM"],
            )
        assert difference.identical, difference.report()

    @pytest.mark.parametrize("name", ["compressed_with_nan.fits", "decam_dither1.fits.fz"])
    def test_quantised_floats_stay(self, shared_data: Path, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        path.write_bytes((shared_data / "fits" / name).read_bytes())
        copy, said = tiled(path)
        assert said.startswith("HDU 1: ")
        assert copy.read_bytes() == path.read_bytes()

    def test_a_scale_of_zero_means_in_the_copy_what_it_meant(self, tmp_path: Path) -> None:
        """astropy ignores it only in tables."""
        cards = {"BSCALE": 0.0, "BZERO": 7.0}
        compression = {"compression_type": "GZIP_1"}
        plain, table = tmp_path / "plain.fits", tmp_path / "table.fits"
        fits_files.write(plain, StoredImage(PIXELS, cards))
        fits_files.write(table, StoredImage(PIXELS, cards, compression))
        copy, said = tiled(plain)
        assert said.startswith("HDU 0: its BSCALE is 0")
        assert (fits_files.truth(copy) == 7).all()
        np.testing.assert_array_equal(fits_files.truth(tiled(table)[0]), PIXELS + 7.0)

    @pytest.mark.parametrize("compression", [None, {"compression_type": "GZIP_1"}])
    @pytest.mark.parametrize("blank", [-32768, 256, "NONE"])
    def test_a_blank_that_no_pixel_can_have(
        self, tmp_path: Path, compression: dict[str, str] | None, blank: int | str
    ) -> None:
        """astropy does not read tables with one."""
        path, stored = tmp_path / "a.fits", PIXELS.astype(np.uint8)
        fits_files.write(path, StoredImage(stored, {"BLANK": blank}, compression))
        copy, said = tiled(path)
        assert "BLANK" in said
        assert copy.read_bytes() == path.read_bytes()

    def test_a_window_takes_fewer_bytes(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        pixels = np.random.default_rng(0).poisson(1000, (2048, 2048)).astype(np.int16)
        rice(pixels).writeto(path)
        copy, _ = tiled(path)
        assert copy.stat().st_size < 1.01 * path.stat().st_size
        window = Window.at(700, 900, 256, 256, image=pixels.shape)
        before, after = (
            FitsReader().read(Row(0, str(each)), window).input_bytes for each in (path, copy)
        )
        assert after < before / 3.5


class TestHeaders:
    def test_cards_stay_byte_for_byte(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        header = fits.PrimaryHDU(PIXELS).header
        start = len(header)
        header["LONG"] = "a very long text " * 8
        header["BLANK"] = -5
        header.add_blank()
        header.add_history("made by a test")
        kept = header.tostring(endcard=False, padding=False)[80 * start :].encode()
        # astropy itself would fix this card.
        kept += b"ODD     = nan / breaks the standard".ljust(80)
        text = header[:start].tostring(endcard=False, padding=False).encode() + kept
        text = (text + b"END".ljust(80)).ljust(2880)
        path.write_bytes(text + PIXELS.astype(">i2").tobytes().ljust(59 * 2880, b"\0"))
        copy, _ = tiled(path)
        empty, (table, heap) = hdus_of(copy)
        assert is_sound(empty[0])
        assert is_sound(table + heap)
        assert kept in table
        assert b"ZSIMPLE =                    T" in table

    def test_a_file_of_many_hdus(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        table = fits.BinTableHDU(np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), name="T")
        wide = fits.ImageHDU(PIXELS.astype(np.uint16) + 40000, name="WIDE")
        line, floats = fits.ImageHDU(PIXELS[0], name="LINE"), fits.ImageHDU(PIXELS / 2.0)
        hdus = [fits.PrimaryHDU(), table, rice(PIXELS, EXTNAME="SCI"), wide, line, floats]
        fits.HDUList(hdus).writeto(path, checksum=True)
        copy, said = tiled(path)
        assert re.fullmatch("HDU 4: .*one axis; HDU 5: .*float64", said)
        before, after = hdus_of(path), hdus_of(copy)
        for number in 0, 1, 4, 5:
            assert after[number] == before[number]
        with fits.open(copy, checksum=True) as found:
            assert [hdu.name for hdu in found] == ["PRIMARY", "T", "SCI", "WIDE", "LINE", ""]
            np.testing.assert_array_equal(found["SCI"].data, PIXELS)
            np.testing.assert_array_equal(found["WIDE"].data, wide.data)
            assert found["WIDE"].data.dtype == np.uint16
        # What is tiled already is copied as it is.
        again, _ = tiled(copy)
        assert again.read_bytes() == copy.read_bytes()

    def test_keywords_that_others_inherit(self, tmp_path: Path) -> None:
        """An image in HDU 0 takes its header with it, and leaves a copy for those that inherit."""
        path = tmp_path / "a.fits"
        first = fits.PrimaryHDU(PIXELS, fits.Header({"TELESCOP": "SDO", "LONG": "text " * 30}))
        first.scale("int16", bzero=10)
        heir = fits.ImageHDU(PIXELS, fits.Header({"INHERIT": True, "GAIN": 2.0}))
        fits.HDUList([first, heir]).writeto(path)
        copy, _ = tiled(path)
        keys = ("TELESCOP", "LONG", "GAIN", "BZERO")
        (before,), (after,) = image_metadata(str(path), keys, 1), image_metadata(str(copy), keys, 2)
        assert before | {"BZERO": None} == after | {"hdu": 1, "codec": ""}
        with fits.open(copy, checksum=True) as hdus:
            assert [hdu.header.get("TELESCOP") for hdu in hdus] == ["SDO", "SDO", None]
            assert hdus[0].verify_checksum() == 1
        heir.header["INHERIT"] = False
        fits.HDUList([first, heir]).writeto(path, overwrite=True)
        assert "TELESCOP" not in fits.getheader(tiled(path)[0], 0)

    def test_keywords_that_a_table_would_heed(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        fits.PrimaryHDU(PIXELS, fits.Header({"ZSCALE": 2.5})).writeto(path)
        copy, said = tiled(path)
        assert said.startswith("HDU 0: ")
        assert copy.read_bytes() == path.read_bytes()

    @pytest.mark.parametrize("datasum", ["", "   ", "00{}", "{}", "7"])
    def test_unknown_sums_are_not_compared(self, tmp_path: Path, datasum: str) -> None:
        path = tmp_path / "a.fits"
        image = fits.PrimaryHDU(PIXELS)
        image.add_datasum()
        image.header["DATASUM"] = datasum.format(image.header["DATASUM"])
        image.header["CHECKSUM"] = ""
        image.writeto(path)
        if datasum == "7":
            with pytest.raises(ReadError, match="DATASUM"):
                tiled(path)
        else:
            np.testing.assert_array_equal(fits.getdata(tiled(path)[0]), PIXELS)

    @given(words=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40))
    def test_checksums_are_those_of_astropy(self, words: list[int]) -> None:
        data = np.array(words, ">u4").tobytes().ljust(2880, b"\0")
        hdu = fits.PrimaryHDU(np.frombuffer(data, ">i4"))
        hdu.add_checksum(when="")
        assert hdu.header["DATASUM"] == str(ones_sum(data))
        zeros = hdu.header.copy()
        zeros["CHECKSUM"] = "0" * 16
        text = zeros.tostring().encode()
        assert encoded(ones_sum(text + data)) == hdu.header["CHECKSUM"]
        assert is_sound(hdu.header.tostring().encode() + data)


class TestDamage:
    """Nothing is made of a file that is not sound, and the reason is named."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "a.fits"
        rice(PIXELS, OBJECT="Sun").writeto(path, checksum=True)
        return path

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            (b"\0\0\0\0", b"\0\0\1\0", "DATASUM"),
            (b"'Sun     '", b"'Moon    '", "CHECKSUM"),
        ],
    )
    def test_wrong_checksums(self, path: Path, old: bytes, new: bytes, reason: str) -> None:
        content = path.read_bytes()
        at = content.rindex(old)
        path.write_bytes(content[:at] + new + content[at + len(old) :])
        with pytest.raises(ReadError, match=reason) as raised:
            tiled(path)
        assert (raised.value.hdu, raised.value.row) == (1, 3)

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    @pytest.mark.parametrize("last", ["image", "rice", "binary", "text"])
    def test_a_last_block_that_is_not_filled(self, path: Path, last: str, suffix: str) -> None:
        """It is in the copy; a file that lacks a byte of the data is rejected."""
        columns = [fits.Column("a", "I10", array=[1, 2])]
        hdu = {
            "image": fits.ImageHDU(PIXELS.astype(np.float32)),
            "rice": rice(PIXELS),
            "binary": fits.BinTableHDU.from_columns([fits.Column("a", "J", array=[1, 2])]),
            "text": fits.TableHDU.from_columns(columns),
        }[last]
        fits.HDUList([fits.PrimaryHDU(), rice(PIXELS), hdu]).writeto(
            path, checksum=True, overwrite=True
        )
        with fits.open(path, disable_image_compression=True) as hdus:
            end = hdus[2].fileinfo()["datLoc"] + hdus[2].size
        whole = path.read_bytes()
        packed = path.with_name(f"a.fits{suffix}")
        for cut in (end, end - 1):
            content = whole[:cut]
            packed.write_bytes(gzip.compress(content) if suffix else content)
            if cut < end:
                with pytest.raises(ReadError):
                    tiled(packed)
                continue
            copy, _ = tiled(packed)
            np.testing.assert_array_equal(fits.getdata(copy, 1), PIXELS)
            with fits.open(copy, disable_image_compression=True) as hdus:
                assert all(hdu.verify_datasum() == hdu.verify_checksum() == 1 for hdu in hdus[1:])
            assert copy.stat().st_size % 2880 == 0

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_truncated(self, path: Path, suffix: str) -> None:
        content, cut = path.read_bytes(), path.with_suffix(f".fits{suffix}")
        cut.write_bytes(gzip.compress(content)[:-1000] if suffix else content[:-2880])
        with pytest.raises(ReadError):
            tiled(cut)

    def test_a_copy_with_other_pixels(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(text: bytes, stored: np.ndarray, edge: int) -> bytes:
            return tiled_hdu(text, stored + 1, edge)

        monkeypatch.setattr("dali_pipelines.cli.prep.tiling.tiled_hdu", wrong)
        with pytest.raises(ReadError, match="other pixels"):
            tiled(path)


def test_the_command(
    tmp_path: Path, prep: Callable[..., list[str]], contents: Callable[[Path], Any]
) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    (archive / "sub").mkdir(parents=True)
    stream = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(PIXELS), rice(PIXELS + 1)]).writeto(stream)
    (archive / "sub/a.fits.gz").write_bytes(gzip.compress(stream.getvalue()))
    fits.PrimaryHDU(PIXELS / 2.0).writeto(archive / "b.fits")
    (archive / "c.fits").write_text("no FITS file")
    copied, bad, summary = prep(archive, "--tiles=64", status=1)
    assert re.match(f"{archive}/b.fits.* HDU 0: .*float64", copied)
    assert bad.startswith(f"bad {archive}/c.fits: not a FITS file")
    assert re.match("3 files: 2 written, 0 finished before, 1 bad; .* MB .* MB ", summary)
    made = contents(out)
    assert {*made} == {"prep.json", "b.fits", "sub/a.fits"}
    with fits.open(out / "sub/a.fits") as hdus:
        for number in 1, 2:
            np.testing.assert_array_equal(hdus[number].data, PIXELS + number - 1)
            assert hdus[number].tile_shape == (64, 64)
    assert "0 written, 2 finished before, 1 bad" in prep(archive, "--tiles=64", status=1)[-1]
    (line,) = prep(archive, "--tiles=32", status=2)
    for word in "prep.json", "tiles", "64", "32":
        assert word in line
    assert contents(out) == made
