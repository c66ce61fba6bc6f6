"""Segments of recordings by others: soundfile with and without a seek, librosa; log mel."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 16000
N_FFT, WINDOW, HOP, N_MELS = 512, 400, 160, 80


class Segment(NamedTuple):
    """The first sample of a segment in a file."""

    path: str
    start: int


def with_seek(at: Segment, samples: int) -> NDArray[Any]:
    """Read by soundfile, which seeks."""
    import soundfile

    with soundfile.SoundFile(at.path) as file:
        file.seek(at.start)
        return file.read(samples, dtype="float32")


def whole(at: Segment, samples: int) -> NDArray[Any]:
    """Read the whole recording by soundfile, and cut."""
    import soundfile

    return soundfile.read(at.path, dtype="float32")[0][at.start : at.start + samples]


def with_librosa(at: Segment, samples: int) -> NDArray[Any]:
    """Read by librosa."""
    import librosa

    # It cuts off the fraction of the sample that an offset is.
    options = {"sr": None, "offset": (at.start + 0.5) / RATE, "duration": samples / RATE}
    return librosa.load(at.path, **options)[0]


PEERS: dict[str, tuple[Callable[[Segment, int], NDArray[Any]], str]] = {
    "soundfile with seek": (with_seek, "soundfile"),
    "soundfile, whole files": (whole, "soundfile"),
    "librosa": (with_librosa, "librosa"),
}
"""Functions, and what they need."""


def librosa_log_mel(sound: NDArray[Any]) -> NDArray[Any]:
    """Return log mel features, shape (bands, frames), in decibels."""
    import librosa

    mel = librosa.feature.melspectrogram(
        y=sound,
        sr=RATE,
        n_fft=N_FFT,
        win_length=WINDOW,
        hop_length=HOP,
        n_mels=N_MELS,
        pad_mode="reflect",
    )
    return librosa.power_to_db(mel, top_db=None)


@dataclass(frozen=True)
class Segments:
    """The DataLoader's dataset."""

    segments: Sequence[Segment]
    samples: int
    peer: str
    log_mel: bool

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import torch

        found = PEERS[self.peer][0](self.segments[row], self.samples)
        if self.log_mel:
            found = librosa_log_mel(found)
        return torch.from_numpy(found)[None], row
