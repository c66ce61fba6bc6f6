from __future__ import annotations

import gc
import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes import FakeReader
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from readers import Columns, Index, Order, Row, Schedule, Shard, Source
from readers.index.index_file import store_columns

logger = logging.getLogger(__name__)


def strings(texts: list[str]) -> Any:
    return pa.array(texts, pa.large_string())


def stored(columns: dict[str, Any]) -> Columns:
    return Columns(store_columns(columns))


@given(st.lists(st.text(), max_size=20), st.sampled_from(["?", "i1", "i8", "u8", "f2", "f8"]))
def test_round_trip(texts: list[str], dtype: str) -> None:
    numbers = np.arange(len(texts)).astype(dtype)
    columns = stored({"number": numbers, "path": strings(texts), "again": strings(texts[::-1])})
    again = pickle.loads(pickle.dumps(columns))
    for given_columns in (columns, again):
        assert len(given_columns) == len(texts)
        np.testing.assert_array_equal(given_columns.array("number"), numbers, strict=True)
        assert [given_columns.text("path", row) for row in range(len(texts))] == texts
        assert [given_columns.text("again", row) for row in range(len(texts))] == texts[::-1]


@given(hnp.arrays(hnp.integer_dtypes() | hnp.floating_dtypes(endianness="<"), (3,)))
def test_numbers_come_back(numbers: NDArray[Any]) -> None:
    columns = stored({"path": strings(list("abc")), "number": numbers})
    np.testing.assert_array_equal(columns.array("number"), numbers, strict=True)
    assert columns.array("number").flags.aligned


def test_numbers_that_are_not_contiguous() -> None:
    numbers = np.arange(12).reshape(6, 2)[::2, 1]
    columns = stored({"path": strings(list("abc")), "number": numbers})
    assert columns.array("number").tolist() == [1, 5, 9]


def test_columns_are_read_only() -> None:
    columns = stored({"path": strings(list("abc")), "number": np.arange(3)})
    with pytest.raises(ValueError, match="read-only"):
        columns.array("number")[0] = 7


def test_rows() -> None:
    columns = stored({"path": strings(["/a.fits", "/é ü/💥.fits"]), "hdu": np.array([-1, 2])})
    assert columns.row(0) == Row(0, "/a.fits", None)
    assert columns.row(1) == Row(1, "/é ü/💥.fits", 2)
    assert stored({"path": strings(["/a"])}).row(0) == Row(0, "/a", None)


def test_parts() -> None:
    columns = stored(
        {
            "path": strings(["/a", "/b"]),
            "path_x": strings(["/a", ""]),
            "path_é 1": strings(["", "/c é"]),
            "hdu_é 1": np.array([0, 3]),
        }
    )
    for given_columns in (columns, pickle.loads(pickle.dumps(columns))):
        assert given_columns.row(0) == Row(0, "/a", parts={"x": Row(0, "/a"), "é 1": None})
        assert given_columns.row(1).part("é 1") == Row(1, "/c é", 3)
        assert given_columns.row(1).part("x") is None
    with pytest.raises(KeyError, match=r"row 1 .*'y'.*x, é 1"):
        columns.row(1).part("y")


def test_rows_that_are_not_there() -> None:
    columns = stored({"path": strings(["/a", "/b"]), "number": np.arange(2)})
    for row in (-1, 2):
        for look in (columns.row, lambda row: columns.value("number", row)):
            with pytest.raises(IndexError, match=rf"\[0, 2\), got {row}"):
                look(row)
    with pytest.raises(TypeError, match="'path' must hold numbers"):
        columns.value("path", 0)
    with pytest.raises(TypeError, match="'number' must hold text"):
        columns.text("number", 0)


def test_another_process_reads_while_the_owner_lives(fresh_python: Callable[..., bytes]) -> None:
    columns = stored({"path": strings(["/a", "/é"]), "hdu": np.array([0, -1])})
    code = (
        "import pickle, sys; columns = pickle.load(sys.stdin.buffer)\n"
        "again = pickle.loads(pickle.dumps(columns))\n"
        "print(ascii([columns.row(0), again.row(1), len(again)]))"
    )
    expected = ascii([columns.row(0), columns.row(1), 2])
    for _ in range(2):
        assert fresh_python(code, stdin=pickle.dumps(columns)).decode().strip() == expected


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gc.collect()  # what other tests have left
    open_files = len(os.listdir("/proc/self/fd"))
    columns = stored({"path": strings(["/a"])})
    assert columns.text("path", 0) == "/a"
    assert list(tmp_path.iterdir()) == []
    del columns
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= open_files


# The size of the archive must not matter to a reader process.

MILLIONS = 4
"""Of rows: their columns take 190 MB."""

CHILD = """
import pickle, sys, time
content = sys.stdin.buffer.read()
started = time.perf_counter()
source = pickle.loads(content)
from fakes import Info
row = source.schedule.num_rows // 2
image, *_ = source(Info(row))
path = source.columns.row(row).path
seconds = time.perf_counter() - started
with open("/proc/self/smaps_rollup") as file:
    sizes = dict(line.split()[:2] for line in file.read().splitlines()[1:])
# All that is resident, shared pages as well: more than this process costs.
resident = int(sizes["Rss:"]) * 1024
print(int(image[0, 0, 0]), path, seconds, resident)
"""


def source_of(index: Index) -> Any:
    """Return a Source as dali_pipelines.graph.pipeline makes it."""
    return Source(
        columns=index.columns(("label",)),
        reader=FakeReader(),
        schedule=Schedule(num_rows=len(index), shard=Shard(), batch_size=8),
        order=Order(len(index), shuffle=False),
        sent_columns=("label",),
    )


def archive(num_rows: int) -> Index:
    numbers = pa.array(np.arange(num_rows))
    digits = pc.utf8_lpad(pc.cast(numbers, pa.large_string()), 7, "0")
    head, tail = (
        pa.scalar(text, pa.large_string()) for text in ("/archive/2015/01/01/aia_171_", ".fits")
    )
    empty = pa.scalar("", pa.large_string())
    paths = pc.binary_join_element_wise(head, digits, tail, empty)
    return Index(pa.table({"path": paths, "label": numbers}))


def test_a_reader_process_of_a_large_archive(fresh_python: Callable[..., bytes]) -> None:
    found = {}
    for num_rows in (10, MILLIONS * 1_000_000):
        source = source_of(archive(num_rows))
        pickled = pickle.dumps(source)
        assert len(pickled) < 10_000
        row, path, seconds, resident = fresh_python(CHILD, stdin=pickled).decode().split()
        assert int(row) == num_rows // 2
        assert path == f"/archive/2015/01/01/aia_171_{num_rows // 2:07}.fits"
        found[num_rows] = float(seconds), int(resident)
        logger.info("%d rows: %s s, %s B, pickle %d B", num_rows, seconds, resident, len(pickled))
    (_, few_bytes), (_, many_bytes) = found.values()  # the times are for the log
    assert many_bytes - few_bytes < 100e6
