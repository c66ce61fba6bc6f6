"""What every Reader promises, as one suite: subclass ReaderContract and fill in the rest."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from readers.contract import Reader, Row, Sample
from readers.errors import ReadError
from readers.sampling.region import RandomRegion, ScaledWindow
from readers.sampling.row_window import RowWindow
from readers.window import Window

NUMBER = 17
"""Row number that messages must name."""

WINDOWS = [
    Window(height=1, width=1),
    Window(height=3, width=5),
    Window(height=3, width=5, y=0.0, x=0.0),
    Window(height=4, width=2, y=1 - 2**-53, x=1 - 2**-53),
    Window(height=2, width=7, y=0.4, x=0.7),
    RowWindow(height=2, width=3, top=1, left=2),
]

_OF_REGION: dict[str, Any] = {
    "height": 1,
    "width": 1,
    "y": 0.4,
    "x": 0.9,
    "aspect_ratio": (0.5, 2.0),
}
REGIONS = [
    RandomRegion(**_OF_REGION, area=(0.1, 0.3), attempts=[(0.5, 0.3)]),
    RandomRegion(**_OF_REGION, area=(0.1, 0.3), attempts=[]),
    ScaledWindow(height=2, width=3, y=0.7, x=0.2, shorter=4),
    ScaledWindow(height=9, width=8, shorter=11),
    Window(height=3, width=5, y=0.0, x=0.9, angle=30.0),
    Window(height=4, width=2, zoom=0.5),
    RowWindow(height=3, width=2, top=0, left=1, angle=10.0, zoom=2.0),
    RowWindow(height=3, width=2, top=1.5, left=0.25),
    RowWindow(height=3, width=4, top=-1, left=-2, outside="fill"),
    RowWindow(height=2000, width=1, top=-1000.5, left=2, outside="fill"),
    RowWindow(height=5, width=4, top=-3, left=-2, outside="shift"),
    RowWindow(height=2001, width=3, y=0.9, x=0.9, outside="fill"),
]


class ReaderContract:
    """Subclasses override the three fixtures and `pixels`; for other places, those of elsewhere."""

    missing = "No such file or directory"
    """What messages say of a file that is missing."""

    def placed(self, row: Row) -> Row:
        """Return the row from where the suite reads it: the local file itself."""
        return row

    @pytest.fixture
    def reader(self) -> Reader:
        raise NotImplementedError

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        """Return a row, numbered NUMBER, whose image is at least 8x8 and smaller than 1000x1000."""
        raise NotImplementedError

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        """Return a row whose file is sound but not what this Reader reads."""
        raise NotImplementedError

    def row(self, path: Path | str) -> Row:
        """Return a row, numbered NUMBER, of a file."""
        return Row(NUMBER, str(path))

    def made(self, folder: Path, content: bytes) -> Row:
        """Return a row of a file that is written."""
        return self.placed(self.row(written(folder, content).path))

    @pytest.fixture
    def placed_row(self, good_row: Row) -> Row:
        """Return the good row from where the suite reads it."""
        return self.placed(good_row)

    def pixels(self, sample: Sample) -> np.ndarray:
        """Do what the graph does with a Sample; shape (height, width, channels)."""
        raise NotImplementedError

    # What comes out.

    @pytest.mark.parametrize("window", [None, *WINDOWS], ids=str)
    def test_arrays_are_as_the_specs_say(
        self, reader: Reader, placed_row: Row, window: Window | None
    ) -> None:
        check_specs(reader, reader.read(placed_row, window))

    @pytest.mark.parametrize("size", [(1, 1), (5, 7)])
    def test_blank_is_as_the_specs_say(self, reader: Reader, size: tuple[int, int]) -> None:
        check_specs(reader, reader.blank(*size))

    def test_specs_are_named_once(self, reader: Reader) -> None:
        names = [spec.name for spec in reader.specs]
        assert len(set(names)) == len(names)
        assert reader.channels >= 1

    def test_blank_decodes_to_its_size(self, reader: Reader) -> None:
        assert self.pixels(reader.blank(5, 7)).shape == (5, 7, reader.channels)

    def test_same_row_twice_is_equal(self, reader: Reader, placed_row: Row) -> None:
        equal(reader.read(placed_row, None), reader.read(placed_row, None))

    def test_memory_is_its_own(self, reader: Reader, placed_row: Row) -> None:
        first, expected = (copied(reader.read(placed_row, None)) for _ in range(2))
        sample = reader.read(placed_row, None)
        for name, array in sample.arrays.items():
            if array.flags.writeable:
                array[...] = 1
            assert not np.shares_memory(array, reader.read(placed_row, None)[name])
        equal(first, expected)
        equal(reader.read(placed_row, None), expected)

    def test_reader_pickles(self, reader: Reader, placed_row: Row) -> None:
        again = pickle.loads(pickle.dumps(reader))
        assert again.specs == reader.specs
        assert again.channels == reader.channels
        equal(again.read(placed_row, None), reader.read(placed_row, None))

    def test_input_bytes_are_about_the_size_of_the_file(
        self, reader: Reader, placed_row: Row, good_row: Row
    ) -> None:
        size = Path(good_row.path).stat().st_size
        assert 0.3 * size <= reader.read(placed_row, None).input_bytes <= 3 * size + 5000

    # Windows.

    @pytest.mark.parametrize("window", WINDOWS, ids=str)
    def test_window_is_the_crop_of_the_whole(
        self, reader: Reader, placed_row: Row, window: Window
    ) -> None:
        whole = self.pixels(reader.read(placed_row, None))
        y, x = window.place(*whole.shape[:2])
        crop = whole[y : y + window.height, x : x + window.width]
        np.testing.assert_array_equal(self.pixels(reader.read(placed_row, window)), crop)

    @pytest.mark.parametrize("window", REGIONS, ids=str)
    def test_regions_are_what_within_gives(
        self, reader: Reader, placed_row: Row, window: Window
    ) -> None:
        if not getattr(reader, "regions", False):
            pytest.skip("a Reader without regions = True never gets such windows")
        whole = self.pixels(reader.read(placed_row, None))
        box, sample = window.within(*whole.shape[:2]), reader.read(placed_row, window)
        y, x = box.place(*whole.shape[:2])
        crop = whole[y : y + box.height, x : x + box.width]
        np.testing.assert_array_equal(self.pixels(sample), crop)
        assert sample.image_size == whole.shape[:2]
        peek = reader.peek(placed_row, window)
        assert (peek.height, peek.width) == whole.shape[:2]

    @pytest.mark.parametrize("size", [(1000, 1), (1, 1000), (1000, 1000)])
    def test_window_larger_than_the_image(
        self, reader: Reader, placed_row: Row, size: tuple[int, int]
    ) -> None:
        window = Window(height=size[0], width=size[1])
        refused(
            reader, placed_row, window, rf"crop {size[0]}x{size[1]} is larger than the image \d"
        )

    def test_peek_tells_the_size(self, reader: Reader, placed_row: Row) -> None:
        peek = reader.peek(placed_row, None)
        sample = reader.read(placed_row, None)
        assert 0.5 < sum(a.nbytes for a in sample.arrays.values()) / peek.nbytes < 2
        assert self.pixels(sample).shape == (peek.height, peek.width, reader.channels)

    def test_peek_with_a_window_tells_the_size_of_the_image(
        self, reader: Reader, placed_row: Row
    ) -> None:
        whole = reader.peek(placed_row, None)
        cut = reader.peek(placed_row, Window(height=2, width=3))
        assert (cut.height, cut.width) == (whole.height, whole.width)
        assert cut.nbytes <= whole.nbytes

    # What cannot be read.

    def test_missing_file(self, reader: Reader, tmp_path: Path) -> None:
        row = self.placed(self.row(tmp_path / "missing"))
        error = refused(reader, row, None, self.missing)
        assert str(error).count(row.path) == 1

    def test_empty_file(self, reader: Reader, tmp_path: Path) -> None:
        refused(reader, self.made(tmp_path, b""), None)

    def test_directory(self, reader: Reader, tmp_path: Path) -> None:
        error = refused(reader, self.row(tmp_path), None, "it is a directory")
        assert str(error).count(str(tmp_path)) == 1

    @pytest.mark.parametrize(
        "content",
        [b"nothing of the kind\n" * 300, b"\0" * 6000, b"PK\x03\x04" + b"\0" * 99, b"\x1f\x8b\0"],
        ids=["text", "zeros", "zip", "gzip"],
    )
    def test_another_kind_of_file(self, reader: Reader, tmp_path: Path, content: bytes) -> None:
        refused(reader, self.made(tmp_path, content), None)

    def test_bad_row(self, reader: Reader, bad_row: Row) -> None:
        row = self.placed(bad_row)
        refused(reader, row, None)
        with pytest.raises(ReadError) as caught:
            reader.verify(row)
        check_named(caught.value, row)

    def test_verify_accepts_what_is_sound(self, reader: Reader, placed_row: Row) -> None:
        reader.verify(placed_row)

    @pytest.mark.parametrize("kept", [0.02, 0.5, 0.7])  # of FITS more than padding is missing
    def test_truncated_copy(
        self, reader: Reader, good_row: Row, tmp_path: Path, kept: float
    ) -> None:
        content = Path(good_row.path).read_bytes()
        cut = self.made(tmp_path, content[: int(len(content) * kept)])
        for call in (lambda: reader.read(cut, None), lambda: reader.verify(cut)):
            with pytest.raises(ReadError) as caught:
                call()
            check_named(caught.value, cut)


def written(folder: Path, content: bytes) -> Row:
    path = folder / "written"
    path.write_bytes(content)
    return Row(NUMBER, str(path))


def refused(reader: Any, row: Row, window: Window | None, reason: str = ".") -> ReadError:
    """Check that `read` refuses a row and, where no window is at fault, `peek` too."""
    with pytest.raises(ReadError, match=reason) as caught:
        reader.read(row, window)
    check_named(caught.value, row)
    if window is None:
        with pytest.raises(ReadError, match=reason) as of_peek:
            reader.peek(row, None)
        check_named(of_peek.value, row)
    return caught.value


def check_named(error: ReadError, row: Row) -> None:
    assert str(error).startswith(row.path)
    assert f"(row {row.number}): " in str(error)
    assert error.reason.strip()


def check_specs(reader: Any, sample: Sample) -> None:
    assert list(sample.arrays) == [spec.name for spec in reader.specs]
    for spec in reader.specs:
        array = sample[spec.name]
        assert array.dtype == np.dtype(spec.dtype)
        assert array.dtype.isnative
        assert array.ndim == spec.ndim
        assert array.flags.c_contiguous
        assert len(spec.layout) in (0, spec.ndim)


def copied(sample: Sample) -> Sample:
    return Sample({name: array.copy() for name, array in sample.arrays.items()})


def equal(one: Sample, other: Sample) -> None:
    assert list(one.arrays) == list(other.arrays)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other[name], strict=True)
