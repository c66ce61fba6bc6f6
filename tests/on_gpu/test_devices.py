"""Over any devices each row comes once, from the device of its pipeline, with the same pixels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dali_pipelines import Index, Loader, fits_pipeline
from dali_pipelines.runtime.devices import visible_gpus
from on_gpu import archives
from on_gpu.devices import SEED, check, epoch, gathered, one_by_one

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
