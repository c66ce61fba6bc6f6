"""Which devices there are, and how they and the reader processes are shared out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from numbers import Integral

from dali_pipelines.runtime.ranks import find_local_rank, find_rank

logger = logging.getLogger(__name__)

Device = int | None
"""CUDA device, or None for the CPU."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices of this process, and which shards they read."""

    devices: tuple[Device, ...]
    first_shard: int
    """Shard of the first device; the others follow."""
    num_shards: int
    """Shards over all processes."""


def visible_gpus() -> int:
    """Count the CUDA devices that this process may use; 0 if there is no driver.

    PyTorch asks NVML where it can, so that CUDA is not initialised and a later fork stays possible.
    """
    import torch

    return int(torch.cuda.device_count())


def check_device(device: Device) -> None:
    """Refuse what names no device, and GPUs where the packages for them are missing.

    Whether there is such a GPU is left to DALI: to ask would initialise CUDA.

    Raises
    ------
    ValueError
        If it is neither a number nor None.
    ModuleNotFoundError
        If CuPy or Numba is not installed.
    """
    if device is None:
        return
    if not isinstance(device, Integral) or device < 0:
        raise ValueError(f"a device is the number of a GPU, or None for the CPU, got {device!r}")
    for name in ("cupy", "numba"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"device {device} needs the package {name}: install what GPUs "
                "need, pip install '.[gpu]', or give None for the CPU"
            )


def place(
    devices: Sequence[Device] | None,
    shard_id: int | None = None,
    num_shards: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Placement:
    """Decide on the devices and shards of this process.

    Parameters
    ----------
    devices : sequence of int or None, optional
        One entry for each pipeline. By default the GPU of this process if it is one of several,
        see `own_gpu`; else all visible GPUs, or one CPU pipeline where there is none.
    shard_id, num_shards : int, optional
        Place of this process among all processes, by default what `find_rank` finds. Each device
        of this process reads a shard of its own.
    environ : mapping
        Environment variables.

    Raises
    ------
    ValueError
        If only one of shard_id and num_shards is given, or they do not fit, or no device is named,
        or the rank or its GPU cannot be found.
    """
    if (shard_id is None) != (num_shards is None):
        raise ValueError("give both shard_id and num_shards, or neither")
    if shard_id is None or num_shards is None:
        rank, world = find_rank(environ)
    else:
        rank, world = shard_id, num_shards
    if not 0 <= rank < world:
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
    """Choose the GPU of one process of several.

    Parameters
    ----------
    local_rank : int or None
        Among the processes of this machine, if it is known.
    gpus : int
        How many are visible, at least 1. A scheduler may show each process one GPU, its own.

    Raises
    ------
    ValueError
        If there are several, and neither a local rank nor a current device.
    """
    import torch

    current = torch.cuda.current_device() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    if current:  # not the first, so somebody has set it: Lightning's devices=[2, 3], or set_device
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
    """The devices and shards of a Loader: decided when it starts, and not changed after that.

    Launchers come in between: a script of Lightning's ddp makes its Loader before `fit` starts the
    other ranks.

    Parameters
    ----------
    devices, shard_id, num_shards
        As for `place`.

    Raises
    ------
    ValueError
        If they contradict each other.
    """

    def __init__(
        self, devices: Sequence[Device] | None, shard_id: int | None, num_shards: int | None
    ) -> None:
        # With as few shards as there can be: what is wrong with these is wrong in any case.
        self.least = place([None] if devices is None else devices, shard_id, num_shards, {})
        self._asked = devices, shard_id, num_shards
        self._answer: Placement | None = None
        self._settled: Placement | None = None
        self._rank: tuple[int, int] | None = None

    def now(self) -> Placement:
        """Return what was decided, or what would be decided now.

        Raises
        ------
        ValueError
            As `place` does.
        """
        if self._settled is not None:
            return self._settled
        self._answer = place(*self._asked)
        return self._answer

    def settle(self) -> None:
        """Decide, or check that what was decided still holds.

        Raises
        ------
        ValueError
            As `place` does.
        RuntimeError
            If this process has another rank than before, or is one of more or fewer.
        """
        _, shard_id, _ = self._asked
        rank = find_rank() if shard_id is None else None
        if self._settled is None:
            self._settled, self._rank = place(*self._asked), rank
            before = self._answer
            if before is not None and before.num_shards != self._settled.num_shards:
                logger.warning(
                    "the Loader starts with %d shards: what len() and num_shards said before, with "
                    "%d, was before this process had joined the others",
                    self._settled.num_shards,
                    before.num_shards,
                )
        elif rank != self._rank:
            raise RuntimeError(
                f"this process had rank and world size {self._rank} when the Loader started, and "
                f"has {rank} now, so that rows would be left out or repeated: make another Loader, "
                "or start this one after init_process_group"
            )


def share_out(total: int, parts: int) -> list[int]:
    """Share `total` reader processes out over `parts` pipelines: as even as can be, at least 1."""
    return [max(1, total // parts + (part < total % parts)) for part in range(parts)]
