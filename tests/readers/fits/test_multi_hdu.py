"""Several images of a row, against astropy: bit for bit, and each file opened once."""

from __future__ import annotations

import builtins
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from fits_files import decoded
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import fractions

from readers import FitsReader, Hdu, ReadError, Row, Sample, Window
from readers.fits.multi_hdu import OFFSETS, STORED, HduKind, HdusReader, suffix
from readers.testing import NUMBER, ReaderContract, refused

RNG = np.random.default_rng(0)
SHAPE = 31, 23
SCI = RNG.normal(100, 9, SHAPE).astype(np.float32)
INTEGERS: dict[str, NDArray[Any]] = {
    dtype: RNG.integers(low, high, SHAPE, endpoint=True).astype(dtype)
    for dtype, low, high in (
        ("uint8", 0, 255),
        ("int8", -128, 127),
        ("int16", -(2**15), 2**15 - 1),
        ("uint16", 0, 2**16 - 1),
        ("int32", -(2**31), 2**31 - 1),
        ("uint32", 0, 2**32 - 1),
        ("int64", -(2**31), 2**31 - 1),
    )
}


def reader_of(row: Row | None = None, **images: Any) -> HdusReader:
    """Make a Reader; the kinds of images are those of a row."""
    made = {name: one if isinstance(one, Hdu) else Hdu(one) for name, one in images.items()}
    main = FitsReader(planes=made["image"].planes)
    reader = HdusReader(made, {}, main)
    kinds = {} if row is None else reader.kinds_of(row)
    kinds.pop("image", None)
    return HdusReader(made, kinds, main)


def images_of(reader: HdusReader, sample: Sample) -> dict[str, NDArray[Any]]:
    """Do what the graph does with a Sample: images of shape (planes, height, width), by name."""
    from dali_pipelines.kernels.fits.image import decode_image  # numba

    found = {"image": decoded(sample, reader.channels)}
    for place, (name, kind) in enumerate(reader.kinds.items(), 1):
        names = {spec: sample[spec + suffix(place)] for spec in ("shape", "payload", "plan")}
        scalings = np.split(sample["scaling" + suffix(place)], kind.planes)
        if kind.dtype == "float32":
            one = Sample({**names, "scaling": np.concatenate(scalings)})
            found[name] = decoded(one, kind.planes)
            continue
        dtype = STORED.get(kind.dtype, kind.dtype)
        out = np.full((kind.planes, *names["shape"].shape[:2], 1), 7, dtype)
        for plane, plan, scaling in zip(
            out, np.split(names["plan"], kind.planes), scalings, strict=True
        ):
            none = np.zeros(2, np.int32), np.zeros(0, np.float32)
            assert decode_image(plane, names["payload"], plan, scaling, *none) == 0
        found[name] = (out[..., 0].astype(np.int64) + OFFSETS.get(kind.dtype, 0)).astype(kind.dtype)
    return found


def mosaic(path: Path, *hdus: Any) -> Row:
    fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(path, overwrite=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1))
    return Row(NUMBER, str(path))


def triplet(path: Path, shape: tuple[int, int] = SHAPE) -> Row:
    sci, dq = np.resize(SCI, shape), np.resize(INTEGERS["int16"], shape)
    return mosaic(
        path,
        fits.CompImageHDU(sci, name="SCI", compression_type="RICE_1"),
        fits.ImageHDU(sci * 2, name="ERR"),
        fits.CompImageHDU(dq, name="DQ", compression_type="RICE_1"),
    )


ALL = {"image": "SCI", "err": "ERR", "dq": "DQ"}


def check(reader: HdusReader, row: Row, expected: dict[str, NDArray[Any]], **where: Any) -> None:
    found = images_of(reader, reader.read(row, **where))
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name].reshape(array.shape), array)
        assert found[name].dtype == array.dtype


class TestHdus(ReaderContract):
    @pytest.fixture
    def reader(self) -> HdusReader:
        kinds = {"err": HduKind("float32", 1), "dq": HduKind("int16", 1)}
        return HdusReader({name: Hdu(hdu) for name, hdu in ALL.items()}, kinds, FitsReader())

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return triplet(tmp_path / "a.fits")

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return mosaic(tmp_path / "bad.fits", fits.ImageHDU(SCI, name="SCI"))

    def pixels(self, sample: Sample) -> np.ndarray:
        return decoded(sample)


class TestGzippedHdus(TestHdus):
    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return triplet(tmp_path / "a.fits.gz")


