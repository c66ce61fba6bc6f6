"""FitsReader, and the graph's arithmetic on what it gives, against astropy: bit for bit.

Only the sign of zero and the payload of NaN do not count. The axes of the comparison: BITPIX,
scaling cards, codec, tile shape, dither, plain and .gz and .fz, whole and window.
"""

from __future__ import annotations

import gzip
import itertools
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from elsewhere import OverHttp, OverS3
from fits_files import DamagedTile, card, decoded, plain_hdu, truth, write
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import (
    StoredImage,
    compressed_floats,
    compressed_integers,
    fractions,
    plain_images,
)

from dali_pipelines.kernels.fits.image import decode_image
from readers import FitsReader, ReadError, Row, Window
from readers.contract import Sample
from readers.fits.file import open_images
from readers.fits.payload import HEAD, PER_TILE, RICE, STORED
from readers.header_scan import file_facts
from readers.testing import (
    NUMBER,
    InContainer,
    InMemory,
    ReaderContract,
    check_named,
    refused,
    written,
)


def check_equal(row: Row, window: Window | None = None, reader: FitsReader | None = None) -> None:
    expected = truth(row.path, row.hdu).squeeze()
    if window is not None:
        y, x = window.place(*expected.shape)
        expected = expected[y : y + window.height, x : x + window.width]
    found = decoded((reader or FitsReader()).read(row, window))[..., 0]
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


RAMP = np.arange(31 * 23, dtype=np.int16).reshape(31, 23) * 40 - 14000


def saved(folder: Path, array: NDArray[Any] = RAMP, name: str = "image.fits", **cards: Any) -> Row:
    path = folder / name
    content = plain_hdu(array, cards)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Row(NUMBER, str(path))


def compressed(folder: Path, array: NDArray[Any] = RAMP, **settings: Any) -> Row:
    path = folder / "image.fits"
    write(path, StoredImage(array, {}, {"compression_type": "RICE_1", **settings}))
    return Row(NUMBER, str(path))


class TestFits(ReaderContract):
    @pytest.fixture
    def reader(self) -> FitsReader:
        return FitsReader()

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, BSCALE=0.1, BZERO=3, BLANK=40)

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, np.zeros((3, 4, 5), np.int16))

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return decoded(sample)


class TestCompressed(TestFits):
    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return compressed(tmp_path, tile_shape=(4, 9))


class TestGzipped(TestFits):
    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        noise = np.random.default_rng(0).integers(-9999, 9999, (150, 150), dtype=np.int16)
        return saved(tmp_path, noise, "image.fits.gz")


class TestFloat64(TestFits):
    """Travels as float32, read by another way."""

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, RAMP.astype(np.float64) / 3)


class TestHduOfTheReader(TestFits):
    @pytest.fixture
    def reader(self) -> FitsReader:
        return FitsReader(hdu=0)


class TestFitsInside(InContainer, TestFits): ...


class TestCompressedInside(InContainer, TestCompressed): ...


class TestGzippedInside(InContainer, TestGzipped): ...


class TestFitsOverS3(OverS3, TestFits): ...


class TestCompressedInMemory(InMemory, TestCompressed): ...


class TestCompressedOverS3(OverS3, TestCompressed): ...


class TestGzippedOverS3(OverS3, TestGzipped): ...


class TestCompressedOverHttp(OverHttp, TestCompressed): ...


# Real files.

REAL = [
    "aia_171_cutout.fits",
    "compressed_with_nan.fits",
    "decam_dither1.fits.fz",
    "hmi_sharp_br.fits",
    "m13.fits",
    "m13_gzip.fits",
    "m13_hcomp.fits",
    "m13_plio.fits",
    "m13_rice.fits",
]


def test_all_real_files_are_tested(shared_data: Path) -> None:
    assert sorted(path.name for path in (shared_data / "fits").iterdir()) == REAL


