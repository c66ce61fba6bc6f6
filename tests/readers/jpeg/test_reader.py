from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from astropy.io import fits
from elsewhere import OverHttp, OverS3
from hypothesis import given
from hypothesis import strategies as st
from image_files import LOSSLESS, ORIENTATION, as_pillow, by_pillow, exif, pillow
from image_files import refused as decodes_otherwise
from numpy.typing import NDArray
from PIL import Image, ImageOps

from readers import JpegReader, Peek, ReadError, Row, Window
from readers.contract import Sample
from readers.jpeg.mcu.find import find_mcu_rows
from readers.jpeg.sample_format import stored_bits
from readers.jpeg.structure import structure_of
from readers.quiet import without_warnings
from readers.testing import (
    NUMBER,
    InContainer,
    InMemory,
    ReaderContract,
    check_named,
    refused,
    written,
)

NOISE = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
PICTURE = Image.fromarray(NOISE)  # 64 wide, 40 high


def encoded(image: Image.Image = PICTURE, form: str = "JPEG", **settings: Any) -> bytes:
    return pillow(image, form, **settings)


def with_segment(jpeg: bytes, content: bytes) -> bytes:
    """Put an EXIF segment behind the start of a JPEG."""
    segment = b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content
    return jpeg[:2] + segment + jpeg[2:]


class TestJpeg(ReaderContract):
    channels = 3
    content = encoded()

    @pytest.fixture
    def reader(self) -> JpegReader:
        return JpegReader(self.channels)

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        (tmp_path / "image.jpg").write_bytes(self.content)
        return Row(NUMBER, str(tmp_path / "image.jpg"))

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return written(tmp_path, fits_image())

    def pixels(self, sample: Sample) -> NDArray[Any]:
        image = Image.open(io.BytesIO(sample["encoded"].tobytes()))
        (y, x), (height, width) = sample["anchor"], sample["shape"]
        mode = "RGB" if self.channels == 3 else "L"
        displayed = np.atleast_3d(np.asarray(ImageOps.exif_transpose(image).convert(mode)))
        return displayed[y : y + height, x : x + width]


class TestGray(TestJpeg):
    channels = 1


class TestTurned(TestJpeg):
    content = encoded(exif=exif(6))


class TestPng(TestJpeg):
    """Whatever its suffix says."""

    content = encoded(form="PNG")


class TestByPillow(TestJpeg):
    """What Pillow decodes: only the pixels of the window are sent."""

    content = encoded(form="TIFF", compression="jpeg", tiffinfo={ORIENTATION: 6})


class TestGrayByPillow(TestByPillow):
    channels = 1


class TestJpegInside(InContainer, TestJpeg): ...


class TestJpegInMemory(InMemory, TestJpeg): ...


class TestJpegOverS3(OverS3, TestJpeg): ...


class TestJpegOverHttp(OverHttp, TestJpeg): ...


def test_the_bytes_of_the_file_travel(tmp_path: Path) -> None:
    content = encoded()
    sample = JpegReader().read(written(tmp_path, content), None)
    assert sample["encoded"].tobytes() == content
    assert sample.input_bytes == len(content)
    assert sample["anchor"].tolist() == [0, 0]
    assert sample["shape"].tolist() == [40, 64]


def test_a_window_travels_as_numbers(tmp_path: Path) -> None:
    row = written(tmp_path, encoded())
    sample = JpegReader().read(row, Window(height=10, width=20, y=0.5, x=None))
    assert sample["encoded"].tobytes() == encoded()
    assert sample["anchor"].tolist() == [15, 22]
    assert sample["shape"].tolist() == [10, 20]


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (64, 40), (2, 70_000)])
def test_blank_decodes_to_its_size(size: tuple[int, int]) -> None:
    image = Image.open(io.BytesIO(JpegReader().blank(*size)["encoded"].tobytes()))
    assert image.size == size[::-1]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_size_is_as_displayed(tmp_path: Path, orientation: int) -> None:
    for form in ("JPEG", "PNG", "WEBP", "TIFF"):
        content = encoded(form=form, exif=exif(orientation))
        displayed = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
        assert displayed.size == ((64, 40) if orientation < 5 else (40, 64)), form
        row = written(tmp_path, content)
        peek, sample = JpegReader().peek(row, None), JpegReader().read(row, None)
        nbytes = sample["encoded"].nbytes
        assert peek == Peek(height=displayed.height, width=displayed.width, nbytes=nbytes), form
        assert sample["shape"].tolist() == [displayed.height, displayed.width], form


