from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from elsewhere import OverHttp, OverS3
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from readers import NpyReader, ReadError, Row, Window
from readers.contract import Reader, Sample
from readers.testing import (
    NUMBER,
    InContainer,
    InMemory,
    ReaderContract,
    check_named,
    refused,
    written,
)


def saved(folder: Path, array: NDArray[Any]) -> Row:
    path = folder / "array.npy"
    np.save(path, array)
    return Row(NUMBER, str(path))


class TestNpy(ReaderContract):
    @pytest.fixture
    def reader(self) -> Reader:
        return NpyReader()

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, np.random.default_rng(0).normal(size=(31, 23)).astype("f4"))

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, np.zeros((31, 23), np.int16))

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return sample["image"]


class TestColour(TestNpy):
    @pytest.fixture
    def reader(self) -> Reader:
        return NpyReader(dtype="uint16", channels=3)

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return saved(tmp_path, np.arange(31 * 23 * 3, dtype=">u2").reshape(31, 23, 3))


class TestNpyInside(InContainer, TestNpy): ...


class TestNpyInMemory(InMemory, TestNpy): ...


class TestNpyOverS3(OverS3, TestNpy): ...


class TestNpyOverHttp(OverHttp, TestNpy): ...


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        *(
            ("dtype", dtype, "element type.*float32")
            for dtype in ("float31", "complex64", "float", "", None, np.float32, ">f4")
        ),
        *(
            ("channels", channels, "channels.*integer, at least 1")
            for channels in (0, -1, 1.0, "3", True, None)
        ),
    ],
)
def test_settings(setting: str, value: Any, words: str) -> None:
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError, match=words):
        NpyReader(**settings)


STORED = [
    np.arange(60, dtype="<f4").reshape(10, 6),
    np.arange(60, dtype=">f4").reshape(10, 6),
    np.arange(60, dtype="<f4").reshape(10, 6, 1),
    np.asfortranarray(np.arange(60, dtype="<f4").reshape(10, 6)),
    np.full((10, 6), np.nan, "f4"),
]


@pytest.mark.parametrize("array", STORED, ids=["little", "big", "HWC", "fortran", "nan"])
def test_values(tmp_path: Path, array: NDArray[Any]) -> None:
    row = saved(tmp_path, array)
    for window, part in ((None, np.s_[:]), (Window(height=3, width=2), np.s_[3:6, 2:4])):
        sample = NpyReader().read(row, window)
        np.testing.assert_array_equal(sample["image"], array.reshape(10, 6, 1)[part])
        assert sample["image"].flags.c_contiguous
        assert sample["image"].dtype.isnative
        # Fortran's are read whole.
        rows = array[3:6] if window and array.flags.c_contiguous else array
        assert sample.input_bytes == rows.nbytes


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (np.zeros((2, 3), "f8"), {}, r"float32 .*\(height, width, 1\), got float64"),
    (np.zeros(3, "f4"), {}, r"float32 .*\(height, width, 1\), got shape \(3,\)"),
    (np.zeros((2, 3, 2), "f4"), {}, r"got shape \(2, 3, 2\)"),
    (np.zeros((1, 2, 3, 1), "f4"), {}, r"got shape \(1, 2, 3, 1\)"),
    (np.zeros((2, 3), "f4"), {"channels": 3}, r"width, 3\), got shape \(2, 3\)"),
    (np.zeros((0, 3), "f4"), {}, r"got shape \(0, 3, 1\)"),
    (np.zeros((2, 3), "M8[s]"), {}, "got datetime64"),
    (np.zeros((2, 3), [("a", "f4")]), {}, "float32"),
    (np.array([[None, 1]]), {}, "."),
    (np.array(1, "f4"), {}, r"got shape \(\)"),
]


@pytest.mark.parametrize(("array", "settings", "message"), REFUSED)
def test_refused(
    tmp_path: Path, array: NDArray[Any], settings: dict[str, Any], message: str
) -> None:
    refused(NpyReader(**settings), saved(tmp_path, array), None, message)


@pytest.mark.parametrize("suffix", ["fits", "png", "jpg", "tiff", "webp"])
def test_another_kind_of_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    pixels = np.zeros((8, 8), "u1")
    if suffix == "fits":
        fits.PrimaryHDU(pixels).writeto(path)
    else:
        Image.fromarray(pixels).save(path)
    pipeline = "fits" if suffix == "fits" else "jpeg"
    refused(NpyReader(), Row(NUMBER, str(path)), None, f"not a .npy file.*{pipeline}_pipeline")


def test_a_cut_off_beginning_gets_no_hint(tmp_path: Path) -> None:
    refused(NpyReader(), written(tmp_path, b"\x93NUMPY"), None, r"b'\\x93NUMPY'$")


def test_a_header_that_ends_early(tmp_path: Path) -> None:
    whole = Path(saved(tmp_path, np.zeros((3, 3), "f4")).path).read_bytes()
    for length in range(0, 130, 3):
        refused(NpyReader(), written(tmp_path, whole[:length]), None)


header_characters = st.sampled_from(
    list(b"0123456789,()[]{}'\"<>=:TrueFalsei4f8 \n\0\x93NUMPY\xff")
)


@given(st.lists(st.tuples(st.integers(0, 127), header_characters), max_size=6))
def test_a_damaged_header(tmp_path: Path, damage: Any) -> None:
    with open(saved(tmp_path, np.zeros((3, 3), "f4")).path, "rb") as file:
        content = bytearray(file.read())
    for place, byte in damage:
        content[place] = byte
    row = written(tmp_path, bytes(content))
    try:
        NpyReader().read(row, None)
    except ReadError as error:
        check_named(error, row)


@pytest.mark.parametrize("shape", ["(99999999999999999999, 3)", "(-1, 3)", "(1e9, 3)", "(True, 3)"])
def test_a_hostile_shape(tmp_path: Path, shape: Any) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    refused(NpyReader(), written(tmp_path, content), None)


def test_an_archive_of_arrays(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, image=np.zeros((2, 3), "f4"))
    refused(NpyReader(), Row(NUMBER, str(path)), None)