class TestParts(TestHdus):
    """The last image is in a file of its own; the number of its HDU is counted from the row's."""

    @pytest.fixture
    def reader(self) -> HdusReader:
        kinds = {"err": HduKind("float32", 1), "dq": HduKind("int16", 1)}
        images = {"image": Hdu(), "err": Hdu(relative=1), "dq": Hdu(part="mask", relative=2)}
        return HdusReader(images, kinds, FitsReader())

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return self.row(triplet(tmp_path / "a.fits").path)

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return Row(NUMBER, triplet(tmp_path / "a.fits").path, 1, {"mask": None})

    def row(self, path: Path | str) -> Row:
        return Row(NUMBER, str(path), 1, {"mask": Row(NUMBER, str(path))})


SETTINGS: list[dict[str, Any] | None] = [
    None,
    {"compression_type": "RICE_1", "tile_shape": (4, 9)},
    {"compression_type": "GZIP_2"},
    {"compression_type": "HCOMPRESS_1"},
    {"compression_type": "GZIP_1"},
]


def _hdu(array: NDArray[Any], settings: dict[str, Any] | None, name: str) -> Any:
    if settings is None or array.dtype in (np.int8, np.uint32, np.int64):  # astropy's limits
        return fits.ImageHDU(array, name=name)
    if array.dtype == np.uint8 and settings["compression_type"] == "HCOMPRESS_1":
        return fits.ImageHDU(array, name=name)
    return fits.CompImageHDU(array, name=name, **settings)


@given(
    st.lists(
        st.tuples(st.sampled_from(["float32", *INTEGERS]), st.sampled_from(SETTINGS)),
        min_size=1,
        max_size=4,
    ),
    st.permutations(range(5)),
    st.booleans(),
    st.none() | st.tuples(st.integers(1, 31), st.integers(1, 23), fractions, fractions),
)
def test_as_astropy_decodes_them(
    tmp_path: Path, others: list[Any], order: list[int], packed: bool, place: Any
) -> None:
    """Whatever their types and codecs, in any order, of plain and of gzipped files."""
    hdus = [_hdu(SCI, SETTINGS[1], "SCI")]
    for number, (dtype, settings) in enumerate(others):
        array = SCI * 3 if dtype == "float32" else INTEGERS[dtype]
        hdus.append(_hdu(array, settings, f"N{number}"))
    hdus = [hdus[n] for n in order if n < len(hdus)]
    row = mosaic(tmp_path / ("a.fits.gz" if packed else "a.fits"), *hdus)
    names = {"image": "SCI", **{f"n{number}": f"N{number}" for number in range(len(others))}}
    reader = reader_of(row, **names)
    window = place and Window(height=place[0], width=place[1], y=place[2], x=place[3])
    y, x = window.place(*SHAPE) if window else (0, 0)
    inside = np.s_[y : y + place[0], x : x + place[1]] if window else np.s_[:, :]
    expected = {}
    with fits.open(row.path) as opened:
        for name, hdu in names.items():
            values = opened[hdu].data[inside]
            if values.dtype.kind == "f":
                expected[name] = values.astype(np.float32)
            elif values.dtype.itemsize == 8:
                expected[name] = values.astype(np.int32)
            else:
                kind = np.int64 if values.dtype.kind == "u" and values.dtype.itemsize == 4 else None
                expected[name] = values.astype(kind or values.dtype.newbyteorder("="))
    check(reader, row, expected, window=window)
    reader.verify(row)


@pytest.mark.parametrize(
    ("cards", "dtype"),
    [
        ({}, "int16"),
        ({"BZERO": 32768}, "uint16"),
        ({"BZERO": 32767}, "float32"),
        ({"BSCALE": 2}, "float32"),
        ({"BLANK": 5}, "float32"),
        ({"BLANK": 5, "BZERO": 32768}, "uint16"),  # astropy does not apply it there
        ({"BSCALE": 1.0, "BZERO": 0.0}, "int16"),
    ],
)
def test_type_that_a_header_means(tmp_path: Path, cards: dict[str, Any], dtype: str) -> None:
    hdu = fits.ImageHDU(INTEGERS["int16"], name="DQ")
    hdu.header.update(cards)
    fits.HDUList([fits.PrimaryHDU(SCI), hdu]).writeto(tmp_path / "a.fits")
    with fits.open(tmp_path / "a.fits", "update", do_not_scale_image_data=True) as opened:
        opened[1].header.update(cards)
    row = Row(NUMBER, str(tmp_path / "a.fits"))
    reader = reader_of(row, image=0, dq=1)
    assert reader.kinds["dq"] == HduKind(dtype, 1)
    values = fits.getdata(row.path, 1)
    check(reader, row, {"image": SCI, "dq": values.astype(dtype)}, window=None)


