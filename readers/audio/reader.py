"""Reader of recordings: whole, or only the segment that a sample needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.audio.contract import Sound
from readers.audio.plain import PlainSound
from readers.audio.sound import open_sound
from readers.buffers import Allocate, buffer, private
from readers.contract import Peek, RandomNumbers, Row, Sample, SampleSpec, Short, row_errors
from readers.errors import reason_of
from readers.messages import install
from readers.values import check_bool, check_integer, check_number
from readers.window import Window

_MARGIN = 160
"""Samples at the lower rate that a resampling needs on each side of a segment. Beyond 128 samples
the results only differ by the rounding of float32."""
_MOST_RATIO = 256
"""Largest ratio of two rates. For larger ones soxr takes minutes, and a header is probably
damaged."""
_TOLERANCE = 0.05
"""Seconds by which the duration in the Index may exceed the duration of the recording."""
_FRAME, _HOP = 2048, 512
"""Samples of a frame, and distance between frames, for the search for silence."""
_LEAST = 1e-10
"""Minimum power of a frame; lower powers are raised to it."""
_SPECS = (
    SampleSpec(name="image", dtype="float32", ndim=3, layout="HWC"),
    SampleSpec(name="length", dtype="int32", shape=()),
    SampleSpec(name="start", dtype="float64", shape=(), unit="s"),
)


class _Span(NamedTuple):
    """Samples of the file to read, and the segment in them after resampling."""

    start: int
    stop: int
    skipped: int
    """Number of samples before the segment, after resampling."""
    length: int
    """Number of samples in the segment."""
    held: int
    """Number of samples of the segment that the recording has."""
    step: Fraction | int
    """Number of samples of the file per sample of the segment."""
    total: int
    """Number of samples in the whole recording at the rate of the Reader."""
    begins: float
    """Seconds from the beginning of the file to the segment."""


class _Segment(NamedTuple):
    """Segment of a recording at the rate of the Reader."""

    samples: NDArray[np.float32]
    """Shape (samples, channels); 0 after the end of the recording."""
    span: _Span
    nbytes: int
    """Number of bytes read."""


class Rows(Protocol):
    """Rows of an Index, such as its Columns."""

    def __len__(self) -> int: ...

    def row(self, number: int) -> Row:
        """Return a row."""
        ...


class Noises(NamedTuple):
    """Recordings of noise. One of them is added to a sample, from a random position on."""

    rows: Rows
    snr_db: tuple[float, float]
    """Range of the signal-to-noise ratio, uniform, in decibels."""
    probability: float
    """Probability that noise is added."""


@dataclass(frozen=True)
class AudioReader:
    """Reader of recordings. The format is recognised by content, not by suffix.

    A recording is an image with one row. A window of height 1 is a segment, in samples at `rate`.
    With columns ``start`` and ``duration``, in seconds, a row of the Index is a part of a file.

    Parameters
    ----------
    rate : int
        Samples per second of each channel.
    channels : int
        1 averages all channels of a recording. For other numbers all recordings must have this
        number of channels.
    resample : bool
        Whether recordings of other rates are resampled by soxr; otherwise they are rejected.
    short : {"reject", "pad"}
        Treatment of recordings that are shorter than the window; ``pad`` adds zeros at the end.
    speeds : tuple of float
        Factors by which recordings are played faster. One is drawn for each sample.
    noise : Noises, optional
        Recordings of noise to add. The mean of their channels is added to each channel. Recordings
        that are shorter than the segment are repeated.

    Raises
    ------
    ValueError
        If an argument has an invalid value.
    """

    rate: int
    channels: int = 1
    resample: bool = True
    short: Short = "reject"
    speeds: tuple[float, ...] = ()
    noise: Noises | None = None

    notes: ClassVar[tuple[str, ...]] = ("start", "duration")
    """Optional columns of the Index."""

    def __post_init__(self) -> None:
        check_integer("rate", self.rate, 1)
        check_integer("channels", self.channels, 1)
        check_bool("resample", self.resample)
        if not isinstance(self.speeds, tuple):
            raise ValueError(f"speeds must be a tuple, such as (0.9, 1, 1.1), got {self.speeds!r}")
        for speed in self.speeds:
            check_number("speeds", speed, 0.1, 10)

    @property
    def uses_draws(self) -> bool:
        """Whether the Reader draws a speed or noise."""
        return bool(self.speeds) or self.noise is not None

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of the arrays.

        ``image``: samples; integers become numbers in [-1, 1). ``length``: number of samples of the
        segment that the recording has. ``start``: seconds from the beginning of the file.
        """
        return _SPECS

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the samples of the segment, and those around it for resampling."""
        with row_errors(row):
            found = self._segment(row, window, self._speed(row), buffer)
            nbytes, span = found.nbytes, found.span
            if self.noise is not None and row.draws is not None:
                nbytes += self._add_noise(found.samples[: span.held], self.noise, row.draws)
        arrays = _arrays(found.samples, span.held, span.begins)
        return Sample(arrays, nbytes, (1, max(span.total, span.length)))

    def _segment(
        self, row: Row, window: Window | None, speed: Fraction | int, allocate: Allocate
    ) -> _Segment:
        """Read a segment into memory of `allocate`."""
        with row.place as place:
            if window is None:
                place.fetch([(0, place.nbytes)])
            with open_sound(place) as sound:
                span = self._span(sound, row, window, speed)
                each = 4 * self.channels
                memory = allocate(span.held * each, (span.length - span.held) * each)
                found = memory.view(np.float32).reshape(span.length, self.channels)
                as_stored = span.step == 1 and sound.channels == self.channels
                samples = found[: span.held]
                if not as_stored:
                    samples = np.empty((span.stop - span.start, sound.channels), np.float32)
                nbytes = sound.read(span.start, samples)
                if window is None:
                    sound.check_end()
        if not np.isfinite(samples).all():
            count = samples.size - np.isfinite(samples).sum()
            raise ValueError(f"{count} samples of the recording are NaN or infinite")
        if not as_stored:
            if samples.shape[1] > self.channels:
                samples = samples.mean(axis=1, keepdims=True)
            if span.step != 1:
                samples = _resampled(samples, span.step)
            found[: span.held] = samples[span.skipped : span.skipped + span.held]
        return _Segment(found, span, nbytes)

    def _add_noise(self, samples: NDArray[np.float32], noise: Noises, draws: RandomNumbers) -> int:
        """Add noise to samples, shape (samples, channels); return the bytes read."""
        _, chance, picked, place, level = draws.fractions(5).tolist()  # the first is the speed's
        if chance >= noise.probability:
            return 0
        row = noise.rows.row(int(picked * len(noise.rows)))
        reader = AudioReader(self.rate, short="pad")
        window = Window(height=1, width=len(samples), x=place)
        try:
            found = reader._segment(row, window, 1, private)
        except Exception as error:
            raise ValueError(f"noise {row.name}: {reason_of(error, row.path)}") from error
        added = np.resize(found.samples[: found.span.held], (len(samples), 1))  # repeats the noise
        power = float(np.square(added, dtype=np.float64).mean())
        if power > 0:
            least, most = noise.snr_db
            own = float(np.square(samples, dtype=np.float64).mean())
            ratio = 10 ** ((least + (most - least) * level) / 10)
            samples += added * np.float32(math.sqrt(own / (power * ratio)))
        return found.nbytes

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the header of the file."""
        with row_errors(row), row.place as place, open_sound(place) as sound:
            span = self._span(sound, row, window, 1)
            is_coded = not isinstance(sound, PlainSound)
        return Peek(
            height=1,
            width=max(span.total, span.length),
            nbytes=4 * self.channels * (span.stop - span.start),
            modules=("soundfile",) if is_coded else (),
        )

    def verify(self, row: Row) -> None:
        """Read the whole recording."""
        self.read(row, None)

    def blank(self, height: int, width: int) -> Sample:
        """Return silence of `width` samples."""
        del height
        return Sample(_arrays(np.zeros((width, self.channels), np.float32), width, 0.0))

    def _speed(self, row: Row) -> Fraction | int:
        if not self.speeds or row.draws is None:
            return 1
        drawn = int(row.draws.fractions(1)[0] * len(self.speeds))
        return Fraction(str(self.speeds[drawn]))

    def _span(self, sound: Sound, row: Row, window: Window | None, speed: Fraction | int) -> _Span:
        """Return the samples to read; ValueError if the recording does not suit the settings."""
        self._check(sound)
        begin, end = _part(sound, row)
        frames = end - begin
        is_same = sound.rate == self.rate and speed == 1
        step = 1 if is_same else Fraction(sound.rate, self.rate) * speed
        total = frames if is_same else math.floor(frames / step + Fraction(1, 2))  # like soxr
        if not total:
            raise ValueError(
                f"the recording has {frames} samples at {sound.rate} Hz, too few for a sample at "
                f"{self.rate} Hz: leave such recordings out of the Index"
            )
        first, length = 0, total
        if window is not None:
            first, length = self._placed(window, total, speed), window.width
        stop = min(total, first + length)
        begins = begin / sound.rate + float(first * step) / sound.rate
        start, end, skipped = first, stop, 0
        if step != 1:
            # Only at multiples of the denominator is a new sample at the position of an old one.
            margin = math.ceil(_MARGIN * max(Fraction(1), step))
            units = max(0, math.floor((first * step - margin) / step.numerator))
            start, skipped = units * step.numerator, first - units * step.denominator
            end = min(frames, math.ceil(stop * step) + margin)
        return _Span(begin + start, begin + end, skipped, length, stop - first, step, total, begins)

    def _placed(self, window: Window, total: int, speed: Fraction | int) -> int:
        """Return the first sample of a segment in a recording of `total` samples."""
        if window.width <= total:
            return window.place(1, total)[1]
        if self.short == "pad":
            return 0
        played = "" if speed == 1 else f" at speed {float(speed):g}"
        raise ValueError(
            f"the recording is {total / self.rate:g} s long{played} ({total} samples at "
            f"{self.rate} Hz), shorter than the segment of {window.width / self.rate:g} s: set "
            "short='pad', or leave such recordings out of the Index"
        )

    def _check(self, sound: Sound) -> None:
        """Raise ValueError if a recording has another rate or other channels."""
        if sound.rate != self.rate and not self.resample:
            raise ValueError(
                f"the rate is {sound.rate} Hz, expected {self.rate} Hz as in the first recording: "
                "set rate, to resample all recordings to one rate"
            )
        if not 1 / _MOST_RATIO <= sound.rate / self.rate <= _MOST_RATIO:
            raise ValueError(
                f"the rate is {sound.rate} Hz, but only 1/{_MOST_RATIO} to {_MOST_RATIO} times "
                f"{self.rate} Hz can be resampled: leave the row out, or set another rate"
            )
        if self.channels not in (1, sound.channels):
            raise ValueError(
                f"the recording has {sound.channels} channels, expected {self.channels}: set "
                "channels=1 to average the channels of each recording"
            )