@pytest.mark.parametrize("name", REAL)
def test_real_file(shared_data: Path, name: str) -> None:
    row = Row(NUMBER, str(shared_data / "fits" / name))
    check_equal(row)
    whole = FitsReader().peek(row, None)
    size = max(1, whole.height // 3), max(1, whole.width // 3)
    for fraction in (None, 0.0, 0.37, 1 - 2**-53):
        check_equal(row, Window(height=size[0], width=size[1], y=fraction, x=fraction))


def test_rice_tiles_travel_compressed(shared_data: Path) -> None:
    row = Row(NUMBER, str(shared_data / "fits" / "aia_171_cutout.fits"))
    sample = FitsReader().read(row, None)
    assert sample["payload"].nbytes < 0.6 * sample["shape"].shape[0] * sample["shape"].shape[1] * 2
    assert sample["scaling"].tolist() == [1, 0, -32768]
    assert FitsReader().peek(row, None).nbytes < 1.3 * sample["payload"].nbytes


@pytest.mark.parametrize(
    "array", [RAMP, np.random.default_rng(0).normal(0, 99, RAMP.shape).astype(np.float32)]
)
def test_large_tiles_are_decoded_by_astropy(tmp_path: Path, array: NDArray[Any]) -> None:
    """Those of more pixels than the graph is to decode: a GPU has one thread for each."""
    row = compressed(tmp_path, array, tile_shape=(8, 23))
    for largest, of_astropy in ((8 * 23, False), (8 * 23 - 1, True)):
        reader = FitsReader(largest_tile=largest)
        for window in (None, Window(height=9, width=5)):
            check_equal(row, window, reader)
            sample = reader.read(row, window)
            stored = sample["plan"][HEAD:].reshape(-1, PER_TILE)[:, STORED]
            assert ((stored != RICE) == of_astropy).all()
            assert reader.peek(row, window).nbytes >= sample["payload"].size


@pytest.mark.parametrize("name", ["m13.fits.gz", "no_suffix"])
def test_gzipped_real_file(shared_data: Path, tmp_path: Path, name: str) -> None:
    content = (shared_data / "fits" / "m13_rice.fits").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content))
    check_equal(Row(NUMBER, str(tmp_path / name)))


# Written files.

windows = st.none() | st.builds(
    Window,
    height=st.integers(1, 4),
    width=st.integers(1, 4),
    y=st.none() | fractions,
    x=st.none() | fractions,
)


@given(plain_images(), windows, st.sampled_from(["image.fits", "image.fits.gz"]))
def test_plain(tmp_path: Path, image: StoredImage, window: Window | None, name: str) -> None:
    check_equal(saved(tmp_path, image.stored, name, **image.cards), window)


@given(compressed_integers(), windows)
def test_compressed_integers(tmp_path: Path, image: StoredImage, window: Window | None) -> None:
    write(tmp_path / "image.fits", image)
    row = Row(NUMBER, str(tmp_path / "image.fits"))
    with fits.open(row.path, do_not_scale_image_data=True) as hdus:
        neutral = {"BSCALE": 1, "BZERO": 0}
        for key, value in image.cards.items():
            assert hdus[1].header.get(key, neutral.get(key)) == value, "not the case it should be"
    check_equal(row, window)


@given(compressed_floats(), windows)
def test_compressed_floats(tmp_path: Path, image: StoredImage, window: Window | None) -> None:
    write(tmp_path / "image.fits", image)
    check_equal(Row(NUMBER, str(tmp_path / "image.fits")), window)


@pytest.mark.parametrize(
    ("dtype", "compression"),
    [("int32", None), ("int32", "RICE_1"), ("int32", "GZIP_2"), ("int64", None)],
)
def test_pixels_beside_blank(tmp_path: Path, dtype: str, compression: str | None) -> None:
    """As float32 they are the same."""
    limits = np.iinfo(dtype)
    for blank in (limits.min, 2**30, limits.max - 1):
        near = [[blank, blank + 1, 3, max(blank - 1, limits.min)]] * 4
        arguments = {"compression_type": compression} if compression else None
        image = StoredImage(np.array(near, dtype), {"BLANK": blank}, arguments)
        write(tmp_path / "image.fits", image)
        check_equal(Row(NUMBER, str(tmp_path / "image.fits")))


@pytest.mark.parametrize("method", [1, 2])
@pytest.mark.parametrize("side", [90, 128, 300])
def test_tiles_of_more_pixels_than_there_are_random_numbers(
    tmp_path: Path, method: int, side: int
) -> None:
    """The table has 10000, and each tile begins at another one."""
    values = np.random.default_rng(side).normal(100, 5, (side, 2 * side)).astype(np.float32)
    values[3, 5:9] = 0  # method 2 keeps it
    image = fits.CompImageHDU(
        values,
        compression_type="RICE_1",
        tile_shape=(side, side),
        quantize_method=method,
        dither_seed=side,
    )
    image.writeto(tmp_path / "image.fits")
    check_equal(Row(NUMBER, str(tmp_path / "image.fits")))


