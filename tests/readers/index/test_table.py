from __future__ import annotations

import contextlib
import csv
import gzip
import os
import pickle
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

FILES = ["b.fits", "a.FITS", "sub/c.fits.gz", "sub/deep/d.Fz", "sub/e.jpg", "f.npy", "notes.txt"]
IMAGES = ["a.FITS", "b.fits", "f.npy", "sub/c.fits.gz", "sub/deep/d.Fz", "sub/e.jpg"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "archive"
    for name in FILES:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return root


def paths(index: Index) -> list[str]:
    return [index.path(row) for row in range(len(index))]


def named(folder: Path, names: list[str]) -> list[str]:
    return [str(folder / name) for name in names]


def table(**columns: Any) -> pa.Table:
    return pa.table({"path": ["/a", "/b", "/c"], **columns})


MISSING = [
    ("nowhere", "no such folder or file; give a folder, a glob, a .csv or an Index file"),
    ("nowhere.parquet", "no such folder or file; give a folder, a glob, a .csv or an Index"),
    ("nowhere/*.fits", "no file matches this pattern"),
    ("empty", "no file in this folder ends in .fits, .fit, .fts, .fits.gz, .fit.gz, .fts.gz, "),
]


class TestScan:
    def test_folder(self, folder: Path) -> None:
        assert paths(Index.scan(folder)) == named(folder, IMAGES)
        assert paths(Index.scan(str(folder))) == named(folder, IMAGES)

    def test_folder_with_suffixes(self, folder: Path) -> None:
        assert paths(Index.scan(folder, suffixes=(".fits", ".fz"))) == named(
            folder, ["a.FITS", "b.fits", "sub/deep/d.Fz"]
        )

    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("*.fits", ["b.fits"]),
            ("**/*.fits*", ["b.fits", "sub/c.fits.gz"]),
            ("**/d.Fz", ["sub/deep/d.Fz"]),
            ("sub/[ce].*", ["sub/c.fits.gz", "sub/e.jpg"]),
            ("**/notes.txt", ["notes.txt"]),
            ("su*", None),  # a folder is no file
        ],
    )
    def test_glob(self, folder: Path, pattern: str, names: list[str] | None) -> None:
        if names is None:
            with pytest.raises(FileNotFoundError, match="no file matches this pattern"):
                Index.scan(folder / pattern)
        else:
            assert paths(Index.scan(folder / pattern)) == named(folder, names)

    def test_ranges_of_numbers(self, folder: Path) -> None:
        for name in ("n08.fits", "n09.fits", "n10.fits", "{08..09}.fits"):
            (folder / name).touch()
        assert paths(Index.scan(folder / "n{09..10}.fits")) == named(
            folder, ["n09.fits", "n10.fits"]
        )
        assert paths(Index.scan(folder / "{08..09}.fits")) == named(folder, ["{08..09}.fits"])
        with pytest.raises(FileNotFoundError, match=r"n11.fits: no such folder or file"):
            Index.scan(folder / "n{10..11}.fits")

    def test_one_file_of_any_name(self, folder: Path) -> None:
        assert paths(Index.scan(folder / "notes.txt")) == named(folder, ["notes.txt"])
        odd = folder / "x[1]*.fits"
        odd.touch()
        assert paths(Index.scan(odd)) == [str(odd)]

    def test_relative_paths_become_absolute(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder / "sub")
        for data in ("../b.fits", "../b.*", ["../b.fits"], iter(["../b.fits"])):
            assert paths(Index.scan(data)) == named(folder, ["b.fits"])
        assert paths(Index.scan("deep")) == named(folder, ["sub/deep/d.Fz"])

    @pytest.mark.parametrize("kind", [list, tuple, iter, lambda names: (Path(n) for n in names)])
    def test_iterable_keeps_its_order(self, kind: Callable[..., Any]) -> None:
        names = ["/z.fits", "/a.fits", "/z.fits", "/m é.fits"]
        assert paths(Index.scan(kind(names))) == names

    def test_a_list_of_folders_globs_and_files(self, folder: Path) -> None:
        odd, listed = folder / "x[1].fits", folder / "2024"
        odd.touch()
        listed.touch()
        data: list[str | Path] = [
            folder / "sub/deep",
            "sub/*.gz",
            odd,
            listed,
            "b.fits",
            folder / "sub/deep/",
            "b.fits",
        ]
        expected = ["sub/deep/d.Fz", "sub/c.fits.gz", odd.name, listed.name, "b.fits"]
        with contextlib.chdir(folder):
            found = paths(Index.scan(each for each in data))
            assert found == named(folder, [*expected, "sub/deep/d.Fz", "b.fits"])
            assert paths(Index.scan([folder, folder], suffixes=(".npy",))) == named(
                folder, ["f.npy"] * 2
            )

    @pytest.mark.parametrize(
        ("last", "error", "reason"),
        [
            ("nowhere", FileNotFoundError, "nowhere: no such folder or file"),
            ("no*.fits", FileNotFoundError, "no file matches"),
            ("empty", FileNotFoundError, "the folder is empty"),
            ("tars", FileNotFoundError, "from_tar"),
            *((name, ValueError, "concat") for name in ("i.parquet", "i.csv", "a.tar")),
            *((f"s3://bucket/{end}", ValueError, "concat") for end in ("prefix/", "*", "i.csv")),
        ],
    )
    def test_what_is_no_file_among_several(
        self, folder: Path, last: str, error: type[Exception], reason: str
    ) -> None:
        for name in ("empty", "tars"):
            (folder / name).mkdir()
        for name in ("i.parquet", "i.csv", "a.tar", "tars/a.tar"):
            (folder / name).touch()
        with contextlib.chdir(folder), pytest.raises(error, match=reason):
            Index.scan(["b.fits", last])

    def test_an_empty_list(self) -> None:
        with pytest.raises(ValueError, match="at least one row"):
            Index.scan([])

    def test_index_file_and_catalogue(self, folder: Path) -> None:
        index = Index.scan(folder)
        index.save(folder / "index.parquet")
        assert Index.scan(folder / "index.parquet").table == index.table
        (folder / "catalogue.csv").write_text("path,label\nb.fits,3\n")
        assert paths(Index.scan(folder / "catalogue.csv")) == named(folder, ["b.fits"])

    def test_links_to_folders_are_followed(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "one").symlink_to(folder / "sub")
        assert len(Index.scan(tmp_path / "links")) == 3

    @pytest.mark.parametrize(("name", "message"), MISSING)
    def test_nothing_there(self, folder: Path, name: str, message: str) -> None:
        (folder / "empty").mkdir()
        with pytest.raises(FileNotFoundError) as caught:
            Index.scan(folder / name)
        assert str(caught.value).startswith(f"{folder / name}: {message}")

    def test_no_matching_suffix(self, folder: Path) -> None:
        with pytest.raises(
            FileNotFoundError,
            match=r"ends in \.tif, \.png; 2 files end in \.fits, which fits_pipeline reads$",
        ):
            Index.scan(folder, suffixes=(".tif", ".png"))


