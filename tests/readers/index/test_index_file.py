"""Index files that are mapped: what they hold, who may trust them, and what becomes of them."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import Index, ReadError
from readers.contract import Row
from readers.index import index_file, schema

PATHS = ["/a.fits", "/é ü/💥.fits", "/c", "/d", "/e", "/f", "/g"]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    # Private, as no user needs it: a batch has 512 MiB, and a test of several would need GBs.
    monkeypatch.setattr(index_file, "_BATCH_BYTES", 80)  # one to four rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An Index file of several batches."""
    hdu = [0, None, 2, 1, 1, None, 7]
    label = pa.array(range(7), pa.int16())
    Index(pa.table({"path": PATHS, "hdu": hdu, "label": label})).save(tmp_path / "index.arrow")
    return tmp_path / "index.arrow"


def rows(index: Index) -> list[Row]:
    columns = index.columns(parts=index.parts)
    return [columns.row(number) for number in range(len(index))]


# ---- Equal to Parquet ---------------------------------------------------------------------------

# No URLs: Hypothesis draws literals of our modules, too, and a "http://" without a host is refused.
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
).filter(lambda name: "://" not in name)
numeric = {
    "f4": (pa.float32(), st.floats(width=32) | st.none()),
    "f8": (pa.float64(), st.floats() | st.none()),
    "i2": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "u8": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "ns": (pa.timestamp("ns"), st.integers(0, 2**62)),
    "us": (pa.timestamp("us", "UTC"), st.integers(0, 2**51)),
    "date": (pa.date32(), st.integers(0, 50_000)),
}
others = {
    "note": (pa.string(), st.text(st.characters(exclude_categories=["Cs"])) | st.none()),
    "list": (pa.list_(pa.int8()), st.lists(st.integers(0, 9), max_size=3) | st.none()),
    "class": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["x", "y", None])),
}


@st.composite
def tables(draw: Callable[..., Any]) -> pa.Table:
    """Tables of files, some with parts, in chunks, and cut out of larger ones."""
    num_rows = draw(st.integers(1, 10))

    def column(kind: Any, values: Any) -> Any:
        return pa.array(draw(st.lists(values, min_size=num_rows, max_size=num_rows)), kind)

    columns = {"path": column(draw(st.sampled_from([pa.string(), pa.large_string()])), names)}
    if draw(st.booleans()):
        columns["hdu"] = column(pa.int8(), st.integers(0, 100) | st.none())
    if draw(st.booleans()):
        columns["path_x"] = column(pa.string(), names | st.none() | st.just(""))
        columns["hdu_x"] = column(pa.uint16(), st.integers(0, 100) | st.none())
    for name, (kind, values) in (numeric | others).items():
        if draw(st.booleans()):
            columns[name] = column(kind, values)
    table = pa.table(columns)
    pieces = [table[:at] for at in draw(st.lists(st.integers(0, num_rows), max_size=2))]
    start = draw(st.integers(0, num_rows - 1))
    return pa.concat_tables([table[start:], *pieces])


@given(tables())
def test_it_holds_what_parquet_holds(tmp_path: Path, table: pa.Table) -> None:
    index = Index(table)
    index.save(tmp_path / "index.parquet")
    index.save(tmp_path / "index.arrow")
    parquet, arrow = (Index.scan(tmp_path / f"index.{kind}") for kind in ("parquet", "arrow"))
    assert arrow.digest == parquet.digest
    assert arrow.digest == schema.digest(arrow.table)
    assert rows(arrow) == rows(parquet)
    for row in range(len(arrow)):
        assert (arrow.path(row), arrow.hdu(row)) == (parquet.path(row), parquet.hdu(row))
    for name in table.column_names:
        found = arrow.table[name].to_pylist()
        if name == "path_x":  # Parquet, too, gives an empty path or none
            found = [path or None for path in found]
            expected = [path or None for path in parquet.table[name].to_pylist()]
        else:
            expected = parquet.table[name].to_pylist()
        assert repr(found) == repr(expected)
    wanted = [name for name in table.column_names if name in numeric]
    columns, same = arrow.columns(wanted), parquet.columns(wanted)
    for name in wanted:
        np.testing.assert_array_equal(columns.array(name), same.array(name), strict=True)
        assert columns.dtype(name) == same.dtype(name)
        for row in range(len(arrow)):
            np.testing.assert_array_equal(columns.value(name, row), same.value(name, row))