UNSIGNED = [
    (np.array([[-(2**15), -1, 0, 2**15 - 1]], np.int16), 2**15),
    (np.array([[-(2**31), -1, 0, 2**31 - 1]], np.int32), 2**31),
    (np.array([[-(2**63), -1, 0, 2**63 - 1]], np.int64), 2**63),
    (np.array([[0, 127, 128, 255]], np.uint8), -128),
]


@pytest.mark.parametrize(("stored", "offset"), UNSIGNED, ids=["u2", "u4", "u8", "i1"])
def test_unsigned_integers_and_signed_bytes(
    tmp_path: Path, stored: NDArray[Any], offset: int
) -> None:
    for blank in (None, 0, -1, 128):
        cards: dict[str, Any] = {} if blank is None else {"BLANK": blank}
        row = saved(tmp_path, stored, BSCALE=1, BZERO=offset, **cards)
        found = decoded(FitsReader().read(row, None)).reshape(-1)
        physical = np.array([float(int(value) + offset) for value in stored[0]], np.float32)
        if stored.dtype == np.uint8:  # astropy fails on a signed byte with BLANK
            physical[stored[0] == (blank or None)] = np.nan
        else:
            check_equal(row)
        np.testing.assert_array_equal(found, physical, err_msg=f"BLANK {blank}")


def test_bytes_above_an_offset_of_half_their_range_can_be_blank(tmp_path: Path) -> None:
    # With wider types such an offset means unsigned integers, of which astropy ignores BLANK.
    stored = np.array([[0, 127, 128, 255]], np.uint8)
    for blank in (127, 128, 255):
        row = saved(tmp_path, stored, BSCALE=1, BZERO=128, BLANK=blank)
        found = decoded(FitsReader().read(row, None)).reshape(-1)
        np.testing.assert_array_equal(np.isnan(found), stored[0] == blank, err_msg=f"{blank}")
        check_equal(row)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "f4", "f8"])
def test_values_beyond_float32(tmp_path: Path, dtype: str) -> None:
    each: list[dict[str, Any]] = [{"BSCALE": 1e300}, {"BZERO": 1e300}, {"BSCALE": 1e-300}]
    for cards in each:
        check_equal(saved(tmp_path, np.array([[0, 1, 2]], dtype), **cards))


def test_infinities_and_nan(tmp_path: Path) -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45]], np.float32)
    for dtype in (np.float32, np.float64):
        check_equal(saved(tmp_path, values.astype(dtype)))


# Which HDU.


def several(folder: Path) -> str:
    """Primary without image, table, image, compressed image, table by name."""
    table = fits.BinTableHDU.from_columns([fits.Column("a", "J", array=[1, 2])])
    hdus = [
        fits.PrimaryHDU(),
        table,
        fits.ImageHDU(RAMP + np.int16(1), name="SCI"),
        fits.CompImageHDU(RAMP + np.int16(2)),
        fits.ImageHDU(),
    ]
    fits.HDUList(hdus).writeto(folder / "several.fits", overwrite=True)
    return str(folder / "several.fits")


@pytest.mark.parametrize(
    ("of_reader", "of_row", "added"),
    [(None, None, 1), (2, None, 1), (3, None, 2), (None, 3, 2), (2, 3, 2), (3, 2, 1), (1, 2, 1)],
)
def test_the_row_decides_then_the_reader_then_the_content(
    tmp_path: Path, of_reader: int | None, of_row: int | None, added: int
) -> None:
    row = Row(NUMBER, several(tmp_path), of_row)
    reader = FitsReader(hdu=of_reader)
    np.testing.assert_array_equal(decoded(reader.read(row, None))[..., 0], RAMP + added)
    assert reader.peek(row, None).height == 31


WRONG = [
    (0, r"no image.*PrimaryHDU.*2 \(SCI\), 3 \(COMPRESSED_IMAGE\): name"),
    (1, r"no image.*BinTableHDU.*2 \(SCI\), 3 \(COMPRESSED_IMAGE\): name"),
    (4, r"no image.*ImageHDU.*2 \(SCI\), 3 \(COMPRESSED_IMAGE\): name"),
    (5, "no HDU 5, .*5 HDUs"),
    (99, "no HDU 99, .*5 HDUs"),
]


