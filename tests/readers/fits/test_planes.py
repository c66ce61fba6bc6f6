"""Planes of cubes, and one-dimensional images, against astropy and fitsio: bit for bit."""

from __future__ import annotations

import gzip
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fits_files import decoded, plain_hdu, truth, write
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import StoredImage, cubes, fractions

from readers import FitsReader, ReadError, Row, Window
from readers.contract import Sample
from readers.fits.payload import HEAD, PER_TILE, RICE, STORED
from readers.testing import NUMBER, ReaderContract, refused

CUBE = (np.arange(5 * 31 * 23, dtype=np.int16) * 17).reshape(5, 31, 23)


def saved(
    folder: Path,
    array: NDArray[Any] = CUBE,
    name: str = "cube.fits",
    plane: int | None = None,
    **cards: Any,
) -> Row:
    path = folder / name
    path.write_bytes(plain_hdu(array, cards))
    return Row(NUMBER, str(path), plane=plane)


def compressed(
    folder: Path, array: NDArray[Any] = CUBE, plane: int | None = None, **settings: Any
) -> Row:
    path = folder / "cube.fits"
    write(path, StoredImage(array, {}, {"compression_type": "RICE_1", **settings}))
    return Row(NUMBER, str(path), plane=plane)


def planes_of(reader: FitsReader, row: Row, window: Window | None = None) -> NDArray[Any]:
    """Do what the graph does with a Sample of several planes: (planes, height, width)."""
    return decoded(reader.read(row, window), reader.channels)


def expected(row: Row, window: Window | None, hdu: int | None = None) -> NDArray[Any]:
    """Return all planes as astropy reads them, cut to the window."""
    found = truth(row.path, hdu)
    found = found.reshape(-1, *(1, *found.shape)[-2:])
    if window is not None:
        y, x = window.place(*found.shape[1:])
        found = found[:, y : y + window.height, x : x + window.width]
    return found


class TestPlane(ReaderContract):
    @pytest.fixture
    def reader(self) -> FitsReader:
        return FitsReader()

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, CUBE[:1], plane=0, BSCALE=0.1, BZERO=3, BLANK=40)

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, plane=5)

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return decoded(sample)


class TestPlaneOfTheReader(TestPlane):
    @pytest.fixture
    def reader(self) -> FitsReader:
        return FitsReader(planes=1)

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return compressed(tmp_path, CUBE[:2], tile_shape=(1, 4, 9))

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, CUBE[0])


class TestChannels(TestPlane):
    @pytest.fixture
    def reader(self) -> FitsReader:
        return FitsReader(planes=(2, 0))

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, CUBE[:3])

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, CUBE[:2])

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return np.moveaxis(decoded(sample, 2), 0, -1)


class TestAllPlanes(TestChannels):
    @pytest.fixture
    def reader(self) -> FitsReader:
        return FitsReader(planes="all", num_planes=2)

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return compressed(tmp_path, CUBE[:2].astype(np.float32), dither_seed=9999)

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path)


windows = st.none() | st.builds(
    Window,
    height=st.integers(1, 4),
    width=st.integers(1, 4),
    y=st.none() | fractions,
    x=st.none() | fractions,
)


@given(st.data(), cubes(), windows, st.booleans())
def test_as_astropy(
    tmp_path: Path, data: st.DataObject, image: StoredImage, window: Window | None, packed: bool
) -> None:
    """Codec by type by tiles by planes in any order by windows, of plain and of gzipped files."""
    path = tmp_path / "cube.fits"
    write(path, image)
    all_planes = expected(Row(NUMBER, str(path)), window)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes(), 1))
    row, count = Row(NUMBER, str(path)), len(all_planes)
    plane = data.draw(st.integers(0, count - 1))
    found = planes_of(FitsReader(), Row(NUMBER, row.path, plane=plane), window)
    np.testing.assert_array_equal(found, all_planes[[plane]])
    chosen = tuple(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=4)))
    for planes in (chosen, tuple(range(count))[::-1]):
        found = planes_of(FitsReader(planes=planes), row, window)
        np.testing.assert_array_equal(found, all_planes[[*planes]], err_msg=f"planes {planes}")
    reader = FitsReader(planes="all", num_planes=count)
    np.testing.assert_array_equal(planes_of(reader, row, window), all_planes)


