"""Text, lists and nulls of some rows, from tables in memory and from Index files."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from readers import TimeBlocks
from readers.errors import ReadError
from readers.index.table import Index

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "name": (pa.string(), ["M31", None, "", "żółw", "NGC 7000"]),
    "kind": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None, "a", "b"]),
    "key": (pa.binary(), [b"\xff\0", None, b"", b"1", b"2"]),
    "seen": (pa.bool_(), [True, None, False, True, True]),
    "count": (pa.int64(), [2**60 + 1, None, -1, 0, 7]),
    "date": (pa.timestamp("us"), [1_000_000, None, 0, -1, 5]),
    "day": (pa.date32(), [1, None, 0, -1, 5]),
    "flux": (pa.list_(pa.float32()), [[1.5, 2.5], None, [], [3.5], [4.5] * 4]),
    "boxes": (pa.list_(pa.list_(pa.int16(), 4)), [[[1, 2, 3, 4]], None, [], [[5] * 4] * 2, []]),
    "tags": (pa.list_(pa.string()), [["x", None], None, [], ["y"], ["z"]]),
}
NANOSECONDS = {"date": 10**3, "day": 86_400 * 10**9}
NUMBERS = {"label": [5, 6, 7, 8, 9], "z": [0.5, None, 1.5, 2.5, 3.5], "ok": [True] * 5}
ROWS = [3, 0, 1, 4, 2, 3]


def expected(name: str, row: int) -> Any:
    value = COLUMNS[name][1][row]
    return value * NANOSECONDS[name] if value is not None and name in NANOSECONDS else value


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Of several chunks, which begin at other rows in each column."""
    columns = {"path": pa.chunked_array([["a", "b"], ["c", "d", "e"]])}
    for number, (name, (kind, values)) in enumerate(COLUMNS.items()):
        cut = number % 4
        columns[name] = pa.chunked_array([values[:cut], values[cut:]], kind)
    return pa.table({**columns, **NUMBERS})


@pytest.mark.parametrize("name", ["index.parquet", "index.arrow", ""])
def test_values_of_some_rows(table: pa.Table, tmp_path: Path, name: str) -> None:
    index = Index(table)
    if name:
        index.save(tmp_path / name)
        index = Index.scan(tmp_path / name)
    values = index.row_values((*COLUMNS, *NUMBERS))
    assert values.names == tuple(COLUMNS)
    found = values.of(ROWS)
    assert list(found) == list(COLUMNS)
    for column in set(COLUMNS) - {"flux", "boxes"}:
        assert found[column] == [expected(column, row) for row in ROWS]
    for column, dtype, shape in (("flux", "float32", (0,)), ("boxes", "int16", (0, 4))):
        for array, row in zip(found[column], ROWS, strict=True):
            value = COLUMNS[column][1][row]
            if value is None:
                assert array is None
                continue
            assert array.dtype == dtype
            assert array.shape == (np.array(value).shape if value else shape)
            assert array.tolist() == value
            array[...] = 0  # it is the user's own
    assert [None if one is None else one.tolist() for one in values.of(ROWS)["flux"]] == [
        COLUMNS["flux"][1][row] for row in ROWS
    ]
    assert values.of([]) == {column: [] for column in COLUMNS}


def test_columns_that_cannot_be_looked_up(table: pa.Table) -> None:
    with pytest.raises(KeyError, match="'nmae'"):
        Index(table).row_values(("nmae",))
    holed = pa.array([[1, None]] * 5)
    index = Index(table.append_column("holed", holed))
    with pytest.raises(TypeError, match=r"'holed'.*nulls inside"):
        index.row_values(("holed",))


@pytest.mark.parametrize(
    ("kind", "values", "error", "words"),
    [
        (pa.timestamp("s"), [10**12, None], ValueError, "times from 1677"),
        (pa.list_(pa.list_(pa.int8())), [[[1, 2]], [[1]]], TypeError, "got 1, 2"),
        (pa.list_(pa.list_(pa.int8())), [[[1, None]], None], TypeError, "nulls inside"),
        (pa.list_(pa.list_(pa.int8())), [[[1, 2], None]] * 2, TypeError, "nulls inside"),
    ],
)
def test_invalid_columns_are_found_before_the_first_row(
    kind: pa.DataType, values: list[Any], error: type[Exception], words: str
) -> None:
    index = Index(pa.table({"path": ["a", "b"], "found": pa.array(values, kind)}))
    with pytest.raises(error, match=f"'found'.*{words}"):
        index.row_values(("found",))


@pytest.mark.parametrize(
    "use",
    [
        lambda index: index.columns(("late",)),
        lambda index: index.group([171], time="late"),
        lambda index: index.split({"a": 0.5, "b": 0.5}, by="late"),
        lambda index: index.split({"a": 0.5, "b": 0.5}, by=TimeBlocks("late", block="1d")),
    ],
)
def test_times_out_of_range_are_refused_by_each_use(use: Callable[[Index], Any]) -> None:
    late = pa.array([0, 253402214400], pa.timestamp("s"))  # 9999-12-31
    index = Index(pa.table({"path": ["a", "b"], "late": late, "wavelnth": [171, 171]}))
    with pytest.raises(ValueError, match=r"'late'.*times from 1677 to 2262"):
        use(index)


def test_rows_without_lists_have_the_width_of_others() -> None:
    """Where the type does not say it."""
    boxes = pa.array([[], [[1, 2, 3, 4]]], pa.list_(pa.list_(pa.int16())))
    found = Index(pa.table({"path": ["a", "b"], "boxes": boxes})).row_values(("boxes",)).of([0, 1])
    assert [array.shape for array in found["boxes"]] == [(0, 4), (1, 4)]


def test_a_file_that_is_written_to(table: pa.Table, tmp_path: Path) -> None:
    file = tmp_path / "index.arrow"
    Index(table).save(file)
    values = Index.scan(file).row_values(("name",))
    os.truncate(file, 1000)
    with pytest.raises(ReadError, match="written to"):
        values.of([0])


def test_the_memory_is_that_of_the_rows() -> None:
    count = 100_000
    chunk = pa.array([f"{row:0100d}" for row in range(count)])
    index = Index(pa.table({name: pa.chunked_array([chunk] * 3) for name in ("path", "name")}))
    values, default = index.row_values(("name",)), pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        found = values.of([count - 1, 3 * count - 2])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)
    assert found["name"] == [f"{count - 1:0100d}", f"{count - 2:0100d}"]
    assert max(peak, pool.max_memory() or 0) < 100_000
