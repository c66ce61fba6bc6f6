"""Notes of tiles: all that a window needs is fetched at once, and nothing depends on them."""

from __future__ import annotations

import gzip
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import fits_files
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from hypothesis import given
from hypothesis import strategies as st
from servers.proxy import Proxy
from servers.weed import OPEN, Weed
from strategies import StoredImage, compressed_floats, compressed_integers, cubes, plain_images

from dali_pipelines import with_tiles
from readers import Index
from readers.contract import Row, Sample
from readers.fits.reader import FitsReader
from readers.fits.tiles.offsets import COLUMN, ImageOffsets, TileOffsets
from readers.places.local import LocalPlace
from readers.places.opener import Places
from readers.places.remote import RemotePlace
from readers.window import Window

Ranges = list[tuple[int, int]]


class Remote(LocalPlace):
    """A file that records what is fetched and what is read."""

    def __init__(self, path: str, store: Store) -> None:
        super().__init__(path)
        self._fetched, self._reads, self._version = store.fetched, store.reads, store.version

    @property
    def stamp(self) -> Hashable | None:
        return self._version and (self.name, self._version)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._fetched += ranges

    def read(self, start: int, stop: int) -> bytes:
        found = super().read(start, stop)
        self._reads.append((start, start + len(found)))
        return found

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        self._reads += [(start, start + len(buffer)) for start, buffer in pieces]
        super().read_many(pieces)


@dataclass(frozen=True)
class Store(Places):
    """Opens files as if they were remote."""

    fetched: Ranges = field(default_factory=list)
    reads: Ranges = field(default_factory=list)
    version: str | None = None

    def at(
        self,
        path: str,
        offset: int | None = None,
        nbytes: int | None = None,
        *,
        etag: str | None = None,
        file_bytes: int | None = None,
    ) -> Remote:
        assert (offset, nbytes, etag, file_bytes) == (None,) * 4
        return Remote(path, self)

    def missed(self) -> Ranges:
        """Return what was read and not fetched before."""
        known = np.zeros(max((stop for _, stop in self.reads + self.fetched), default=0), bool)
        for start, stop in self.fetched:
            known[start:stop] = True
        return [(start, stop) for start, stop in self.reads if not known[start:stop].all()]

    def nbytes(self, ranges: Ranges) -> int:
        return sum(stop - start for start, stop in ranges)


def noted(path: Path, **columns: list[int]) -> Row:
    """Return the first row of an Index of one file, with its notes, in a store."""
    index = Index.from_paths([path] * len(next(iter(columns.values()), [0])))
    for name, values in columns.items():
        index = Index(index.table.append_column(name, [values]))
    row = with_tiles(index).columns(notes=(COLUMN,)).row(0)
    return replace(row, places=Store())


def same(found: Sample, expected: Sample) -> None:
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found[name], array)


def read(row: Row, window: Window | None, reader: FitsReader) -> Store:
    """Read a row as without its notes; return what was fetched and read."""
    same(reader.read(row, window), reader.read(Row(0, row.path, plane=row.plane), window))
    assert isinstance(row.places, Store)
    return row.places


@st.composite
def windows(draw: st.DrawFn, height: int, width: int) -> Window | None:
    if draw(st.booleans()):
        return None
    rows, columns = draw(st.integers(1, height)), draw(st.integers(1, width))
    y, x = draw(st.integers(0, height - rows)), draw(st.integers(0, width - columns))
    return Window.at(y, x, rows, columns, image=(height, width))


