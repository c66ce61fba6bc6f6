"""What a GPU reads directly from the readers' memory are the samples, however late it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from poison import poison_free_slots

from dali_pipelines import Index, Loader, fits_pipeline, jpeg_pipeline, npy_pipeline
from dali_pipelines.runtime.pinned import Cuda
from on_gpu import archives
from on_gpu.devices import SEED, check, check_most, gathered, one_by_one

EPOCHS = 5
LARGE = 2048
"""Pixels a side: copying takes longer than the next steps of the consumer."""


def large_arrays(folder: Path) -> Index:
    """Write arrays of their row's number, 16 MB each."""
    import numpy as np

    paths = [folder / f"{row}.npy" for row in range(12)]
    for row, path in enumerate(paths):
        np.save(path, np.full((LARGE, LARGE), row, np.float32))
    return Index.from_paths(paths)


@pytest.mark.gpu
@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize(
    ("factory", "files", "settings"),
    [
        (fits_pipeline, archives.fits_archive, {"crop": (20, 30), "window": "random"}),
        (jpeg_pipeline, archives.photographs, {"crop": (50, 60)}),
        (npy_pipeline, large_arrays, {}),
        (npy_pipeline, large_arrays, {"prefetch": 4}),
    ],
)
def test_batches_that_are_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    factory: Callable[..., Any],
    files: Callable[[Path], Index],
    settings: dict[str, Any],
    refuses: bool,
) -> None:
    """Slots that are free again are overwritten; with CUDA's consent, and without."""
    register, addresses = Cuda.register, set[int]()

    def count(cuda: Cuda, address: int, nbytes: int) -> None:
        if refuses:
            raise RuntimeError("refused by a test")
        register(cuda, address, nbytes)
        addresses.add(address)

    monkeypatch.setattr(Cuda, "register", count)
    freed = poison_free_slots(monkeypatch)
    index = files(tmp_path)
    expected = one_by_one(factory, index, **settings)
    same = check_most if factory is jpeg_pipeline else check_constant
    options: dict[str, Any] = {"batch_size": 3, "num_read_processes": 2, "seed": SEED, **settings}
    with Loader(factory, index, devices=[0], **options) as loader:
        epochs = [list(loader) for _ in range(EPOCHS)]
    assert bool(addresses) != refuses
    assert freed
    same(gathered(epochs[0]), expected)
    # Later epochs have other random windows: those that have none are compared.
    for steps in epochs[1:] if "window" not in settings else ():
        same(gathered(steps), expected)


def check_constant(found: dict[int, Any], expected: dict[int, Any]) -> None:
    """Compare as `check` does, also images of one value."""
    if all(image.min() == image.max() for image in expected.values()):
        for row, image in expected.items():
            assert (found[row] == image).all(), f"row {row}"
        assert sorted(found) == sorted(expected)
    else:
        check(found, expected)
