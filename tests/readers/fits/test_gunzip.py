"""Gzipped FITS files: unpacked once, no farther than needed, against astropy and zlib."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from fits_files import decoded, plain_hdu, truth, write
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import StoredImage, compressed_floats, compressed_integers, plain_images

from readers import FitsReader, ReadError, Row, Window
from readers.fits.gunzip import GzipStream
from readers.testing import NUMBER, refused, written

NOISE = np.random.default_rng(0).integers(-9999, 9999, (200, 150), dtype=np.int16)


def packed(
    folder: Path, content: bytes, name: str = "image.fits.gz", member: int | None = None
) -> Row:
    """Write content as gzip, in one member or several."""
    step = member or max(len(content), 1)
    parts = [content[at : at + step] for at in range(0, max(len(content), 1), step)]
    (folder / name).write_bytes(b"".join(gzip.compress(part, 1) for part in parts))
    return Row(NUMBER, str(folder / name))


def pixels(row: Row, window: Window | None = None, reader: None = None) -> NDArray[Any]:
    return decoded((reader or FitsReader()).read(row, window))[..., 0]


@given(
    plain_images() | compressed_integers() | compressed_floats(),
    st.booleans(),
    st.sampled_from([None, 100, 2880, 5000]),
)
def test_as_the_unpacked_file(
    tmp_path: Path, image: StoredImage, behind_others: bool, member: int | None
) -> None:
    write(tmp_path / "a.fits", image)
    if behind_others and image.compression is not None:
        content = (tmp_path / "a.fits").read_bytes()
        other = bytes(fits.ImageHDU(NOISE).header.tostring(), "ascii") + NOISE.tobytes()
        other = other.ljust(-(-len(other) // 2880) * 2880, b"\0")
        (tmp_path / "a.fits").write_bytes(content[:2880] + other + content[2880:])
        hdu = 2
    else:
        hdu = None
    plain = Row(NUMBER, str(tmp_path / "a.fits"), hdu)
    row = packed(tmp_path, (tmp_path / "a.fits").read_bytes(), member=member)
    row = Row(NUMBER, row.path, hdu)
    for window in (None, Window(height=3, width=4, y=0.9, x=0.2)):
        np.testing.assert_array_equal(pixels(row, window), pixels(plain, window))
    assert FitsReader().peek(row, None) == FitsReader().peek(plain, None)
    FitsReader().verify(row)


@pytest.mark.parametrize("cards", [{}, {"BSCALE": 0.5}], ids=["by us", "by astropy"])
@pytest.mark.parametrize("planes", [(4,), (1, 4), (5, 0, 2), (3, 3), (5, 4, 3, 2, 1, 0)])
def test_planes_of_a_cube(tmp_path: Path, cards: dict[str, Any], planes: tuple[int, ...]) -> None:
    cube = np.random.default_rng(0).normal(0, 9, (6, 20, 30))
    row = packed(tmp_path, plain_hdu(cube, cards))
    expected, reader = truth(row.path)[[*planes]], FitsReader(planes=planes)
    found = decoded(reader.read(row, None), len(planes))
    np.testing.assert_array_equal(found, expected)
    window = Window(height=5, width=6, y=0.5, x=0.0)
    y, x = window.place(20, 30)
    found = decoded(reader.read(row, window), len(planes))
    np.testing.assert_array_equal(found, expected[:, y : y + 5, x : x + 6])


# How much is unpacked, and how often.


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Add up what is unpacked."""
    sizes: list[int] = []
    read = GzipStream.read

    def counted(self: GzipStream, size: int) -> bytes:
        found = read(self, size)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(GzipStream, "read", counted)
    return sizes


def test_a_window_unpacks_once_up_to_its_last_row(tmp_path: Path, unpacked: list[Any]) -> None:
    big = np.random.default_rng(0).integers(0, 99, (1000, 1000), dtype=np.int16)
    row = packed(tmp_path, plain_hdu(big, {}))
    for top, bottom in ((0.0, 50), (0.5, 525), (0.999, 1000)):
        unpacked.clear()
        found = pixels(row, Window(height=50, width=50, y=top, x=0.0))
        np.testing.assert_array_equal(found, big[bottom - 50 : bottom, :50])
        assert abs(sum(unpacked) - 2000 * bottom) < 2 * 2880


