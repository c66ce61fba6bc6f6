"""Tables of RecordIO files, written here as MXNet's recordio.py and dmlc-core describe them."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from readers.index.containers.kinds import RecordIO
from readers.index.containers.tables import containers_table

MAGIC = struct.pack("<I", 0xCED7230A)


def packed(labels: float | Sequence[float], number: int, image: bytes) -> bytes:
    """Return what mxnet.recordio.pack returns."""
    if isinstance(labels, float):
        return struct.pack("<IfQQ", 0, labels, number, 0) + image
    head = struct.pack("<IfQQ", len(labels), 0, number, 0)
    return head + struct.pack(f"<{len(labels)}f", *labels) + image


def write(path: Path, records: Sequence[bytes]) -> list[int]:
    """Write what MXRecordIO.write writes; return where the records begin."""
    content, starts = b"", []
    for record in records:
        starts.append(len(content))
        parts = record.split(MAGIC)  # at multiples of 4 only, as in these tests
        for number, part in enumerate(parts):
            flag = 0 if len(parts) == 1 else 1 if number == 0 else 3 if part is parts[-1] else 2
            content += MAGIC + struct.pack("<I", flag << 29 | len(part)) + part
            content += bytes(-len(part) % 4)
    path.write_bytes(content)
    return starts


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = containers_table(RecordIO(), path).to_pylist()
    return found


def test_images_and_labels(tmp_path: Path, content: Callable[..., bytes]) -> None:
    images = [bytes([n]) * (n + 1) for n in range(9)]
    write(tmp_path / "a.rec", [packed(float(n % 3), n + 70, each) for n, each in enumerate(images)])
    made = rows(tmp_path)
    assert [content(row) for row in made] == images
    assert [(row["key"], row["label"]) for row in made] == [(n + 70, n % 3) for n in range(9)]
    write(tmp_path / "a.rec", [packed([0.5, n], n, each) for n, each in enumerate(images)])
    made = rows(tmp_path / "a.rec")
    assert [content(row) for row in made] == images
    assert [row["label"] for row in made] == [[0.5, n] for n in range(9)]


def test_index_file(tmp_path: Path, content: Callable[..., bytes]) -> None:
    images = [b"zero", b"one", b"two" + bytes(90_000)]
    starts = write(tmp_path / "a.rec", [packed(0.0, 0, each) for each in images])
    lines = [f"{key}\t{starts[key]}\n" for key in (2, 0, 1)]
    idx = tmp_path / "a.idx"
    idx.write_text("".join(lines))
    made = rows(tmp_path / "a.rec")
    assert [(row["key"], content(row)) for row in made] == [(n, images[n]) for n in (2, 0, 1)]
    for stale in (lines[:2], [*lines[:2], "1\t4\n"], [*lines, "3\t99\n"]):
        idx.write_text("".join(stale))
        with pytest.raises(ValueError, match=r"a\.rec: .*out of date"):
            rows(tmp_path / "a.rec")
    idx.write_text("one line\n")
    with pytest.raises(ValueError, match="key and a position"):
        rows(tmp_path / "a.rec")


def test_records_in_parts_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: Callable[..., bytes]
) -> None:
    records = [
        packed(0.0, 0, b"left"),
        packed(1.0, 1, b"in" * 4 + MAGIC + b"parts"),
        packed(2.0, 2, b"right"),
    ]
    starts = write(tmp_path / "a.rec", records)
    assert [content(row) for row in rows(tmp_path)] == [b"left", b"right"]
    assert "1 records" in caplog.text
    (tmp_path / "a.idx").write_text("".join(f"{n}\t{at}\n" for n, at in enumerate(starts)))
    assert [row["key"] for row in rows(tmp_path)] == [0, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda whole: whole[:35], "cut off.*36, the file at 35"),
        (lambda _: b"x" * 99, "not a RecordIO"),
        (lambda whole: b"\x1f\x8b" + whole, "gzip"),
        (lambda _: MAGIC + struct.pack("<I", 4) + b"abcd", "record at 0"),
        (lambda _: b"", "RecordIO.*no image"),
    ],
)
def test_wrong_files(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    path = tmp_path / "a.rec"
    write(path, [packed(0.0, 0, b"abcd"), packed([1.0], 0, b"efgh")])
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=words):
        rows(path)


@pytest.mark.parametrize("with_idx", [False, True])
def test_damaged_records_are_left_out_and_named(
    with_idx: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.rec"
    starts = write(path, [packed([float(n)], n, b"abcd") for n in range(3)])
    if with_idx:
        (tmp_path / "a.idx").write_text("".join(f"{n}\t{at}\n" for n, at in enumerate(starts)))
    whole, second, third = path.read_bytes(), starts[1], starts[2]
    for damaged, kept, at in (
        (whole[:-1], [0, 1], len(whole)),
        (whole[: third + 4], [0, 1], third),
        (whole[:second] + b"x" + whole[second + 1 :], [0], second),
        (whole[: second + 8] + b"\xff\xff\0\0" + whole[second + 12 :], [0, 2], second),
    ):
        caplog.clear()
        path.write_bytes(damaged)
        assert [(row["key"], row["label"]) for row in rows(tmp_path)] == [(n, n) for n in kept]
        assert re.search(f"{path}.* at {at}", caplog.text)


def test_keys_of_an_index_file_keep_their_spelling(tmp_path: Path) -> None:
    starts = write(tmp_path / "a.rec", [packed(0.0, n, b"abcd") for n in range(2)])
    keys = "007", str(2**63)
    lines = (f"{key}\t{at}\n" for key, at in zip(keys, starts, strict=True))
    (tmp_path / "a.idx").write_text("".join(lines))
    assert [row["key"] for row in rows(tmp_path)] == [*keys]
