"""Columns of lists: in files, in the reader processes, and in all that makes an Index of others."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from readers import Columns, Index, ReadError
from readers.index import index_file

ROWS = 50
COUNTS = np.random.default_rng(0).integers(0, 6, ROWS)
BOXES = [np.random.default_rng(n).uniform(0, 99, (k, 4)).round() for n, k in enumerate(COUNTS)]
LABELS = [np.arange(count) + row for row, count in enumerate(COUNTS)]
PATHS = [f"/{row}" for row in range(ROWS)]

KINDS: dict[str, tuple[Any, Any]] = {
    "list of fixed": (pa.list_(pa.list_(pa.float32(), 4)), pa.list_(pa.int32())),
    "large list of fixed": (pa.large_list(pa.list_(pa.float64(), 4)), pa.large_list(pa.int64())),
    "list of lists": (pa.list_(pa.list_(pa.float64())), pa.list_(pa.uint8())),
    "large lists": (pa.large_list(pa.large_list(pa.float32())), pa.large_list(pa.uint16())),
}


def table(kind: str, chunks: int = 3) -> pa.Table:
    boxes, labels = KINDS[kind]
    whole = pa.table(
        {
            "path": PATHS,
            "boxes": pa.array([each.tolist() for each in BOXES], boxes),
            "labels": pa.array([each.tolist() for each in LABELS], labels),
            "time": np.arange(ROWS),
        }
    )
    bounds = np.linspace(0, ROWS, chunks + 1).astype(int).tolist()
    parts = [whole.slice(a, b - a) for a, b in pairwise(bounds)]
    return pa.concat_tables(parts)


def check(index: Index, rows: Any = range(ROWS)) -> None:
    """Compare with what was given, for these rows of it in order."""
    owner = index.columns(targets=("boxes", "labels"))
    columns: Columns = pickle.loads(pickle.dumps(owner))
    assert len(index) == len(rows)
    for place, row in enumerate(rows):
        for found in (columns, owner):
            boxes: Any = found.get("boxes", place)
            np.testing.assert_array_equal(boxes.reshape(-1, 4), BOXES[row])
            np.testing.assert_array_equal(found.get("labels", place), LABELS[row])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["", ".parquet", ".arrow"])
def test_lists_in_memory_and_in_files(tmp_path: Path, kind: str, suffix: str) -> None:
    index = Index(table(kind))
    if suffix:
        index.save(tmp_path / f"i{suffix}")
        index = Index.load(tmp_path / f"i{suffix}")
    check(index)


@pytest.mark.parametrize("kind", ["list of fixed", "large list of fixed"])
def test_arrow_files_are_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nor are large files of several batches; whatever the number of rows, pickles are small."""
    # Private, as no user needs it: a batch has 512 MiB.
    monkeypatch.setattr(index_file, "_BATCH_BYTES", 1500)
    Index(table(kind)).save(tmp_path / "i.arrow")
    index = Index.load(tmp_path / "i.arrow")
    assert index.table["boxes"].num_chunks > 2
    monkeypatch.setattr("tempfile.TemporaryFile", None)  # where columns would be copied to
    check(index)


def test_nulls_are_empty(tmp_path: Path) -> None:
    values = [[[1.0, 2, 3, 4]], None, []]
    for kind in (pa.list_(pa.list_(pa.float32(), 4)), pa.list_(pa.list_(pa.float32()))):
        index = Index(pa.table({"path": ["/a", "/b", "/c"], "boxes": pa.array(values, kind)}))
        index.save(tmp_path / "i.arrow")
        for each in (index, Index.load(tmp_path / "i.arrow")):
            columns = each.columns(targets=("boxes",))
            found: list[Any] = [columns.get("boxes", row) for row in range(3)]
            assert [len(boxes) for boxes in found] == [1, 0, 0]


