"""Tables of LMDB files against the library lmdb, which also writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.index.containers.kinds import LMDB
from readers.index.containers.lmdb import Pages
from readers.index.containers.tables import containers_table
from readers.places.opener import LOCAL

JPEG = b"\xff\xd8\xff"


def write(folder: Path, values: Mapping[bytes, bytes], **settings: Any) -> str:
    with lmdb.open(str(folder), map_size=1 << 26, **settings) as env, env.begin(write=True) as txn:
        for key, value in values.items():
            txn.put(key, value)
    return str(folder)


def rows(path: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = containers_table(LMDB(), path).to_pylist()
    return found


@settings(max_examples=40)
@given(
    st.lists(
        st.dictionaries(
            st.binary(min_size=1, max_size=511),
            st.none() | st.integers(0, 20_000),
            min_size=1,
            max_size=60,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_values_are_those_of_the_library(
    tmp_path_factory: pytest.TempPathFactory, commits: list[dict[bytes, int | None]]
) -> None:
    folder = tmp_path_factory.mktemp("lmdb")
    with lmdb.open(str(folder), map_size=1 << 26) as env:
        for number, commit in enumerate(commits):
            with env.begin(write=True) as txn:
                for key, nbytes in commit.items():
                    if nbytes is None:
                        txn.delete(key)
                    else:
                        txn.put(key, bytes([number]) + key[:1] * nbytes)
        with env.begin() as txn:
            expected = list(txn.cursor())
    with LOCAL.at(str(folder / "data.mdb")) as place:
        found = [pair for page in Pages(place).values() for pair in page]
        read = [(key, place.read(span.offset, span.offset + span.nbytes)) for key, span in found]
    assert read == expected


def test_rows_of_many_pages(tmp_path: Path, content: Callable[..., bytes]) -> None:
    values = {b"%08d" % n: JPEG + b"%d" % n * (n % 2000) for n in range(3000)}
    made = rows(write(tmp_path, values))
    assert [row["key"].encode() for row in made] == list(values)
    assert [content(row) for row in made[::97]] == list(values.values())[::97]
    assert made == rows(tmp_path / "data.mdb")


def test_file_without_folder_and_whole_map(tmp_path: Path, content: Callable[..., bytes]) -> None:
    path = write(tmp_path / "x.lmdb", {b"a": JPEG, b"b": JPEG * 9000}, subdir=False, writemap=True)
    assert [content(row) for row in rows(path)] == [JPEG, JPEG * 9000]
    assert [row["key"] for row in rows(tmp_path)] == ["a", "b"]


def varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def datum(image: bytes, label: int | None, *, encoded: bool = True, shape: bool = True) -> bytes:
    """Return a Datum as Caffe's caffe.proto describes it."""
    found = b"\x08\x03\x10" + varint(480) + b"\x18" + varint(640) if shape else b""
    found += b"\x22" + varint(len(image)) + image
    if label is not None:
        found += b"\x28" + varint(label & (1 << 64) - 1)
    return found + (b"\x38\x01" if encoded else b"")


def test_datums(tmp_path: Path, content: Callable[..., bytes]) -> None:
    images = [JPEG + bytes(n) for n in (0, 5, 40, 60, 200, 5000)]
    labels = [3, -1, 1 << 20, 0, 7, 300]
    values = {
        b"%d" % n: datum(image, label, shape=bool(n % 2))
        for n, (image, label) in enumerate(zip(images, labels, strict=True))
    }
    made = rows(write(tmp_path / "a", values))
    assert [content(row) for row in made] == images
    assert [row["label"] for row in made] == labels
    write(tmp_path / "b", {b"key": datum(bytes(9), 1, encoded=False)})
    with pytest.raises(ValueError, match=r"key 'key': .*Datum.*--encoded"):
        rows(tmp_path / "b")


def test_values_that_are_not_images(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = {b"num-samples": b"5", b"__len__": b"\x80\x04K", b"text": b'"a"', b"image-1": JPEG}
    values |= {b"\xff\n": JPEG, b"empty": b"", b"datum": b"\x08\x03"}
    made = rows(write(tmp_path, values))
    assert [row["key"] for row in made] == ["image-1", "\\xff\n"]
    assert re.search("5 values .*__len__", caplog.text)


def test_each_commit_changes_the_checksum(tmp_path: Path) -> None:
    seen = set()
    for number in range(5):
        write(tmp_path, {b"%d" % number: JPEG})
        seen.add(rows(tmp_path)[0]["etag"])
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda whole, last: whole[: last - 1], "cut off"),
        (lambda whole, _: whole[:8192], "cut off"),
        (lambda whole, _: whole[:100], "not an LMDB"),
        (lambda *_: b"x" * 9000, "not an LMDB"),
        (lambda *_: b"", "not an LMDB"),
    ],
)
def test_wrong_files(tmp_path: Path, change: Callable[[bytes, int], bytes], words: str) -> None:
    write(tmp_path, {b"%d" % n: JPEG + bytes(5000) for n in range(100)})
    path = tmp_path / "data.mdb"
    last = max(row["offset"] + row["nbytes"] for row in rows(path))
    path.write_bytes(change(path.read_bytes(), last))
    with pytest.raises(ValueError, match=rf"data\.mdb: .*{words}"):
        rows(path)


def test_a_folder_without_a_database(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"data\.mdb"):
        rows(tmp_path)


def test_several_databases_or_values(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=2) as env:
        env.open_db(b"inner")
    with pytest.raises(ValueError, match=r"'inner'.*database"):
        rows(tmp_path)
    path = Path(write(tmp_path / "a.lmdb", {b"a key": JPEG}, subdir=False))
    content = bytearray(path.read_bytes())
    content[content.index(b"a key") - 4] = 4  # MDB_DUPSORT of the main database, as C can set it
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"'a key'.*several values"):
        rows(path)


@settings(max_examples=40)
@given(damage=st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 255)), max_size=3))
def test_damage_ends_in_an_error_or_in_spans_of_the_file(
    damage: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lmdb")
    write(folder, {b"%d" % n: JPEG * (n * 10) for n in range(200)})
    path = folder / "data.mdb"
    whole = bytearray(path.read_bytes())
    for at, byte in damage:
        whole[at] = byte
    path.write_bytes(whole)
    try:
        made = rows(path)
    except ValueError:
        return
    for row in made:
        assert 0 <= row["offset"] <= row["offset"] + row["nbytes"] <= len(whole)
