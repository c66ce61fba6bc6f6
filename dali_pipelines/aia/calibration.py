"""Calibration settings of AIA and HMI frames, for `aia_pipeline` and the commands prep and show."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Any, Literal, TypedDict, Unpack, get_args

from dali_pipelines.aia.preset import Negative, Preset, load_preset
from dali_pipelines.aia.psf import check_psf_channel
from dali_pipelines.stretch import Stretch, Stretches
from dali_pipelines.values import (
    are_all,
    check_choice,
    check_type,
    pair_of,
)
from readers.aia.degradation import OFFICIAL_SHA256, OFFICIAL_URL, CorrectionTable
from readers.aia.pointing import PointingTable
from readers.aia.reader import AiaReader
from readers.aia.registration import PLATE_SCALE, Center
from readers.aia.rules import HeaderRules
from readers.fits.headers import HduName, checked
from readers.values import check_bool, check_integer, check_positive, is_integer, is_number

_TABLES: dict[str, Any] = {"pointing_table": PointingTable, "correction_table": CorrectionTable}
_FRAME = 4096
_SUN = 976.0
"""Approximate radius of the Sun in arcsec, for the conversion of `radius` to a scale."""

_INSTEAD = {
    "random_area": "crop, window and zoom",
    "resize_shorter": "the size of the registered image, as size=512, and crop",
    "resize": "the size of the registered image, as size=512",
    "mean": "a Stretch with mean",
    "std": "a Stretch with std",
}
NOT_OF_AIA = frozenset(_INSTEAD) | {"random_aspect_ratio", "interpolation"}
"""Settings of other factories that `aia_pipeline` refuses."""


def check_aia(settings: Mapping[str, Any]) -> None:
    """Raise ValueError for settings that `aia_pipeline` refuses; it names those to use instead."""
    for name, instead in _INSTEAD.items():
        if settings.get(name) is not None:
            raise ValueError(f"{name} is not for aia_pipeline: set {instead} instead")


class CalibrationSettings(TypedDict, total=False):
    """Keywords of `Calibration.of`: the fields of `Calibration`; tables may also be paths."""

    size: int | tuple[int, int]
    scale: float | None
    radius: float | None
    reduce: int | None
    order: Literal[1, 3]
    center: Center
    pointing_table: PointingTable | str | os.PathLike[str] | None
    correction_table: CorrectionTable | str | os.PathLike[str] | None
    exposure: bool
    psf: tuple[int, ...]
    stretch: Stretches | None
    negative: Negative
    missing: float
    rules: HeaderRules


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Calibration of level 1 frames to images on one grid.

    The steps, in aiapy's order, are pointing, deconvolution, registration, degradation and
    exposure. Reduction by area and the stretch follow. By default only the registration is on.
    """

    size: tuple[int, int] = (1024, 1024)
    """Height and width in pixels of the whole registered image, or one number for a square."""
    scale: float | None = None
    """Arcsec per pixel of the registered image; by default a full frame fits into it."""
    radius: float | None = None
    """Radius in pixels to which each solar disk (RSUN_OBS) is scaled, instead of `scale`."""
    reduce: int | None = None
    """Number of samples along each axis that are averaged to one pixel. By default frames are
    warped at their own resolution."""
    order: Literal[1, 3] = 3
    """Order of the spline: 1 is bilinear, 3 aiapy's cubic B-spline."""
    center: Center = "reference_pixel"
    """Centre of the image: ``reference_pixel`` as in aiapy, or ``sun``. They differ if CRVALi is
    not 0."""
    pointing_table: PointingTable | None = None
    """Master pointing table, used instead of the pointing in the header."""
    correction_table: CorrectionTable | None = None
    """Degradation table. AIA frames are divided by its factors."""
    exposure: bool = False
    """Divide AIA frames by EXPTIME."""
    psf: tuple[int, ...] = ()
    """Channels in angstrom to deconvolve; files of other channels are rejected."""
    stretch: Stretches = field(default_factory=Stretch)
    """Stretch of all channels; or one for each channel of the Index, in its order; or a mapping by
    channel, and files of other channels are rejected."""
    negative: Negative = "keep"
    """Treatment of negative pixels of AIA frames, see `dali_pipelines.Preset`."""
    missing: float = 0.0
    """Value in DN of pixels that are missing in the frame or beyond its edges. It is calibrated and
    stretched like other pixels; NaN stays NaN."""
    rules: HeaderRules = field(default_factory=HeaderRules)
    """Rules that a header must satisfy."""
    hdu: HduName | None = None
    """HDU of the images: number, EXTNAME, or EXTNAME and EXTVER; by default the first with an
    image."""

    def __post_init__(self) -> None:
        if (size := pair_of("size", self.size)) is None:
            raise ValueError("size must be (height, width) in pixels, got None")
        object.__setattr__(self, "size", size)
        for name in ("scale", "radius"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        if self.scale is not None and self.radius is not None:
            raise ValueError("set scale or radius, not both")
        if self.reduce is not None:
            check_integer("reduce", self.reduce, 1)
        check_choice("order", self.order, (1, 3))
        check_choice("center", self.center, get_args(Center))
        check_choice("negative", self.negative, get_args(Negative))
        check_bool("exposure", self.exposure)
        if not is_number(self.missing):
            raise ValueError(f"missing must be a number, such as math.nan, got {self.missing!r}")
        check_type("rules", self.rules, HeaderRules, "HeaderRules, e.g. HeaderRules(percentd=99)")
        for name, table in _TABLES.items():
            expected = f"a {table.__name__}, such as {table.__name__}.read(path)"
            check_type(name, getattr(self, name), table | None, expected)
        if not are_all(self.psf, Integral, least=0):
            raise ValueError(f"psf must be a tuple of channels, such as (171,), got {self.psf!r}")
        object.__setattr__(self, "psf", tuple(map(int, self.psf)))
        for channel in self.psf:
            check_psf_channel(channel)
        object.__setattr__(self, "hdu", checked(self.hdu))
        stretch = self.stretch
        by_channel: Mapping[Any, Any]
        if isinstance(stretch, Sequence) and not isinstance(stretch, str):
            by_channel = dict(enumerate(stretch, 1))
            stretch = tuple(stretch) if len(stretch) > 1 else stretch[0] if stretch else stretch
            object.__setattr__(self, "stretch", stretch)
        else:
            by_channel = stretch if isinstance(stretch, Mapping) else {"": stretch}
        are_channels = all(isinstance(key, str) or is_integer(key, 1) for key in by_channel)
        are_stretches = all(isinstance(one, Stretch) for one in by_channel.values())
        if not (by_channel and are_channels and are_stretches):
            raise ValueError(
                "stretch must be a Stretch, such as Stretch(kind='asinh'), one for each channel of "
                f"the Index, or one by channel, such as {{171: Stretch()}}, got {stretch!r}"
            )

    @classmethod
    def of(
        cls,
        preset: str | Preset | None = None,
        *,
        hdu: HduName | None = None,
        **settings: Unpack[CalibrationSettings],
    ) -> Calibration:
        """Make a calibration from a preset, its name or path, and settings that override it.

        If only the size is overridden, images have the same field of view, in other pixels.

        Raises
        ------
        ValueError
            If the preset divides by the degradation but no table is passed, or if a setting is
            invalid.
        """
        given: dict[str, Any] = {**settings, "hdu": hdu}
        known = {field.name for field in fields(cls)}
        if unknown := set(given) - known:
            raise TypeError(
                f"unknown settings {sorted(unknown)}: available settings are {sorted(known)}"
            )
        for name, table in _TABLES.items():
            if isinstance(given.get(name), str | os.PathLike):
                given[name] = table.read(given[name])
        if preset is None:
            return cls(**given)
        check_type("preset", preset, str | os.PathLike | Preset, "a name, a path or a Preset")
        recipe = preset if isinstance(preset, Preset) else load_preset(preset)
        if recipe.degradation and given.get("correction_table") is None:
            raise ValueError(
                f"preset {recipe.name!r} divides by the degradation: set correction_table to the "
                f"path of SolarSoft's response table, from {OFFICIAL_URL} (sha256 "
                f"{OFFICIAL_SHA256})"
            )
        own: dict[str, Any] = {
            "size": recipe.size,
            "exposure": recipe.exposure,
            "negative": recipe.negative,
            "stretch": {channel: recipe.stretch(channel) for channel in recipe.channels},
        }
        if not {"scale", "radius"} & set(given):
            enlarged = min(cls(size=given.get("size", recipe.size)).size) / recipe.size
            own["scale"] = recipe.scale and recipe.scale / enlarged
            own["radius"] = recipe.disk_radius and recipe.disk_radius * enlarged
        return cls(**own | given)

    @property
    def pixel_scale(self) -> float:
        """Arcsec per pixel of the image; approximate if `radius` is set."""
        if self.radius is not None:
            return _SUN / self.radius
        return self.scale or PLATE_SCALE * _FRAME / min(self.size)

    def of_channels(self, channels: Sequence[str]) -> Calibration:
        """Return the calibration with a sequence of stretches as a mapping by channel.

        Parameters
        ----------
        channels : sequence of str
            Channels of the Index, see `readers.Index.channels`; empty for single files.

        Raises
        ------
        ValueError
            If the numbers of stretches and channels differ.
        """
        if isinstance(self.stretch, Stretch | Mapping):
            return self
        if (count := len(self.stretch)) != len(channels):
            of_index = f"{len(channels)}, {', '.join(channels)}" if channels else "none"
            raise ValueError(
                f"stretch has curves for {count} channels, but the Index has {of_index}: pass one "
                "curve for all channels, one for each channel in the order of Index.group, or a "
                "mapping by channel, such as {171: Stretch()}"
            )
        return replace(self, stretch=dict(zip(channels, self.stretch, strict=True)))

    def reader(self) -> AiaReader:
        """Make the Reader of single files."""
        nothing = -math.inf
        stretch = self.of_channels(()).stretch
        assert isinstance(stretch, Stretch | Mapping)
        return AiaReader(
            hdu=self.hdu,
            shape=self.size,
            scale=self.pixel_scale,
            center=self.center,
            radius=self.radius,
            order=self.order,
            reduce=self.reduce,
            deconvolved=self.psf,
            pointing=self.pointing_table,
            correction=self.correction_table,
            exposure=self.exposure,
            missing=self.missing,
            lowest=0.0 if self.negative == "zero" else nothing,
            floor=0.0 if self.negative == "missing" else nothing,
            curves=_parameters(stretch)
            if isinstance(stretch, Stretch)
            else {str(channel): _parameters(one) for channel, one in stretch.items()},
            rules=self.rules,
        )


def _parameters(stretch: Stretch) -> tuple[float, ...]:
    return tuple(stretch.parameters().tolist())