class TestTable:
    @pytest.mark.parametrize(
        "table", [{"path": ["/a"]}, pd.DataFrame({"path": ["/a"]}), ["/a"], "/a.parquet"], ids=type
    )
    def test_other_tables_are_refused(self, table: Any) -> None:
        reason = rf"a pyarrow.Table, got {type(table)}: give pyarrow.table\(dict\)"
        with pytest.raises(TypeError, match=reason):
            Index(table)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"name": ["/a"]}, r"an Index needs a column 'path', got \['name'\]"),
            ({"path": pa.array([], pa.string())}, "an Index needs at least one row, got none"),
            ({"path": [1, 2]}, "column 'path' must be text, got int64"),
            ({"path": ["/a", None, None]}, "column 'path' has 2 empty rows"),
            ({"path": ["/a", ""]}, "column 'path' has 1 empty rows"),
            (
                {"path": ["/a"], "offset": [5], "nbytes": [6], "etag": ["a"], "file_bytes": [10]},
                "1 rows end behind their files: 'offset' and 'nbytes' are the first byte and",
            ),
        ],
    )
    def test_errors(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Index(pa.table(given))

    def test_no_paths(self) -> None:
        with pytest.raises(ValueError, match="an Index needs at least one row, got none"):
            Index.scan([])

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

    def test_what_it_says_of_itself(self) -> None:
        index = Index(table(label=[1, 2, 3]))
        assert len(index) == 3
        assert repr(index) == "<Index: 3 rows, columns path, label>"
        assert index.path(1) == "/b"


class TestCatalogue:
    def test_paths_are_relative_to_its_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "catalogue.csv"
        file.write_text("label,path,time\n3,x/é.fits,2015-01-01T00:00:01\n4,/abs.fits,\n")
        monkeypatch.chdir(tmp_path)
        index = Index.from_csv("catalogue.csv")
        assert paths(index) == [str(tmp_path / "x/é.fits"), "/abs.fits"]
        assert index.table.column_names == ["label", "path", "time"]
        assert index.table["label"].to_pylist() == [3, 4]

    def test_without_path(self, tmp_path: Path) -> None:
        file = tmp_path / "catalogue.csv"
        file.write_text("file,label\na,1\n")
        with pytest.raises(ValueError, match="expected a column 'path', got") as caught:
            Index.from_csv(file)
        assert str(caught.value) == f"{file}: expected a column 'path', got ['file', 'label']"

    def test_empty_path(self, tmp_path: Path) -> None:
        file = tmp_path / "catalogue.csv"
        file.write_text("path,label\na.fits,1\n,2\n")
        with pytest.raises(ValueError, match="column 'path' has 1 empty rows"):
            Index.from_csv(file)

    def test_names_that_look_like_numbers(self, tmp_path: Path) -> None:
        file = tmp_path / "catalogue.csv"
        file.write_text("path\n0001\n0002\n")
        assert paths(Index.from_csv(file)) == named(tmp_path, ["0001", "0002"])

    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            (["1", "-2", ""], "int64"),
            (["-0", "9223372036854775807", ""], "int64"),
            (["007", "10", ""], "large_string"),
            (["-07", "1.5", "2"], "large_string"),
            (["0x1F", "7", "8"], "large_string"),
            (["18446744073709551610", "18446744073709551611", ""], "large_string"),
            (["9007199254740993", "0.5", ""], "large_string"),
            (["9007199254740992", "0.5", ""], "double"),
            (["0.10", "1e5", "-inf"], "double"),
            (["nan", "00.50", "-0.0"], "double"),
            (["True", "false", ""], "bool"),
            (["2024-01-01", "1999-12-31", ""], "date32[day]"),
            (["1.10", "1.9", "2.0rc1"], "string"),
        ],
    )
    def test_numbers_lose_nothing(self, tmp_path: Path, values: list[str], kind: str) -> None:
        file = tmp_path / "catalogue.csv"
        pd.DataFrame({"path": ["a", "b", "c"], " id": values}).to_csv(file, index=False)
        column = Index.from_csv(file).table["id"]
        assert str(column.type) == kind
        if kind == "large_string":
            assert column.to_pylist() == [value or None for value in values]
        elif kind == "int64":
            assert column.to_pylist() == [int(value) if value else None for value in values]
        elif kind == "double":
            np.testing.assert_array_equal(column.to_numpy(), pd.read_csv(file)[" id"])

    @pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
    def test_marks_comments_and_quotes(self, tmp_path: Path, name: str) -> None:
        text = '\ufeff# made\r\n# by x\r\npath , note\r\n"a, b.fits","two\r\nlines, ""é"""\r\n'
        opened = gzip.open if name.endswith(".gz") else open
        with opened(tmp_path / name, "wb") as file:
            file.write(text.encode())
        index = Index.from_csv(tmp_path / name)
        assert paths(index) == named(tmp_path, ["a, b.fits"])
        assert index.table["note"].to_pylist() == ['two\r\nlines, "é"']

    @pytest.mark.parametrize("quote", ["", '"'])
    def test_long_values(self, tmp_path: Path, quote: str) -> None:
        """Longer than the csv module of Python and a block of PyArrow hold, beside a quote."""
        file, mask = tmp_path / "catalogue.csv", "1 2 " * 300_000
        file.write_text(f'path,mask\n"a, b",\nc,{quote}{mask}{quote}\n')
        limit = csv.field_size_limit()
        assert Index.from_csv(file).table["mask"].to_pylist() == ["", mask]
        assert csv.field_size_limit() == limit

    @pytest.mark.parametrize(
        ("content", "where", "remedy"),
        [
            (b"", "", "empty"),
            (b"# x\n", "", "empty"),
            (b"path,x\n", "", "it has none"),
            (b"path,x, x\na,1,2\n", "", "rename"),
            (b'# x\npath,x\n"a\nb",1\nb\n', ", line 5", "complete the row"),
            (b"path,x\na,1\nb,2,3\n", ", line 3", "in quotes"),
            (b"path,x\na,Jos\xe9\n", ", line 2", "iconv"),
            (b"path,Jos\xe9\na,1\n", ", line 1", "iconv"),
            (b'path,x\na,1\nb,"2\nc,3\nd,4\n', ", line 3", "at its end"),
        ],
    )
    def test_errors_name_file_and_line(
        self, tmp_path: Path, content: bytes, where: str, remedy: str
    ) -> None:
        file = tmp_path / "catalogue.csv"
        file.write_bytes(content)
        with pytest.raises(ValueError, match=remedy) as caught:
            Index.scan(file)
        assert f"{file}{where}" in str(caught.value)


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
        assert paths(index) == named(tmp_path, names)
        assert index.table.column_names == ["label", "path"]

    @pytest.mark.parametrize("name", ["a.csv", "parquet", "a.PARQUET"])
    def test_other_suffixes_are_refused(self, tmp_path: Path, name: str) -> None:
        file = tmp_path / name
        message = f"an Index file must end in .parquet or .arrow, got {file}$"
        with pytest.raises(ValueError, match=message):
            Index(table()).save(file)
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("suffix", ["parquet", "arrow"])
    def test_what_a_link_leads_to_is_written(self, tmp_path: Path, suffix: str) -> None:
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


