"""Print what a report says of this machine, as JSON: CUDA is asked, so in a process of its own."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

_PREFIXES = ("cuda-", "cupy", "numba", "nvidia-", "pytest", "scipy", "torch")


def describe() -> dict[str, Any]:
    """Return hardware and versions; the list ``gpus`` is empty where PyTorch sees none."""
    from dali_pipelines.cli.doctor.nvml import installed_driver
    from dali_pipelines.cli.environment import hardware, versions

    driver = installed_driver()
    found = hardware() | {
        "driver": driver and driver.version,
        "driver_cuda": driver and "{}.{}".format(*driver.cuda),
        **_gpus(),
    }
    return {"hardware": found, "versions": {**versions(), **_packages()}}


def _gpus() -> dict[str, list[Any]]:
    """Return what there is to say of each GPU besides its name."""
    import torch

    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "gpu_memory_bytes": [gpu.total_memory for gpu in gpus],
        "compute_capability": [f"{gpu.major}.{gpu.minor}" for gpu in gpus],
        "multiprocessors": [gpu.multi_processor_count for gpu in gpus],
    }


def _packages() -> dict[str, str]:
    """Return the versions of CUDA's packages, and of what computes and tests with them."""
    names = {one.name.lower(): one.version for one in importlib.metadata.distributions()}
    return {name: names[name] for name in sorted(names) if name.startswith(_PREFIXES)}


if __name__ == "__main__":
    print(json.dumps(describe()))
