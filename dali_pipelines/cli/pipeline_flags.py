"""Flags of a pipeline: its settings, targets, and the calibration of AIA and HMI."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from dali_pipelines.aia.calibration import Calibration, CalibrationSettings
from dali_pipelines.cli.flag_types import (
    at_least,
    column_and_hdu,
    function_of,
    hdu_name,
    named_hdu,
    number_or,
)
from dali_pipelines.cli.options import given_flags, option, settings_of
from dali_pipelines.cli.shared_flags import HduFlags, StorageFlags
from dali_pipelines.config import PipelineConfig
from dali_pipelines.features import FeatureName, LogMel, Mfcc, Spectrogram
from dali_pipelines.settings import PipelineSettings
from dali_pipelines.stretch import Kind, Stretch
from readers.messages import did_you_mean

if TYPE_CHECKING:
    from dali_pipelines import ReaderPipeline
    from dali_pipelines.settings import Augmentation
    from readers.targets.contract import Target

AUGMENTATIONS = (
    *("ColorJitter", "TrivialAugment", "RandAugment", "AutoAugment", "AugMix", "RandomGrayscale"),
    *("Noise", "PhotonNoise", "Blur", "Erase"),
    *("Gain", "WhiteNoise", "RecordedNoise", "SpecAugment"),
)
"""Names that ``--augment`` takes."""
_IMAGE = (
    "mode seed crop window grid outside missing flip flip_probability rotate zoom random_area "
    "random_aspect_ratio resize_shorter resize interpolation stretch augment transform ragged "
    "outputs"
)
_ONLY_FOR: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("hdu", "planes", "hdus"), ("fits",)),
    "variables": ("chunked",),
    "preset": ("aia", "chunked"),
    **dict.fromkeys(("duration", "rate", "speeds", "features"), ("audio",)),
    "short": ("audio", "video"),
    "channels": ("audio", "jpeg"),
    **dict.fromkeys(("frames", "stride", "decode"), ("video",)),
}
"""Flags of some pipelines, and the values of ``--pipeline`` that take them."""
_CHANGES: dict[str, dict[str, Any]] = {
    "crop": {"metavar": "PIXELS"},
    "grid": {"type": number_or("chunks"), "nargs": "+", "metavar": "PIXELS"},
    "resize": {"metavar": "PIXELS"},
    "resize_shorter": {"metavar": "PIXELS"},
    "stretch": {
        "type": str,
        "nargs": "+",
        "metavar": "KIND(...)",
        "help": "curve between pixel values and the input of a network, one for all channels or "
        f"one for each, such as 'asinh(unit=100, a=0.1)': {', '.join(get_args(Kind))}",
    },
    "augment": {
        "type": str,
        "nargs": "+",
        "metavar": "NAME(...)",
        "help": "random changes of the images after the flips, one after the other, such as "
        f"'ColorJitter(brightness=0.4)': {', '.join(AUGMENTATIONS)}",
    },
    "transform": {
        "type": str,
        "metavar": "MODULE:FUNCTION",
        "help": "function that adds operators of your own to the graph",
    },
}


def image_settings(more: str = "", **changes: Mapping[str, Any]) -> Any:
    """Declare a field that gathers the settings of images, and `more` settings of a pipeline."""
    return settings_of(
        PipelineConfig, f"{_IMAGE} {more}", hints=PipelineSettings, **_CHANGES, **changes
    )


def calibration_settings(size: str) -> Any:
    """Declare a field that gathers settings of a calibration; `size` is the flag of its size."""
    return settings_of(
        Calibration,
        "size order center exposure psf pointing_table correction_table",
        hints=CalibrationSettings,
        renamed={"size": size},
        size={
            "metavar": "PIXELS",
            "help": "height and width in pixels of the whole registered image, or one number for a "
            "square (default: the preset's, or 1024)",
        },
        psf={"metavar": "ANGSTROM"},
        pointing_table={"type": str, "metavar": "FILE"},
        correction_table={"type": str, "metavar": "FILE"},
    )


@dataclass(frozen=True, kw_only=True)
class PipelineFlags(StorageFlags, HduFlags):
    """Base class of configurations: the pipeline, its targets, and its calibration.

    Subclasses have a field ``settings``, see `image_settings`, and a field
    ``calibration_settings``.
    """

    pipeline: str = option(
        "fits", "what the files are", choices=("fits", "jpeg", "aia", "chunked", "audio", "video")
    )
    preset: str | None = option(
        None,
        "aia: recipe of calibration and stretch, a name or a .toml file; chunked: recipe whose "
        "stretch is used",
        metavar="NAME",
    )
    variables: tuple[str, ...] | None = option(
        None,
        "chunked: variables that become the channels, with spaces or commas (default: all of the "
        "Index)",
        nargs="+",
        metavar="NAME",
    )
    mask: str | None = option(
        None,
        "column of the Index with the file of each image's mask, and for FITS the HDU, as "
        "seg_path=SEG; chunked: variable with the mask",
        type=column_and_hdu,
        metavar="COLUMN[=HDU]",
    )
    boxes: str | None = option(
        None, "column with lists of boxes, each x1, y1, x2, y2", metavar="COLUMN"
    )
    labels: str | None = option(None, "column with lists of their labels", metavar="COLUMN")
    duration: float | None = option(
        None,
        "audio: seconds of each segment (default: whole recordings)",
        type=float,
        metavar="SECONDS",
    )
    short: str | None = option(
        None,
        "audio, video: what to do with recordings or videos shorter than a segment or clip",
        choices=("reject", "pad"),
    )
    rate: int | None = option(
        None,
        "audio: samples per second after resampling (default: the rate of the first recording)",
        type=int,
        metavar="HZ",
    )
    channels: int | None = option(
        None,
        "audio: number of channels that recordings must have, or 1 for their mean (default: 1); "
        "jpeg: 3, or 1 for gray (default: 3)",
        type=int,
        metavar="N",
    )
    speeds: tuple[float, ...] | None = option(
        None, "audio: speeds; each recording gets one at random", type=float, nargs="+", metavar="N"
    )
    features: str | None = option(
        None,
        "audio: waveform (default), spectrogram, log_mel or mfcc, or 'LogMel(n_mels=64)' and so on",
        metavar="NAME",
    )
    frames: int | None = option(
        None,
        "video: frames of a clip (default: as in the clips of the Index)",
        type=at_least(1),
        metavar="N",
    )
    stride: int | None = option(
        None,
        "video: distance between two frames of a clip, in frames (default: 1)",
        type=at_least(1),
        metavar="N",
    )
    decode: str | None = option(
        None,
        "video: decode in the readers by PyAV, or in the graph by DALI (default readers)",
        choices=("readers", "graph"),
    )

    if TYPE_CHECKING:
        settings: dict[str, Any]
        calibration_settings: dict[str, Any]

    def __post_init__(self) -> None:
        StorageFlags.__post_init__(self)
        of_aia = given_flags(self, "calibration_settings")
        kinds: dict[str, tuple[str, ...]] = dict.fromkeys(of_aia, ("aia",))
        kinds |= {name: _ONLY_FOR[name] for name in self._own_flags()}
        for name, known in kinds.items():
            if self.pipeline not in known:
                shown = " or ".join(known)
                raise ValueError(f"--{name} is for --pipeline={shown}, got {self.pipeline}")
        if self.preset is not None and self.pipeline == "chunked" and "stretch" in self.settings:
            raise ValueError("--preset and --stretch both stretch arrays: leave out one")
        _ = self.pipeline_config  # to check the settings

    @cached_property
    def pipeline_config(self) -> PipelineConfig:
        """The settings of the pipeline, checked, with defaults for those that are not given.

        If the Index may have windows, the crop is a placeholder.
        """
        from dali_pipelines.loading.settings import takes_windows

        settings = {"batch_size": 1, **self.pipeline_settings()}
        if self.pipeline == "audio":  # windows of recordings need no crop
            settings.pop("window", None)
        if self.pipeline == "chunked" and settings.get("grid") == "chunks":
            del settings["grid"]
        if self.pipeline not in ("audio", "video") and takes_windows(settings):
            settings.setdefault("crop", (1, 1))  # the Loader checks the real one
        return PipelineConfig(**settings)

    def pipeline_settings(self) -> dict[str, Any]:
        """Return the keywords for the pipeline factory that were given."""
        settings = {**self.settings, "storage": self.storage}
        if "stretch" in settings:
            settings["stretch"] = tuple(map(stretch_of, settings["stretch"]))
        if self.pipeline == "aia":
            settings.pop("stretch", None)  # the stretch is part of the calibration
        if "augment" in settings:
            settings["augment"] = tuple(map(augmentation_of, settings["augment"]))
        if "transform" in settings:
            settings["transform"] = function_of("transform", settings["transform"])
        if targets := self.targets():
            settings["targets"] = targets
        return settings

    def _own_flags(self) -> dict[str, Any]:
        """Return the given flags of `_ONLY_FOR`."""
        given = {name: getattr(self, name, None) for name in _ONLY_FOR}
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }

    def factory_settings(self) -> dict[str, Any]:
        """Return all given keywords for the factory of ``--pipeline``."""
        given = self._own_flags()
        preset = given.pop("preset", None)
        if self.pipeline == "chunked" and preset is not None:
            given["stretch"] = preset
        if self.calibration is not None:
            given["calibration"] = self.calibration
        if "variables" in given:
            given["variables"] = tuple(",".join(given["variables"]).split(","))
        if "features" in given:
            given["features"] = parsed_features(given["features"])
        if "all" in given.get("planes", ()):
            given["planes"] = "all"
        if "hdus" in given:
            given["hdus"] = dict(given["hdus"])
        return self.pipeline_settings() | given

    def image_flags(self, *more: str) -> str:
        """Return the given flags of images, and of the fields in `more`, as text."""
        given = {name: getattr(self, name) for name in ("mask", "boxes", "labels", *more)}
        given = self._own_flags() | given | self.settings
        words = []
        for name, value in given.items():
            if value is not None and value is not False:
                values = value if isinstance(value, tuple) else () if value is True else (value,)
                words += [f"--{name}", *map(str, values)]
        return " ".join(words)

    def targets(self) -> dict[str, Target]:
        """Return the targets for the pipeline factory, by the names of their outputs.

        Raises
        ------
        ValueError
            If there are labels without boxes.
        """
        from readers import Boxes, Mask

        if self.labels is not None and self.boxes is None:
            raise ValueError("--labels are the labels of --boxes: set both")
        found: dict[str, Target] = {}
        if self.mask is not None:
            # Many instances; a variable may also be of floats, such as the land fraction of ERA5.
            if self.pipeline == "chunked":
                found["mask"] = Mask(variable=self.mask, dtype="float64")
            else:
                column, equals, hdu = self.mask.partition("=")
                found["mask"] = Mask(column, dtype="int32", hdu=hdu_name(hdu) if equals else None)
        if self.boxes is not None:
            found["boxes"] = Boxes(self.boxes, labels=self.labels)
        return found

    @cached_property
    def calibration(self) -> Calibration | None:
        """Calibration of AIA and HMI frames; None for other pipelines."""
        if self.pipeline != "aia":
            return None
        settings = dict(self.calibration_settings)
        if "stretch" in self.settings:
            settings["stretch"] = tuple(map(stretch_of, self.settings["stretch"]))
        return Calibration.of(self.preset, **settings)


@dataclass(frozen=True, kw_only=True)
class ImagesFlags(PipelineFlags):
    """Base class of configurations whose pipeline may read several images, or planes, of a row."""

    planes: tuple[int | Literal["all"], ...] | None = option(
        None,
        "fits: planes of images with more than two axes to read as channels, or all",
        type=number_or("all"),
        nargs="+",
        metavar="N",
    )
    hdus: tuple[tuple[str, Any], ...] | None = option(
        None,
        "fits: several images of each row, in place of --hdu and --planes, as image=SCI dq=DQ; +N "
        "counts from the HDU of the row",
        type=named_hdu,
        nargs="+",
        metavar="NAME=HDU",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if "all" in (self.planes or ()) and len(self.planes or ()) > 1:
            raise ValueError("--planes takes numbers or all, not both")
        names = [name for name, _ in self.hdus or ()]
        if len(set(names)) < len(names):
            raise ValueError(f"--hdus takes each name once, got {' '.join(names)}")


def factory_of(pipeline: str) -> Callable[..., ReaderPipeline]:
    """Return the pipeline factory of a ``--pipeline``."""
    from dali_pipelines import (
        aia_pipeline,
        audio_pipeline,
        chunked_pipeline,
        fits_pipeline,
        jpeg_pipeline,
        video_pipeline,
    )

    factories: dict[str, Callable[..., ReaderPipeline]] = {
        "audio": audio_pipeline,
        "fits": fits_pipeline,
        "jpeg": jpeg_pipeline,
        "aia": aia_pipeline,
        "chunked": chunked_pipeline,
        "video": video_pipeline,
    }
    return factories[pipeline]


def suffixes_of(pipeline: str) -> Sequence[str]:
    """Return the suffixes of the files that a ``--pipeline`` reads; () for stores of arrays."""
    from readers.index.table import SUFFIXES

    if pipeline == "chunked":
        return ()
    return SUFFIXES[pipeline if pipeline in SUFFIXES else "fits"]


def stretch_of(text: str) -> Stretch:
    """Return the Stretch that a text describes.

    The text is a kind with values, such as ``asinh(unit=100)``, or a TOML table as text, such as
    ``{'kind': 'asinh', 'unit': 100}``. ValueError if it is neither, or a value makes no sense.
    """
    kind, values, settings = _call_of("stretch", text, "asinh(unit=100, a=0.1)", "kind")
    pairs = {name: tuple(one) for name, one in settings.items() if isinstance(one, list)}
    made: Stretch = _made("stretch", text, Stretch, values, {"kind": kind, **settings, **pairs})
    return made


def augmentation_of(text: str) -> Augmentation:
    """Return the augmentation that a text describes.

    The text is a call with literal values, such as ``RandAugment(2, magnitude=9)``, or a TOML table
    as text, such as ``{'name': 'RandAugment', 'magnitude': 9}``. ValueError if it is neither, the
    name is unknown, or a value makes no sense.
    """
    import dali_pipelines

    example = "ColorJitter(brightness=0.4)"
    name, values, settings = _call_of("augment", text, example, "name")
    if not isinstance(name, str) or name not in AUGMENTATIONS:
        name = str(name)
        raise ValueError(
            f"--augment has no {name!r}: {did_you_mean(name, AUGMENTATIONS)}available are "
            f"{', '.join(AUGMENTATIONS)}"
        )
    made: Augmentation = _made("augment", text, getattr(dali_pipelines, name), values, settings)
    return made


def parsed_features(text: str) -> str | Spectrogram:
    """Return the features that a text describes, such as ``log_mel`` or ``LogMel(n_mels=64)``.

    ValueError if there are no such features, or a value makes no sense.
    """
    name, values, settings = _call_of("features", text, "LogMel(n_mels=64)", "name")
    kinds = {kind.__name__: kind for kind in (Spectrogram, LogMel, Mfcc)}
    if name in kinds and not values:
        made: Spectrogram = _made("features", text, kinds[name], (), settings)
        return made
    if values or settings or name not in get_args(FeatureName):
        known = (*get_args(FeatureName), *(f"{kind}(...)" for kind in kinds))
        raise ValueError(f"--features must be one of {', '.join(known)}, got {text!r}")
    return str(name)


def _made(
    flag: str,
    text: str,
    kind: Callable[..., Any],
    values: Sequence[Any],
    settings: Mapping[str, Any],
) -> Any:
    """Make an object of the library; its error becomes a ValueError that names the flag."""
    try:
        return kind(*values, **settings)
    except (OSError, TypeError, ValueError) as error:  # RecordedNoise looks for files
        raise ValueError(f"--{flag} {text!r}: {error}") from None


class _Infinities(ast.NodeTransformer):
    """Replaces the names inf and nan by the numbers."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace a name."""
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node


def _call_of(
    flag: str, text: str, example: str, key: str
) -> tuple[Any, list[Any], Mapping[str, Any]]:
    """Return name, positional values and keyword values, without running anything.

    A table has the name under `key`.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Name):
            tree = _Infinities().visit(tree)
        if isinstance(tree, ast.Dict):
            table = ast.literal_eval(tree)
            return table.pop(key), [], table
        if isinstance(tree, ast.Name):
            return tree.id, [], {}
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            settings = {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords}
            if len(settings) < len(tree.keywords):
                raise ValueError("a keyword is given twice")
            return tree.func.id, [*map(ast.literal_eval, tree.args)], settings
    except (SyntaxError, ValueError, KeyError, RecursionError):
        pass
    raise ValueError(f"--{flag} takes a name with values, such as {example!r}, got {text!r}")
