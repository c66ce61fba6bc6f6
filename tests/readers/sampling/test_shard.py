import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import Shard


def test_the_table_in_the_docstring() -> None:
    """3 shards of batch 2 and 14 positions."""
    table: list[list[tuple[int | str, int | str]]] = [
        [(0, 1), (6, 7), (12, 13)],
        [(2, 3), (8, 9), ("-", "-")],
        [(4, 5), (10, 11), ("-", "-")],
    ]
    for shard_id, steps in enumerate(table):
        shard = Shard(shard_id, 3)
        for step, batch in enumerate(steps):
            positions = [shard.position(step, slot, 2) for slot in range(2)]
            assert [p if p < 14 else "-" for p in positions] == list(batch)


@given(st.integers(0, 10**12), st.integers(1, 64), st.integers(1, 1024))
def test_a_position_belongs_to_one_step_shard_and_slot(
    position: int, num_shards: int, batch_size: int
) -> None:
    step = position // (num_shards * batch_size)
    shard = Shard(position // batch_size % num_shards, num_shards)
    assert shard.position(step, position % batch_size, batch_size) == position


@pytest.mark.parametrize(("shard_id", "num_shards"), [(3, 3), (-1, 3), (0, 0), (0, -1)])
def test_errors(shard_id: int, num_shards: int) -> None:
    wrong = shard_id if num_shards > 0 else num_shards
    with pytest.raises(ValueError, match=rf"num_shards.* got {wrong}"):
        Shard(shard_id, num_shards)