@pytest.mark.parametrize(
    ("codec", "dtype"),
    [
        *itertools.product(("RICE_1", "GZIP_1", "GZIP_2", "HCOMPRESS_1"), ("int16", "float32")),
        ("PLIO_1", "int16"),  # it holds masks
    ],
)
def test_as_fitsio(tmp_path: Path, codec: str, dtype: str) -> None:
    """Files that cfitsio wrote, as it reads them."""
    import fitsio

    cube = np.random.default_rng(3).normal(1000, 30, (4, 20, 24)).astype(dtype)
    path = tmp_path / "cube.fits"
    tile = [1, 10, 24] if codec == "HCOMPRESS_1" else [1, 7, 24]
    settings = {"dither_seed": 77, "qmethod": 1} if dtype == "float32" else {}
    fitsio.write(str(path), cube, compress=codec, tile_dims=tile, clobber=True, **settings)
    with fitsio.FITS(str(path)) as hdus:
        cfitsio = hdus[1].read()
    window = Window(height=6, width=5, y=0.6, x=0.3)
    y, x = window.place(20, 24)
    for plane in range(4):
        row = Row(NUMBER, str(path), plane=plane)
        whole = planes_of(FitsReader(), row)[0]
        np.testing.assert_array_equal(whole, cfitsio[plane].astype(np.float32))
        part = planes_of(FitsReader(), row, window)[0]
        np.testing.assert_array_equal(part, whole[y : y + 6, x : x + 5])


@pytest.mark.parametrize("dither", [1, 2])
def test_the_random_numbers_go_on_from_plane_to_plane(tmp_path: Path, dither: int) -> None:
    noise = np.random.default_rng(5).normal(100, 20, (3, 9, 40)).astype(np.float32)
    noise[:, 3, ::7] = 0
    row = compressed(tmp_path, noise, quantize_method=dither, dither_seed=9990)
    reader = FitsReader(planes=(2, 1))
    assert (tile_kinds(reader.read(row, None)) == RICE).all()
    np.testing.assert_array_equal(planes_of(reader, row), truth(row.path)[[2, 1]])


def tile_kinds(sample: Sample) -> NDArray[Any]:
    plan = sample["plan"].reshape(2, -1)
    return plan[:, HEAD:].reshape(2, -1, PER_TILE)[..., STORED]


@pytest.mark.parametrize(
    ("axes", "dtype", "codec", "reader"),
    [
        ((2, 3), "int16", None, {}),
        ((2, 3), "int64", None, {}),  # astropy decodes it
        ((2, 1, 3, 2), "int64", None, {}),
        ((3, 2), "int32", "RICE_1", {}),
        ((3, 2), "int32", "RICE_1", {"largest_tile": 1}),  # astropy decodes it
        ((2, 1, 3, 2), "float32", "RICE_1", {}),
        ((2, 3), "int16", "GZIP_1", {}),
        ((2, 3), "float64", "GZIP_2", {"largest_tile": 1}),
        ((2, 1, 3, 2), "int32", "HCOMPRESS_1", {}),
        ((3, 2), "int16", "PLIO_1", {}),
    ],
)
def test_more_axes_are_counted_in_c_order(
    tmp_path: Path, axes: tuple[int, ...], dtype: str, codec: str | None, reader: dict[str, Any]
) -> None:
    array = np.random.default_rng(0).integers(0, 99, (*axes, 5, 6)).astype(dtype)
    tile = (*(1,) * len(axes), 5, 6)
    settings: dict[str, Any] = {"compression_type": codec, "tile_shape": tile}
    row = compressed(tmp_path, array, **settings) if codec else saved(tmp_path, array)
    packed = Row(NUMBER, f"{row.path}.gz")
    Path(packed.path).write_bytes(gzip.compress(Path(row.path).read_bytes()))
    planes = (4, 1, 3, 2)
    window = Window(height=3, width=4, y=0.9, x=0.2)
    for place, part in itertools.product((row, packed), (None, window)):
        found = planes_of(FitsReader(planes=planes, **reader), place, part)
        np.testing.assert_array_equal(found, expected(row, part)[[*planes]], str((place, part)))
    one = planes_of(FitsReader(**reader), Row(NUMBER, row.path, plane=4))
    np.testing.assert_array_equal(one, expected(row, None)[[4]])


