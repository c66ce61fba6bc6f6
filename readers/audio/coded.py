"""Recordings that libsndfile decodes: FLAC, OGG Vorbis and Opus, MP3, A-law, W64 and others."""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from readers.audio.contract import Sound
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
"""Formats that libsndfile does not read: position and value of their first bytes, and name."""
_TAIL_BYTES = 64 << 10
"""Maximum size of a page of OGG, in bytes."""
_LAST_PAGE = 4
"""Flag of the last page of an OGG stream."""
_PAGE_HEADER = 27
"""Number of bytes of a page before the lengths of its segments. The last of these bytes is the
number of segments."""
_WHOLE_BYTES, _BUFFER_BYTES = 4 << 20, 64 << 10
"""Largest remote recording that is fetched whole, and bytes to fetch at a time from larger ones:
libsndfile reads many small pieces."""
_ID3 = struct.Struct(">3s2BB4B")
"""Start of ID3 at the head of an MP3: its name, two versions, flags, and four times 7 bits of its
length."""
_ID3_FOOTER = 0x10
_MP3_FRAME = 2048
"""Bytes in which the first frame of an MP3 has its list of frames, if it has one."""
_COUNTED = 1 << 16
"""Number of samples to decode at a time when samples are counted."""
_UNKNOWN = 1 << 48
"""Lengths from here on mean an unknown length, e.g. of FLAC that was written into a pipe."""


@dataclass(frozen=True, slots=True)
class CodedSound(Sound):
    """Recording that libsndfile decodes."""

    file: soundfile.SoundFile
    count: Callable[[int, int], int]
    """Returns the approximate number of bytes read, from the samples of the recording and the
    samples that were read."""

    def read(self, start: int, out: NDArray[np.float32]) -> int:
        """Read samples."""
        found, skip = out, 0
        # MP3 frames need bits of earlier frames: after a seek libmpg123 complains on stderr.
        if start and (self.file.format == "MP3" or not self.file.seekable()):
            skip = start
            found = np.empty((skip + len(out), self.channels), np.float32)
        elif start:
            self.file.seek(start)
        _do_not_seek(self.file)
        number = len(self.file.read(out=found))
        if number < len(found):
            raise ValueError(
                f"the recording has {start - skip + number} samples, expected {self.frames}: it is "
                "damaged or cut off"
            )
        if skip:
            out[...] = found[skip:]
        return self.count(self.frames, len(found))

    def check_end(self) -> None:
        """Raise ValueError if an OGG file has no last page, or only a part of it."""
        if self.file.format != "OGG":
            return
        tail = self.place.read(max(0, self.place.nbytes - _TAIL_BYTES), self.place.nbytes)
        page = tail[max(0, tail.rfind(b"OggS")) :]
        if len(page) <= _PAGE_HEADER or not page[5] & _LAST_PAGE:
            raise ValueError("the last page of the OGG stream is missing: the file is cut off")
        segments = page[_PAGE_HEADER : _PAGE_HEADER + page[_PAGE_HEADER - 1]]
        if len(page) < _PAGE_HEADER + page[_PAGE_HEADER - 1] + sum(segments):
            raise ValueError("the last page of the OGG stream is not whole: the file is cut off")


class OddError(Exception):
    """The parts of a file cannot be found, so libsndfile must read it."""


@dataclass(frozen=True, slots=True)
class CutSound(Sound):
    """Coded recording that can be read and decoded in parts."""

    head: bytes
    """First bytes of the file."""

    def read(self, start: int, out: NDArray[np.float32]) -> int:
        """Read samples."""
        if len(out) < self.frames:
            with suppress(OddError):
                return self.read_part(start, out)
        with open_coded(self.place, self.head) as coded:
            return coded.read(start, out)

    @abstractmethod
    def read_part(self, start: int, out: NDArray[np.float32]) -> int:
        """Read samples by the part that they need, or raise OddError."""


