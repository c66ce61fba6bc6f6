"""The devices of pipelines: which GPUs this process may use."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

from readers.values import is_integer

Device = int | None
"""CUDA device, or None for the CPU."""

# Both return an error where there is no device, and then the count stays 0.
_COUNT = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value)
"""


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


def share_out(total: int, pipelines: int) -> list[int]:
    """Divide reader processes among pipelines as evenly as possible, at least 1 for each."""
    return [max(1, total // pipelines + (one < total % pipelines)) for one in range(pipelines)]
