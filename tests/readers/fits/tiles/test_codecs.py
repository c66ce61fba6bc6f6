"""Every codec, type and shape against astropy; what gzipped tiles send, and what is rejected."""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fitsio
import numpy as np
import pytest
from astropy.io import fits
from fits_files import decoded, truth
from numpy.typing import NDArray
from rice_tiles import encoded

from readers import FitsReader, ReadError, Row, Window
from readers.fits.gunzip import inflated
from readers.fits.payload import HEAD, MAX_BLOCKSIZE, PER_TILE, QUANTIZED, RICE, SHUFFLED, STORED

RNG = np.random.default_rng(0)
NOISE = RNG.normal(1000, 60, (3, 37, 41))
_INTEGERS = ("uint8", "int16", "int32", "uint16", "uint32")
_ALL = (*_INTEGERS, "int64", "float32", "float64")
DTYPES = {
    "RICE_1": _INTEGERS,
    "GZIP_1": _ALL,
    "GZIP_2": _ALL,
    "NOCOMPRESS": _ALL,
    "HCOMPRESS_1": _INTEGERS,
    "PLIO_1": _INTEGERS[:3],
}
"""Types that astropy writes without loss, by codec."""
SHAPES: dict[str, dict[str, Any]] = {
    "rows": {},
    "squares": {"tile_shape": (8, 16)},
    "cube": {"tile_shape": (1, 8, 41)},
}
QUANTIZED_BY: dict[str, dict[str, Any]] = {
    "no dither": {"quantize_method": -1},
    "dither 1": {"quantize_method": 1, "dither_seed": 77},
    "dither 2": {"quantize_method": 2, "dither_seed": 10000},
}


def image_of(dtype: str, codec: str) -> NDArray[Any]:
    """Return a cube of a type, with NaN and zeros among floats; masks for PLIO_1."""
    image = np.where(NOISE > 1050, 1, 0) if codec == "PLIO_1" else NOISE
    if np.dtype(dtype).kind == "f":
        image = image.copy()
        image[:, 3, 4], image[:, 5] = np.nan, 0
    return image.astype(dtype) % 251 if dtype == "uint8" else image.astype(dtype)


def saved(folder: Path, image: NDArray[Any], codec: str, **options: Any) -> str:
    path = folder / "image.fits"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hdu = fits.CompImageHDU(image, compression_type=codec, **options)
        hdu.writeto(path, overwrite=True)
    return str(path)


def check_equal(path: str, planes: int, case: str = "", *, noise: bool = True) -> None:
    """Compare whole planes and windows with astropy; tiles without noise inflate to many bytes."""
    expected = truth(path).reshape(-1, *truth(path).shape[-2:])
    reader = FitsReader(planes=tuple(range(planes)) if planes > 1 else None)
    for window in (None, Window(height=9, width=11, y=0.8, x=0.3)):
        y, x, height, width = (
            (0, 0, *expected.shape[-2:])
            if window is None
            else (*window.place(*expected.shape[-2:]), window.height, window.width)
        )
        sample = reader.read(Row(0, path), window)
        inside = expected[:, y : y + height, x : x + width]
        np.testing.assert_array_equal(decoded(sample, planes), inside, err_msg=case)
        travelled = sample["payload"].nbytes + sample["plan"].nbytes + sample["scaling"].nbytes
        assert reader.peek(Row(0, path), window).nbytes > 0.8 * travelled * noise, case


