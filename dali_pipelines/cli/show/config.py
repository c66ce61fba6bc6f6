"""Settings of ``dali-pipelines show``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from dali_pipelines.cli.flag_types import at_least
from dali_pipelines.cli.options import flags_of, option
from dali_pipelines.cli.pipeline_flags import (
    PipelineFlags,
    calibration_settings,
    image_settings,
)
from dali_pipelines.cli.run_config import RunConfig
from dali_pipelines.cli.shared_flags import FileFlags
from dali_pipelines.cli.show.pictures import Display
from dali_pipelines.features import Spectrogram
from dali_pipelines.stretch import Stretch

COLUMNS = 6
"""Default number of columns of a sheet."""
_OF_RUN = {"data": "files", "size": "registered_size"}
"""Flags of `run`, and their names here."""


@dataclass(frozen=True, kw_only=True)
class ShowConfig(FileFlags, PipelineFlags):
    """Flags of ``show``."""

    COMMON: ClassVar[str] = (
        "files output pipeline count draws display crop window flip augment mask boxes preset "
        "config"
    )
    GROUPS: ClassVar[Mapping[str, str]] = {
        "sheet": "output count draws columns size captions display same_range each_augment "
        "before_after",
        "images": "pipeline hdu frames stride decode variables",
        "objects of S3, Google Cloud Storage and web servers": "endpoint region profile anonymous "
        "retries request_timeout concurrency",
        "geometry and augmentation": "mode seed crop window grid outside missing flip "
        "flip_probability rotate zoom random_area random_aspect_ratio resize_shorter resize "
        "interpolation stretch augment transform ragged outputs",
        "recordings": "duration short rate channels speeds features",
        "targets": "mask boxes labels",
        "frames of AIA and HMI": "preset registered_size order center pointing_table "
        "correction_table exposure psf",
    }

    output: str = option(None, "the file to write", short="-o", required=True, metavar="SHEET.png")
    before_after: bool = option(False, "aia: show one file after each step of its calibration")
    each_augment: bool = option(
        False, "show the first image with each --augment by itself, in rows of --draws"
    )
    count: int = option(
        24,
        "maximum number of samples, drawn at random from equal parts of the Index",
        type=at_least(1),
        metavar="N",
    )
    draws: int = option(
        1, "draws of each sample, with new random numbers", type=at_least(1), metavar="N"
    )
    columns: int | None = option(
        None,
        f"columns of the sheet (default: the draws, the channels of a sample, or {COLUMNS}); "
        "--captions writes columns of the Index",
        type=at_least(1),
        metavar="N",
    )
    captions: tuple[str, ...] | None = option(
        None, "columns of the Index to write under each image", nargs="+", metavar="COLUMN"
    )
    size: int = option(256, "size of a picture on the sheet", type=at_least(64), metavar="PIXELS")
    display: Display | None = option(
        None,
        "mapping of values to colours, as in astropy.visualization (default: asinh; linear for "
        "values that --stretch or a preset has stretched; none for photographs)",
        choices=get_args(Display),
    )
    same_range: bool = option(
        False, "one range of values for the sheet (AIA: for each channel), not one for each image"
    )
    settings: dict[str, Any] = image_settings()
    calibration_settings: dict[str, Any] = calibration_settings("registered_size")

    def __post_init__(self) -> None:
        if not self.output.lower().endswith(".png"):
            raise ValueError(f"-o must end in .png, got {self.output}")
        super().__post_init__()
        if self.before_after and self.pipeline != "aia":
            raise ValueError(f"--before_after is for --pipeline=aia, got {self.pipeline}")
        if self.captions and self.before_after:
            raise ValueError("--captions and --before_after exclude each other: leave out one")
        if self.each_augment and ("augment" not in self.settings or self.before_after):
            raise ValueError("--each_augment needs --augment, and excludes --before_after")
        if self.same_range and self.before_after:
            raise ValueError("--same_range is not for --before_after, whose steps change the unit")

    @property
    def noun(self) -> str:
        """What the pictures show."""
        return "recordings" if self.pipeline == "audio" else "images"

    @property
    def display_of_pixels(self) -> Display | None:
        """Mapping of the delivered values to colours; None for photographs as they are."""
        if self.display is not None:
            return self.display
        if self.pipeline == "audio":  # other features are logarithms
            features = self.factory_settings().get("features")
            is_power = features == "spectrogram" or type(features) is Spectrogram
            return "asinh" if is_power else "linear"
        is_stretched = "stretch" in self.settings | self.factory_settings()
        if is_stretched or (self.calibration is not None and self.calibration.stretch != Stretch()):
            return "linear"
        return None if self.pipeline in ("jpeg", "video") else "asinh"


def of_run(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that matter here from a file for `run`, by the names of `show`.

    A file is for `run` if it has keys or values that only `run` knows. Others are returned as they
    are.

    Raises
    ------
    ValueError
        If it asks for several images of each row, or the meaning of size is ambiguous.
    """
    own, theirs = ({flag.name for flag in flags_of(each)} for each in (ShowConfig, RunConfig))
    for name in ("hdus", "planes"):
        if name in settings:
            raise ValueError(
                f"{name} asks for several images of each row, but show draws one: leave {name} out "
                "of the file, and choose an image with --hdu"
            )
    only_theirs, only_here = theirs - own, own - theirs
    lists = [name for name in ("columns", "size") if isinstance(settings.get(name), str | list)]
    if only_theirs.isdisjoint(settings) and not lists:
        has_size = "size" in settings and settings.get("pipeline") == "aia"
        if has_size and only_here.isdisjoint(settings):
            raise ValueError(
                "size means a registered frame in run, but a picture in show: write "
                "registered_size in a file for show, or data in a file for run"
            )
        return settings
    left_out = only_theirs - set(_OF_RUN) | {"columns"}  # here the columns of the sheet
    kept = {name: value for name, value in settings.items() if name not in left_out}
    return {_OF_RUN.get(name, name): value for name, value in kept.items()}
