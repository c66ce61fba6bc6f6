"""Positions of HDUs: as astropy finds them, cached, and never used for another file."""

from __future__ import annotations

import os
import pickle
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from fits_files import decoded, plain_hdu
from hypothesis import given
from hypothesis import strategies as st

from readers import AiaReader, FitsReader, ReadError, Row, Window
from readers.fits import hdus, image
from readers.fits.file import FitsFile
from readers.fits.hdus import FoundHdu, HeaderReader
from readers.fits.headers import HduName, NeedsAstropy
from readers.header_scan import file_facts
from readers.places.contract import Place
from readers.places.local import LocalPlace
from readers.places.opener import LOCAL
from readers.testing import NUMBER, refused

PIXELS = np.arange(31 * 23, dtype=np.int16).reshape(31, 23)


def mosaic(path: Path, count: int = 5, first: int = 0, **cards: Any) -> str:
    """Write images of different values, plain and compressed in turn, with tables between."""
    made = [fits.PrimaryHDU(header=fits.Header(cards))]
    for number in range(count):
        pixels = (fits.CompImageHDU if number % 2 else fits.ImageHDU)(
            PIXELS + np.int16(first + number), name=f"N{number}"
        )
        table = fits.BinTableHDU.from_columns([fits.Column("a", "J", array=range(999 * number))])
        made += [pixels, table]
    fits.HDUList(made).writeto(path, overwrite=True)
    return str(path)


def value(path: str, hdu: int | None, reader: FitsReader | None = None) -> int:
    """Return what was added to an image; all its pixels must agree."""
    found = decoded((reader or FitsReader()).read(Row(NUMBER, path, hdu), None))[..., 0] - PIXELS
    assert (found == found[0, 0]).all()
    return int(found[0, 0])


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that were just written be old enough to be remembered."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Count what is read of files."""
    places = []
    pread = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        places.append(offset)
        return pread(file, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    return places


def found_header(place: Place, wanted: HduName | None) -> FoundHdu | None:
    """Return an HDU that is found without astropy."""
    try:
        return HeaderReader(place, place.stamp).find(wanted)
    except NeedsAstropy:
        return None


kinds = st.sampled_from(["image", "compressed", "table", "ascii", "empty", "cube", "line"])


def extension(kind: str, name: str) -> Any:
    if kind == "table":
        return fits.BinTableHDU.from_columns([fits.Column("a", "J", array=[1, 2])], name=name)
    if kind == "ascii":
        return fits.TableHDU.from_columns([fits.Column("a", "I10", array=[1, 2])], name=name)
    shape = {"cube": (2, 5, 7), "line": (9,)}.get(kind, (5, 7))
    pixels = None if kind == "empty" else np.ones(shape, np.float32)
    return (fits.CompImageHDU if kind == "compressed" else fits.ImageHDU)(pixels, name=name)


@given(
    st.booleans(),
    st.lists(st.tuples(kinds, st.sampled_from(["", "SCI", "sci", "DQ"])), max_size=5),
    st.none() | st.integers(0, 6) | st.sampled_from(["SCI", " dq", "PRIMARY", ("SCI", 1)]),
)
def test_as_astropy_finds_them(
    tmp_path: Path, with_image: bool, extensions: list[Any], wanted: Any
) -> None:
    primary = fits.PrimaryHDU(PIXELS if with_image else None)
    made = fits.HDUList([primary, *(extension(*each) for each in extensions)])
    made.writeto(tmp_path / "a.fits", overwrite=True)
    with fits.open(tmp_path / "a.fits") as opened, LOCAL.at(str(tmp_path / "a.fits")) as place:
        images = [n for n, hdu in enumerate(opened) if hdu.is_image and hdu.shape]
        try:
            number = images[0] if wanted is None else opened.index_of(wanted)
        except (IndexError, KeyError):
            number = -1
        found = found_header(place, wanted)
        if number not in images:
            assert found is None or not found.extent.image
            return
        raw = opened[number].fileinfo()
        assert found is not None
        assert found.number == number
        assert found.extent.data == raw["datLoc"]
        assert found.extent.end == raw["datLoc"] + raw["datSpan"]


@pytest.mark.usefixtures("remembering")
def test_a_name_means_the_same_hdu_whatever_was_read_before(tmp_path: Path) -> None:
    path = str(tmp_path / "a.fits")
    made = fits.HDUList([fits.PrimaryHDU()])
    for number, ver in enumerate((1, 2, 1, 2)):  # the standard wants others, but some files do this
        made.append(fits.ImageHDU(PIXELS + number, name="SCI", ver=ver))
    made.writeto(path)
    assert value(path, 4) == 3  # all headers are known from here on
    for wanted in ("SCI", ("SCI", 1), ("SCI", 2)):
        with fits.open(path) as opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are two
            number = opened.index_of(wanted)
        assert value(path, None, FitsReader(wanted)) == number - 1, wanted


def test_by_number_and_by_name(tmp_path: Path) -> None:
    path = mosaic(tmp_path / "a.fits")
    for number in range(5):
        assert value(path, 2 * number + 1) == number
        assert value(path, None, FitsReader(f"n{number}")) == number
        assert value(path, None, FitsReader((f"N{number}", 1))) == number
        assert FitsReader(f"N{number}").header(Row(0, path), ["EXTNAME"])["EXTNAME"] == f"N{number}"
    refused(FitsReader("N9"), Row(NUMBER, path), None, "no HDU 'N9', the file has PRIMARY")
    refused(FitsReader(2), Row(NUMBER, path), None, "HDU 2 .*no image.*BinTableHDU")


def test_constant_images_of_hst_are_named(tmp_path: Path) -> None:
    """They have no pixels, only their value in the header."""
    error = fits.ImageHDU(name="ERR")
    error.header.update({"NPIX1": 23, "NPIX2": 31, "PIXVALUE": 1.5})
    path = str(tmp_path / "raw.fits")
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(PIXELS, name="SCI"), error]).writeto(path)
    refused(FitsReader("ERR"), Row(NUMBER, path), None, r"'ERR'.*1\.5.*PIXVALUE.*HDU 1 \(SCI\)")


