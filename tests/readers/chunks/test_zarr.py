"""Zarr as zarr-python writes it: values, windows, and each promise of a Reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from zarr_stores import BLOSC, frames, write_array

from readers import Index, ReadError, Row, Window
from readers.chunks.reader import ChunkedReader
from readers.contract import Reader, Sample
from readers.testing import NUMBER, ReaderContract, check_named, refused


def row_of(index: Index, number: int) -> Row:
    return index.columns(notes=["chunks"]).row(number)


def reader_of(path: Path, **settings: Any) -> ChunkedReader:
    return ChunkedReader((path.name,), **settings)


def test_a_first_array(tmp_path: Path) -> None:
    array = frames()
    path = write_array(tmp_path / "a", array, (2, 16, 16), compressors=BLOSC)
    index = Index.from_zarr(path)
    assert len(index) == 5
    assert index["plane"].to_pylist() == [0, 1, 2, 3, 4]
    for number in range(5):
        row = row_of(index, number)
        image = reader_of(path).read(row, None)["image"]
        np.testing.assert_array_equal(image, array[number][None], strict=True)
        window = Window.at(9, 5, 14, 12, image=(31, 23))
        image = reader_of(path).read(row, window)["image"]
        np.testing.assert_array_equal(image, array[number, 9:23, 5:17][None], strict=True)


class TestZarr(ReaderContract):
    """Rows of a store: the path is a folder, so tests of files are those of its metadata."""

    @pytest.fixture
    def reader(self) -> Reader:
        return ChunkedReader(("good",))

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        path = write_array(tmp_path / "good", frames(), (2, 16, 16), compressors=BLOSC)
        return replace(row_of(Index.from_zarr(path), 3), number=NUMBER)

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        path = write_array(tmp_path / "bad", frames(), (2, 16, 16))
        return replace(row_of(Index.from_zarr(path), 3), number=NUMBER)

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return np.moveaxis(sample["image"], 0, -1)

    def row(self, path: Path | str) -> Row:
        """Return the row of a store as if it had been at another path when it was indexed."""
        folder = Path(path).parent / "indexed" / "good"
        noted = row_of(Index.from_zarr(write_array(folder, frames(), (2, 16, 16))), 3)
        return replace(noted, number=NUMBER, path=str(path))

    def test_directory(self, reader: Reader, tmp_path: Path) -> None:
        """Rows are folders: one without a store is refused."""
        refused(reader, self.row(tmp_path), None, self.missing)

    @pytest.mark.parametrize("kept", [0.02, 0.5, 0.7])
    def test_truncated_copy(
        self, reader: Reader, good_row: Row, tmp_path: Path, kept: float
    ) -> None:
        """It is the chunks that may be cut: the row is a folder."""
        for chunk in Path(good_row.path).glob("[0-9]*"):
            chunk.write_bytes(chunk.read_bytes()[: int(chunk.stat().st_size * kept)])
        for call in (lambda: reader.read(good_row, None), lambda: reader.verify(good_row)):
            with pytest.raises(ReadError) as caught:
                call()
            check_named(caught.value, good_row)
