"""True is not 1 in a setting that is a number, and nothing but True and False is a bool.

The settings are found by the annotations of dataclasses and functions, so that new ones are tested.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import dali_pipelines
import readers
from dali_pipelines import (
    Index,
    Loader,
    PipelineSettings,
    aia_pipeline,
    audio_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    video_pipeline,
)
from dali_pipelines.aia.calibration import CalibrationSettings
from readers import Shard

NUMBERS = {"int", "float", "HduName", "Planes"}
"""Types of settings that take numbers."""
NOT_SETTINGS = {
    # made by this package, for each sample, batch or rank
    *("Draws", "LoaderStats", "Peek", "PixelStatistics", "Placement", "Ranks", "ReadReport"),
    *("Rejected", "Row"),
    *("Sample", "SampleSpec", "Slot", "Source", "Window"),
    # read from files, and made of a Calibration
    *("AiaReader", "CorrectionTable", "PointingTable"),
}
NEEDED: dict[str, dict[str, Any]] = {
    "AudioReader": {"rate": 8000},
    "BlockOrder": {"num_rows": 5},
    "BucketOrder": {"num_rows": 5},
    "Blur": {"kernel_size": 3},
    "Boxes": {"column": "boxes"},
    "ChunkedReader": {"variables": None, "num_variables": 1},
    "ChannelsReader": {"reader": readers.NpyReader(), "parts": ("a",)},
    "ColorJitter": {"brightness": 0.5},
    "Mask": {"column": "mask_path"},
    "Noise": {"std": 1.0},
    "Order": {"num_rows": 5},
    "PhotonNoise": {"gain": 1.0},
    "PipelineConfig": {"batch_size": 2},
    "RecordedNoise": {"noises": readers.Index.from_paths(["noise.wav"])},
    "Schedule": {"num_rows": 5, "batch_size": 2, "shard": Shard()},
    "VideoReader": {"frames": 4},
    "TimeBlocks": {"column": "t_obs", "block": 10.0},
    "TimeOrder": {"column": "t_obs"},
    "WeightedOrder": {"weights": [1.0]},
}
"""Arguments without which a dataclass cannot be made."""
METHODS: dict[str, dict[str, Any]] = {
    "concat": {},
    "cutmix": {},
    "cutouts": {"catalogue": pa.table({"x": [5], "y": [5]}), "size": 4},
    "each_plane": {"planes": [0, 1]},
    "each_window": {"crop": 4, "image": (10, 10)},
    "from_zarr": {},
    "head": {},
    "scan_arrays": {},
    "scan_audio": {},
    "scan_videos": {},
    "each_clip": {"frames": 4},
    "group": {"channels": ["a"], "by": "name"},
    "mixup": {},
    "split": {"fractions": {"train": 1.0}},
    "with_keys": {"keys": ["EXPTIME"]},
    "with_mcu_rows": {},
    "with_nearest": {"catalogue": pa.table({"time": ["2020-01-01"]}), "tolerance": 1},
    "with_tiles": {},
}
"""Arguments of those of an Index, or of a batch, beside it."""


class Setting(NamedTuple):
    make: Callable[..., Any]
    needed: dict[str, Any]
    name: str
    wrong: list[Any]

    def __str__(self) -> str:
        return f"{self.make.__name__}-{self.name}"


def wrong_values(annotation: object) -> list[Any]:
    """Return bools for a number, alone and among numbers; and what is not quite a bool for one."""
    words = set(re.findall(r"\w+", str(annotation)))
    if not words & NUMBERS:
        return ["False", "", 0, 1] if "bool" in words else []
    if "Mapping" in words:
        return [{"train": True}]
    several = words & {"tuple", "Sequence", "Iterable"}
    pairs: list[Any] = [(True, 1), (1, True)] * bool(several)
    return [True, False, np.True_, *pairs]


def settings_of(
    make: Callable[..., Any], annotations: Mapping[str, object], needed: dict[str, Any]
) -> list[Setting]:
    return [
        Setting(make, needed, name, wrong)
        for name, annotation in annotations.items()
        if (wrong := wrong_values(annotation))
    ]


def parameters_of(function: Callable[..., Any]) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.annotation for one in parameters}


def fields() -> list[Setting]:
    packages = dali_pipelines, readers
    names = {name: getattr(package, name) for package in packages for name in dir(package)}
    return [
        setting
        for name, one in names.items()
        if dataclasses.is_dataclass(one) and name not in NOT_SETTINGS | {"Preset"}
        for setting in settings_of(
            one,  # type: ignore[arg-type]
            {field.name: field.type for field in dataclasses.fields(one) if field.init},
            NEEDED.get(name, {}),
        )
    ]


@pytest.mark.parametrize("setting", fields(), ids=str)
def test_fields(setting: Setting) -> None:
    make, needed, name, wrong = setting
    make(**needed)
    for value in wrong:
        with pytest.raises(ValueError, match=name.removesuffix("_id")):
            make(**{**needed, name: value})


OF_LOADERS = [
    *settings_of(Loader, parameters_of(Loader), {"factory": npy_pipeline}),
    *settings_of(Loader, parameters_of(npy_pipeline), {"factory": npy_pipeline}),
    *settings_of(Loader, parameters_of(audio_pipeline), {"factory": audio_pipeline}),
    *settings_of(Loader, parameters_of(video_pipeline), {"factory": video_pipeline}),
    *settings_of(Loader, parameters_of(jpeg_pipeline), {"factory": jpeg_pipeline}),
    *settings_of(Loader, parameters_of(fits_pipeline), {"factory": fits_pipeline}),
    *settings_of(Loader, PipelineSettings.__annotations__, {"factory": npy_pipeline}),
    *settings_of(Loader, CalibrationSettings.__annotations__, {"factory": aia_pipeline}),
]
OF_PIPELINES = {"device_id", "epoch", "position", "first_step"}
"""Settings that no Loader takes."""


@pytest.mark.parametrize(
    "setting", [one for one in OF_LOADERS if one.name not in OF_PIPELINES], ids=str
)
def test_keywords_of_a_loader(npy_index: Index, setting: Setting) -> None:
    _, needed, name, wrong = setting
    for value in wrong:
        options = {"batch_size": 2, "devices": [None], "bad_sample": "skip", **needed, name: value}
        with pytest.raises(ValueError, match=name.removesuffix("s")):
            Loader(index=npy_index, **options).make_pipelines()


def functions_of_an_index() -> dict[str, Any]:
    members = {name: getattr(Index, name) for name in dir(Index)}
    members |= {name: getattr(dali_pipelines, name) for name in dir(dali_pipelines)}
    return {
        name: one
        for name, one in members.items()
        if not name.startswith("_") and (inspect.isfunction(one) or inspect.ismethod(one))
    }


@pytest.mark.parametrize(
    "setting",
    [
        setting
        for name, one in functions_of_an_index().items()
        if name in METHODS
        for setting in settings_of(one, parameters_of(one), METHODS[name])
    ],
    ids=str,
)
def test_arguments_of_methods(npy_index: Index, setting: Setting) -> None:
    method, needed, name, wrong = setting
    times = pa.array([0] * len(npy_index), pa.timestamp("s"))
    index = npy_index.with_column("t_obs", times).with_column("name", ["a"] * len(npy_index))
    first: Any = [index] if method.__name__ == "concat" else index
    for value in wrong:
        with pytest.raises(ValueError, match=name):
            method(first, **{**needed, name: value})


def test_no_method_is_forgotten() -> None:
    found = {
        name
        for name, one in functions_of_an_index().items()
        if settings_of(one, parameters_of(one), {})
        if not name.endswith(("_pipeline", "_samples", "_statistics"))
    }
    assert found - {"hdu", "name", "path", "plane"} == set(METHODS)  # these take a row's number
