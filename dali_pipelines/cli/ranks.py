"""The processes of a run that torchrun, srun or mpirun launched, one for each GPU; else one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ranks:
    """Place of this process among all of the run, and among those of this machine."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Ranks:
        """Find what the launcher says.

        Raises
        ------
        ValueError
            As `find_rank` does.
        """
        from dali_pipelines.runtime.ranks import find_local_rank, find_rank

        rank, world_size = find_rank(environ)
        local_rank, local_world_size = find_local_rank(environ)
        if world_size == 1:
            return cls()
        if local_rank is None:
            local_rank, local_world_size = rank, world_size  # as if there were one machine
        return cls(rank, world_size, local_rank, local_world_size or world_size)

    def own_file(self, path: str | None) -> str | None:
        """Give the name of this rank's own file: ``audit.rank1.csv`` for ``audit.csv``."""
        if path is None or self.world_size == 1:
            return path
        name = Path(path)
        return str(name.with_name(f"{name.stem}.rank{self.rank}{name.suffix}"))

    def join(self, digest: str) -> None:
        """Meet the other ranks, who must have found the same files.

        Parameters
        ----------
        digest : str
            Of this rank's Index.

        Raises
        ------
        ValueError
            If the others have another one.
        """
        if self.world_size == 1:
            return
        self.init_process_group("gloo")
        check_same_index(digest)

    def init_process_group(self, backend: str) -> None:
        """Let torch.distributed join the ranks; one alone, too, so that there is one code path.

        Raises
        ------
        ValueError
            If nothing says where they can meet.
        """
        import torch.distributed as dist

        if self.world_size == 1:
            store = dist.HashStore()  # type: ignore[attr-defined]
            dist.init_process_group(backend, store=store, rank=0, world_size=1)
            return
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise ValueError(
                f"{self.world_size} ranks need {' and '.join(missing)} to meet: set MASTER_ADDR to "
                "the machine of rank 0 and MASTER_PORT to a free port, 29500, say"
            )
        dist.init_process_group(backend, rank=self.rank, world_size=self.world_size)

    def agree(self, status: int) -> int:
        """Give the highest status of any rank, once all have come this far.

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
            raise RuntimeError("another rank has ended: see what it says") from error
        return int(highest)


def check_same_index(digest: str) -> None:
    """Compare the digests of all ranks' Indexes.

    Raises
    ------
    ValueError
        If they differ.
    """
    import torch.distributed as dist

    digests: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest)
    if len(set(digests)) > 1:
        raise ValueError(
            "the ranks have found different files, as files come or go while they scan: make an "
            "Index file first (scripts/index.py) and give it as --data"
        )
