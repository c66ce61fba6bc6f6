"""Over any devices each row comes once, from the device of its pipeline, with the same pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dali_pipelines import Boxes, Index, Loader, Mask, fits_pipeline
from dali_pipelines.runtime.devices import visible_gpus
from on_gpu import archives
from on_gpu.devices import DEVICES, SEED, check, epoch, gathered, one_by_one

SETTINGS: dict[str, Any] = {"crop": (20, 30), "window": "random", "flip": "hv"}


def several() -> list[int | None]:
    """Return all GPUs; of one GPU, twice the same."""
    gpus = visible_gpus()
    return [*range(gpus)] if gpus > 1 else [0, 0]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return archives.fits_archive(tmp_path_factory.mktemp("archive"))


@pytest.mark.parametrize(
    "on_gpu", [False, pytest.param(True, marks=pytest.mark.gpu)], ids=["cpu", "gpu"]
)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_one_and_several(index: Index, batch_size: int, on_gpu: bool) -> None:
    one, all_of_them = ([0], several()) if on_gpu else ([None], [None] * 3)
    expected = one_by_one(fits_pipeline, index, **SETTINGS)
    for devices in (one, all_of_them, [*all_of_them, None]):
        found = epoch(fits_pipeline, index, devices, batch_size=batch_size, **SETTINGS)
        check(found, expected)


@pytest.mark.parametrize(
    "on_gpu", [False, pytest.param(True, marks=pytest.mark.gpu)], ids=["cpu", "gpu"]
)
def test_images_are_where_their_pipeline_is(index: Index, on_gpu: bool) -> None:
    """And stay as they were while others come."""
    devices = several() if on_gpu else [None, None]
    where = [torch.device("cpu" if one is None else f"cuda:{one}") for one in devices]
    with Loader(
        fits_pipeline, index, batch_size=2, devices=devices, seed=SEED, **SETTINGS
    ) as loader:
        steps = list(loader)
        for batches in steps:
            assert [batch["image"].device for batch in batches] == where
            assert {batch["row"].device for batch in batches} == {torch.device("cpu")}
        for _ in loader:  # another epoch
            pass
    check(gathered(steps), one_by_one(fits_pipeline, index, **SETTINGS))


@pytest.mark.parametrize("device", DEVICES)
def test_targets_are_there_too(index: Index, device: int | None) -> None:
    """Each image is its own mask here."""
    paths = [index.path(row) for row in range(len(index))]
    boxes = [np.array([[1.0, 2, 40, 50]] * (row % 3)).reshape(-1, 4) for row in range(len(paths))]
    labels = [[7] * len(each) for each in boxes]
    several = index.with_column("mask_path", paths).with_column("boxes", boxes)
    targets = {"mask": Mask("mask_path", "float64"), "boxes": Boxes("boxes", "labels")}
    found = []
    for where in (None, device):
        with Loader(
            fits_pipeline,
            several.with_column("labels", labels),
            batch_size=3,
            devices=[where],
            seed=SEED,
            targets=targets,
            **SETTINGS,
        ) as loader:
            found.append([batch for (batch,) in loader])
    for on_cpu, there in zip(*found, strict=True):
        torch.testing.assert_close(there["mask"].float(), there["image"][:, 0], equal_nan=True)
        for name in ("mask", "boxes", "num_boxes", "labels"):
            assert there[name].is_cuda == (device is not None)
            np.testing.assert_array_equal(there[name].cpu(), on_cpu[name])


@pytest.mark.gpu
@pytest.mark.parametrize("framework", ["torch", "cupy", "numpy", "dlpack"])
def test_each_framework(index: Index, framework: Any) -> None:
    with Loader(
        fits_pipeline, index, batch_size=3, devices=[0], seed=SEED, framework=framework, **SETTINGS
    ) as loader:
        steps = [
            [{name: host(batch[name]) for name in ("row", "image")} for batch in batches]
            for batches in loader
        ]
    check(gathered(steps), one_by_one(fits_pipeline, index, **SETTINGS))


def host(array: Any) -> torch.Tensor:
    """Return a copy on the CPU."""
    found: torch.Tensor = torch.utils.dlpack.from_dlpack(array)
    return found.cpu()


@pytest.mark.gpu
def test_a_closed_loader_leaves_no_memory_of_cupy(index: Index) -> None:
    """DALI keeps the functions of its operators, and so what they hold, until garbage is collected;
    another pipeline of the same GPU goes on.
    """
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    options: dict[str, Any] = {"batch_size": 2, "devices": [0], "seed": SEED, **SETTINGS}
    with Loader(fits_pipeline, index, **options) as other:
        steps = iter(other)
        first = next(steps)
        with Loader(fits_pipeline, index, **options) as loader:
            list(loader)
        assert len(gathered([first, *steps])) == len(index)
    assert pool.total_bytes() == before