@pytest.mark.parametrize(("hdu", "words"), WRONG)
def test_wrong_hdu(tmp_path: Path, hdu: int, words: str) -> None:
    path = several(tmp_path)
    for reader, row in ((FitsReader(hdu), Row(NUMBER, path)), (FitsReader(), Row(17, path, hdu))):
        with pytest.raises(ReadError, match=rf"^{path}\[{hdu}\] \(row 17\): .*{words}"):
            reader.read(row, None)


def test_images_after_a_wrong_hdu_are_named_up_to_the_damage(tmp_path: Path) -> None:
    images = [fits.ImageHDU(RAMP) for _ in range(12)]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    row = Row(NUMBER, str(tmp_path / "a.fits"))
    refused(FitsReader(0), row, None, "1, 2, 3, 4, 5, 6, 7, 8, and 4 more: name")
    content = Path(row.path).read_bytes()
    Path(row.path).write_bytes(content[: len(content) // 2])
    refused(FitsReader(0), row, None, "HDU 0 .*no image.*: name")


def test_no_image_at_all(tmp_path: Path) -> None:
    path = tmp_path / "table.fits"
    fits.BinTableHDU.from_columns([fits.Column("a", "J", array=[1])]).writeto(path)
    refused(FitsReader(), Row(NUMBER, str(path)), None, "no HDU .*image")


@pytest.mark.parametrize("hdu", [None, 2, "ERR"])
@pytest.mark.parametrize("of_header", [80, 2880, 3000])  # of two blocks
def test_a_file_that_is_cut_off_in_a_header(tmp_path: Path, hdu: Any, of_header: int) -> None:
    path = tmp_path / "a.fits"
    pixels = np.zeros((9, 9), np.float32)
    first = fits.table_to_hdu(Table({"a": [1]})) if hdu is None else fits.CompImageHDU(pixels)
    second = fits.ImageHDU(pixels, fits.Header([(f"KEY{n}", n) for n in range(60)]), "ERR")
    fits.HDUList([fits.PrimaryHDU(), first, second]).writeto(path)
    with fits.open(path) as hdus:
        start = hdus[2].fileinfo()["hdrLoc"]
    os.truncate(path, start + of_header)
    row = Row(NUMBER, str(path))
    refused(FitsReader(hdu), row, None, "END card.*cut off")
    os.truncate(path, start)  # as a file that was meant to have no more
    assert "cut off" not in refused(FitsReader(hdu), row, None, "no HDU").reason


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"no FITS file", ""),
        (b"RIFF\x24\0\0\0WAVEfmt " * 999, ""),
        (b"SIMPLE   and no FITS" * 999, ""),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF" * 999, ".*jpeg_pipeline"),
        (b"\x93NUMPY\x01\x00v\x00" * 999, ".*npy_pipeline"),
    ],
)
def test_another_kind_of_file(tmp_path: Path, content: bytes, hint: str) -> None:
    row = written(tmp_path, content)
    refused(FitsReader(), row, None, f"not a FITS file.*{re.escape(repr(content[:8]))}{hint}")


# Which shapes.


@pytest.mark.parametrize("make", [saved, compressed])
@pytest.mark.parametrize("ones", [(), (1,), (1, 1)])
def test_axes_of_length_one(
    tmp_path: Path, make: Callable[..., Any], ones: tuple[int, ...]
) -> None:
    row = make(tmp_path, RAMP.reshape(*ones, 31, 23))
    assert FitsReader().peek(row, None).height == 31
    check_equal(row)
    check_equal(row, Window(height=5, width=4))


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (3, 0, 2)])
def test_empty_images(tmp_path: Path, shape: tuple[int, ...]) -> None:
    row = saved(tmp_path, np.zeros(shape, np.int16))
    refused(FitsReader(), row, None, rf"{re.escape(str(shape))}.*one pixel")


def test_column_of_pixels_and_single_pixel(tmp_path: Path) -> None:
    for shape in ((1, 1), (7, 1), (1, 7)):
        check_equal(saved(tmp_path, np.ones(shape, np.int16)))


# What is broken.


def pixels_or_none(row: Row, window: Window | None = None) -> NDArray[Any] | None:
    """Return the pixels, or None if the reader or the decoder refuses them; nothing else may."""
    try:
        return decoded(FitsReader().read(row, window))
    except ReadError as error:
        check_named(error, row)
        return None
    except DamagedTile:
        return None


