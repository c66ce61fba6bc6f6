from __future__ import annotations

import os
import pickle
import tracemalloc
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from readers import Index, Row


def paths(index: Index) -> list[str]:
    return [index.path(row) for row in range(len(index))]


def table(**columns: Any) -> pa.Table:
    return pa.table({"path": ["/a", "/b", "/c"], **columns})


class TestTable:
    @pytest.mark.parametrize(
        ("given", "error", "words"),
        [
            ({"path": ["/a"]}, TypeError, r"pyarrow.Table, got .*dict.*pyarrow.table\(dict\)"),
            (pd.DataFrame({"path": ["/a"]}), TypeError, "pyarrow.Table, got .*DataFrame"),
            ("/a.parquet", TypeError, "pyarrow.Table, got .*str"),
            (pa.table({"name": ["/a"]}), ValueError, "'path', got .*name"),
            (pa.table({"path": pa.array([], pa.string())}), ValueError, "at least one row"),
            (pa.table({"path": [1, 2]}), ValueError, "'path' must be text, got int64"),
            (pa.table({"path": ["/a", None, None]}), ValueError, "'path' has 2 empty rows"),
            (pa.table({"path": ["/a", ""]}), ValueError, "'path' has 1 empty rows"),
            (
                pa.table(
                    {
                        "path": ["/a"],
                        "offset": [5],
                        "nbytes": [6],
                        "etag": ["a"],
                        "file_bytes": [10],
                    }
                ),
                ValueError,
                "1 rows .*'offset'.*'nbytes'",
            ),
        ],
    )
    def test_errors(self, given: Any, error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            Index(given)

    @pytest.mark.parametrize("make", [Index.scan, Index.from_paths])
    def test_no_paths(self, make: Callable[..., Index]) -> None:
        with pytest.raises(ValueError, match="at least one row"):
            make([])

    def test_two_columns_of_one_name(self, tmp_path: Path) -> None:
        twice = pa.Table.from_arrays([pa.array(["/a"])] * 3, ["path", "label", "label"])
        with pytest.raises(ValueError, match=r"several columns 'label'.*rename"):
            Index(twice)
        with pa.ipc.new_file(tmp_path / "a.arrow", twice.schema) as file:
            file.write_table(twice)
        with pytest.raises(ValueError, match=r"a\.arrow: .*'label'"):
            Index.load(tmp_path / "a.arrow")

    def test_views_become_plain(self) -> None:
        views = {
            "path": pa.array(["/a", "/b"], pa.string_view()),
            "name": pa.array([None, "é"], pa.string_view()),
            "raw": pa.array([b"x", None], pa.binary_view()),
        }
        index = Index(pa.table(views).replace_schema_metadata({"of": "others"}))
        assert index.table.to_pydict() == pa.table(views).to_pydict()
        assert index.table.schema.metadata == {b"of": b"others"}
        assert [str(kind) for kind in index.table.schema.types] == [
            "large_string",
            "large_string",
            "large_binary",
        ]
        assert index.select([1]).table["name"].to_pylist() == ["é"]

    def test_length_repr_and_path(self) -> None:
        index = Index(table(label=[1, 2, 3]))
        assert len(index) == 3
        assert repr(index).splitlines() == [
            "Index: 3 rows",
            "path  label",
            "/a    1",
            "/b    2",
            "/c    3",
        ]
        assert index.path(1) == "/b"


class TestLooks:
    """What users of pandas, astropy and datasets try first."""

    def test_rows_columns_and_slices(self) -> None:
        index = Index(table(label=[1, 2, None]))
        assert index[0] == index[-3] == {"path": "/a", "label": 1}
        assert [row["label"] for row in index] == [1, 2, None]
        assert index["label"].to_pylist() == [1, 2, None]
        assert [index[1:].path(row) for row in range(2)] == ["/b", "/c"]
        assert index[::-1].path(0) == "/c"
        assert index[[2, 0]].path(0) == index[np.array([False, False, True])].path(0) == "/c"
        assert index.head(2)["path"].to_pylist() == ["/a", "/b"]
        assert len(index.head(9)) == 3
        assert index.to_pandas()["path"].tolist() == ["/a", "/b", "/c"]

    def test_columns_are_found_by_their_names(self) -> None:
        assert "label" in Index(table(label=[1, 2, 3]))
        assert "lable" not in Index(table(label=[1, 2, 3]))

    @pytest.mark.parametrize(
        "values",
        [
            pa.array([1, 2, None], pa.timestamp("ns")),
            pa.array([1, 2, 3], pa.duration("ns")),
            pa.array([2**62, 1, None], pa.timestamp("s")),
            pa.array([1, 2, 3], pa.timestamp("s", "Nowhere/Land")),
        ],
        ids=lambda one: str(one.type),
    )
    def test_values_that_python_does_not_have(self, values: pa.Array) -> None:
        index = Index(table(value=values))
        assert len(repr(index).splitlines()) == 5
        assert len([row["value"] for row in index]) == 3
        assert set(index[1]) == {"path", "value"}

    def test_an_iteration_converts_a_few_rows_at_a_time(self) -> None:
        count = 100_000
        index = Index(pa.table({"path": ["/a"] * count, "n": range(count)}))
        tracemalloc.start()
        try:
            assert next(iter(index))["n"] == 0
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()
        assert [row["n"] for row in index] == [*range(count)]

    @pytest.mark.parametrize("row", [3, -4])
    def test_a_row_that_is_not_there(self, row: int) -> None:
        with pytest.raises(IndexError, match=f"row {row} of an Index of 3"):
            Index(table())[row]

    def test_a_column_that_is_not_there(self) -> None:
        with pytest.raises(KeyError, match=r"'lable'.*label"):
            Index(table(label=[1, 2, 3]))["lable"]

    def test_the_first_and_last_rows_are_shown(self) -> None:
        paths = [f"/archive/{'x' * 40}/{row}.fits" for row in range(1000)]
        columns = {f"column_{n}": [n] * 1000 for n in range(20)}
        index = Index(pa.table({"path": paths, "<b>": ["&"] * 1000, **columns}))
        lines = repr(index).splitlines()
        assert len(lines) == 13
        assert "1000 rows" in lines[0]
        assert "column_9" in lines[0]
        assert max(map(len, lines[1:])) <= 120
        assert [line.split()[0][-6:] for line in lines[2:4]] == ["0.fits", "1.fits"]
        assert "999.fits" in lines[-1]
        found = index._repr_html_()
        assert "&lt;b&gt;" in found
        assert "999.fits" in found


class TestFile:
    def test_save_and_load(self, tmp_path: Path) -> None:
        index = Index(table(hdu=[0, None, 2], time=[datetime(2015, 1, 1)] * 3))
        index.save(tmp_path / "index.parquet")
        again = Index.load(tmp_path / "index.parquet")
        assert again.table == index.table
        assert again.digest == index.digest
        assert os.listdir(tmp_path) == ["index.parquet"]

    @pytest.mark.parametrize(
        "names", [["x/a", "b"], ["/abs", "b"], ["b", "/abs"], ["/abs", "/abs2"]]
    )
    def test_relative_paths(self, tmp_path: Path, names: list[str]) -> None:
        pq.write_table(pa.table({"label": [1, 2], "path": names}), tmp_path / "index.parquet")
        index = Index.load(tmp_path / "index.parquet")
        assert paths(index) == [str(tmp_path / name) for name in names]
        assert index.table.column_names == ["label", "path"]

    @pytest.mark.parametrize("name", ["a.csv", "parquet", "a.PARQUET"])
    def test_other_suffixes_are_refused(self, tmp_path: Path, name: str) -> None:
        file = tmp_path / name
        with pytest.raises(ValueError, match=rf"\.parquet or \.arrow, got {file}"):
            Index(table()).save(file)
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("suffix", ["parquet", "arrow"])
    def test_the_target_of_a_link_is_written(self, tmp_path: Path, suffix: str) -> None:
        (tmp_path / "old").mkdir()
        link = tmp_path / f"latest.{suffix}"
        link.symlink_to(f"old/a.{suffix}")
        Index(table()).save(link)
        assert os.readlink(link) == f"old/a.{suffix}"
        assert os.listdir(tmp_path / "old") == [f"a.{suffix}"]
        assert Index.load(link).digest == Index(table()).digest

    def test_a_failed_save_leaves_the_old_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Index(table()).save(tmp_path / "index.parquet")

        def fail(_table: pa.Table, path: str) -> None:
            Path(path).write_bytes(b"half")
            raise OSError("disk full")

        monkeypatch.setattr(pq, "write_table", fail)
        with pytest.raises(OSError, match="disk full"):
            Index(table(label=[1, 2, 3])).save(tmp_path / "index.parquet")
        assert Index.load(tmp_path / "index.parquet").table.column_names == ["path"]


SELECTED = [
    ([2, 0], ["/c", "/a"]),
    ((1, 1), ["/b", "/b"]),
    (np.array([1]), ["/b"]),
    (np.array([True, False, True]), ["/a", "/c"]),
    ([False, False, True], ["/c"]),
    (range(3), ["/a", "/b", "/c"]),
    (np.array([2, 0], np.uint64), ["/c", "/a"]),
    (pa.array([2, 0]), ["/c", "/a"]),
    (pa.array([True, False, False]), ["/a"]),
]


BAD_SELECTIONS = [
    ([True, False], ValueError, r"\(3,\), got \(2,\)"),
    ([False] * 3, ValueError, "at least one row"),
    ([], ValueError, "at least one row"),
    ([0, 3], IndexError, r"\[0, 3\), got 3"),
    ([-1], IndexError, r"\[0, 3\), got -1"),
    (np.array([2**64 - 1], np.uint64), IndexError, r"\[0, 3\), got 18446744073709551615"),
    ([0.0, 1.0], TypeError, r"mask.*\(3,\); got float64 of shape \(2,\)"),
    ([True, None, False], TypeError, r"mask.*got object of shape \(3,\)"),
    ([[0, 1]], TypeError, r"mask.*got int64 of shape \(1, 2\)"),
    (["a"], TypeError, "mask.*got <U1"),
    (1, TypeError, "mask.*got 1"),
    (True, TypeError, "mask.*got True"),
    (None, TypeError, "mask.*got None"),
    (slice(0, 2), TypeError, r"mask.*got slice\(0, 2"),
    ("x > 1", TypeError, "mask.*got x > 1"),
]


class TestSelect:
    @pytest.mark.parametrize(("rows", "chosen"), SELECTED)
    def test_rows_and_masks(self, rows: Any, chosen: list[str]) -> None:
        index = Index(table(label=[1, 2, 3])).select(rows)
        assert paths(index) == chosen
        labels = {"/a": 1, "/b": 2, "/c": 3}
        assert index.table["label"].to_pylist() == [labels[path] for path in chosen]

    @pytest.mark.parametrize(("rows", "error", "message"), BAD_SELECTIONS)
    def test_errors(self, rows: list[Any], error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            Index(table()).select(rows)


def sample_table(**columns: Any) -> pa.Table:
    parts = {"path_x": ["/x", None, "/z"], "path_y": ["/1", "/2", ""], "hdu_y": [1, None, 2]}
    return table(**{**parts, **columns})


class TestParts:
    def test_only_text_columns_are_parts(self) -> None:
        index = Index(sample_table(path_length=[1, 2, 3], pathless=["a", "b", "c"]))
        assert index.parts == ("x", "y")
        assert Index(table()).parts == ()

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_columns(self, kind: Any) -> None:
        index = Index(sample_table(path_x=pa.array(["/x", None, "/z"], kind), label=[1, 2, 3]))
        columns = index.columns(["label"], parts=iter(("y", "x")))
        assert columns.row(0) == Row(0, "/a", parts={"y": Row(0, "/1", 1), "x": Row(0, "/x")})
        assert columns.row(1).parts == {"y": Row(1, "/2", None), "x": None}
        assert columns.row(2).parts == {"y": None, "x": Row(2, "/z")}

    @pytest.mark.parametrize(
        ("index", "words"), [(sample_table(), "'z'.*x, y"), (table(), "'z'.*none")]
    )
    def test_unknown(self, index: pa.Table, words: str) -> None:
        with pytest.raises(KeyError, match=f"{words}.*by"):
            Index(index).columns(parts=["z"])

    def test_the_digest_covers_all_that_is_read(self) -> None:
        # What lies below an empty value does not count.
        _, *buffers = pa.array(["/x", "?", "/z"]).buffers()
        hidden = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x05"), *buffers])
        tables = [
            table(),
            sample_table(),
            sample_table(path_x=["/x", "/y", "/z"]),
            sample_table(hdu_y=[1, 1, 2]),
            sample_table().drop_columns(["hdu_y"]),
            sample_table().drop_columns(["path_x"]),
            sample_table().rename_columns({"path_x": "path_w"}),
        ]
        assert len({Index(other).digest for other in tables}) == len(tables)
        same = [
            sample_table(label=[1, 2, 3]),
            sample_table().select(["path_y", "hdu_y", "path_x", "path"]),
            sample_table(path_x=["/x", "", "/z"]),
            sample_table(path_x=hidden),
        ]
        assert {Index(other).digest for other in same} == {Index(sample_table()).digest}

    def test_relative_paths(self, tmp_path: Path) -> None:
        table = {"path": ["a", "b"], "path_x": ["a", None], "path_y": ["/y", "sub/y"]}
        pq.write_table(pa.table(table), tmp_path / "samples.parquet")
        (tmp_path / "samples.csv").write_text("path,path_x,path_y\na,a,/y\nb,,sub/y\n")
        for name in ("samples.parquet", "samples.csv"):
            columns = Index.scan(tmp_path / name).columns(parts=("x", "y"))
            parts = [columns.row(number).part(name) for number in (0, 1) for name in ("x", "y")]
            paths = [None if part is None else part.path for part in parts]
            assert paths == [f"{tmp_path}/a", "/y", None, f"{tmp_path}/sub/y"]


class TestDigest:
    def test_other_columns_and_storage_do_not_count(self) -> None:
        digest = Index(table(hdu=[0, 1, 2])).digest
        same = [
            table(hdu=[0, 1, 2], label=[1, 2, 3]),
            table(hdu=pa.array([0, 1, 2], pa.uint8())),
            table(hdu=[0, 1, 2]).select(["hdu", "path"]),
            pa.concat_tables([table(hdu=[0, 1, 2])[:1], table(hdu=[0, 1, 2])[1:]]),
            table(hdu=[0, 1, 2]).cast(pa.schema({"path": pa.large_string(), "hdu": pa.int64()})),
            pa.concat_tables([table(hdu=[7, 7, 7]), table(hdu=[0, 1, 2])])[3:],
        ]
        assert {Index(other).digest for other in same} == {digest}

    def test_paths_hdus_and_order_count(self) -> None:
        tables = [
            table(),
            table(hdu=[0, 1, 2]),
            table(hdu=[0, 1, None]),
            table(hdu=[None] * 3),
            table()[:2],
            table().take([2, 1, 0]),
            pa.table({"path": ["/a", "/b/", "c"]}),
            pa.table({"path": ["/a/b", "/c"]}),
        ]
        assert len({Index(other).digest for other in tables}) == len(tables)

    def test_corners_of_windows_count(self) -> None:
        corners: dict[str, Any] = {"y": [0, 1, 2], "x": [3, 4, 5]}
        tables = [
            table(),
            table(**corners),
            table(**corners | {"y": [0, 1, 3]}),
            table(y=corners["x"], x=corners["y"]),
            table(**corners | {"x": [3, 4, None]}),
            table(**corners | {"x": pa.array([3, 4, 2**64 - 2], pa.uint64())}),
        ]
        assert len({Index(other).digest for other in tables}) == len(tables)
        assert Index(table(x=pa.array([3, 4, 5], pa.uint8()), y=[0, 1, 2])).digest == (
            Index(table(**corners)).digest
        )

    @pytest.mark.parametrize(
        "columns", [{"y": [1, 2, 3]}, {"x": [1, 2, 3]}, {"y": [1, 2, 3], "x": [0.5, 1, 2]}]
    )
    def test_other_columns_of_these_names_do_not_count(self, columns: dict[str, Any]) -> None:
        assert Index(table(**columns)).digest == Index(table()).digest

    def test_value(self) -> None:
        """It may never change: saved states are checked against it."""
        index = Index(table(hdu=[0, None, 2]))
        digest = "9acc8615a88a21fdf43887aade36a91869d64c78c584aa468b95613edbd944b8"
        assert index.digest == digest
        index = Index(table(y=[0, 1, 2], x=[3, 4, 5]))
        digest = "0a6d7b81e38dbb3deb61023c7c78fb48d3487b22751b6000ada79478be9a1bd2"
        assert index.digest == digest

    @pytest.mark.parametrize(
        ("folder", "names"),
        [
            ("/", ["a/1", "a/2", "b/1"]),
            ("/b/", ["1", "2", "3"]),
            ("/é/b/", ["1", "1", "1"]),
            ("s3://bucket/", ["é/1", "e/1", "é/2"]),
            ("https://a.org/é b/", ["a/1", "a/2", "b/1"]),
        ],
    )
    def test_where_the_archive_is_does_not_count(self, folder: str, names: list[str]) -> None:
        def below(folder: str) -> pa.Table:
            paths = [folder + name for name in names]
            return pa.table({"path": paths, "path_x": [None, "", f"{folder}x/1"], "hdu": [1, 2, 3]})

        whole = below(folder)
        parted = pa.concat_tables([whole[2:], whole[:1], whole[1:]])[1:]
        assert Index(whole).digest == Index(parted).digest == Index(below("/data/")).digest
        other = whole.set_column(0, "path", whole["path"].take([1, 2, 0]))
        assert (Index(other).digest == Index(whole).digest) == (len({*names}) == 1)

    def test_only_the_common_folder_does_not_count(self) -> None:
        names = [["/a/1", "/b/1"], ["/a/1", "/a/1"], ["/a/b/1", "/a/c/1"], ["/ab/1", "/ac/1"]]
        digests = [Index(pa.table({"path": pair})).digest for pair in names]
        assert len({*digests}) == 4


class TestMoved:
    TABLE = pa.table(
        {
            "path": ["/data/a/1", "/data/a/2", "/database/1"],
            "path_x": ["/data/x/1", None, ""],
            "mask_path": [None, "/data/m/é", "/data"],
            "etag": ["1", "2", "3"],
            "file_bytes": [1, 2, 3],
            "name": ["/data/a/1"] * 3,
        }
    )

    @pytest.mark.parametrize("new", ["/scratch/é", "/scratch/é/", "s3://bucket/é", "/"])
    def test_all_paths_below_the_folder(self, new: str) -> None:
        made = Index(self.TABLE).moved("/data/", Path(new) if new[0] == "/" else new).table
        at = f"{new.rstrip('/')}/"
        assert made["path"].to_pylist() == [f"{at}a/1", f"{at}a/2", "/database/1"]
        assert made["path_x"].to_pylist() == [f"{at}x/1", None, ""]
        assert made["mask_path"].to_pylist() == [None, f"{at}m/é", "/data"]
        assert made["name"] == self.TABLE["name"]
        # Of an object it is another one.
        etags = [None, None, "3"] if new.startswith("s3") else ["1", "2", "3"]
        assert made["etag"].to_pylist() == etags

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ("/dat", "/scratch", "/dat.*the first.*/data/a/1"),
            ("/data/b", "/scratch", "/data/b.*the first.*/data/a/1"),
            ("s3://data", "/scratch", "s3://data.*the first.*/data/a/1"),
            ("/data", "ftp://host/archive", "ftp"),
            ("", "/scratch", "folder or URL, got ''"),
            ("/data", "", "folder or URL, got ''"),
        ],
    )
    def test_errors(self, old: str, new: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            Index(self.TABLE).moved(old, new)

    def test_the_digest_stays(self, tmp_path: Path) -> None:
        index = Index(self.TABLE.slice(0, 2))
        index.save(tmp_path / "index.arrow")
        again = Index.load(tmp_path / "index.arrow").moved("/data", tmp_path)
        assert again.digest == index.digest
        assert again.path(1) == f"{tmp_path}/a/2"


COLUMNS = [
    (pa.array([1, 2, 3], pa.int8()), np.array([1, 2, 3], "i1")),
    (pa.array([1, 2, 2**64 - 1], pa.uint64()), np.array([1, 2, 2**64 - 1], "u8")),
    (pa.array([0.5, None, 2], pa.float64()), np.array([0.5, np.nan, 2])),
    (pa.array([0.5, None, 2], pa.float32()), np.array([0.5, np.nan, 2], "f4")),
    (pa.array([True, False, True]), np.array([True, False, True])),
    (pa.array([0, 1, 2], pa.timestamp("s")), np.array([0, 10**9, 2 * 10**9])),
    (pa.array([0, 1, 2], pa.timestamp("ms", "UTC")), np.array([0, 10**6, 2 * 10**6])),
    (pa.array([0, 1, 2], pa.timestamp("ns")), np.array([0, 1, 2])),
    (pa.array([0, 1, 2], pa.date32()), np.array([0, 1, 2]) * 86400 * 10**9),
]


BAD_COLUMNS = [
    ([1, None, 3], "int64 .* 1 empty rows: fill in values"),
    ([True, None, None], "bool .* 2 empty rows"),
    (pa.array([0, None, 2], pa.timestamp("s")), ".* 1 empty rows"),
    (["x", "y", "z"], "string; .*numbers and times"),
    ([[1], [2], [3]], "list<.*numbers and times"),
    (pa.array([0, 1, 2], pa.duration("s")), r"duration\[s\]; .*numbers and times"),
    (pa.array([0, 1, 2], pa.time64("us")), r"time64\[us\]; .*numbers and times"),
    (pa.array(["x"] * 3).dictionary_encode(), "dictionary<.*numbers and times"),
]


class TestColumns:
    @pytest.mark.parametrize(("stored", "expected"), COLUMNS, ids=[str(c.type) for c, _ in COLUMNS])
    @pytest.mark.parametrize("chunks", [1, 2])
    def test_numbers_and_times(self, stored: Any, expected: NDArray[Any], chunks: int) -> None:
        given = table(value=stored)
        if chunks == 2:
            given = pa.concat_tables([given[:1], given[1:]])
        columns = Index(given).columns(["value"])
        np.testing.assert_array_equal(columns.array("value"), expected, strict=True)
        assert [columns.row(n).path for n in range(3)] == ["/a", "/b", "/c"]

    def test_a_time_is_what_numpy_says(self) -> None:
        time = datetime(2015, 6, 30, 23, 59, 59, 123456, tzinfo=UTC)
        columns = Index(table(time=[time] * 3)).columns(["time"])
        expected = np.datetime64("2015-06-30T23:59:59.123456", "ns").astype(np.int64)
        assert columns.array("time")[0] == expected

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_a_slice_of_a_table(self, kind: Any) -> None:
        paths = pa.array(["/a", "/b", "/c"] * 2, kind)
        sliced = pa.table({"path": paths})[2:5]
        assert [Index(sliced).columns().row(n).path for n in range(3)] == ["/c", "/a", "/b"]

    @pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint16()])
    def test_hdu(self, kind: Any) -> None:
        columns = Index(table(hdu=pa.array([0, None, 2], kind))).columns()
        assert [columns.row(n).hdu for n in range(3)] == [0, None, 2]
        assert Index(table()).columns().row(0).hdu is None

    def test_columns_that_nobody_asked_for_stay(self) -> None:
        index = Index(table(label=[1, 2, 3], note=["x", None, "z"]))
        assert len(pickle.dumps(index.columns())) < len(pickle.dumps(index.columns(["label"])))
        with pytest.raises(KeyError):
            index.columns().array("label")

    def test_all_who_hold_them_have_the_same(self) -> None:
        index = Index(table(label=[1, 2, 3]))
        one, again, other = (
            index.columns(["label"]),
            index.columns(iter(["label"])),
            index.columns(),
        )
        assert one is again
        assert one is not other
        held = weakref.ref(one)
        del one, again
        assert held() is None  # and with it its temporary file

    def test_pickled(self) -> None:
        owner = Index(table(label=[1, 2, 3])).columns(["label"])
        assert pickle.loads(pickle.dumps(owner)).array("label").tolist() == [1, 2, 3]

    @pytest.mark.parametrize(("values", "words"), BAD_COLUMNS)
    def test_errors(self, values: Any, words: str) -> None:
        with pytest.raises(TypeError, match=f"'value' is {words}"):
            Index(table(value=values)).columns(["value"])

    @pytest.mark.parametrize("name", ["path", "path_x"])
    def test_a_path_is_not_a_number(self, name: str) -> None:
        with pytest.raises(TypeError, match=f"'{name}' is string"):
            Index(sample_table()).columns([name], parts=["x"])

    @pytest.mark.parametrize(
        ("name", "words"), [("lable", "'lable': did you mean label.*path, label"), ("hdu", "'hdu'")]
    )
    def test_unknown(self, name: str, words: str) -> None:
        with pytest.raises(KeyError, match=words):
            Index(table(label=[1, 2, 3])).columns([name])


