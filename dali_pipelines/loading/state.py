"""The saved state of a Loader, and the checks before one is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dali_pipelines.loading.cursor import Cursor
from dali_pipelines.values import shuffle_of
from readers.index.rows.weights import RunningWeights
from readers.index.table import Index
from readers.sampling.blocks import BLOCK_ROWS
from readers.sampling.order import VERSION
from readers.values import is_integer


def state_of(
    cursor: Cursor, index: Index, weights: RunningWeights | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the state of a Loader, plain values of Python alone."""
    state = {
        "version": VERSION,
        **order_of(settings),
        "epoch": cursor.epoch,
        "position": cursor.position,
        "digest": index.digest,
    }
    if weights is not None:
        state["weights"] = weights.digest
    if cursor.epoch_steps is not None:
        state["steps"], state["start"] = cursor.steps, list(cursor.start)
    return state


def order_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some settings, or of a state, that determine the order of the rows."""
    order = {"seed": int(settings["seed"]), "shuffle": shuffle_of("shuffle", settings["shuffle"])}
    if order["shuffle"] == "blocks":
        order["block_rows"] = int(settings.get("block_rows", BLOCK_ROWS))
    return order


def check_state(state: Any, index: Index, weights: RunningWeights | None = None) -> None:
    """Check every key of a state, so that a bad state changes nothing in a Loader.

    ValueError if a key is missing, of another type or out of range, or if the state was saved with
    another Index, other weights or another version of the order. Unknown keys are ignored.
    """
    if not isinstance(state, Mapping):
        raise ValueError(
            f"a state is the dict that state_dict() returned, got {type(state).__name__}"
        )
    missing = {"seed", "shuffle", "epoch", "position", "digest"} - set(state)
    if missing:
        raise ValueError(f"the state lacks {sorted(missing)}: give what state_dict() returned")
    _check_integer(state, "seed", 2**64 - 1)
    _check_integer(state, "epoch", 2**63 - 1)  # leaves room for further epochs
    if shuffle_of("shuffle of the state", state["shuffle"]) == "blocks":
        _check_integer({"block_rows": None, **state}, "block_rows", 2**63 - 1, 1)
    if not index.has_digest(state["digest"]):
        raise ValueError(
            "the state was saved with another Index (digest "
            f"{str(state['digest'])[:12]}, this one has {index.digest[:12]}): load the Index "
            "file of that run; a new scan may find other files, or another order"
        )
    _check_integer(state, "position", len(index))
    if "steps" in state:
        _check_integer(state, "steps", 2**63 - 1)
        _check_start(state.get("start", [0, 0, 0]), len(index))
    _check_version(state)
    _check_weights(state, weights)
    if weights is not None and state["shuffle"] is not True:
        raise ValueError(
            f"weights draw rows at random, and shuffle of the state is {state['shuffle']!r}: "
            "set True"
        )


def _check_integer(state: Mapping[str, Any], name: str, most: int, least: int = 0) -> None:
    value = state[name]
    if not is_integer(value, least) or int(value) > most:
        raise ValueError(
            f"{name} of the state must be an integer in [{least}, {most}], got {value!r}"
        )


def _check_start(start: Any, num_rows: int) -> None:
    most = (2**63 - 1, 2**63 - 1, num_rows)
    is_triple = isinstance(start, list | tuple) and len(start) == 3
    if not is_triple or not all(
        is_integer(value, 0) and int(value) <= limit
        for value, limit in zip(start, most, strict=True)
    ):
        raise ValueError(
            "start of the state must be three integers, the steps, pass and position where its "
            f"epoch begins, got {start!r}"
        )


def _check_version(state: Mapping[str, Any]) -> None:
    version = state.get("version", 1)  # the first release saved none
    if version == VERSION:
        return
    if not is_integer(version, VERSION):
        age, remedy = "an older", "continue with the release that saved it"
    else:
        age, remedy = "a newer", "install the release that saved it"
    raise ValueError(
        f"the state was saved by {age} release with another order of rows (version "
        f"{version!r}, here {VERSION}), so its position means other rows: {remedy}, or "
        f"{_again(state)}"
    )


def _check_weights(state: Mapping[str, Any], weights: RunningWeights | None) -> None:
    saved, found = state.get("weights"), None if weights is None else weights.digest
    if saved != found:
        raise ValueError(
            f"the state was saved with {_described(saved)}, and this Loader has "
            f"{_described(found)}, so its position means other rows: give the same weights, or "
            f"{_again(state)}"
        )


def _described(digest: Any) -> str:
    return "no weights" if digest is None else f"weights of digest {str(digest)[:12]}"


def _again(state: Mapping[str, Any]) -> str:
    return (
        "start its epoch again with load_state_dict({**loader.state_dict(), 'epoch': "
        f"{state['epoch']}}})"
    )
