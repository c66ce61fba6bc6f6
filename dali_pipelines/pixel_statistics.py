"""Statistics of pixels, to choose mean, std and stretch for a network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.aia.calibration import Calibration
from dali_pipelines.factories import aia_pipeline, chunked_pipeline
from dali_pipelines.keywords import bound_keywords, without_keywords
from dali_pipelines.loader import Loader
from dali_pipelines.runtime.devices import Device
from dali_pipelines.settings import OrderSettings
from dali_pipelines.spread_rows import spread_rows
from dali_pipelines.stretch import Kind, Stretch
from dali_pipelines.variables import channels_of
from readers.errors import ReadError
from readers.values import check_integer

if TYPE_CHECKING:
    from dali_pipelines.graph.pipeline import ReaderPipeline
    from readers.index.table import Index

PERCENTILES = (0.1, 1.0, 16.0, 50.0, 84.0, 99.0, 99.9)
_SAMPLED = 20_000
"""Maximum number of pixels that each channel of an image contributes to the percentiles."""
_LEFT_OUT = frozenset(
    # Settings that change pixel values, and random ones.
    ("mean", "std", "stretch", "augment", "transform", "random_area", "random_aspect_ratio")
) | (
    OrderSettings.__annotations__.keys()
    | {"num_epochs", "mode", "dtype", "memory_format", "columns", "targets"}
)
_TURNS = frozenset(("flip", "flip_probability", "rotate", "speeds"))
"""Other random settings, which mode ``eval`` turns off."""


@dataclass(frozen=True)
class PixelStatistics:
    """Statistics of the pixels of some images, one number per channel; NaN is ignored."""

    images: int
    """Number of images read."""
    mean: tuple[float, ...]
    """Mean."""
    std: tuple[float, ...]
    """Standard deviation."""
    minimum: tuple[float, ...]
    """Smallest value."""
    maximum: tuple[float, ...]
    """Largest value."""
    percentiles: Mapping[float, tuple[float, ...]]
    """Percentiles 0.1, 1, 16, 50, 84, 99 and 99.9, by percentage. They are computed from at most
    20,000 random pixels of each image."""
    valid: tuple[float, ...]
    """Share of the pixels that are not NaN."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Reasons for rows that could not be read, by path. For members of a container, the path is
    followed by their first byte and end; for further rows of a file, by the number of the row."""

    def stretches(self, kind: Kind = "asinh") -> tuple[Stretch, ...]:
        """Return a stretch for each channel, to show faint and bright pixels.

        It maps the 1st percentile to 0 and the 99.9th to 1. For ``asinh`` the curve is linear up to
        the noise: half the distance from the 16th to the 84th percentile.

        Raises
        ------
        ValueError
            If all pixels of a channel are equal, or none is positive for ``sqrt`` and ``log1p``.
        """
        low, high = self.percentiles[1.0], self.percentiles[99.9]
        noise = np.subtract(self.percentiles[84.0], self.percentiles[16.0]) / 2
        found = []
        for number, (least, most, spread) in enumerate(zip(low, high, noise, strict=True)):
            least = least if kind in ("none", "asinh", "signed_log1p") else max(least, 0.0)
            if not least < most:  # also where all pixels are NaN
                raise ValueError(
                    f"channel {number} has no range to stretch: its 1st percentile is {least:g}, "
                    f"its 99.9th {most:g}"
                )
            unit = max(abs(least), abs(most)) if kind in ("none", "asinh") else 1.0
            a = float(np.clip(spread / unit, 1e-4, 1)) if kind == "asinh" else 1.0
            clip = least / unit, most / unit
            found.append(Stretch.onto(0, 1, kind=kind, clip=clip, unit=unit, a=a))
        return tuple(found)


def pixel_statistics(
    factory: Callable[..., ReaderPipeline],
    index: Index,
    *,
    count: int = 64,
    seed: int = 0,
    num_read_processes: int = 2,
    devices: Sequence[Device] | None = (None,),
    progress: Callable[[Any], Any] = iter,
    **settings: Any,
) -> PixelStatistics:
    """Return statistics of the pixels that a Loader with these settings delivers.

    Parameters
    ----------
    factory : callable
        Pipeline factory, such as `fits_pipeline`. With `audio_pipeline` the samples or features
        take the place of pixels.
    index : Index
        Index of the images. A random row of each of `count` equal parts is read.
    count : int
        Maximum number of images to read.
    seed : int
        Seed of random rows, windows and pixels.
    num_read_processes : int
        Number of reader processes.
    devices : sequence of int or None
        Devices as in the Loader, by default the CPU.
    progress : callable
        Wraps the batches to report progress, e.g. ``tqdm.tqdm``.
    **settings
        Keywords of the factory: crop, planes, hdus, calibration, and so on. With
        ``window="random"`` windows are random, but nothing else is. Settings of the order of rows
        are ignored, and also settings that change pixel values: mean, std, augment, transform and
        stretch, even of a calibration.

    Returns
    -------
    PixelStatistics
        Statistics in units of the decoded images.

    Raises
    ------
    ReadError
        If no image can be read.
    """
    check_integer("count", count, 1)
    check_integer("seed", seed, 0)
    rows = spread_rows(len(index), count, seed)
    settings = bound_keywords(factory, ()) | settings
    bad = settings.pop("rejected", {})
    kept = {name: one for name, one in settings.items() if name not in _LEFT_OUT}
    factory = without_keywords(factory)
    if factory is aia_pipeline:
        kept = _unstretched(kept)
    if factory is chunked_pipeline and kept.get("variables") is None:
        kept["variables"] = channels_of(index, None, settings.get("targets", {})).names
    # In mode eval, windows would all be in the middle of the image, which may be brighter.
    if is_drawn := kept.get("window") == "random":
        low, high = kept.pop("zoom", (1, 1))
        kept = {name: one for name, one in kept.items() if name not in _TURNS}
        kept |= {"seed": seed, "shuffle": False} | ({"zoom": (low, high)} if low == high else {})
    gathered = _Gathered(seed)
    with Loader(
        factory,
        index.select(rows),
        batch_size=1,  # images may differ in size
        num_read_processes=num_read_processes,
        devices=devices,
        framework="numpy",
        bad_sample="skip",
        num_epochs=1,
        mode="train" if is_drawn else "eval",
        rejected={number: bad[row] for number, row in enumerate(rows) if row in bad},
        **kept,
    ) as loader:
        for batches in progress(loader):
            for batch in batches:
                images = next(iter(batch.values()))  # also named audio, or features
                for image, row in zip(images, batch["row"], strict=True):
                    gathered.add(np.asarray(image, np.float32), int(row))
        rejected: dict[str, str] = {}
        for one in loader.stats.rejected.values():
            name = f"{one.name} (row {rows[one.row]})" if one.name in rejected else one.name
            rejected[name] = one.reason
    if not gathered.images:
        path, reason = next(iter(rejected.items()))
        raise ReadError(path, f"none of {len(rows)} images can be read, the first: {reason}")
    return gathered.statistics(rejected)


def _unstretched(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of `aia_pipeline` with a calibration without a stretch."""
    names = {field.name for field in fields(Calibration)} | {"preset"}
    own = {name: one for name, one in settings.items() if name in names}
    rest = {name: one for name, one in settings.items() if name not in names}
    calibration = rest.pop("calibration", None) or Calibration.of(**own)
    return {**rest, "calibration": replace(calibration, stretch=Stretch())}


