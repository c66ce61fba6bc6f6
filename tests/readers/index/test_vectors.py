"""Columns of lists of a fixed length, which are tensors: in files and in the reader processes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from readers import Columns, Index

ROWS = 7
RANDOM = np.random.default_rng(0)
VECTORS: dict[str, tuple[pa.DataType, np.ndarray]] = {
    "int16": (pa.int16(), RANDOM.integers(-9, 9, (ROWS, 3)).astype(np.int16)),
    "float": (pa.float32(), RANDOM.random((ROWS, 5), np.float32)),
    "bool": (pa.bool_(), RANDOM.random((ROWS, 4)) < 0.5),
    "one": (pa.uint64(), np.full((ROWS, 1), 2**63 + 1, np.uint64)),
    "time": (pa.timestamp("s"), RANDOM.integers(0, 99, (ROWS, 2))),
    "nested": (pa.list_(pa.float64(), 2), RANDOM.random((ROWS, 3, 2))),
}


def index_of(columns: dict[str, pa.Array]) -> Index:
    """Return an Index of two chunks, which begin within their buffers."""
    table = pa.table({"path": [f"/{row}" for row in range(ROWS)], **columns})
    return Index(pa.concat_tables([table.slice(0, 2), table.slice(2)]))


@pytest.fixture(params=["", ".parquet", ".arrow"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    found = index_of(
        {
            name: pa.array(values.tolist(), pa.list_(kind, values.shape[1]))
            for name, (kind, values) in VECTORS.items()
        }
    )
    if request.param:
        found.save(tmp_path / f"index{request.param}")
        found = Index.scan(tmp_path / f"index{request.param}")
    return found


def test_values_of_rows(index: Index) -> None:
    assert index.row_values(VECTORS).names == ()
    owner = index.columns(VECTORS)
    columns: Columns = pickle.loads(pickle.dumps(owner))
    for name, (_, values) in VECTORS.items():
        expected = values * 10**9 if name == "time" else values
        assert columns.dtype(name).base == expected.dtype
        assert columns.dtype(name).shape == expected.shape[1:]
        for row in range(ROWS):
            np.testing.assert_array_equal(columns.value(name, row), expected[row])
            np.testing.assert_array_equal(columns.get(name, row), expected[row])
        np.testing.assert_array_equal(columns.array(name), expected)


def test_of_floats_null_is_nan() -> None:
    values: list[Any] = [[1.0, None]] * ROWS
    columns = index_of({"x": pa.array(values, pa.list_(pa.float32(), 2))}).columns(("x",))
    np.testing.assert_array_equal(columns.value("x", 1), [1, np.nan])


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.list_(pa.float32(), 2), [None, [1, 2]], [None, [1, 2]]),
        (pa.list_(pa.float32()), [[3, 4], [1, 2]], [[3, 4], [1, 2]]),
        (pa.list_(pa.float32(), 0), [[], []], [[], []]),
        (pa.list_(pa.string(), 2), [["a", "b"], ["c", None]], [["a", "b"], ["c", None]]),
    ],
    ids=str,
)
def test_others_stay_lists(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    index = Index(pa.table({"path": ["a", "b"], "x": pa.array(values, kind)}))
    found = index.row_values(("x",)).of([0, 1])["x"]
    assert [one.tolist() if hasattr(one, "tolist") else one for one in found] == expected
    with pytest.raises(TypeError, match=r"'x'.*by row"):
        index.columns(("x",))


def test_integers_with_nulls_inside_are_refused() -> None:
    index = Index(pa.table({"path": ["a"], "x": pa.array([[1, None]], pa.list_(pa.int8(), 2))}))
    with pytest.raises(TypeError, match=r"'x'.*nulls inside"):
        index.row_values(("x",))
