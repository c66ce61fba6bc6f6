"""NVIDIA's driver and GPUs by NVML, without initialising CUDA."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pynvml


@dataclass(frozen=True, slots=True)
class Driver:
    """NVIDIA's driver."""

    version: str
    cuda: tuple[int, int]
    """Newest CUDA (major, minor) that the driver offers."""
    gpus: tuple[str, ...]
    """Names of all GPUs of the machine, including those hidden by CUDA_VISIBLE_DEVICES."""


def installed_driver() -> Driver | None:
    """Return the facts that the driver reports; None if there is no driver.

    Raises
    ------
    OSError
        If there is a driver, but it does not answer.
    """
    try:
        pynvml.nvmlInit()
        try:
            cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            return Driver(
                pynvml.nvmlSystemGetDriverVersion(),
                (cuda // 1000, cuda % 1000 // 10),  # 12040 is CUDA 12.4
                tuple(map(pynvml.nvmlDeviceGetName, handles)),
            )
        finally:
            pynvml.nvmlShutdown()
    # Many containers have the library, but no driver.
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return None
    except pynvml.NVMLError as error:
        raise OSError(
            f"NVIDIA's driver does not answer (NVML error {error.value}): see what nvidia-smi "
            "reports; after an update of the driver, restart the machine"
        ) from error


def usable_gpus(driver: Driver | None) -> tuple[str, ...]:
    """Return the names of the driver's GPUs; empty if they are hidden on purpose."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return () if driver is None or hidden else driver.gpus
