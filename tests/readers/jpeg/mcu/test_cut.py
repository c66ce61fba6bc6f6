"""Regions cut out of JPEG files by their MCUs have the pixels of the whole file."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import exif, pillow
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dali_pipelines import Index
from dali_pipelines.jpeg_index import with_mcu_rows
from readers import JpegReader, ReadError, Row, Window
from readers.jpeg.header import HuffmanTable, JpegHeader, NoRowsError
from readers.jpeg.mcu.codes import with_all_categories
from readers.jpeg.mcu.cut import cut_file, cut_rows
from readers.jpeg.mcu.find import find_mcu_rows
from readers.jpeg.mcu.region import McuRegion
from readers.jpeg.mcu.rows import ChangedRowsError, DamagedRowsError, McuRows


def photo(height: int, width: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Return a picture with noise and edges, smooth in parts, so that codes are of all lengths."""
    random = np.random.default_rng(seed)
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    coarse = random.integers(0, 256, (height // 16 + 1, width // 16 + 1, channels), np.uint8)
    pixels = np.kron(coarse, np.ones((16, 16, 1), np.uint8))[:height, :width].astype(int)
    noise = random.integers(-90, 90, pixels.shape) * (np.arange(width) > width // 2)[:, None]
    pixels = np.clip(pixels + noise, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode)


def pixels(jpeg: bytes) -> NDArray[Any]:
    with Image.open(io.BytesIO(jpeg)) as image:
        return np.asarray(ImageOps.exif_transpose(image))


def cut(jpeg: bytes, region: McuRegion, *, noted: bool) -> bytes:
    header = JpegHeader.parse(jpeg)
    if not noted:
        return cut_file(jpeg, header, region)
    rows = find_mcu_rows(jpeg)
    begin, end = rows.byte_range(region.top, region.top + region.rows - 1)
    return cut_rows(jpeg[: header.nbytes], header, region, rows, jpeg[begin:end])


def inner(jpeg: bytes, region: McuRegion) -> tuple[slice, slice]:
    """Return the pixels of a region whose colours take no part of what is beside it."""
    header = JpegHeader.parse(jpeg)
    (y, height), (x, width) = (
        (first * size + (first > 0), (first + count) * size - (first + count < most))
        for first, count, size, most in (
            (region.top, region.rows, header.mcu_height, header.num_rows),
            (region.left, region.columns, header.mcu_width, header.num_columns),
        )
    )
    return slice(y, height), slice(x, width)


def assert_is_cut(found: bytes, jpeg: bytes, region: McuRegion) -> None:
    header = JpegHeader.parse(jpeg)
    of_cut, (rows, columns) = pixels(found), inner(jpeg, region)
    y, x = region.top * header.mcu_height, region.left * header.mcu_width
    assert of_cut.shape[:2] == region.size(header)
    in_cut = of_cut[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]
    np.testing.assert_array_equal(in_cut, pixels(jpeg)[rows, columns])


def patched(jpeg: bytes, marker: int, offset: int, value: int) -> bytes:
    """Change a byte of a segment."""
    at = jpeg.index(bytes((0xFF, marker))) + offset
    return jpeg[:at] + bytes((value,)) + jpeg[at + 1 :]


def any_region(jpeg: bytes, data: st.DataObject) -> McuRegion:
    header = JpegHeader.parse(jpeg)
    top = data.draw(st.integers(0, header.num_rows - 1))
    # Not the last column alone: libjpeg interpolates no colours of which it has two pixels or less.
    left = data.draw(st.integers(0, max(0, header.num_columns - 2)))
    rows = data.draw(st.integers(1, header.num_rows - top))
    return McuRegion(top, rows, left, data.draw(st.integers(1, header.num_columns - left)))


@given(
    height=st.integers(1, 120),
    width=st.integers(1, 90),
    mode=st.sampled_from(["RGB", "L", "CMYK"]),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    optimize=st.booleans(),
    noted=st.booleans(),
    data=st.data(),
)
@settings(deadline=None)
def test_a_region_has_the_pixels_of_the_file(
    height: int,
    width: int,
    mode: str,
    quality: int,
    subsampling: str,
    optimize: bool,
    noted: bool,
    data: st.DataObject,
) -> None:
    options: dict[str, Any] = {"quality": quality, "subsampling": subsampling, "optimize": optimize}
    jpeg = pillow(photo(height, width, mode), **options)
    region = any_region(jpeg, data)
    assert_is_cut(cut(jpeg, region, noted=noted), jpeg, region)


def black_and_white(rows: int) -> Image.Image:
    """Return rows of three flat blocks, with many bytes of 0xFF near their ends.

    White after black is coded as nine ones, and 010.
    """
    random = np.random.default_rng(0)
    blocks = random.choice(np.array([0, 255], np.uint8), (rows, 3))
    blocks[:, 0] = random.integers(0, 256, rows)  # so that rows begin at any bit
    return Image.fromarray(np.kron(blocks, np.ones((8, 8), np.uint8)))


def test_rows_that_begin_beside_a_stuffed_zero() -> None:
    before, behind = 0, 0
    for jpeg in (pillow(black_and_white(400)), pillow(photo(4000, 24, "L"), quality=97)):
        header, rows, whole = JpegHeader.parse(jpeg), find_mcu_rows(jpeg), pixels(jpeg)
        for row in range(header.num_rows):
            begin, end = rows.byte_range(row, row)
            region = McuRegion(row, 1, 0, header.num_columns)
            found = cut_rows(jpeg[: header.nbytes], header, region, rows, jpeg[begin:end])
            part = whole[8 * row : 8 * row + 8]
            np.testing.assert_array_equal(pixels(found), part, f"row {row} of MCUs")
            before += jpeg[begin] == 0xFF
            behind += jpeg[begin - 2 : begin] == b"\xff\0"
    assert min(before, behind) >= 10


@pytest.mark.parametrize("subsampling", ["411", "440"])
@pytest.mark.parametrize("noted", [True, False])
def test_other_subsamplings_than_pillow_writes(subsampling: str, noted: bool) -> None:
    image = np.ascontiguousarray(photo(100, 150))
    jpeg = simplejpeg.encode_jpeg(image, 90, "RGB", subsampling)
    for region in (McuRegion(1, 2, 1, 2), McuRegion(0, 1, 0, 1), McuRegion(2, 1, 1, 3)):
        assert_is_cut(cut(jpeg, region, noted=noted), jpeg, region)


def zeros_between(share: float) -> Image.Image:
    """Return a photo; some of its blocks have a second and a last coefficient alone."""
    random, x = np.random.default_rng(0), 2 * np.arange(8) + 1
    image = np.asarray(photo(800, 64, "L")).astype(float)
    low, high = np.cos(x * np.pi / 16), np.cos(x * 7 * np.pi / 16)
    for row, column in np.argwhere(random.random((100, 8)) < share) * 8:
        block = random.uniform(20, 60) * low + random.uniform(40, 60) * np.outer(high, high)
        image[row : row + 8, column : column + 8] = 128 + block
    return Image.fromarray(image.astype(np.uint8))


def black_or_white() -> Image.Image:
    """Return noise whose coefficients are as large as they can be."""
    noise = np.random.default_rng(0).integers(0, 2, (800, 64), np.uint8)
    return Image.fromarray(255 * noise)


CODES = {
    "runs of zeros are short": pillow(zeros_between(0.9), optimize=True),
    "runs of zeros are long": pillow(zeros_between(0.02), optimize=True),
    "long codes": pillow(black_or_white(), quality=100),
}


@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("noted", [True, False])
def test_codes_of_each_length(codes: str, noted: bool) -> None:
    """Such that a look into the tables tells of several codes, or of none."""
    jpeg = CODES[codes]
    for top in range(0, 100, 5):
        region = McuRegion(top, 5, top % 7, 1)
        assert_is_cut(cut(jpeg, region, noted=noted), jpeg, region)


@pytest.mark.parametrize("falling", [True, False])
@pytest.mark.parametrize("noted", [True, False])
def test_tables_without_large_differences_get_codes_for_them(falling: bool, noted: bool) -> None:
    """As those of a smooth picture, when they are made for it alone."""
    random = np.random.default_rng(0)
    ramp = np.linspace(128, 8 if falling else 247, 400)[:, None] + random.normal(0, 2, (400, 320))
    jpeg = pillow(Image.fromarray(ramp.astype(np.uint8)), optimize=True, quality=90)
    header = JpegHeader.parse(jpeg)
    region = McuRegion(header.num_rows - 2, 2, 7, 3)
    assert abs(find_mcu_rows(jpeg).predictions[-2, 0]) >= 1 << max(header.dc[0].symbols)
    found = cut(jpeg, region, noted=noted)
    assert_is_cut(found, jpeg, region)
    assert found.count(b"\xff\xc4") == jpeg.count(b"\xff\xc4") + 1


def test_tables_without_room_are_not_used() -> None:
    full = HuffmanTable(bytes((1, 1, 1, *[1] * 12, 2)), bytes(range(17)))
    assert with_all_categories(full) is full
    with pytest.raises(NoRowsError, match="no room"):
        with_all_categories(replace(full, symbols=bytes(range(20, 37))))
    with pytest.raises(NoRowsError, match="no codes"):
        with_all_categories(HuffmanTable(bytes(16), b""))
    lacking = HuffmanTable(bytes((0, 1, *[0] * 14)), b"\3")
    codes = {
        symbol: (code, length) for symbol, code, length in with_all_categories(lacking).codes()
    }
    assert set(codes) == set(range(12))
    assert codes[3] == (0, 2)


@given(data=st.data(), optimize=st.booleans())
@settings(deadline=None, max_examples=200)
def test_a_region_of_a_damaged_file_is_what_libjpeg_makes_of_it(
    data: st.DataObject, optimize: bool
) -> None:
    sound = pillow(photo(64, 80), optimize=optimize)
    header = JpegHeader.parse(sound)
    damaged = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(header.nbytes, len(damaged) - 3))
        damaged[place] = data.draw(st.integers(0, 254))
    jpeg, region = bytes(damaged), any_region(sound, data)
    try:
        found = cut_file(jpeg, header, region)
    except NoRowsError:
        return
    assert_is_cut(found, jpeg, region)


@pytest.mark.parametrize("orientation", [None, *range(1, 10)])
def test_a_window_has_the_pixels_of_the_whole_file(tmp_path: Path, orientation: int | None) -> None:
    options: dict[str, Any] = {} if orientation is None else {"exif": exif(orientation)}
    path = tmp_path / "photo.jpg"
    for subsampling in ("4:4:4", "4:2:0"):
        path.write_bytes(pillow(photo(240, 176), subsampling=subsampling, **options))
        whole = pixels(path.read_bytes())
        for row in (row_of(path), Row(0, str(path))):
            assert_windows_are_of(row, whole, np.random.default_rng(1))


def assert_windows_are_of(row: Row, whole: NDArray[Any], random: np.random.Generator) -> None:
    for height, width in ((1, 1), (17, 33), (64, 64), (100, 160), whole.shape[:2]):
        for y, x in (*random.random((4, 2)), (0, 0), (0.9999, 0.9999)):
            window = Window(height=height, width=width, y=y, x=x)
            sample = JpegReader().read(row, window)
            top, left = sample["anchor"]
            of_sample = pixels(sample["encoded"].tobytes())
            np.testing.assert_array_equal(sample["shape"], (height, width))
            y, x = window.place(*whole.shape[:2])
            np.testing.assert_array_equal(
                of_sample[top : top + height, left : left + width],
                whole[y : y + height, x : x + width],
                f"{window} of {row}",
            )


@pytest.mark.parametrize("noted", [True, False])
def test_less_is_sent_for_a_smaller_window(tmp_path: Path, noted: bool) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(pillow(photo(480, 640)))
    row = row_of(path) if noted else Row(0, str(path))
    sent = [
        JpegReader().read(row, Window(height=size, width=size, y=0.999, x=0.5))["encoded"].nbytes
        for size in (16, 64, 160)
    ]
    assert sent == sorted(sent)
    assert sent[0] < path.stat().st_size / 50
    whole = JpegReader().read(Row(0, str(path)), Window(height=480, width=600))
    assert whole["encoded"].nbytes == path.stat().st_size  # as nothing would be gained


def test_less_is_read_for_a_smaller_window(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(pillow(photo(960, 320)))
    sizes = [
        JpegReader().read(row_of(path), Window(height=height, width=32)).input_bytes
        for height in (32, 160, 480, 960)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < path.stat().st_size / 8
    assert sizes[-1] == path.stat().st_size - 2  # all but the marker of its end


def test_without_a_window_the_whole_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(pillow(photo(96, 64)))
    sample = JpegReader().read(row_of(path), None)
    assert sample["encoded"].tobytes() == path.read_bytes()


def changed(jpeg: bytes) -> dict[str, bytes]:
    """Return the file as it may be found later."""
    other = pillow(photo(96, 64, seed=3))
    return {
        "another": other,
        "another header": jpeg.replace(b"JFIF", b"JFIX", 1),
        "longer": jpeg + b"\0",
    }


@pytest.mark.parametrize("change", ["another", "another header", "longer"])
def test_a_file_that_was_changed_is_read_whole(tmp_path: Path, change: str) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(pillow(photo(96, 64)))
    row = row_of(path)
    path.write_bytes(changed(path.read_bytes())[change])
    window = Window(height=16, width=16)
    assert JpegReader().read(row, window)["encoded"].tobytes() == path.read_bytes()


def swapped_rows(jpeg: bytes, other: bytes, first: int, last: int) -> bytes:
    """Put rows of MCUs of another photo of the same encoder in, where they are as many bytes."""
    (begin, end), (start, stop) = (
        find_mcu_rows(one).byte_range(first, last) for one in (jpeg, other)
    )
    size = min(end - begin, stop - start)
    return jpeg[:begin] + other[start : start + size] + jpeg[begin + size :]


def flipped(jpeg: bytes, place: int) -> bytes:
    content = bytearray(jpeg)
    content[place] ^= 0x10
    return bytes(content)


def stale(jpeg: bytes, other: bytes) -> dict[str, bytes]:
    """Return files of the size and header of the one that was noted."""
    begin, end = find_mcu_rows(jpeg).byte_range(2, 3)
    return {
        "rows of another": swapped_rows(jpeg, other, 2, 3),
        "a bit": flipped(jpeg, (begin + end) // 2),
        "first byte": flipped(jpeg, begin),
        "last byte": flipped(jpeg, end - 1),
        "zeros": jpeg[:begin] + bytes(end - begin) + jpeg[end:],
    }


CENTRE = Window(height=4, width=16)
"""Rows of pixels 46 to 49: of the rows of MCUs 2 and 3, and with their neighbours 1 to 4."""


@pytest.mark.parametrize("width", [64, 400])
@pytest.mark.parametrize("change", ["rows of another", "a bit", "first byte", "last byte", "zeros"])
def test_rows_that_were_changed_are_never_cut_out(tmp_path: Path, change: str, width: int) -> None:
    """Neither whole, nor some of their columns."""
    path = tmp_path / "photo.jpg"
    jpeg = pillow(photo(96, width))
    path.write_bytes(jpeg)
    row = row_of(path)
    content = stale(jpeg, pillow(photo(96, width, seed=3)))[change]
    assert (len(content), content[:600]) == (len(jpeg), jpeg[:600])
    path.write_bytes(content)
    if libjpeg_warns(content):  # of what DALI shows in grey, without an error
        with pytest.raises(ReadError, match="damaged"):
            JpegReader().read(row, CENTRE)
    else:
        assert JpegReader().read(row, CENTRE)["encoded"].tobytes() == content


def libjpeg_warns(jpeg: bytes) -> bool:
    try:
        simplejpeg.decode_jpeg(jpeg)
    except ValueError:
        return True
    return False


def test_a_file_replaced_by_a_sound_one_is_read_whole(tmp_path: Path) -> None:
    """Of one camera, and padded to one size."""
    jpegs = [pillow(photo(96, 64, seed=seed)) for seed in (0, 3)]
    size = max(map(len, jpegs))
    old, new = (jpeg.ljust(size, b"\0") for jpeg in jpegs)
    path = tmp_path / "photo.jpg"
    path.write_bytes(old)
    row = row_of(path)
    assert len(JpegReader().read(row, CENTRE)["encoded"]) < size
    path.write_bytes(new)
    assert JpegReader().read(row, CENTRE)["encoded"].tobytes() == new


def test_damage_beside_the_window_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(pillow(photo(960, 64)))
    row = row_of(path)
    sound = JpegReader().read(row, CENTRE)
    begin, end = find_mcu_rows(path.read_bytes()).byte_range(4, 9)
    content = path.read_bytes()
    path.write_bytes(content[:begin] + bytes(end - begin) + content[end:])
    np.testing.assert_array_equal(JpegReader().read(row, CENTRE)["encoded"], sound["encoded"])


@given(data=st.data())
@settings(deadline=None)
def test_each_changed_byte_of_the_rows_is_noticed(data: st.DataObject) -> None:
    jpeg = pillow(photo(96, 64))
    rows = find_mcu_rows(jpeg)
    first = data.draw(st.integers(0, 5))
    last = data.draw(st.integers(first, 5))
    begin, end = rows.byte_range(first, last)
    rows.check(first, last, jpeg[begin:end])
    coded = bytearray(jpeg[begin:end])
    coded[data.draw(st.integers(0, len(coded) - 1))] ^= data.draw(st.integers(1, 255))
    for changed in (bytes(coded), jpeg[begin : end - 1], b""):
        with pytest.raises(ChangedRowsError):
            rows.check(first, last, changed)


@pytest.mark.parametrize(
    "packed", [b"", b"\2", b"\3" + bytes(40), b"\2" + bytes(30), b"\1" + bytes(60)]
)
def test_notes_in_another_format_do_no_harm(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(pillow(photo(96, 64)))
    row = Row(0, str(path), notes={"mcu_rows": packed})
    sample = JpegReader().read(row, Window(height=16, width=16))
    assert sample["encoded"].tobytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"progressive": True}, "sequential"), ({"restart_marker_rows": 1}, "restarts")],
)
def test_other_coding_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(NoRowsError, match=words):
        find_mcu_rows(pillow(photo(64, 64), **options))


def test_bytes_before_the_end() -> None:
    """Any number of 0xFF may be there (T.81, B.1.1.2), and no others."""
    jpeg = pillow(photo(64, 64))
    filled, longer = jpeg[:-2] + b"\xff\xff\xff\xd9", jpeg[:-2] + b"\1\2\xff\xd9"
    assert not libjpeg_warns(filled)
    assert find_mcu_rows(filled).starts.tolist() == find_mcu_rows(jpeg).starts.tolist()
    assert libjpeg_warns(longer)
    with pytest.raises(DamagedRowsError):
        find_mcu_rows(longer)


@pytest.mark.parametrize(
    ("marker", "offset", "value", "reason"),
    [
        (0xC0, 9, 0, "height"),
        (0xC0, 11, 0x20, "component"),
        (0xC4, 2, 77, "marker was expected|truncated|damaged"),
    ],
)
def test_odd_headers_are_refused(marker: int, offset: int, value: int, reason: str) -> None:
    with pytest.raises(NoRowsError, match=reason):
        JpegHeader.parse(patched(pillow(photo(64, 64)), marker, offset, value))


@given(data=st.data(), optimize=st.booleans())
@settings(deadline=None, max_examples=200)
def test_damage_is_found_or_does_no_harm(data: st.DataObject, optimize: bool) -> None:
    damaged = bytearray(pillow(photo(48, 64), optimize=optimize))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    jpeg = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        rows = find_mcu_rows(jpeg)
    except NoRowsError:
        return
    assert (np.diff(rows.starts) > 0).all()
    assert rows.starts[-1] <= 8 * len(jpeg)


@given(data=st.binary(max_size=300))
def test_any_header_is_parsed_or_rejected(data: bytes) -> None:
    jpeg = pillow(photo(16, 16))
    for header in (data, b"\xff\xd8" + data, jpeg[:200] + data):
        try:
            JpegHeader.parse(header)
        except NoRowsError:
            continue


def test_rows_survive_packing() -> None:
    rows = find_mcu_rows(pillow(photo(100, 50)))
    again = McuRows.unpack(rows.pack())
    np.testing.assert_array_equal(again.starts, rows.starts)
    np.testing.assert_array_equal(again.predictions, rows.predictions)
    np.testing.assert_array_equal(again.crcs, rows.crcs)
    assert (again.file_nbytes, again.header_nbytes, again.header_crc) == (
        rows.file_nbytes,
        rows.header_nbytes,
        rows.header_crc,
    )


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_an_index_keeps_them(tmp_path: Path, suffix: str) -> None:
    contents = {
        "a.jpg": pillow(photo(64, 48)),
        "b.jpg": pillow(photo(64, 48), progressive=True),
        "c.jpg": b"no photo",
        "d.jpg": pillow(photo(80, 48)),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    index = with_mcu_rows(Index.scan(tmp_path))
    assert [rows is None for rows in index.table["mcu_rows"].to_pylist()] == [False, True, True, 0]
    assert with_mcu_rows(index).table.equals(index.table)
    file = tmp_path / f"index{suffix}"
    index.save(file)
    columns = Index.load(file).columns(notes=("mcu_rows", "others"))
    for number, content in enumerate(contents.values()):
        noted = columns.row(number).notes
        assert list(noted) == ["mcu_rows"]
        if number in (0, 3):
            assert McuRows.unpack(noted["mcu_rows"]).file_nbytes == len(content)
        else:
            assert noted["mcu_rows"] == b""


def test_a_column_of_that_name_must_hold_bytes(tmp_path: Path) -> None:
    index = Index(pa.table({"path": ["/a.jpg"], "mcu_rows": [1]}))
    row = index.columns(notes=("mcu_rows",)).row(0)
    with pytest.raises(ReadError, match=r"/a.jpg.*'mcu_rows'.*bytes"):
        JpegReader().read(row, None)


def row_of(path: Path) -> Row:
    return Row(0, str(path), notes={"mcu_rows": find_mcu_rows(path.read_bytes()).pack()})