def test_a_null_may_hide_values() -> None:
    """Arrow allows values below a null."""
    hidden = pa.LargeListArray.from_arrays(
        pa.array([0, 2, 3]), pa.array([7, 8, 9]), mask=pa.array([True, False])
    )
    columns = Index(pa.table({"path": ["/a", "/b"], "n": hidden})).columns(targets=("n",))
    found: list[Any] = [columns.get("n", row) for row in range(2)]
    assert [each.tolist() for each in found] == [[], [9]]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[[1, 2, 3, 4]], [[1, 2, 3]]], "equal numbers.*got 3, 4"),
        ([[[1, 2, 3, 4], None], []], "nulls inside its lists"),
        ([[[1, 2, None, 4]], []], "nulls inside its lists"),
        ([["a"], []], "lists of numbers, got list<"),
    ],
)
def test_lists_of_something_else(values: Any, words: str) -> None:
    index = Index(pa.table({"path": ["/a", "/b"], "boxes": values}))
    with pytest.raises(TypeError, match=f"'boxes'.*{words}"):
        index.columns(targets=("boxes",))


@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_kept_by_all_methods(kind: str) -> None:
    index = Index(table(kind))
    rows = [7, 3, 3, 49, 0]
    check(index.select(rows), rows)
    check(index.where("time >= 40"), range(40, 50))
    for part in index.split({"a": 0.5, "b": 0.5}).values():
        check(part, part.table["time"].to_pylist())
    check(Index.concat([index, index.select(rows)]), [*range(ROWS), *rows])
    check(index.with_column("weight", np.ones(ROWS)))
    again = Index(index.table.drop_columns(["boxes", "labels"]))
    again = again.with_column("boxes", BOXES).with_column("labels", LABELS)
    check(again)
    assert again.digest == index.digest


def test_concat_of_different_lists() -> None:
    others = [Index(table(kind)) for kind in ("large list of fixed", "list of fixed")]
    check(Index.concat(others), [*range(ROWS), *range(ROWS)])


def test_arrays_of_boxes_must_have_one_width() -> None:
    index = Index(pa.table({"path": ["/a", "/b"]}))
    with pytest.raises(ValueError, match="column 'boxes' needs arrays"):
        index.with_column("boxes", [np.ones((1, 4)), np.ones((1, 5))])


@pytest.mark.parametrize("empty", [[], (), np.array([]), np.zeros((0, 4), np.float32)])
def test_rows_without_boxes_may_be_empty_lists(empty: Any) -> None:
    index = Index(pa.table({"path": ["/a", "/b", "/c"]}))
    boxes = np.arange(8, dtype=np.float32).reshape(2, 4)
    found: Any = index.with_column("boxes", [empty, boxes, empty]).columns(targets=("boxes",))
    for row, expected in enumerate((boxes[:0], boxes, boxes[:0])):
        np.testing.assert_array_equal(found.get("boxes", row), expected)
        assert found.get("boxes", row).dtype == np.float32
    for other in ([1.0], None, np.array(3.0), np.ones(4)):
        with pytest.raises(ValueError, match="column 'boxes'"):
            index.with_column("boxes", [boxes, other, boxes])


def test_damaged_offsets_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "i.arrow"
    Index(table("list of fixed", 1)).save(path)
    index = Index.load(path)
    offsets = np.cumsum([0, *COUNTS]).tobytes()  # of 64 bits; of boxes first, then of labels
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(offsets) + 8 * 5)
        file.write(np.int64(-7).tobytes())
    with pytest.raises(ReadError, match="written to"):
        index.columns(targets=("boxes",)).get("boxes", 5)
    with pytest.raises(ReadError, match="list 5 from item -7"):
        Index.load(path).columns(targets=("boxes",)).get("boxes", 5)


def test_other_paths_are_relative_to_the_index(tmp_path: Path) -> None:
    """Those of masks; what is no path of a file here is left alone."""
    names = {"path": ["a", "/b", "c"], "mask_path": ["m/a.png", None, "s3://bucket/c"]}
    for suffix in (".parquet", ".arrow"):
        Index(pa.table(names)).save(tmp_path / f"i{suffix}")
        index = Index.load(tmp_path / f"i{suffix}")
        columns = index.columns(targets=("mask_path",))
        expected = [f"{tmp_path}/m/a.png", "", "s3://bucket/c"]
        assert [columns.get("mask_path", row) for row in range(3)] == expected
    (tmp_path / "i.csv").write_text("path,mask_path,other\na.png,m/a.png,m/a.png\n")
    row = Index.scan(tmp_path / "i.csv").table.to_pylist()[0]
    assert row == {
        "path": f"{tmp_path}/a.png",
        "mask_path": f"{tmp_path}/m/a.png",
        "other": "m/a.png",
    }
