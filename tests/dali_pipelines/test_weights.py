"""Rows drawn by weights; `test_loader_machine.py` resumes them, on any number of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from read_here import in_this_process

from dali_pipelines import Index, Loader, npy_pipeline
from readers import WeightedOrder

ROWS = 23
WEIGHTS = [0.0 if row % 3 == 0 else 1e-12 if row % 3 == 1 else 1.0 + row for row in range(ROWS)]


@pytest.fixture(scope="module")
def weighted(npy_index: Index) -> Index:
    return npy_index.with_column("w", WEIGHTS)


def make_loader(index: Index, **options: Any) -> Loader:
    return Loader(npy_pipeline, index, **{"batch_size": 4, "weights": "w", **options})


def test_a_row_that_is_drawn_again_looks_new(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(64 * 64, dtype=np.float32).reshape(64, 64))
    index = Index.from_paths([tmp_path / "a.npy"] * 20).with_column("w", [1] + [0] * 19)
    pipeline = in_this_process(
        npy_pipeline, index, batch_size=20, weights="w", seed=3, crop=8, window="random", flip="hv"
    )
    pipeline.build()
    images = np.asarray(pipeline.run()[0].as_tensor())
    pipeline.close()
    assert len({image.tobytes() for image in images}) == 20


def test_a_pipeline_without_a_loader(weighted: Index) -> None:
    pipeline = in_this_process(npy_pipeline, weighted, batch_size=ROWS, weights="w", seed=2)
    pipeline.build()
    rows = pipeline.run()[pipeline.output_names.index("row")].as_array().tolist()
    pipeline.close()
    order = WeightedOrder(weighted.running_weights("w"), 2)
    assert rows == [order.row(0, position) for position in range(ROWS)]
    assert all(row % 3 == 2 for row in rows)
    assert len(set(rows)) < ROWS


def test_a_state_fits_the_same_weights(weighted: Index) -> None:
    """Doubled ones draw the same rows. What is refused changes nothing."""
    doubled = weighted.with_column("w", np.array(WEIGHTS) * 2)
    loaders = [
        make_loader(weighted),
        make_loader(weighted.with_column("w", [2.0] * ROWS)),
        make_loader(weighted, weights=None),
    ]
    for saved in loaders:
        state = saved.state_dict() | {"position": 5}
        for loader in loaders:
            if loader is not saved:
                with pytest.raises(ValueError, match=r"saved with .*weights.* same weights, or"):
                    loader.load_state_dict(state)
                assert loader.state_dict()["position"] == 0
    make_loader(doubled).load_state_dict(loaders[0].state_dict())


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [("v", KeyError, "no column 'v': it has path, w"), ("path", TypeError, "'path' is .*string")],
)
def test_a_column_that_holds_no_weights(
    weighted: Index, name: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_loader(weighted, weights=name)


def test_weights_of_a_pipeline_are_checked(weighted: Index) -> None:
    with pytest.raises(ValueError, match=r"weights.*from 0 on"):
        npy_pipeline(Index(pa.table({"path": ["/a"], "w": [-1]})), batch_size=1, weights="w")
