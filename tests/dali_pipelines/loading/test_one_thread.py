"""A Loader is for one thread at a time: others get an error, and nothing is lost or repeated."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from fakes import FakeReader
from read_here import in_this_process

from dali_pipelines import Index, Loader, PipelineConfig, npy_pipeline, reader_pipeline
from dali_pipelines.graph.decode import decode_array
from readers.contract import Row, Sample
from readers.window import Window

SETTINGS: dict[str, Any] = {
    "batch_size": 4,
    "devices": [None],
    "shuffle": False,
    "framework": "numpy",
    "start_method": "fork",  # with which nothing is pickled
}


@dataclass
class HeldReader(FakeReader):
    """Reads nothing before it is let go."""

    waits: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def read(self, row: Row, window: Window | None) -> Sample:
        self.waits.set()
        assert self.go_on.wait(60)
        return super().read(row, window)


def held_pipeline(reader: HeldReader, index: Index, **config: Any) -> Any:
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**config))


def rows_of(steps: Any) -> list[int]:
    return [row for (batch,) in steps for row in batch["row"].tolist()]


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
    reader = HeldReader()
    factory = partial(in_this_process, partial(held_pipeline, reader))
    with Loader(factory, npy_index, **SETTINGS) as loader, ThreadPoolExecutor(1) as pool:
        loop = iter(loader)
        first = pool.submit(list, loop)
        assert reader.waits.wait(60)
        try:
            with pytest.raises(RuntimeError, match=r"in use by another thread.* one Loader for"):
                use(loader, loop)
        finally:
            reader.go_on.set()
        assert rows_of(first.result()) == list(range(23))
        assert loader.epoch == 1


def test_threads_may_take_turns(npy_index: Index) -> None:
    with Loader(partial(in_this_process, npy_pipeline), npy_index, **SETTINGS) as loader:
        loops, found = [iter(loader), iter(loader)], []
        for loop, _ in zip(cycle(loops), range(len(loader)), strict=False):
            with ThreadPoolExecutor(1) as pool:  # a thread for each step
                found.append(pool.submit(next, loop).result())
        assert rows_of(found) == list(range(23))
        assert [next(loop, None) for loop in loops] == [None, None]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_a_copy_of_a_running_loader_has_the_same_steps(
    npy_index: Index, copied: Callable[[Loader], Loader], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loader(partial(in_this_process, npy_pipeline), npy_index, **SETTINGS) as loader:
        next(iter(loader))
        with monkeypatch.context() as patch:
            patch.setenv("RANK", "1")  # the copy may go to another process of the job
            patch.setenv("WORLD_SIZE", "2")
            with copied(loader) as second:
                assert second.pipelines == ()
                found = [batch["row"].tolist() for (batch,) in second]
        assert (second.first_shard, loader.first_shard) == (1, 0)
        assert found == [[8, 9, 10, 11], [16, 17, 18, 19], []]
        assert rows_of(loader) == list(range(4, 23))