def test_stored_integers_of_a_plane(tmp_path: Path) -> None:
    from dali_pipelines.kernels.fits.image import decode_image

    row = compressed(tmp_path, plane=3)
    sample = FitsReader(stored="int16").read(row, None)
    out = np.zeros((31, 23, 1), np.int16)
    arrays = (sample[name] for name in ("payload", "plan", "scaling"))
    assert decode_image(out, *arrays, np.zeros(2, np.int32), np.zeros(0, np.float32)) == 0
    np.testing.assert_array_equal(out[..., 0], CUBE[3])


# How much is read.


@pytest.mark.parametrize("compression", [None, "RICE_1"])
def test_only_the_wanted_plane_is_read(tmp_path: Path, compression: str | None) -> None:
    cube = np.random.default_rng(0).integers(0, 4000, (50, 64, 64)).astype(np.int16)
    make = compressed if compression else saved
    row = make(tmp_path, cube, plane=40)
    size = (tmp_path / "cube.fits").stat().st_size
    assert FitsReader().read(row, None).input_bytes < size / 50 + 3 * 2880
    window = Window(height=8, width=8, y=0.9)
    assert FitsReader().read(row, window).input_bytes < size / 50 / 7 + 3 * 2880
    sample = FitsReader(planes=(3, 7)).read(Row(NUMBER, row.path), None)
    travelled = sum(array.nbytes for array in sample.arrays.values())
    peek = FitsReader(planes=(3, 7)).peek(Row(NUMBER, row.path), None)
    assert travelled <= peek.nbytes < 1.5 * travelled


def test_astropy_decodes_only_the_wanted_plane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astropy.io.fits.hdu.compressed import _tiled_compression

    decodes = []
    whole = _tiled_compression._decompress_tile

    def counted(*args: Any, **kwargs: Any) -> NDArray[Any]:
        decodes.append(1)
        return whole(*args, **kwargs)

    monkeypatch.setattr(_tiled_compression, "_decompress_tile", counted)
    cube = np.random.default_rng(0).integers(0, 4000, (8, 16, 16)).astype(np.int16)
    row = compressed(tmp_path, cube, plane=5, tile_shape=(1, 8, 16))
    np.testing.assert_array_equal(planes_of(FitsReader(largest_tile=1), row)[0], cube[5])
    assert 2 <= len(decodes) <= 4  # of 16 tiles; astropy looks at some twice


def test_tiles_of_several_planes(tmp_path: Path) -> None:
    cube = np.random.default_rng(0).integers(0, 4000, (8, 16, 16)).astype(np.int16)
    row = compressed(tmp_path, cube, tile_shape=(3, 5, 16))
    reader = FitsReader(planes=(7, 2, 3))
    window = Window(height=9, width=3, y=0.5)
    y, x = window.place(16, 16)
    cut = cube[[7, 2, 3], y : y + 9, x : x + 3]
    np.testing.assert_array_equal(planes_of(reader, row, window), cut)


# One dimension.


