"""HCOMPRESS_1 in FitsReader: which tiles it decodes, what it sends, and what it rejects."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import fitsio
import numpy as np
import pytest
from astropy.io import fits
from fits_files import decoded, truth
from numpy.typing import NDArray

from readers import FitsReader, ReadError, Row, Window
from readers.fits.image import FitsImage
from readers.fits.payload import HEAD, PADDING, PER_TILE
from readers.fits.tiles import hcompress

NOISE = np.random.default_rng(0).normal(1000, 60, (45, 70)).astype(np.int16)
EDGE = Window(height=20, width=33, y=0.99, x=0.99)


@pytest.fixture(autouse=True)
def without_astropy(monkeypatch: pytest.MonkeyPatch) -> None:
    def pixels(*_: Any, **__: Any) -> None:
        raise AssertionError("astropy decodes it")

    monkeypatch.setattr(FitsImage, "pixels", pixels)


def saved(folder: Path, image: NDArray[Any] = NOISE, **options: Any) -> Row:
    options = {"compression_type": "HCOMPRESS_1", **options}
    fits.CompImageHDU(image, **options).writeto(folder / "a.fits", overwrite=True)
    return Row(4, str(folder / "a.fits"))


def check_equal(row: Row, **options: Any) -> None:
    expected = truth(row.path)
    np.testing.assert_array_equal(decoded(FitsReader(**options).read(row, None))[..., 0], expected)
    y, x = EDGE.place(*expected.shape)
    sample = FitsReader(**options).read(row, EDGE)
    inside = expected[y : y + EDGE.height, x : x + EDGE.width]
    np.testing.assert_array_equal(decoded(sample)[..., 0], inside)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hcomp_scale": 1},
        {"hcomp_scale": 3},
        {"tile_dims": [10, 35]},
        {"tile_dims": [45, 70]},
    ],
)
def test_files_that_cfitsio_wrote(tmp_path: Path, options: dict[str, Any]) -> None:
    for dtype in ("uint8", "int16", "uint16", "int32", "uint32"):
        row, image = Row(0, str(tmp_path / f"{dtype}.fits")), (NOISE // 10 + 20).astype(dtype)
        with fitsio.FITS(row.path, "rw") as file:
            file.write(image, compress="HCOMPRESS", **options)
        cfitsio = fitsio.read(row.path).astype(np.float32)
        np.testing.assert_array_equal(cfitsio, truth(row.path), err_msg=dtype)
        check_equal(row)


def test_lossy_pixels_beyond_their_type_are_those_of_astropy(tmp_path: Path) -> None:
    """They come out at the other end of the type."""
    image = np.where(NOISE > 1000, np.int16(32767), np.int16(-32768))
    row = saved(tmp_path, image, hcomp_scale=50)
    assert (np.abs(truth(row.path) - image) > 60000).any()
    check_equal(row)


def test_a_window_decodes_only_its_tiles_and_sends_its_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, int]] = []

    def noted(data: NDArray[np.uint8], rows: int, columns: int, **options: Any) -> Any:
        shapes.append((rows, columns))
        return decode_tile(data, rows, columns, **options)

    decode_tile = hcompress.decode_tile
    monkeypatch.setattr(hcompress, "decode_tile", noted)
    row = saved(tmp_path, tile_shape=(10, 20))
    sample = FitsReader().read(row, Window(height=8, width=8, y=0.99, x=0.0))
    assert shapes == [(10, 20), (5, 20)]
    assert sample["payload"].nbytes == 2 * 8 * 8 + PADDING
    assert FitsReader().peek(row, Window(height=8, width=8)).nbytes >= sample["payload"].nbytes


def test_tiles_that_are_large_for_a_gpu(tmp_path: Path) -> None:
    """Its threads get rows of the window, whatever the tiles."""
    row = saved(tmp_path, tile_shape=NOISE.shape)
    check_equal(row, largest_tile=100)
    plan = FitsReader(largest_tile=100).read(row, EDGE)["plan"]
    assert len(plan) == HEAD + PER_TILE * EDGE.height


@pytest.mark.parametrize("column", ["UNCOMPRESSED_DATA", "GZIP_COMPRESSED_DATA"])
def test_tiles_that_the_codec_did_not_take(tmp_path: Path, column: str) -> None:
    """Those of zero length; gzipped as GZIP_1 writes them."""
    row = saved(tmp_path, tile_shape=(10, 70))
    with fits.open(row.path, disable_image_compression=True) as hdus:
        header = hdus[1].header.copy()
        streams = list(hdus[1].data["COMPRESSED_DATA"])
    plain = NOISE[10:20].astype(">i2")
    other: Any = plain.reshape(-1) if column[0] == "U" else gzip.compress(plain.tobytes())
    if column[0] == "G":
        other = np.frombuffer(other, np.uint8)
    coded, others = np.empty(5, object), np.empty(5, object)
    for tile in range(5):
        coded[tile] = streams[tile] if tile != 1 else streams[tile][:0]
        others[tile] = other if tile == 1 else other[:0]
    letter = "I" if column[0] == "U" else "B"
    table = fits.BinTableHDU.from_columns(
        [
            fits.Column("COMPRESSED_DATA", "1PB", array=coded),
            fits.Column(column, f"1P{letter}", array=others),
        ]
    )
    table.header.extend(
        [card for card in header.cards if card.keyword.startswith("Z")], unique=True
    )
    table.writeto(row.path, overwrite=True)
    np.testing.assert_array_equal(truth(row.path), NOISE)
    check_equal(row)


def patched(row: Row, at: int, content: bytes, tile: int = 1) -> int:
    """Replace some bytes of a stream; return where it begins in the file."""
    with fits.open(row.path, disable_image_compression=True) as hdus:
        hdu = hdus[1]
        start = hdu.fileinfo()["datLoc"] + hdu.header["NAXIS1"] * hdu.header["NAXIS2"]
        start += hdu.data.base["COMPRESSED_DATA"][tile].tolist()[1]
    data = bytearray(Path(row.path).read_bytes())
    data[start + at : start + at + len(content)] = content
    Path(row.path).write_bytes(data)
    return int(start)


@pytest.mark.parametrize(
    ("at", "content", "reason"),
    [
        (2, b"\0\0\x7f", "32528x70 .*16x70"),
        (22, b"\xff", "255 bit planes, .*62"),
        (25, bytes(100), "damaged"),
    ],
    ids=["bomb", "bit planes", "zeros"],
)
@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_damaged_tiles(tmp_path: Path, dtype: str, at: int, content: bytes, reason: str) -> None:
    """Rejected with the place of the tile; a window beside them is read."""
    row = saved(tmp_path, NOISE.astype(dtype))
    start = patched(row, at, content)
    with pytest.raises(ReadError, match=f"HCOMPRESS_1 tile at byte {start}.*{reason}") as caught:
        FitsReader().read(row, None)
    assert (caught.value.path, caught.value.hdu, caught.value.row) == (row.path, 1, 4)
    FitsReader().read(row, Window(height=5, width=5, y=0.0))