def test_it_is_selected_pickled_and_saved_again(file: Path) -> None:
    index = Index.load(file)
    assert [row.path for row in rows(index.select([6, 0]))] == ["/g", "/a.fits"]
    again = pickle.loads(pickle.dumps(index))
    assert (again.table, again.digest, rows(again)) == (index.table, index.digest, rows(index))
    index.save(file)  # over itself
    assert rows(Index.load(file)) == rows(index)


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"path": ["b", "/abs", "x/é"], "path_x": ["c", None, "/d"]})
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    Index(table).save("folder/index.arrow")
    Index(table).save("folder/index.parquet")
    (tmp_path / "elsewhere").mkdir()
    shutil.move("folder/index.arrow", "elsewhere")
    index = Index.load("elsewhere/index.arrow")
    assert rows(index) == rows(Index.load("folder/index.parquet"))
    assert index.path(0) == str(tmp_path / "folder" / "b")


# ---- Opened without being read ------------------------------------------------------------------


def test_loading_checks_and_copies_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("checked", "digest", "numbers"):
        monkeypatch.setattr(schema, name, None)
    monkeypatch.setattr("readers.index.table.absolute", None)
    monkeypatch.setattr("tempfile.TemporaryFile", None)  # where columns would be copied to
    index = Index.scan(file)
    columns = index.columns(["label", "hdu"])
    assert (len(index), len(index.digest), columns.row(6).path) == (7, 64, "/g")
    assert columns.array("hdu").tolist() == [0, -1, 2, 1, 1, -1, 7]


CHILD = """
import os, pickle, sys
columns = pickle.load(sys.stdin.buffer)
found = [columns.row(number) for number in range(len(columns))]
labels = [int(columns.value("label", number)) for number in range(len(columns))]
opened = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
assert "pyarrow" not in sys.modules
print(ascii((found, labels, sorted(path for path in opened if "index" in path))))
"""


def test_another_process_reads_the_file_itself(
    file: Path, fresh_python: Callable[..., bytes]
) -> None:
    index = Index.load(file)
    pickled = pickle.dumps(index.columns(["label"]))
    assert len(pickled) < 1000
    found = fresh_python(CHILD, stdin=pickled).decode().strip()
    assert found == ascii((rows(index), list(range(7)), [str(file)]))


@pytest.mark.parametrize("fate", ["replaced", "deleted"])
def test_the_file_may_be_replaced_or_deleted_while_it_is_in_use(
    file: Path, fresh_python: Callable[..., bytes], fate: str
) -> None:
    index = Index.load(file)
    columns, before = index.columns(["label"]), rows(index)
    if fate == "deleted":
        file.unlink()
    else:
        Index.from_paths(["/other"] * 7).save(file)
        assert Index.load(file).path(0) == "/other"
    assert rows(index) == before
    assert (index.path(6), index.hdu(6), index.table["path"][6].as_py()) == ("/g", 7, "/g")
    found = fresh_python(CHILD, stdin=pickle.dumps(columns)).decode()
    assert found.startswith(ascii((before, list(range(7))))[:-1])


def cut_off(file: Path) -> None:
    os.truncate(file, 700)


def overwrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(900)
        opened.write(b"torn")


def copy_over(file: Path) -> None:
    other = file.with_name("other.arrow")
    Index.from_paths(["/other"] * 700).save(other)
    shutil.copyfile(other, file)


@pytest.mark.parametrize("write", [cut_off, overwrite, copy_over])
def test_a_file_that_is_written_to_meanwhile_is_refused(
    file: Path, fresh_python: Callable[..., bytes], write: Callable[..., Any]
) -> None:
    os.utime(file, ns=(0, 0))  # so that the writes below come at another time
    index = Index.load(file)
    columns = index.columns(["label"])
    pickled = pickle.dumps(columns)
    assert columns.row(0).path == "/a.fits"
    write(file)
    for look in (
        lambda: index.path(0),
        lambda: index.hdu(6),
        lambda: columns.row(6),
        lambda: columns.text("path", 1),
        lambda: columns.value("label", 5),
    ):
        with pytest.raises(ReadError, match="was written to while it was in use") as caught:
            look()
        assert caught.value.path == str(file)
    code = (
        "import pickle, sys; from readers import ReadError\n"
        "columns = pickle.load(sys.stdin.buffer)\n"
        "try: print(columns.row(3))\n"
        "except ReadError as error: print(error)"
    )
    assert b"was written to while it was in use" in fresh_python(code, stdin=pickled)


# ---- Files that are not to be trusted -----------------------------------------------------------


def write(table: pa.Table, path: Path, note: dict[str, Any] | None = None) -> None:
    """Write as another program does; with a note, as an older or newer version of this one."""
    metadata = note and {"dali-pipelines Index": json.dumps(note)}
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch, custom_metadata=metadata)
        if not table.num_rows:
            writer.write_table(table)


