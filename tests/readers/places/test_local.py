"""Files: odd names, and changes after a version was noted, however soon they come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from readers import Index
from readers.places.local import LocalPlace

OLD, NEW = b"old" * 9999, b"new" * 9999


def content(path: Path, etag: str | None = None) -> bytes:
    with LocalPlace(str(path), etag=etag) as place:
        return place.read(0, place.nbytes)


def replace(path: Path) -> None:
    path.with_suffix(".new").write_bytes(NEW)
    path.with_suffix(".new").replace(path)


def keep_times(path: Path) -> None:
    status = path.stat()
    path.write_bytes(NEW)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def last_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")


CHANGES: dict[str, Callable[[Path], object]] = {
    "overwritten": lambda path: path.write_bytes(NEW),
    "replaced": replace,
    "with its old time": keep_times,
    "last byte": last_byte,
    "longer": lambda path: path.write_bytes(OLD + b"!"),
    "shorter": lambda path: path.write_bytes(OLD[:-1]),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("age_s", [0, 60, -60], ids=["just written", "settled", "of the future"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, age_s: int
) -> None:
    path, clock = tmp_path / "a", time.time_ns
    path.write_bytes(OLD)
    with LocalPlace(str(path)) as place:
        etag = place.etag
    monkeypatch.setattr(time, "time_ns", lambda: clock() + age_s * 10**9)
    for _ in range(2):
        assert content(path, etag) == OLD
    written = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == written:  # a file system's clock goes on by milliseconds
        CHANGES[change](path)
    for _ in range(2):
        with pytest.raises(OSError, match=f"changed since it was indexed.*{path}"):
            content(path, etag)
    path.write_bytes(OLD)
    assert content(path, etag) == OLD


def test_a_version_is_of_all_parts_of_a_file(tmp_path: Path) -> None:
    """It is made of pieces: a change of a tenth of a large file is noticed wherever it is."""
    path, old = tmp_path / "a", np.random.default_rng(0).bytes(1 << 20)
    tenth = len(old) // 10

    def version(content: bytes) -> str:
        path.write_bytes(content)
        with LocalPlace(str(path)) as place:
            return place.etag

    first = version(old)
    for start in range(0, len(old) - tenth + 1, tenth // 10):
        changed = old[:start] + bytes(tenth) + old[start + tenth :]
        assert version(changed) != first, f"a change of {tenth} bytes from {start} on"


def test_a_version_is_that_of_one_file(tmp_path: Path) -> None:
    for name, value in (("a", OLD), ("b", NEW)):
        (tmp_path / name).write_bytes(value)
    with LocalPlace(str(tmp_path / "a")) as place:
        etag = place.etag
    assert content(tmp_path / "a", etag) == OLD
    with pytest.raises(OSError, match="changed since"):
        content(tmp_path / "b", etag)
    (tmp_path / "b").write_bytes(OLD)  # a copy
    assert content(tmp_path / "b", etag) == OLD


def test_the_version_of_an_object_is_not_that_of_its_copy(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(NEW)
    assert content(tmp_path / "a", '"10ac7e6e8897392e3b5fdf5af97b7c71"') == NEW


NAMES = [
    "a%20b.npy",
    "a b.npy",
    "100%.npy",
    "a#b.npy",
    "a?b.npy",
    "a[1].npy",
    "a1.npy",
    "s3:/b.npy",
]


@pytest.mark.parametrize("source", [Index.scan, Index.from_paths])
def test_names_are_taken_as_they_are(tmp_path: Path, source: Callable[[object], Index]) -> None:
    """Nothing is decoded, and what exists is no pattern."""
    (tmp_path / "s3:").mkdir()
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode())
    paths = [str(tmp_path / name) for name in NAMES]
    columns = source(paths).columns()
    for row, name in enumerate(NAMES):
        with columns.row(row).place as place:
            assert place.read(0, 99) == name.encode()
    assert sorted(Index.scan(tmp_path).table["path"].to_pylist()) == sorted(paths)
    assert [Index.scan(path).table["path"].to_pylist() for path in paths] == [
        [one] for one in paths
    ]


def test_bytes_that_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may return fewer bytes than were asked for, e.g. of a network file system."""
    path, expected = tmp_path / "a", bytes(range(256))
    path.write_bytes(expected)
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda file, size, at: pread(file, min(size, 7), at))
    monkeypatch.setattr(os, "preadv", lambda file, to, at: preadv(file, [to[0][:7]], at))
    with LocalPlace(str(path)) as place:
        assert place.read(5, 200) == expected[5:200]
        first, second = bytearray(100), bytearray(50)
        place.read_many([(3, memoryview(first)), (150, memoryview(second))])
    assert (bytes(first), bytes(second)) == (expected[3:103], expected[150:200])
