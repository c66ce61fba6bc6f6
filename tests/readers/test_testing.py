"""The suite for Readers finds what is wrong with one."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from readers import NpyReader, Peek, Row, Sample, Window
from readers.testing import InContainer, InMemory, ReaderContract

SUITE = ReaderContract()
SUITE.pixels = lambda sample: sample["image"]  # type: ignore[method-assign]


@pytest.fixture
def row(tmp_path: Path) -> Row:
    np.save(tmp_path / "a.npy", np.arange(20 * 30, dtype=np.float32).reshape(20, 30))
    return SUITE.row(tmp_path / "a.npy")


class Swapped(NpyReader):
    def read(self, row: Row, window: Window | None) -> Sample:
        sample = super().read(row, window)
        return replace(sample, arrays={"image": sample["image"].astype(">f4")})


class Shifted(NpyReader):
    def read(self, row: Row, window: Window | None) -> Sample:
        sample = super().read(row, window)
        return sample if window is None else replace(sample, arrays={"image": sample["image"] + 1})


class Sharing(NpyReader):
    _kept: dict[str, Sample] = {}  # noqa: RUF012 - shared on purpose

    def read(self, row: Row, window: Window | None) -> Sample:
        return self._kept.setdefault(row.path, super().read(row, window))


class Counting(NpyReader):
    def read(self, row: Row, window: Window | None) -> Sample:
        return replace(super().read(row, window), input_bytes=0)


class Transposed(NpyReader):
    def blank(self, height: int, width: int) -> Sample:
        return super().blank(width, height)

    def peek(self, row: Row, window: Window | None) -> Peek:
        peek = super().peek(row, window)
        return replace(peek, height=peek.width, width=peek.height)


class Raising(NpyReader):
    def read(self, row: Row, window: Window | None) -> Sample:
        try:
            return super().read(row, window)
        except OSError as error:
            raise ValueError("no image") from error


class Accepting(NpyReader):
    def read(self, row: Row, window: Window | None) -> Sample:
        try:
            return super().read(row, window)
        except OSError:
            return self.blank(9, 9)


class Nameless(NpyReader):
    def read(self, row: Row, window: Window | None) -> Sample:
        return super().read(replace(row, number=0), window)


class Unpicklable(NpyReader):
    def __reduce__(self) -> str:
        raise pickle.PicklingError("it holds an open file")


Check = Callable[[Any, Row], None]
SMALL = Window(height=3, width=5)
BROKEN: list[tuple[type[NpyReader], Check, str]] = [
    (Swapped, lambda reader, row: SUITE.test_arrays_are_as_the_specs_say(reader, row, None),
     "native byte order"),
    (Shifted, lambda reader, row: SUITE.test_window_is_the_crop_of_the_whole(reader, row, SMALL),
     "Mismatched elements"),
    (Shifted, lambda reader, row: SUITE.test_regions_are_what_within_gives(reader, row, SMALL),
     "Mismatched elements"),
    (Sharing, SUITE.test_memory_is_its_own, "copy of array 'image'"),
    (Counting, lambda reader, row: SUITE.test_input_bytes_are_about_the_size_of_the_file(
        reader, row, row), "bytes that were read"),
    (Transposed, lambda reader, _: SUITE.test_blank_decodes_to_its_size(reader), r"7, 5.*5, 7"),
    (Transposed, SUITE.test_peek_tells_the_size, r"20.*30"),
    (Raising, lambda reader, row: SUITE.test_missing_file(reader, Path(row.path).parent),
     "ReadError, the Reader raised ValueError: no image"),
    (Accepting, lambda reader, row: SUITE.test_empty_file(reader, Path(row.path).parent),
     "ReadError, the Reader raised nothing"),
    (Nameless, lambda reader, row: SUITE.test_directory(reader, Path(row.path).parent),
     "row=row.number"),
    (Unpicklable, SUITE.test_reader_pickles, "open file"),
]  # fmt: skip


@pytest.mark.parametrize(("broken", "check", "message"), BROKEN)
def test_a_broken_promise_is_named(
    row: Row, broken: type[NpyReader], check: Check, message: str
) -> None:
    check(NpyReader(), row)
    with pytest.raises((AssertionError, TypeError, pickle.PicklingError), match=f"(?s){message}"):
        check(broken(), row)


def test_missing_methods_are_named() -> None:
    with pytest.raises(AssertionError, match="object has no specs, channels, read"):
        SUITE.test_has_all_parts_of_a_reader(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [InContainer(), InMemory()])
def test_rows_from_other_places_have_no_file_of_their_own(
    row: Row, place: InContainer | InMemory
) -> None:
    placed = place.placed(row)
    np.testing.assert_array_equal(
        NpyReader().read(placed, None)["image"], NpyReader().read(row, None)["image"]
    )
    path = Path(placed.path)
    assert not path.exists() or path.read_bytes() != Path(row.path).read_bytes()


def test_without_pytest_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "readers.testing")
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(ModuleNotFoundError, match=r"pytest.*'\.\[testing\]"):
        import_module("readers.testing")
