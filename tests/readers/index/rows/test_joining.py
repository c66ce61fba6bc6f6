from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from astropy import units as u
from astropy.io import fits
from astropy.table import MaskedColumn
from astropy.time import Time
from astropy.utils.masked import Masked
from hypothesis import given
from hypothesis import strategies as st

from readers import Index

MASKED = np.ma.array([1.5, 2], mask=[False, True])

CELLS: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-(2**31), 2**31),
    "number": st.floats(allow_nan=False),
    "text": st.text(max_size=5),
}


def index(count: int = 2, **columns: Any) -> Index:
    return Index(pa.table({"path": [f"/é{row}" for row in range(count)], **columns}))


def contents(found: Index) -> dict[str, list[Any]]:
    return found.table.to_pydict()


class TestConcat:
    @given(st.lists(st.tuples(st.sets(st.sampled_from([*CELLS])), st.integers(1, 3)), min_size=1))
    def test_as_pandas_does(self, shapes: list[tuple[set[str], int]]) -> None:
        """Rows follow each other; what an Index lacks is null."""
        indexes = [
            index(count, **{name: [f"{name}{number}{row}" for row in range(count)] for name in has})
            for number, (has, count) in enumerate(shapes)
        ]
        found = Index.concat(indexes, fill=True)
        frames = [pd.DataFrame(contents(one), dtype=object) for one in indexes]
        expected = pd.concat(frames).astype(object)
        assert set(found.table.column_names) == set(expected.columns)
        for name, column in contents(found).items():
            assert column == [None if pd.isna(value) else value for value in expected[name]]

    @given(st.data(), st.sampled_from([*CELLS]))
    def test_rows_are_kept(self, data: st.DataObject, kind: str) -> None:
        parts = data.draw(st.lists(st.lists(CELLS[kind], min_size=1), min_size=1, max_size=4))
        found = Index.concat(index(len(part), x=part) for part in parts)
        assert contents(found)["x"] == [value for part in parts for value in part]

    @pytest.mark.parametrize(
        ("first", "second", "kind"),
        [
            ([1], [1.5], pa.float64()),
            (pa.array([1], pa.int16()), pa.array([2], pa.int64()), pa.int64()),
            ([1], pa.nulls(1), pa.int64()),
            (["a"], pa.array(["b"], pa.large_string()), pa.large_string()),
            (pa.array(["a"]).dictionary_encode(), ["b"], pa.string()),
            (pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("ns")), None),
        ],
    )
    def test_types_are_promoted(self, first: Any, second: Any, kind: Any) -> None:
        found = Index.concat([index(1, x=first), index(1, x=second)])
        assert found.table["x"].type == (kind or pa.timestamp("ns"))
        assert contents(found)["x"] == [*pa.array(first).to_pylist(), *pa.array(second).to_pylist()]

    @pytest.mark.parametrize(
        ("indexes", "error", "words"),
        [
            ([], ValueError, "at least one"),
            ([index(x=[1, 2]), index()], ValueError, r"'x' \(indexes\[1\]\).*fill=True"),
            (
                [index(), index(x=[1, 2], y=[1, 2])],
                ValueError,
                r"'x' \(indexes\[0\]\), 'y' \(indexes\[0\]\)",
            ),
            ([index(x=[1, 2]), index(x=["a", "b"])], ValueError, "'x' is int64 and string"),
            ([index(x=[2**60 + 1, 0]), index(x=[0.5, 0.5])], ValueError, "'x' is int64 and double"),
            ([index(), index().table], TypeError, "sequence of Indexes.*a Tab"),
            ("ab", TypeError, "sequence of Indexes.*a str"),
            (index(), TypeError, r"\[first, second\], got one"),
            (None, TypeError, r"\[first, second\], got None"),
            (3, TypeError, r"\[first, second\], got 3"),
        ],
    )
    def test_errors(self, indexes: Any, error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            Index.concat(indexes)

    def test_classes(self, tmp_path: Path) -> None:
        for name in ("a/x.jpg", "b/y.jpg", "c/z.jpg"):
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).touch()
        first = Index.from_class_folders(tmp_path)
        assert Index.concat([first, first]).classes == ("a", "b", "c")
        assert Index.concat([index(), first], fill=True).classes == ("a", "b", "c")
        other = Index.from_class_folders(tmp_path, classes=("c", "b", "a"))
        for second in (other, index(label=[0, 1], class_name=["c", "b"])):
            with pytest.raises(ValueError, match="different classes"):
                Index.concat([first, second])

    def test_of_a_mapped_file(self, tmp_path: Path) -> None:
        index(x=[1, 2]).save(tmp_path / "one.arrow")
        found = Index.concat([Index.load(tmp_path / "one.arrow"), index(x=[3, 4])])
        assert contents(found) == {"path": ["/é0", "/é1"] * 2, "x": [1, 2, 3, 4]}
        assert [found.columns(("x",)).value("x", row) for row in range(4)] == [1, 2, 3, 4]
        assert found.digest == Index(found.table).digest


