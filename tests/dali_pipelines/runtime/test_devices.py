from __future__ import annotations

import pytest

from dali_pipelines.runtime.devices import Placement, check_device, find_placement, share_out


def test_torchrun_sets_the_shard() -> None:
    found = find_placement(
        [None, None], environ={"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0"}
    )
    assert found == Placement((None, None), first_shard=4, num_shards=6)


def test_arguments_win_over_the_environment() -> None:
    found = find_placement([1], 0, 1, environ={"RANK": "2", "WORLD_SIZE": "3"})
    assert found == Placement((1,), first_shard=0, num_shards=1)


def test_default_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, environ, expected in (
        (0, {}, (None,)),
        (3, {}, (0, 1, 2)),
        (4, {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}, (2,)),
        (1, {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}, (0,)),
    ):
        monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda gpus=gpus: gpus)
        assert find_placement(None, environ=environ).devices == expected


def test_shard_outside() -> None:
    with pytest.raises(ValueError, match=r"shard_id must lie in \[0, num_shards=2\), got 2"):
        find_placement([None], 2, 2)


@pytest.mark.parametrize(
    ("total", "parts", "expected"),
    [(16, 4, [4, 4, 4, 4]), (5, 3, [2, 2, 1]), (1, 3, [1, 1, 1]), (2, 1, [2])],
)
def test_share_out(total: int, parts: int, expected: list[int]) -> None:
    assert share_out(total, parts) == expected


@pytest.mark.parametrize("device", ["cpu", "cuda:0", -1, 0.0])
def test_what_is_no_device(device: object) -> None:
    message = f"the number of a GPU, or None for the CPU, got {device!r}"
    with pytest.raises(ValueError, match=message):
        check_device(device)  # type: ignore[arg-type]
