"""A Loader is for one thread at a time: others get an error, and nothing is lost or repeated."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from counting_loader import CountingLoader

from dali_pipelines import Index, Loader, npy_pipeline

SETTINGS: dict[str, Any] = {"batch_size": 4, "devices": [None], "shuffle": False}


def steps_of(loader: Loader) -> list[Any]:
    return list(loader)


@pytest.mark.parametrize(
    "use",
    [
        lambda loader, loop: next(loop),
        lambda loader, loop: next(iter(loader)),
        lambda loader, loop: loader.start(),
        lambda loader, loop: loader.reset(1),
        lambda loader, loop: loader.load_state_dict(loader.state_dict()),
    ],
    ids=["same loop", "other loop", "start", "reset", "load_state_dict"],
)
def test_a_second_thread_gets_an_error_and_the_first_goes_on(
    npy_index: Index, use: Callable[[Loader, Any], object]
) -> None:
    loader = CountingLoader(npy_pipeline, npy_index, **SETTINGS)
    expected = steps_of(CountingLoader(npy_pipeline, npy_index, **SETTINGS))
    waits, go_on = threading.Event(), threading.Event()
    tried_step = loader._running._tried_step

    def wait_and_step() -> Any:
        waits.set()
        assert go_on.wait(60)
        return tried_step()

    loader._running._tried_step = wait_and_step  # type: ignore[method-assign]
    loop = iter(loader)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(list, loop)
        assert waits.wait(60)
        try:
            with pytest.raises(RuntimeError, match="in use by another thread: share one iterator"):
                use(loader, loop)
        finally:
            go_on.set()
        assert first.result() == expected
    assert loader.epoch == 1


def test_threads_may_take_turns(npy_index: Index) -> None:
    expected = steps_of(CountingLoader(npy_pipeline, npy_index, **SETTINGS))
    loader, found = CountingLoader(npy_pipeline, npy_index, **SETTINGS), []
    loops = [iter(loader), iter(loader)]
    for number in range(len(expected)):  # a thread for each step, and two loops alternately
        with ThreadPoolExecutor(1) as pool:
            found.append(pool.submit(next, loops[number % 2]).result())
    assert found == expected
    assert [next(loop, None) for loop in loops] == [None, None]


def test_a_copy_is_free(npy_index: Index) -> None:
    loader = Loader(npy_pipeline, npy_index, **SETTINGS)
    with loader._one_thread:
        copied = pickle.loads(pickle.dumps(loader))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copied.reset, 1).result()
    assert copied.epoch == 1


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_a_copy_of_a_running_loader_has_the_same_steps(
    npy_index: Index, copied: Callable[[Loader], Loader], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader(npy_pipeline, npy_index, num_read_processes=1, framework="numpy", **SETTINGS)
    with loader:
        next(iter(loader))
        with monkeypatch.context() as patch:
            patch.setenv("RANK", "1")  # the copy may go to another process of the job
            patch.setenv("WORLD_SIZE", "2")
            with copied(loader) as second:
                assert second.pipelines == ()
                found = [batch["row"].tolist() for (batch,) in second]
        assert (second.first_shard, loader.first_shard) == (1, 0)
        assert found == [[8, 9, 10, 11], [16, 17, 18, 19], []]
        rows = [row for (batch,) in loader for row in batch["row"].tolist()]
    assert rows == list(range(4, 23))
