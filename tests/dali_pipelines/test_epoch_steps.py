"""Epochs of a number of steps: each row once in a pass, in the pure order, whatever the epochs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting_loader import CountingLoader
from hypothesis import given
from hypothesis import strategies as st
from image_files import C8, pillow, undecodable_jpeg

from dali_pipelines import Index, Loader, jpeg_pipeline, npy_pipeline
from readers import Order, WeightedOrder

ROWS = 23


def make_loader(index: Index, shards: int = 1, **options: Any) -> Loader:
    options = {"batch_size": 4, "num_read_processes": shards, "epoch_steps": 3, **options}
    return Loader(npy_pipeline, index, devices=[None] * shards, **options)


def rows_of(steps: Any) -> list[int]:
    """Return the rows in the order of positions; all slots are valid, and have their pixels."""
    rows = []
    for batches in steps:
        for batch in batches:
            assert batch["valid"].all()
            assert batch["image"][:, 0, 0, 0].tolist() == batch["row"].tolist()
            rows += batch["row"].tolist()
    return rows


def stream(count: int, num_rows: int = ROWS, seed: int = 0, start: int = 0) -> list[int]:
    """Return the rows from a sample on, counted over all passes."""
    order = Order(num_rows, seed)
    return [order.row(*divmod(place, num_rows)) for place in range(start, start + count)]


@pytest.mark.parametrize(("shards", "batch_size", "steps"), [(1, 4, 3), (3, 2, 5), (2, 16, 1)])
@pytest.mark.parametrize("tail", ["partial", "fill", "drop"])
def test_epochs_follow_each_other(
    npy_index: Index, shards: int, batch_size: int, steps: int, tail: Any
) -> None:
    stride = shards * batch_size
    with make_loader(
        npy_index, shards, batch_size=batch_size, epoch_steps=steps, tail=tail, seed=4
    ) as loader:
        assert len(loader) == steps
        found = []
        for epoch in range(4):
            assert (loader.epoch, loader.step) == (epoch, 0)
            batches = list(loader)
            assert len(batches) == steps
            assert {len(batch["row"]) for step in batches for batch in step} == {batch_size}
            found += rows_of(batches)
        assert loader.epoch == 4
    assert found == stream(4 * steps * stride, seed=4)
    for start in range(0, len(found) - ROWS + 1, ROWS):
        assert sorted(found[start : start + ROWS]) == list(range(ROWS))


def test_five_rows_on_eight_shards(npy_index: Index) -> None:
    """A step takes three passes and a part of the next."""
    few = npy_index.select([4, 1, 3, 0, 2])
    with make_loader(few, 8, batch_size=2, epoch_steps=4, tail="drop", shuffle=True) as loader:
        rows = [row for step in loader for batch in step for row in batch["row"].tolist()]
        assert rows == stream(64, num_rows=5)
        assert loader.state_dict()["epoch"] == 12
        assert (loader.epoch, loader.step) == (1, 0)


def test_one_row(npy_index: Index) -> None:
    with make_loader(npy_index.select([0]), batch_size=3, epoch_steps=2) as loader:
        assert [rows_of(loader) for _ in range(2)] == [[0] * 6] * 2


@given(st.data(), st.integers(1, 30))
def test_resumed_with_other_steps(data: st.DataObject, num_rows: int) -> None:
    """And with epochs of other lengths, and none at all, if the state is of the end of a pass."""
    index = Index.from_paths([f"{row}.npy" for row in range(num_rows)])
    state: Any = None
    delivered: list[Any] = []
    steps_before = 0
    for _ in range(data.draw(st.integers(1, 6))):
        shards, batch_size = data.draw(st.integers(1, 8)), data.draw(st.integers(1, num_rows + 5))
        epoch_steps = data.draw(st.integers(1, 7))
        loader = CountingLoader(
            npy_pipeline,
            index,
            batch_size=batch_size,
            epoch_steps=epoch_steps,
            devices=[None] * shards,
            num_read_processes=8,
        )
        if state is not None:
            loader.load_state_dict(state)
        assert divmod(steps_before, epoch_steps) == (loader.epoch, loader.step)
        left = epoch_steps - loader.step
        taken = list(islice(loader, data.draw(st.integers(1, 9))))
        assert len(taken) <= left
        assert all(len(slots) == shards * batch_size for slots in taken)
        delivered += [slot for slots in taken for slot in slots]
        steps_before += len(taken)
        state = loader.state_dict()
    assert delivered == [divmod(place, num_rows) for place in range(len(delivered))]
    assert divmod(len(delivered), num_rows) == (state["epoch"], state["position"])


def first_slot(loader: CountingLoader) -> Any:
    """Take a step, and return (epoch, position) of its first sample."""
    return next(iter(loader))[0]


@given(st.data(), st.integers(1, 30), st.integers(1, 7))
def test_reset_after_other_steps(data: st.DataObject, num_rows: int, epoch_steps: int) -> None:
    """It goes to the first sample of the epoch, whatever sizes the steps before had."""
    index = Index.from_paths([f"{row}.npy" for row in range(num_rows)])
    state: Any = None
    place = start = 0  # of the next sample, and of the first of the epoch, counted over all passes
    for _ in range(data.draw(st.integers(1, 4))):
        loader = CountingLoader(
            npy_pipeline,
            index,
            batch_size=data.draw(st.integers(1, num_rows + 5)),
            epoch_steps=epoch_steps,
            devices=[None],
        )
        if state is not None:
            loader.load_state_dict(state)
        for _ in range(data.draw(st.integers(0, 9))):
            place += loader._config["batch_size"]
            next(iter(loader))
            if loader.step == 0:
                start = place
        state = loader.state_dict()
        loader.reset()
        assert (loader.epoch, loader.step) == (state["steps"] // epoch_steps, 0)
        assert first_slot(loader) == divmod(start, num_rows)
        loader.load_state_dict(state)
        loader.reset(loader.epoch + 1)
        left = epoch_steps - state["steps"] % epoch_steps
        following = place + left * loader._config["batch_size"]
        assert first_slot(loader) == divmod(following, num_rows)
        loader.reset(0)
        assert first_slot(loader) == (0, 0)


def test_break_and_resume_with_other_shards(npy_index: Index) -> None:
    """In the middle of an epoch that reaches into the next pass; windows and flips as well."""
    options: dict[str, Any] = {"epoch_steps": 4, "seed": 9}
    with make_loader(npy_index, 2, **options) as first:
        found = rows_of(islice(first, 3))  # 24 samples: the first of pass 1 is the last of them
        state = first.state_dict()
        assert (first.epoch, first.step, state["epoch"], state["position"]) == (0, 3, 1, 1)
        found_after = rows_of(first) + rows_of(first)
    with make_loader(npy_index, batch_size=7, seed=1, epoch_steps=4) as second:
        second.load_state_dict(state)
        rest = rows_of(second)
        assert len(rest) == 7  # one of 4 steps was left
        assert second.epoch == 1
        rest += rows_of(second)
    assert found == stream(24, seed=9)
    assert found_after == stream(40, seed=9, start=24)
    assert rest == stream(35, seed=9, start=24)


def test_windows_are_those_of_whole_epochs(tmp_path: Path) -> None:
    for row in range(5):
        np.save(tmp_path / f"{row}.npy", np.random.default_rng(row).random((32, 32), np.float32))
    index = Index.scan(tmp_path)
    options: dict[str, Any] = {"crop": 8, "window": "random", "flip": "hv", "seed": 2}
    with make_loader(index, epoch_steps=None, **options) as loader:
        whole = [image.numpy() for _ in range(3) for (batch,) in loader for image in batch["image"]]
    with make_loader(index, batch_size=5, epoch_steps=3, **options) as loader:
        cut = [image.numpy() for (batch,) in loader for image in batch["image"]]
    assert np.array_equal(whole, cut)


def test_restarted_in_the_middle(npy_index: Index) -> None:
    """After a reader has died, in a step that reaches into the next pass."""
    weighted = npy_index.with_column("w", range(ROWS))
    order = WeightedOrder(weighted.running_weights("w"), 3)
    with make_loader(
        weighted, 2, epoch_steps=5, restart_readers=1, weights="w", seed=3, prefetch=1
    ) as loader:
        steps = iter(loader)
        found = rows_of(islice(steps, 2))
        loader.pipelines[0].processes()[0].kill()
        found += rows_of(steps) + rows_of(loader)
        assert loader.stats.restarts == 1
    assert found == [order.row(*divmod(place, ROWS)) for place in range(80)]


@pytest.mark.parametrize("tail", ["partial", "fill"])
def test_bad_rows(npy_index: Index, tmp_path: Path, tail: Any) -> None:
    """They are left out of each pass; with tail `fill` others stand in their slots."""
    (tmp_path / "bad.npy").write_text("no array")
    index = Index.concat([npy_index, Index.from_paths([tmp_path / "bad.npy"])])
    with make_loader(index, 2, epoch_steps=9, bad_sample="skip", tail=tail) as loader:
        slots = [batch for batches in loader for batch in batches]
    rows = [row for batch in slots for row in batch["row"][batch["valid"]].tolist()]
    assert rows == [row for row in stream(72, num_rows=24) if row != 23]
    if tail == "fill":
        assert {len(batch["row"]) for batch in slots} == {4}
    (bad,) = loader.stats.rejected.values()
    assert bad.row == 23
    assert (bad.epoch, bad.step) == (0, stream(24, num_rows=24).index(23) // 8)


@pytest.mark.parametrize("tail", ["partial", "fill"])
@pytest.mark.parametrize("num_epochs", [None, 2])
def test_what_only_the_graph_rejects(tmp_path: Path, tail: Any, num_epochs: int | None) -> None:
    """In a batch that reaches into the next pass, and up to the last of all steps."""
    for row in range(5):
        content = undecodable_jpeg() if row == 0 else pillow(C8, "JPEG")
        (tmp_path / f"{row}.jpg").write_bytes(content)
    with Loader(
        jpeg_pipeline,
        Index.scan(tmp_path),
        batch_size=4,
        num_read_processes=2,
        devices=[None, None],
        shuffle=False,
        crop=16,
        tail=tail,
        bad_sample="skip",
        epoch_steps=2,
        num_epochs=num_epochs,
    ) as loader:
        found = [batch for _ in range(2) for batches in loader for batch in batches]
    rows = [row for batch in found for row in batch["row"][batch["valid"]].tolist()]
    assert rows == [place % 5 for place in range(32) if place % 5]
    assert list(loader.stats.rejected) == [0]


def test_num_epochs(npy_index: Index) -> None:
    """Counts epochs of that many steps; nothing is read after them."""
    with make_loader(npy_index, epoch_steps=2, num_epochs=3) as loader:
        assert [len(rows_of(loader)) for _ in range(3)] == [8, 8, 8]
        with pytest.raises(RuntimeError, match="all num_epochs=3 epochs were delivered"):
            list(loader)
        state = loader.state_dict()
    (pipeline,) = make_loader(
        npy_index, epoch_steps=2, num_epochs=4, bad_sample="skip"
    ).make_pipelines()
    counts = [pipeline.source(_Info(count))[-2] for count in (31, 32, 400)]
    assert [bool(valid) for valid in counts] == [True, False, False]
    resumed = make_loader(npy_index, epoch_steps=2, num_epochs=4)
    resumed.load_state_dict(state)
    (pipeline,) = resumed.make_pipelines()
    assert [bool(pipeline.source(_Info(count))[-2]) for count in (7, 8)] == [True, False]


class _Info:
    def __init__(self, count: int) -> None:
        self.idx_in_epoch = count


def test_with_weights(npy_index: Index) -> None:
    weighted = npy_index.with_column("w", [0, 1] * 11 + [5])
    order = WeightedOrder(weighted.running_weights("w"), 6)
    with make_loader(weighted, 2, weights="w", epoch_steps=4, seed=6) as loader:
        assert rows_of(loader) == [order.row(*divmod(place, ROWS)) for place in range(32)]


class TestState:
    def test_of_a_loader_of_whole_epochs(self, npy_index: Index) -> None:
        """As one saved by an older release: it continues at the sample, and in its epoch."""
        state = make_loader(npy_index, epoch_steps=None).state_dict()
        assert "steps" not in state
        with make_loader(npy_index, epoch_steps=3) as loader:
            loader.load_state_dict(state | {"epoch": 5, "position": 20})
            assert (loader.epoch, loader.step) == (5, 0)
            assert rows_of(loader) == stream(12, start=5 * ROWS + 20)
            assert loader.epoch == 6

    def test_its_pass_becomes_the_epoch(self, npy_index: Index) -> None:
        """Which begins where that Loader's did."""
        state = make_loader(npy_index, epoch_steps=None).state_dict()
        with make_loader(npy_index, epoch_steps=3) as loader:
            loader.load_state_dict(state | {"epoch": 5, "position": 20})
            loader.reset()
            assert rows_of(loader) == stream(12, start=5 * ROWS)

    @pytest.mark.parametrize("steps", [1, 3, 5])
    def test_of_a_release_that_saved_no_start(self, npy_index: Index, steps: int) -> None:
        with make_loader(npy_index, epoch_steps=3) as loader:
            loader.reset(steps // 3)
            taken = list(islice(loader, steps % 3))
            state = loader.state_dict()
        assert len(taken) == steps % 3
        del state["start"]
        with make_loader(npy_index, epoch_steps=3) as loader:
            loader.load_state_dict(state)
            loader.reset()
            assert rows_of(loader) == stream(12, start=steps // 3 * 12)

    def test_in_a_loader_of_whole_epochs(self, npy_index: Index) -> None:
        with make_loader(npy_index, epoch_steps=3) as loader:
            for _ in range(4):
                rows_of(loader)
            state = loader.state_dict()
        assert {**state, "digest": "", "preprocess": ""} == {
            "version": 2, "seed": 0, "shuffle": True, "epoch": 2, "position": 2, "digest": "",
            "steps": 12, "start": [12, 2, 2], "preprocess": "",
        }  # fmt: skip
        with make_loader(npy_index, epoch_steps=None) as loader:
            loader.load_state_dict(state)
            assert rows_of(loader) == stream(21, start=48)
            assert loader.epoch == 3

    def test_the_rest_of_an_epoch_can_be_left_out(self, npy_index: Index) -> None:
        with make_loader(npy_index, epoch_steps=3) as loader:
            first = rows_of(islice(loader, 1))
            loader.load_state_dict(
                {**loader.state_dict(), "steps": (loader.epoch + 1) * len(loader)}
            )
            assert (loader.epoch, loader.step) == (1, 0)
            assert first + rows_of(loader) == stream(16)

    @pytest.mark.parametrize("steps", [-1, 1.5, "3", None, True, 2**63])
    def test_steps_that_make_no_sense(self, npy_index: Index, steps: Any) -> None:
        loader = make_loader(npy_index)
        with pytest.raises(ValueError, match=r"steps of the state must be an integer in \[0, "):
            loader.load_state_dict({**loader.state_dict(), "steps": steps})
        assert loader.state_dict()["steps"] == 0

    @pytest.mark.parametrize(
        "start", [0, "000", None, [0, 0], [0, 0, 0, 0], [0, 0, -1], [0, 1.0, 0], [0, 0, ROWS + 1]]
    )
    def test_a_start_that_makes_no_sense(self, npy_index: Index, start: Any) -> None:
        loader = make_loader(npy_index)
        with pytest.raises(ValueError, match="start of the state must be three integers, "):
            loader.load_state_dict({**loader.state_dict(), "steps": 1, "start": start})
        assert loader.state_dict()["steps"] == 0


@pytest.mark.parametrize("steps", [0, -1, 1.5, "3", True])
def test_errors(npy_index: Index, steps: Any) -> None:
    with pytest.raises(ValueError, match="epoch_steps must be an integer, at least 1, got"):
        make_loader(npy_index, epoch_steps=steps)


def test_the_loader_sets_the_first_step_itself(npy_index: Index) -> None:
    with pytest.raises(TypeError, match="a Loader sets first_step of its pipelines itself"):
        make_loader(npy_index, first_step=3)