def test_a_window_is_in_the_image_as_displayed(tmp_path: Path) -> None:
    row = written(tmp_path, encoded(exif=exif(6)))
    sample = JpegReader().read(row, Window(height=64, width=40))
    assert sample["anchor"].tolist() == [0, 0]
    refused(JpegReader(), row, Window(height=40, width=64), "64x40")


BROKEN_EXIF = [
    b"Exif\0\0",
    b"Exif\0\0garbage!garbage!",
    b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
    b"Exif\0\0II*\0\xff\xff\xff\x7f",
    b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x0f\0\x02\xff\xff\xff\xff\0\0\0\x08\0\0\0\0",
]


@pytest.mark.parametrize("content", BROKEN_EXIF)
def test_broken_exif_does_not_matter(tmp_path: Path, content: bytes) -> None:
    row = written(tmp_path, with_segment(encoded(), content))
    assert JpegReader().peek(row, None).height == 40


def exif_block(*entries: Any, start: bytes = b"Exif\0\0II*\0") -> bytes:
    """Make EXIF data of (tag, type, count, value) each."""
    packed = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return start + struct.pack("<IH", 8, len(entries)) + packed + bytes(4)


@pytest.mark.parametrize(("kind", "value"), [(3, 0), (4, 1), (3, 99), (4, 99)])
def test_an_invalid_orientation_does_not_matter(tmp_path: Path, kind: int, value: int) -> None:
    row = written(tmp_path, with_segment(encoded(), exif_block((ORIENTATION, kind, 1, value))))
    assert JpegReader().peek(row, None).height == 40


@pytest.mark.parametrize("orientation", [1, 6, 8])
def test_a_warning_does_not_hide_the_orientation(tmp_path: Path, orientation: int) -> None:
    """Warnings are errors here, and Pillow warns about the first tag, whose text is not there."""
    block = exif_block((0x10F, 2, 9000, 8), (ORIENTATION, 3, 1, orientation))
    content = with_segment(encoded(), block)
    with pytest.warns(UserWarning, match="Skipping tag"), Image.open(io.BytesIO(content)) as image:
        displayed = ImageOps.exif_transpose(image)
    row = written(tmp_path, content)
    noted = replace(row, notes={"mcu_rows": find_mcu_rows(content).pack()})
    for each in (row, noted):
        sample = JpegReader().read(each, Window(height=displayed.height, width=displayed.width))
        assert sample.image_size == (displayed.height, displayed.width)


def several_pictures() -> bytes:
    return encoded(form="MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])


FORMS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "GIF", "TGA", "PCX", "SGI", "DDS")

READ: dict[str, Callable[[], bytes]] = {
    "gray": lambda: encoded(PICTURE.convert("L")),
    "CMYK": lambda: encoded(PICTURE.convert("CMYK")),
    "progressive": lambda: encoded(progressive=True),
    "MPO": several_pictures,
    "padded": lambda: encoded() + bytes(100),
    "padded a lot": lambda: encoded() + bytes(10_000),
    "fill before restart markers": lambda: re.sub(
        rb"(?=\xff[\xd0-\xd7])", lambda _: b"\xff\xff", encoded(restart_marker_blocks=2)
    ),
    "two DRI": lambda: encoded()[:2] + b"\xff\xdd\0\4\0\1" + encoded(restart_marker_rows=1)[2:],
    "half, but ended": lambda: encoded()[:1500] + b"\xff\xd9",  # DALI fills the rest
    "palette PNG": lambda: encoded(PICTURE.convert("P"), "PNG"),
    "PNG with alpha": lambda: encoded(PICTURE.convert("RGBA"), "PNG"),
    **{form: partial(encoded, form=form) for form in FORMS},
}


@pytest.mark.parametrize("kind", READ)
def test_read(tmp_path: Path, kind: str) -> None:
    sample = JpegReader().read(written(tmp_path, READ[kind]()), None)
    assert sample["shape"].tolist() == [40, 64]


