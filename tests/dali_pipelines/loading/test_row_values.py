"""Columns of text, lists and nulls in batches: those of the rows that are delivered."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from dali_pipelines import Index, Loader, npy_pipeline

ROWS, BAD = 23, 7
NAMES = [None if row == 5 else f"star {row}" for row in range(ROWS)]
LISTS = [list(range(row % 3)) for row in range(ROWS)]
COUNTS = [None if row % 4 else row for row in range(ROWS)]
COLUMNS = ("name", "label", "list", "count", "path")


@pytest.fixture(scope="module")
def index(npy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Rows of an Index file, of which one names no file."""
    paths = [str(npy_folder / f"{row:02d}.npy") for row in range(ROWS)]
    paths[BAD] = str(npy_folder / "none.npy")
    lists = pa.array(LISTS, pa.list_(pa.int32()))
    numbers = {"label": np.arange(ROWS) * 10, "w": np.where(np.arange(ROWS) == BAD, 9.0, 1.0)}
    table = pa.table({"path": paths, "name": NAMES, "list": lists, "count": COUNTS, **numbers})
    file = tmp_path_factory.mktemp("values") / "index.arrow"
    Index(table).save(file)
    return Index.scan(file)


def make_loader(index: Index, **options: Any) -> Loader:
    settings = {"batch_size": 4, "num_read_processes": 2, "devices": [None, None], "seed": 3}
    return Loader(npy_pipeline, index, **{**settings, **options})


@pytest.mark.parametrize(
    ("tail", "others", "count"),
    [
        ("partial", {"framework": "numpy"}, ROWS - 1),
        ("fill", {"weights": "w"}, 24),
        ("drop", {"crop": 4, "window": "random"}, 15),
    ],
)
def test_those_of_the_rows_in_each_slot(
    index: Index, tail: Any, others: dict[str, Any], count: int
) -> None:
    options = {"columns": COLUMNS, "bad_sample": "skip", "tail": tail, **others}
    seen: list[int] = []
    with make_loader(index, **options) as loader:
        for batches in loader:
            for batch in batches:
                rows = batch["row"].tolist()
                assert batch["name"] == [NAMES[row] for row in rows]
                assert [one.tolist() for one in batch["list"]] == [LISTS[row] for row in rows]
                assert all(one.dtype == "int32" for one in batch["list"])
                assert batch["count"] == [COUNTS[row] for row in rows]
                assert batch["path"] == [index.path(row) for row in rows]
                assert batch["label"].tolist() == [10 * row for row in rows]
                assert len(batch["image"]) == len(rows)
                seen += rows
    assert BAD not in seen
    assert list(loader.stats.rejected) == [BAD]
    assert len(seen) == count


def test_lists_of_a_fixed_length_are_one_array(index: Index, framework: Any) -> None:
    vectors = np.random.default_rng(0).random((ROWS, 500), np.float32)
    flags = vectors[:, :3] > 0.5
    index = index.with_column("vector", vectors).with_column("flags", flags)
    options: dict[str, Any] = {"columns": ("vector", "flags"), "bad_sample": "skip"}
    seen = 0
    with make_loader(index, framework=framework, **options) as loader:
        for batches in loader:
            for batch in batches:
                rows = batch["row"].tolist()
                seen += len(rows)
                assert type(batch["vector"]) is type(batch["image"])
                for name, expected in (("vector", vectors), ("flags", flags)):
                    found = batch[name]
                    found = found.get() if hasattr(found, "get") else np.asarray(found)
                    assert found.dtype == expected.dtype
                    assert found.shape == (len(rows), expected.shape[1])
                    np.testing.assert_array_equal(found, expected[rows])
    assert seen == ROWS - 1


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_integers(index: Index, dtype: str) -> None:
    largest = np.iinfo(dtype).max - np.arange(ROWS, dtype=dtype)
    options = {"columns": ("number",), "bad_sample": "skip"}
    with make_loader(index.with_column("number", largest), **options) as loader:
        for batches in loader:
            for batch in batches:
                assert batch["number"].dtype == getattr(torch, dtype)
                assert batch["number"].tolist() == largest[batch["row"]].tolist()


def test_files_of_a_sample(npy_folder: Path) -> None:
    first, second = (
        [str(npy_folder / f"{row:02d}.npy") for row in rows] for rows in ((0, 1), (2, 3))
    )
    several = Index(pa.table({"path": first, "path_a": first, "path_b": [second[0], None]}))
    options = {"batch_size": 2, "devices": [None], "shuffle": False, "columns": ("path_b",)}
    with make_loader(several, **options) as loader:
        [(batch,)] = loader
    assert batch["path_b"] == [second[0], None]
    assert batch["present"].tolist() == [[True, True], [True, False]]


def test_what_is_refused(index: Index, npy_index: Index) -> None:
    with pytest.raises(KeyError, match="no column 'nmae': did you mean name"):
        make_loader(index, columns=("nmae",))
    named = npy_index.with_column("valid", ["yes"] * ROWS)
    with pytest.raises(ValueError, match=r"columns \['valid'\].*rename"):
        make_loader(named, columns=("valid",)).make_pipelines()
    config: dict[str, Any] = {"batch_size": 4, "columns": ("name",)}
    with pytest.raises(TypeError, match=r"'name' is .*string.*a Loader"):
        npy_pipeline(index, **config)
    bound = partial(npy_pipeline, columns=("name",))
    Loader(bound, index, batch_size=4, devices=[None]).make_pipelines()