@pytest.mark.parametrize("name", ["0.fits", "0.fits.gz"])
def test_long_names(tmp_path: Path, name: str) -> None:
    long = [f"{'n' * 70}{number}" for number in range(2)]
    made = [fits.ImageHDU(PIXELS + np.int16(number), name=long[number]) for number in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that such cards take CONTINUE
        fits.HDUList([fits.PrimaryHDU(), *made]).writeto(tmp_path / name)

    for number in range(2):
        assert value(str(tmp_path / name), None, FitsReader(long[number])) == number


@pytest.mark.parametrize(
    ("hdu", "expected"), [(np.int64(3), 1), (["N1", 1], 1), (("N1", np.int32(1)), 1), ("n0", 0)]
)
def test_numbers_may_be_of_numpy(tmp_path: Path, hdu: Any, expected: int) -> None:
    reader = FitsReader(hdu)

    assert value(mosaic(tmp_path / "0.fits", 2), None, reader) == expected
    assert hash(reader) == hash(pickle.loads(pickle.dumps(reader)))


@pytest.mark.parametrize("reader", [FitsReader, AiaReader])
def test_invalid_hdus_are_refused(reader: Callable[..., Any]) -> None:
    for hdu in (-1, np.int64(-1), True, 1.0, b"N1", (1, 1), ("N1", "1"), ("N1",)):
        with pytest.raises(ValueError, match=r"hdu.*0 or more"):
            reader(hdu=hdu)


def test_headers_before_are_read_once(tmp_path: Path, remembering: None, reads: list[Any]) -> None:
    path = mosaic(tmp_path / "a.fits")
    assert value(path, 9) == 4
    reads.clear()
    assert value(path, 7) == 3
    with fits.open(path) as opened:
        own = opened[7].fileinfo()["hdrLoc"]
    assert min(place for place in reads if place) >= own


@pytest.mark.parametrize("reader", [FitsReader(), FitsReader("N4"), FitsReader(("n4", 1))])
def test_a_header_is_read_once(
    tmp_path: Path, remembering: None, reads: list[Any], reader: FitsReader
) -> None:
    path = mosaic(tmp_path / "a.fits")
    row = Row(NUMBER, path, 9 if reader.hdu is None else None)
    first = reader.read(row, None)
    reads.clear()
    again = reader.read(row, None)
    assert reads == []
    assert again.input_bytes < first.input_bytes
    np.testing.assert_array_equal(decoded(again), decoded(first))


def test_the_largest_tile_of_each_reader_counts(tmp_path: Path, remembering: None) -> None:
    path = mosaic(tmp_path / "a.fits")
    limits = [float("inf"), 1, float("inf")]
    lengths = [
        len(FitsReader(largest_tile=most).read(Row(0, path, 3), None)["payload"]) for most in limits
    ]
    assert lengths[0] == lengths[2] < lengths[1]


def many(path: Path, count: int = 3000) -> str:
    """Write images of which each has its number as values."""
    with open(path, "wb") as file:
        file.write(fits.PrimaryHDU().header.tostring().encode())
        for number in range(1, count):
            hdu = fits.ImageHDU(np.full((4, 4), number, np.int16), name=f"N{number}")
            hdu.ver = number // 2
            file.write(hdu.header.tostring().encode() + hdu.data.astype(">i2").tobytes())
            file.write(bytes(2880 - 32))
    return str(path)


def test_far_hdus_are_read_as_fast_as_near_ones(
    tmp_path: Path, remembering: None, reads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one read of their own header, without astropy, once those before them are known."""
    path = many(tmp_path / "a.fits")
    last = decoded(FitsReader().read(Row(0, path, 2999), None))
    assert (last == 2999).all()
    monkeypatch.setattr(fits, "open", None)
    counts: dict[int, list[int]] = {}
    for number in (2, 700, 2000, 2900):
        near_name = FitsReader((f"n{number}", number // 2))
        for row, reader in ((Row(0, path, number), FitsReader()), (Row(0, path), near_name)):
            reads.clear()
            found = decoded(reader.read(row, None))
            assert (found == number).all()
            counts.setdefault(number, []).append(len(reads))
    assert len({tuple(each) for each in counts.values()}) == 1
    (facts,) = file_facts(path, ["EXTVER"], 2500)
    reads.clear()
    (facts,) = file_facts(path, ["EXTVER"], 2600)
    assert (facts["hdu"], facts["EXTVER"]) == (2600, 1300)
    assert len(reads) < 9


def test_headers_of_few_files_are_remembered(
    tmp_path: Path, remembering: None, reads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Private, as no user needs it: half a million headers are remembered.
    monkeypatch.setattr(hdus, "_MOST_HDUS", 20)
    paths = [mosaic(tmp_path / f"{number}.fits", first=number) for number in range(7)]
    for path in paths * 2:
        assert value(path, 9) == 4 + int(Path(path).stem)
    known = 0
    for path in reversed(paths):
        with fits.open(path) as opened:
            own = opened[7].fileinfo()["hdrLoc"]
        reads.clear()
        value(path, 7)
        known += min(place for place in reads if place) >= own
    assert known <= 3, "of files with 11 headers"


@pytest.mark.parametrize(
    ("name", "count"), [("a.fits", 1100), ("a.fits", 1200), ("a.fits.gz", 1200), ("a.fits", 5000)]
)
def test_long_headers_need_no_astropy(
    tmp_path: Path, name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [fits.PrimaryHDU(), fits.ImageHDU(), fits.CompImageHDU(PIXELS + np.int16(5))]
    for hdu in made[1:]:
        for number in range(count):
            hdu.header.add_history(f"the END of step {number}")
    fits.HDUList(made).writeto(tmp_path / name)
    monkeypatch.setattr(fits, "open", None)
    assert value(str(tmp_path / name), 2) == 5


def test_of_a_header_without_end_little_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.fits"
    with open(path, "wb") as file:
        file.write(fits.PrimaryHDU(PIXELS).header.tostring()[:400].encode().ljust(2880))
        file.truncate(8 << 30)
    refused(FitsReader(), Row(NUMBER, str(path)), None, "END")
    with pytest.raises(ReadError, match="END"):
        file_facts(str(path), hdu="all")


def test_few_images_are_remembered(tmp_path: Path, remembering: None, reads: list[Any]) -> None:
    rows = []
    for number in range(1100):
        path = tmp_path / f"{number}.fits"
        path.write_bytes(plain_hdu(PIXELS, {}))
        rows.append(Row(0, str(path)))
        FitsReader().peek(rows[-1], None)
    read = []
    for row in (rows[-1], rows[0]):
        reads.clear()
        FitsReader().peek(row, None)
        read.append(len(reads))
    assert read[0] < read[1], "the image of the first of 1100 files is still known"


@pytest.mark.parametrize("how", ["replaced", "in_place", "same_times"])
def test_another_file_of_that_name_is_seen(tmp_path: Path, remembering: None, how: str) -> None:
    """Of one size, also where its time of change was set back."""
    path = mosaic(tmp_path / "a.fits")
    assert [value(path, 9), value(path, 3)] == [4, 1]
    before = os.stat(path)
    if how == "replaced":
        os.replace(mosaic(tmp_path / "b.fits", first=100), path)
    else:
        new = mosaic(tmp_path / "b.fits", first=100)
        with open(path, "r+b") as file, open(new, "rb") as other:
            file.write(other.read())
    if how == "same_times":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    while os.stat(path).st_ctime_ns == before.st_ctime_ns:  # a tick of the file system's clock
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(path).st_size == before.st_size
    assert [value(path, 9), value(path, 3)] == [104, 101]


def test_a_longer_file_of_that_name_is_seen(tmp_path: Path, remembering: None) -> None:
    path = mosaic(tmp_path / "a.fits")
    assert value(path, 9) == 4
    mosaic(tmp_path / "a.fits", first=50, **{f"KEY{n}": n for n in range(99)})
    assert value(path, 9) == 54


def test_files_that_were_just_written_are_not_remembered(
    tmp_path: Path, reads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another write may leave the same time."""
    path = mosaic(tmp_path / "a.fits")
    monkeypatch.setattr(time, "time_ns", lambda: os.stat(path).st_mtime_ns + 1)
    value(path, 9)
    first = [*reads]
    reads.clear()
    value(path, 9)
    assert reads == first


def test_no_reader_carries_what_is_remembered(tmp_path: Path, remembering: None) -> None:
    reader = FitsReader()
    before = pickle.dumps(reader)
    value(mosaic(tmp_path / "a.fits"), 9, reader)
    assert pickle.dumps(reader) == before


@pytest.mark.parametrize(
    "damage",
    [
        (b"XTENSION= 'IMAGE   '", b"XTENSION= 'IMAGF   '"),
        (b"NAXIS1  =                   23", b"NAXIS1  =                   24"),
        (b"END" + b" " * 77, b"ENC" + b" " * 77),
        (b"GCOUNT  =                    1", b"GCOUNT  =                    2"),
    ],
)
def test_damage_before_the_hdu_is_left_to_astropy(
    tmp_path: Path, damage: tuple[bytes, bytes]
) -> None:
    """The same as astropy, or ReadError where astropy fails."""
    path = mosaic(tmp_path / "a.fits")
    content = (tmp_path / "a.fits").read_bytes()
    assert damage[0] in content
    (tmp_path / "a.fits").write_bytes(content.replace(*damage, 1))
    try:
        with warnings.catch_warnings(), open(path, "rb") as file, fits.open(file) as opened:
            warnings.simplefilter("ignore")
            expected = opened[9].data
            assert opened[9].data.shape
    except Exception:
        refused(FitsReader(), Row(NUMBER, path, 9), None)
        return
    found = decoded(FitsReader().read(Row(NUMBER, path, 9), None))[..., 0]
    np.testing.assert_array_equal(found, expected)


def test_windows_of_far_hdus_read_as_much_as_of_near_ones(
    tmp_path: Path, remembering: None
) -> None:
    path = mosaic(tmp_path / "a.fits")
    window = Window(height=4, width=4)
    for hdu in (1, 9, 1, 9):
        sample = FitsReader().read(Row(0, path, hdu), window)
    near = FitsReader().read(Row(0, path, 1), window)
    assert sample.input_bytes == near.input_bytes


@pytest.mark.parametrize("hdu", [1, 3, 7, 9])
def test_astropy_opens_but_the_extension_that_it_decodes(
    tmp_path: Path, hdu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an empty primary HDU before it."""
    path = mosaic(tmp_path / "a.fits")
    with fits.open(path) as hdus:
        start, expected = hdus[hdu].fileinfo()["hdrLoc"], hdus[hdu].data
    opened, fits_open = [], fits.open

    def opens(*args: Any, **options: Any) -> Any:
        opened.append(fits_open(*args, **options))
        return opened[-1]

    monkeypatch.setattr(fits, "open", opens)
    with FitsFile.at(LOCAL.at(path), hdu) as plain:
        found = image.find_image(plain)
        assert found.header_start == start
        np.testing.assert_array_equal(found.pixels(plain, None, [0], scaled=True)[0], expected)
        window = Window(height=4, width=5, y=0.5, x=0.5).within(*PIXELS.shape)
        y, x = window.place(*PIXELS.shape)
        part = found.pixels(plain, window, [0], scaled=True)[0]
    np.testing.assert_array_equal(part, expected[y : y + 4, x : x + 5])
    assert [len(hdus) for hdus in opened] == [2, 2]


class _Interrupted(LocalPlace):
    """A file in whose reads, one of them, another thread finds an HDU first."""

    reads_left: int
    wanted: Any

    def read(self, start: int, stop: int) -> bytes:
        content = super().read(start, stop)
        self.reads_left -= 1
        if self.reads_left == 0:
            with LocalPlace(self.name) as place:
                found_header(place, self.wanted)
        return content


@pytest.mark.usefixtures("remembering")
@pytest.mark.parametrize("wanted", [1, 3, "N2", ("N3", 1), None])
def test_threads_that_find_hdus_of_one_file(tmp_path: Path, wanted: Any) -> None:
    """Whenever another one finds it first, the header is that of the wanted HDU."""
    for number in range(1, 20):
        path = mosaic(tmp_path / f"{number}.fits")  # of which nothing is known
        with _Interrupted(path) as place:
            place.reads_left, place.wanted = number, wanted
            found = found_header(place, wanted)
        assert found is not None
        with fits.open(path, disable_image_compression=True) as opened:
            expected = opened[1 if wanted is None else wanted].header
        assert fits.Header.fromstring(found.text) == expected


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_of_tables_say_that_these_are_not_read(tmp_path: Path, suffix: str) -> None:
    """Such as light curves, and maps in HEALPix."""
    curve = fits.BinTableHDU.from_columns([fits.Column("FLUX", "E", array=np.arange(3.0))])
    path = tmp_path / f"a.fits{suffix}"
    fits.HDUList([fits.PrimaryHDU(), curve]).writeto(path)
    with pytest.raises(ReadError, match=r"no HDU has an image.*tables"):
        FitsReader().read(Row(0, str(path)), None)
