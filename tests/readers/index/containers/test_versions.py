"""Containers that were changed; columns that only look like versions; parts of containers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from image_files import npy
from tar_files import packed

from readers import Index, NpyReader, ReadError

SHAPE = (64, 64)


def pack(path: Path, order: list[int]) -> None:
    """Write a tar of arrays whose values are their numbers."""
    arrays = [np.full(SHAPE, number, np.float32) for number in order]
    path.write_bytes(packed((f"{place}.npy", npy(each)) for place, each in enumerate(arrays)))


def test_a_tar_of_the_same_length_in_another_order_is_rejected(tmp_path: Path) -> None:
    """Also if its first member, and so the first 8 KiB, are the same."""
    pack(tmp_path / "a.tar", [0, *range(1, 40)])
    columns = Index.scan(tmp_path / "a.tar").columns()
    nbytes = (tmp_path / "a.tar").stat().st_size
    assert NpyReader().read(columns.row(7), None)["image"].mean() == 7
    (tmp_path / "a.tar").unlink()
    pack(tmp_path / "a.tar", [0, *range(39, 0, -1)])
    assert (tmp_path / "a.tar").stat().st_size == nbytes
    with pytest.raises(ReadError, match=r"a.tar\[.*changed since"):
        NpyReader().read(columns.row(7), None)


def test_a_copy_of_a_container_is_the_same(tmp_path: Path) -> None:
    pack(tmp_path / "a.tar", [*range(9)])
    table = Index.scan(tmp_path / "a.tar").table
    content = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "b.tar").write_bytes(content)
    moved = table.set_column(0, "path", pa.array([str(tmp_path / "b.tar")] * 9))
    assert NpyReader().read(Index(moved).columns().row(7), None)["image"].mean() == 7


@pytest.mark.parametrize(
    ("etag", "file_bytes"),
    [
        (pa.array(['"10ac7e6e8897392e3b5fdf5af97b7c71"']), pa.array([1])),  # of an object
        (pa.array([12]), pa.array([1])),
        (pa.array(["3-00000000"]), pa.array([1.5])),
    ],
)
def test_columns_of_the_user_are_not_versions(
    tmp_path: Path, etag: pa.Array, file_bytes: pa.Array
) -> None:
    np.save(tmp_path / "a.npy", np.full(SHAPE, 5, np.float32))
    columns = {"path": [str(tmp_path / "a.npy")], "etag": etag, "file_bytes": file_bytes}
    index = Index(pa.table(columns))
    assert NpyReader().read(index.columns().row(0), None)["image"].mean() == 5


def test_samples_of_one_container_are_split_by_their_keys(tmp_path: Path) -> None:
    pack(tmp_path / "a.tar", [*range(40)])
    index = Index.scan(tmp_path / "a.tar")
    parts = index.split({"train": 0.5, "val": 0.5})
    assert sum(map(len, parts.values())) == 40
    by_key = index.split({"train": 0.5, "val": 0.5}, by="key")
    assert [part.table["key"].to_pylist() for part in parts.values()] == [
        part.table["key"].to_pylist() for part in by_key.values()
    ]
    with pytest.raises(ValueError, match="none of 40 rows"):
        index.split({"train": 0.5, "val": 0.5}, by="path")
