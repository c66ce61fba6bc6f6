"""Open a place as a recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from readers.audio.contract import Sound
from readers.audio.plain import aiff_sound, wav_sound
from readers.places.contract import Place
from readers.places.local import LocalPlace

HEAD_BYTES = 4 << 10
"""Bytes to fetch first: the header, and all of a short recording."""
_SMALL_BYTES = 128 << 10
"""Largest coded recording that is fetched whole, in bytes."""


@contextmanager
def open_sound(place: Place) -> Iterator[Sound]:
    """Open the recording in an open place.

    ImportError if the recording needs soundfile, and soundfile is not installed. ValueError if the
    file is not a recording, or is damaged.
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
    """Return a coded recording that can be read in parts; None if libsndfile must read it."""
    if place.nbytes <= _SMALL_BYTES:
        place.fetch([(0, place.nbytes)])
    if head[:4] == b"OggS":
        from readers.audio.vorbis import vorbis_sound

        return vorbis_sound(place, head)
    # In local files libsndfile finds frames of FLAC as fast.
    if head[:4] == b"fLaC" and not isinstance(place, LocalPlace):
        from readers.audio.flac import flac_sound

        return flac_sound(place, head)
    return None
