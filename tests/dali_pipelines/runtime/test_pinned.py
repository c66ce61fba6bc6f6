"""A slab for a GPU is page-locked where it is used, as long as it is mapped, and only there."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import closing
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gpu_memory import FakeCuda, use_pinned_pools

from dali_pipelines import Index, Loader, ReaderPipeline, npy_pipeline
from dali_pipelines.runtime.pinned import Cuda, PinnedSlab, why_refused
from dali_pipelines.runtime.processes.reader_pool import ReaderPool
from readers.worker.slab import SharedMemory

SETTINGS: dict[str, Any] = {"batch_size": 4, "shuffle": False}
PAGES = 4 << 12
ROWS = 40


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Arrays of a row's number, from 200 bytes to 4 MB, the largest of them last."""
    folder = tmp_path_factory.mktemp("growing")
    paths = [folder / f"{row}.npy" for row in range(ROWS)]
    for row, path in enumerate(paths):
        np.save(path, np.full((50, 1 + row * row * 13), row, np.float32))
    return Index.from_paths(paths)


def images_are_right(loader: Loader) -> bool:
    """Go through an epoch; return whether each image has the values of its row."""
    rows = []
    for (batch,) in loader:
        for row, image in zip(batch["row"].tolist(), batch["image"], strict=True):
            rows.append(row)
            assert image.shape == (1, 50, 1 + row * row * 13)
            if not (image == row).all():
                return False
    return rows == list(range(len(loader.index)))


def pinned_loader(
    monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, index: Index, **settings: Any
) -> Loader:
    use_pinned_pools(monkeypatch, cuda)
    options = {**SETTINGS, "framework": "numpy", "ragged": "list", **settings}
    return Loader(npy_pipeline, index, devices=[None], **options)


# ---- Which memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_each_block_is_page_locked_once_as_sizes_grow(
    growing: Index, monkeypatch: pytest.MonkeyPatch, start_method: Any
) -> None:
    cuda = FakeCuda()
    options: dict[str, Any] = {"num_read_processes": 2, "start_method": start_method}
    with pinned_loader(monkeypatch, cuda, growing, **options) as loader:
        loader.start()
        assert cuda.num_registered == 0  # readers may still be forked
        assert images_are_right(loader)
        after_one = cuda.num_registered
        for _ in range(4):
            assert images_are_right(loader)
        assert after_one > 10
        # Readers take other samples each time, and may need some more blocks.
        assert cuda.num_registered < 2 * after_one
        assert sum(cuda.parts.values()) < 1 << 30
    assert cuda.num_pinned > 0
    assert cuda.num_late == 0
    assert cuda.num_unregistered == cuda.num_registered


