"""Samples that a reader process reads at the same time, in threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from nvidia.dali._multiproc import shared_batch

from readers.worker.ahead import PendingArray, ReadAhead

TIMEOUT_S = 60


class Gate:
    """Reads a sample as soon as it is let through."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.open = threading.Event()
        self.first = threading.Event()

    def read(self, count: int) -> tuple[np.ndarray[Any, Any], ...]:
        self.begun.append(count)
        self.first.set()
        assert self.open.wait(TIMEOUT_S)
        return np.full((2, count + 1), count, np.int16), np.array(count, np.int64)


def test_arrays_are_what_dali_takes_for_arrays() -> None:
    """They wait no sooner than where DALI copies them into shared memory."""
    gate = Gate()
    sample = ReadAhead(2, int).read(gate.read, 3, 2)
    shared_batch.assert_valid_data_type(sample)  # as in the thread that asks for samples
    assert not gate.open.is_set()
    gate.open.set()
    chunk = shared_batch.BufShmChunk.allocate(0, 1 << 16)
    try:
        writer = shared_batch.SharedBatchWriter(chunk, [sample])
        meta = shared_batch.SharedBatchMeta.from_writer(writer)
        ((image, number),) = shared_batch.deserialize_batch(chunk, meta)
        assert (image.dtype, image.tolist()) == (np.int16, [[3] * 4] * 2)
        assert (number.shape, int(number)) == ((), 3)
        del image, number
    finally:
        chunk.close()


def test_no_more_are_asked_for_than_threads_are_free() -> None:
    gate = Gate()
    ahead = ReadAhead(2, int)
    samples = [ahead.read(gate.read, count, 2) for count in range(2)]
    third = threading.Thread(target=lambda: samples.append(ahead.read(gate.read, 2, 2)))
    third.start()
    third.join(0.2)
    assert third.is_alive()
    gate.open.set()
    third.join(TIMEOUT_S)
    assert [int(number[()].item()) for _, number in map(resolved, samples)] == [0, 1, 2]


def resolved(sample: tuple[Any, ...]) -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(one.ravel().reshape(one.shape) for one in sample)


def test_an_error_of_a_read_is_that_of_its_arrays() -> None:
    def read(count: int) -> tuple[np.ndarray[Any, Any], ...]:
        raise ValueError(f"sample {count}")

    (pending,) = ReadAhead(1, int).read(read, 5, 1)
    assert isinstance(pending, PendingArray)
    with pytest.raises(ValueError, match="sample 5"):
        _ = pending.nbytes


def test_threads_rest_while_nothing_is_requested() -> None:
    """As where all is in the cache; the first request wakes them."""
    requests, threads = iter([1] * 100 + [2] * 100), []

    def read(_: int) -> tuple[np.ndarray[Any, Any], ...]:
        threads.append(threading.current_thread() is threading.main_thread())
        return (np.array(7),)

    ahead = ReadAhead(4, lambda: next(requests))
    for count in range(200):
        (number,) = ahead.read(read, count, 1)
        assert number.nbytes == 8
    rest = next(count for count, is_main in enumerate(threads) if is_main)
    assert 4 < rest < 100
    assert threads == 2 * ([False] * rest + [True] * (100 - rest))