def test_other_types_are_rejected_unless_they_become_float32(tmp_path: Path) -> None:
    first = triplet(tmp_path / "a.fits")
    dq = fits.ImageHDU(INTEGERS["int32"] % 1000, name="DQ")
    other = mosaic(
        tmp_path / "b.fits", fits.ImageHDU(SCI, name="SCI"), fits.ImageHDU(SCI, name="ERR"), dq
    )
    reader = reader_of(first, **ALL)
    error = refused(reader, other, None, r"dq: .*int32 \(BITPIX 32\), expected int16: leave")
    assert error.hdu == 3
    wide = reader_of(first, image="SCI", err="ERR", dq=Hdu("DQ", dtype="float32"))
    found = images_of(wide, wide.read(other, None))
    np.testing.assert_array_equal(found["dq"][0], (INTEGERS["int32"] % 1000).astype(np.float32))
    with pytest.raises(ReadError, match=r"dq: .*int16 .*expected uint8"):
        reader_of(first, image="SCI", dq=Hdu("DQ", dtype="uint8")).read(first, None)


def test_wide_integers_must_fit(tmp_path: Path) -> None:
    large = INTEGERS["int64"].copy()
    large[30, 22] = 2**31
    row = mosaic(tmp_path / "a.fits", fits.ImageHDU(SCI), fits.ImageHDU(large))
    reader = reader_of(row, image=1, dq=2)
    check(
        reader,
        row,
        {"image": SCI[:30, :9], "dq": large[:30, :9].astype(np.int32)},
        window=Window(height=30, width=9, y=0, x=0),
    )
    with pytest.raises(ReadError, match=r"dq: .*64-bit.*int32.*dtype='float"):
        reader.read(row, None)


@pytest.mark.parametrize("name", ["a.fits", "a.fits.gz"])
def test_missing_images_are_named(tmp_path: Path, name: str) -> None:
    row = triplet(tmp_path / name)
    reader = reader_of(row, **ALL)
    short = mosaic(tmp_path / f"short{name}", fits.ImageHDU(SCI, name="SCI"))
    refused(reader, short, None, "err: .*no HDU 'ERR', the file has PRIMARY, SCI")
    beyond = reader_of(None, image=Hdu(), err=Hdu(relative=9))
    numbered = Row(NUMBER, row.path, 1)
    error = refused(beyond, numbered, None, "err: .*no HDU 10, .*4 HDUs")
    assert error.hdu == 10
    refused(beyond, row, None, "err: relative=9 .*'hdu'.*null")
    before = reader_of(None, image=Hdu(), err=Hdu(relative=-2))
    refused(before, numbered, None, "err: .*no HDU 1-2")
    primary = reader_of(None, image=Hdu(), err=0)
    refused(primary, numbered, None, "err: HDU 0 .*no image.*PrimaryHDU")


@pytest.mark.parametrize("name", ["a.fits", "a.fits.gz"])
def test_sizes_must_agree(tmp_path: Path, name: str) -> None:
    row = mosaic(tmp_path / name, fits.ImageHDU(SCI), fits.ImageHDU(SCI[:30]), fits.ImageHDU(SCI))
    reader = reader_of(None, image=1, third=3, err=2)
    reason = r"err: HDU 2 .*30x23 .*HDU 1 \(image\) .*31x23"
    refused(reader, row, None, reason)
    with pytest.raises(ReadError, match=reason):
        reader.read(row, Window(height=31, width=23))


def test_files_of_parts_are_named(tmp_path: Path) -> None:
    image, mask = triplet(tmp_path / "a.fits"), triplet(tmp_path / "b.fits", (5, 6))
    reader = reader_of(None, image="SCI", dq=Hdu("DQ", part="mask"))
    assert reader.parts == ("mask",)
    row = Row(NUMBER, image.path, parts={"mask": mask})
    refused(reader, row, None, rf"dq, {mask.path}\[3\]: HDU 3 .*5x6 .*HDU 1 \(image\)")
    absent = Row(NUMBER, image.path, parts={"mask": None})
    refused(reader, absent, None, "dq: .*no file of part 'mask'")
    missing = Row(NUMBER, image.path, parts={"mask": Row(NUMBER, str(tmp_path / "none"))})
    refused(reader, missing, None, f"dq, {tmp_path}/none: .*No such file")


