"""The slab: no two arrays that are in use share memory, and memory is used again."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import run

from readers.buffers import buffer, buffers_from
from readers.contract import SampleSpec
from readers.worker.slab import Layout, Region, SharedMemory, Writer, tasks_of

specs = st.lists(
    st.one_of(
        st.builds(
            SampleSpec,
            name=st.just("a"),
            dtype=st.sampled_from(("uint8", "int64", "bool")),
            shape=st.lists(st.integers(0, 5), max_size=3).map(tuple),
        ),
        st.builds(SampleSpec, name=st.just("a"), dtype=st.just("float32"), ndim=st.integers(1, 3)),
    ),
    max_size=6,
).map(tuple)


@given(specs, st.integers(1, 9), st.integers(1, 3))
def test_parts_of_slots_do_not_overlap(
    specs: tuple[SampleSpec, ...], batch_size: int, num_readers: int
) -> None:
    layout = Layout(specs, batch_size, num_readers)
    memory = np.zeros(layout.region(0), np.uint8)
    parts: list[Any] = []
    for slot in (0, 1, 63):
        table = layout.table(memory, slot)
        assert table.shape[0] == batch_size
        parts += [table, *layout.over_batch(memory, slot)]
    for number, part in enumerate(parts):
        assert not part.any()
        part.view(np.uint8)[...] = 255 if part.dtype != bool else 1
        part[...] = number + 1
    for number, part in enumerate(parts):
        assert (part == np.array(number + 1).astype(part.dtype)).all()


@given(st.integers(1, 300), st.integers(1, 40))
def test_each_sample_of_a_batch_is_in_one_task(batch_size: int, num_readers: int) -> None:
    tasks = tasks_of(batch_size, num_readers)
    samples = [number for first, count in tasks for number in range(first, first + count)]
    assert samples == list(range(batch_size))
    assert len(tasks) <= 2 * num_readers


def region(nbytes: int = 256 << 20) -> Region:
    shared = SharedMemory(nbytes)
    return Region(shared, 0, nbytes)


batches = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3 << 20), max_size=6)), max_size=12
)


@given(batches)
def test_arrays_keep_their_bytes_until_their_slot_is_used_again(
    batches: list[tuple[int, list[int]]],
) -> None:
    own, held = region(), dict[int, list[tuple[Any, int]]]()
    for batch, (slot, sizes) in enumerate(batches):
        own.begin(slot, batch)
        writer = Writer(own, slot)
        held[slot] = []
        for number, nbytes in enumerate(sizes):
            array = writer.empty(nbytes)
            array[...] = mark = (7 * batch + number) % 251
            assert writer.place(array) % 256 == 0
            held[slot].append((array, mark))
        for array, mark in (one for arrays in held.values() for one in arrays):
            assert (array == mark).all()


def test_memory_is_used_again() -> None:
    """By samples that differ in size by some per cent, too."""
    own = region()
    ends = set()
    for batch in range(200):
        own.begin(batch % 3, batch)
        writer = Writer(own, batch % 3)
        ends |= {writer.place(writer.empty(10**6 + 700 * (batch % 50))) for _ in range(4)}
    assert max(ends) < 4 * 3 * 2 * 10**6


def test_larger_blocks_take_the_place_of_smaller_ones() -> None:
    """In an Index that is sorted by size each sample is a little larger than all before it."""
    nbytes, shared = 1 << 20, SharedMemory(1 << 30)
    own = Region(shared, 0, 1 << 30)
    for batch in range(60):
        own.begin(batch % 3, batch)
        Writer(own, batch % 3).empty(nbytes)[...] = 1
        nbytes += nbytes // 15
    assert os.fstat(shared.fd).st_blocks * 512 < 4 * nbytes


@pytest.mark.parametrize("dtype", ["uint8", ">i2", "float64"])
def test_an_array_from_elsewhere_is_copied_and_one_of_the_region_is_not(dtype: str) -> None:
    own = region()
    writer = Writer(own, 0)
    own.begin(0, 0)
    there = writer.empty(48).view(dtype)
    assert own.memory[writer.place(there) :].ctypes.data == there.ctypes.data
    elsewhere = np.arange(60).astype(dtype).reshape(10, 6)
    for array in (elsewhere, elsewhere[::2, ::-1], elsewhere.T, elsewhere[:0]):
        copy = np.ndarray(array.shape, dtype, own.memory, writer.place(array))
        np.testing.assert_array_equal(copy, array)


@pytest.mark.parametrize("dtype", ["uint8", ">i2", "float64"])
def test_views_of_the_region_with_steps_are_copied(dtype: str) -> None:
    """A Reader may turn or thin out what it has read: the slab holds arrays without gaps."""
    own = region()
    writer = Writer(own, 0)
    own.begin(0, 0)
    there = writer.empty(120 * np.dtype(dtype).itemsize).view(dtype).reshape(4, 5, 6)
    there[...] = np.arange(120).reshape(4, 5, 6)
    views = (
        there.T,
        there[::2],
        there[:, ::-1],
        there[..., 2:4],
        there[1].T,
        there[2:].swapaxes(0, 1),
    )
    expected = [view.copy() for view in views]
    for view, before in zip(views, expected, strict=True):
        placed = np.ndarray(view.shape, dtype, own.memory, writer.place(view))
        np.testing.assert_array_equal(placed, before)
    np.testing.assert_array_equal(there, np.arange(120).reshape(4, 5, 6))


def test_memory_of_an_earlier_sample_is_refused() -> None:
    """A Reader that keeps a view would write over the samples of others."""
    writer = Writer(region(), 0)
    writer.begin()
    kept = writer.empty(64)
    first = writer.place(kept)
    assert writer.place(kept[8:]) == first + 8
    writer.begin()
    with pytest.raises(RuntimeError, match=r"readers\.buffer.*view"):
        writer.place(kept)


def test_memory_of_less_than_nothing_is_refused() -> None:
    writer = Writer(region(), 0)
    with buffers_from(writer.empty), pytest.raises(ValueError, match="-600"):
        buffer(-600)
    with pytest.raises(ValueError, match="-600"):
        buffer(-600)


LIMITED = """
import resource
from readers.worker.slab import SharedMemory
resource.setrlimit(getattr(resource, {name!r}), (8 << 30, 8 << 30))
try:
    SharedMemory(64 << 30).map()
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize(("name", "flag"), [("RLIMIT_AS", "-v"), ("RLIMIT_FSIZE", "-f")])
def test_a_limit_is_told_with_its_remedy(name: str, flag: str) -> None:
    found = run([sys.executable, "-c", LIMITED.format(name=name)])
    assert "65536 MiB of address space" in found.stdout, found.stderr
    assert f"ulimit {flag}" in found.stdout