@pytest.mark.parametrize("codec", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_type(tmp_path: Path, codec: str, shape: str) -> None:
    for dtype in DTYPES[codec]:
        cube = image_of(dtype, codec)
        image = cube if shape == "cube" else cube[0]
        lossless = {"quantize_level": 0.0} if image.dtype.kind == "f" else {}
        path = saved(tmp_path, image, codec, **SHAPES[shape], **lossless)
        check_equal(path, image.size // cube[0].size, dtype)


@pytest.mark.parametrize("codec", ["RICE_1", "GZIP_1", "GZIP_2", "HCOMPRESS_1"])
@pytest.mark.parametrize("dither", QUANTIZED_BY)
def test_quantized_floats(tmp_path: Path, codec: str, dither: str) -> None:
    options = {"quantize_level": 4.0, "tile_shape": (1, 8, 41), **QUANTIZED_BY[dither]}
    for dtype in ("float32", "float64"):
        check_equal(saved(tmp_path, image_of(dtype, codec), codec, **options), 3, dtype)


@pytest.mark.parametrize("codec", ["RICE_1", "GZIP_2", "HCOMPRESS_1"])
@pytest.mark.parametrize("dither", QUANTIZED_BY)
def test_tiles_that_could_not_be_quantized(tmp_path: Path, codec: str, dither: str) -> None:
    """Those without noise, which are stored as floats, and gzipped."""
    options = {"quantize_level": 4.0, "tile_shape": (1, 8, 41), **QUANTIZED_BY[dither]}
    for dtype in ("float32", "float64"):
        image = image_of(dtype, codec)
        image[1, 8:16], image[2, :8] = 1.1, np.nan
        path = saved(tmp_path, image, codec, **options)
        with fits.open(path, disable_image_compression=True) as hdus:
            assert any(len(tile) for tile in hdus[1].data["GZIP_COMPRESSED_DATA"])
        check_equal(path, 3, dtype, noise=False)


def test_smoothed_tiles(tmp_path: Path) -> None:
    """HCOMPRESS_1 with SMOOTH, which only changes tiles that were compressed with loss."""
    options = {"hcomp_scale": 9, "hcomp_smooth": 1, **SHAPES["squares"]}
    check_equal(saved(tmp_path, image_of("int16", "HCOMPRESS_1"), "HCOMPRESS_1", **options), 3)


def with_zblank(path: str, letter: str, values: NDArray[Any]) -> None:
    """Give the table of a compressed image a column ZBLANK in place of the keyword."""
    with fits.open(path, disable_image_compression=True) as hdus:
        made = [fits.Column("ZBLANK", letter, array=values)]
        for column in hdus[1].columns:
            array = hdus[1].data[column.name]
            if column.format.startswith("1P"):
                array = np.array([*array, None], object)[:-1]
            made.append(fits.Column(column.name, column.format[:3], array=array))
        table = fits.BinTableHDU.from_columns(made)
        cards = [card for card in hdus[1].header.cards if card.keyword.startswith("Z")]
        table.header.extend(cards, unique=True)
    table.header.remove("ZBLANK", ignore_missing=True)
    table.writeto(path, overwrite=True)


@pytest.mark.parametrize("codec", ["RICE_1", "GZIP_1", "GZIP_2", "HCOMPRESS_1"])
@pytest.mark.parametrize("dither", QUANTIZED_BY)
def test_missing_pixels_by_a_column(tmp_path: Path, codec: str, dither: str) -> None:
    """FITS Standard 4.0, section 10.2.2: ZBLANK may be a column, with a value for each tile."""
    options = {"quantize_level": 4.0, "tile_shape": (1, 8, 41), **QUANTIZED_BY[dither]}
    path = saved(tmp_path, image_of("float32", codec), codec, **options)
    with fits.open(path, disable_image_compression=True) as hdus:
        zblank, tiles = hdus[1].header["ZBLANK"], len(hdus[1].data)
    with_zblank(path, "J", np.full(tiles, zblank))
    assert np.isnan(truth(path)).sum() == np.isnan(image_of("float32", codec)).sum() > 0
    check_equal(path, 3)


@pytest.mark.parametrize("letter", ["I", "J", "K"])
def test_each_tile_has_a_value_of_its_own_for_missing_pixels(tmp_path: Path, letter: str) -> None:
    options = {"quantize_level": 4.0, "tile_shape": (1, 8, 41), **QUANTIZED_BY["no dither"]}
    path = saved(tmp_path, NOISE.astype(np.float32), "RICE_1", **options)
    with fits.open(path, disable_image_compression=True) as hdus:
        scale, zero = (np.array(hdus[1].data[name]) for name in ("ZSCALE", "ZZERO"))
    corners = truth(path)[:, ::8, 0].ravel()
    with_zblank(path, letter, np.rint((corners - zero) / scale).astype(np.int64))
    assert np.isnan(truth(path)[:, ::8, 0]).all()
    check_equal(path, 3)


@pytest.mark.parametrize(
    ("codec", "dtype"),
    [*((codec, "int16") for codec in DTYPES), ("GZIP_2", "float32"), ("RICE_1", "float32")],
)
def test_tiles_of_more_than_16_bits_count(tmp_path: Path, codec: str, dtype: str) -> None:
    """Pixels, bytes, and words of PLIO_1, which counts them in digits of 15 bits."""
    image = np.random.default_rng(0).integers(0, 4000, (300, 400)).astype(dtype)
    if codec == "PLIO_1":
        image[:, ::2] = 0  # else astropy writes out of bounds
    path = saved(tmp_path, image, codec, tile_shape=image.shape)
    if codec != "NOCOMPRESS":  # cfitsio cannot read those of astropy
        np.testing.assert_array_equal(fitsio.read(path), truth(path))
    check_equal(path, 1)


def stored_values(path: str, window: Window | None = None) -> set[int]:
    """Return STORED of the tiles."""
    plan = FitsReader().read(Row(0, path), window)["plan"]
    return set(plan[HEAD:].reshape(-1, PER_TILE)[:, STORED].tolist())


def test_values_sent_of_gzipped_tiles(tmp_path: Path) -> None:
    image = NOISE[0].astype(np.int16)
    assert stored_values(saved(tmp_path, image, "GZIP_1")) == {16}
    assert stored_values(saved(tmp_path, image, "GZIP_2")) == {16 + SHUFFLED}
    floats = NOISE[0].astype(np.float32)
    assert stored_values(saved(tmp_path, floats, "GZIP_2")) == {32 + SHUFFLED + QUANTIZED}
    lossless = saved(tmp_path, NOISE[0], "GZIP_2", quantize_level=0.0)
    assert stored_values(lossless) == {-64}


def test_a_window_inflates_only_its_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, and never more than their pixels take."""
    most: list[int] = []

    def noted(packed: Any, limit: int) -> bytes:
        most.append(limit)
        return inflated(packed, limit)

    monkeypatch.setattr("readers.fits.tiles.codecs.inflated", noted)
    path = saved(tmp_path, NOISE[0].astype(np.int16), "GZIP_2", tile_shape=(8, 16))
    FitsReader().read(Row(0, path), Window(height=8, width=8, y=0.0, x=0.3))
    assert most == [8 * 128 + 1, 2 * 128 + 1]


def patched(path: str, content: bytes, *, tile: int = 1) -> Row:
    """Replace the bytes of a tile by others that are not longer."""
    with fits.open(path, disable_image_compression=True) as hdus:
        hdu = hdus[1]
        start = hdu.fileinfo()["datLoc"] + hdu.header["NAXIS1"] * hdu.header["NAXIS2"]
        _, offset = hdu.data.base["COMPRESSED_DATA"][tile].tolist()
        length = hdu.data["COMPRESSED_DATA"][tile].nbytes
    data = bytearray(Path(path).read_bytes())
    assert len(content) <= length
    data[start + offset : start + offset + length] = content.ljust(length, b"\0")
    Path(path).write_bytes(data)
    return Row(4, path)


ZEROS = gzip.compress(bytes(2 * 41), mtime=0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "gzip data are damaged"),
        (ZEROS[:-12], "gzip data are damaged"),
        (gzip.compress(bytes(83), mtime=0), "41 pixels has 83 bytes"),
        (gzip.compress(bytes(1 << 14), mtime=0), "longer than 82 bytes"),
        (gzip.compress(bytes(41), mtime=0), "41 pixels has 41 bytes"),
        (ZEROS[:-6] + b"\1" * 6, "gzip data are damaged.*[cC]hecksum"),
    ],
    ids=["zeros", "truncated", "a byte more", "bomb", "half", "checksum"],
)
def test_tiles_that_do_not_hold_their_pixels(tmp_path: Path, content: bytes, reason: str) -> None:
    path = saved(tmp_path, RNG.integers(0, 2**15, (37, 41)).astype(np.int16), "GZIP_1")
    with pytest.raises(ReadError, match=reason):
        FitsReader().read(patched(path, content), None)
    FitsReader().read(Row(4, path), Window(height=1, width=1, y=0.9))


def test_isal_and_zlib_agree() -> None:
    """On streams of all levels; and mutated ones that zlib inflates, and never wrong bytes."""
    content = NOISE.astype(np.int16).tobytes()
    for level in range(1, 10):
        assert inflated(gzip.compress(content, level), len(content) + 1) == content
    content = content[:2000]
    packed = gzip.compress(content, mtime=0)
    for place in range(8 * len(packed)):
        changed = bytearray(packed)
        changed[place // 8] ^= 1 << place % 8
        try:
            found = inflated(changed, len(content) + 1)
        except ValueError:
            with pytest.raises(zlib.error):
                zlib.decompress(changed, 31)
        else:
            assert found == content


def rewritten(path: str, columns: dict[str, list[NDArray[Any]]], **cards: int) -> None:
    """Write other tiles, an array each, into the table of a compressed image."""
    with fits.open(path, disable_image_compression=True) as hdus:
        old = hdus[1].header.copy()
    made = []
    for name, tiles in columns.items():
        array = np.empty(len(tiles), object)
        array[:] = tiles
        letter = {1: "B", 2: "I", 4: "J"}[tiles[0].dtype.itemsize]
        made.append(fits.Column(name, f"1P{letter}", array=array))
    table = fits.BinTableHDU.from_columns(made)
    table.header.extend([card for card in old.cards if card.keyword.startswith("Z")], unique=True)
    table.header.update(cards)
    table.writeto(path, overwrite=True)


@pytest.mark.parametrize("blocksize", [8, 16, 32, 64, 100, 128])
def test_blocks_of_rice(tmp_path: Path, blocksize: int) -> None:
    image = NOISE[0].astype(np.int16)
    path = saved(tmp_path, image, "RICE_1", tile_shape=(19, 41))
    streams = [
        np.frombuffer(encoded(part, blocksize), np.uint8) for part in (image[:19], image[19:])
    ]
    rewritten(path, {"COMPRESSED_DATA": streams}, ZVAL1=blocksize)
    np.testing.assert_array_equal(fitsio.read(path), image)
    check_equal(path, 1)
    if blocksize > MAX_BLOCKSIZE:  # for which `PADDING` is too short where a tile is damaged
        assert RICE not in stored_values(path)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
@pytest.mark.parametrize("column", ["UNCOMPRESSED_DATA", "GZIP_COMPRESSED_DATA"])
def test_tiles_that_rice_did_not_take(tmp_path: Path, column: str, dtype: str) -> None:
    image = image_of(dtype, "RICE_1")[0]
    path = saved(tmp_path, image, "RICE_1")
    with fits.open(path, disable_image_compression=True) as hdus:
        streams = list(hdus[1].data["COMPRESSED_DATA"])
    other = image[1]
    if column == "GZIP_COMPRESSED_DATA":
        packed = gzip.compress(other.astype(other.dtype.newbyteorder(">")).tobytes())
        other = np.frombuffer(packed, np.uint8)
    coded = [stream[:0] if tile == 1 else stream for tile, stream in enumerate(streams)]
    others = [other if tile == 1 else other[:0] for tile in range(len(streams))]
    rewritten(path, {"COMPRESSED_DATA": coded, column: others})
    np.testing.assert_array_equal(truth(path), image)
    check_equal(path, 1)


@pytest.mark.parametrize("codec", ["RICE_1", "GZIP_2", "PLIO_1"])
def test_a_gap_before_the_heap(tmp_path: Path, codec: str) -> None:
    """FITS Standard 4.0, section 7.3.5: THEAP."""
    path = saved(tmp_path, image_of("int16", codec)[0], codec)
    content = Path(path).read_bytes()
    with fits.open(path, disable_image_compression=True) as hdus:
        header, start = hdus[1].header, hdus[1].fileinfo()["datLoc"]
        heap = header["NAXIS1"] * header["NAXIS2"]
        header["PCOUNT"], header["THEAP"] = header["PCOUNT"] + 2880, heap + 2880
        text = header.tostring().encode()
    rows = content[start : start + heap]
    behind = bytes(fits.ImageHDU(np.zeros(1)).header.tostring(), "ascii") + bytes(2880)
    parts = content[:2880], text, rows, bytes(2880), content[start + heap :], behind
    Path(path).write_bytes(b"".join(parts))  # astropy reads behind the heap as much as the gap
    np.testing.assert_array_equal(fitsio.read(path), truth(path))
    check_equal(path, 1)


def with_header(path: str, head: Callable[[int], list[int]]) -> Row:
    """Give a PLIO_1 tile another header, made from its number of words."""
    with fits.open(path, disable_image_compression=True) as hdus:
        words = hdus[1].data["COMPRESSED_DATA"][1]
    return patched(path, np.array([*head(len(words)), *words[7:]], ">i2").tobytes())


@pytest.mark.parametrize(
    "head",
    [lambda size: [0, -100, size - 4], lambda size: [0, 5, -100, size - 2, 0]],
    ids=["old", "short"],
)
def test_other_headers_of_plio(tmp_path: Path, head: Callable[[int], list[int]]) -> None:
    mask = (NOISE[0] > 1050).astype(np.int16)
    path = saved(tmp_path, mask, "PLIO_1")
    with_header(path, head)
    np.testing.assert_array_equal(truth(path), mask)
    check_equal(path, 1)


@pytest.mark.parametrize(
    "head",
    [
        lambda size: [0, -100, size + 1],
        lambda size: [0, 7, -100, size + 1, 0, 0, 0],
        lambda size: [0, 7, -100, size, 1, 0, 0],
        lambda size: [0, 2, -100, size, 0, 0, 0],
        lambda size: [0, 7, -100, 6, 0, 0, 0],
    ],
    ids=["old, too long", "too long", "high word", "no header", "ends in its header"],
)
def test_headers_of_plio_that_do_not_fit(tmp_path: Path, head: Callable[[int], list[int]]) -> None:
    path = saved(tmp_path, (NOISE[0] > 1050).astype(np.int16), "PLIO_1")
    with pytest.raises(ReadError, match="header of a PLIO_1 tile"):
        FitsReader().read(with_header(path, head), None)


@pytest.mark.parametrize(
    ("codec", "dtype"),
    [*((codec, "int16") for codec in DTYPES), ("GZIP_2", "float32"), ("RICE_1", "float32")],
)
def test_a_scale_of_zero_is_ignored(tmp_path: Path, codec: str, dtype: str) -> None:
    path = saved(tmp_path, image_of(dtype, codec), codec, tile_shape=(1, 8, 41))
    with fits.open(path, "update", disable_image_compression=True) as hdus:
        hdus[1].header.update({"BSCALE": 0.0, "BZERO": 5.0})
    assert np.nanmax(truth(path)) > 5
    check_equal(path, 3)


@pytest.mark.parametrize(
    ("codec", "seed"), [("GZIP_1", None), ("GZIP_2", None), ("GZIP_1", 0), ("GZIP_2", 10001)]
)
def test_lossless_floats_need_no_seed(tmp_path: Path, codec: str, seed: int | None) -> None:
    """Also where the header names a dither, as CFITSIO writes it for other images."""
    path = saved(tmp_path, NOISE[0].astype(np.float32), codec, quantize_level=0)
    with fits.open(path, "update", disable_image_compression=True) as hdus:
        hdus[1].header["ZQUANTIZ"] = "SUBTRACTIVE_DITHER_1"
        if seed is not None:
            hdus[1].header["ZDITHER0"] = seed
    check_equal(path, 1)
    np.testing.assert_array_equal(fitsio.read(path), truth(path))
    found = decoded(FitsReader().read(Row(0, path), None))[..., 0]
    np.testing.assert_array_equal(found, NOISE[0].astype(np.float32))