class TestClassFolders:
    def test_labels_are_sorted(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        for name in ("b/2.jpg", "a/deep/1.PNG", "b/1.tiff"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        (tmp_path / ".thumbnails").mkdir()
        index = Index.from_class_folders(tmp_path)
        [hidden] = caplog.messages
        assert hidden.endswith(f"begin with a dot, the first: {tmp_path}/.thumbnails/")
        assert index.table.drop_columns("path").to_pydict() == {
            "label": [0, 1, 1],
            "class_name": ["a", "b", "b"],
        }
        assert paths(index) == named(tmp_path, ["a/deep/1.PNG", "b/1.tiff", "b/2.jpg"])

    def test_folders_without_a_file_are_named(
        self, split: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As those after them have other labels than with a file there."""
        root = split / "val"
        (root / "ant").mkdir()
        (root / "b").mkdir()
        (root / "b" / "notes.txt").touch()
        assert Index.from_class_folders(root).classes == ("a", "c")
        left_out, unlabelled = caplog.messages
        assert left_out == f"{root}: 1 file left out: 1 .txt"
        assert unlabelled == (
            f"{root}: these subfolders have no file to read, and so are no classes: 'ant', 'b'; to "
            "give them labels, name all classes by classes="
        )
        caplog.clear()
        classes = ["a", "ant", "b", "c"]
        assert Index.from_class_folders(root, classes=classes).table["label"].to_pylist() == [0, 3]
        assert caplog.messages == [left_out]

    @pytest.fixture
    def split(self, tmp_path: Path) -> Path:
        """Folders train with classes a, b, c, and val without b."""
        for name in (
            "train/a/1.jpg",
            "train/b/2.jpg",
            "train/c/3.jpg",
            "val/a/4.jpg",
            "val/c/5.jpg",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    @pytest.mark.parametrize("suffix", ["parquet", "arrow", None])
    def test_a_folder_that_lacks_a_class_keeps_the_labels(
        self, split: Path, suffix: str | None
    ) -> None:
        train = Index.from_class_folders(split / "train")
        if suffix is not None:
            train.save(split / f"train.{suffix}")
            train = Index.scan(split / f"train.{suffix}")
        for classes in (train, train.select([0]), train.classes, ["a", "b", "c"]):
            val = Index.from_class_folders(split / "val", classes=classes)
            assert val.table["label"].to_pylist() == [0, 2]
            assert val.table["class_name"].to_pylist() == ["a", "c"]
            assert val.classes == ("a", "b", "c")

    def test_classes_in_an_order_of_ones_own(self, split: Path) -> None:
        index = Index.from_class_folders(split / "train", classes=("c", "b", "a", "none"))
        assert index.table["label"].to_pylist() == [2, 1, 0]
        assert index.classes == ("c", "b", "a", "none")

    def test_an_unknown_class_is_named(self, split: Path) -> None:
        val = Index.from_class_folders(split / "val")
        with pytest.raises(
            ValueError, match=r"class folders 'b' are not among the 2 classes 'a', "
        ):
            Index.from_class_folders(split / "train", classes=val)

    @pytest.mark.parametrize(
        ("classes", "error", "message"),
        [
            ("abc", TypeError, "classes must be a sequence of names, or an Index, got 'abc'"),
            (["a", "c", "a"], ValueError, "classes must be names, each once, got 'a', 'c', 'a'"),
            ([], ValueError, "classes must be names, each once, got "),
            ({"a", "b", "c"}, TypeError, "classes must be a sequence of names, or an Index, got {"),
            ({"a": 1, "b": 0}, TypeError, "classes must be a sequence of names, or an Index, got "),
            (["a", "b", 1], TypeError, "classes must be names, got 'a', 'b', 1"),
            (
                Index.from_paths(["x"]),
                ValueError,
                "has no class names: make it by Index",
            ),
        ],
    )
    def test_what_names_no_classes(
        self, split: Path, classes: Any, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            Index.from_class_folders(split / "val", classes=classes)

    def test_keys_of_a_dict_are_in_order(self, split: Path) -> None:
        index = Index.from_class_folders(split / "train", classes={"c": 0, "b": 1, "a": 2}.keys())  # type: ignore[arg-type]
        assert index.classes == ("c", "b", "a")

    def test_metadata_of_others_is_kept(self, split: Path) -> None:
        index = Index.from_class_folders(split / "train")
        theirs = {**index.table.schema.metadata, b"mine": b"1"}
        index = Index(index.table.replace_schema_metadata(theirs))
        for name in "a.parquet", "a.arrow":
            index.save(split / name)
            loaded = Index.load(split / name)
            assert loaded.table.schema.metadata[b"mine"] == b"1"
            assert loaded.classes == ("a", "b", "c")
            assert loaded.select([2]).classes == ("a", "b", "c")
        assert Index.from_paths(["x"]).classes == ()

    def test_a_loose_file(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "1.jpg").touch()
        (tmp_path / "2.jpg").touch()
        with pytest.raises(ValueError, match="expected one subfolder") as caught:
            Index.from_class_folders(tmp_path)
        assert str(caught.value) == (
            f"{tmp_path}: expected one subfolder for each class, "
            f"but {tmp_path / '2.jpg'} lies beside them"
        )

    def test_real_photographs(self, shared_data: Path) -> None:
        index = Index.from_class_folders(shared_data / "jpeg")
        names = index.table["class_name"].to_pylist()
        assert sorted(set(names))[:3] == ["100", "134", "182"]
        assert index.table["label"].to_pylist() == [sorted(set(names)).index(n) for n in names]


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
    ([True, False], ValueError, r"a mask must have shape \(3,\), got \(2,\)"),
    ([False] * 3, ValueError, "an Index needs at least one row, got none"),
    ([], ValueError, "an Index needs at least one row, got none"),
    ([0, 3], IndexError, r"row numbers must lie in \[0, 3\), got 3"),
    ([-1], IndexError, r"row numbers must lie in \[0, 3\), got -1"),
    (np.array([2**64 - 1], np.uint64), IndexError, r"in \[0, 3\), got 18446744073709551615"),
    *(
        (
            rows,
            TypeError,
            rf"select takes row numbers, .* or a mask, bools of shape \(3,\); got {got}",
        )
        for rows, got in (
            ([0.0, 1.0], r"float64 of shape \(2,\)"),
            ([True, None, False], r"object of shape \(3,\)"),
            ([[0, 1]], r"int64 of shape \(1, 2\)"),
            (["a"], "<U1 of shape"),
            (1, "1"),
            (True, "True"),
            (None, "None"),
            (slice(0, 2), r"slice\(0, 2, None\)"),
            ("x > 1", "x > 1"),
        )
    ),
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
    def test_text_columns_alone_are_parts(self) -> None:
        index = Index(sample_table(path_length=[1, 2, 3], pathless=["a", "b", "c"]))
        assert index.parts == ("x", "y")
        assert Index(table()).parts == ()

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_columns(self, kind: Any) -> None:
        index = Index(sample_table(path_x=pa.array(["/x", None, "/z"], kind), label=[1, 2, 3]))
        columns = index.columns(["label"], parts=("y", "x"))
        assert columns.row(0) == Row(0, "/a", parts={"y": Row(0, "/1", 1), "x": Row(0, "/x")})
        assert columns.row(1).parts == {"y": Row(1, "/2", None), "x": None}
        assert columns.row(2).parts == {"y": None, "x": Row(2, "/z")}
        assert set(index.columns(parts=iter(["y"]))._stored) == {"path", "path_y", "hdu_y"}

    def test_unknown(self) -> None:
        message = "the Index has no part 'z', it has x, y: make samples of several files by"
        with pytest.raises(KeyError, match=message):
            Index(sample_table()).columns(parts=["z"])
        with pytest.raises(KeyError, match="has no part 'z', it has none: make"):
            Index(table()).columns(parts=["z"])

    def test_a_part_is_no_number(self) -> None:
        with pytest.raises(TypeError, match="column 'path_x' is string; a tensor can carry"):
            Index(sample_table()).columns(["path_x"], parts=["x"])

    def test_what_is_read_is_what_the_digest_covers(self) -> None:
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
        """It may never change: saved states are checked against it, also those of old releases."""
        index = Index(table(hdu=[0, None, 2]))
        digest = "9acc8615a88a21fdf43887aade36a91869d64c78c584aa468b95613edbd944b8"
        assert index.digest == digest
        assert index.has_digest(digest)
        assert index.has_digest("ab364c0959b29dacdb017ce7fecb3c7802ef32408e63ebd4ba01358ae2ef1086")
        index = Index(table(y=[0, 1, 2], x=[3, 4, 5]))
        digest = "0a6d7b81e38dbb3deb61023c7c78fb48d3487b22751b6000ada79478be9a1bd2"
        assert index.digest == digest
        assert index.has_digest(digest)
        assert index.has_digest("4261d81b2dcc57b13f5a1de58f42b59ec6603b15d37deb2039a6049f98e8ae51")
        assert not index.has_digest("")

    @pytest.mark.parametrize("folder", ["/", "/b/", "/é/b/", "s3://bucket/", "https://a.org/é b/"])
    @pytest.mark.parametrize(
        "names", [["a/1", "a/2", "b/1"], ["1", "2", "3"], ["1", "1", "1"], ["é/1", "e/1", "é/2"]]
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

    def test_errors(self) -> None:
        for wrong in ("/dat", "/data/b", "s3://data"):
            with pytest.raises(ValueError, match=r"begins with .*, the first is /data/a/1"):
                Index(self.TABLE).moved(wrong, "/scratch")
        with pytest.raises(ValueError, match="ftp"):
            Index(self.TABLE).moved("/data", "ftp://host/archive")
        for old, new in (("", "/scratch"), ("/data", "")):
            with pytest.raises(ValueError, match="expected a folder or URL, got ''"):
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
    ([1, None, 3], TypeError, "is int64 and has 1 empty rows: fill them, or make it floating"),
    ([True, None, None], TypeError, "is bool and has 2 empty rows"),
    (pa.array([0, None, 2], pa.timestamp("s")), TypeError, "is .* and has 1 empty rows"),
    (["x", "y", "z"], TypeError, "is string; a tensor can carry numbers and times"),
    ([[1], [2], [3]], TypeError, "is list<.*>; a tensor can carry numbers and times"),
    (pa.array([0, 1, 2], pa.duration("s")), TypeError, r"is duration\[s\]; a tensor can carry"),
    (pa.array([0, 1, 2], pa.time64("us")), TypeError, r"is time64\[us\]; a tensor can carry"),
    (pa.array(["x"] * 3).dictionary_encode(), TypeError, "is dictionary<.*>; a tensor"),
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
        columns = Index(table(label=[1, 2, 3], note=["x", None, "z"])).columns()
        assert set(columns._stored) == {"path"}
        with pytest.raises(KeyError):
            columns.array("label")

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

    @pytest.mark.parametrize(("values", "error", "message"), BAD_COLUMNS)
    def test_errors(self, values: Any, error: type[TypeError], message: str) -> None:
        with pytest.raises(error, match=f"column 'value' {message}"):
            Index(table(value=values)).columns(["value"])

    def test_unknown(self) -> None:
        message = "the Index has no column 'lable': did you mean label\\? it has path, label"
        with pytest.raises(KeyError, match=message):
            Index(table(label=[1, 2, 3])).columns(["lable"])

    def test_no_hdu(self) -> None:
        with pytest.raises(KeyError, match="the Index has no column 'hdu'"):
            Index(table()).columns(["hdu"])

    def test_paths_are_no_numbers(self) -> None:
        with pytest.raises(TypeError, match="column 'path' is string; a tensor can carry numbers"):
            Index(table()).columns(["path"])


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.fits").touch()
    (tmp_path / "real" / "up").symlink_to(tmp_path / "real")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.fits").touch()
    (tmp_path / "real" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "real" / "again").symlink_to(tmp_path / "elsewhere")
    index = Index.scan(tmp_path / "real")
    assert sorted(Path(index.path(row)).name for row in range(len(index))) == ["a.fits", "b.fits"]


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

    @pytest.mark.parametrize("values", [["a", "b", "c"], [0.5, 1.0, 2.0], [1, -1, None]])
    @pytest.mark.parametrize("name", ["plane", "hdu"])
    def test_columns_that_mean_something_else(self, name: str, values: list[Any]) -> None:
        with pytest.raises(ValueError, match=f"column '{name}' must hold integers.*: rename it"):
            Index(table(**{name: values}))

    def test_each_plane(self) -> None:
        index = Index(table(hdu=[1, 1, 2])).each_plane(range(2))
        assert paths(index) == ["/a", "/a", "/b", "/b", "/c", "/c"]
        assert index.table["plane"].to_pylist() == [0, 1] * 3
        assert index.table["hdu"].to_pylist() == [1, 1, 1, 1, 2, 2]
        with pytest.raises(ValueError, match=r"files without a column .plane."):
            index.each_plane([0])

    @pytest.mark.parametrize("planes", [[], [-1], [0, -3]])
    def test_each_of_no_planes(self, planes: list[Any]) -> None:
        with pytest.raises(ValueError, match="one or more integers from 0 on"):
            Index(table()).each_plane(planes)

    def test_an_arrow_file_of_before_there_were_planes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A column of that name was the user's, and below null lay what happened to."""
        from readers.index import arrow_file, schema

        with monkeypatch.context() as before:
            before.setattr(arrow_file, "_VERSION", 1)
            names = schema.file_columns
            before.setattr(
                schema,
                "file_columns",
                lambda *a: (found for found in names(*a) if not found[0].startswith("plane")),
            )
            Index(table(plane=pa.array([3, None, 5], pa.int16()))).save(tmp_path / "old.arrow")
            Index(table()).save(tmp_path / "plain.arrow")
        columns = Index.load(tmp_path / "old.arrow").columns()
        assert [columns.row(row).plane for row in range(3)] == [3, None, 5]
        assert arrow_file.ArrowFile.open(str(tmp_path / "old.arrow")) is None
        assert arrow_file.ArrowFile.open(str(tmp_path / "plain.arrow")) is not None
