"""Batches keep their values, whatever becomes of the memory that their samples came through."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_memory import FakeCuda, use_pinned_pools
from poison import overwrite, poison_free_slots
from ramp_images import SEED, Archive

from dali_pipelines import Index, Loader, Mask, npy_pipeline
from dali_pipelines.runtime.processes import reader_pool
from dali_pipelines.runtime.tensor_lists import of_slab
from readers.worker.slab import Bytes, Layout

EPOCHS = 4
READERS = 2


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Overwrite each slot that is free again; return their numbers."""
    return poison_free_slots(monkeypatch)


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("RICE_1", "torch", {"crop": 40, "window": "random", "flip": "hv"}),
    ("RICE_1", "dlpack", {"ragged": "list", "prefetch": 1, "start_method": "fork"}),
    ("plain", "numpy", {"ragged": "list", "prefetch": 4}),
    ("plain", "torch", {"ragged": "pad", "start_method": "spawn"}),
    ("plain", "numpy", {"crop": 40, "masks": True, "read_timeout": 50.0}),
    ("GZIP_2", "numpy", {"crop": (30, 40), "window": "random", "dtype": "int16"}),
    ("HCOMPRESS_1", "dlpack", {"crop": 40, "outputs": ("matrix",)}),
    ("npy", "numpy", {"ragged": "list", "read_timeout": 50.0}),
    ("npy", "torch", {"crop": 40, "columns": ("label",), "batch_size": 1}),
    ("plain", "dlpack", {"crop": 40, "prefetch": 70}),
    ("png", "dlpack", {"resize": 32, "flip": "h"}),
    ("jpeg", "numpy", {"crop": 40, "window": "random", "masks": True}),
    ("mcu rows", "torch", {"crop": 40, "window": "random", "read_threads": 3}),
    ("mcu rows", "numpy", {"random_area": (0.2, 1.0), "resize": (24, 32)}),
]


@pytest.mark.parametrize("is_pinned", [False, True])
@pytest.mark.parametrize(("kind", "framework", "settings"), CASES)
def test_batches_that_are_kept_equal_those_read_in_this_process(
    ramps: Callable[..., Archive],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    poisoned: list[int],
    kind: str,
    framework: Any,
    settings: dict[str, Any],
    is_pinned: bool,
) -> None:
    """With page-locked memory, a slot is also in use until the outputs of its batch have come."""
    cuda = FakeCuda()
    if is_pinned:
        use_pinned_pools(monkeypatch, cuda)
    archive = ramps(kind)
    archive = archive.with_column("label", np.arange(len(archive.images), dtype=np.float32))
    settings = {"batch_size": 3, "seed": SEED, **archive.settings, **settings}
    if settings.pop("masks", False):
        archive = archive.with_masks(tmp_path)[0]
        settings["targets"] = {"mask": Mask("mask_path", "int16", outside=-1)}
    options = {"num_read_processes": READERS, "devices": [None], "framework": framework}
    with Loader(archive.factory, archive.index, **options, **settings) as loader:
        # All of them are kept to the end, while the slots are used again and again.
        kept = [(epoch, batch) for epoch in range(EPOCHS) for (batch,) in loader]
    # Of the last batches the outputs have not come.
    assert len(poisoned) >= len(kept) - (settings.get("prefetch", 2) if is_pinned else 0)
    assert (cuda.num_pinned > 0) == is_pinned
    assert cuda.num_late == 0
    expected = [archive.samples(epoch=epoch, **settings) for epoch in range(EPOCHS)]
    num_samples = 0
    for epoch, batch in kept:
        arrays = {name: by_slot(values) for name, values in batch.items()}
        for slot, row in enumerate(arrays["row"]):
            num_samples += 1
            for name, array in arrays.items():
                value = expected[epoch][int(row)][name]
                np.testing.assert_array_equal(array[slot], value, f"{name} of row {row}")
    assert num_samples == EPOCHS * len(archive.images)


def test_memory_and_files_are_free_after_close(npy_index: Index) -> None:
    """At once, and not when garbage is collected."""

    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count("memfd:samples")
        return maps, len(os.listdir("/proc/self/fd"))

    loader = Loader(npy_pipeline, npy_index, batch_size=4, devices=[None])
    found = []
    gc.disable()
    try:
        for _ in range(4):
            with loader:
                for _ in loader:
                    pass
            found.append(held())
    finally:
        gc.enable()
    assert {maps for maps, _ in found} == {found[0][0]}
    # A socket of each may stay, as another thread may wait there.
    assert found[-1][1] - found[0][1] <= 2 * 3


def test_a_slot_that_is_used_too_early_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing would be shown above. Small arrays are copied before."""
    paths = [tmp_path / f"{row}.npy" for row in range(4)]
    for path in paths:
        np.save(path, np.zeros((64, 64), np.float32))

    def overwritten(layout: Layout, memory: Bytes, slot: int) -> Any:
        batch = of_slab(layout, memory, slot)
        overwrite(layout, memory, slot)
        return batch

    monkeypatch.setattr(reader_pool, "of_slab", overwritten)
    index = Index.from_paths(paths)
    with closing(npy_pipeline(index, batch_size=4, device_id=None)) as pipeline:
        pipeline.build()
        image = pipeline.run()[pipeline.output_names.index("image")]
        assert np.isnan(image[0]).all()


def by_slot(values: Any) -> list[Any]:
    if isinstance(values, list):
        return [np.from_dlpack(value) for value in values]
    return [*np.from_dlpack(values)]