@pytest.mark.parametrize("name", ["a.fits", "a.fits.gz"])
def test_each_file_is_opened_once(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = triplet(tmp_path / name)
    reader = reader_of(row, **ALL)
    opened = []
    for module, function in ((os, "open"), (builtins, "open")):
        original = getattr(module, function)

        def counted(path: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            opened.append(path)
            return _original(path, *args, **kwargs)

        monkeypatch.setattr(module, function, counted)
    reader.read(row, Window(height=5, width=5))
    assert opened.count(row.path) == 1


def test_less_is_read_of_a_window(tmp_path: Path) -> None:
    row = triplet(tmp_path / "a.fits", (500, 300))
    reader = reader_of(row, **ALL)
    whole = reader.read(row, None).input_bytes
    assert reader.read(row, Window(height=20, width=20)).input_bytes < whole / 5


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("a.fits", (0, 2)),
        ("a.fits.gz", (0, 2)),
        ("a.fits", (2, 0)),
        ("a.fits.gz", (2, 0)),
        ("a.fits.gz", (1, 1)),
    ],
)
def test_planes_of_one_cube(tmp_path: Path, name: str, pair: tuple[int, int]) -> None:
    cube = np.stack([SCI + n for n in range(3)])
    row = mosaic(tmp_path / name, fits.ImageHDU(cube, name="C"), fits.ImageHDU(SCI, name="L"))
    images = {"image": Hdu("C", planes=pair[0]), "both": Hdu("C", planes=pair), "last": "L"}
    expected = {"image": cube[pair[0]], "both": cube[list(pair)], "last": SCI}
    reader = reader_of(row, **images)
    check(reader, row, expected, window=None)
    window = Window(height=9, width=8, y=0.6, x=0.3)
    y, x = window.place(*SHAPE)
    cut = {key: array[..., y : y + 9, x : x + 8] for key, array in expected.items()}
    check(reader, row, cut, window=window)


@pytest.mark.parametrize("planes", [[0, 2], np.array([0, 2]), (np.int64(0), np.uint8(2))], ids=str)
def test_images_of_equal_planes_are_equal(planes: Any) -> None:
    one, other = Hdu("C", planes=planes), Hdu("C", planes=(0, 2))
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)


def test_planes_behind_the_end_of_a_gzipped_file(tmp_path: Path) -> None:
    cube = RNG.normal(100, 9, (4, 60, 60)).astype(np.float32)
    path = tmp_path / "a.fits.gz"
    sound = mosaic(path, fits.ImageHDU(cube, name="C"))
    before, behind = (
        reader_of(sound, image=Hdu("C", planes=1), pair=Hdu("C", planes=pair))
        for pair in ((2, 0), (3, 0))
    )
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[: 2 * 2880 + 3 * cube[0].nbytes]))
    before.verify(sound)
    for read in (lambda: behind.read(sound, None), lambda: behind.verify(sound)):
        with pytest.raises(ReadError, match="unpacked file ends"):
            read()


def test_all_planes_and_the_plane_of_the_row(tmp_path: Path) -> None:
    cube = np.stack([SCI + n for n in range(3)])
    made = mosaic(tmp_path / "a.fits", fits.ImageHDU(cube), fits.ImageHDU(cube * 2))
    row = Row(NUMBER, made.path, plane=1)
    reader = reader_of(row, image=1, err=2, every=Hdu(2, planes="all"))
    assert reader.kinds["every"].planes == 3
    check(reader, row, {"image": cube[1], "err": cube[1] * 2, "every": cube * 2}, window=None)


def test_an_extname_twice_is_the_first_one(tmp_path: Path) -> None:
    row = mosaic(
        tmp_path / "a.fits",
        fits.ImageHDU(SCI, name="SCI", ver=1),
        fits.ImageHDU(SCI * 2, name="SCI", ver=2),
    )
    reader = reader_of(row, image="SCI", again=("SCI", 2), same=1)
    check(reader, row, {"image": SCI, "again": SCI * 2, "same": SCI}, window=None)


def test_blank_is_zero(tmp_path: Path) -> None:
    row = triplet(tmp_path / "a.fits")
    reader = reader_of(row, **ALL)
    for array in images_of(reader, reader.blank(5, 7)).values():
        assert array.shape == (1, 5, 7)
        assert not array.any()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"hdu": -1}, "hdu must be 0 or more"),
        ({"relative": 1.5}, "relative must be an integer"),
        ({"relative": True}, "relative must be an integer"),
        ({"hdu": 1, "relative": 2}, "hdu and relative .*leave out one"),
        ({"part": ""}, "part must be the name of a part"),
        ({"planes": -1}, "planes must be one or several integers"),
        ({"dtype": "float64"}, "dtype must be one of"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Hdu(**settings)
