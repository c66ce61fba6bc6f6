"""Rows drawn by weights: the same for any batch size, shards and resume, and named if bad."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting_loader import CountingLoader
from hypothesis import given
from hypothesis import strategies as st

from dali_pipelines import Index, Loader, npy_pipeline
from readers import WeightedOrder

ROWS = 23
WEIGHTS = [0.0 if row % 3 == 0 else 1e-12 if row % 3 == 1 else 1.0 + row for row in range(ROWS)]


@pytest.fixture(scope="module")
def weighted(npy_index: Index) -> Index:
    return npy_index.with_column("w", WEIGHTS)


def make_loader(index: Index, shards: int = 1, **options: Any) -> Loader:
    options = {"batch_size": 4, "num_read_processes": shards, "weights": "w", **options}
    return Loader(npy_pipeline, index, devices=[None] * shards, **options)


def order_of(index: Index, seed: int) -> WeightedOrder:
    return WeightedOrder(index.running_weights("w"), seed)


def samples(steps: Any, stride: int) -> dict[int, tuple[int, Any]]:
    """Return row and image by position."""
    found = {}
    for step, batches in enumerate(steps):
        slots = [
            slot for batch in batches for slot in zip(batch["row"], batch["image"], strict=True)
        ]
        for place, (row, image) in enumerate(slots):
            found[step * stride + place] = (int(row), image.numpy())
    return found


@pytest.mark.parametrize(("shards", "batch_size"), [(1, 4), (3, 2), (8, 1), (2, 16)])
def test_rows_and_windows_are_pure(weighted: Index, shards: int, batch_size: int) -> None:
    loader = make_loader(
        weighted, shards, batch_size=batch_size, seed=9, crop=(3, 4), window="random", flip="hv"
    )
    order = order_of(weighted, 9)
    with loader:
        for epoch in range(2):
            found = samples(loader, shards * batch_size)
            expected = [order.row(epoch, position) for position in range(ROWS)]
            assert [found[position][0] for position in range(ROWS)] == expected
            assert all((image == row).all() for row, image in found.values())
            assert all(row % 3 == 2 for row in expected)
            assert len(set(expected)) < ROWS


def test_a_row_that_is_drawn_again_looks_new(tmp_path: Path) -> None:
    """In the same way for any batch size, number of shards, and after a resume."""
    np.save(tmp_path / "a.npy", np.arange(64 * 64, dtype=np.float32).reshape(64, 64))
    index = Index.from_paths([tmp_path / "a.npy"] * 20).with_column("w", [1] + [0] * 19)
    settings: dict[str, Any] = {"crop": 8, "window": "random", "flip": "hv", "seed": 3}
    runs = []
    for shards, batch_size in ((1, 20), (1, 3), (2, 4)):
        with make_loader(index, shards, batch_size=batch_size, **settings) as loader:
            found = samples(loader, shards * batch_size)
            runs.append([found[position][1] for position in range(20)])
    assert all(np.array_equal(runs[0], run) for run in runs[1:])
    assert len({image.tobytes() for image in runs[0]}) == 20
    with make_loader(index, batch_size=6, **settings) as first:
        next(iter(first))
        state = first.state_dict()
    with make_loader(index, 2, batch_size=5, **settings) as second:
        second.load_state_dict(state)
        after = samples(second, 10)
    assert np.array_equal([after[position][1] for position in range(14)], runs[0][6:])


@given(st.data(), st.integers(1, 30))
def test_resumed_with_other_steps(data: st.DataObject, num_rows: int) -> None:
    paths = [f"{row}.npy" for row in range(num_rows)]
    index = Index.from_paths(paths).with_column("w", np.arange(1, num_rows + 1))
    state: Any = None
    delivered: list[Any] = []
    for _ in range(data.draw(st.integers(1, 5))):
        loader = CountingLoader(
            npy_pipeline,
            index,
            weights="w",
            batch_size=data.draw(st.integers(1, num_rows + 3)),
            devices=[None] * data.draw(st.integers(1, 8)),
            num_read_processes=8,
        )
        if state is not None:
            loader.load_state_dict(state)
        for slots in islice(loader, data.draw(st.integers(1, 9))):
            delivered += slots
        state = loader.state_dict()
    places = [(epoch, position) for epoch in range(9) for position in range(num_rows)]
    assert sorted(delivered) == places[: len(delivered)]


@pytest.mark.parametrize("tail", ["partial", "fill"])
def test_five_rows_on_eight_shards(weighted: Index, tail: Any) -> None:
    few = weighted.select([5, 0, 8, 5, 1])
    with make_loader(few, 8, batch_size=2, tail=tail) as loader:
        ((*batches,),) = list(loader)
        rows = [row for batch in batches for row in batch["row"][batch["valid"]].tolist()]
        assert rows == [order_of(few, 0).row(0, position) for position in range(5)]
        assert set(rows) <= {0, 2, 3}
        assert loader.epoch == 1


def test_a_bad_row_is_left_out_each_time(weighted: Index, tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_text("no array")
    bad = Index.from_paths([tmp_path / "bad.npy"]).with_column("w", [40.0])
    index = Index.concat([weighted, bad])
    with make_loader(index, bad_sample="skip", seed=1) as loader:
        rows = [row for (batch,) in loader for row in batch["row"].tolist()]
    drawn = [order_of(index, 1).row(0, position) for position in range(24)]
    assert drawn.count(23) > 1
    assert rows == [row for row in drawn if row != 23]
    assert list(loader.stats.rejected) == [23]


class TestState:
    def test_it_has_the_digest_of_the_weights(self, weighted: Index) -> None:
        state = make_loader(weighted).state_dict()
        assert state["weights"] == weighted.running_weights("w").digest
        assert "weights" not in make_loader(weighted, weights=None).state_dict()

    def test_other_weights(self, weighted: Index) -> None:
        other = weighted.with_column("w", [2.0] * ROWS)
        loaders = [
            make_loader(weighted),
            make_loader(other),
            make_loader(weighted, weights=None, shuffle=False),
        ]
        for saved in loaders:
            for loader in loaders:
                if saved is loader:
                    loader.load_state_dict(saved.state_dict() | {"position": 3})
                    continue
                with pytest.raises(ValueError, match=r"the state was saved with .*the same weigh"):
                    loader.load_state_dict(saved.state_dict() | {"position": 5})
                assert loader.state_dict()["position"] in (0, 3)

    def test_doubled_weights_draw_the_same(self, weighted: Index) -> None:
        doubled = weighted.with_column("v", np.array(WEIGHTS) * 2)
        make_loader(doubled, weights="v").load_state_dict(make_loader(weighted).state_dict())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shuffle": False}, ValueError, "weights='w' draws rows at random: leave out shuffle=F"),
        ({"weights": "v"}, KeyError, "the Index has no column 'v': it has path, w"),
        ({"weights": "path"}, TypeError, "column 'path' is large_string, and weights are"),
        ({"weights": 3}, ValueError, "weights must be the name of a column, or None, got 3"),
    ],
)
def test_errors(weighted: Index, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make_loader(weighted, **options)


def test_a_pipeline_without_a_loader(weighted: Index) -> None:
    pipeline = npy_pipeline(weighted, batch_size=5, weights="w", seed=2, num_read_processes=0)
    pipeline.build()
    rows = pipeline.run()[pipeline.output_names.index("row")].as_array().tolist()
    pipeline.close()
    assert rows == [order_of(weighted, 2).row(0, position) for position in range(5)]
    with pytest.raises(ValueError, match="weights must be finite numbers from 0 on"):
        npy_pipeline(Index(pa.table({"path": ["/a"], "w": [-1]})), batch_size=1, weights="w")
