"""Every CUDA kernel of the package compiles, and takes on each architecture what is published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.suites import kernels as suite
from dali_pipelines.kernels.fits import rice_stream
from dali_pipelines.kernels.jit import JIT
from gpu_offline.compiler import ARCHS, Usage, build
from gpu_offline.emulator import CC
from gpu_offline.kernels import KERNELS, Kernel, fingerprint, kernels_of_the_package

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def usages(kernels_folder: Path) -> list[Usage]:
    return build("gpu_offline.kernels:KERNELS", kernels_folder, tuple(ARCHS))


def test_no_kernel_is_forgotten() -> None:
    assert kernels_of_the_package() == {(k.module.__name__, k.name) for k in KERNELS}


def test_no_kernel_spills_or_uses_a_stack(usages: list[Usage]) -> None:
    """More than one register, in 8 bytes."""
    assert [usage for usage in usages if usage.spills > 4 or usage.stack > 8] == []
    assert all(usage.warps for usage in usages)


@pytest.mark.usefixtures("usages")
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernels_are_compiled_as_for_a_launch(kernels_folder: Path, kernel: Kernel) -> None:
    """For all features of a GPU, which numba asks for."""
    for arch in ARCHS:
        ptx = (kernels_folder / f"{kernel.name}.{arch}.ptx").read_text()
        newer = arch != "sm_75"
        assert f".target {arch}{'a' if newer else ''}\n" in ptx
        assert "\0" not in ptx


def test_the_code_of_each_kernel_is_kept_by_the_hash_of_all_sources() -> None:
    assert JIT.folder is not None
    for kernel in KERNELS:
        # Private, as numba-cuda tells it nowhere else.
        assert Path(kernel.dispatcher._cache.cache_path).is_relative_to(JIT.folder)


def test_the_published_table_is_of_these_kernels() -> None:
    """After a change: ``dali-pipelines bench --suite kernels --out FOLDER``, and copy it there.

    Registers are not compared, as another ptxas may give others.
    """
    newest = max(RESULTS.glob("kernels_offline_*.json"))
    header, lines = (
        json.loads(newest.read_text())["tables"][0][key] for key in ("header", "lines")
    )
    table = [dict(zip(header, line, strict=True)) for line in lines]
    expected = {(k.name, arch, fingerprint(k)) for k in KERNELS for arch in ARCHS}
    assert {(line["kernel"], line["architecture"], line["source"]) for line in table} >= expected
    assert {(line["stack"], line["spills"]) for line in table} <= {("0", "0"), ("8", "4")}


@pytest.mark.usefixtures("usages")
@pytest.mark.skipif(CC is None, reason="no C compiler, cc")
def test_the_suite_counts_all_kernels(
    kernels_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each output pixel is stored once, and no kernel loads or moves less than a pixel takes."""
    monkeypatch.setattr(suite, "_HEIGHT", 40)
    monkeypatch.setattr(suite, "_WIDTH", 100)
    sheet = suite.counts_sheet("sm_90", kernels_folder)
    table = [dict(zip(sheet.header, line, strict=True)) for line in sheet.lines]
    assert {line["work"] for line in table} == {*suite.DECODED, *suite.WARPED, *suite.AUGMENTED}
    assert {line["kernel"] for line in table} == {kernel.name for kernel in KERNELS}
    for line in table:
        if line["kernel"] in ("sum_gray", "set_limits"):  # a few numbers for each image
            assert float(line["stores"]) < 0.1
            continue
        assert float(line["stores"]) == pytest.approx(1, abs=0.02)
        assert float(line["bytes moved"]) > 4
        assert float(line["instructions"]) > float(line["loads"]) + float(line["shared"])


def test_the_hash_of_a_kernel_changes_with_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [fingerprint(kernel) for kernel in KERNELS]
    monkeypatch.setattr(rice_stream, "NEAR", np.uint64(29))
    changed = {
        kernel.name
        for kernel, hashed in zip(KERNELS, before, strict=True)
        if fingerprint(kernel) != hashed
    }
    assert changed == {"decode_images"}
