from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import schedules

from readers import Schedule, Shard, Slot

EPOCHS = 3


def walk(schedule: Schedule, epochs: int = EPOCHS) -> Any:
    """Slots of a shard, counted as DALI does, for some epochs from the first."""
    steps = sum(schedule.steps(schedule.epoch + n) for n in range(epochs))
    return [schedule.locate(count) for count in range(steps * schedule.batch_size)]


def met(shards: list[Schedule], epochs: int = EPOCHS) -> Any:
    """Return the count of each (epoch, position) with a row, over all shards."""
    slots = (slot for schedule in shards for slot in walk(schedule, epochs))
    rows = shards[0].num_rows
    return Counter((slot.epoch, slot.position) for slot in slots if slot.position < rows)


def due(schedule: Schedule, epochs: int = EPOCHS) -> Any:
    """All (epoch, position) from where the schedule begins, once each."""
    numbers = range(schedule.epoch, schedule.epoch + epochs)
    starts = [schedule.position] + [0] * (epochs - 1)
    return Counter(
        (epoch, position)
        for epoch, start in zip(numbers, starts, strict=True)
        for position in range(start, schedule.num_rows)
    )


@given(schedules())
def test_each_position_of_each_epoch_once(shards: list[Schedule]) -> None:
    first = shards[0]
    missing = due(first)
    missing.subtract(met(shards))
    assert set(missing.values()) <= {0, 1}
    left_out = [place for place, count in missing.items() if count]
    if first.tail != "drop":
        assert left_out == []
        return
    for epoch in range(first.epoch, first.epoch + EPOCHS):
        start = first.position if epoch == first.epoch else 0
        last = (first.num_rows - start) % first.stride
        expected = [(epoch, p) for p in range(first.num_rows - last, first.num_rows)]
        assert [place for place in left_out if place[0] == epoch] == expected


@given(schedules())
def test_all_shards_take_equally_many_steps(shards: list[Schedule]) -> None:
    for epoch in range(6):
        assert len({schedule.steps(epoch) for schedule in shards}) == 1


@given(schedules())
def test_counts_run_through_epochs_steps_and_slots(shards: list[Schedule]) -> None:
    for schedule in shards:
        expected = [
            (epoch, step, index)
            for epoch in range(schedule.epoch, schedule.epoch + EPOCHS)
            for step in range(schedule.steps(epoch))
            for index in range(schedule.batch_size)
        ]
        assert [(slot.epoch, slot.step, slot.index) for slot in walk(schedule)] == expected


@given(schedules())
def test_a_step_takes_positions_in_order(shards: list[Schedule]) -> None:
    """Position p of an epoch lies in step p // (S*B), shard (p // B) % S, slot p % B."""
    first = shards[0]
    for schedule in shards:
        for slot in walk(schedule):
            start = first.position if slot.epoch == first.epoch else 0
            step, rest = divmod(slot.position - start, first.stride)
            place = step, *divmod(rest, first.batch_size)
            assert place == (slot.step, schedule.shard.shard_id, slot.index)


@given(schedules(), st.integers(0, 10**6))
def test_locate_far_ahead(shards: list[Schedule], epochs: int) -> None:
    schedule = shards[-1]
    steps = schedule.steps(schedule.epoch) + epochs * schedule.steps(schedule.epoch + 1)
    slot = schedule.locate(steps * schedule.batch_size)
    place = (slot.epoch, slot.step, slot.index)
    assert place == (schedule.epoch + 1 + epochs, 0, 0)


@given(schedules(), schedules(), st.data())
def test_resume_on_other_shards_and_batches(before: Any, after: Any, data: st.DataObject) -> None:
    """k steps of S1 shards of batch B1, then on with S2 and B2: every position once."""
    first = replace(before[0], epoch=0, position=0, tail="partial")
    steps = data.draw(st.integers(0, first.steps(0)))
    delivered: Counter[tuple[int, int]] = Counter()
    for schedule in before:
        restarted = replace(schedule, epoch=0, position=0, tail="partial")
        slots = (restarted.locate(count) for count in range(steps * first.batch_size))
        delivered.update((0, slot.position) for slot in slots if slot.position < first.num_rows)
    rest = [
        replace(
            schedule,
            num_rows=first.num_rows,
            epoch=0,
            position=min(steps * first.stride, first.num_rows),
            tail="partial",
        )
        for schedule in after
    ]
    assert delivered + met(rest) == due(first)