@pytest.fixture(scope="module")
def sound_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Content of sound files, whose images lie behind one or two headers."""
    folder = tmp_path_factory.mktemp("sound")
    contents = {}
    noise = np.random.default_rng(1).normal(100, 20, (60, 50)).astype(np.float32)
    integers = noise.astype(np.int16)
    for name, image in {
        "plain": StoredImage(integers),
        "float64": StoredImage(noise.astype(np.float64)),
        "rice": StoredImage(integers, {}, {"compression_type": "RICE_1"}),
        "gzip_2": StoredImage(integers, {}, {"compression_type": "GZIP_2", "tile_shape": (7, 9)}),
        "dithered": StoredImage(noise, {}, {"quantize_method": 1, "dither_seed": 1}),
    }.items():
        write(folder / name, image)
        contents[name] = (folder / name).read_bytes()
    return {**contents, "gz": gzip.compress(contents["plain"])}


@pytest.mark.parametrize("window", [None, Window(height=3, width=4)])
def test_cut_anywhere(tmp_path: Path, sound_files: dict[str, bytes], window: Window | None) -> None:
    """ReadError, or all of the image: never other pixels, never another exception."""
    for name, content in sound_files.items():
        whole = decoded(FitsReader().read(written(tmp_path, content), window))
        outcomes = []
        blocks = [2880 * n + extra for n in range(1, 10) for extra in (-1, 0, 1)]
        for length in [*range(0, len(content), 397), *blocks, len(content) - 1]:
            found = pixels_or_none(written(tmp_path, content[:length]), window)
            outcomes.append(found is None)
            if found is not None:
                np.testing.assert_array_equal(found, whole, err_msg=name)
        assert sum(outcomes) > 3, name


@given(st.data())
def test_damaged_anywhere(
    tmp_path: Path, sound_files: dict[str, bytes], data: st.DataObject
) -> None:
    """Some bytes are wrong: pixels of the right shape or ReadError, never another exception."""
    content = bytearray(sound_files[data.draw(st.sampled_from(sorted(sound_files)))])
    places = st.integers(0, min(len(content), 6000) - 1) | st.integers(0, len(content) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=5)):
        content[place] = byte
    found = pixels_or_none(written(tmp_path, bytes(content)))
    assert found is None or found.size > 0


HOSTILE = [
    ("NAXIS1", 10**9),
    ("NAXIS1", -5),
    ("NAXIS", 99),
    ("BITPIX", 7),
    ("BITPIX", "'sixteen'"),
    ("BSCALE", "'one'"),
    ("BZERO", ""),
    ("BLANK", "'none'"),
    ("BLANK", 1.5),
]


@pytest.mark.parametrize(("key", "value"), HOSTILE)
def test_hostile_header(tmp_path: Path, key: str, value: float | str) -> None:
    """The same as astropy, or ReadError where astropy fails."""
    content = plain_hdu(RAMP, {"BSCALE": 1, "BZERO": 0, "BLANK": 7})
    lines = [content[start : start + 80] for start in range(0, 2880, 80)]
    number = next(n for n, line in enumerate(lines) if line.startswith(f"{key:<8}=".encode()))
    lines[number] = f"{key:<8}= {value:>20}".ljust(80).encode()
    row = written(tmp_path, b"".join(lines) + content[2880:])
    try:
        expected = truth(row.path)
    except Exception:
        assert pixels_or_none(row) is None
        return
    found = pixels_or_none(row)
    if found is not None:
        np.testing.assert_array_equal(found, expected.reshape(found.shape))


def foreign(kind: str, **cards: Any) -> bytes:
    """Return an extension of another kind."""
    content = plain_hdu(RAMP, {"PCOUNT": 0, "GCOUNT": 1, **cards})
    return f"XTENSION= '{kind:<8}'".ljust(80).encode() + content[80:]


EMPTY = fits.PrimaryHDU().header.tostring().encode()
GROUPS = plain_hdu(RAMP[None].T, {"GROUPS": True, "PCOUNT": 0, "GCOUNT": 1}).replace(
    card("NAXIS1", 1).encode(), card("NAXIS1", 0).encode()
)
ODD: dict[str, tuple[list[bytes], str]] = {
    "not standard": ([plain_hdu(RAMP, {}).replace(b" T ", b" F ", 1), foreign("IMAGE")], "SIMPLE"),
    "weird": ([EMPTY, foreign("WEIRD")], "image"),
    "no name": ([EMPTY, foreign("")], "image"),
    "table of arrays": ([EMPTY, foreign("A3DTABLE"), foreign("IMAGE")], ""),
    "foreign": ([EMPTY, foreign("FOREIGN"), foreign("IMAGE")], ""),
    "foreign behind": ([EMPTY, foreign("IMAGE"), foreign("FOREIGN")], ""),
    "named as the first": ([EMPTY, foreign("WEIRD", EXTNAME="PRIMARY"), foreign("IMAGE")], ""),
    "tiles in it": ([EMPTY, foreign("WEIRD", ZIMAGE=True), foreign("IMAGE")], ""),
    "groups": ([GROUPS, foreign("IMAGE")], ""),
    "groups alone": ([GROUPS], "image"),
    "groups of an extension": ([EMPTY, foreign("IMAGE", GROUPS=True)], ""),
    "odd EXTEND": (
        [
            EMPTY.replace(b"EXTEND  =                    T", b"EXTEND  = 'x'".ljust(30)),
            foreign("IMAGE"),
        ],
        "",
    ),
    "text in BITPIX": ([EMPTY, foreign("IMAGE").replace(b"    16", b"     7", 1)], "BITPIX is 7"),
    "text in NAXIS": ([EMPTY, foreign("IMAGE").replace(b"          2 ", b"        '2' ", 1)], "."),
}


@pytest.mark.parametrize(
    ("name", "suffix"), [*zip(ODD, itertools.cycle([".fits", ".fits.gz"]), strict=False)]
)
def test_hdus_of_another_kind(tmp_path: Path, name: str, suffix: str) -> None:
    """They are skipped, as by astropy; a file without an image is rejected in words of FITS."""
    parts, reason = ODD[name]
    content = b"".join(parts)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    row = Row(NUMBER, str(path))
    if reason:
        error = refused(FitsReader(), row, None, reason)
        assert "Attribute" not in error.reason
        return
    np.testing.assert_array_equal(decoded(FitsReader().read(row, None))[..., 0], RAMP)
    FitsReader().verify(row)
    (facts,) = file_facts(row.path, hdu="all")
    assert facts == file_facts(row.path)[0]
    with open_images(row.place) as (_, numbers):
        assert numbers == [facts["hdu"]]


@pytest.mark.parametrize("key", ["BSCALE", "BZERO"])
def test_a_keyword_without_a_value(tmp_path: Path, key: str) -> None:
    content = plain_hdu(RAMP, {key: 1})
    at = content.index(key.encode())
    row = written(tmp_path, content[: at + 9] + b" " * 71 + content[at + 80 :])
    with pytest.raises(ReadError, match=f"{key} must be a number, got no value"):
        FitsReader().read(row, None)


def test_warnings_of_astropy_are_not_passed_on(tmp_path: Path) -> None:
    row = saved(tmp_path, RAMP.astype(np.float32), BLANK=-32768)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FitsReader().read(row, None)


def test_no_file_stays_open(tmp_path: Path) -> None:
    for make in (saved, compressed):
        row = make(tmp_path)
        with Path(row.path).open("rb"):
            assert open_files(tmp_path) == [row.path]
        for _ in range(3):
            FitsReader().read(row, None)
            FitsReader().peek(row, None)
            with pytest.raises(ReadError):
                FitsReader(hdu=7).read(row, None)
        assert open_files(tmp_path) == []


def open_files(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open."""
    found = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [path for path in found if path.startswith(f"{folder}/")]


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "f4", "f8"])
def test_peek_tells_the_bytes_that_travel(tmp_path: Path, dtype: str) -> None:
    row = saved(tmp_path, RAMP.astype(dtype))
    for window in (None, Window(height=5, width=6)):
        sample = FitsReader().read(row, window)
        travelled = sum(sample[spec.name].nbytes for spec in FitsReader.specs)
        assert travelled <= FitsReader().peek(row, window).nbytes < travelled + 400