def thumbnail() -> bytes:
    """A JPEG whose EXIF data hold another, whole JPEG, which ends near the end of the file."""
    small = encoded(PICTURE.resize((16, 16)))
    return with_segment(encoded(), b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0" + small)


def with_marker(marker: int) -> bytes:
    """A JPEG with an empty segment of some kind."""
    return encoded()[:2] + bytes((0xFF, marker, 0, 2)) + encoded()[2:]


def with_sampling(*factors: int) -> bytes:
    """A JPEG whose header says that its components have other sampling factors."""
    changed = bytearray(encoded())
    first = changed.index(b"\xff\xc0") + 11
    changed[first : first + 9 : 3] = bytes(factors)
    return bytes(changed)


def with_height(content: bytes, height: int) -> bytes:
    """Change the height of a TIFF that Pillow wrote."""
    entry = struct.pack("<HHII", 257, 4, 1, 40)
    assert entry in content
    return content.replace(entry, entry[:8] + struct.pack("<I", height))


def fits_image() -> bytes:
    stream = io.BytesIO()
    fits.PrimaryHDU(NOISE).writeto(stream)
    return stream.getvalue()


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (lambda: b"hello world", "not an image.*b'hello wo'"),
    "no FITS": (lambda: b"SIMPLE  =" * 99, "not an image.*fits_pipeline"),
    "FITS": (fits_image, "FITS.*fits_pipeline"),
    ".npy": (lambda: b"\x93NUMPY" * 99, "not an image.*npy_pipeline"),
    "empty": (lambda: b"", "the file is empty"),
    "half an AVIF": (lambda: encoded(form="AVIF")[:400], "not decoded.*AVIF"),
    "head of a GIF": (lambda: b"GIF87a" + bytes(4), "not decoded.*GIF.*damaged"),
    "no end": (lambda: encoded()[:-2], "truncated"),
    "half": (lambda: encoded()[:1500], "truncated"),
    "head": (lambda: encoded()[:300], "."),
    "half a progressive one": (lambda: encoded(progressive=True)[:1500], "truncated"),
    "half a PNG": (lambda: encoded(form="PNG")[:1500], "."),
    "two frames": (
        lambda: encoded()[:158] + encoded()[158:177] + encoded()[158:],
        "broken data stream",
    ),
    "a TIFF without a strip": (
        lambda: with_height(encoded(form="TIFF"), 44),
        "1 of 2 strips.*damaged",
    ),
    "junk before the first segment": (
        lambda: encoded()[:2] + b"junk" + encoded()[2:],
        "damaged.*marker.*byte 2",
    ),
    "tables without a length": (
        lambda: encoded()[:20] + b"\xff\xc4\0\0" + encoded()[20:],
        "damaged.*segment at byte 24.*length of 0",
    ),
    "two scans": (
        lambda: encoded()[:-2] + encoded()[encoded().index(b"\xff\xda") :],
        "damaged.*scan at byte.*complete",
    ),
    "a segment of no known kind": (lambda: with_marker(0xF0), "broken data stream"),
    "colours of 12 blocks": (lambda: with_sampling(0x22, 0x22, 0x22), "broken data stream"),
    "factors over 4": (lambda: with_sampling(0x51, 0x11, 0x11), "cannot identify|broken data"),
    "colours of 2/3 of the width": (lambda: with_sampling(0x31, 0x21, 0x21), "broken data stream"),
    "thumbnail whole, image not": (lambda: thumbnail()[:-900], "truncated"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(tmp_path: Path, kind: str) -> None:
    make, message = REFUSED[kind]
    row = written(tmp_path, make())
    assert re.search(message, refused(JpegReader(), row, None).reason)


def false_marker(jpeg: bytes, marker: int) -> bytes:
    """Overwrite two bytes in the midst of the entropy-coded data."""
    middle = (jpeg.index(b"\xff\xda") + len(jpeg)) // 2
    return jpeg[:middle] + bytes((0xFF, marker)) + jpeg[middle + 2 :]


CODINGS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "progressive": {"progressive": True},
    "optimized": {"optimize": True, "quality": 60},
    "restarts": {"restart_marker_blocks": 2},
    "progressive restarts": {"progressive": True, "restart_marker_blocks": 2},
}


@pytest.mark.parametrize("coding", CODINGS)
def test_a_false_marker_is_found(tmp_path: Path, coding: str) -> None:
    """libjpeg stops there, and DALI delivers the rest of the image in grey."""
    jpeg = encoded(**CODINGS[coding])
    for marker in (0x01, 0x3A, 0xC0, 0xC4, 0xD3, 0xD8, 0xDA, 0xDB, 0xE1, 0xF7, 0xFE):
        refused(JpegReader(), written(tmp_path, false_marker(jpeg, marker)), None, "damaged")


@pytest.mark.parametrize("coding", CODINGS)
def test_a_false_segment_is_found(tmp_path: Path, coding: str) -> None:
    """A whole one, and the rest of the scan is junk behind it: only decoding tells."""
    jpeg = encoded(**CODINGS[coding])
    middle = (jpeg.index(b"\xff\xda") + len(jpeg)) // 2
    for marker in (0xE1, 0xEF, 0xFE):
        content = jpeg[:middle] + bytes((0xFF, marker, 0, 16)) + jpeg[middle + 4 :]
        with pytest.raises(ValueError, match="Corrupt JPEG data"):
            simplejpeg.decode_jpeg(content)
        with pytest.raises(ReadError, match="damaged"):
            JpegReader().read(written(tmp_path, content), None)


def gaps(jpeg: bytes) -> list[int]:
    """Return where segments begin, behind the start of the image."""
    found, at = [2], 2
    while jpeg[at + 1] != 0xD9:
        is_scan = jpeg[at + 1] == 0xDA
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        while is_scan and (jpeg[at] != 0xFF or jpeg[at + 1] == 0 or jpeg[at + 1] & 0xF8 == 0xD0):
            at += 1
        found.append(at)
    return found


def shown(content: bytes) -> NDArray[Any] | None:
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError):
        return None


