"""The devices of pipelines: which GPUs this process may use."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol

from readers.values import is_integer

Device = int | None
"""CUDA device, or None for the CPU."""


class TorchDevice(Protocol):
    """A device of PyTorch, such as torch.device("cuda:1")."""

    @property
    def type(self) -> str:
        """Kind of the device, such as "cuda"."""

    @property
    def index(self) -> int | None:
        """Number of the device."""


DeviceLike = int | str | TorchDevice | None
"""A `Device`, or a device of PyTorch: "cpu", "cuda", "cuda:1", torch.device."""

# Both functions return an error if there is no device. The count then stays 0.
_COUNT = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value)
"""


def visible_gpus() -> int:
    """Return the number of CUDA devices that this process may use; 0 if there is no driver.

    CUDA is not initialised in this process, so that it can still be forked. If PyTorch is imported,
    it asks NVML, if possible. Otherwise another process asks CUDA, because only CUDA knows all
    forms of CUDA_VISIBLE_DEVICES.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.cuda.device_count())
    return _asked_cuda()


def _asked_cuda() -> int:
    return _count_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))


@cache
def _count_gpus(visible: str | None) -> int:
    """Ask CUDA for the number of devices, in another process, with its CUDA_VISIBLE_DEVICES.

    RuntimeError if the process fails, so that GPUs are never ignored silently.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:  # no driver
        return 0
    asked = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _COUNT], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        raise RuntimeError(f"GPUs could not be counted ({asked.stderr.strip()}): set devices")
    return int(asked.stdout)


def device_of(given: DeviceLike) -> Device:
    """Return the number of a device, None for the CPU; `check_visible` checks that it exists.

    "cuda" is the current device of PyTorch, or 0 if PyTorch has not initialised CUDA.

    Raises
    ------
    ValueError
        If it is not a device, or neither the CPU nor a CUDA device.
    """
    if given is None or is_integer(given, 0):
        return None if given is None else int(given)
    kind, number = getattr(given, "type", given), getattr(given, "index", None)
    if isinstance(given, str):
        kind, colon, text = given.partition(":")
        number = int(text) if text.isdecimal() else None
        kind = given if colon and number is None else kind
    if kind == "cpu":
        return None
    if kind != "cuda":
        raise ValueError(
            "devices are 'cpu' or None, and GPUs such as 'cuda:1', torch.device('cuda:1') or 1, "
            f"got {given!r}"
        )
    if number is not None:
        return int(number)
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch and torch.cuda.is_initialized() else 0


def devices_of(given: DeviceLike | Iterable[DeviceLike]) -> list[Device]:
    """Return the devices of a setting that takes one or several; ValueError if there is none."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        found = [device_of(one) for one in given]
        if not found:
            raise ValueError(f"devices must not be empty, got {given}: pass 'cpu' or [0, 1]")
        return found
    return [device_of(given)]


def check_visible(devices: Sequence[Device]) -> None:
    """Check that this process may use the GPUs of these devices, without initialising CUDA.

    Raises
    ------
    ValueError
        If one of them is not a device, or is a GPU that is not visible.
    """
    for device in devices:
        device_of(device)
    numbers = [device for device in devices if device is not None]
    if not numbers:
        return
    wanted = max(numbers)
    try:
        # A PyTorch that is built for the CPU sees no GPU, but DALI does.
        if wanted < visible_gpus() or wanted < (gpus := _asked_cuda()):
            return
    except RuntimeError:  # GPUs cannot be counted: DALI reports the reason
        return
    raise ValueError(
        f"devices={list(devices)}: there is no GPU {wanted}, as {visible(gpus)}"
        f"{', counted from 0' if gpus else ''} (check nvidia-smi and CUDA_VISIBLE_DEVICES); "
        "devices='cpu' runs on the CPU"
    )


def visible(gpus: int) -> str:
    """Return the number of visible GPUs as a clause for messages."""
    return f"{gpus or 'no'} GPU{'s are' if gpus > 1 else ' is'} visible"


def share_out(total: int, pipelines: int) -> list[int]:
    """Divide reader processes among pipelines as evenly as possible, at least 1 for each."""
    return [max(1, total // pipelines + (one < total % pipelines)) for one in range(pipelines)]
