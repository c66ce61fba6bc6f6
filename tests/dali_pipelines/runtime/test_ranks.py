"""The ranks of a job: what launchers say, their devices, and how they meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pyarrow as pa
import pytest
import torch.distributed as dist

from dali_pipelines import Index, Ranks
from dali_pipelines.runtime.cgroup import CoreGrant, usable_cores

FOUR_ON_EACH_MACHINE = Ranks(rank=5, world_size=8, local_rank=1, local_world_size=4)


def test_what_launchers_say() -> None:
    assert Ranks.of({}) == Ranks(0, 1, 0, 1)
    environ = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert Ranks.of(environ) == FOUR_ON_EACH_MACHINE
    assert Ranks.of({"PMI_RANK": "1", "PMI_SIZE": "2"}) == Ranks(1, 2, 1, 2)


@pytest.mark.parametrize(
    ("ranks", "gpus", "device", "count", "expected"),
    [
        (Ranks(), 4, "auto", 4, [0, 1, 2, 3]),
        (Ranks(), 4, "gpu", 1, [0]),
        (Ranks(), 4, "cpu", 2, [None, None]),
        (Ranks(), 0, "auto", 2, [None, None]),
        (Ranks(), 2, "auto", 4, "4 shards.*2 GPUs.*use fewer"),
        (Ranks(), 0, "gpu", 1, "1 shard .*no GPU"),
        (FOUR_ON_EACH_MACHINE, 4, "auto", 1, [1]),
        (FOUR_ON_EACH_MACHINE, 0, "auto", 1, [None]),
        (FOUR_ON_EACH_MACHINE, 2, "auto", 1, "4 shards.*2 GPUs"),
    ],
)
def test_devices(
    ranks: Ranks,
    gpus: int,
    device: Literal["auto", "gpu", "cpu"],
    count: int,
    expected: list[int | None] | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: gpus)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            ranks.choose_devices(device, count)
    else:
        assert ranks.choose_devices(device, count) == expected


@pytest.fixture
def index() -> Index:
    return Index(pa.table({"path": ["/a.fits"]}))


def test_one_rank_alone_joins_and_agrees(index: Index) -> None:
    Ranks().join(None, index)
    try:
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        assert Ranks().agree(3) == 3
    finally:
        dist.destroy_process_group()


def test_cores_are_those_that_other_ranks_of_the_machine_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gather(grants: list[CoreGrant], grant: CoreGrant) -> None:
        assert len(grants) == 8
        grants[:] = [replace(grant, machine="another")] * 4 + [grant] * 4

    monkeypatch.setattr(dist, "all_gather_object", gather)
    alone = Ranks().cores()
    assert alone == usable_cores()
    assert FOUR_ON_EACH_MACHINE.cores() == pytest.approx(alone / 4)


def test_ranks_that_found_different_files_are_rejected(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(digests: list[str], digest: str) -> None:
        digests[:] = [digest, "another"]

    monkeypatch.setattr(dist, "all_gather_object", gather)
    try:
        with pytest.raises(ValueError, match="different files"):
            Ranks().join(None, index)
    finally:
        dist.destroy_process_group()


def test_ranks_without_a_place_to_meet_are_rejected(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"8 ranks.*MASTER_ADDR and MASTER_PORT"):
        FOUR_ON_EACH_MACHINE.join(None, index)
