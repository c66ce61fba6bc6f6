"""Features of recordings: settings of spectrograms, log mel features and MFCC."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dali_pipelines.values import check_choice
from readers.values import check_bool, check_integer, check_number

_WINDOW_S, _HOP_S = 0.025, 0.01
"""Default length and hop of windows, in seconds, as usual for speech."""
_CHOICES: dict[str, tuple[Any, ...]] = {
    "pad_mode": ("reflect", "constant"),
    "power": (1, 2),
    "mel_scale": ("slaney", "htk"),
    "norm": ("slaney", None),
    "log": ("db", "natural"),
    "normalize": (None, "feature", "all"),
}


@dataclass(frozen=True, kw_only=True)
class Spectrogram:
    """Magnitudes or powers of the short-time Fourier transform with Hann windows.

    Lengths are in samples at the rate of the pipeline. Names are those of torchaudio and librosa.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    name = "spectrogram"

    n_fft: int | None = None
    """Samples of a transform; by default the smallest power of two from `win_length` on."""
    win_length: int | None = None
    """Samples of a window; by default 25 ms."""
    hop_length: int | None = None
    """Samples from one window to the next; by default 10 ms."""
    power: Literal[1, 2] = 2
    """1 for magnitudes, 2 for powers."""
    center: bool = True
    """If True, frame t is centred on sample ``t * hop_length``, and there are ``1 + samples //
    hop_length`` frames. If False, windows stay within the samples, and there are ``1 + (samples -
    win_length) // hop_length`` frames, at least one."""
    pad_mode: Literal["reflect", "constant"] = "reflect"
    """Values beyond the ends of the recording, for `center`: reflected samples, or 0."""
    preemphasis: float = 0.0
    """Factor of the preemphasis, such as 0.97: this share of the previous sample is subtracted from
    each sample. The first sample stays."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            check_choice(name, getattr(self, name, allowed[0]), allowed)
        for name in ("n_fft", "win_length", "hop_length", "n_mels", "n_mfcc"):
            if getattr(self, name, None) is not None:
                check_integer(
                    name, getattr(self, name), 2 if name in ("n_fft", "win_length") else 1
                )
        check_bool("center", self.center)
        check_number("preemphasis", self.preemphasis, 0, 1)

    def sizes(self, rate: int) -> tuple[int, int, int]:
        """Return n_fft, win_length and hop_length at a rate; ValueError if they do not fit."""
        window = self.win_length or max(2, round(_WINDOW_S * rate))
        n_fft = self.n_fft or 1 << (window - 1).bit_length()
        window = min(window, n_fft) if self.win_length is None else window
        if window > n_fft:
            raise ValueError(f"win_length {window} is longer than n_fft {n_fft}")
        return n_fft, window, self.hop_length or max(1, round(_HOP_S * rate))

    @property
    def outside(self) -> float:
        """Value of padding with ``ragged="pad"``: the features of silence."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class LogMel(Spectrogram):
    """Logarithms of the spectrogram in mel bands.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    name = "log_mel"

    n_mels: int = 80
    """Number of bands."""
    f_min: float = 0.0
    """Lowest frequency of the bands in Hz."""
    f_max: float | None = None
    """Highest frequency of the bands in Hz; by default half of the rate."""
    mel_scale: Literal["slaney", "htk"] = "slaney"
    """Formula of the mel scale; librosa and NeMo use ``slaney``, torchaudio ``htk``."""
    norm: Literal["slaney", None] = "slaney"
    """``slaney`` divides each band by its width in Hz; None, the default of torchaudio, does
    not."""
    log: Literal["db", "natural"] = "db"
    """``db``: ``10 * log10(max(x, floor))``, for magnitudes 20 times; ``natural``: ``ln(x +
    floor)``, as in NeMo."""
    floor: float | None = None
    """Floor in the formulas of `log`; by default 1e-10 for ``db``, as in librosa, and 2**-24 for
    ``natural``."""
    top_db: float | None = None
    """With ``db``: values more than this many decibels below the largest value of a sample, in all
    its channels, are raised to that level."""
    normalize: Literal[None, "feature", "all"] = None
    """Subtract the mean and divide by the standard deviation: ``feature`` of each band over time,
    ``all`` of all values of a channel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("f_min", self.f_min, 0, 1e9)
        if self.f_max is not None:
            check_number("f_max", self.f_max, self.f_min, 1e9)
        if self.floor is not None:
            check_number("floor", self.floor, 1e-30, 1)
        if self.top_db is not None:
            check_number("top_db", self.top_db, 0, 1e3)
            if self.log != "db":
                raise ValueError("top_db is in decibels: set log='db', or leave it out")

    @property
    def least(self) -> float:
        """Value of the floor."""
        default = 1e-10 if self.log == "db" else 2.0**-24
        return default if self.floor is None else self.floor

    @property
    def outside(self) -> float:
        """Logarithm of silence; 0, the mean, for normalised features."""
        if self.normalize is not None:
            return 0.0
        return self.decibels * math.log10(self.least) if self.log == "db" else math.log(self.least)

    @property
    def decibels(self) -> float:
        """Decibels of a factor of 10."""
        return 10.0 * (3 - self.power)


@dataclass(frozen=True, kw_only=True)
class Mfcc(LogMel):
    """Cepstral coefficients: the cosine transform (DCT-II, orthonormal) of `LogMel`.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    name = "mfcc"

    n_mfcc: int = 13
    """Number of coefficients."""
    lifter: float = 0.0
    """The weight of coefficient k is ``1 + lifter / 2 * sin(pi * (k + 1) / lifter)``, or 1 if
    `lifter` is 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("lifter", self.lifter, 0, 1e6)
        if self.n_mfcc > self.n_mels:
            raise ValueError(f"n_mfcc {self.n_mfcc} is larger than n_mels {self.n_mels}")

    @property
    def outside(self) -> float:
        """Value of padding: 0."""
        return 0.0


FeatureName = Literal["waveform", "spectrogram", "log_mel", "mfcc"]
Features: TypeAlias = FeatureName | Spectrogram
_NAMED: dict[str, Spectrogram | None] = {
    "waveform": None,
    **{kind.name: kind() for kind in (Spectrogram, LogMel, Mfcc)},
}


def features_of(value: Any) -> Spectrogram | None:
    """Return the features of a setting, None for the waveform; ValueError for other values."""
    if isinstance(value, Spectrogram):
        return value
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]
    known = ", ".join(map(repr, _NAMED))
    raise ValueError(
        f"features must be one of {known}, or a Spectrogram(...), LogMel(...) or Mfcc(...), got "
        f"{value!r}"
    )
