"""Rank of this process under any launcher; its devices and shards follow from the rank.

`torch.distributed` and `jax.distributed` come first, if they are initialised: Lightning's ddp does
not set RANK, and mp.spawn sets no variable at all. Variables of launchers come next. RANK and the
like are first, as srun or mpirun may launch one torchrun on each machine. Those of MPI follow, and
those of Slurm count only without MPI, because mpirun starts its helpers on other machines with
srun.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from dali_pipelines.runtime import devices as cuda
from dali_pipelines.runtime.cgroup import CoreGrant
from dali_pipelines.runtime.devices import Device
from readers.values import is_integer

if TYPE_CHECKING:
    from readers.index.table import Index

# ---- The shards of a Loader --------------------------------------------------------------------


FindShards = Callable[..., "ProcessShards"]
"""`find_shards` with bound keywords. It is called when all ranks have started."""


@dataclass(frozen=True, slots=True)
class ProcessShards:
    """Devices of this process, and the shards that they read."""

    devices: tuple[Device, ...]
    rank: int
    """Number of this process among those that share an epoch."""
    num_processes: int
    """Number of these processes. Each has as many devices as this one."""

    @property
    def first_shard(self) -> int:
        """Shard of the first device; the other devices have the next ones."""
        return self.rank * len(self.devices)

    @property
    def num_shards(self) -> int:
        """Number of shards over all processes."""
        return self.num_processes * len(self.devices)


def find_shards(
    devices: Sequence[Device] | None,
    shard_id: int | None = None,
    num_shards: int | None = None,
    own_devices: Callable[[], Sequence[Device]] | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    fewest: bool = False,
) -> ProcessShards:
    """Find the devices and shards of this process.

    Parameters
    ----------
    devices : sequence of int or None, optional
        One entry for each pipeline. By default those of `own_devices`, or the GPU of this process
        if it is one of several, see `own_gpu`; otherwise all visible GPUs, or one CPU pipeline if
        there is none.
    shard_id, num_shards : int, optional
        Number of this process among all processes, and their count; by default from `find_rank`.
        Each device of this process reads its own shard.
    own_devices : callable, optional
        Returns the devices of this process, if a framework knows them.
    fewest : bool
        Return the fewest shards that are possible, whatever the launcher and the GPUs. Settings
        that fail with them always fail.

    Raises
    ------
    ValueError
        If only one of shard_id and num_shards is given, or they contradict each other, or there is
        no device, or the rank or its GPU cannot be found.
    """
    if (shard_id is None) != (num_shards is None):
        raise ValueError("set both shard_id and num_shards, or neither")
    if fewest:
        devices, environ = [None] if devices is None else devices, {}
    if shard_id is None or num_shards is None:
        rank, world = find_rank(environ)
    else:
        rank, world = shard_id, num_shards
    if not (is_integer(rank, 0) and is_integer(world) and rank < world):
        raise ValueError(f"shard_id must be in [0, num_shards={world}), got {rank}")
    if devices is None and own_devices is not None:
        devices = own_devices()
    if devices is None:
        gpus = cuda.visible_gpus()
        local_rank, _ = find_local_rank(environ)
        if gpus and (local_rank is not None or (world > 1 and shard_id is None)):
            devices = [own_gpu(local_rank, gpus)]
        else:
            devices = list(range(gpus)) or [None]
    if isinstance(devices, str) or not isinstance(devices, Iterable) or not (found := (*devices,)):
        raise ValueError(f"devices must be a list, as [0] or [None] for the CPU, got {devices!r}")
    return ProcessShards(found, rank, world)


def own_gpu(local_rank: int | None, gpus: int) -> int:
    """Choose the GPU of one of several processes; a scheduler may show each only its own GPU.

    Raises
    ------
    ValueError
        If there are several GPUs, and neither a local rank nor a current device.
    """
    torch = sys.modules.get("torch")
    current = torch.cuda.current_device() if torch and torch.cuda.is_initialized() else None
    if current:  # not the default, so Lightning's devices=[2, 3] or set_device has set it
        return int(current)
    if local_rank is not None:
        return local_rank % gpus
    if current is None and gpus > 1:
        raise ValueError(
            f"which of the {gpus} visible GPUs is for this process? Call torch.cuda.set_device "
            "before the Loader starts, set LOCAL_RANK, or pass devices=[number]"
        )
    return 0


# ---- Launchers ---------------------------------------------------------------------------------

_REMEDY = (
    "initialise torch.distributed before the Loader starts (Lightning does so in fit), set RANK "
    "and WORLD_SIZE, or pass shard_id and num_shards"
)


class _Variables(NamedTuple):
    """Names of the environment variables that a launcher sets."""

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
        If variables count several processes, but none has the rank of this one, or if they
        contradict each other.
    """
    return _initialised() or _agreed(environ)


