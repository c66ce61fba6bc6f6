"""What a Loader accepts as its state; what it refuses changes nothing."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from read_here import in_this_process

from dali_pipelines import Index, Loader, npy_pipeline
from readers.sampling.order import VERSION

SETTINGS: dict[str, Any] = {"batch_size": 4, "num_read_processes": 1, "devices": [None]}

WRONG: list[tuple[str, str, list[Any]]] = [
    ("position", r"integer in \[0, 23\]", [-1, 24, "3", 2.0, True, None]),
    ("epoch", r"integer in \[0, \d{19}\]", [-1, 2**63, 1.0, False]),
    ("seed", r"integer in \[0, \d{20}\]", [-1, 2**64, "x", True]),
    ("steps", r"integer in \[0, \d{19}\]", [-1, 2**63, 1.5, True, None]),
    ("start", "three integers", [0, "000", None, [0, 0], [0, 0, -1], [0, 1.0, 0], [0, 0, 24]]),
    ("shuffle", "True, False, 'blocks' or", ["no", 1, None]),
    ("block_rows", r"integer in \[1, \d{19}\]", [0, 2.0]),
    ("digest", "another Index.*load the Index file", [None, 5, "", "abc"]),
    ("version", "an older release.*continue with the release", [1, 0, "2", None, True]),
    ("version", "a newer release.*install the release", [VERSION + 1]),
]


@pytest.mark.parametrize(
    ("name", "message", "value"),
    [(name, message, value) for name, message, values in WRONG for value in values],
)
def test_refused_and_nothing_changed(
    npy_index: Index, name: str, message: str, value: object
) -> None:
    loader = Loader(npy_pipeline, npy_index, epoch_steps=3, seed=7, **SETTINGS)
    before = loader.state_dict()
    shuffle = "blocks" if name == "block_rows" else True
    state = {**before, "seed": 1, "epoch": 2, "position": 8, "shuffle": shuffle, name: value}
    said = name if name not in ("digest", "version") else ""
    with pytest.raises(ValueError, match=f"{said}.*{message}"):
        loader.load_state_dict(state)
    assert loader.state_dict() == before
    assert (loader.epoch, loader.step) == (0, 0)


@pytest.mark.parametrize("name", ["version", "seed", "shuffle", "epoch", "position", "digest"])
def test_a_key_that_is_missing(npy_index: Index, name: str) -> None:
    loader = Loader(npy_pipeline, npy_index, **SETTINGS)
    state = loader.state_dict()
    del state[name]
    with pytest.raises(ValueError, match=rf"lacks \['{name}'\].*state_dict"):
        loader.load_state_dict(state)


def test_another_order_of_rows_tells_how_to_begin_its_epoch_again(npy_index: Index) -> None:
    loader = Loader(npy_pipeline, npy_index, **SETTINGS)
    state = loader.state_dict() | {"epoch": 5, "version": 1}
    with pytest.raises(ValueError, match=r"version 1, here 2.*\*\*loader.state_dict\(\).*5"):
        loader.load_state_dict(state)


@pytest.mark.parametrize("state", [None, 1, "state", [("seed", 0)]])
def test_what_is_no_dict(npy_index: Index, state: Any) -> None:
    with pytest.raises(ValueError, match=f"dict.*state_dict.*got {type(state).__name__}"):
        Loader(npy_pipeline, npy_index, **SETTINGS).load_state_dict(state)


@pytest.mark.parametrize("order", [{"shuffle": False}, {"shuffle": "blocks", "block_rows": 2}])
def test_weights_draw_at_random(npy_index: Index, order: dict[str, Any]) -> None:
    weighted = npy_index.with_column("w", range(23))
    loader = Loader(npy_pipeline, weighted, weights="w", **SETTINGS)
    before = loader.state_dict()
    with pytest.raises(ValueError, match=f"{order['shuffle']!r}.*weights.*set it to True"):
        loader.load_state_dict({**before, **order})
    assert loader.state_dict() == before


ORDERS: list[dict[str, Any]] = [
    {"shuffle": False},
    {"shuffle": True},
    *({"shuffle": how, "block_rows": rows} for how in ("blocks", "buckets") for rows in (2, 3)),
]


@pytest.mark.parametrize("own", ORDERS, ids=str)
def test_a_state_replaces_the_order_of_a_loader(npy_index: Index, own: dict[str, Any]) -> None:
    """Each row of the epoch comes once, and the next epoch is that of the first Loader, too."""
    factory = partial(in_this_process, npy_pipeline)

    def make(**order: Any) -> Loader:
        return Loader(factory, npy_index, **SETTINGS, **order)

    def rows(loader: Loader) -> list[int]:
        return [row for _ in range(2) for (batch,) in loader for row in batch["row"].tolist()]

    with make(seed=7, **own) as first:
        seen = next(iter(first))[0]["row"].tolist()
        state = json.loads(json.dumps(first.state_dict()))
        expected = seen + rows(first)
    for other in ORDERS:
        with make(seed=8, **other) as second:
            second.load_state_dict(state)
            assert second.state_dict() == state
            assert seen + rows(second) == expected
    assert sorted(expected[:23]) == sorted(expected[23:]) == [*range(23)]


def test_steps_are_counted_from_a_state_without_them(npy_index: Index) -> None:
    """The pass of the state becomes the epoch, and the rows go on where they were."""
    factory = partial(in_this_process, npy_pipeline)
    with Loader(factory, npy_index, seed=7, **SETTINGS) as first:
        passes = [[batch["row"].tolist() for (batch,) in first] for _ in range(3)]
    with Loader(factory, npy_index, seed=7, **SETTINGS) as other:
        for _ in range(2):
            list(other)
        next(iter(other))
        state = other.state_dict()
    rest = [row for rows in passes[2][1:] for row in rows]
    with Loader(factory, npy_index, epoch_steps=3, **SETTINGS) as counted:
        counted.load_state_dict(state)
        assert (counted.epoch, counted.step) == (2, 0)
        steps = [(step.epoch, step.step, step[0]["row"].tolist()) for step in counted]
        assert [one[:2] for one in steps] == [(2, 0), (2, 1), (2, 2)]
        assert [row for *_, rows in steps for row in rows] == rest[:12]
        assert (counted.epoch, counted.step) == (3, 0)


@pytest.mark.parametrize("by", ["scan", "moved"])
def test_a_moved_archive_goes_on(tmp_path: Path, by: str) -> None:
    for number in range(8):
        (tmp_path / f"job1/{number % 2}").mkdir(parents=True, exist_ok=True)
        np.save(
            tmp_path / f"job1/{number % 2}/{number}.npy", np.full((4, 4, 1), number, np.float32)
        )
    index = Index.scan(tmp_path / "job1")
    with Loader(npy_pipeline, index, seed=3, **SETTINGS) as first:
        seen = next(iter(first))[0]["row"].tolist()
        state = first.state_dict()
    (tmp_path / "job1").rename(tmp_path / "job2")
    there = tmp_path / "job2"
    moved = Index.scan(there) if by == "scan" else index.moved(tmp_path / "job1", there)
    second = Loader(npy_pipeline, moved, **SETTINGS)
    second.load_state_dict(state)
    with second:
        seen += [row for (batch,) in second for row in batch["row"].tolist()]
    assert sorted(seen) == list(range(8))


def test_a_state_goes_through_json_and_torch(npy_index: Index, tmp_path: Path) -> None:
    seed: Any = np.uint64(2**64 - 1)
    made = Loader(npy_pipeline, npy_index, seed=seed, **SETTINGS)
    state = json.loads(json.dumps(made.state_dict()))
    torch.save(state, tmp_path / "loader.pt")
    other = Loader(npy_pipeline, npy_index, **SETTINGS)
    other.load_state_dict(torch.load(tmp_path / "loader.pt") | {"epoch": 3, "position": 23})
    assert (other.epoch, other.step) == (4, 0)  # nothing is left of epoch 3
    assert other.state_dict()["seed"] == seed