def test_a_window_of_a_plain_image_reads_only_its_rows(tmp_path: Path) -> None:
    row = saved(tmp_path, np.zeros((100, 9000), np.int16))
    assert FitsReader().read(row, None).input_bytes == 100 * 9000 * 2 + 2880
    window = Window(height=10, width=50)
    assert FitsReader().read(row, window).input_bytes == 10 * 50 * 2 + 2880
    check_equal(row, window)


# Integers as they are stored.


def stored_integers(row: Row, dtype: str, window: Window | None = None) -> NDArray[Any]:
    sample = FitsReader(stored=dtype).read(row, window)
    out = np.full((*sample["shape"].shape[:2], 1), 7, dtype)
    arrays = (sample[name] for name in ("payload", "plan", "scaling"))
    assert decode_image(out, *arrays, np.zeros(2, np.int32), np.zeros(0, np.float32)) == 0
    return out[..., 0]


@given(plain_images() | compressed_integers(), windows)
def test_stored_integers(tmp_path: Path, image: StoredImage, window: Window | None) -> None:
    path = tmp_path / "image.fits"
    write(path, image)
    dtype = image.stored.dtype.name
    row = Row(NUMBER, str(path))
    if dtype not in ("uint8", "int16", "int32"):
        refused(FitsReader(stored="int16"), row, None, "BITPIX is")
        return
    expected = image.stored
    if window is not None:
        y, x = window.place(*expected.shape)
        expected = expected[y : y + window.height, x : x + window.width]
    np.testing.assert_array_equal(stored_integers(row, dtype, window), expected)