def guessed(low: tuple[int, int], high: tuple[int, int], wanted: int, number: int) -> int:
    """Return the approximate byte of a sample between two known pairs (byte, sample).

    Every fourth guess is in the middle, because the density of bytes may vary a lot.
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
    """Fill an array, shape (samples, channels), from the present position, or raise OddError."""
    _do_not_seek(file)
    if file.channels != out.shape[1] or len(file.read(out=out)) < len(out):
        raise OddError


@contextmanager
def open_coded(place: Place, head: bytes) -> Iterator[CodedSound]:
    """Open a recording with soundfile; `head` are its first bytes. Raises like `open_sound`."""
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
                        f"libsndfile does not decode {name}: convert the file, e.g. with ffmpeg -i "
                        "FILE FILE.flac"
                    ) from None
            hint = pipeline_hint(head, "audio")
            raise ValueError(
                f"libsndfile cannot read the file ({error.error_string.strip(' .')}); it begins "
                f"with {head[:12]!r}{hint}"
            ) from None
        with file:
            try:
                name, frames = f"{file.format} {file.subtype}", _frames(file, place)
                yield CodedSound(place, name, file.samplerate, file.channels, frames, file, count)
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


def _do_not_seek(file: soundfile.SoundFile) -> None:
    """Keep soundfile from a seek to the present position, which decodes samples once more."""
    file.seekable = lambda: False


@contextmanager
def _source(place: Place) -> Iterator[tuple[BinaryIO | int, Callable[[int, int], int]]]:
    """Yield a file for soundfile, and the function `CodedSound.count`."""
    if isinstance(place, LocalPlace):  # libsndfile reads a file descriptor without Python
        nbytes = place.nbytes
        yield place.fileno(), lambda frames, number: nbytes * number // max(1, frames, number)
        return
    if place.nbytes <= _WHOLE_BYTES:
        place.fetch([(0, place.nbytes)])
    with file_object(place, buffer=_BUFFER_BYTES) as (file, nbytes_read):
        yield file, lambda frames, number: nbytes_read()


def _frames(file: soundfile.SoundFile, place: Place) -> int:
    """Return the samples of a recording; they are counted if its header does not tell.

    ValueError for an MP3 of which libsndfile may not read all: it stops where it expects the end.
    """
    if file.format == "MP3" and not _mp3_has_length(place):
        # As a file of its own, because libmpg123 decodes other samples after a seek.
        with (
            file_object(place, buffer=_BUFFER_BYTES) as (source, _),
            _soundfile().SoundFile(source, closefd=False) as other,
        ):
            other.seekable = lambda: False  # else it is set to its position again
            number = _counted(other)
        if number >= file.frames:
            raise ValueError(
                "this MP3 does not say how long it is, and libsndfile may stop before its end: add "
                "its length, without encoding it again, with ffmpeg -i FILE -c copy NEW.mp3"
            )
        return number
    if file.frames < _UNKNOWN:
        return int(file.frames)
    number = _counted(file)
    file.seek(0)
    return number


def _counted(file: soundfile.SoundFile) -> int:
    block, number = np.empty((_COUNTED, file.channels), np.float32), 0
    while read := len(file.read(out=block)):
        number += read
    return number


def _mp3_has_length(place: Place) -> bool:
    """Return whether the first frame of an MP3 says how many there are.

    If not, libsndfile estimates the length from the bit rate, and is wrong by some frames, or by
    most of them where the bit rate varies.
    """
    begin = 0
    tag = place.read(0, min(_ID3.size, place.nbytes))
    if tag.startswith(b"ID3") and len(tag) == _ID3.size:
        flags, *sizes = _ID3.unpack(tag)[3:]
        begin = _ID3.size + sum(size << 7 * at for at, size in enumerate(reversed(sizes)))
        begin += _ID3.size if flags & _ID3_FOOTER else 0
    begin = min(begin, place.nbytes)
    first = place.read(begin, min(begin + _MP3_FRAME, place.nbytes))
    for name in (b"Xing", b"Info"):
        if (at := first.find(name)) >= 0 and first[at + 7 : at + 8]:
            return bool(first[at + 7] & 1)
    return b"VBRI" in first