def test_a_window_keeps_only_its_rows(tmp_path: Path) -> None:
    row = packed(tmp_path, plain_hdu(np.zeros((3000, 3000), np.int16), {}))
    FitsReader().read(row, Window(height=4, width=4))
    tracemalloc.start()
    try:
        FitsReader().read(row, Window(height=4, width=4, y=0.999))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20  # of 18
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("window", [None, Window(height=3, width=3, y=0.9)])
def test_a_bomb_is_not_unpacked(tmp_path: Path, unpacked: list[Any], window: Window | None) -> None:
    """Behind a small image, and asked for an HDU that is not there."""
    bomb = zlib.compressobj(9, wbits=31)
    content = bomb.compress(plain_hdu(NOISE, {}))
    content += b"".join(bomb.compress(bytes(1 << 20)) for _ in range(64)) + bomb.flush()
    (tmp_path / "bomb.fits.gz").write_bytes(content)
    row = Row(NUMBER, str(tmp_path / "bomb.fits.gz"))
    y, x = (0, 0) if window is None else window.place(*NOISE.shape)
    found = pixels(row, window)
    np.testing.assert_array_equal(found, NOISE[y : y + len(found), x : x + found.shape[1]])
    missing = Row(NUMBER, row.path, 3)
    refused(FitsReader(), missing, None, "no HDU 3, the file has 1")
    assert sum(unpacked) < 5 * len(plain_hdu(NOISE, {}))


def test_a_header_without_end_is_not_unpacked_for_ever(tmp_path: Path, unpacked: list[Any]) -> None:
    text = b"SIMPLE  =                    T".ljust(80) + b"COMMENT".ljust(80) * (1 << 19)
    refused(FitsReader(), packed(tmp_path, text), None, "HDU 0 has no END")
    assert sum(unpacked) < 4 * 3 << 20


@pytest.mark.parametrize("hdu", [None, 1])
def test_a_header_of_a_terabyte_is_refused_before_memory_is_taken(
    tmp_path: Path, hdu: int | None
) -> None:
    huge = plain_hdu(np.zeros((1, 1), np.int16), {}).replace(
        b"NAXIS1  =                    1", b"NAXIS1  =        1000000000000"
    )
    row = packed(tmp_path, huge + bytes(1 << 22))
    message = "ends at byte 2000000004480 .*gzipped"
    refused(FitsReader(), Row(NUMBER, row.path, hdu), None, message)
    refused(FitsReader(), row, Window(height=1, width=5), message)


# What is damaged.


def test_the_end_of_the_data_cut_off(tmp_path: Path) -> None:
    row = packed(tmp_path, plain_hdu(NOISE, {})[:-9000])
    with pytest.raises(ReadError, match="unpacked file ends"):
        FitsReader().read(row, None)
    pixels(row, Window(height=3, width=3, y=0.0))  # lies before


@pytest.mark.parametrize("cards", [{}, {"BSCALE": 0.5}], ids=["by us", "by astropy"])
def test_planes_behind_the_end(tmp_path: Path, cards: dict[str, Any]) -> None:
    """Planes before it are sound; neither `read` nor `verify` makes up the others."""
    cube = np.random.default_rng(0).normal(0, 9, (4, 60, 60))
    row = packed(tmp_path, plain_hdu(cube, cards)[: 2880 + 3 * cube[0].nbytes])
    for planes in ((0,), (2, 0), (1, 2)):
        FitsReader(planes=planes).read(row, None)
        FitsReader(planes=planes).verify(row)
    for planes in ((3,), (0, 3), (3, 1)):
        reader = FitsReader(planes=planes)
        with pytest.raises(ReadError, match="unpacked file ends"):
            reader.read(row, None)
        with pytest.raises(ReadError, match="unpacked file ends"):
            reader.verify(row)


def test_padding_may_be_missing_as_with_astropy(tmp_path: Path) -> None:
    row = packed(tmp_path, plain_hdu(NOISE, {})[: 2880 + NOISE.nbytes])
    np.testing.assert_array_equal(pixels(row), fits.getdata(row.path))


@pytest.mark.parametrize("place", [-8, -3])
def test_a_wrong_checksum_or_length(tmp_path: Path, place: int) -> None:
    row = packed(tmp_path, plain_hdu(NOISE, {}))
    content = bytearray((tmp_path / "image.fits.gz").read_bytes())
    content[place] ^= 1
    (tmp_path / "image.fits.gz").write_bytes(content)
    for call in (lambda: FitsReader().read(row, None), lambda: FitsReader().verify(row)):
        with pytest.raises(ReadError, match="gzip data are damaged"):
            call()


