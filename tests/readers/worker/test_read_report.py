from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import ReadReport

reports = st.builds(
    ReadReport,
    read_s=st.floats(0, 1e6),
    read_cpu_s=st.floats(0, 1e6),
    input_bytes=st.integers(0, 2**53),
    rejected_row=st.none() | st.integers(0, 2**53),
    reason=st.text(max_size=100).map(lambda text: text.rstrip("\0")),
)


@given(st.lists(reports, min_size=1, max_size=5))
def test_a_batch_comes_back(batch: Any) -> None:
    packed = np.stack([report.pack() for report in batch])
    assert packed.dtype == np.uint8
    assert ReadReport.unpack(packed) == batch


@given(st.text(alphabet=st.characters(), max_size=2000))
def test_any_reason_can_be_packed(reason: str) -> None:
    """Surrogates too, as in the names of files that are not UTF-8; what is long is cut."""
    report = ReadReport()
    report.reject(3, reason)
    packed = report.pack()
    assert packed.shape == ReadReport().pack().shape
    (again,) = ReadReport.unpack(packed[None])
    assert again.rejected_row == 3
    assert reason.encode(errors="replace").decode().startswith(again.reason)


@pytest.mark.parametrize(
    ("reason", "told"), [("\udce9t\udce9.fits", "?t?.fits"), ("a\udfff" * 300, "a?" * 200)]
)
def test_a_reason_with_bytes_that_are_not_text(reason: str, told: str) -> None:
    report = ReadReport()
    report.reject(0, reason)
    (again,) = ReadReport.unpack(report.pack()[None])
    assert again.reason == told


def test_a_long_reason_is_cut_between_characters() -> None:
    report = ReadReport()
    report.reject(0, "x" + "é" * 300)
    (again,) = ReadReport.unpack(report.pack()[None])
    assert again.reason == "x" + "é" * 199


def test_nothing_rejected() -> None:
    (again,) = ReadReport.unpack(ReadReport(0.5, input_bytes=7).pack()[None])
    assert (again.rejected_row, again.reason) == (None, "")


def test_views_that_are_not_contiguous() -> None:
    packed = np.stack([ReadReport(float(n)).pack() for n in range(4)])
    assert [report.read_s for report in ReadReport.unpack(packed[::2])] == [0.0, 2.0]
    assert ReadReport.unpack(packed[:0]) == []
