"""The processes of one job, launched by torchrun, srun or mpirun: one rank for each GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dali_pipelines.runtime import devices
from dali_pipelines.runtime.cgroup import CoreGrant
from dali_pipelines.runtime.devices import Device, share_out
from dali_pipelines.runtime.launchers import find_local_rank, find_rank

if TYPE_CHECKING:
    from readers.index.table import Index


@dataclass(frozen=True, slots=True)
class Ranks:
    """Rank of this process among all of a job, and among those of its machine."""

    rank: int = 0
    """Among all processes."""
    world_size: int = 1
    """Number of processes."""
    local_rank: int = 0
    """Among the processes of this machine."""
    local_world_size: int = 1
    """Number of processes of this machine."""

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Ranks:
        """Return what the launcher set; without one, this process is alone.

        Raises
        ------
        ValueError
            If the variables of launchers contradict each other.
        """
        rank, world_size = find_rank(environ)
        local_rank, local_world_size = find_local_rank(environ)
        if world_size == 1:
            return cls()
        if local_rank is None:
            local_rank, local_world_size = rank, world_size  # as if there were one machine
        return cls(rank, world_size, local_rank, local_world_size or world_size)

    def choose_devices(
        self, device: Literal["auto", "gpu", "cpu"] = "auto", count: int = 1
    ) -> list[Device]:
        """Return the devices of this rank: CUDA device numbers, or None for the CPU.

        Parameters
        ----------
        device : {"auto", "gpu", "cpu"}
            ``auto``: GPUs, or the CPU if none is visible.
        count : int
            Devices for each rank.

        Raises
        ------
        ValueError
            If there are fewer GPUs than the ranks of this machine need.
        """
        gpus = 0 if device == "cpu" else devices.visible_gpus()
        needed = count * self.local_world_size
        if gpus >= needed:
            return list(range(count * self.local_rank, count * (self.local_rank + 1)))
        if gpus or device == "gpu":
            each = "1 shard needs a GPU" if needed == 1 else f"{needed} shards need a GPU each"
            fewer = "" if needed == 1 else "use fewer, "
            raise ValueError(
                f"{each}, but {devices.visible(gpus)}: {fewer}check nvidia-smi and "
                "CUDA_VISIBLE_DEVICES, or choose the device cpu"
            )
        return [None] * count

    def join(self, device: Device, index: Index) -> None:
        """Initialise torch.distributed, and check that all ranks found the same files.

        One rank alone does so too, which gives training code one path.

        Parameters
        ----------
        device : int or None
            CUDA device of this rank, which becomes the current one, with the backend ``nccl``;
            with None it is ``gloo``.
        index : Index
            What this rank is going to read.

        Raises
        ------
        ValueError
            If no variable says where the ranks can meet, or if their Indexes differ.
        """
        import torch
        import torch.distributed as dist

        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing and self.world_size > 1:
            raise ValueError(
                f"{self.world_size} ranks need {' and '.join(missing)} to meet: set MASTER_ADDR to "
                "the machine of rank 0 and MASTER_PORT to a free port, e.g. 29500"
            )
        if device is not None:
            torch.cuda.set_device(device)
        dist.init_process_group(
            "gloo" if device is None else "nccl",
            rank=self.rank,
            world_size=self.world_size,
            store=dist.HashStore() if self.world_size == 1 else None,  # type: ignore[attr-defined]
        )
        digests: list[str | None] = [None] * self.world_size
        dist.all_gather_object(digests, index.digest)
        if len(set(digests)) > 1:
            raise ValueError(
                "the ranks found different files, as files come or go while they scan: make an "
                "Index file first (dali-pipelines index) and use it as the data"
            )

    def cores(self) -> float:
        """Return the cores of this rank: those that several may use count in parts.

        All ranks must call it, after `join`.
        """
        grant = CoreGrant.of()
        grants = [grant]
        if self.world_size > 1:
            import torch.distributed as dist

            grants *= self.world_size
            dist.all_gather_object(grants, grant)
        return grant.share(grants)

    def share(self, total: int) -> int:
        """Return this rank's part of a number of reader processes, at least 1."""
        return share_out(total, self.world_size)[self.rank]

    def agree(self, status: int) -> int:
        """Return the highest status of any rank, once all have come this far.

        Raises
        ------
        RuntimeError
            If another rank has ended.
        """
        if self.world_size == 1:
            return status
        import torch
        import torch.distributed as dist

        highest = torch.tensor(status)
        try:
            dist.all_reduce(highest, dist.ReduceOp.MAX)
        except RuntimeError as error:
            raise RuntimeError("another rank has ended: see its messages") from error
        return int(highest)
