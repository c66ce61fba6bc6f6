"""Which devices there are, and how they and the reader processes are shared out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from numbers import Integral

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
        One entry for each pipeline. By default LOCAL_RANK's GPU under torchrun, else all visible
        GPUs; one CPU pipeline where there is none.
    shard_id, num_shards : int, optional
        Place of this process among all processes, by default RANK of WORLD_SIZE as torchrun sets
        them, else 0 of 1. Each device of this process reads a shard of its own.
    environ : mapping
        Environment variables.

    Raises
    ------
    ValueError
        If only one of shard_id and num_shards is given, or they do not fit, or no device is named.
    """
    if (shard_id is None) != (num_shards is None):
        raise ValueError("give both shard_id and num_shards, or neither")
    rank = int(environ.get("RANK", 0)) if shard_id is None else shard_id
    world = int(environ.get("WORLD_SIZE", 1)) if num_shards is None else num_shards
    if not 0 <= rank < world:
        raise ValueError(f"shard_id must lie in [0, num_shards={world}), got {rank}")
    if devices is None:
        gpus = visible_gpus()
        if gpus and "LOCAL_RANK" in environ:
            devices = [int(environ["LOCAL_RANK"]) % gpus]
        else:
            devices = list(range(gpus)) or [None]
    if not devices:
        raise ValueError("devices must name at least one device; [None] is one CPU pipeline")
    return Placement(tuple(devices), rank * len(devices), world * len(devices))


def share_out(total: int, parts: int) -> list[int]:
    """Share `total` reader processes out over `parts` pipelines: as even as can be, at least 1."""
    return [max(1, total // parts + (part < total % parts)) for part in range(parts)]