class SoundFacts(NamedTuple):
    """Properties of a recording, from its header."""

    rate: int
    """Samples per second."""
    channels: int
    frames: int
    """Samples of each channel."""
    format: str
    """Format and coding, such as ``WAV i2`` or ``FLAC PCM_16``."""

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.frames / self.rate


def sound_facts(row: Row) -> SoundFacts:
    """Return the properties of a recording; ReadError if its header cannot be read."""
    with row_errors(row), row.place as place, open_sound(place) as sound:
        sound.check_end()
        return SoundFacts(sound.rate, sound.channels, sound.frames, sound.format)


def nonsilent_part(row: Row, top_db: float) -> tuple[float, float]:
    """Return start and duration of a row without silence at both ends, in seconds.

    As in ``librosa.effects.trim``, frames of 2048 samples, 512 apart, are silent if their power,
    averaged over the channels, is more than `top_db` decibels below the power of the loudest frame.
    ReadError if the recording cannot be read.
    """
    with row_errors(row), row.place as place:
        place.fetch([(0, place.nbytes)])
        with open_sound(place) as sound:
            begin, end = _part(sound, row)
            samples = np.empty((end - begin, sound.channels), np.float32)
            sound.read(begin, samples)
            rate = sound.rate
    powers = np.einsum("ij,ij->i", samples, samples)
    sums = np.add.reduceat(powers, np.arange(0, len(powers), _HOP), dtype=np.float64)
    # Frame k is centred on sample k * _HOP. Samples beyond the ends are 0.
    sums = np.pad(sums, _FRAME // _HOP // 2)
    frames = np.lib.stride_tricks.sliding_window_view(sums, _FRAME // _HOP).sum(axis=1)
    frames = np.maximum(frames[: len(powers) // _HOP + 1] / (_FRAME * samples.shape[1]), _LEAST)
    (loud,) = (frames > frames.max() * 10 ** (-top_db / 10)).nonzero()
    stop = min(len(powers), (int(loud[-1]) + 1) * _HOP)
    start = int(loud[0]) * _HOP
    return (begin + start) / rate, (stop - start) / rate


def _part(sound: Sound, row: Row) -> tuple[int, int]:
    """Return the first sample and the end of a row in its recording; ValueError if outside."""
    start, duration = (float(row.notes.get(name, math.nan)) for name in ("start", "duration"))
    frames, rate = sound.frames, sound.rate
    if frames == 0:
        raise ValueError("the recording has no samples")
    is_part = not math.isnan(start)
    begin = round(start * rate) if is_part else 0
    end = frames if math.isnan(duration) else begin + round(duration * rate)
    if begin < 0 or end > frames + _TOLERANCE * rate or begin >= min(end, frames):
        times = {"start": start, "duration": duration}
        noted = " and ".join(f"{name} {s:g} s" for name, s in times.items() if not math.isnan(s))
        raise ValueError(
            f"the Index has {noted}, but the recording is {frames / rate:g} s long: correct the "
            "column, or leave the row out"
        )
    return begin, min(end, frames) if is_part else frames


def _resampled(samples: NDArray[np.float32], step: Fraction | int) -> NDArray[np.float32]:
    """Return samples at another rate; `step` is the number of old samples per new sample.

    DALI's audio_resample has no low-pass filter: a lower rate would have aliases.
    """
    try:
        import soxr
    except ImportError as error:
        raise ImportError(
            f"a change of the rate or the speed of recordings needs soxr: {install('audio')}"
        ) from error
    return soxr.resample(samples, step.numerator, step.denominator, quality="HQ")


def _arrays(samples: NDArray[np.float32], held: int, start: float) -> dict[str, NDArray[Any]]:
    return {
        "image": samples[np.newaxis],
        "length": np.array(held, np.int32),
        "start": np.array(start),
    }
