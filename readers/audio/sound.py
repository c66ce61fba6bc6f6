"""What all recordings have in common, and how a place is opened as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from readers.audio.plain import aiff_sound, wav_sound
from readers.places.contract import Place
from readers.places.local import LocalPlace

HEAD_BYTES = 4 << 10
"""Bytes that are fetched at once: the header, and all of a short recording."""
_SMALL_BYTES = 128 << 10
"""Coded recordings up to this length are fetched at once, too."""


class Sound(Protocol):
    """An open recording."""

    @property
    def format(self) -> str:
        """Format and coding, such as ``WAV pcm16`` or ``FLAC PCM_16``."""
        ...

    @property
    def rate(self) -> int:
        """Samples per second of each channel."""
        ...

    @property
    def channels(self) -> int:
        """Channels."""
        ...

    @property
    def frames(self) -> int:
        """Samples of each channel."""
        ...

    def read(self, start: int, out: NDArray[np.float32]) -> int:
        """Fill `out`, shape (samples, channels), from sample `start` on; return the bytes read.

        Integers are divided by the power of two that maps them to [-1, 1), as soundfile does.

        Raises
        ------
        ValueError
            If the recording has fewer samples.
        """
        ...

    def check_end(self) -> None:
        """Raise ValueError if the file is cut off, where its format tells."""
        ...


@contextmanager
def open_sound(place: Place) -> Iterator[Sound]:
    """Open the recording in an open place.

    Raises
    ------
    ImportError
        If it needs soundfile, and that is not installed.
    ValueError
        If it is no recording, or is damaged.
    """
    place.fetch([(0, HEAD_BYTES)])
    head = place.read(0, HEAD_BYTES)
    sound = wav_sound(place, head) or aiff_sound(place, head) or _cut_sound(place, head)
    if sound is not None:
        yield sound
        return
    from readers.audio.coded import open_coded

    with open_coded(place, head) as coded:
        yield coded


def _cut_sound(place: Place, head: bytes) -> Sound | None:
    """Return a recording whose coded parts can be found; None if libsndfile must look for them."""
    if place.nbytes <= _SMALL_BYTES:
        place.fetch([(0, place.nbytes)])
    if head[:4] == b"OggS":
        from readers.audio.vorbis import vorbis_sound

        return vorbis_sound(place, head)
    # In a file that it reads itself, libsndfile finds frames of FLAC as fast.
    if head[:4] == b"fLaC" and not isinstance(place, LocalPlace):
        from readers.audio.flac import flac_sound

        return flac_sound(place, head)
    return None