@pytest.mark.parametrize("codec", [None, "RICE_1", "GZIP_2"])
def test_a_one_dimensional_image_has_one_row(tmp_path: Path, codec: str | None) -> None:
    settings: Any = codec and {"compression_type": codec, "tile_shape": (20,)}
    for dtype in ("uint8", "int16", "int32", "float32", "float64", "int64"):
        if codec and dtype == "int64":
            continue  # astropy does not compress it
        line = np.random.default_rng(0).normal(100, 20, 77).astype(dtype)
        write(tmp_path / f"{dtype}.fits", StoredImage(line, {}, settings))
        row = Row(NUMBER, str(tmp_path / f"{dtype}.fits"))
        peek = FitsReader().peek(row, None)
        assert (peek.height, peek.width) == (1, 77)
        whole = planes_of(FitsReader(), row)
        np.testing.assert_array_equal(whole, truth(row.path).reshape(1, 1, 77), err_msg=dtype)
        part = planes_of(FitsReader(), row, Window(height=1, width=9, x=0.7))
        np.testing.assert_array_equal(part, whole[:, :, 48:57], err_msg=dtype)
        FitsReader().verify(row)
        refused(FitsReader(), row, Window(height=2, width=2), "1x77")


# What is refused.


@pytest.mark.parametrize("make", [saved, compressed])
def test_a_cube_without_a_plane_names_the_choices(tmp_path: Path, make: Callable[..., Any]) -> None:
    words = "5 planes.*31x23.*'plane'.*--planes all.*planes"
    refused(FitsReader(), make(tmp_path), None, words)


@pytest.mark.parametrize(
    ("reader", "plane", "words"),
    [
        (FitsReader(), 5, "no plane 5, the image has 5"),
        (FitsReader(planes=(0, 9)), None, "no plane 9, the image has 5"),
        (FitsReader(planes="all", num_planes=4), None, "5 planes, expected 4"),
        (FitsReader(planes=(0, 1)), 2, "plane 2 .*, but planes"),
    ],
)
def test_planes_that_are_not_there(
    tmp_path: Path, reader: FitsReader, plane: int | None, words: str
) -> None:
    refused(reader, saved(tmp_path, plane=plane), None, words)


def test_the_row_decides(tmp_path: Path) -> None:
    row = saved(tmp_path, plane=4)
    np.testing.assert_array_equal(planes_of(FitsReader(planes=1), row)[0], CUBE[4])


@pytest.mark.parametrize("planes", [np.array([3, 1]), [3, 1], (np.int64(3), 1)])
def test_planes_may_be_of_numpy(tmp_path: Path, planes: Any) -> None:
    found = planes_of(FitsReader(planes=planes), saved(tmp_path))
    np.testing.assert_array_equal(found, CUBE[[3, 1]])


@pytest.mark.parametrize(
    ("planes", "words"),
    [("all", "num_planes")]
    + [
        (planes, "planes.*integers from 0")
        for planes in (-1, (), (0, -2), "two", ("a",), 1.5, np.array([0.5]))
    ],
)
def test_wrong_settings(planes: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FitsReader(planes=planes)


@pytest.mark.parametrize(
    ("card", "value"),
    [("NAXIS3", 3), ("NAXIS3", -1), ("ZNAXIS3", 3), ("ZNAXIS", -1), ("ZTILE3", 3), ("ZTILE3", -1)],
)
def test_headers_that_contradict_themselves(tmp_path: Path, card: str, value: int) -> None:
    """ReadError, or astropy's pixels."""
    row = (compressed if card[0] == "Z" else saved)(tmp_path, plane=1)
    content = (tmp_path / "cube.fits").read_bytes()
    at = content.index(f"{card:<8}=".encode())
    (tmp_path / "cube.fits").write_bytes(
        content[:at] + f"{card:<8}= {value:>20}".ljust(80).encode() + content[at + 80 :]
    )
    try:
        found = planes_of(FitsReader(), row)
    except ReadError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(found[0], expected(row, None, int(card[0] == "Z"))[1])
