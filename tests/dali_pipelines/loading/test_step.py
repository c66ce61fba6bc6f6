"""A step of a Loader: a list of batches, which answers for its only one."""

from __future__ import annotations

import copy
import logging
import pickle
from typing import Any

import numpy as np
import pytest

from dali_pipelines import Index, Loader, Step, npy_pipeline


def loader(index: Index, **settings: Any) -> Loader:
    given: dict[str, Any] = {"batch_size": 4, "num_read_processes": 1, "devices": "cpu"}
    return Loader(npy_pipeline, index, **{**given, **settings})


def test_with_one_device_its_keys_are_those_of_the_batch(npy_index: Index) -> None:
    with loader(npy_index) as batches:
        for step in batches:
            assert isinstance(step, Step)
            assert len(step) == 1
            assert step["image"] is step[0]["image"]
            (batch,) = step
            assert batch["row"].tolist() == step["row"].tolist()
            assert "image" in step
            assert "target" not in step
            with pytest.raises(KeyError, match=r"'imgae'.*did you mean image.*row"):
                step["imgae"]


def test_with_one_device_it_is_used_like_the_dict(npy_index: Index) -> None:
    with loader(npy_index) as batches:
        step = next(iter(batches))
    (batch,) = step
    assert dict(step) == {**step} == batch
    assert {name: type(value) for name, value in step.items()} == {
        name: type(value) for name, value in zip(step.keys(), step.values(), strict=True)
    }
    assert step.get("row") is batch["row"]
    assert step.get("target", 3) == 3
    step["image"] = step["image"] * 2
    step["extra"] = 5
    assert step["image"] is batch["image"]
    assert step["extra"] == batch["extra"] == 5
    step[0] = {"image": 7}
    assert step["image"] == 7


def test_with_several_devices_it_says_how_to_take_one(npy_index: Index) -> None:
    with loader(npy_index, devices=["cpu", "cpu"], num_read_processes=2) as batches:
        step = next(iter(batches))
        assert [*map(len, (step, step[:1]))] == [2, 1]
        with pytest.raises(TypeError, match=r"2 batches.*batch\[0\]\['image'\]"):
            step["image"]
        with pytest.raises(TypeError, match=r"2 batches.*batch\[0\]\['image'\]"):
            step["image"] = 0
        for name in ("keys", "values", "items"):
            with pytest.raises(TypeError, match=rf"2 batches.*batch\[0\]\.{name}\(\)"):
                getattr(step, name)()


def test_it_knows_its_epoch_and_step(npy_index: Index) -> None:
    """Those of the Loader are of the next one."""
    seen = []
    with loader(npy_index, num_epochs=2) as batches:
        for _ in range(2):
            seen += [(step.epoch, step.step, batches.epoch, batches.step) for step in batches]
    count = len(seen) // 2
    assert [each[:2] for each in seen] == [(e, s) for e in range(2) for s in range(count)]
    assert [each[2:] for each in seen[:-1]] == [each[:2] for each in seen[1:]]


def test_copies_and_pickles() -> None:
    step = Step([{"image": np.arange(3)}], 4, 5)
    for again in (copy.copy(step), copy.deepcopy(step), pickle.loads(pickle.dumps(step))):
        assert (type(again), again.epoch, again.step) == (Step, 4, 5)
        assert again["image"].tolist() == [0, 1, 2]
    assert type(step)(list(step))["image"] is step["image"]  # as libraries rebuild lists


def test_a_state_that_replaces_a_chosen_seed(
    npy_index: Index, caplog: pytest.LogCaptureFixture
) -> None:
    state = loader(npy_index).state_dict()
    with caplog.at_level(logging.WARNING):
        loader(npy_index).load_state_dict(state)
        loader(npy_index, mode="eval").load_state_dict(state)
        assert not caplog.messages
        loader(npy_index, shuffle=False).load_state_dict(state)
        other = loader(npy_index, seed=9)
        other.load_state_dict(state)
    of_shuffle, of_seed = caplog.messages
    assert "shuffle True" in of_shuffle
    assert "seed 0" in of_seed
    assert "9" in of_seed
    assert other.state_dict()["seed"] == 0


def test_a_loader_says_where_it_is(npy_index: Index) -> None:
    with loader(npy_index) as batches:
        assert repr(batches) == "<Loader of npy_pipeline: 23 rows, next is epoch 0, step 0 of 6>"
        next(iter(batches))
        assert "epoch 0, step 1 of 6" in repr(batches)
