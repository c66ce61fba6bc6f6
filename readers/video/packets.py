"""Description of a video, as an Index notes it: its stream, and where its packets are."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOTE = "packets"
"""Column of the Index with the stream and packets of a row, see `Packets.note`."""
FRAME = "frame"
"""Column of the Index with the number of the first frame of a clip."""
START, DURATION = "start", "duration"
"""Columns of the Index with the part of the video that a row is, in seconds."""
HIDDEN = -1
"""Value in place of the number of a frame, for packets that show no frame."""
_TOLERANCE = 0.05
"""Seconds by which a noted part may exceed its video, as for recordings."""
_ROUNDED = 0.0006
"""Seconds by which a frame may come early: Matroska and FLV round times to milliseconds."""
_HEAD = struct.Struct("<BI")
_VERSION = 1


class Orientation(NamedTuple):
    """How a decoded frame becomes the one that is displayed: transposed first, then flipped."""

    transposed: bool = False
    flip_y: bool = False
    flip_x: bool = False

    def apply(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a view of a frame, shape (height, width, 3), as it is displayed."""
        if self.transposed:
            frame = frame.transpose(1, 0, 2)
        return frame[:: -1 if self.flip_y else 1, :: -1 if self.flip_x else 1]

    def stored(
        self, area: tuple[int, int, int, int], size: tuple[int, int]
    ) -> tuple[int, int, int, int]:
        """Return an area of the displayed image in the decoded one.

        Parameters
        ----------
        area : (int, int, int, int)
            First row and column, height and width, in pixels.
        size : (int, int)
            Height and width of the displayed image, in pixels.
        """
        y, x, height, width = area
        if self.flip_y:
            y = size[0] - y - height
        if self.flip_x:
            x = size[1] - x - width
        return (x, y, width, height) if self.transposed else (y, x, height, width)


class Clip(NamedTuple):
    """Frames of a clip."""

    frames: int
    stride: int


class Stream(NamedTuple):
    """The video stream of a file."""

    decoder: str
    """Decoder of FFmpeg."""
    codec: str
    """Name of the codec."""
    tag: str
    """Codec tag of the container; empty for none."""
    extradata: bytes
    """Parameters of the decoder that the container holds."""
    pix_fmt: str
    """Pixel format of the container or the first frame."""
    height: int
    """Rows of a decoded frame, in pixels."""
    width: int
    """Columns of a decoded frame, in pixels."""
    orientation: Orientation
    """From decoded to displayed frames."""
    time_base: tuple[int, int]
    """Seconds of a tick: numerator and denominator."""
    frames: int
    """Frames of the whole video."""
    begins: int
    """Ticks at which the first frame is shown."""
    duration: float
    """Seconds from the first frame to the end of the last one."""
    file_bytes: int
    """Length of the file."""
    clip: Clip | None = None
    """The clip to which the packets are limited; None for all packets of the file."""
    bits: int = 0
    """Bits of a pixel that the container states; 0 for none."""
    colours: tuple[int, ...] = ()
    """What the container states, by FFmpeg's numbers: matrix, range, primaries, transfer."""
    frame_colours: tuple[int, ...] = ()
    """What the first frame states, by FFmpeg's numbers: matrix and range; () in older notes."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of a displayed frame, in pixels."""
        if self.orientation.transposed:
            return self.width, self.height
        return self.height, self.width


