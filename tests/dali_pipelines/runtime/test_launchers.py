"""What the variables of launchers say, and what a Loader makes of it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
import torch

from dali_pipelines import Index, Loader, npy_pipeline
from dali_pipelines.runtime.ranks import (
    ProcessShards,
    find_local_rank,
    find_rank,
    find_shards,
    own_gpu,
)

ALONE = (0, 1), (None, None)


def general(rank: int, world: int, **more: str) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(world), **more}


def slurm(task: int, tasks: int, **more: str) -> dict[str, str]:
    """Return what srun sets in a task of a step, as far as it counts."""
    return {
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task % 4),
        "SLURM_NTASKS": str(tasks),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        **more,
    }


def open_mpi(rank: int, world: int) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % 2),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }


TABLE: dict[
    str, tuple[Mapping[str, str], tuple[tuple[int, int], tuple[int | None, int | None]]]
] = {
    "nothing": ({}, ALONE),
    "torchrun": (
        general(5, 8, LOCAL_RANK="1", LOCAL_WORLD_SIZE="4", TORCHELASTIC_RUN_ID="x"),
        ((5, 8), (1, 4)),
    ),
    "by hand": (general(1, 2), ((1, 2), (None, None))),
    "empty, as templates leave them": ({"RANK": "", "WORLD_SIZE": ""}, ALONE),
    "one process": ({"WORLD_SIZE": "1", "LOCAL_RANK": "0"}, ((0, 1), (0, None))),
    "srun": (slurm(5, 8), ((5, 8), (1, None))),
    "srun, Slurm's oldest names": (
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"},
        ((1, 2), (1, None)),
    ),
    "the shell of sbatch -n 8": (
        {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"},
        ALONE,
    ),
    "the shell of salloc -n 8": ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8"}, ALONE),
    "the shell of salloc -n 8, which is a step": (
        slurm(0, 1, SLURM_NTASKS="8", SLURM_STEP_ID="4294967290"),
        ALONE,
    ),
    "Open MPI": (open_mpi(3, 4), ((3, 4), (1, 2))),
    "MVAPICH": (
        {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_LOCAL_RANK": "1"},
        ((1, 2), (1, None)),
    ),
    "MPICH": (
        {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"},
        ((2, 3), (0, 1)),
    ),
    "mpirun over two machines of a Slurm job": (
        slurm(1, 2, SLURM_LOCALID="0") | open_mpi(3, 4),
        ((3, 4), (1, 2)),
    ),
    "torchrun on each machine, by srun": (
        slurm(1, 2, SLURM_LOCALID="0")
        | general(5, 8, LOCAL_RANK="1", LOCAL_WORLD_SIZE="4", TORCHELASTIC_RUN_ID="x"),
        ((5, 8), (1, 4)),
    ),
    "a launcher by srun -n 1": (slurm(0, 1) | general(1, 2, LOCAL_RANK="1"), ((1, 2), (1, None))),
    "WORLD_SIZE by hand, the rank from srun": (
        slurm(1, 2) | {"WORLD_SIZE": "2"},
        ((1, 2), (1, None)),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_variables(name: str) -> None:
    environ, expected = TABLE[name]
    assert (find_rank(environ), find_local_rank(environ)) == expected


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2.* no variable.*torch.distributed"),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "WORLD_SIZE=2, LOCAL_RANK=1.* no variable"),
        ({"LOCAL_RANK": "1"}, "LOCAL_RANK=1.* no variable"),
        ({"WORLD_SIZE": "2"} | slurm(0, 1), "WORLD_SIZE=2.* no variable"),
        ({"PMI_SIZE": "2"}, "PMI_SIZE=2.* no variable"),
        ({"RANK": "0"}, "RANK=0.*shard_id"),
        (general(2, 2), "below.*RANK=2, WORLD_SIZE=2"),
        (general(-1, 2), "below.*RANK=-1, WORLD_SIZE=2"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK.*number.*'one'"),
        # A RANK that was set for all processes alike.
        (general(0, 1) | open_mpi(1, 2), "RANK=0, WORLD_SIZE=1, but OMPI_COMM_WORLD_RANK=1"),
        (general(0, 2) | slurm(1, 2), "RANK=0, WORLD_SIZE=2, but SLURM_PROCID=1"),
        ({"WORLD_SIZE": "4"} | slurm(1, 2), "SLURM_LOCALID=1.*WORLD_SIZE=4.*torch.distributed"),
    ],
)
def test_variables_that_do_not_say_it(environ: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_rank(environ)


def join(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    """Let torch.distributed be initialised."""
    fake = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: world,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", fake)


def test_torch_distributed_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    join(monkeypatch, 3, 4)
    assert find_rank({"WORLD_SIZE": "2"}) == (3, 4)
    assert find_rank(general(0, 1)) == (3, 4)  # of a machine, whose processes mp.spawn has started
    assert find_local_rank({"LOCAL_RANK": "1"}) == (1, None)
    assert find_local_rank({"WORLD_SIZE": "4", "LOCAL_RANK": "1"}) == (1, None)
    # srun has started one task on each of two machines, and each task its ranks.
    assert find_local_rank(slurm(1, 2, SLURM_LOCALID="0")) == (None, None)
    monkeypatch.delitem(sys.modules, "torch.distributed")
    assert find_rank({}) == (0, 1)
    assert "torch.distributed" not in sys.modules


def test_torchrun_sets_the_shard() -> None:
    found = find_shards([None, None], environ={"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0"})
    assert found == ProcessShards((None, None), rank=2, num_processes=3)
    assert (found.first_shard, found.num_shards) == (4, 6)


def test_arguments_win_over_the_environment() -> None:
    found = find_shards([1], 0, 1, environ={"RANK": "2", "WORLD_SIZE": "3"})
    assert found == ProcessShards((1,), rank=0, num_processes=1)


def test_default_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, environ, expected in (
        (0, {}, (None,)),
        (3, {}, (0, 1, 2)),
        (4, {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}, (2,)),
        (1, {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}, (0,)),
    ):
        monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda gpus=gpus: gpus)
        assert find_shards(None, environ=environ).devices == expected


def test_shard_outside() -> None:
    with pytest.raises(ValueError, match=r"shard_id.*num_shards=2.*got 2"):
        find_shards([None], 2, 2)


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: 4)
    assert find_shards(None, environ={}).devices == (0, 1, 2, 3)
    assert find_shards(None, 1, 2, environ={}).devices == (0, 1, 2, 3)
    assert find_shards(None, 1, 2, environ={"LOCAL_RANK": "1"}).devices == (1,)
    assert find_shards(None, environ=slurm(6, 8)).devices == (2,)
    assert find_shards(None, environ=slurm(0, 1)).devices == (0, 1, 2, 3)
    with pytest.raises(ValueError, match=r"4 visible GPUs.*devices="):
        find_shards(None, environ=general(1, 2))
    assert own_gpu(None, 1) == 0
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    for current, local, expected in ((0, 3, 3), (0, None, 0), (2, None, 2), (2, 0, 2)):
        monkeypatch.setattr(torch.cuda, "current_device", lambda current=current: current)
        assert own_gpu(local, 4) == expected


def new_loader(index: Index, **settings: object) -> Loader:
    return Loader(npy_pipeline, index, batch_size=4, **{"devices": [None], **settings})  # type: ignore[arg-type]


def test_before_the_start(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loader = new_loader(npy_index)
    assert (len(loader), loader.num_shards, loader.first_shard) == (6, 1, 0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    state = loader.state_dict()
    loader.load_state_dict(state)
    for ask in (
        loader.start,
        lambda: len(loader),
        lambda: next(iter(loader)),
        loader.make_pipelines,
    ):
        with pytest.raises(ValueError, match=r"WORLD_SIZE=2.* no variable"):
            ask()
    assert new_loader(npy_index, shard_id=1, num_shards=2).first_shard == 1
    join(monkeypatch, 1, 2)
    assert (len(loader), loader.num_shards, loader.first_shard) == (3, 2, 1)
    assert loader.step == 0
    del caplog.records[:]
    with caplog.at_level(logging.WARNING), loader:
        loader.start()
    assert not caplog.records


def test_an_early_answer_that_became_wrong_is_said(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loader = new_loader(npy_index)
    assert len(loader) == 6
    join(monkeypatch, 1, 2)
    with loader:
        next(iter(loader))
    (line,) = caplog.messages
    assert re.search(r"2 shards.*num_shards.* 1 before", line)


def test_a_rank_that_changes_is_refused(npy_index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_loader(npy_index) as loader, new_loader(npy_index, shard_id=0, num_shards=1) as given:
        assert sum(len(batch["row"]) for (batch,) in loader) == len(npy_index)
        join(monkeypatch, 1, 2)
        assert loader.num_shards == 1
        with pytest.raises(RuntimeError, match=r"\(0, 1\).*\(1, 2\)"):
            next(iter(loader))
        loader.close()
        with pytest.raises(RuntimeError, match="Make another Loader"):
            loader.start()
        assert len(next(iter(given))) == 1
