"""What a Loader accepts as its state; what it refuses changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_pipelines import Index, Loader, npy_pipeline
from readers.index import schema
from readers.sampling.order import VERSION


@pytest.fixture
def loader(npy_index: Index) -> Loader:
    return Loader(npy_pipeline, npy_index, batch_size=4, devices=[None], seed=7)


REFUSED = [
    *(
        ({"position": value}, "position of the state must be an integer in [0, 23], got ")
        for value in (-1, 24, "3", 2.0, True, None)
    ),
    *(
        ({"epoch": value}, f"epoch of the state must be an integer in [0, {2**63 - 1}], got ")
        for value in (-1, 2**63, 1.0, "0", False, None)
    ),
    *(
        ({"seed": value}, f"seed of the state must be an integer in [0, {2**64 - 1}], got ")
        for value in (-1, 2**64, 1.5, "x", True, None)
    ),
    *(
        ({"shuffle": value}, "shuffle of the state must be True, False or 'blocks', got ")
        for value in ("no", 1, None)
    ),
    *(
        (
            {"shuffle": "blocks", "block_rows": value},
            f"block_rows of the state must be an integer in [1, {2**63 - 1}], got ",
        )
        for value in (0, 2.0, None)
    ),
    *(({"digest": value}, "saved with another Index (digest ") for value in (None, 5, "", "abc")),
    *(
        ({"version": value}, "saved by an older release with another order of rows")
        for value in (1, 0, "2", None, True)
    ),
    ({"version": VERSION + 1}, "a newer release with another order of rows (version 3, "),
    ({"version": 1, "epoch": 5}, "{**loader.state_dict(), 'epoch': 5}"),
]


@pytest.mark.parametrize("by", ["scan", "moved"])
def test_a_moved_archive_goes_on(tmp_path: Path, by: str) -> None:
    """A state of an older release, which has the digest of whole paths, goes on where it was."""
    for number in range(8):
        (tmp_path / f"job1/{number % 2}").mkdir(parents=True, exist_ok=True)
        np.save(
            tmp_path / f"job1/{number % 2}/{number}.npy", np.full((4, 4, 1), number, np.float32)
        )
    index = Index.scan(tmp_path / "job1")
    settings: Any = {"batch_size": 2, "num_read_processes": 1, "devices": [None], "seed": 3}
    with Loader(npy_pipeline, index, **settings) as first:
        seen = next(iter(first))[0]["row"].tolist()
        state = first.state_dict()
    old = state | {"digest": schema.digest(index.table, whole_paths=True)}
    Loader(npy_pipeline, index, **settings).load_state_dict(old)
    (tmp_path / "job1").rename(tmp_path / "job2")
    there = tmp_path / "job2"
    moved = Index.scan(there) if by == "scan" else index.moved(tmp_path / "job1", there)
    second = Loader(npy_pipeline, moved, **settings)
    with pytest.raises(ValueError, match="another Index"):
        second.load_state_dict(old)
    second.load_state_dict(state)
    with second:
        seen += [row for (batch,) in second for row in batch["row"].tolist()]
    assert sorted(seen) == list(range(8))


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_refused_and_nothing_changed(loader: Loader, change: dict[str, Any], reason: str) -> None:
    before = loader.state_dict()
    with pytest.raises(ValueError, match=re.escape(reason)):
        loader.load_state_dict({**before, "seed": 1, "epoch": 2, "position": 8} | change)
    assert loader.state_dict() == before
    assert (loader.epoch, loader.step) == (0, 0)


def test_weights_and_no_shuffle(npy_index: Index) -> None:
    weighted = npy_index.with_column("w", range(23))
    loader = Loader(npy_pipeline, weighted, batch_size=4, devices=[None], weights="w")
    before = loader.state_dict()
    with pytest.raises(ValueError, match="weights draw rows at random, and shuffle of the state"):
        loader.load_state_dict({**before, "shuffle": False})
    with pytest.raises(ValueError, match="shuffle of the state is 'blocks': set True"):
        loader.load_state_dict({**before, "shuffle": "blocks", "block_rows": 2})
    assert loader.state_dict() == before


@pytest.mark.parametrize("name", ["seed", "shuffle", "epoch", "position", "digest"])
def test_a_key_that_is_missing(loader: Loader, name: str) -> None:
    state = loader.state_dict()
    del state[name]
    with pytest.raises(ValueError, match=rf"the state lacks \['{name}'\]"):
        loader.load_state_dict(state)


def test_a_state_of_before_there_was_a_version(loader: Loader) -> None:
    state = loader.state_dict()
    del state["version"]
    with pytest.raises(ValueError, match=r"an older release .* \(version 1, here 2\)"):
        loader.load_state_dict(state)


@pytest.mark.parametrize("state", [None, 1, "state", [("seed", 0)]])
def test_what_is_no_dict(loader: Loader, state: Any) -> None:
    with pytest.raises(ValueError, match=r"the dict that state_dict\(\) returned, got "):
        loader.load_state_dict(state)


def test_a_state_goes_through_json(npy_index: Index) -> None:
    settings: dict[str, Any] = {"batch_size": 4, "devices": [None]}
    seed: Any = np.uint64(2**64 - 1)
    made = Loader(npy_pipeline, npy_index, **settings, seed=seed)
    state = json.loads(json.dumps(made.state_dict()))
    other = Loader(npy_pipeline, npy_index, **settings)
    other.load_state_dict(state | {"epoch": 3, "position": 23})
    assert (other.epoch, other.step) == (4, 0)  # nothing is left of epoch 3
