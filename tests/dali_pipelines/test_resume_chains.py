"""Resumed again and again, with other steps each time: every row once, and never without a step."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any, cast

import pytest
from counting_loader import CountingLoader
from hypothesis import given
from hypothesis import strategies as st

from dali_pipelines import Index, Loader, npy_pipeline
from readers.sampling.schedule import Schedule
from readers.sampling.shard import Shard

INDICES = {rows: Index.from_paths([f"{row}.npy" for row in range(rows)]) for rows in range(1, 31)}


@st.composite
def legs(draw: st.DrawFn, num_rows: int) -> list[tuple[int, int, str, int]]:
    """Return shards, batch size, tail and number of steps of each leg of a run."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        tail = draw(st.sampled_from(["partial", "fill", "drop"]))
        batch_size = draw(st.integers(1, num_rows if tail == "drop" else num_rows + 3))
        shards = draw(st.integers(1, num_rows // batch_size if tail == "drop" else 4))
        found.append((shards, batch_size, tail, draw(st.integers(1, 12))))
    return found


@given(st.data(), st.sampled_from(sorted(INDICES)))
def test_every_row_once_however_often_it_is_resumed(data: st.DataObject, num_rows: int) -> None:
    state, delivered, dropping = None, Counter[tuple[int, int]](), set()
    for shards, batch_size, tail, steps in data.draw(legs(num_rows)):
        loader = CountingLoader(
            npy_pipeline,
            INDICES[num_rows],
            batch_size=batch_size,
            tail=tail,
            devices=[None] * shards,
        )
        if state is not None:
            loader.load_state_dict(state)
            if loader.epoch > state["epoch"]:  # less than a step was left
                assert tail == "drop"
                dropping.add(state["epoch"])
                assert num_rows - state["position"] < shards * batch_size
        while steps:
            epoch = loader.epoch
            taken = 0
            for slots in islice(cast("Any", loader), steps):
                assert {slot_epoch for slot_epoch, _ in slots} == {epoch}
                delivered.update(slots)
                taken += 1
            assert taken > 0
            steps -= taken
            if tail == "drop":
                dropping.add(epoch)
        state = loader.state_dict()
    assert set(delivered.values()) == {1}
    for epoch in range(state["epoch"]):  # type: ignore[index]
        missing = num_rows - sum(number == epoch for number, _ in delivered)
        assert missing == 0 or epoch in dropping
    begun = sorted(place for number, place in delivered if number == state["epoch"])  # type: ignore[index]
    assert begun == list(range(state["position"]))  # type: ignore[index]


def test_drop_goes_on_with_the_next_epoch(npy_index: Index) -> None:
    """23 rows: after 5 steps of 4 are 3 left, less than a step of 6."""
    first = CountingLoader(npy_pipeline, npy_index, batch_size=4, tail="drop", devices=[None])
    assert len(list(islice(first, 5))) == 5
    assert first.state_dict()["epoch"] == 1
    state = first.state_dict() | {"epoch": 0, "position": 20}
    second = CountingLoader(npy_pipeline, npy_index, batch_size=6, tail="drop", devices=[None])
    second.load_state_dict(state)
    assert (second.epoch, second.step) == (1, 0)
    assert [len(list(second)) for _ in range(3)] == [3, 3, 3]
    assert second.epoch == 4


@pytest.mark.parametrize("tail", ["partial", "fill"])
def test_a_batch_larger_than_the_index(npy_index: Index, tail: Any) -> None:
    few = npy_index.select([3, 1, 4])
    with Loader(
        npy_pipeline, few, batch_size=8, tail=tail, devices=[None, None], num_read_processes=2
    ) as loader:
        for _ in range(2):
            ((first, second),) = list(loader)
            rows = first["row"][first["valid"]].tolist()
            assert sorted(rows) == [0, 1, 2]
            assert second["valid"].sum() == 0
            expected = (8, 8) if tail == "fill" else (3, 0)
            assert (len(first["row"]), len(second["row"])) == expected
            pixels = first["image"][:, 0, 0, 0].tolist()
            assert pixels == [[3, 1, 4][row] for row in first["row"].tolist()]


def test_drop_refuses_a_step_larger_than_the_index(npy_index: Index) -> None:
    with pytest.raises(ValueError, match=r"tail 'drop' leaves nothing: a step takes 24 rows"):
        Loader(npy_pipeline, npy_index, batch_size=8, tail="drop", devices=[None] * 3)


def test_schedules_and_the_loader_agree_on_the_number_of_steps(npy_index: Index) -> None:
    for tail in ("partial", "fill", "drop"):
        loader = CountingLoader(npy_pipeline, npy_index, batch_size=5, tail=tail, devices=[None])
        schedule = Schedule(num_rows=23, shard=Shard(), batch_size=5, tail=tail)
        assert len(loader) == schedule.steps(0) == len(list(loader))