def find_local_rank(environ: Mapping[str, str] = os.environ) -> tuple[int | None, int | None]:
    """Return the rank on this machine, and the number of processes there; None if unknown."""
    joined = _initialised()
    for claim in _claims(environ):
        # A task of srun may have launched these ranks itself. They inherit its variables, which are
        # not theirs.
        if claim.local_rank is not None and (joined is None or claim.agrees(*joined)):
            return claim.local_rank, claim.local_world_size
    return None, None


def _initialised() -> tuple[int, int] | None:
    """Return rank and number of processes of PyTorch or JAX, if it is initialised."""
    dist, jax = sys.modules.get("torch.distributed"), sys.modules.get("jax")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if jax is not None and jax.distributed.is_initialized():
        return jax.process_index(), jax.process_count()
    return None


def _agreed(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and number of processes; ValueError if the variables disagree."""
    claims = _claims(environ)
    if "TORCHELASTIC_RUN_ID" in environ:  # MPI or Slurm may have launched it
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
    """Return the values of the general variables, and of MPI's; if MPI has none, of Slurm's."""
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

    The shell of sbatch or salloc has some of them, too, but is not one of several processes.
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


# ---- A job of a command ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ranks:
    """Rank of this process in its job, and on its machine."""

    rank: int = 0
    """Rank among all processes."""
    world_size: int = 1
    """Number of processes."""
    local_rank: int = 0
    """Rank among the processes of this machine."""
    local_world_size: int = 1
    """Number of processes of this machine."""

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Ranks:
        """Return the ranks that the launcher set; without a launcher this process is alone.

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
            local_rank, local_world_size = rank, world_size  # assume one machine
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
            Number of devices of each rank.

        Raises
        ------
        ValueError
            If this machine has fewer GPUs than its ranks need.
        """
        gpus = 0 if device == "cpu" else cuda.visible_gpus()
        needed = count * self.local_world_size
        if gpus >= needed:
            return list(range(count * self.local_rank, count * (self.local_rank + 1)))
        if gpus or device == "gpu":
            each = "1 shard needs a GPU" if needed == 1 else f"{needed} shards need a GPU each"
            fewer = "" if needed == 1 else "use fewer, "
            raise ValueError(
                f"{each}, but {cuda.visible(gpus)}: {fewer}check nvidia-smi and "
                "CUDA_VISIBLE_DEVICES, or choose the device cpu"
            )
        return [None] * count

    def join(self, device: Device, index: Index) -> None:
        """Initialise torch.distributed, and check that all ranks found the same files.

        A single rank does so, too, so that training code has one path.

        Parameters
        ----------
        device : int or None
            CUDA device of this rank. It becomes the current device, and the backend is ``nccl``;
            with None it is ``gloo``.
        index : Index
            Rows that this rank will read.

        Raises
        ------
        ValueError
            If no variable has the address where the ranks meet, or if their Indexes differ.
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
        """Return the number of cores of this rank; cores that several ranks share count in parts.

        All ranks must call it, after `join`.
        """
        grant = CoreGrant.of()
        grants = [grant]
        if self.world_size > 1:
            import torch.distributed as dist

            grants *= self.world_size
            dist.all_gather_object(grants, grant)
        return grant.share(grants)

    def agree(self, status: int) -> int:
        """Wait for all ranks, and return the highest of their statuses.

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
