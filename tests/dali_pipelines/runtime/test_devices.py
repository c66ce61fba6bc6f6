from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dali_pipelines.runtime import devices
from dali_pipelines.runtime.devices import (
    Placement,
    check_device,
    check_visible,
    find_placement,
    share_out,
)

_DRIVER = """
#include <stdlib.h>
int cuInit(unsigned flags) { return getenv("NO_GPU") ? 100 : 0; }
int cuDeviceGetCount(int *count) { *count = 3; return 0; }
"""


def test_torchrun_sets_the_shard() -> None:
    found = find_placement(
        [None, None], environ={"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0"}
    )
    assert found == Placement((None, None), first_shard=4, num_shards=6)


def test_arguments_win_over_the_environment() -> None:
    found = find_placement([1], 0, 1, environ={"RANK": "2", "WORLD_SIZE": "3"})
    assert found == Placement((1,), first_shard=0, num_shards=1)


def test_default_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, environ, expected in (
        (0, {}, (None,)),
        (3, {}, (0, 1, 2)),
        (4, {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}, (2,)),
        (1, {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}, (0,)),
    ):
        monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda gpus=gpus: gpus)
        assert find_placement(None, environ=environ).devices == expected


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_another_process_asks_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a driver of three GPUs, which is not what a driver does with CUDA_VISIBLE_DEVICES."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    build = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(tmp_path / "libcuda.so.1")]
    subprocess.run(build, input=_DRIVER, text=True, check=True)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    paths = f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    for variables, expected in (({}, 3), ({"NO_GPU": "1"}, 0)):
        devices._count_gpus.cache_clear()
        for name, value in {"LD_LIBRARY_PATH": paths, **variables}.items():
            monkeypatch.setenv(name, value)
        assert devices.visible_gpus() == expected
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "none of the above")  # asked again
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setattr(devices, "_COUNT", "raise SystemExit('broken driver')")
    with pytest.raises(RuntimeError, match="GPUs could not be counted, give devices: broken dri"):
        devices.visible_gpus()
    devices._count_gpus.cache_clear()


def test_shard_outside() -> None:
    with pytest.raises(ValueError, match=r"shard_id must lie in \[0, num_shards=2\), got 2"):
        find_placement([None], 2, 2)


@pytest.mark.parametrize(
    ("total", "parts", "expected"),
    [(16, 4, [4, 4, 4, 4]), (5, 3, [2, 2, 1]), (1, 3, [1, 1, 1]), (2, 1, [2])],
)
def test_share_out(total: int, parts: int, expected: list[int]) -> None:
    assert share_out(total, parts) == expected


@pytest.mark.parametrize("device", ["cpu", "cuda:0", -1, 0.0])
def test_what_is_no_device(device: object) -> None:
    message = f"the number of a GPU, or None for the CPU, got {device!r}"
    with pytest.raises(ValueError, match=message):
        check_device(device)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("torch_sees", "cuda_sees", "given", "message"),
    [
        (0, 0, [0], r"devices=\[0\]: there is no GPU 0, as no GPU is visible \(check nvidia-smi"),
        (2, 2, [1, 2, None], "there is no GPU 2, as 2 GPUs are visible, counted from 0"),
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
    monkeypatch.setattr(devices, "_count_gpus", lambda visible: cuda_sees)
    if message is None:
        check_visible(given)
    else:
        with pytest.raises(ValueError, match=f"{message}.*; devices=.None. runs on the CPU"):
            check_visible(given)


def test_gpus_that_cannot_be_counted_are_left_to_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(visible: str | None) -> int:
        raise RuntimeError("broken driver")

    monkeypatch.setattr(devices, "visible_gpus", lambda: 0)
    monkeypatch.setattr(devices, "_count_gpus", fails)
    check_visible([0])
