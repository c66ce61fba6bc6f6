"""Which bytes of a RICE_1 file travel, and what is refused before they do."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

from readers import FitsReader, ReadError, Row, Sample, Window
from readers.fits.payload import HEAD, PER_TILE, RICE, STORED

NOISE = np.random.default_rng(0).normal(1000, 60, (256, 384)).astype(np.int16)


def saved(folder: Path, image: np.ndarray = NOISE, **options: Any) -> Row:
    path = folder / "image.fits"
    fits.CompImageHDU(image, compression_type="RICE_1", **options).writeto(path, overwrite=True)
    return Row(3, str(path))


def tiles(sample: Sample) -> int:
    """Count the RICE_1 tiles of a sample."""
    found = sample["plan"][HEAD:].reshape(-1, PER_TILE)
    return int((found[:, STORED] == RICE).sum())


def test_a_window_reads_only_its_tiles(tmp_path: Path) -> None:
    row = saved(tmp_path)
    whole = FitsReader().read(row, None)
    part = FitsReader().read(row, Window(height=32, width=32))
    assert tiles(whole) == 256
    assert tiles(part) == 32
    assert part["payload"].nbytes < whole["payload"].nbytes / 7
    headers = 3 * 2880
    assert part.input_bytes < headers + Path(row.path).stat().st_size / 7


def test_square_tiles_are_cut_in_both_directions(tmp_path: Path) -> None:
    row = saved(tmp_path, tile_shape=(64, 64))
    part = FitsReader().read(row, Window(height=32, width=32, y=0.0, x=0.0))
    assert tiles(part) == 1
    assert tiles(FitsReader().read(row, Window(height=65, width=65, y=0.0, x=0.0))) == 4


@pytest.mark.parametrize("options", [{"tile_shape": (32, 48)}, {}])
def test_peek_tells_the_bytes_that_travel(tmp_path: Path, options: dict[str, Any]) -> None:
    row = saved(tmp_path, **options)
    for window in (None, Window(height=100, width=50)):
        sample = FitsReader().read(row, window)
        travelled = sample["payload"].nbytes + sample["plan"].nbytes
        assert travelled <= FitsReader().peek(row, window).nbytes < 2 * travelled


def patched(row: Row, tile: int, length: int | None = None, offset: int | None = None) -> Row:
    """Change the descriptor of a tile."""
    with fits.open(row.path, disable_image_compression=True) as hdus:
        place = hdus[1].fileinfo()["datLoc"] + tile * hdus[1].header["NAXIS1"]
    data = bytearray(Path(row.path).read_bytes())
    old = struct.unpack_from(">ii", data, place)
    new = (old[0] if length is None else length, old[1] if offset is None else offset)
    struct.pack_into(">ii", data, place, *new)
    Path(row.path).write_bytes(data)
    return row


@pytest.mark.parametrize(
    "change", [{"length": 2**31 - 1}, {"length": -1}, {"offset": 2**31 - 1}, {"offset": -5}]
)
def test_a_descriptor_that_points_outside_is_refused(
    tmp_path: Path, change: dict[str, int]
) -> None:
    row = patched(saved(tmp_path), 7, **change)
    with pytest.raises(ReadError, match=r"image\.fits\[1\] \(row 3\): .*tile.*outside"):
        FitsReader().read(row, None)
    FitsReader().read(row, Window(height=4, width=4, y=0.0))  # does not touch it


def test_a_tile_too_short_for_its_pixels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"tile.*fewer bytes"):
        FitsReader().read(patched(saved(tmp_path), 7, length=3), None)


def test_a_table_of_too_few_tiles_is_refused(tmp_path: Path) -> None:
    row = saved(tmp_path)
    data = Path(row.path).read_bytes()
    Path(row.path).write_bytes(
        data.replace(b"ZTILE1  =                  384", b"ZTILE1  =                   96")
    )
    with pytest.raises(ReadError, match=r"256 tiles, .*1024"):
        FitsReader().read(row, None)


def test_tiles_of_a_gzipped_file_travel_compressed(tmp_path: Path) -> None:
    row = saved(tmp_path)
    path = tmp_path / "image.fits.gz"
    path.write_bytes(gzip.compress(Path(row.path).read_bytes()))
    assert tiles(FitsReader().read(Row(0, str(path)), None)) == 256
