"""Graph of recordings: augmentations and features."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from nvidia.dali import fn
from nvidia.dali import math as dali_math

from dali_pipelines.config import PipelineConfig
from dali_pipelines.features import LogMel, Mfcc, Spectrogram
from dali_pipelines.graph.decode import Decoded
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.settings import Augmentation, Transform

_EPSILON = 1e-10
"""Added to variances, so that normalised silence is 0, not NaN."""


class AudioGraph(NamedTuple):
    """Graph for the arrays of a `readers.audio.reader.AudioReader`."""

    rate: int
    channels: int
    features: Spectrogram | None
    """None for the waveform."""
    on_features: tuple[Augmentation, ...] = ()
    """Augmentations of the features; `PipelineConfig` has the augmentations of the waveform."""
    transform: Transform | None = None
    """Function that adds operators of the user, after all others."""

    def decode(self, arrays: Mapping[str, Any], config: PipelineConfig) -> Decoded:
        """Return the segment as an image of shape (1, samples, channels)."""
        image = arrays["image"] if config.device_id is None else arrays["image"].gpu()
        return Decoded(
            image,
            "float32",
            others={"length": self._frames(arrays["length"]), "start": arrays["start"]},
            name="audio" if self.features is None else "features",
            is_flat=self.features is None,
            outside=0.0 if self.features is None else self.features.outside,
        )

    def add(self, image: Any, chance: Chance, config: PipelineConfig) -> Any:
        """Add the features, shape (bands, frames, channels), and the operators after them."""
        assert self.features is not None
        image = features(image, self.features, self.rate, self.channels)
        for one in self.on_features:
            image = one.add(image, chance, ImageKind("float32", self.channels, None))
        if self.transform is not None:
            image = self.transform(image, chance, config)
        return image

    def _frames(self, samples: Any) -> Any:
        """Return the number of frames of a recording with this number of samples."""
        if self.features is None:
            return samples
        _, window, hop = self.features.sizes(self.rate)
        if self.features.center:
            return samples // hop + 1
        return dali_math.max(samples - window, 0) // hop + 1


def features(image: Any, kind: Spectrogram, rate: int, channels: int) -> Any:
    """Return the features of recordings of shape (1, samples, channels), channel by channel."""
    if not kind.center:  # the operator needs at least one window
        image = fn.pad(image, axes=[1], shape=[kind.sizes(rate)[1]])
    found = [_of_channel(image[0, :, channel], kind, rate) for channel in range(channels)]
    if isinstance(kind, LogMel):
        if kind.top_db is not None:
            loudest = functools.reduce(dali_math.max, map(fn.reductions.max, found))
            found = [dali_math.max(one, loudest - kind.top_db) for one in found]
        found = [_of_logarithms(one, kind) for one in found]
    joined = fn.stack(*found, axis=2)
    return fn.reinterpret(joined, layout="HWC")


def _of_channel(sound: Any, kind: Spectrogram, rate: int) -> Any:
    """Return the spectrogram of a channel, or the logarithms of its bands."""
    if kind.preemphasis:
        sound = fn.preemphasis_filter(sound, preemph_coeff=kind.preemphasis, border="zero")
    n_fft, length, hop = kind.sizes(rate)
    window = _hann(length)
    if kind.center and length % 2 and not n_fft % 2:
        window.append(0.0)  # torch and librosa begin windows of odd length one sample earlier
    found = fn.spectrogram(
        sound,
        nfft=n_fft,
        window_length=len(window),
        window_step=hop,
        window_fn=window,
        power=kind.power,
        center_windows=kind.center,
        reflect_padding=kind.pad_mode == "reflect",
    )
    if not isinstance(kind, LogMel):
        return found
    found = fn.mel_filter_bank(
        found,
        sample_rate=rate,
        nfilter=kind.n_mels,
        freq_low=kind.f_min,
        freq_high=kind.f_max or rate / 2,
        normalize=kind.norm == "slaney",
        mel_formula=kind.mel_scale,
    )
    if kind.log == "natural":
        return dali_math.log(found + kind.least)
    return fn.to_decibels(
        found,
        multiplier=kind.decibels,
        reference=1.0,
        cutoff_db=kind.decibels * math.log10(kind.least),
    )


def _of_logarithms(found: Any, kind: LogMel) -> Any:
    """Convert logarithms to cepstral coefficients, and normalise, if the settings say so."""
    if isinstance(kind, Mfcc):
        found = fn.mfcc(found, n_mfcc=kind.n_mfcc, dct_type=2, normalize=True, lifter=kind.lifter)
    if kind.normalize is not None:
        axes = [1] if kind.normalize == "feature" else [0, 1]
        found = fn.normalize(found, axes=axes, epsilon=_EPSILON)
    return found


def _hann(length: int) -> list[float]:
    """Return the periodic Hann window of torch and librosa; DALI's is half a sample later."""
    phases = np.arange(length) * (2 * np.pi / length)
    return [float(value) for value in 0.5 - 0.5 * np.cos(phases)]
