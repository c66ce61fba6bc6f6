"""Tables of TFRecord files against the library tfrecord, which also writes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfrecord import TFRecordWriter, example_pb2
from tfrecord.reader import tfrecord_loader

from readers.index.containers.kinds import TFRecord
from readers.index.containers.tables import containers_table
from readers.index.containers.tfrecord import features, values_of

JPEG = b"\xff\xd8\xff"
Record = Mapping[str, tuple[Any, str]]


def write(path: Path, records: Sequence[Record]) -> str:
    writer = TFRecordWriter(str(path))
    for record in records:
        writer.write(record)
    writer.close()
    return str(path)


def rows(data: Any, **settings: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = containers_table(TFRecord(**settings), data).to_pylist()
    return found


def record(number: int) -> Record:
    return {
        "image/encoded": (JPEG + bytes([number]) * number * 99, "byte"),
        "image/class/label": (number - 3, "int"),
        "image/score": (number / 3, "float"),
        "image/text": (f"é {number}".encode(), "byte"),
        "image/box": ([0.5] * number, "float"),
        "mask": (b"\x89PNG" + bytes([number]), "byte"),
        "embedding": (bytes([255]) * 8, "byte"),
    }


def test_records_are_those_of_the_library(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: Callable[..., bytes]
) -> None:
    for shard in range(2):
        write(tmp_path / f"{shard}.tfrecord", [record(shard * 5 + n) for n in range(5)])
    (tmp_path / "0.idx").write_text("0 90\n")
    paths = [tmp_path / f"{n}.tfrecord" for n in range(2)]
    expected = [each for path in paths for each in tfrecord_loader(str(path), None)]
    made = rows(tmp_path)
    assert made == rows(paths)
    assert not caplog.messages  # of the .idx
    assert [row["key"] for row in made] == [0, 1, 2, 3, 4] * 2
    for row, other in zip(made, expected, strict=True):
        assert content(row) == other["image/encoded"]
        assert content(row, "mask_") == other["mask"]
        assert content(row, "embedding_") == bytes([255]) * 8
        assert row["image/class/label"] == other["image/class/label"][0]
        assert row["image/score"] == other["image/score"][0]
        assert row["image/text"].encode() == other["image/text"]
        assert row["image/box"] == list(other["image/box"])


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.one_of(
            st.lists(st.binary(max_size=300), max_size=4),
            st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4),
            st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4),
        ),
        max_size=5,
    )
)
def test_features_are_those_of_protobuf(named: dict[str, list[Any]]) -> None:
    kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
    message = example_pb2.Example()
    for name, values in named.items():
        feature = message.features.feature[name]
        getattr(feature, kinds[type(values[0]) if values else bytes]).value.extend(values)
    data = message.SerializeToString()
    found = {}
    for name, at in features(data):
        values, is_bytes = values_of(data, at)
        found[name] = [data[v.offset : v.offset + v.nbytes] for v in values] if is_bytes else values
    assert found == named


def test_numbers_that_are_not_packed() -> None:
    # Field 1: features, an entry, its key "a", its value: an int64_list of 5 and 300, one by one.
    numbers = b"\x08\x05\x08\xac\x02"
    feature = b"\x1a" + bytes([len(numbers)]) + numbers
    entry = b"\x0a\x01a\x12" + bytes([len(feature)]) + feature
    message = b"\x0a" + bytes([len(entry) + 2, 0x0A, len(entry)]) + entry
    assert example_pb2.Example.FromString(message).features.feature["a"].int64_list.value == [
        5,
        300,
    ]
    [(name, at)] = features(message)
    assert (name, values_of(message, at).values) == ("a", [5, 300])


def test_columns(tmp_path: Path, content: Callable[..., bytes]) -> None:
    path = write(tmp_path / "a.tfrecord", [record(n) for n in range(3)])
    usual = {"path", "offset", "nbytes", "key", "file_bytes", "etag"}
    [row, *_] = rows(path, columns={"image/class/label": "label", "mask": "m"})
    assert row.keys() - usual == {"label", "m_path", "m_offset", "m_nbytes"}
    [row, *_] = rows(path, image="mask", columns={})
    assert row.keys() == usual
    assert content(row) == b"\x89PNG\0"
    for name in ("offset", "hdu", "path_x"):  # of which an Index takes what it reads
        columns = {"image/text": name}
        with pytest.raises(ValueError, match=f"'{name}'.*columns="):
            rows(path, columns=columns)


def test_records_without_an_image(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = record(1)
    path = write(tmp_path / "a.tfrecord", [{"other": (1, "int")}, first, {"x": (2, "int")}])
    [row] = rows(path)
    assert (row["key"], "other" in row) == (1, False)
    assert re.search("2 records .*'image/encoded'", caplog.text)
    with pytest.raises(ValueError, match=r"'jpg'.*image/encoded"):
        rows(path, image="jpg")


def test_values_of_different_kinds(tmp_path: Path) -> None:
    image = {"image/encoded": (JPEG, "byte")}
    write(tmp_path / "0.tfrecord", [image | {"a": (1, "int"), "b": (1, "int")}])
    write(tmp_path / "1.tfrecord", [image | {"a": (0.5, "float"), "b": ([2, 3], "int")}, image])
    made = rows(tmp_path)
    assert [row["a"] for row in made] == [1.0, 0.5, None]
    assert [row["b"] for row in made] == [[1], [2, 3], []]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: b"x" * 99, "not a TFRecord"),
        (lambda whole: b"\x1f\x8b" + whole, "gzip"),
        (lambda whole: whole[:-1], "cut off.*ends at {0}, the file at {1}"),
        (lambda _: b"", "TFRecord.*no image"),
    ],
)
def test_wrong_files(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    path = tmp_path / "a.tfrecord"
    whole = Path(write(path, [record(1)])).read_bytes()
    path.write_bytes(change(whole))
    with pytest.raises(ValueError, match=words.format(len(whole), len(whole) - 1)):
        rows(path)


def test_damaged_records_are_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, [record(n) for n in range(3)])
    whole = path.read_bytes()
    second = 16 + int.from_bytes(whole[:8], "little")
    third = second + 16 + int.from_bytes(whole[second : second + 8], "little")
    flip = bytes([whole[third - 9] ^ 1])
    for damaged, kept, at in (
        (whole[:-1], [0, 1], len(whole)),
        (whole[: third + 5], [0, 1], third),
        (whole[: second + 1] + b"x" + whole[second + 2 :], [0], second),
        (whole[: third - 9] + flip + whole[third - 8 :], [0, 2], second + 12),
    ):
        caplog.clear()
        path.write_bytes(damaged)
        made = rows(tmp_path)
        assert [row["key"] for row in made] == kept
        assert [row["image/class/label"] for row in made] == [n - 3 for n in kept]
        assert re.search(f"{path}.* at {at}", caplog.text)


def test_records_that_are_not_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encode = TFRecordWriter.serialize_tf_example
    for bad in (b"\x0fabc", encode({"image/encoded": (JPEG, "byte"), "n": (7, "int")})[:-1]):
        contents = iter([encode(record(0)), bad, encode(record(2))])
        with monkeypatch.context() as patch:
            patch.setattr(
                TFRecordWriter, "serialize_tf_example", staticmethod(lambda _, c=contents: next(c))
            )
            path = write(tmp_path / "a.tfrecord", [{}] * 3)
        made = rows(path)
        assert [(row["key"], row["image/class/label"]) for row in made] == [(0, -3), (2, -1)]
        assert "left out: 1 records of TFRecord" in caplog.text


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_an_error(message: bytes) -> None:
    try:
        for _, at in features(message):
            values_of(message, at)
    except ValueError:
        return


def test_without_google_crc32c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tfrecord", [record(1)])
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(ModuleNotFoundError, match="containers"):
        rows(path)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"a": "x", "b": "x"}, "x"),
        ({"mask": "m", "b": "m_offset"}, "m_offset"),
        ({"b": "m_offset", "mask": "m"}, "m_offset"),
    ],
)
def test_features_that_make_one_column(tmp_path: Path, columns: dict[str, str], name: str) -> None:
    image = {"image/encoded": (JPEG, "byte"), "mask": (b"\x89PNG", "byte")}
    path = write(tmp_path / "a.tfrecord", [{**image, "a": (1, "int"), "b": (2, "int")}])
    with pytest.raises(ValueError, match=f"two columns '{name}'"):
        rows(path, columns=columns)