class _Gathered:
    """Sums over images, in float64, and sampled pixels for the percentiles."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.images: list[tuple[NDArray[Any], ...]] = []
        """Of each image: valid and all pixels, mean, sum of squared differences from it, least and
        largest value, each per channel."""
        self._sampled: list[NDArray[Any]] = []

    def add(self, image: NDArray[np.float32], row: int) -> None:
        """Add an image, shape (..., channels, height, width), or a waveform (channels, samples).

        All times of a sequence are counted together.
        """
        if image.ndim == 2:
            image = image[:, np.newaxis]
        pixels = np.moveaxis(image, -3, 0).reshape(image.shape[-3], -1)
        valid = np.isfinite(pixels)
        counts = valid.sum(1)
        values = np.where(valid, pixels, 0).astype(np.float64)
        means = values.sum(1) / np.maximum(counts, 1)
        squares = (np.where(valid, values - means[:, None], 0) ** 2).sum(1)
        least = np.where(valid, pixels, np.inf).min(1)
        most = np.where(valid, pixels, -np.inf).max(1)
        sizes = np.full(len(pixels), pixels.shape[1])
        self.images.append((counts, sizes, means, squares, least, most))
        if pixels.shape[1] > _SAMPLED:
            random = np.random.default_rng((self._seed, row))
            pixels = pixels[:, random.choice(pixels.shape[1], _SAMPLED, replace=False)]
        self._sampled.append(np.where(np.isfinite(pixels), pixels, np.nan))

    def statistics(self, rejected: Mapping[str, str]) -> PixelStatistics:
        """Return the statistics of all images."""
        counts, sizes, means, squares, least, most = map(np.stack, zip(*self.images, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of channels that are all NaN
            sampled = np.concatenate(self._sampled, axis=1)
            found = np.nanpercentile(sampled, PERCENTILES, axis=1)
        total = np.where(counts.any(0), counts.sum(0), np.nan)
        mean = (counts * means).sum(0) / total
        variance = (squares + counts * (means - mean) ** 2).sum(0) / total
        return PixelStatistics(
            images=len(self.images),
            mean=_floats(mean),
            std=_floats(np.sqrt(variance)),
            minimum=_floats(np.where(counts.any(0), least.min(0), np.nan)),
            maximum=_floats(np.where(counts.any(0), most.max(0), np.nan)),
            percentiles=dict(zip(PERCENTILES, map(_floats, found), strict=True)),
            valid=_floats(counts.sum(0) / sizes.sum(0)),
            rejected=rejected,
        )


def _floats(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