JUNK = st.binary(max_size=50) | st.lists(
    st.sampled_from([b"\xff", b"\0", b"\xd3", b"\2", b"\xe1\0\4", b"\xfe\0\0", b"\xd9", b"\xc4"]),
    max_size=50,
).map(b"".join)


@given(coding=st.sampled_from(sorted(CODINGS)), junk=JUNK, data=st.data())
def test_bytes_between_segments(
    tmp_path: Path, coding: str, junk: bytes, data: st.DataObject
) -> None:
    """Whatever Pillow shows as the sound image is read, and without them; else it is rejected."""
    jpeg = encoded(**CODINGS[coding])
    at = data.draw(st.sampled_from(gaps(jpeg)))
    content = jpeg[:at] + junk + jpeg[at:]
    row, expected, sound = written(tmp_path, content), shown(content), shown(jpeg)
    assert sound is not None
    is_shown = expected is not None and np.array_equal(expected, sound)
    is_behind_a_scan = b"\xff\xda" in jpeg[:at]
    if b"\xff" in junk and is_behind_a_scan:  # or damage within the scan
        return
    for window in (None, Window(height=8, width=8, y=0.9, x=0.4)):
        if not is_shown:
            refused(JpegReader(), row, window)
            continue
        sample = JpegReader().read(row, window)
        sent = sample["encoded"].tobytes()
        # simplejpeg is strict, but with bytes that may be of a scan.
        whole = shown(sent) if is_behind_a_scan else simplejpeg.decode_jpeg(sent)
        assert whole is not None
        (y, x), (height, width) = sample["anchor"], sample["shape"]
        top, left = window.place(40, 64) if window else (0, 0)
        part = sound[top : top + height, left : left + width]
        np.testing.assert_array_equal(whole[y : y + height, x : x + width], part)