@pytest.mark.parametrize(
    ("tail", "steps", "last"),
    [("partial", 3, [8, 9, 10, 11]), ("fill", 3, [8, 9, 10, 11]), ("drop", 2, [4, 5, 6, 7])],
)
def test_tail_of_ten_rows_in_batches_of_four(tail: Any, steps: int, last: Any) -> None:
    schedule = Schedule(num_rows=10, shard=Shard(), batch_size=4, tail=tail)
    assert schedule.steps(0) == steps
    slots = [schedule.locate((steps - 1) * 4 + index) for index in range(4)]
    assert slots == [Slot(0, steps - 1, index, p) for index, p in enumerate(last)]
    assert schedule.locate(steps * 4) == Slot(1, 0, 0, 0)


@pytest.mark.parametrize("tail", ["partial", "fill", "drop"])
def test_resuming_at_the_end_begins_the_next_epoch(tail: Any) -> None:
    schedule = Schedule(num_rows=8, shard=Shard(1, 2), batch_size=2, tail=tail, epoch=4, position=8)
    assert schedule.steps(4) == 0
    assert schedule.steps(5) == 2
    assert schedule.locate(0) == Slot(5, 0, 0, 2)
    assert schedule.start == (5, 0)


@given(schedules())
def test_the_first_step_is_where_it_starts(shards: list[Schedule]) -> None:
    schedule = shards[0]
    slot = schedule.locate(0)
    assert schedule.start == (slot.epoch, slot.position)
    assert schedule.steps(slot.epoch) > 0


@pytest.mark.parametrize(("tail", "valid"), [("partial", [3, 0]), ("fill", [3, 0])])
def test_a_batch_larger_than_the_index_is_one_step(tail: Any, valid: Any) -> None:
    shards = [
        Schedule(num_rows=3, shard=Shard(shard, 2), batch_size=5, tail=tail) for shard in range(2)
    ]
    assert [schedule.steps(0) for schedule in shards] == [1, 1]
    slots = [[schedule.locate(count) for count in range(5)] for schedule in shards]
    assert [sum(slot.position < 3 for slot in batch) for batch in slots] == valid
    assert {slot.epoch for batch in slots for slot in batch} == {0}
    assert shards[0].locate(5) == Slot(1, 0, 0, 0)


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 0}, "batch_size.*at least 1.*0"),
    ({"batch_size": 11, "tail": "drop"}, "11 rows .*1 shards"),
    ({"tail": "drop", "shard": Shard(0, 4)}, "'drop'.*12 rows .*4 shards.* 10"),
    ({"tail": "pad"}, "tail.*partial, fill, drop.*'pad'"),
    ({"epoch": -1}, "epoch.*-1"),
    ({"position": 11}, "position.*0 to 10.*11"),
    ({"position": -1}, "position.*-1"),
    ({"epoch_steps": 0}, "epoch_steps.*at least 1.*0"),
    ({"epoch_steps": 1.5}, "epoch_steps.*integer.*1.5"),
    ({"epoch_steps": 3, "first_step": -1}, "first_step.*at least 0.*-1"),
]


@pytest.mark.parametrize(("settings", "words"), ERRORS)
def test_errors(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Schedule(**{"num_rows": 10, "shard": Shard(), "batch_size": 3, **settings})


@given(st.data(), st.integers(1, 40), st.integers(1, 9), st.integers(1, 8), st.integers(1, 50))
def test_epochs_of_steps(
    data: st.DataObject, num_rows: int, batch_size: int, num_shards: int, epoch_steps: int
) -> None:
    """All shards together take all places in a row: each position once in each pass."""
    epoch, position = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3 * num_rows))
    taken = data.draw(st.integers(0, 200))
    shards = [
        Schedule(
            num_rows=num_rows,
            shard=Shard(shard, num_shards),
            batch_size=batch_size,
            tail=data.draw(st.sampled_from(["partial", "fill", "drop"])),
            epoch=epoch,
            position=position,
            epoch_steps=epoch_steps,
            first_step=taken,
        )
        for shard in range(num_shards)
    ]
    steps, stride = data.draw(st.integers(1, 30)), num_shards * batch_size
    slots = sorted(
        ((slot.step, shard, slot.index), slot)
        for shard, schedule in enumerate(shards)
        for slot in map(schedule.locate, range(steps * batch_size))
    )
    start = epoch * num_rows + position
    places = [divmod(place, num_rows) for place in range(start, start + steps * stride)]
    assert [(slot.epoch, slot.position) for _, slot in slots] == places
    assert shards[0].start == places[0]
    counted = [(taken + slot.step) // epoch_steps for _, slot in slots]
    assert [shards[0].counted_epoch(slot) for _, slot in slots] == counted
    first = taken // epoch_steps
    assert shards[0].steps(first) == (first + 1) * epoch_steps - taken
    assert shards[0].steps(first + 1) == epoch_steps