@pytest.mark.parametrize("cut", [1, 8, 9, 500])
def test_the_end_of_the_file_cut_off(tmp_path: Path, cut: int) -> None:
    row = packed(tmp_path, plain_hdu(NOISE, {}))
    content = (tmp_path / "image.fits.gz").read_bytes()
    (tmp_path / "image.fits.gz").write_bytes(content[:-cut])
    with pytest.raises(ReadError, match="ends within its gzip data"):
        FitsReader().read(row, None)


@pytest.mark.parametrize("behind", [b"\0" * 512, b"garbage", b"\x1f", gzip.compress(b"", mtime=0)])
def test_bytes_after_the_last_member(tmp_path: Path, behind: bytes) -> None:
    """As gzip does: other bytes are left out, but they are no data either."""
    row = packed(tmp_path, plain_hdu(NOISE, {}))
    with open(row.path, "ab") as file:
        file.write(behind)
    np.testing.assert_array_equal(pixels(row), NOISE)


def test_garbage_instead_of_the_next_member(tmp_path: Path) -> None:
    content = plain_hdu(NOISE, {})
    first = gzip.compress(content[:9000])
    (tmp_path / "a.gz").write_bytes(first + b"garbage" + gzip.compress(content[9000:]))
    with pytest.raises(ReadError, match="unpacked file ends at 9000"):
        FitsReader().read(Row(NUMBER, str(tmp_path / "a.gz")), None)


@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
@pytest.mark.parametrize("member", [None, 1, 1000])
def test_the_stream_gives_what_was_packed(tmp_path: Path, size: int, member: int | None) -> None:
    content = bytes(5000) + NOISE.tobytes()[:3000]
    row = packed(tmp_path, content, member=member)
    with row.place as place:
        stream = GzipStream(place)
        parts = list(iter(lambda: stream.read(size), b""))
    assert b"".join(parts) == content
    assert max(map(len, parts)) <= size


@pytest.mark.parametrize(
    ("behind", "content"),
    [
        (gzip.compress(b"second") * 2, b"firstsecondsecond"),
        (gzip.compress(b"") + b"garbage", b"first"),
        (b"\x1f", b"first"),
        (b"", b"first"),
    ],
    ids=["members", "empty member", "garbage", "end"],
)
@pytest.mark.parametrize("left", [-8, -1, 0, 1, 2, 10])
def test_members_at_the_end_of_what_was_read(
    tmp_path: Path, left: int, behind: bytes, content: bytes
) -> None:
    """The stream reads its file in chunks; `left` bytes behind the first member are in its own."""
    first = NOISE.tobytes() * 9  # longer than a chunk
    with packed(tmp_path, first).place as place:
        stream = GzipStream(place)
        stream.read(1)
        chunk = stream.input_bytes
        assert 0 < chunk < place.nbytes
    name = b"n" * (chunk - left - len(gzip.compress(b"first")) - 1) + b"\0"
    member = bytearray(gzip.compress(b"first"))
    member[3], member[10:10] = 8, name  # FNAME, see RFC 1952
    assert len(member) == chunk - left
    for size in (5, 100):
        with written(tmp_path, bytes(member) + behind).place as place:
            stream = GzipStream(place)
            found = b"".join(iter(partial(stream.read, size), b""))
        assert found == content


@pytest.mark.parametrize(("module", "words"), [("bz2", "bzip2: unpack"), ("lzma", "xz: unpack")])
def test_other_packers_are_refused_by_name(tmp_path: Path, module: str, words: str) -> None:
    pack = pytest.importorskip(module).compress
    (tmp_path / "a.fits").write_bytes(pack(plain_hdu(NOISE, {})))
    refused(FitsReader(), Row(NUMBER, str(tmp_path / "a.fits")), None, words)


def test_unusual_headers_are_read_as_astropy_reads_them(tmp_path: Path) -> None:
    """Cards that are not in fixed format, and an extension of a kind that is not known."""
    odd = plain_hdu(NOISE, {}).replace(
        b"BITPIX  =                   16", b"BITPIX  = 16                  "
    )
    odd = odd.replace(b"NAXIS1  =                  150", b"NAXIS1  = 150 / columns       ")
    np.testing.assert_array_equal(pixels(packed(tmp_path, odd)), NOISE)
    image = StoredImage(NOISE, {}, {"compression_type": "GZIP_2"})
    write(tmp_path / "c.fits", image)
    content = (tmp_path / "c.fits").read_bytes()
    foreign = plain_hdu(NOISE, {"PCOUNT": 0, "GCOUNT": 1}).replace(
        b"SIMPLE  =                    T", b"XTENSION= 'FOREIGN '          "
    )
    row = packed(tmp_path, content[:2880] + foreign + content[2880:])
    np.testing.assert_array_equal(pixels(row), NOISE)
