"""Keywords of the factories: their types, and errors for those that are misspelt."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, Required, TypedDict, Unpack, get_args, get_origin

from dali_pipelines.aia.calibration import Calibration, CalibrationSettings
from dali_pipelines.aia.preset import Preset
from readers.fits.hdus import HduName
from readers.fits.planes import Planes
from readers.fits.several.hdu import Hdu
from readers.messages import did_you_mean
from readers.places.storage import Storage
from readers.sampling.geometry import Flip, WindowMode
from readers.sampling.order import Shuffle
from readers.sampling.placement import PlacementOutput
from readers.sampling.row_window import Outside
from readers.sampling.schedule import Tail
from readers.targets.contract import Target

_ELSEWHERE = {
    "num_workers": "num_read_processes",
    "py_num_workers": "num_read_processes",
    "drop_last": "tail",
    "prefetch_factor": "prefetch",
    "prefetch_queue_depth": "prefetch",
    "sampler": "weights",
    "steps_per_epoch": "epoch_steps",
}
"""Names of some settings in PyTorch's DataLoader, in Keras and in DALI."""

StartMethod = Literal["spawn", "forkserver", "fork"]
Mode = Literal["train", "eval"]
Ragged = Literal["list", "pad", None]
Transform = Callable[[Any, Any, Any], Any]
"""(image, `dali_pipelines.graph.own.chance.Chance`, PipelineConfig) -> image; layout HWC."""


class Augmentation(Protocol):
    """One of `augment`, such as `dali_pipelines.augment.color.ColorJitter`."""

    @property
    def of_8_bits(self) -> bool:
        """Whether encoded images of more than 8 bits are rejected, as their range is unknown."""

    @property
    def moves_pixels(self) -> bool:
        """Whether it also changes the geometry, which `targets` and `outputs` do not follow."""

    @property
    def num_images(self) -> int:
        """Batches of float32 images that its operators hold, for the estimate of memory."""

    def add(self, image: Any, chance: Any, kind: Any) -> Any:
        """Add its operators to the graph.

        Parameters
        ----------
        image : DataNode
            Layout HWC.
        chance : dali_pipelines.graph.own.chance.Chance
            Random numbers.
        kind : dali_pipelines.graph.own.operators.ImageKind
            Properties of the image.

        Returns
        -------
        DataNode
            Of the same layout, type and device.
        """


DType = Literal["float32", "float16", "uint8", "uint16", "int16", "int32"]


class ImageSettings(TypedDict, total=False):
    """Keywords that a Loader passes on to all factories."""

    num_epochs: int | None
    rejected: Mapping[int, str]
    columns: tuple[str, ...]
    outputs: tuple[PlacementOutput, ...]
    targets: Mapping[str, Target]
    mode: Mode
    crop: int | tuple[int, int] | None
    window: WindowMode
    outside: Outside
    missing: float
    flip: Flip
    rotate: float
    zoom: tuple[float, float]
    random_area: tuple[float, float] | None
    random_aspect_ratio: tuple[float, float]
    resize_shorter: int | None
    resize: int | tuple[int, int] | None
    mean: float | Sequence[float] | None
    std: float | Sequence[float] | None
    augment: Sequence[Augmentation]
    transform: Transform | None
    dtype: DType
    ragged: Ragged
    num_threads: int
    start_method: StartMethod
    read_timeout: float | None
    storage: Storage
    cache: str | None
    cache_bytes: int | None
    read_threads: int | None
    prefetch: int | None


class PipelineSettings(ImageSettings, total=False):
    """Keywords of all factories: the fields of `dali_pipelines.config.PipelineConfig`."""

    batch_size: Required[int]
    shard_id: int
    num_shards: int
    seed: int
    shuffle: Shuffle
    block_rows: int | None
    weights: str | None
    tail: Tail
    epoch_steps: int | None
    epoch: int
    position: int
    first_step: int
    device_id: int | None
    num_read_processes: int


class AiaSettings(PipelineSettings, CalibrationSettings, total=False):
    """Keywords of `aia_pipeline`: those of all factories, and fields of `Calibration`."""

    hdu: int | None


class LoaderSettings(ImageSettings, CalibrationSettings, total=False):
    """Keywords that a Loader passes on to one of the factories of this package.

    Which of them a factory takes is checked when the Loader is made.
    """

    hdu: HduName | None
    planes: Planes | None
    num_planes: int | None
    hdus: Mapping[str, HduName | Hdu] | None
    channels: int
    check_entropy: bool
    file_dtype: str
    calibration: Calibration | None
    preset: str | Preset | None


def names_of(factory: Callable[..., Any], *, unpacked: bool = True) -> frozenset[str] | None:
    """Return the keywords that a factory takes, those of a TypedDict only if `unpacked`.

    None if they are unknown: its ``**`` keywords are not annotated as ``Unpack[...]`` of a
    TypedDict, such as `PipelineSettings`.
    """
    try:
        parameters = inspect.signature(factory, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError):  # not in Python, or its types are not imported
        return None
    names: set[str] = set()
    for parameter in parameters:
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.add(parameter.name)
        elif unpacked and get_origin(parameter.annotation) is not Unpack:
            return None
        elif unpacked:
            names |= get_args(parameter.annotation)[0].__annotations__.keys()
    return frozenset(names)


def check_augment(augment: Any) -> None:
    """Raise ValueError if these are no augmentations."""
    if not isinstance(augment, Sequence) or isinstance(augment, str):
        raise ValueError(
            f"augment must be augmentations in a tuple, as (Blur(3),), got {augment!r}"
        )
    for one in augment:
        if isinstance(one, type) or not callable(getattr(one, "add", None)):
            instead = f": give {one.__name__}(...)" if isinstance(one, type) else ""
            raise ValueError(
                f"augment must be augmentations, such as Blur(3) or ColorJitter(0.4), got {one!r}"
                f"{instead}"
            )


def check_moving(augment: Iterable[Augmentation], *, followed: bool) -> None:
    """Raise ValueError if an augmentation moves pixels, and something else should follow."""
    moving = [type(one).__name__ for one in augment if one.moves_pixels]
    if moving and followed:
        raise ValueError(
            f"{moving[0]} also shears, shifts and rotates images, which targets and outputs do "
            "not follow: give rotate and zoom, and a ColorJitter, instead"
        )


def check_names(where: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError if one is unknown, which suggests similar names and lists all of them."""
    for name in given:
        if name not in known:
            raise TypeError(
                f"{where} takes no setting {name!r}: {did_you_mean(name, known, _ELSEWHERE)}"
                f"There are {', '.join(sorted(known))}"
            )
