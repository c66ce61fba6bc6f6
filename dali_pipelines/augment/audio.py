"""Augmentations of recordings, for waveforms and for features."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from nvidia.dali import fn, math, types

from dali_pipelines.augment.checks import range_of
from dali_pipelines.graph.operators_augment import noise
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.settings import Augmentation
from readers.audio.reader import AudioReader, Noises
from readers.index.table import Index
from readers.places.opener import Places
from readers.values import check_integer, check_number

_LOUDEST = 200.0
"""Limit of gains in decibels, positive and negative; float32 holds them easily."""


@dataclass(frozen=True)
class Gain(Augmentation):
    """Make recordings louder or quieter, by one random factor for each recording.

    Values are not clamped.

    Parameters
    ----------
    db : (float, float)
        Range of the gain in decibels, uniform.

    Raises
    ------
    ValueError
        If a limit is not a number from -200 to 200, or the range is empty.
    """

    db: tuple[float, float] = (-6.0, 6.0)

    def __post_init__(self) -> None:
        range_of("db", self.db, -_LOUDEST, _LOUDEST)

    def add(self, audio: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        del kind
        factor = math.pow(10.0, chance.uniform(*range_of("db", self.db, -_LOUDEST, _LOUDEST)) / 20)
        return audio * (factor if audio.device == "cpu" else factor.gpu())


@dataclass(frozen=True)
class WhiteNoise(Augmentation):
    """Add normal noise at a random signal-to-noise ratio.

    Parameters
    ----------
    snr_db : (float, float)
        Range of the signal-to-noise ratio in decibels, uniform. The signal is the power of the
        segment, of all channels together.

    Raises
    ------
    ValueError
        If a limit is not a number from -200 to 200, or the range is empty.
    """

    snr_db: tuple[float, float] = (10.0, 40.0)

    def __post_init__(self) -> None:
        range_of("snr_db", self.snr_db, -_LOUDEST, _LOUDEST)

    def add(self, audio: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        del kind
        keys = chance.fractions(2)
        snr = chance.uniform(*range_of("snr_db", self.snr_db, -_LOUDEST, _LOUDEST))
        level = fn.reductions.rms(audio)
        level = level if audio.device == "cpu" else level.cpu()
        std = fn.reshape(level * math.pow(10.0, snr / -20), shape=[1])
        return noise(audio, fn.cat(keys, std, axis=0), of_photons=False)


@dataclass(frozen=True)
class RecordedNoise(Augmentation):
    """Add a part of a random recording of noise, at a random signal-to-noise ratio.

    Readers add it, before all other augmentations, and resample it to the rate of the pipeline. The
    mean of its channels is added to each channel. Recordings of noise that are shorter than the
    segment are repeated. If a recording of noise is empty or cannot be read, the sample is
    rejected.

    Parameters
    ----------
    noises : Index, or path
        Recordings of noise, or a path for `Index.scan_audio`. With columns ``start`` and
        ``duration``, a row is a part of a recording.
    snr_db : (float, float)
        Range of the signal-to-noise ratio in decibels, uniform. The signal is the power of the
        segment, of all channels together.
    p : float
        Probability that noise is added.

    Raises
    ------
    FileNotFoundError
        If there is no recording.
    TypeError
        If `noises` is neither an Index nor a path.
    ValueError
        If a number is out of range, or the range is empty.
    """

    noises: Index | str | os.PathLike[str]
    snr_db: tuple[float, float] = (0.0, 30.0)
    p: float = 1.0

    num_images = 0

    def __post_init__(self) -> None:
        range_of("snr_db", self.snr_db, -_LOUDEST, _LOUDEST)
        check_number("p", self.p, 0, 1)
        if isinstance(self.noises, str | os.PathLike):
            object.__setattr__(self, "noises", Index.scan_audio(self.noises))
        elif not isinstance(self.noises, Index):
            raise TypeError(f"noises must be an Index or a path, got {self.noises!r}")

    def read_by(self, places: Places) -> Noises:
        """Return the noises for a Reader, which opens the recordings by `places`."""
        assert isinstance(self.noises, Index)
        columns = self.noises.columns(notes=AudioReader.notes).with_places(places)
        return Noises(columns, range_of("snr_db", self.snr_db, -_LOUDEST, _LOUDEST), self.p)

    def add(self, audio: Any, chance: Chance, kind: ImageKind) -> Any:
        """Raise ValueError, because the readers of `audio_pipeline` add the noise, not a graph."""
        raise ValueError("RecordedNoise is only for audio_pipeline: leave it out")


@dataclass(frozen=True)
class SpecAugment(Augmentation):
    """Mask random bands and random times of features (Park et al., Interspeech 2019).

    Parameters
    ----------
    freq_masks, time_masks : int
        Number of masks along each axis, at least 0.
    freq_width : int
        Maximum number of bands of a mask; the number is uniform from 0 on.
    time_width : int
        Maximum number of frames of a mask; the number is uniform from 0 on.
    time_share : float
        Maximum share of the frames of a sample that one mask covers, from 0 to 1.
    value : float
        Value of masked bands and frames, in units of the features. 0 is the mean of normalised
        features.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    freq_masks: int = 2
    freq_width: int = 27
    time_masks: int = 2
    time_width: int = 100
    time_share: float = 1.0
    value: float = 0.0

    of_features = True
    """It changes features, not waveforms."""

    def __post_init__(self) -> None:
        for name in ("freq_masks", "freq_width", "time_masks", "time_width"):
            check_integer(name, getattr(self, name), 0)
        check_number("time_share", self.time_share, 0, 1)
        check_number("value", self.value, -1e30, 1e30)

    def add(self, features: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        del kind
        shape = fn.cast(features.shape(), dtype=types.FLOAT)
        bands, frames = shape[0], shape[1]
        for _ in range(self.freq_masks):
            features = self._masked(features, chance, "H", bands, math.min(bands, self.freq_width))
        for _ in range(self.time_masks):
            most = math.min(frames * self.time_share, float(self.time_width))
            features = self._masked(features, chance, "W", frames, most)
        return features

    def _masked(self, features: Any, chance: Chance, axis: str, length: Any, most: Any) -> Any:
        """Mask a random part of an axis with `length` positions; at most `most` are masked."""
        width = math.floor(chance.uniform(0.0, most + 1.0 - 1e-4))
        start = math.floor(chance.uniform() * (length - width + 1.0))
        return fn.erase(
            features,
            anchor=fn.reshape(start, shape=[1]),
            shape=fn.reshape(width, shape=[1]),
            axis_names=axis,
            fill_value=self.value,
        )
