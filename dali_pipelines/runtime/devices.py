"""Choose the devices of a process, and divide shards and reader processes among them."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dali_pipelines.runtime.launchers import find_local_rank, find_rank
from readers.values import is_integer

logger = logging.getLogger(__name__)

Device = int | None
"""CUDA device, or None for the CPU."""

# Both return an error where there is no device, and then the count stays 0.
_COUNT = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value)
"""


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices of this process, and the shards that they read."""

    devices: tuple[Device, ...]
    first_shard: int
    """Shard of the first device; the others follow."""
    num_shards: int
    """Shards over all processes."""


def visible_gpus() -> int:
    """Return the number of CUDA devices that this process may use; 0 if there is no driver.

    CUDA is not initialised, and a fork remains possible: PyTorch, if it is imported, asks NVML
    where it can. Else another process asks CUDA, which alone knows all forms of
    CUDA_VISIBLE_DEVICES.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.cuda.device_count())
    return _asked_cuda()


def _asked_cuda() -> int:
    return _count_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))


@cache
def _count_gpus(visible: str | None) -> int:
    """Ask CUDA for the number of devices, in a process of its own; `visible` is in its variables.

    RuntimeError if the process fails, so that GPUs are never left out without a word.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:  # no driver
        return 0
    asked = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _COUNT], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        raise RuntimeError(f"GPUs could not be counted, give devices: {asked.stderr.strip()}")
    return int(asked.stdout)


def check_device(device: Device) -> None:
    """Check the number of a device; `check_visible` tells whether there is such a GPU.

    Raises
    ------
    ValueError
        If it is neither a number nor None.
    """
    if device is not None and not is_integer(device, 0):
        raise ValueError(f"a device is the number of a GPU, or None for the CPU, got {device!r}")


def check_visible(devices: Sequence[Device]) -> None:
    """Check that this process may use the GPUs of these devices, without initialising CUDA.

    Raises
    ------
    ValueError
        If one of them is not visible, or no number.
    """
    for device in devices:
        check_device(device)
    numbers = [device for device in devices if device is not None]
    if not numbers:
        return
    wanted = max(numbers)
    try:
        # PyTorch that is built for the CPU sees no GPU, and DALI does.
        if wanted < visible_gpus() or wanted < (gpus := _asked_cuda()):
            return
    except RuntimeError:  # they cannot be counted: DALI reports what is wrong
        return
    raise ValueError(
        f"devices={list(devices)}: there is no GPU {wanted}, as {visible(gpus)}"
        f"{', counted from 0' if gpus else ''} (check nvidia-smi and CUDA_VISIBLE_DEVICES); "
        "devices=[None] runs on the CPU"
    )


def visible(gpus: int) -> str:
    """Return how many GPUs are visible, in words."""
    return f"{gpus or 'no'} GPU{'s are' if gpus > 1 else ' is'} visible"


def find_placement(
    devices: Sequence[Device] | None,
    shard_id: int | None = None,
    num_shards: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Placement:
    """Choose the devices and shards of this process.

    Parameters
    ----------
    devices : sequence of int or None, optional
        One entry for each pipeline. By default the GPU of this process if it is one of several,
        see `own_gpu`; else all visible GPUs, or one CPU pipeline where there is none.
    shard_id, num_shards : int, optional
        Number of this process among all processes, and their count; by default from `find_rank`.
        Each device of this process reads its own shard.

    Raises
    ------
    ValueError
        If only one of shard_id and num_shards is given, or they contradict each other, or there is
        no device, or the rank or its GPU cannot be found.
    """
    if (shard_id is None) != (num_shards is None):
        raise ValueError("give both shard_id and num_shards, or neither")
    if shard_id is None or num_shards is None:
        rank, world = find_rank(environ)
    else:
        rank, world = shard_id, num_shards
    if not (is_integer(rank, 0) and is_integer(world) and rank < world):
        raise ValueError(f"shard_id must lie in [0, num_shards={world}), got {rank}")
    if devices is None:
        gpus = visible_gpus()
        local_rank, _ = find_local_rank(environ)
        if gpus and (local_rank is not None or (world > 1 and shard_id is None)):
            devices = [own_gpu(local_rank, gpus)]
        else:
            devices = list(range(gpus)) or [None]
    if isinstance(devices, str) or not isinstance(devices, Iterable) or not (found := (*devices,)):
        raise ValueError(f"devices must be a list, as [0] or [None] for the CPU, got {devices!r}")
    return Placement(found, rank * len(found), world * len(found))


def own_gpu(local_rank: int | None, gpus: int) -> int:
    """Choose the GPU of one process of several; a scheduler may show each process only its own.

    Raises
    ------
    ValueError
        If there are several GPUs, and neither a local rank nor a current device.
    """
    torch = sys.modules.get("torch")
    current = torch.cuda.current_device() if torch and torch.cuda.is_initialized() else None
    if current:  # not the default: set by Lightning's devices=[2, 3] or by set_device
        return int(current)
    if local_rank is not None:
        return local_rank % gpus
    if current is None and gpus > 1:
        raise ValueError(
            f"which of the {gpus} visible GPUs is for this process? Call torch.cuda.set_device "
            "before the Loader starts, set LOCAL_RANK, or give devices=[number]"
        )
    return 0


class LatePlacement:
    """The devices and shards of a Loader: decided when it starts, and unchanged after that.

    Ranks may start in between: a script of Lightning's ddp makes its Loader before `fit` starts
    the other ranks. The arguments, and the ValueErrors, are those of `find_placement`;
    `own_devices` returns the devices of this process where a framework knows them.
    """

    def __init__(
        self,
        devices: Sequence[Device] | None,
        shard_id: int | None,
        num_shards: int | None,
        own_devices: Callable[[], Sequence[Device]] | None = None,
    ) -> None:
        # The fewest shards that are possible: settings that fail with these always fail.
        self.least = find_placement(
            [None] if devices is None else devices, shard_id, num_shards, {}
        )
        self._asked = devices, shard_id, num_shards
        self._own_devices = own_devices
        self._answer: Placement | None = None
        self._settled: Placement | None = None
        self._rank: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy decides when it starts, maybe in another process.
        return {**vars(self), "_answer": None, "_settled": None, "_rank": None}

    def now(self) -> Placement:
        """Return the placement that was decided, or else the one that would be decided now."""
        if self._settled is not None:
            return self._settled
        self._answer = self._find()
        return self._answer

    def _find(self) -> Placement:
        devices, shard_id, num_shards = self._asked
        if devices is None and self._own_devices is not None:
            devices = self._own_devices()
        return find_placement(devices, shard_id, num_shards)

    def settle(self) -> None:
        """Decide on the placement; later RuntimeError if rank or number of processes changed."""
        _, shard_id, _ = self._asked
        rank = find_rank() if shard_id is None else None
        if self._settled is None:
            self._settled, self._rank = self._find(), rank
            before = self._answer
            if before is not None and before.num_shards != self._settled.num_shards:
                logger.warning(
                    "the Loader starts with %d shards: len() and num_shards assumed %d before, as "
                    "this process had not joined the others",
                    self._settled.num_shards,
                    before.num_shards,
                )
        elif rank != self._rank:
            raise RuntimeError(
                f"this process had rank and world size {self._rank} when the Loader started, and "
                f"has {rank} now: rows would be left out or repeated. Make another Loader, "
                "or start this one after init_process_group"
            )


def share_out(total: int, pipelines: int) -> list[int]:
    """Divide reader processes among pipelines as evenly as possible, at least 1 for each."""
    return [max(1, total // pipelines + (one < total % pipelines)) for one in range(pipelines)]
