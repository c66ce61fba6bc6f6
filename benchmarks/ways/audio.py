"""Segments of recordings by soundfile, with and without a seek, and librosa; log mel features."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import functools
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


def torch_log_mel(sound: NDArray[Any]) -> NDArray[Any]:
    """Return the same features by torch, as torchaudio computes them."""
    import torch

    window, bank = _torch_constants()
    spectrum = torch.stft(
        torch.from_numpy(sound), N_FFT, HOP, WINDOW, window, center=True, return_complex=True
    )
    power = bank @ spectrum.abs().square()
    return (10 * power.clamp(min=1e-10).log10()).numpy()


@functools.cache
def _torch_constants() -> tuple[Any, Any]:
    """Return the window, and the bank of mel filters (Slaney's), shape (bands, frequencies)."""
    import numpy as np
    import torch

    def hertz(mel: NDArray[Any]) -> NDArray[Any]:
        return np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))

    top = 15 + 27 * np.log(RATE / 2 / 1000) / np.log(6.4)
    edges = hertz(np.linspace(0, top, N_MELS + 2))
    frequencies = np.linspace(0, RATE / 2, N_FFT // 2 + 1)
    widths = np.diff(edges)
    up = (frequencies - edges[:-2, None]) / widths[:-1, None]
    down = (edges[2:, None] - frequencies) / widths[1:, None]
    bank = np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return torch.hann_window(WINDOW), torch.from_numpy(bank.astype(np.float32))


LOG_MEL: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "torch": torch_log_mel,
    "librosa": librosa_log_mel,
}
"""Functions of samples that return log mel features, shape (bands, frames), by what they need."""


@dataclass(frozen=True)
class Segments:
    """The DataLoader's dataset."""

    segments: Sequence[Segment]
    samples: int
    peer: str
    log_mel: str | None = None
    """Of `LOG_MEL`."""

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import torch

        found = PEERS[self.peer][0](self.segments[row], self.samples)
        if self.log_mel:
            found = LOG_MEL[self.log_mel](found)
        return torch.from_numpy(found)[None], row
