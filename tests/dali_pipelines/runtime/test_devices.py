from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dali_pipelines.runtime import devices
from dali_pipelines.runtime.devices import (
    check_visible,
    device_of,
    devices_of,
    share_out,
)

DRIVER = """
#include <stdlib.h>
int cuInit(unsigned flags) {
    if (getenv("BROKEN")) exit(3);
    return getenv("NO_GPU") ? 100 : 0;
}
int cuDeviceGetCount(int *count) { *count = 3; return 0; }
"""

ASK = """
from dali_pipelines.runtime.devices import visible_gpus
try:
    print(visible_gpus())
except RuntimeError as error:
    print(error)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("variable", "expected"),
    [(None, "3"), ("NO_GPU", "0"), ("BROKEN", "GPUs could not be counted (")],
)
def test_without_pytorch_cuda_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh_python: Callable[..., bytes],
    variable: str | None,
    expected: str,
) -> None:
    """By another process, which finds a driver of three GPUs here."""
    build = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(tmp_path / "libcuda.so.1")]
    subprocess.run(build, input=DRIVER, text=True, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    if variable is not None:
        monkeypatch.setenv(variable, "1")
    assert fresh_python(ASK).decode().startswith(expected)


@pytest.mark.parametrize(
    ("total", "parts", "expected"),
    [(16, 4, [4, 4, 4, 4]), (5, 3, [2, 2, 1]), (1, 3, [1, 1, 1]), (2, 1, [2])],
)
def test_share_out(total: int, parts: int, expected: list[int]) -> None:
    assert share_out(total, parts) == expected


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "mps", "", -1, 0.0, [0]])
def test_what_is_no_device(device: Any) -> None:
    with pytest.raises(ValueError, match="devices are 'cpu' or None, and GPUs") as caught:
        device_of(device)
    assert repr(device) in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("cpu", [None]),
        ("cuda:1", [1]),
        ("cuda", [0]),
        (2, [2]),
        (None, [None]),
        (torch.device("cpu"), [None]),
        (torch.device("cuda", 3), [3]),
        (torch.device("cuda"), [0]),
        (["cpu", None], [None, None]),
        ([0, "cuda:1", np.int64(2)], [0, 1, 2]),
        (range(2), [0, 1]),
    ],
)
def test_devices_as_pytorch_has_them(given: Any, expected: list[int | None]) -> None:
    assert devices_of(given) == expected


def test_no_device() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        devices_of([])


@pytest.mark.parametrize(
    ("torch_sees", "cuda_sees", "given", "message"),
    [
        (0, 0, [0], r"devices=\[0\].*no GPU 0, as no GPU .*nvidia-smi"),
        (2, 2, [1, 2, None], "no GPU 2, as 2 GPUs .*counted from 0"),
        (2, 2, [1, 0], None),
        (0, 2, [1], None),  # PyTorch is built for the CPU
        (0, 0, [None], None),
    ],
)
def test_gpus_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
    torch_sees: int,
    cuda_sees: int,
    given: list[int | None],
    message: str | None,
) -> None:
    monkeypatch.setattr(devices, "visible_gpus", lambda: torch_sees)
    # What another process would find: `test_without_pytorch_cuda_is_asked` has one.
    monkeypatch.setattr(devices, "_count_gpus", lambda visible: cuda_sees)
    if message is None:
        check_visible(given)
    else:
        with pytest.raises(ValueError, match=f"{message}.*devices='cpu' "):
            check_visible(given)


def test_gpus_that_cannot_be_counted_are_left_to_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(visible: str | None) -> int:
        raise RuntimeError("broken driver")

    monkeypatch.setattr(devices, "visible_gpus", lambda: 0)
    monkeypatch.setattr(devices, "_count_gpus", fails)
    check_visible([0])
