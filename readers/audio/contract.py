"""Contract of an open recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from readers.places.contract import Place


@dataclass(frozen=True, slots=True)
class Sound(ABC):
    """Recording in an open place."""

    place: Place
    format: str
    """Format and coding, such as ``WAV i2`` or ``FLAC PCM_16``."""
    rate: int
    """Samples per second of each channel."""
    channels: int
    frames: int
    """Samples of each channel."""

    @abstractmethod
    def read(self, start: int, out: NDArray[np.float32]) -> int:
        """Fill `out`, shape (samples, channels), from sample `start` on; return the bytes read.

        As in soundfile, integers are divided by the power of two that maps them to [-1, 1).
        ValueError if the recording has fewer samples.
        """

    def check_end(self) -> None:  # noqa: B027 - most formats need no check
        """Raise ValueError if the file is cut off, in formats whose header does not tell."""
