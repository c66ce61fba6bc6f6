"""What NVIDIA's driver says of itself, asked by NVML: CUDA is not initialised by that."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_NO_DRIVER = 9
"""NVML_ERROR_DRIVER_NOT_LOADED: the library is there, as in many containers, but no driver."""
_TEXT_BYTES = 96
"""NVML's own size for the longest of its names."""


@dataclass(frozen=True, slots=True)
class Driver:
    """NVIDIA's driver."""

    version: str
    cuda: tuple[int, int]
    """Newest CUDA (major, minor) that it offers."""
    gpus: tuple[str, ...]
    """Names of all GPUs of the machine, those hidden by CUDA_VISIBLE_DEVICES included."""


def installed_driver() -> Driver | None:
    """Ask the driver; give None where there is none.

    Raises
    ------
    OSError
        If there is a driver and it does not answer.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    status = nvml.nvmlInit_v2()
    if status == _NO_DRIVER:
        return None
    _check(status)
    try:
        version = ctypes.create_string_buffer(_TEXT_BYTES)
        _check(nvml.nvmlSystemGetDriverVersion(version, _TEXT_BYTES))
        cuda, count = ctypes.c_int(), ctypes.c_uint()
        _check(nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda)))
        _check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        names = tuple(_name(nvml, number) for number in range(count.value))
    finally:
        nvml.nvmlShutdown()
    # 12040 is CUDA 12.4.
    return Driver(version.value.decode(), (cuda.value // 1000, cuda.value % 1000 // 10), names)


def _name(nvml: ctypes.CDLL, number: int) -> str:
    device = ctypes.c_void_p()
    _check(nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device)))
    name = ctypes.create_string_buffer(_TEXT_BYTES)
    _check(nvml.nvmlDeviceGetName(device, name, _TEXT_BYTES))
    return name.value.decode()


def _check(status: int) -> None:
    if status != 0:
        raise OSError(
            f"NVIDIA's driver does not answer (NVML error {status}): see what nvidia-smi says; "
            "after an update of the driver, restart the machine"
        )
