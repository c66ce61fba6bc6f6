"""Recordings that libsndfile decodes: FLAC, OGG Vorbis and Opus, MP3, A-law, W64 and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from readers.messages import install, pipeline_hint
from readers.places.contract import Place
from readers.places.file_object import file_object
from readers.places.local import LocalPlace

if TYPE_CHECKING:
    import soundfile

_OTHERS = (
    (4, b"ftyp", "MP4, M4A or MOV (AAC, ALAC)"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA or another ASF file, perhaps with DRM"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
    (0, b"wvpk", "WavPack"),
    (0, b"MAC ", "Monkey's Audio"),
    (0, b"#!AMR", "AMR"),
    (0, b"TTA1", "TTA"),
)
"""Beginnings of files that libsndfile does not read: position, bytes and name."""
_TAIL_BYTES = 64 << 10
"""Most bytes of a page of OGG."""
_LAST_PAGE = 4
"""Flag of the last page of an OGG stream."""
_WHOLE_BYTES, _BUFFER_BYTES = 4 << 20, 64 << 10
"""Bytes of a remote recording that is fetched whole, and of a larger one at a time: libsndfile
reads many small pieces."""
_COUNTED = 1 << 16
"""Samples that are decoded at a time to count them."""
_UNKNOWN = 1 << 48
"""Lengths from here on are unknown, as in FLAC that was written into a pipe."""


@dataclass(slots=True)
class CodedSound:
    """Recording that soundfile decodes from an open place, see `readers.audio.sound.Sound`."""

    place: Place
    file: soundfile.SoundFile
    rate: int
    channels: int
    frames: int
    count: Callable[[int, int], int]
    """Returns about the bytes read, for the samples of the recording, and those that were read."""

    @property
    def format(self) -> str:
        """Format and coding, in libsndfile's names."""
        return f"{self.file.format} {self.file.subtype}"

    def read(self, start: int, out: NDArray[np.float32]) -> int:
        """Fill `out`, shape (samples, channels), from sample `start` on; return the bytes read."""
        found, skip = out, 0
        # libmpg123 writes to stderr after a seek, as frames need bits of those before.
        if start and (self.file.format == "MP3" or not self.file.seekable()):
            skip = start
            found = np.empty((skip + len(out), self.channels), np.float32)
        elif start:
            self.file.seek(start)
        # Seekable files are set to their position again, which decodes some samples once more.
        self.file.seekable = _no
        number = len(self.file.read(out=found))
        if number < len(found):
            raise ValueError(
                f"it has {start - skip + number} samples instead of {self.frames}: it is damaged "
                "or cut off"
            )
        if skip:
            out[...] = found[skip:]
        return self.count(self.frames, len(found))

    def check_end(self) -> None:
        """Raise ValueError if an OGG file has no last page."""
        if self.file.format != "OGG":
            return
        tail = self.place.read(max(0, self.place.nbytes - _TAIL_BYTES), self.place.nbytes)
        page = tail.rfind(b"OggS")
        if page < 0 or len(tail) < page + 6 or not tail[page + 5] & _LAST_PAGE:
            raise ValueError("the last page of the OGG stream is missing: it is cut off")


class OddError(Exception):
    """A file is not as it should be, so that its parts cannot be found: libsndfile decides."""


def guessed(low: tuple[int, int], high: tuple[int, int], wanted: int, number: int) -> int:
    """Return about the byte of a sample between two known pairs (byte, sample).

    Every fourth guess is in the middle, as the density of bytes may change much.
    """
    share = 0.5 if number % 4 == 3 else (wanted - low[1]) / max(1, high[1] - low[1])
    return low[0] + round(share * (high[0] - low[0]))


@contextmanager
def checked() -> Iterator[ModuleType]:
    """Yield soundfile; its errors become OddError."""
    soundfile = _soundfile()
    try:
        yield soundfile
    except soundfile.LibsndfileError:
        raise OddError from None


def fill(file: soundfile.SoundFile, out: NDArray[np.float32]) -> None:
    """Fill an array, shape (samples, channels), from the present position; else OddError."""
    file.seekable = _no  # else it is set to its position again
    if file.channels != out.shape[1] or len(file.read(out=out)) < len(out):
        raise OddError


@contextmanager
def open_coded(place: Place, head: bytes) -> Iterator[CodedSound]:
    """Open a recording by soundfile; `head` are its first bytes. Raises like `open_sound`."""
    if not head:
        raise ValueError("the file is empty")
    soundfile = _soundfile()
    with _source(place) as (source, count):
        try:
            file = soundfile.SoundFile(source, closefd=False)
        except soundfile.LibsndfileError as error:
            for at, begin, name in _OTHERS:
                if head[at : at + len(begin)] == begin:
                    raise ValueError(
                        f"libsndfile does not decode {name}: convert it, e.g. with ffmpeg -i FILE "
                        "FILE.flac"
                    ) from None
            hint = pipeline_hint(head, "audio")
            raise ValueError(
                f"libsndfile cannot read it ({error.error_string.strip(' .')}); it begins with "
                f"{head[:12]!r}{hint}"
            ) from None
        with file:
            try:
                yield CodedSound(place, file, file.samplerate, file.channels, _frames(file), count)
            except soundfile.LibsndfileError as error:
                raise ValueError(f"libsndfile: {error.error_string.strip(' .')}") from None


def _soundfile() -> ModuleType:
    try:
        import soundfile
    except ImportError as error:
        raise ImportError(
            f"recordings other than WAV and AIFF need soundfile: {install('audio')}"
        ) from error
    return soundfile


def _no() -> bool:
    return False


@contextmanager
def _source(place: Place) -> Iterator[tuple[BinaryIO | int, Callable[[int, int], int]]]:
    """Yield what soundfile opens, and a function that returns about the bytes read.

    Its arguments are the samples of the recording, and those that were read.
    """
    if isinstance(place, LocalPlace):  # without a call of Python for each piece
        nbytes = place.nbytes
        yield place.fileno(), lambda frames, number: nbytes * number // max(1, frames, number)
        return
    if place.nbytes <= _WHOLE_BYTES:
        place.fetch([(0, place.nbytes)])
    with file_object(place, buffer=_BUFFER_BYTES) as (file, nbytes_read):
        yield file, lambda frames, number: nbytes_read()


def _frames(file: soundfile.SoundFile) -> int:
    """Return the samples of a recording; they are counted if its header does not tell."""
    if file.frames < _UNKNOWN:
        return int(file.frames)
    number = sum(len(block) for block in file.blocks(_COUNTED, dtype="float32"))
    file.seek(0)
    return number