class TestWithColumn:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([1, None], [1, None]),
            (range(2), [0, 1]),
            (np.array([1, 2], ">f4"), [1, 2]),
            (np.array(["a", "é"]), ["a", "é"]),
            (np.ma.array([1, 2], mask=[False, True]), [1, None]),
            (Masked([1, 2], mask=[False, True]), [1, None]),
            (Masked([1.5, 2] * u.m, mask=[True, False]), [None, 2]),
            (
                Time(np.ma.array([58000, 58001], mask=[False, True]), format="mjd").datetime64,
                [pd.Timestamp("2017-09-04"), None],
            ),
            (MaskedColumn([1, 2], mask=[True, False]), [None, 2]),
            (pd.Series(["a", "b"]), ["a", "b"]),
            (pd.Series([1, 2], dtype=">i4"), [1, 2]),
            (pd.arrays.SparseArray([0, 3]), [0, 3]),
            (pd.Series(pd.arrays.SparseArray([0, 3])), [0, 3]),
            (torch.tensor([1, 2]), [1, 2]),
            (pa.array([1, 2]), [1, 2]),
            (np.array(["2020-01-01", "NaT"], "M8[D]"), [pd.Timestamp("2020-01-01").date(), None]),
        ],
    )
    def test_values(self, values: Any, expected: list[Any]) -> None:
        given = index()
        assert contents(given.with_column("x", values))["x"] == expected
        assert given.table.column_names == ["path"]

    @pytest.mark.parametrize(
        ("values", "kind", "first"),
        [
            (pd.Series([2**53 + 1, None], dtype="Int64"), pa.int64(), 2**53 + 1),
            (pd.Index([2**53 + 1, None], dtype="Int64"), pa.int64(), 2**53 + 1),
            (pd.array([True, None], "boolean"), pa.bool_(), True),
            (pd.Series([True, None], dtype="boolean"), pa.bool_(), True),
            (pd.Series(["a", None]), pa.large_string(), "a"),
            (pd.Series(["a", None], dtype="category"), pa.large_string(), "a"),
            (
                pd.Series([pd.Timestamp("2020-01-01", tz="UTC"), None]),
                pa.timestamp("us", "UTC"),
                pd.Timestamp("2020-01-01", tz="UTC"),
            ),
        ],
    )
    def test_of_pandas_with_a_missing_value(self, values: Any, kind: Any, first: Any) -> None:
        table = index().with_column("x", values).table
        assert table.schema.field("x").type == kind
        assert table["x"].to_pylist() == [first, None]

    def test_a_column_of_a_fits_table(self) -> None:
        """Which is big-endian."""
        table = fits.BinTableHDU.from_columns([fits.Column("x", "J", array=[1, 2])])
        assert contents(index().with_column("x", table.data["x"]))["x"] == [1, 2]

    def test_a_column_is_replaced_in_its_place(self) -> None:
        found = index(x=[1, 2], y=[3, 4]).with_column("x", ["a", "b"])
        assert list(contents(found).items())[1:] == [("x", ["a", "b"]), ("y", [3, 4])]

    def test_new_labels_have_no_classes(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x.jpg").touch()
        labelled = Index.from_class_folders(tmp_path)
        assert labelled.with_column("other", [3]).classes == ("a",)
        assert labelled.with_column("label", [3]).classes == ()

    @pytest.mark.parametrize(
        ("name", "values", "error", "words"),
        [
            (3, [1, 2], TypeError, "name of a column must be text, got 3"),
            (None, [1, 2], TypeError, "name of a column must be text, got None"),
            (b"x", [1, 2], TypeError, "name of a column must be text, got b'x'"),
            ("", [1, 2], ValueError, "name of a column is empty"),
            ("path", ["/a", None], ValueError, "'path' has 1 empty rows"),
            ("x", {3, 1}, TypeError, "'x'.*order of the rows"),
            ("x", {"a": 3, "b": 1}, TypeError, "'x'.*order of the rows"),
            ("x", {}.keys(), TypeError, "'x'.*order of the rows"),
            ("x", [1], ValueError, "'x' needs 2 values.*got 1"),
            ("x", "ab", ValueError, "'x' needs a value for each row, got 'ab'"),
            ("x", 3, ValueError, "column 'x'"),
            ("x", [1, "a"], ValueError, "column 'x'.*'a'"),
            ("x", np.zeros((2, 2, 2)), ValueError, "column 'x'"),
            ("x", np.ma.zeros((2, 0)), ValueError, "column 'x'"),
            ("x", [2**70, 1], ValueError, "column 'x'"),
            ("x", pd.period_range("2020", periods=2), ValueError, "column 'x'.*extension<"),
            ("x", pd.interval_range(0, 2), ValueError, "column 'x'.*extension<"),
            ("x", pd.cut([1, 2], 2), ValueError, "column 'x'.*extension<"),
            ("x", [np.ones(2), MASKED], ValueError, "'x': row 1 has masked values: fill"),
            ("x", [np.ones((1, 2)), MASKED[None]], ValueError, "'x': row 1 has masked values"),
            (
                "x",
                [[], Masked(MASKED.data, mask=MASKED.mask)],
                ValueError,
                "'x': row 1 has masked values",
            ),
            ("x", [1.5, np.ma.masked], ValueError, "'x': row 1 has masked values: .*None"),
            ("x", Time([58000, 58001], format="mjd"), ValueError, r"datetime64\[ns\].* Time"),
            ("x", [np.datetime64("2020-01-01"), None], ValueError, r"datetime64\[ns\].*NaT"),
            ("x", np.array(["2020-01-01T01"] * 2, "M8[h]"), ValueError, r"datetime64\[ns\]"),
        ],
    )
    def test_errors(self, name: Any, values: Any, error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            index().with_column(name, values)

    def test_rows_of_a_matrix_are_lists_of_a_fixed_length(self) -> None:
        for values in (np.arange(6).reshape(2, 3), np.arange(6, dtype=">i8").reshape(2, 3)):
            column = index().with_column("x", values).table["x"]
            assert column.type == pa.list_(pa.int64(), 3)
            assert column.to_pylist() == values.tolist()
        masked = np.ma.masked_equal(np.arange(6).reshape(2, 3), 4)
        assert contents(index().with_column("x", masked))["x"] == [[0, 1, 2], [3, None, 5]]
        with pytest.raises(ValueError, match=r"'x' needs 2 values.*got 3"):
            index().with_column("x", np.zeros((3, 2)))