def test_stored_integers_of_another_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="BITPIX is 16, expected 32"):
        FitsReader(stored="int32").read(compressed(tmp_path), None)
    with pytest.raises(ValueError, match=r"stored.*int32.*int64"):
        FitsReader(stored="int64")


# Tiles that RICE_1 could not shrink.


def test_tiles_in_the_gzip_column(tmp_path: Path) -> None:
    """cfitsio and astropy put a tile there whose floats span too much to be quantised."""
    random = np.random.default_rng(1)
    image = random.normal(0, 1, (12, 40)).astype(np.float32)
    image[3:6] *= 10.0 ** random.integers(-30, 30, (3, 40))
    row = compressed(tmp_path, image, tile_shape=(1, 40), quantize_level=4.0)
    found = FitsReader().read(row, None)["plan"][HEAD:].reshape(-1, PER_TILE)[:, STORED]
    assert found.tolist() == [RICE] * 3 + [-32] * 3 + [RICE] * 6
    check_equal(row)
    check_equal(row, Window(height=5, width=9))


@pytest.mark.parametrize("codec", [None, "RICE_1", "GZIP_2"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_header(tmp_path: Path, codec: str | None, suffix: str) -> None:
    """Of all the words that astropy gives of the image, those that are asked for."""
    words = {"WAVELNTH": 171, "DATE-OBS": "2015-01-01", "QUALITY": -(2**31), "PC1_1": 0.5}
    header = fits.Header(words)
    pixels = np.arange(35, dtype="i2").reshape(5, 7)
    hdu: Any = fits.PrimaryHDU(pixels, header)
    if codec:
        hdu = fits.CompImageHDU(pixels, header, compression_type=codec)
    hdu.writeto(tmp_path / f"a.fits{suffix}")
    row = Row(NUMBER, str(tmp_path / f"a.fits{suffix}"))
    words |= {"NAXIS": 2, "NAXIS1": 7, "NAXIS2": 5}
    found = FitsReader().header(row, [*words, "LVL_NUM"])
    assert {key: found[key] for key in (*words, "LVL_NUM") if key in found} == words


@pytest.mark.parametrize(("hdu", "name"), [(None, "N3"), (1, "N3"), (2, "N4")])
def test_header_of_an_hdu(tmp_path: Path, hdu: int | None, name: str) -> None:
    images = [fits.PrimaryHDU(), *(fits.ImageHDU(np.zeros((2, n)), name=f"N{n}") for n in (3, 4))]
    fits.HDUList(images).writeto(tmp_path / "a.fits")
    row = Row(NUMBER, str(tmp_path / "a.fits"), hdu)
    assert FitsReader().header(row, ["EXTNAME"])["EXTNAME"] == name
    with pytest.raises(ReadError, match=r"a\.fits\[0\] \(row 17\): .*no image"):
        FitsReader().header(replace(row, hdu=0), ["EXTNAME"])


def test_header_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"\(row 17\): .*No such file"):
        FitsReader().header(Row(NUMBER, str(tmp_path / "a.fits")), [])