@given(image=plain_images() | compressed_integers() | compressed_floats() | cubes(), data=st.data())
def test_all_that_is_read_was_fetched(
    image: StoredImage, data: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "a.fits"
    fits_files.write(path, image)
    planes = int(np.prod(image.stored.shape[:-2]))
    window = data.draw(windows(*image.stored.shape[-2:]))
    every = FitsReader(planes="all", num_planes=planes)
    reader = every if data.draw(st.booleans()) else FitsReader(planes=planes - 1)
    row = noted(path)
    store = read(row, window, reader)
    notes = ImageOffsets.unpack(row.notes[COLUMN])
    if notes is None:
        # Headers, if they are unknown; what astropy decodes, of each plane.
        assert len(store.fetched) <= 1 + reader.channels
    else:
        assert store.missed() == []
        assert ImageOffsets.unpack(notes.pack()) is not None


class TestFrames:
    """Frames of 1024x1024 pixels."""

    PIXELS = np.random.default_rng(0).poisson(1000, (1024, 1024)).astype(np.int16)
    WINDOW = Window.at(300, 413, 200, 210, image=(1024, 1024))

    def written(
        self,
        path: Path,
        shape: tuple[int, int] | None,
        before: int = 9999,
        codec: str = "RICE_1",
    ) -> Path:
        hdu = fits.CompImageHDU(self.PIXELS, compression_type=codec, tile_shape=shape)
        image = hdu if shape else fits.ImageHDU(self.PIXELS)
        table = fits.BinTableHDU(np.zeros(before, [("a", "i4")]))
        fits.HDUList([fits.PrimaryHDU(), table, image, table]).writeto(path, overwrite=True)
        return path

    @pytest.mark.parametrize(
        ("shape", "most"), [((1, 1024), 1.05), ((64, 64), 1.05), ((20, 300), 1.05), (None, 1)]
    )
    def test_little_more_is_fetched(
        self, tmp_path: Path, shape: tuple[int, int] | None, most: float
    ) -> None:
        row = noted(self.written(tmp_path / "a.fits", shape))
        assert len(row.notes[COLUMN]) < 420
        store = read(row, self.WINDOW, FitsReader())
        assert store.missed() == []
        assert store.nbytes(store.fetched) <= most * store.nbytes(store.reads)

    def test_codecs_that_readers_decode_are_noted_too(self, tmp_path: Path) -> None:
        row = noted(self.written(tmp_path / "a.fits", (64, 64), codec="HCOMPRESS_1"))
        store = read(row, self.WINDOW, FitsReader())
        assert store.missed() == []
        assert store.nbytes(store.fetched) <= 1.05 * store.nbytes(store.reads)

    def test_headers_that_are_known_are_not_fetched(self, tmp_path: Path) -> None:
        row = noted(self.written(tmp_path / "a.fits", (64, 64)))
        first, again = Store(version=str(tmp_path)), Store(version=str(tmp_path))
        for store in first, again:
            FitsReader().read(replace(row, places=store), self.WINDOW)
            assert store.missed() == []
        assert again.nbytes(again.fetched) < first.nbytes(first.fetched) - 40000

    @pytest.mark.parametrize("is_noted", [False, True])
    def test_a_round_trip(
        self, http_proxy: Proxy, weed: Weed, tmp_path: Path, is_noted: bool
    ) -> None:
        path = self.written(tmp_path / "a.fits", (64, 64), 99_999)
        weed.put(OPEN, "tiles/a.fits", path.read_bytes())
        url = f"http://127.0.0.1:{http_proxy.port}/buckets/{OPEN}/tiles/a.fits"
        place = Places().at(url)
        assert isinstance(place, RemotePlace)
        columns = {"path": [url], "etag": [place.etag], "file_bytes": [place.nbytes]}
        index = with_tiles(Index(pa.table(columns)))
        row = index.columns(notes=(COLUMN,)).row(0)
        notes = ImageOffsets.unpack(row.notes[COLUMN])
        assert notes is not None
        row = row if is_noted else replace(row, notes={})
        before = len(http_proxy.requests)
        same(FitsReader().read(row, self.WINDOW), FitsReader().read(Row(0, str(path)), self.WINDOW))
        requests = sorted(request.range or () for request in http_proxy.requests[before:])
        assert (requests == notes.ranges(self.WINDOW, [0])) == is_noted

    def test_a_file_that_has_changed(self, tmp_path: Path) -> None:
        path = self.written(tmp_path / "a.fits", (64, 64))
        row = noted(path)
        for shape in (128, 32), None:
            self.written(path, shape, 300_000)
            assert read(row, self.WINDOW, FitsReader()).missed() != []
        fits.writeto(path, self.PIXELS[:300, :413] + 1, overwrite=True)
        small = Window.at(0, 0, 20, 30, image=(300, 413))
        read(row, small, FitsReader())

    def test_notes_of_one_plane(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        cube = np.stack([self.PIXELS[:512, :512] + n for n in range(3)])
        tiles = {"compression_type": "RICE_1", "tile_shape": (1, 64, 64)}
        fits.CompImageHDU(cube, **tiles).writeto(path)
        row = noted(path, plane=[2])
        whole = noted(path)
        assert len(row.notes[COLUMN]) == len(whole.notes[COLUMN]) - 128
        window = Window.at(100, 100, 99, 99, image=(512, 512))
        assert read(row, window, FitsReader()).missed() == []
        # Notes of another plane than the one that is read.
        notes = ImageOffsets.unpack(row.notes[COLUMN])
        assert notes is not None
        assert isinstance(notes.image, TileOffsets)
        other = replace(row, plane=0, places=Store())
        assert read(other, window, FitsReader()).missed() != []

    def test_an_index(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = self.written(tmp_path / "a.fits", (64, 64))
        (tmp_path / "bad.fits").write_text("no FITS file")
        (tmp_path / "gzip.fits").write_bytes(gzip.compress(path.read_bytes()))
        paths = [tmp_path / name for name in ("a.fits", "bad.fits", "gzip.fits", "a.fits", "none")]
        index = with_tiles(Index.from_paths(paths))
        notes = index.table[COLUMN].to_pylist()
        assert [note is None for note in notes] == [False, True, True, False, True]
        assert notes[0] == notes[3]
        [record] = caplog.records
        assert re.search(f"2 files.*{COLUMN}.*{paths[1]}", record.getMessage())
        assert with_tiles(index).table.equals(index.table)
        assert with_tiles(index, hdu=1).table[COLUMN].null_count == 5
        index.save(tmp_path / "index.arrow")
        row = Index.load(tmp_path / "index.arrow").columns(notes=(COLUMN,)).row(0)
        assert row.notes[COLUMN] == notes[0]

    @given(packed=st.binary(max_size=80) | st.binary(max_size=80).map(lambda b: b"\1" + b))
    def test_damaged_notes(self, packed: bytes) -> None:
        assert ImageOffsets.unpack(packed) is None

    def test_notes_with_one_wrong_bit(self, tmp_path: Path) -> None:
        row = noted(self.written(tmp_path / "a.fits", (64, 64)))
        packed = bytearray(row.notes[COLUMN])
        for at in range(len(packed)):
            packed[at] ^= 4
            assert ImageOffsets.unpack(bytes(packed)) is None
            packed[at] ^= 4

    def test_windows_and_planes_that_the_image_lacks(self, tmp_path: Path) -> None:
        row = noted(self.written(tmp_path / "a.fits", (64, 64)))
        with pytest.raises(OSError, match="crop 9x2000"):
            FitsReader().read(row, Window(height=9, width=2000))
        with pytest.raises(OSError, match="no plane 7"):
            FitsReader(planes=7).read(row, self.WINDOW)


def test_notes_of_far_hdus_are_as_short_as_of_near_ones(tmp_path: Path) -> None:
    """They name the image's own header alone."""
    pixels = np.arange(9 * 9, dtype=np.int16).reshape(9, 9)
    images = [fits.ImageHDU(pixels + np.int16(number)) for number in range(1, 200)]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    numbers = [1, 100, 199]
    table = pa.table({"path": [str(tmp_path / "a.fits")] * 3, "hdu": numbers})
    index = with_tiles(Index(table))
    near, *far = map(len, index.table[COLUMN].to_pylist())
    assert max(far) <= near
    columns = index.columns(notes=(COLUMN,))
    for row, number in enumerate(numbers):
        found = FitsReader().read(columns.row(row), Window(height=4, width=4, y=0.0, x=0.0))
        np.testing.assert_array_equal(fits_files.decoded(found)[..., 0], pixels[:4, :4] + number)