@dataclass(frozen=True, eq=False)
class Packets:
    """Packets of a video in decoding order, and the frame that each of them shows.

    Parameters
    ----------
    stream : Stream
        What they belong to.
    starts : ndarray of int64, shape (packets,)
        First byte of each packet in the file.
    nbytes : ndarray of int64, same shape
        Bytes of each packet.
    ticks : ndarray of int64, same shape
        When the frame is shown, in units of the stream's time base.
    numbers : ndarray of int64, same shape
        Number of the frame in the order in which frames are shown; `HIDDEN` for none.
    is_key : ndarray of bool, same shape
        Whether decoding can begin with the packet.
    """

    stream: Stream
    starts: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    ticks: NDArray[np.int64]
    numbers: NDArray[np.int64]
    is_key: NDArray[np.bool_]

    @cached_property
    def _by_number(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the frames, sorted, and their packets."""
        order = np.argsort(self.numbers, kind="stable")
        order = order[np.searchsorted(self.numbers[order], 0) :]
        return self.numbers[order], order

    def showing(self, frames: Sequence[int]) -> NDArray[np.int64]:
        """Return the positions of the packets that show frames; ValueError if one has none."""
        numbers, order = self._by_number
        places = np.searchsorted(numbers, frames)
        found = np.append(numbers, HIDDEN)[places] == frames
        if not found.all():
            missing = np.asarray(frames)[~found][0]
            raise ValueError(f"the Index notes no packet for frame {missing}: make it again")
        return order[places]

    def needed(self, frames: Sequence[int]) -> tuple[int, int]:
        """Return the first packet, and the end, of those to decode for some frames.

        Decoding begins with the last key frame that is neither decoded nor shown after one of
        them: frames that are decoded after a key frame but shown before it (of an open GOP) may
        refer to frames before it.

        Raises
        ------
        ValueError
            If there is no such packet.
        """
        packets = self.showing(frames)
        keys = np.flatnonzero(self.is_key[: packets.min() + 1])
        keys = keys[self.ticks[keys] <= self.ticks[packets].min()]
        if not len(keys):
            raise ValueError(f"the Index notes no key frame before frame {min(frames)}")
        return int(keys[-1]), int(packets.max()) + 1

    def times(self, frames: Sequence[int]) -> NDArray[np.float64]:
        """Return when frames are shown, in seconds from the first frame of the video."""
        ticks = self.ticks[self.showing(frames)] - self.stream.begins
        return np.multiply(ticks, self.stream.time_base[0] / self.stream.time_base[1])

    def all_times(self) -> NDArray[np.float64]:
        """Return when each frame is shown, in seconds from the first one."""
        return self.times(range(self.stream.frames))

    def part(self, start: float, duration: float) -> range:
        """Return the frames that are shown from a time on, for a duration, in seconds.

        They are all frames if `start` is NaN, and those up to the end if `duration` is NaN.

        Raises
        ------
        ValueError
            If there is no such frame, or the part ends after the video.
        """
        if math.isnan(start):
            return range(self.stream.frames)
        end = self.stream.duration if math.isnan(duration) else start + duration
        wanted = start - _ROUNDED, math.inf if math.isnan(duration) else end - _ROUNDED
        first, stop = np.searchsorted(self.all_times(), wanted).tolist()
        if start < 0 or end > self.stream.duration + _TOLERANCE or first >= stop:
            length = "" if math.isnan(duration) else f" and {DURATION} {duration:g} s"
            raise ValueError(
                f"the Index says {START} {start:g} s{length}, where the video, which is "
                f"{self.stream.duration:g} s long, has no such part: correct the columns, or leave "
                "the row out"
            )
        return range(first, stop)

    def of_clip(self, first: int, clip: Clip) -> Packets:
        """Return only the packets that a clip needs."""
        start, stop = self.needed(range(first, first + clip.frames * clip.stride, clip.stride))
        return Packets(
            self.stream._replace(clip=clip),
            self.starts[start:stop],
            self.nbytes[start:stop],
            self.ticks[start:stop],
            self.numbers[start:stop],
            self.is_key[start:stop],
        )

    def note(self) -> bytes:
        """Return the bytes for the column `NOTE` of an Index."""
        fields = self.stream._asdict()
        fields["extradata"] = base64.b64encode(self.stream.extradata).decode()
        head = zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 9)
        gaps = self.starts - np.append(0, (self.starts + self.nbytes)[:-1])
        steps = (np.diff(one, prepend=0) for one in (self.ticks, self.numbers))
        numbers = np.concatenate([gaps, self.nbytes, *steps, self.is_key]).astype("<i8")
        # Bytes of equal significance compress better beside each other.
        planes = numbers.view(np.uint8).reshape(-1, 8).T
        return _HEAD.pack(_VERSION, len(head)) + head + zlib.compress(planes.tobytes(), 9)


@lru_cache(maxsize=256)
def unpacked(note: bytes) -> Packets:
    """Return the packets of a note; ValueError if it is none, or of another version."""
    try:
        version, nbytes = _HEAD.unpack_from(note)
        if version != _VERSION:
            raise ValueError(f"its version is {version}, expected {_VERSION}")
        fields = json.loads(zlib.decompress(note[_HEAD.size : _HEAD.size + nbytes]))
        fields["extradata"] = base64.b64decode(fields["extradata"])
        fields["orientation"] = Orientation(*fields["orientation"])
        fields["time_base"] = tuple(fields["time_base"])
        fields["clip"] = fields["clip"] and Clip(*fields["clip"])
        for name in ("colours", "frame_colours"):
            fields[name] = tuple(fields.get(name, ()))
        content = zlib.decompress(note[_HEAD.size + nbytes :])
        planes = np.frombuffer(content, np.uint8).reshape(8, -1)
        columns = planes.T.copy().view("<i8").reshape(5, -1).astype(np.int64)
        gaps, lengths, ticks, numbers, is_key = columns
        starts = np.cumsum(gaps + np.append(0, lengths[:-1]))
        shown = np.cumsum(ticks), np.cumsum(numbers)
        return Packets(Stream(**fields), starts, lengths, *shown, is_key.astype(bool))
    except (struct.error, zlib.error, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"column {NOTE!r} of the Index does not describe a video ({error}): make it again by "
            "Index.scan_videos"
        ) from error
