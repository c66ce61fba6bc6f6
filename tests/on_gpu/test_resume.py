"""A state that is saved on some devices is continued on others: with the next row, same pixels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from dali_pipelines import Index, Loader, aia_pipeline, fits_pipeline
from on_gpu import archives
from on_gpu.devices import SEED, check, epoch, gathered
from on_gpu.test_devices import several

LEGS = [
    pytest.param("cpu cpus cpu", id="cpu"),
    *(
        pytest.param(legs, marks=pytest.mark.gpu)
        for legs in ("cpu gpu", "gpu cpu", "gpu gpus gpu", "cpus gpus cpu gpu")
    ),
]
"""Devices of a run, and of those that resume it."""


def devices_of(leg: str) -> Sequence[int | None]:
    if leg == "gpus":
        return several()
    found: dict[str, list[int | None]] = {"cpu": [None], "cpus": [None] * 3, "gpu": [0]}
    return found[leg]


@pytest.mark.parametrize("legs", LEGS)
@pytest.mark.parametrize("kind", ["fits", "aia"])
def test_the_rest_of_the_epoch(tmp_path: Path, kind: str, legs: str) -> None:
    """In two epochs, the first of which is begun on one device and ended on another."""
    factory: Any = fits_pipeline if kind == "fits" else aia_pipeline
    settings: dict[str, Any] = {"crop": (20, 30), "window": "random", "flip": "hv"}
    if kind == "aia":
        index = archives.aia_frames(tmp_path)
        settings |= {"size": 64, "scale": 38.4, "rotate": 20.0}
        index = Index.from_paths([index.path(row) for row in range(len(index))] * 3)
    else:
        index = archives.fits_archive(tmp_path)
    state: Any = None
    steps: list[Any] = []
    for number, leg in enumerate(legs.split()):
        loader = Loader(
            factory,
            index,
            batch_size=1 + number,
            num_read_processes=1,
            devices=devices_of(leg),
            seed=SEED if state is None else 0,  # the state's counts
            **settings,
        )
        with loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            last = number == len(legs.split()) - 1
            assert loader.epoch == 0
            steps += islice(loader, None if last else 1)
            state = json.dumps(loader.state_dict())
    tolerance = {"rtol": 1e-5, "atol": 0.01} if kind == "aia" else {}
    assert json.loads(state)["epoch"] == 1
    check(gathered(steps), epoch(factory, index, [None], **settings), **tolerance)
