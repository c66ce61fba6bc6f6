"""Presets: published recipes for AIA training images, by name.

The files in `dali_pipelines/aia/presets/` cite their sources. To use your own preset, write such a
file and pass its path.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from dali_pipelines.stretch import Stretch
from dali_pipelines.values import check_choice
from readers.values import check_bool, check_integer, check_positive, is_number

_FOLDER = Path(__file__).parent / "presets"

Reduction = Literal["mean", "sum"]
Negative = Literal["keep", "zero", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Recipe to process level 1 frames for a network.

    Raises
    ------
    ValueError
        If the settings contradict each other.
    """

    name: str
    """Name of the preset."""
    size: int
    """Height and width in pixels."""
    scale: float | None = None
    """Arcsec per pixel of the result; None if `disk_radius` is set."""
    disk_radius: float | None = None
    """Radius in pixels to which each solar disk (RSUN_OBS) is scaled."""
    reduction: Reduction = "mean"
    """Method to combine several pixels into one pixel of the result."""
    reduced_from: int | None = None
    """With ``sum``: height and width of the frames before the sums. If they are smaller than level
    1 frames, their pixels are means."""
    exposure: bool
    """True if AIA frames are divided by EXPTIME in seconds, from DN to DN/s."""
    degradation: bool
    """True if AIA frames are divided by the degradation factor of their channel and time."""
    negative: Negative = "keep"
    """Treatment of dark pixels of AIA frames before the interpolation. ``keep`` leaves them.
    ``zero`` sets negative pixels to 0. ``missing`` excludes pixels up to 0 from the interpolation,
    and sets output pixels without a value to 0. HMI frames keep their dark pixels."""
    stretches: Mapping[str, Stretch]
    """Stretch of each channel, in units of the recipe; see `stretch`."""

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1)
        if self.reduced_from is not None:
            check_integer("reduced_from", self.reduced_from, 1)
        if (self.scale is None) == (self.disk_radius is None):
            raise ValueError(
                f"set one of scale (arcsec/pixel) and disk_radius (pixels), got "
                f"scale={self.scale} and disk_radius={self.disk_radius}"
            )
        for name in ("scale", "disk_radius"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("exposure", "degradation"):
            check_bool(name, getattr(self, name))
        for name, choices in (("reduction", Reduction), ("negative", Negative)):
            check_choice(name, getattr(self, name), get_args(choices))
        if (self.reduction == "sum") != (self.reduced_from is not None):
            raise ValueError(
                f"set reduced_from if reduction is 'sum', and only then, got {self.reduction!r} "
                f"and reduced_from={self.reduced_from}"
            )

    @property
    def channels(self) -> tuple[str, ...]:
        """Channels of the recipe: wavelengths in angstrom, and HMI products."""
        return tuple(self.stretches)

    def stretch(self, channel: int | str) -> Stretch:
        """Return the stretch of a channel.

        Parameters
        ----------
        channel : int or str
            Wavelength in angstrom, such as 171, or one of `channels`.

        Returns
        -------
        Stretch
            Stretch for means over the pixels of the result. If the recipe uses sums, the unit is
            divided by the number of summed pixels.

        Raises
        ------
        ValueError
            If the recipe lacks the channel.
        """
        stretch = self.stretches.get(str(channel))
        if stretch is None:
            raise ValueError(
                f"preset {self.name!r} has no numbers for channel {channel}, only for "
                f"{', '.join(self.channels)}: leave out the channel, or write your own preset file"
            )
        if self.reduced_from is None:
            return stretch
        return replace(stretch, unit=stretch.unit * (self.size / self.reduced_from) ** 2)


_WAVELENGTH = re.compile(r"(?:aia_?)?0*([1-9][0-9]*)a?")


def channel_of(variable: str) -> str:
    """Return the channel in the name of a variable.

    It is 171 for ``aia171``, ``AIA_0171``, ``171A`` (SDOMLv2) and ``2014/171A``. Other names are
    returned in lower case, without their group.
    """
    name = variable.rpartition("/")[2].lower()
    found = _WAVELENGTH.fullmatch(name)
    return found[1] if found else name


_NEEDED = {"size", "exposure", "degradation"}
_SETTINGS = {field.name for field in fields(Preset)} - {"name", "stretches"}
_PAIRS = {"clip", "clip_output", "range"}
_STRETCH = {field.name for field in fields(Stretch)} | {"range"}


def preset_names() -> list[str]:
    """List the names of the installed presets."""
    return sorted(file.stem for file in _FOLDER.iterdir())


def load_preset(name_or_path: str | Path) -> Preset:
    """Load a preset.

    Parameters
    ----------
    name_or_path : str or Path
        One of `preset_names`, or the path of a ``.toml`` file.

    Raises
    ------
    ValueError
        If the preset is unknown, or the file has missing or unknown keys.
    OSError
        If the file cannot be read.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        if (name := str(name_or_path)) not in preset_names():
            raise ValueError(
                f"there is no preset {name!r}: pass one of {', '.join(preset_names())}, or the "
                "path of a .toml file"
            )
        path = _FOLDER / f"{name}.toml"
    try:
        return _preset(path.stem, tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:  # also of tomllib
        raise ValueError(f"{path}: {error}") from None


def _preset(name: str, settings: dict[str, Any]) -> Preset:
    stretch = _table("[stretch]", settings.pop("stretch", {}))
    channels = _table("[channels]", settings.pop("channels", {}))
    if unknown := set(settings) - _SETTINGS:
        raise ValueError(
            f"unknown keys {_listed(unknown)}; known keys: {_listed(_SETTINGS)}, and the tables "
            "[stretch] and [channels]"
        )
    if missing := _NEEDED - set(settings):
        raise ValueError(
            f"set {_listed(missing)}: a preset needs {_listed(_NEEDED)}, and scale or disk_radius"
        )
    if not channels:
        raise ValueError("[channels] must have at least one channel, such as 171 = {}")
    stretches = {
        channel: _stretch(f"channel {channel}", stretch | _table(f"[channels] {channel}", own))
        for channel, own in channels.items()
    }
    return Preset(name=name, stretches=stretches, **settings)


def _stretch(where: str, settings: dict[str, Any]) -> Stretch:
    """Make a Stretch from its fields; ``range`` replaces mean and std, see `Stretch.onto`."""
    if unknown := set(settings) - _STRETCH:
        raise ValueError(
            f"{where}: unknown keys {_listed(unknown)}; known keys: {_listed(_STRETCH)}"
        )
    for key, value in settings.items():
        if key in _PAIRS:
            if not (isinstance(value, list) and len(value) == 2 and all(map(is_number, value))):
                raise ValueError(f"{where}: {key} must be two numbers, got {value!r}")
            settings[key] = tuple(value)
        elif key != "kind" and not is_number(value):
            raise ValueError(f"{where}: {key} must be a number, got {value!r}")
    try:
        if "range" not in settings:
            return Stretch(**settings)
        low, high = settings.pop("range")
        if wrong := set(settings) & {"mean", "std", "clip_output"}:
            raise ValueError(f"range replaces {_listed(wrong)}: set either range or the others")
        return Stretch.onto(low, high, **{"clip": (-math.inf, math.inf)} | settings)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a table, got {value!r}")
    return value


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