class TestPlanes:
    @pytest.mark.parametrize("kind", ["table", "parquet", "arrow"])
    def test_plane(self, tmp_path: Path, kind: str) -> None:
        index = Index(table(plane=[4, None, None], plane_x=[1, 2, 3], path_x=["/d", "/e", None]))
        if kind != "table":
            index.save(tmp_path / f"i.{kind}")
            index = Index.load(tmp_path / f"i.{kind}")
        assert [index.plane(row) for row in range(3)] == [4, None, None]
        owned = index.columns(parts=["x"])
        columns = pickle.loads(pickle.dumps(owned))
        assert [columns.row(row).plane for row in range(3)] == [4, None, None]
        assert columns.row(1).part("x") == Row(1, "/e", plane=2)

    def test_no_plane(self) -> None:
        assert Index(table()).plane(0) is None

    def test_planes_count_for_the_digest(self) -> None:
        indexes = [Index(table(plane=planes)) for planes in ([0, 1, 2], [0, 1, 3])]
        assert len({index.digest for index in (*indexes, Index(table()))}) == 3

    @pytest.mark.parametrize(
        ("name", "values"),
        [("plane", ["a", "b", "c"]), ("hdu", [0.5, 1, 2]), ("plane", [1, -1, None])],
    )
    def test_columns_that_mean_something_else(self, name: str, values: list[Any]) -> None:
        with pytest.raises(ValueError, match=f"'{name}'.*integers.*rename"):
            Index(table(**{name: values}))

    def test_each_plane(self) -> None:
        index = Index(table(hdu=[1, 1, 2])).each_plane(range(2))
        assert paths(index) == ["/a", "/a", "/b", "/b", "/c", "/c"]
        assert index.table["plane"].to_pylist() == [0, 1] * 3
        assert index.table["hdu"].to_pylist() == [1, 1, 1, 1, 2, 2]
        with pytest.raises(ValueError, match="plane"):
            index.each_plane([0])

    @pytest.mark.parametrize("planes", [[], [-1], [0, -3]])
    def test_each_of_no_planes(self, planes: list[Any]) -> None:
        with pytest.raises(ValueError, match="integers from 0"):
            Index(table()).each_plane(planes)
