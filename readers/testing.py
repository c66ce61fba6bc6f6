"""Tests of the contract of Readers: subclass `ReaderContract` in your own tests.

This module needs pytest (extra ``testing``). No other module imports it.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.contract import Reader, Row, Sample
from readers.errors import ReadError
from readers.messages import install
from readers.places.memory import MemoryPlaces
from readers.sampling.region import RandomRegion, ScaledWindow
from readers.sampling.row_window import RowWindow
from readers.window import Window

try:
    import pytest
except ModuleNotFoundError as error:
    if error.name != "pytest":
        raise
    raise ModuleNotFoundError(
        f"readers.testing needs pytest: {install('testing')}", name="pytest"
    ) from error

NUMBER = 17
"""Number of all rows of the suite; messages must contain it."""

_WINDOWS = {
    "one pixel": Window(height=1, width=1),
    "in the middle": Window(height=3, width=5),
    "first": Window(height=3, width=5, y=0.0, x=0.0),
    "last": Window(height=4, width=2, y=1 - 2**-53, x=1 - 2**-53),
    "drawn": Window(height=2, width=7, y=0.4, x=0.7),
    "of the row": RowWindow(height=2, width=3, top=1, left=2),
}
"""Windows for all Readers."""

_DRAWN: dict[str, Any] = {"y": 0.4, "x": 0.9, "aspect_ratio": (0.5, 2.0), "area": (0.1, 0.3)}
_REGIONS = {
    "random area": RandomRegion(height=1, width=1, attempts=[(0.5, 0.3)], **_DRAWN),
    "random area that does not fit": RandomRegion(height=1, width=1, attempts=[], **_DRAWN),
    "shrunk": ScaledWindow(height=2, width=3, y=0.7, x=0.2, shorter=4),
    "shrunk less": ScaledWindow(height=9, width=8, shorter=11),
    "turned": Window(height=3, width=5, y=0.0, x=0.9, angle=30.0),
    "zoomed": Window(height=4, width=2, zoom=0.5),
    "of the row, turned": RowWindow(height=3, width=2, top=0, left=1, angle=10.0, zoom=2.0),
    "between pixels": RowWindow(height=3, width=2, top=1.5, left=0.25),
    "partly outside": RowWindow(height=3, width=4, top=-1, left=-2, outside="fill"),
    "taller, off by half": RowWindow(height=2000, width=1, top=-1000.5, left=2, outside="fill"),
    "shifted": RowWindow(height=5, width=4, top=-3, left=-2, outside="shift"),
    "taller": RowWindow(height=2001, width=3, y=0.9, x=0.9, outside="fill"),
}
"""Windows for Readers with ``regions = True``."""

_OTHER_FILES = {
    "text": b"nothing of the kind\n" * 300,
    "zeros": b"\0" * 6000,
    "zip": b"PK\x03\x04" + b"\0" * 99,
    "gzip": b"\x1f\x8b\0",
}
"""Contents that no Reader may accept as an image."""
_LEAST, _MOST = 8, 1000
"""Minimum side of the good image in pixels, and the number that its sides must be below."""


class ReaderContract:
    """Tests of the contract `readers.Reader`, for pytest.

    A subclass overrides the fixtures `reader`, `good_row` and `bad_row` and the method `pixels`.
    Its name must begin with ``Test``, so that pytest collects it. Tests that do not suit a Reader
    can also be overridden; say why in the docstring.

    `InContainer` and `InMemory` run the same tests on rows in other places.

    Examples
    --------
    The tests of `readers.NpyReader`::

        class TestNpy(ReaderContract):
            @pytest.fixture
            def reader(self):
                return NpyReader()

            @pytest.fixture
            def good_row(self, tmp_path):
                np.save(tmp_path / "good.npy", np.arange(31 * 23, dtype="f4").reshape(31, 23))
                return self.row(tmp_path / "good.npy")

            @pytest.fixture
            def bad_row(self, tmp_path):
                np.save(tmp_path / "bad.npy", np.zeros((31, 23), "i2"))
                return self.row(tmp_path / "bad.npy")

            def pixels(self, sample):
                return sample["image"]
    """

    missing = "No such file or directory"
    """Regular expression for the error of a missing file."""
    one_row = False
    """Whether images have a single row of pixels, like recordings. Windows then have one row."""

    # Override these.

    @pytest.fixture
    def reader(self) -> Reader:
        """Return the Reader under test."""
        raise NotImplementedError(_override(self, "reader", "the Reader to test"))

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        """Write a file that the Reader can read, and return its row.

        The image is at least 8x8 and smaller than 1000x1000, and not constant.
        """
        raise NotImplementedError(
            _override(self, "good_row", "self.row(path) of a file that the Reader reads")
        )

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        """Write an intact file that the Reader must refuse (e.g. by its dtype); return its row."""
        raise NotImplementedError(
            _override(self, "bad_row", "self.row(path) of a file that the Reader must refuse")
        )

    def pixels(self, sample: Sample) -> NDArray[Any]:
        """Return the image that the graph makes of a Sample, shape (height, width, channels).

        If the Reader decodes, the image is an array of the Sample.
        """
        raise NotImplementedError(
            _override(self, "pixels", "the image of a Sample, shape (height, width, channels)")
        )

    def fitted(self, window: Window) -> Window:
        """Return a window of one row if images have one row."""
        if not self.one_row:
            return window
        fitted = replace(window, height=1)
        return replace(fitted, top=0) if isinstance(fitted, RowWindow) else fitted

    def row(self, path: Path | str) -> Row:
        """Return the row of a file. Override it if rows need more, such as an HDU."""
        return Row(NUMBER, str(path))

    def placed(self, row: Row) -> Row:
        """Return the row of a local file; subclasses move the file to another place."""
        return row

    @pytest.fixture
    def placed_row(self, good_row: Row) -> Row:
        """Return `good_row` at the place from which the suite reads."""
        return self.placed(good_row)

    def made(self, folder: Path, content: bytes) -> Row:
        """Write a file, and return its row at the place from which the suite reads."""
        return self.placed(self.row(written(folder, content).path))

    # Attributes of the class.

    def test_has_all_parts_of_a_reader(self, reader: Reader) -> None:
        """The Reader has all methods and attributes of `readers.Reader`."""
        names = ("specs", "channels", "read", "peek", "verify", "blank")
        absent = [name for name in names if not hasattr(reader, name)]
        assert not absent, f"{type(reader).__name__} has no {', '.join(absent)}"

    def test_specs_are_named_once(self, reader: Reader) -> None:
        """Names of arrays are distinct, and the image has channels."""
        names = [spec.name for spec in reader.specs]
        assert names
        assert len(set(names)) == len(names)
        assert reader.channels >= 1

    def test_reader_pickles(self, reader: Reader, placed_row: Row) -> None:
        """The Reader can be pickled, and the copy reads the same."""
        again = pickle.loads(pickle.dumps(reader))
        assert again.specs == reader.specs
        assert again.channels == reader.channels
        equal(again.read(placed_row, None), reader.read(placed_row, None))

    # Samples.

    def test_good_image_has_a_size_for_this_suite(self, reader: Reader, placed_row: Row) -> None:
        """The image of `good_row` is large enough for all windows, and not constant."""
        image = self.pixels(reader.read(placed_row, None))
        height, width, channels = image.shape
        assert channels == reader.channels
        sides = (width,) if self.one_row else (height, width)
        assert _LEAST <= min(sides) <= max(sides) < _MOST, (
            f"good_row must have an image of at least {_LEAST}x{_LEAST} pixels and less than "
            f"{_MOST}x{_MOST}"
        )
        assert np.unique(image).size > 1, "good_row must have pixels that differ"

    @pytest.mark.parametrize("window", [None, *_WINDOWS.values()], ids=["whole", *_WINDOWS])
    def test_arrays_are_as_the_specs_say(
        self, reader: Reader, placed_row: Row, window: Window | None
    ) -> None:
        """Arrays have the dtype and axes of `specs`, native byte order and C order."""
        check_specs(reader, reader.read(placed_row, window and self.fitted(window)))

    @pytest.mark.parametrize("size", [(1, 1), (5, 7)])
    def test_blank_is_as_the_specs_say(self, reader: Reader, size: tuple[int, int]) -> None:
        """`blank` returns arrays like `read`: the same names, dtypes and axes."""
        check_specs(reader, reader.blank(*size))

    def test_blank_decodes_to_its_size(self, reader: Reader) -> None:
        """A blank image has the requested height and width."""
        height = 1 if self.one_row else 5
        assert self.pixels(reader.blank(height, 7)).shape == (height, 7, reader.channels)

    def test_same_row_twice_is_equal(self, reader: Reader, placed_row: Row) -> None:
        """Reading a row again returns equal arrays."""
        equal(reader.read(placed_row, None), reader.read(placed_row, None))

    def test_memory_is_its_own(self, reader: Reader, placed_row: Row) -> None:
        """No array is a view of memory that the Reader reuses."""
        first, expected = (_copied(reader.read(placed_row, None)) for _ in range(2))
        sample = reader.read(placed_row, None)
        for name, array in sample.arrays.items():
            if array.flags.writeable:
                array[...] = 1
            again = reader.read(placed_row, None)[name]
            assert not np.shares_memory(array, again), f"return a copy of array {name!r}"
        equal(first, expected)
        equal(reader.read(placed_row, None), expected)

    def test_input_bytes_are_about_the_size_of_the_file(
        self, reader: Reader, placed_row: Row, good_row: Row
    ) -> None:
        """`input_bytes` of a Sample counts the bytes read, for statistics."""
        size = Path(good_row.path).stat().st_size
        found = reader.read(placed_row, None).input_bytes
        assert 0.3 * size <= found <= 3 * size + 5000, "pass the bytes that were read to Sample"

    # Windows.

    @pytest.mark.parametrize("window", _WINDOWS.values(), ids=_WINDOWS)
    def test_window_is_the_crop_of_the_whole(
        self, reader: Reader, placed_row: Row, window: Window
    ) -> None:
        """A window is the crop of the whole image at ``window.place(height, width)``."""
        window = self.fitted(window)
        whole = self.pixels(reader.read(placed_row, None))
        y, x = window.place(*whole.shape[:2])
        crop = whole[y : y + window.height, x : x + window.width]
        np.testing.assert_array_equal(self.pixels(reader.read(placed_row, window)), crop)

    @pytest.mark.parametrize("window", _REGIONS.values(), ids=_REGIONS)
    def test_regions_are_what_within_gives(
        self, reader: Reader, placed_row: Row, window: Window
    ) -> None:
        """With ``regions = True`` `read` returns the pixels of ``window.within(height, width)``."""
        if not getattr(reader, "regions", False):
            pytest.skip("a Reader without regions = True never gets such windows")
        whole = self.pixels(reader.read(placed_row, None))
        box, sample = window.within(*whole.shape[:2]), reader.read(placed_row, window)
        y, x = box.place(*whole.shape[:2])
        crop = whole[y : y + box.height, x : x + box.width]
        np.testing.assert_array_equal(self.pixels(sample), crop)
        assert sample.image_size == whole.shape[:2]
        if frames := getattr(reader, "frames", None):  # of clips
            assert sample.frames is not None
            assert len(sample.frames.numbers) == frames
            assert {*sample.frames.numbers} <= {*range(sample.frames.total)}
        peek = reader.peek(placed_row, window)
        assert (peek.height, peek.width) == whole.shape[:2]

    @pytest.mark.parametrize("size", [(1000, 1), (1, 1000), (1000, 1000)])
    def test_window_larger_than_the_image(
        self, reader: Reader, placed_row: Row, size: tuple[int, int]
    ) -> None:
        """A window that is larger than the image is refused, like by `Window.place`."""
        window = Window(height=size[0], width=size[1])
        refused(reader, placed_row, window, rf"{size[0]}x{size[1]}.* larger")

    def test_peek_tells_the_size(self, reader: Reader, placed_row: Row) -> None:
        """`peek` returns the size of the image and about the bytes of the arrays."""
        peek = reader.peek(placed_row, None)
        sample = reader.read(placed_row, None)
        nbytes = sum(array.nbytes for array in sample.arrays.values())
        assert nbytes / 2 < peek.nbytes < 2 * nbytes, "pass the bytes of the arrays to Peek"
        assert self.pixels(sample).shape == (peek.height, peek.width, reader.channels)

    def test_peek_with_a_window_tells_the_size_of_the_image(
        self, reader: Reader, placed_row: Row
    ) -> None:
        """With a window `peek` returns the size of the whole image and the bytes of the window."""
        whole = reader.peek(placed_row, None)
        cut = reader.peek(placed_row, self.fitted(Window(height=2, width=3)))
        assert (cut.height, cut.width) == (whole.height, whole.width)
        assert cut.nbytes <= whole.nbytes

    # Files that cannot be read: each raises a ReadError that names the file and the row.

    def test_missing_file(self, reader: Reader, tmp_path: Path) -> None:
        """A missing file is refused with the reason `missing`."""
        refused(reader, self.placed(self.row(tmp_path / "missing")), None, self.missing)

    def test_empty_file(self, reader: Reader, tmp_path: Path) -> None:
        """An empty file is refused."""
        refused(reader, self.made(tmp_path, b""), None)

    def test_directory(self, reader: Reader, tmp_path: Path) -> None:
        """A directory is refused as such."""
        refused(reader, self.row(tmp_path), None, "(?i)is a directory")

    @pytest.mark.parametrize("kind", _OTHER_FILES)
    def test_another_kind_of_file(self, reader: Reader, tmp_path: Path, kind: str) -> None:
        """Text, zeros and archives are refused."""
        refused(reader, self.made(tmp_path, _OTHER_FILES[kind]), None)

    def test_bad_row(self, reader: Reader, bad_row: Row) -> None:
        """`bad_row` is refused by `read`, `peek` and `verify`."""
        row = self.placed(bad_row)
        refused(reader, row, None)
        _refused_by(lambda: reader.verify(row), row)

    @pytest.mark.parametrize("kept", [0.02, 0.5, 0.7])  # more than FITS padding is cut
    def test_truncated_copy(
        self, reader: Reader, good_row: Row, tmp_path: Path, kept: float
    ) -> None:
        """A file whose end is missing is refused by `read` and by `verify`."""
        content = Path(good_row.path).read_bytes()
        cut = self.made(tmp_path, content[: int(len(content) * kept)])
        _refused_by(lambda: reader.read(cut, None), cut)
        _refused_by(lambda: reader.verify(cut), cut)

    def test_verify_accepts_what_is_sound(self, reader: Reader, placed_row: Row) -> None:
        """`verify` accepts `good_row`."""
        reader.verify(placed_row)


_AROUND = b"neither header nor end of a format " * 99


class InContainer:
    """Mixin for rows that are members of a container such as a tar.

    A Reader passes if it reads `Row.place` instead of the file `Row.path`.

    Examples
    --------
    The mixin comes before your test class::

        class TestNpyInContainer(InContainer, TestNpy):
            pass
    """

    def placed(self, row: Row) -> Row:
        """Copy the file of a row into a container, and return the row of the member."""
        path = Path(row.path)
        if not path.is_file():
            return row
        content = path.read_bytes()
        container = path.with_name(f"container_of_{path.name}")
        container.write_bytes(_AROUND + content + _AROUND)
        return replace(row, path=str(container), offset=len(_AROUND), nbytes=len(content))


class InMemory:
    """Mixin like `InContainer` for rows that are bytes in memory, as in a Preprocessor."""

    def placed(self, row: Row) -> Row:
        """Copy the file of a row into memory, and return the row of the copy."""
        path = Path(row.path)
        if not path.is_file():
            return row
        places = MemoryPlaces(contents={path.name: path.read_bytes()})
        return replace(row, path=path.name, places=places)


def written(folder: Path, content: bytes) -> Row:
    """Write a file into a folder, and return its row."""
    path = folder / "written"
    path.write_bytes(content)
    return Row(NUMBER, str(path))


def refused(reader: Reader, row: Row, window: Window | None, reason: str = ".") -> ReadError:
    """Assert that `read` refuses a row, by a ReadError with file and row; return this error.

    The message must match the regular expression `reason`. Without a window `peek` must also refuse
    the row, because the file is at fault.
    """
    error = _refused_by(lambda: reader.read(row, window), row, reason)
    if window is None:
        _refused_by(lambda: reader.peek(row, None), row, reason)
    return error


def check_named(error: ReadError, row: Row) -> None:
    """Assert that an error begins with the path and the row, and has a reason."""
    assert str(error).startswith(row.path), "pass row.name to ReadError"
    assert f"(row {row.number}): " in str(error), "pass row=row.number to ReadError"
    assert error.reason.strip(), "pass a reason to ReadError"


def check_specs(reader: Reader, sample: Sample) -> None:
    """Assert that the arrays of a Sample match the specs of its Reader."""
    assert list(sample.arrays) == [spec.name for spec in reader.specs]
    for spec in reader.specs:
        array = sample[spec.name]
        spec.check(array)
        assert array.flags.c_contiguous, f"array {spec.name!r} must be C-contiguous"
        assert len(spec.layout) in (0, spec.ndim)


def equal(one: Sample, other: Sample) -> None:
    """Assert that two Samples have the same arrays."""
    assert list(one.arrays) == list(other.arrays)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other[name], strict=True)


def _refused_by(call: Callable[[], object], row: Row, reason: str = ".") -> ReadError:
    caught = None
    try:
        call()
    except ReadError as error:
        caught = error
    except Exception as error:
        kind = type(error).__name__
        raise AssertionError(f"expected a ReadError, the Reader raised {kind}: {error}") from error
    assert caught is not None, "expected a ReadError, the Reader raised nothing"
    check_named(caught, row)
    assert re.search(reason, str(caught)), f"expected {reason!r} in the message: {caught}"
    return caught


def _copied(sample: Sample) -> Sample:
    return Sample({name: array.copy() for name, array in sample.arrays.items()})


def _override(suite: object, name: str, what: str) -> str:
    return f"{type(suite).__name__} must override {name}: return {what}"
