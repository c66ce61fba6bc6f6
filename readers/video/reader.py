"""Reader of clips of videos."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.buffers import buffer
from readers.contract import ClipFrames, Peek, Row, Sample, SampleSpec, Short, row_errors
from readers.places.contract import Place
from readers.values import check_integer
from readers.video.decoding import decoded
from readers.video.in_graph import BT709, EncodedClip, GraphDecoder, encoded_clip, takes
from readers.video.packets import (
    DURATION,
    FRAME,
    NOTE,
    START,
    Orientation,
    Packets,
    Stream,
    unpacked,
)
from readers.video.scan import scan_video
from readers.window import Window, offset

COLOURS = 3
"""Channels of a frame: red, green and blue."""
ENCODED = (
    SampleSpec(name="encoded", dtype="uint8", ndim=1),
    SampleSpec(name="in_graph", dtype="bool", shape=()),
    SampleSpec(name="picked", dtype="int32", ndim=1),
    SampleSpec(name="order", dtype="int32", ndim=1),
    SampleSpec(name="cut", dtype="int32", shape=(4,), unit="pixel"),
    SampleSpec(name="turn", dtype="bool", shape=(3,)),
    SampleSpec(name="is_bt709", dtype="bool", shape=()),
)
"""``encoded``: the clip as a small file. ``in_graph``: whether the graph decodes it; otherwise
``image`` has its pixels. ``picked``: numbers of the frames in that file. ``order``: which of these
each frame of the clip is. ``cut``: y, x, height and width of the window in the decoded frame.
``turn``: the Orientation that follows. ``is_bt709``: whether its colours are those of BT.709, which
DALI takes for BT.601."""


class _Frames(NamedTuple):
    """Frames of a clip in a video."""

    first: int
    numbers: list[int]
    """Number of each frame; the last one is repeated where the video ends too early."""
    length: int
    """Frames that the video has."""


@dataclass(frozen=True)
class VideoReader:
    """Reader of clips of videos, as images whose channels are the colours of frame after frame.

    A row is a video. With columns ``start`` and ``duration`` of the Index, in seconds, it is that
    part of it, and with a column ``frame`` a clip. Only the packets from the key frame before the
    clip to its last frame are read and decoded, by PyAV, if the Index notes them, see
    `Index.scan_videos`; otherwise the whole file is read to find them.

    Frames are numbered from 0 on in the order in which they are shown, by their timestamps and not
    by the frame rate. Frames that an edit list leaves out do not count, nor those before the first
    key frame.

    Parameters
    ----------
    frames : int
        Frames of a clip.
    stride : int
        Frames of the video from one frame of the clip to the next.
    short : {"reject", "pad"}
        Treatment of videos that are shorter than a clip: their last frame is repeated with ``pad``.
    graph : {"cpu", "gpu"}, optional
        Decoder of DALI to which clips are left that it decodes exactly: they are sent as small
        files, in more arrays. By default all clips are decoded here.

    Raises
    ------
    ValueError
        If an argument has an invalid value.
    """

    frames: int
    stride: int = 1
    short: Short = "reject"
    graph: GraphDecoder | None = None

    regions: ClassVar[bool] = True
    """The Reader reads the pixels of `Window.within`."""
    uses_draws: ClassVar[bool] = True
    """It draws the first frame of a clip; in mode ``eval`` clips are in the middle."""
    notes: ClassVar[tuple[str, ...]] = (NOTE, FRAME, START, DURATION)
    """Columns of the Index that are used if present."""

    def __post_init__(self) -> None:
        check_integer("frames", self.frames, 1)
        check_integer("stride", self.stride, 1)
        if self.short not in ("reject", "pad"):
            raise ValueError(f"short must be 'reject' or 'pad', got {self.short!r}")
        if self.graph not in ("cpu", "gpu", None):
            raise ValueError(f"graph must be 'cpu', 'gpu' or None, got {self.graph!r}")

    @property
    def channels(self) -> int:
        """Three for each frame."""
        return COLOURS * self.frames

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of the arrays.

        ``image``: red, green and blue of the first frame, then of the second, and so on.
        ``frame``: number of the first frame. ``time``: seconds of each frame from the first one of
        the video. ``length``: frames of the clip that the video has. With `graph` also `ENCODED`.
        """
        return (
            SampleSpec(name="image", dtype="uint8", ndim=3, layout="HWC"),
            SampleSpec(name="frame", dtype="int64", shape=()),
            SampleSpec(name="time", dtype="float64", shape=(self.frames,), unit="s"),
            SampleSpec(name="length", dtype="int32", shape=()),
            *(() if self.graph is None else ENCODED),
        )

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the packets of the clip; decode them, or leave that to the graph."""
        with row_errors(row):
            with row.place as place:
                packets = packets_of(row, place)
                clip = self._clip(row, packets)
                size = packets.stream.size
                y, x, (height, width) = 0, 0, size
                if window is not None:
                    window = window.within(*size)
                    y, x = window.place(*size)
                    height, width = window.height, window.width
                area = y, x, height, width
                numbers = list(dict.fromkeys(clip.numbers))
                encoded = None
                if self.graph is not None and takes(packets.stream, self.graph):
                    encoded = encoded_clip(place, packets, numbers, self.graph)
                if encoded is None:
                    image = self._decoded(place, packets, clip, area)
                else:
                    image = np.empty((0, 0, self.channels), np.uint8)
            start, stop = packets.needed(numbers)
            nbytes = int(packets.nbytes[start:stop].sum())
            nbytes += 0 if row.notes.get(NOTE) else packets.stream.file_bytes
        arrays: dict[str, NDArray[Any]] = {
            "image": image,
            "frame": np.array(clip.first, np.int64),
            "time": packets.times(clip.numbers),
            "length": np.array(clip.length, np.int32),
        }
        if self.graph is not None:
            order = [numbers.index(number) for number in clip.numbers]
            arrays |= _for_graph(encoded, packets.stream, area, order)
        frames = ClipFrames(tuple(clip.numbers), packets.stream.frames)
        return Sample(arrays, nbytes, size, frames)

    def _decoded(
        self, place: Place, packets: Packets, clip: _Frames, area: tuple[int, int, int, int]
    ) -> NDArray[np.uint8]:
        """Decode the frames of a clip; return an area, shape (height, width, channels)."""
        y, x, height, width = area
        shape = height, width, self.frames, COLOURS
        image = buffer(math.prod(shape)).reshape(shape)
        turn = packets.stream.orientation.apply
        for number, frame in decoded(place, packets, list(dict.fromkeys(clip.numbers))):
            part = turn(frame)[y : y + height, x : x + width]
            first = clip.numbers.index(number)
            for at in range(first, first + clip.numbers.count(number)):
                for colour in range(COLOURS):  # in this order NumPy copies fastest
                    image[:, :, at, colour] = part[:, :, colour]
        return image.reshape(height, width, -1)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Return the size that the Index has noted, or demux the file."""
        with row_errors(row):
            with row.place as place:
                packets = packets_of(row, place)
            clip = self._clip(row, packets)
            size = packets.stream.size
            needed = window and window.within(*size)
            start, stop = packets.needed(list(dict.fromkeys(clip.numbers)))
        height, width = (needed.height, needed.width) if needed else size
        nbytes, whole = height * width * self.channels, 0
        if self.graph is not None and takes(packets.stream, self.graph):
            nbytes = int(packets.nbytes[start:stop].sum())
            whole = math.prod(size) * self.channels
        modules = ("av",)
        return Peek(
            height=size[0], width=size[1], nbytes=nbytes, between_nbytes=whole, modules=modules
        )

    def verify(self, row: Row) -> None:
        """Decode the whole video, or all frames whose packets the row notes."""
        with row_errors(row), row.place as place:
            packets = packets_of(row, place)
            clip = self._clip(row, packets)
            frames: Sequence[int] = range(packets.stream.frames)
            for _ in decoded(place, packets, clip.numbers if packets.stream.clip else frames):
                pass

    def blank(self, height: int, width: int) -> Sample:
        """Return black frames."""
        arrays: dict[str, NDArray[Any]] = {
            "image": np.zeros((height, width, self.channels), np.uint8),
            "frame": np.array(0, np.int64),
            "time": np.zeros(self.frames),
            "length": np.array(0, np.int32),
        }
        if self.graph is not None:
            arrays |= _for_graph(None)
        return Sample(arrays)

    def _clip(self, row: Row, packets: Packets) -> _Frames:
        """Return the frames of a row; ValueError if the video lacks them."""
        noted = packets.stream.clip
        if noted is not None and noted != (self.frames, self.stride):
            raise ValueError(
                f"the row is a clip of {noted.frames} frames with stride {noted.stride}, expected "
                f"{self.frames} with stride {self.stride}: set frames={noted.frames} and "
                f"stride={noted.stride}, or make the rows again by each_clip"
            )
        part = range(packets.stream.frames)
        span = (self.frames - 1) * self.stride + 1
        first = float(row.notes.get(FRAME, math.nan))
        if not math.isnan(first):
            start, total = int(first), len(part)
            if not 0 <= start < total or start != first:
                raise ValueError(
                    f"column {FRAME!r} says {first:g}, but the video has {total} frames: correct "
                    "the column, or leave the row out"
                )
        else:
            drawn = None if row.draws is None else float(row.draws.fractions(1)[0])
            part = packets.part(*(row.notes.get(name, math.nan) for name in (START, DURATION)))
            start = part.start + offset(max(0, len(part) - span), drawn)
        length = min(self.frames, (part.stop - 1 - start) // self.stride + 1)
        if length < self.frames and self.short == "reject":
            is_part = len(part) < packets.stream.frames
            what = f"part of the video from frame {start} on" if is_part else "video"
            behind = (
                ""
                if math.isnan(first)
                else (f", {part.stop - start} of them from frame {start} on")
            )
            raise ValueError(
                f"the {what} has {len(part)} frames{behind}, and a clip of {self.frames} frames "
                f"with stride {self.stride} needs {span}: set short='pad', or leave such rows out "
                "of the Index"
            )
        last = start + (length - 1) * self.stride
        numbers = [min(last, start + at * self.stride) for at in range(self.frames)]
        return _Frames(start, numbers, length)


def _for_graph(
    clip: EncodedClip | None,
    stream: Stream | None = None,
    area: tuple[int, int, int, int] = (0, 0, 0, 0),
    order: Sequence[int] = (),
) -> dict[str, NDArray[Any]]:
    """Return the arrays of `ENCODED`; they are empty if the graph does not decode the clip."""
    content, picked = np.zeros(1, np.uint8), np.zeros(1, np.int32)
    cut, turn, is_bt709 = area, Orientation(), False
    if clip is not None and stream is not None:
        content, picked = clip
        turn = stream.orientation
        cut = turn.stored(area, stream.size)
        is_bt709 = stream.frame_colours[0] == BT709
    return {
        "encoded": content,
        "in_graph": np.array(clip is not None),
        "picked": picked,
        "order": np.array(order, np.int32),
        "cut": np.array(cut, np.int32),
        "turn": np.array(turn),
        "is_bt709": np.array(is_bt709),
    }


def packets_of(row: Row, place: Place) -> Packets:
    """Return the packets of a row as its Index notes them, or of its open place.

    ValueError if the file is not the one that was indexed, or no video.
    """
    note = row.notes.get(NOTE)
    if not note:
        return scan_video(place)
    packets = unpacked(note)
    if place.nbytes != packets.stream.file_bytes:
        raise ValueError(
            f"the file has {place.nbytes} bytes, it had {packets.stream.file_bytes} when it was "
            "indexed: index it again"
        )
    return packets


def video_packets(row: Row) -> Packets:
    """Return the packets of the video of a row by demuxing it; ReadError if it cannot be read."""
    with row_errors(row), row.place as place:
        return scan_video(place)
