"""Every CUDA kernel of the package compiles for every architecture, and takes what is published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dali_pipelines.kernels.fits import rice_stream
from gpu_offline.compiler import ARCHS, Usage, build
from gpu_offline.emulator import EMULATED
from gpu_offline.kernels import KERNELS, Kernel, fingerprint, kernels_of_the_package
from gpu_offline.translate import translate


@pytest.fixture(scope="module")
def usages(kernels_folder: Path) -> list[Usage]:
    return build("gpu_offline.kernels:KERNELS", kernels_folder)


def test_no_kernel_is_forgotten() -> None:
    assert kernels_of_the_package() == {(k.module.__name__, k.name) for k in KERNELS}


def test_no_kernel_spills_or_uses_a_stack(usages: list[Usage]) -> None:
    assert {(u.kernel, u.arch) for u in usages} == {(k.name, a) for k in KERNELS for a in ARCHS}
    assert [usage for usage in usages if usage.spills or usage.stack] == []
    assert all(usage.warps for usage in usages)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_all_that_is_compiled_is_emulated(
    usages: list[Usage], kernels_folder: Path, kernel: Kernel
) -> None:
    """If NVVM makes other PTX for an architecture, add that to `EMULATED`."""
    codes = {
        arch: translate((kernels_folder / f"{kernel.name}.{arch}.ptx").read_text())
        for arch in ARCHS
    }
    assert set(codes.values()) == {codes[arch] for arch in EMULATED}


class TestFingerprint:
    def test_of_functions_and_constants_that_a_kernel_uses(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = [fingerprint(kernel) for kernel in KERNELS]
        monkeypatch.setattr(rice_stream, "NEAR", np.uint64(29))
        after = [fingerprint(kernel) for kernel in KERNELS]
        assert [one != other for one, other in zip(before, after, strict=True)] == [
            kernel.name == "decode_images" for kernel in KERNELS
        ]