@given(
    coding=st.sampled_from(sorted(CODINGS)),
    quality=st.integers(1, 100),
    seed=st.integers(0, 1 << 32),
)
def test_no_good_jpeg_is_refused(tmp_path: Path, coding: str, quality: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    noise = random.integers(0, 256, (*random.integers(1, 80, 2), 3), dtype=np.uint8)
    image = Image.fromarray(noise).convert(random.choice(["L", "RGB", "CMYK"]))
    jpeg = encoded(image, **{"quality": quality} | CODINGS[coding])
    assert structure_of(jpeg).header is not None
    JpegReader().verify(written(tmp_path, jpeg))
    JpegReader(check_entropy=True).read(written(tmp_path, jpeg + bytes(9)), None)


def test_restart_markers_that_are_lost_or_swapped_are_found(tmp_path: Path) -> None:
    jpeg = encoded(restart_marker_blocks=1)
    places = [place for place in range(len(jpeg) - 1) if jpeg[place : place + 2] == b"\xff\xd2"]
    lost = jpeg[: places[0]] + jpeg[places[0] + 2 :]
    swapped = jpeg[: places[0] + 1] + b"\xd5" + jpeg[places[0] + 2 :]
    for damaged in (lost, swapped):
        refused(JpegReader(), written(tmp_path, damaged), None, "is out of order")


def of_three_scans(*intervals: int) -> bytes:
    """Return a JPEG with a scan of its own for each of Y, Cb and Cr; intervals of 0 are none."""
    scans = b""
    for number, interval in enumerate(intervals):
        gray = encoded(PICTURE.getchannel(number), restart_marker_blocks=interval)
        head, frame, rest = re.split(rb"(\xff\xc0\0\x0b.{6})\x01\x11\0", gray, flags=re.DOTALL)
        tables, scan = rest.split(b"\xff\xda")
        dri = b"\xff\xdd\0\4" + struct.pack(">H", interval)
        scans += tables.partition(b"\xff\xdd")[0] + dri + b"\xff\xda"
        scans += scan[:3] + bytes((number + 1,)) + scan[4:-2]
    frame = frame[:3] + b"\x11" + frame[4:-1] + b"\3\1\x11\0\2\x11\0\3\x11\0"
    return head + frame + scans + b"\xff\xd9"


@pytest.mark.parametrize("intervals", [(3, 3, 3), (1, 7, 2), (5, 0, 3), (0, 4, 0), (40, 1, 39)])
def test_each_scan_has_its_own_restarts(tmp_path: Path, intervals: tuple[int, ...]) -> None:
    """Their numbers begin at 0 again in each scan, and DRI may change between scans."""
    jpeg = of_three_scans(*intervals)
    with Image.open(io.BytesIO(jpeg)) as image:
        image.draft("YCbCr", image.size)
        for number, plane in enumerate(image.split()):
            gray = simplejpeg.decode_jpeg(encoded(PICTURE.getchannel(number)), "GRAY")
            np.testing.assert_array_equal(plane, gray[..., 0])
    JpegReader().verify(written(tmp_path, jpeg))
    for found in re.finditer(rb"\xff[\xd0-\xd7]", jpeg):
        other = bytearray(jpeg)
        other[found.start() + 1] ^= 1
        refused(JpegReader(), written(tmp_path, bytes(other)), None, "is out of order")


@pytest.mark.parametrize("bit", range(8))
def test_each_flipped_bit_of_a_png_is_found(tmp_path: Path, bit: int) -> None:
    content = bytearray(encoded(form="PNG"))
    for place in range(60, len(content) - 12, 397):
        content[place] ^= 1 << bit
        row = written(tmp_path, bytes(content))
        refused(JpegReader(), row, None, "checksum.*b'IDAT' at byte 33")
        content[place] ^= 1 << bit


def test_a_png_without_its_last_byte_is_refused(tmp_path: Path) -> None:
    """Pillow reads it, DALI does not."""
    content = encoded(form="PNG")[:-1]
    Image.open(io.BytesIO(content)).load()
    refused(JpegReader(), written(tmp_path, content), None, "within the PNG chunk")


@pytest.mark.parametrize("coding", CODINGS)
def test_the_entropy_coded_data_are_checked_where_asked_for(tmp_path: Path, coding: str) -> None:
    """Data that end too early, which no marker shows."""
    jpeg = encoded(**CODINGS[coding])
    row = written(tmp_path, jpeg[: 2 * len(jpeg) // 3].rstrip(b"\xff") + b"\xff\xd9")
    for window in (None, Window(height=8, width=8, y=0.0, x=0.0)):
        JpegReader().read(row, window)
        with pytest.raises(ReadError, match="Corrupt JPEG data"):
            JpegReader(check_entropy=True).read(row, window)
    with pytest.raises(ReadError, match="Corrupt JPEG data"):
        JpegReader().verify(row)


@pytest.mark.parametrize("name", LOSSLESS)
def test_depth(tmp_path: Path, name: str) -> None:
    content, values = LOSSLESS[name]
    row = written(tmp_path, content)
    assert bool(JpegReader().read(row, None)["deep"]) == (values.dtype == np.uint16)
    for dtype in ("uint8", "uint16"):
        reader = JpegReader(stored=dtype)
        if values.dtype == dtype:
            reader.read(row, None)
        else:
            refused(reader, row, None, f"bits per sample, expected {dtype[4:]}")


@pytest.mark.parametrize("name", decodes_otherwise())
def test_images_that_dali_does_not_decode_are_refused(tmp_path: Path, name: str) -> None:
    content, reason = decodes_otherwise()[name]
    assert reason in refused(JpegReader(), written(tmp_path, content), None).reason


def test_pixels_are_forecast_where_pillow_decodes(tmp_path: Path) -> None:
    """A fax of few bytes becomes many."""
    blank = Image.new("1", (3000, 2000))
    row = written(tmp_path, encoded(blank, "TIFF", compression="group4"))
    for window in (None, Window(height=100, width=200, y=0.5, x=0.1), Window(height=9999, width=1)):
        nbytes = JpegReader().peek(row, window).nbytes
        if window is None or window.height < 2000:
            sample = JpegReader().read(row, window)
            assert nbytes == sample["encoded"].nbytes
            assert (sample["shape"].prod()) <= nbytes


@pytest.mark.parametrize(
    ("setting", "value"), [("channels", 4), ("channels", None), ("stored", "int16")]
)
def test_settings(setting: str, value: Any) -> None:
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError, match=f"{setting}.*, got {value!r}"):
        JpegReader(**settings)


def test_verify_decodes_all_of_the_image(tmp_path: Path) -> None:
    """Damage that `read` cannot notice without decoding."""
    content = bytearray(encoded(form="PNG"))
    (length,) = struct.unpack_from(">I", content, 33)
    content[33 + 8 + length // 2] ^= 0xFF
    struct.pack_into(">I", content, 41 + length, zlib.crc32(content[37 : 41 + length]))
    row = written(tmp_path, bytes(content))
    JpegReader().read(row, None)
    with pytest.raises(ReadError, match="broken data stream"):
        JpegReader().verify(row)


def test_a_thumbnail_is_not_the_image(tmp_path: Path) -> None:
    assert JpegReader().peek(written(tmp_path, thumbnail()), None).height == 40


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_cut_anywhere(tmp_path: Path, form: str) -> None:
    content = encoded(form=form)
    for length in range(0, len(content) - 1, 53):
        refused(JpegReader(), written(tmp_path, content[:length]), None)


KINDS = by_pillow() | {form: encoded(form=form) for form in FORMS}


@given(st.sampled_from(sorted(KINDS)), st.sampled_from((1, 3)), st.data())
def test_damaged_anywhere(tmp_path: Path, kind: str, channels: int, data: st.DataObject) -> None:
    """Where Pillow decodes, its pixels are sent, or the file is refused by name."""
    content = bytearray(KINDS[kind])
    size = len(content)
    places = st.integers(0, min(600, size - 1)) | st.integers(0, size - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=5)):
        content[place] = byte
    del content[data.draw(st.just(size) | places) :]
    row, reader = written(tmp_path, bytes(content)), JpegReader(channels)
    try:
        reader.verify(row)
    except ReadError as error:
        check_named(error, row)
    try:
        sent = reader.read(row, None)["encoded"].tobytes()
    except ReadError as error:
        check_named(error, row)
        return
    if sent.startswith((b"P5 ", b"P6 ")):
        with without_warnings:
            expected = as_pillow(bytes(content), channels)
        np.testing.assert_array_equal(as_pillow(sent, channels), expected)


def test_real_photographs(shared_data: Path) -> None:
    for number, path in enumerate(sorted((shared_data / "jpeg").rglob("*.jpg"))):
        with Image.open(path) as image:
            width, height = ImageOps.exif_transpose(image).size
        peek = JpegReader().peek(Row(number, str(path)), None)
        assert (peek.height, peek.width, peek.nbytes) == (height, width, path.stat().st_size)


@pytest.mark.parametrize(
    ("form", "mode"),
    [("JPEG", mode) for mode in ("L", "RGB", "CMYK")]
    + [("PNG", mode) for mode in ("L", "RGB", "P", "I;16", "RGBA")],
)
def test_headers_are_parsed_as_pillow_does(form: str, mode: str) -> None:
    """Of sound files, and where a byte of the header was changed; or they are left to Pillow."""
    sound = encoded(Image.new(mode, (56, 40)), form)
    assert structure_of(sound).header is not None
    for place in range(2, min(len(sound), 200)):
        for value in (0, 1, 0xC1, 0xDA, 0xFF, sound[place] ^ 0x80):
            changed = with_checksums(sound[:place] + bytes((value,)) + sound[place + 1 :])
            try:
                header = structure_of(changed).header
            except ValueError:  # damaged
                continue
            if header is None or header.height * header.width > 10**7:
                continue
            with Image.open(io.BytesIO(changed)) as image:
                assert header[:3] == (image.format, image.height, image.width)
                assert header.bits == (16 if stored_bits(changed, image) > 8 else 8)


def with_checksums(data: bytes) -> bytes:
    """Write the checksums of the chunks of a PNG anew."""
    changed, at = bytearray(data), 8
    while data.startswith(b"\x89PNG") and at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if at + 12 + length > len(data):
            break
        checksum = zlib.crc32(changed[at + 4 : at + 8 + length])
        struct.pack_into(">I", changed, at + 8 + length, checksum)
        at += 12 + length
    return bytes(changed)