def note_of(table: pa.Table, version: int) -> dict[str, Any]:
    columns = [[field.name, str(field.type)] for field in table.schema]
    counts = {"num_rows": len(table), "batch_rows": len(table)}
    return {"version": version, "columns": columns, "digest": "?", **counts}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"path": ["/a", ""]}), "'path' has 1 empty rows"),
        (pa.table({"name": ["/a", ""]}), "'path', got"),
        (pa.table({"path": ["/a", "b"], "x": [1, 2]})[:0], "at least one row"),
    ],
)
def test_one_of_another_program_is_checked(tmp_path: Path, table: pa.Table, words: str) -> None:
    write(table, tmp_path / "index.arrow")
    with pytest.raises(ValueError, match=words):
        Index.load(tmp_path / "index.arrow")


def test_one_of_another_program_is_read(tmp_path: Path) -> None:
    hdu = pa.array([None, 3], pa.int8())
    write(pa.table({"path": ["/a", "b"], "hdu": hdu}), tmp_path / "index.arrow")
    index = Index.load(tmp_path / "index.arrow")
    assert [(row.path, row.hdu) for row in rows(index)] == [("/a", None), (f"{tmp_path}/b", 3)]


def test_who_changes_the_table_makes_it_theirs(file: Path) -> None:
    index = Index.load(file)
    with pa.OSFile(str(file)) as opened:
        table = pa.ipc.open_file(opened).read_all()
    file.unlink()
    write(table.take([6, 5, 4, 3, 2, 1, 0]), file)
    turned = Index.load(file)
    assert rows(turned)[0].path == "/g"
    assert turned.digest == index.select(range(6, -1, -1)).digest != index.digest


def test_another_version_has_the_digest_of_today(tmp_path: Path) -> None:
    table = pa.table({"path": pa.array(["/archive/a", "/archive/b"], pa.large_string())})
    write(table, tmp_path / "index.arrow", note_of(table, 9))
    index = Index.load(tmp_path / "index.arrow")
    assert index.digest == Index(table).digest
    assert [row.path for row in rows(index)] == ["/archive/a", "/archive/b"]


def test_planes_of_another_version_are_converted(tmp_path: Path) -> None:
    paths = pa.array(["/a", "/b", "/c"], pa.large_string())
    table = pa.table({"path": paths, "plane": [3, None, 5]})
    write(table, tmp_path / "index.arrow", note_of(table, 9))
    index = Index.load(tmp_path / "index.arrow")
    assert [row.plane for row in rows(index)] == [3, None, 5]


def test_a_newer_version_is_checked(tmp_path: Path) -> None:
    table = pa.table({"path": pa.array(["/a", ""], pa.large_string())})
    write(table, tmp_path / "index.arrow", note_of(table, 9))
    with pytest.raises(ValueError, match="'path' has 1 empty rows"):
        Index.load(tmp_path / "index.arrow")


@pytest.mark.parametrize("change", [{"num_rows": 8}, {"columns": [["path", "large_string"]]}])
def test_a_note_of_another_table_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    dumps = json.dumps
    monkeypatch.setattr("json.dumps", lambda note: dumps(note | change))
    Index.load(file).save(file)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=f"{file}.*expected rows and columns"):
        Index.load(file)


def test_a_file_that_is_cut_off(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"{file}: .*Index.*cut off.*Index.save"):
            Index.load(file)


def test_a_file_that_is_damaged(file: Path) -> None:
    """It is refused, or rows are other rows, or no rows; but never is anything else read."""
    whole = file.read_bytes()
    dice = random.Random(0)
    refused = 0
    for _ in range(500):
        content = bytearray(whole)
        content[dice.randrange(len(whole))] = dice.randrange(256)
        file.write_bytes(content)
        try:
            index = Index.load(file)
        except ValueError as error:
            refused += 1
            assert str(error).startswith(str(file))  # noqa: PT017
            continue
        columns = index.columns(["label"])
        for row in range(len(index)):
            try:
                columns.row(row)
                columns.value("label", row)
                index.path(row)
            except ReadError as error:
                assert error.path == str(file)  # noqa: PT017
    assert refused > 100


@pytest.mark.parametrize("name", ["index.arrow", "index.parquet"])
def test_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/{name}"):
        Index.load(tmp_path / name)


@pytest.mark.parametrize("name", ["index.arrow", "index.parquet"])
def test_a_file_of_another_kind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("no Index\n" * 99)
    with pytest.raises(ValueError, match=f"{tmp_path}/{name}: .*another kind"):
        Index.load(tmp_path / name)


def test_parquet_under_a_name_of_arrow(tmp_path: Path) -> None:
    pq.write_table(pa.table({"path": ["/a"]}), tmp_path / "index.arrow")
    with pytest.raises(ValueError, match="another kind"):
        Index.load(tmp_path / "index.arrow")


def test_a_failed_save_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_table: pa.Table, path: str, _digest: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(index_file, "_write", fail)
    with pytest.raises(OSError, match="disk full"):
        Index.from_paths(["/x"]).save(file)
    assert len(Index.load(file)) == 7
    assert os.listdir(file.parent) == ["index.arrow"]
