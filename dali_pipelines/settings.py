"""Types of the factories' keywords, for type checkers and editors.

`dali_pipelines.PipelineConfig` has the defaults and descriptions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, Required, TypedDict

import numpy as np

from dali_pipelines.aia.calibration import Calibration, CalibrationSettings
from dali_pipelines.aia.preset import Preset
from dali_pipelines.features import Features
from dali_pipelines.runtime.devices import DeviceLike
from dali_pipelines.stretch import Stretches
from readers.contract import Short
from readers.fits.headers import HduName
from readers.fits.multi_hdu import Hdu
from readers.fits.planes import Planes
from readers.places.storage import Storage
from readers.sampling.geometry import Flip, Interpolation, WindowMode
from readers.sampling.order import Shuffle
from readers.sampling.placement import PlacementOutput
from readers.sampling.row_window import Outside
from readers.sampling.schedule import Tail
from readers.targets.contract import Target

StartMethod = Literal["spawn", "forkserver", "fork"]
Mode = Literal["train", "eval"]
Ragged = Literal["list", "pad", None]
Transform = Callable[[Any, Any, Any], Any]
"""Function of (image, `dali_pipelines.Chance`, PipelineConfig); it returns an image, layout HWC."""


class Augmentation(Protocol):
    """Element of `augment`, such as `dali_pipelines.ColorJitter`; subclasses have the defaults."""

    @property
    def of_8_bits(self) -> bool:
        """Whether encoded images of more than 8 bits are rejected."""
        return False

    @property
    def moves_pixels(self) -> bool:
        """Whether it changes the geometry. Then `targets` and `outputs` are refused."""
        return False

    @property
    def num_images(self) -> int:
        """Number of float32 images that its operators hold per sample, to estimate memory."""
        return 1

    def add(self, image: Any, chance: Any, kind: Any) -> Any:
        """Add the operators to the graph.

        Parameters
        ----------
        image : DataNode
            Image in layout HWC.
        chance : dali_pipelines.graph.user_operators.chance.Chance
            Random numbers.
        kind : dali_pipelines.graph.user_operators.operators.ImageKind
            Properties of the image.

        Returns
        -------
        DataNode
            Image of the same layout, type and device.
        """


DType = Literal["float32", "float16", "bfloat16", "uint8", "uint16", "int16", "int32"]


MemoryFormat = Literal["contiguous_format", "channels_last"]


class TorchDType(Protocol):
    """A dtype of PyTorch, such as torch.float16."""

    @property
    def is_floating_point(self) -> bool:
        """Whether this is a floating-point type."""


DTypeLike = DType | np.dtype[Any] | type[np.generic] | TorchDType


class OrderSettings(TypedDict, total=False):
    """Keywords for the order of the samples."""

    batch_size: Required[int]
    seed: int
    shuffle: Shuffle | None
    block_rows: int | None
    weights: str | None
    tail: Tail
    epoch_steps: int | None


class CommonSettings(OrderSettings, total=False):
    """Keywords that a Loader passes to any factory, for images and recordings."""

    num_epochs: int | None
    rejected: Mapping[int, str]
    columns: tuple[str, ...]
    mode: Mode
    mean: float | Sequence[float] | None
    std: float | Sequence[float] | None
    augment: Sequence[Augmentation]
    transform: Transform | None
    dtype: DTypeLike
    ragged: Ragged
    num_threads: int
    start_method: StartMethod
    read_timeout: float | None
    storage: Storage
    cache: str | None
    cache_bytes: int | None
    read_threads: int | None
    prefetch: int | None


class SharedSettings(CommonSettings, total=False):
    """Keywords that a Loader passes to factories for images."""

    outputs: tuple[PlacementOutput, ...]
    targets: Mapping[str, Target]
    crop: int | tuple[int, int] | None
    window: WindowMode
    grid: int | tuple[int, int] | Literal["chunks"] | None
    outside: Outside
    missing: float
    flip: Flip
    flip_probability: float
    rotate: float
    zoom: tuple[float, float]
    random_area: tuple[float, float] | None
    random_aspect_ratio: tuple[float, float]
    resize_shorter: int | None
    resize: int | tuple[int, int] | None
    interpolation: Interpolation
    stretch: Stretches | None
    memory_format: MemoryFormat | Any


class ShardSettings(TypedDict, total=False):
    """Keywords of factories that a Loader sets itself."""

    shard_id: int
    num_shards: int
    epoch: int
    position: int
    first_step: int
    device_id: DeviceLike
    num_read_processes: int


class PipelineSettings(SharedSettings, ShardSettings, total=False):
    """Keywords of all factories for images: the fields of `dali_pipelines.PipelineConfig`."""


class AiaSettings(PipelineSettings, CalibrationSettings, total=False):
    """Keywords of `aia_pipeline`: those of `PipelineSettings`, and the fields of `Calibration`."""

    hdu: HduName | None


class AudioSettings(CommonSettings, ShardSettings, total=False):
    """Keywords of `audio_pipeline`: those of `PipelineSettings` that are not for images."""


class LoaderSettings(SharedSettings, CalibrationSettings, total=False):
    """Keywords that a Loader passes to one of the factories of this package.

    Whether the factory takes them is checked when the Loader is made.
    """

    hdu: HduName | None
    planes: Planes | None
    num_planes: int | None
    hdus: Mapping[str, HduName | Hdu] | None
    channels: int
    check_entropy: bool
    file_dtype: str
    variables: Sequence[str] | None
    calibration: Calibration | None
    preset: str | Preset | None
    stretch: Stretches | Preset | str | os.PathLike[str] | None  # type: ignore[misc] # of arrays
    duration: float | None
    rate: int | None
    features: Features
    short: Short
    speeds: tuple[float, ...]
    frames: int | None
    stride: int | None
    decode: Literal["readers", "graph"]