@pytest.mark.parametrize("most", [0, 1, 7])
def test_samples_arrive_where_cuda_refuses(
    growing: Index, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Nothing more is called page-locked from then on; what is, stays until the end."""
    cuda = FakeCuda(most)
    with pinned_loader(monkeypatch, cuda, growing) as loader:
        for _ in range(2):
            assert images_are_right(loader)
        assert (cuda.num_registered, cuda.num_unregistered) == (most, 0)
        num_pinned = cuda.num_pinned
        assert images_are_right(loader)
        assert cuda.num_pinned == num_pinned
    assert cuda.parts == {}


def test_a_pipeline_on_the_cpu_needs_no_cuda(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cuda, "current", None)
    with Loader(npy_pipeline, npy_index, devices=[None], **SETTINGS) as loader:
        assert sum(len(batch["row"]) for (batch,) in loader) == len(npy_index)


# ---- How long ----------------------------------------------------------------------------------


def test_a_copy_that_reads_late_is_seen(growing: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests would show nothing: a slot is free before the outputs have come."""

    class TooEarly(ReaderPool):
        def __init__(self, *arguments: Any, **others: Any) -> None:
            super().__init__(*arguments, **others)
            self._finished = 1 << 60  # reaches in: batches whose outputs have come

    cuda = FakeCuda()
    use_pinned_pools(monkeypatch, cuda, TooEarly)
    settings: dict[str, Any] = {**SETTINGS, "framework": "numpy", "ragged": "list"}
    with Loader(npy_pipeline, growing, devices=[None], prefetch=3, **settings) as loader:
        for _ in range(5):
            assert images_are_right(loader)
    assert cuda.num_late > 0


def slab_maps() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:samples")


@pytest.mark.parametrize("how", ["close", "collect"])
def test_nothing_stays_page_locked(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The stand-in sees to it that the memory is still mapped as it is unlocked."""
    gc.collect()
    before, cuda = slab_maps(), FakeCuda()
    use_pinned_pools(monkeypatch, cuda)
    pipeline: ReaderPipeline | None = npy_pipeline(npy_index, device_id=None, **SETTINGS)
    assert pipeline is not None
    pipeline.build()
    for _ in range(5):
        pipeline.run()
    assert len(cuda.parts) > 2
    if how == "close":
        pipeline.close()
        pipeline.close()
    else:
        pipeline = None
        gc.collect()
    assert (cuda.parts, cuda.num_unregistered) == ({}, cuda.num_registered)
    assert slab_maps() == before


def test_a_forked_process_leaves_it_alone(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda()
    use_pinned_pools(monkeypatch, cuda)
    with closing(npy_pipeline(npy_index, device_id=None, **SETTINGS)) as pipeline:
        pipeline.build()
        pipeline.run()
        if (pid := os.fork()) == 0:
            pipeline.close()
            del pipeline
            gc.collect()
            os._exit(cuda.num_unregistered)
        assert os.waitpid(pid, 0)[1] == 0
        assert len(cuda.parts) == cuda.num_registered
        pipeline.run()
    assert cuda.parts == {}


def slab(nbytes: int = PAGES) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(SharedMemory(nbytes).map(), np.uint8)


def test_nothing_is_page_locked_after_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` of another thread waits for parts that are being locked, and others come too late."""
    cuda = FakeCuda()
    pinned = PinnedSlab(slab(), cuda)  # type: ignore[arg-type]
    inside, go_on = threading.Event(), threading.Event()
    register = cuda.register

    def slow(address: int, nbytes: int) -> None:
        inside.set()
        go_on.wait(60)
        register(address, nbytes)

    monkeypatch.setattr(cuda, "register", slow)
    results = list[bool]()
    adding = threading.Thread(target=lambda: results.append(pinned.add([(0, 4096)])))
    closing = threading.Thread(target=pinned.close)
    adding.start()
    assert inside.wait(60)
    closing.start()
    go_on.set()
    adding.join(60)
    closing.join(60)
    assert results == [True]
    assert cuda.parts == {}
    assert not pinned.add([(4096, 4096)])
    assert (cuda.num_registered, cuda.num_unregistered) == (1, 1)


def test_its_memory_stays_mapped_until_then() -> None:
    cuda = FakeCuda()
    memory = slab()
    seen = weakref.ref(memory)
    pinned = PinnedSlab(memory, cuda)  # type: ignore[arg-type]
    del memory
    assert pinned.add([(0, 4096), (8192, 4096)])
    gc.collect()
    assert seen() is not None
    del pinned
    gc.collect()
    assert seen() is None
    assert cuda.num_unregistered == 2


# ---- The calls of CUDA -------------------------------------------------------------------------


class Code(IntEnum):
    """Some of CUresult."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NOT_SUPPORTED = 801


class FakeDriver(ModuleType):
    """The module ``cuda.bindings.driver`` with two GPUs; one function may fail."""

    CU_MEMHOSTREGISTER_PORTABLE = 1

    def __init__(self, fails: str | None = None) -> None:
        super().__init__("cuda.bindings.driver")
        self.fails, self.contexts = fails, list[str]()
        self.calls = list[tuple[Any, ...]]()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        self.calls.append((name, *arguments))
        if name == self.fails:
            return (Code.CUDA_ERROR_NOT_SUPPORTED,)
        if name == "cuDeviceGet":
            return Code.CUDA_SUCCESS, f"GPU {arguments[0]}"
        if name == "cuDevicePrimaryCtxRetain":
            return Code.CUDA_SUCCESS, f"context of {arguments[0]}"
        if name == "cuCtxPushCurrent":
            self.contexts.append(arguments[0])
        elif name == "cuCtxPopCurrent":
            return Code.CUDA_SUCCESS, self.contexts.pop()
        elif name != "cuInit":
            assert self.contexts[-1:] == ["context of GPU 1"]
        return (Code.CUDA_SUCCESS,)


@pytest.fixture
def use_driver(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    def use(driver: Any) -> None:
        bindings: Any = None if driver is None else ModuleType("cuda.bindings")
        if driver is not None:
            bindings.driver = driver
        monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
        monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)

    return use


def test_the_gpu_is_current_for_the_calls_and_not_afterwards(
    use_driver: Callable[[Any], None],
) -> None:
    driver = FakeDriver()
    use_driver(driver)
    memory = slab()
    address = memory.__array_interface__["data"][0]
    pinned = PinnedSlab(memory, Cuda(1))
    assert driver.calls == []
    assert pinned.add([(0, 4096)])
    assert pinned.add([(0, 4096), (8192, 4096)])
    assert driver.contexts == []
    pinned.close()
    assert driver.contexts == []
    calls = [call for call in driver.calls if "Host" in call[0]]
    assert calls == [
        ("cuMemHostRegister", address, 4096, 1),
        ("cuMemHostRegister", address + 8192, 4096, 1),
        ("cuMemHostUnregister", address),
        ("cuMemHostUnregister", address + 8192),
    ]
    assert sum(call[0] == "cuDevicePrimaryCtxRetain" for call in driver.calls) == 1


@pytest.mark.parametrize(
    "fails", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuMemHostRegister"]
)
def test_a_call_that_fails_is_named(use_driver: Callable[[Any], None], fails: str) -> None:
    driver = FakeDriver(fails)
    use_driver(driver)
    pinned = PinnedSlab(slab(), Cuda(1))
    assert not pinned.add([(0, 4096)])
    assert driver.contexts == []
    num_calls = len(driver.calls)
    assert not pinned.add([(4096, 4096)])
    assert len(driver.calls) == num_calls
    pinned.close()
    reason = why_refused(1)
    assert reason is not None
    assert fails in reason
    assert "CUDA_ERROR_NOT_SUPPORTED" in reason


def test_why_refused(use_driver: Callable[[Any], None]) -> None:
    use_driver(FakeDriver())
    assert why_refused(1) is None
    use_driver(None)
    assert "cuda" in (why_refused(1) or "")


@pytest.mark.gpu
def test_cuda_page_locks_a_slab() -> None:
    assert why_refused(0) is None
