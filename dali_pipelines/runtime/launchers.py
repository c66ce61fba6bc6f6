"""Find the rank of this process in its job, for any launcher.

`torch.distributed` and `jax.distributed` come first, if they are initialised: Lightning's ddp sets
no RANK, and mp.spawn no variable at all. Then come the variables of launchers: the general ones, of
which those of torchrun win, as srun or mpirun may launch one torchrun on each machine; then those
of MPI; and without MPI those of Slurm, as mpirun starts its helpers on other machines with srun.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_REMEDY = (
    "initialise torch.distributed before the Loader starts (Lightning does so in fit), set RANK "
    "and WORLD_SIZE, or give shard_id and num_shards"
)


class _Variables(NamedTuple):
    """Names of the variables that a launcher sets."""

    rank: str
    world_size: str
    local_rank: str
    local_world_size: str


_GENERAL = _Variables("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""Set by torchrun, accelerate, DeepSpeed, Kubeflow, or by hand."""

_MPI = (
    _Variables(  # Open MPI
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Variables(  # MVAPICH
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    _Variables("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Values of one launcher; None for variables that are not set."""

    names: _Variables
    rank: int | None
    world_size: int | None
    local_rank: int | None
    local_world_size: int | None

    def agrees(self, rank: int, world_size: int) -> bool:
        return self.rank in (None, rank) and self.world_size in (None, world_size)

    def __str__(self) -> str:
        said = zip(self.names[:3], (self.rank, self.world_size, self.local_rank), strict=True)
        return ", ".join(f"{name}={value}" for name, value in said if value is not None)


def find_rank(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the rank of this process and the number of processes; 0 and 1 if it is alone.

    Raises
    ------
    ValueError
        If there are several processes by the variables, without the rank of this one, or if they
        contradict each other.
    """
    return _initialised() or _agreed(environ)


def find_local_rank(environ: Mapping[str, str] = os.environ) -> tuple[int | None, int | None]:
    """Return the rank on this machine, and the number of processes there; None if unknown."""
    joined = _initialised()
    for claim in _claims(environ):
        # The task of srun may have launched these ranks itself: then its variables are not theirs.
        if claim.local_rank is not None and (joined is None or claim.agrees(*joined)):
            return claim.local_rank, claim.local_world_size
    return None, None


def _initialised() -> tuple[int, int] | None:
    """Return rank and number of processes of PyTorch's or JAX's, if it is initialised."""
    dist, jax = sys.modules.get("torch.distributed"), sys.modules.get("jax")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if jax is not None and jax.distributed.is_initialized():
        return jax.process_index(), jax.process_count()
    return None


def _agreed(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and number of processes where the variables agree on them."""
    claims = _claims(environ)
    if "TORCHELASTIC_RUN_ID" in environ:  # of torchrun, which MPI or Slurm may have launched
        claims = claims[:1]
    found = next((claim for claim in claims if claim.rank is not None), None)
    if found is None:
        for claim in claims:
            if (claim.world_size or 1) > 1 or claim.local_rank:
                raise ValueError(f"{claim}, but no variable has the rank: {_REMEDY}")
        return 0, 1
    if found.rank is None or found.world_size is None or not 0 <= found.rank < found.world_size:
        raise ValueError(f"expected a rank below the number of processes, got {found}: {_REMEDY}")
    for claim in claims:
        if not claim.agrees(found.rank, found.world_size):
            raise ValueError(f"{found}, but {claim}: {_REMEDY}")
    return found.rank, found.world_size


def _claims(environ: Mapping[str, str]) -> list[_Claim]:
    """Return the values of the general variables, and of MPI or else Slurm, if there are any."""
    general = _claim(_GENERAL, environ)
    others = (_claim(names, environ) for names in (*_MPI, _slurm(environ)))
    # A single process of srun or mpirun may launch processes itself.
    other = next((claim for claim in others if claim and claim.world_size != 1), None)
    return [claim for claim in (general, other) if claim]


def _claim(names: _Variables, environ: Mapping[str, str]) -> _Claim | None:
    claim = _Claim(names, *(_number(environ, name) for name in names))
    said = claim.rank, claim.world_size, claim.local_rank
    return None if said == (None, None, None) else claim


def _slurm(environ: Mapping[str, str]) -> _Variables:
    """Return the names of Slurm's variables in a task of srun; empty names elsewhere.

    The shell of sbatch or salloc has some of them as well, but it is not one of several processes.
    """
    if "SLURM_JOB_ID" in environ and "SLURM_STEP_ID" not in environ:
        return _Variables("", "", "", "")
    # In a shell that salloc runs as a step, SLURM_NTASKS counts the tasks of the whole job.
    size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    return _Variables("SLURM_PROCID", size, "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text!r}") from None
