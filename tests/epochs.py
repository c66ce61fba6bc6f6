"""Epochs by row, and that they do not depend on how they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_pipelines import Index, Loader
from readers import Order

SEED = 5
Samples = dict[int, dict[str, NDArray[Any]]]

HOW = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 6),
        "num_shards": st.integers(1, 3),
        "num_read_processes": st.sampled_from((0, 0, 1, 2)),
        "position": st.integers(0, 5),
    }
)
"""Settings on which samples must not depend; `position` is where an epoch is resumed."""


def check_pure(
    read: Callable[..., Samples], how: Mapping[str, int], expected: Samples, **settings: Any
) -> None:
    """Read the rest of an epoch in all shards: each row once, and bit by bit as expected.

    `read` returns the valid samples of a pipeline with some settings, by row.
    """
    found: Samples = {}
    for shard in range(how["num_shards"]):
        part = read(**{"seed": SEED, **settings, **how}, shard_id=shard)
        assert not part.keys() & found.keys(), "two shards read the same row"
        found |= part
    order = Order(len(expected), seed=SEED)
    rest = [order.row(0, place) for place in range(how["position"], len(expected))]
    check_equal(found, {row: expected[row] for row in rest})


def check_equal(found: Samples, expected: Samples) -> None:
    """Compare all outputs, but that of how long reading took."""
    assert sorted(found) == sorted(expected)
    for row, sample in expected.items():
        for name in sample.keys() - {"report"}:
            label = f"{name} of row {row}"
            np.testing.assert_array_equal(found[row][name], sample[name], label, strict=True)


def new_loader(factory: Callable[..., Any], index: Index, **settings: Any) -> Loader:
    own = {"batch_size": 3, "num_read_processes": 1, "devices": [None], "seed": SEED}
    return Loader(factory, index, **{**own, **settings})


def by_row(steps: Iterable[list[dict[str, Any]]]) -> Samples:
    """Return the valid samples of some steps, in the order in which they came; none comes twice."""
    found: Samples = {}
    for batch in (batch for step in steps for batch in step):
        for slot, row in enumerate(batch["row"].tolist()):
            if batch["valid"][slot]:
                assert row not in found, f"row {row} came twice"
                found[row] = {name: np.asarray(values[slot]) for name, values in batch.items()}
    return found


def in_turns(
    factory: Callable[..., Any], index: Index, turns: Sequence[Mapping[str, Any]], **settings: Any
) -> Samples:
    """Read an epoch by Loaders of other settings each, which resume after a step of the last."""
    state: Any = None
    found: Samples = {}
    for number, turn in enumerate(turns, 1):
        with new_loader(factory, index, **{**settings, **turn}) as loader:
            if state is not None:
                loader.load_state_dict(state)
            part = by_row(loader if number == len(turns) else [next(iter(loader))])
            state = json.loads(json.dumps(loader.state_dict()))
        assert not part.keys() & found.keys(), "a row came again after the resume"
        found |= part
    return found
