"""Frames decoded by PyAV from the bytes of some packets, without opening the container."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.messages import install
from readers.places.contract import Place
from readers.video.packets import HIDDEN, Packets, Stream

_WITHOUT_UNUSED = ("h264", "mpeg4", "mpeg2video", "mpeg1video")
"""Decoders that can leave out frames which no other frame refers to. Those of HEVC that FFmpeg
would leave out may be referred to by frames of higher temporal layers."""
COLOURS = ("colorspace", "color_range", "color_primaries", "color_trc")
"""What a container may state of colours, by FFmpeg's names."""
_AT_ONCE = 1 << 24
"""Bytes of packets that are read together."""


def import_av() -> Any:
    """Return PyAV; ImportError says how to install it."""
    try:
        import av
    except ImportError as error:
        raise ImportError(f"videos need PyAV: {install('video')}") from error
    return av


def decoded(
    place: Place, packets: Packets, frames: Sequence[int]
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield the numbers and RGB pixels, shape (height, width, 3), of frames, in any order.

    Only packets from the key frame before the first frame up to the last frame are read and
    decoded. If some frames are then missing, decoding begins again at earlier key frames: with
    intra refresh a key frame shows only a part of the picture.

    Parameters
    ----------
    place : Place
        Open place of the file.
    packets : Packets
        Its packets.
    frames : sequence of int
        Numbers of the frames, each once.

    Raises
    ------
    ValueError
        If a frame is missing, damaged, or of another size than that of the stream.

    Notes
    -----
    Frames are told apart by the packet that they come from, not by their time. Colours become RGB
    by FFmpeg's swscale: by the matrix and range that the frame names, else BT.601 of limited range.
    """
    missing = set(frames)
    start, stop = packets.needed(frames)
    keys = [*np.flatnonzero(packets.is_key[:start]).tolist(), start]
    back = 1
    while missing and back <= len(keys):
        for number, frame in _decoded(place, packets, keys[-back], stop, missing):
            missing.remove(number)
            yield number, frame
        back = len(keys) if back < len(keys) < 2 * back else 2 * back
    if missing:
        raise ValueError(
            f"frame {min(missing)} was not decoded from the key frame before: the video is damaged,"
            " or its first key frames show a part of the picture (intra refresh): convert it, as "
            "by ffmpeg -i FILE FILE.mp4"
        )


def _decoded(
    place: Place, packets: Packets, start: int, stop: int, missing: Set[int]
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield those frames of `missing` to which the packets decode."""
    av = import_av()
    wanted = frozenset(missing)
    context = context_of(packets.stream)
    skips = packets.stream.decoder in _WITHOUT_UNUSED
    reformatter = av.video.reformatter.VideoReformatter()
    numbers, is_key = (one[start:stop].tolist() for one in (packets.numbers, packets.is_key))
    found: list[Any] = []
    for at, packet in enumerate([*_read(av, place, packets, start, stop), None]):
        if packet is not None:
            packet.pts = packet.dts = at
            packet.is_keyframe = is_key[at]  # the decoder of PNG goes by it
            if skips:
                context.skip_frame = "DEFAULT" if numbers[at] in wanted else "NONREF"
        try:
            found = context.decode(packet)
        except av.error.FFmpegError as error:
            if packet is None or isinstance(error, av.error.EOFError):
                break
            named = "" if numbers[at] == HIDDEN else f" of frame {numbers[at]}"
            raise ValueError(
                f"the packet{named} cannot be decoded ({error.strerror}): it is damaged"
            ) from error
        for frame in found:
            number = HIDDEN if frame.pts is None else numbers[frame.pts]
            if number not in missing:
                continue
            _check(frame, number, packets.stream)
            yield number, _rgb(reformatter.reformat(frame, format="rgb24", threads=1))


def context_of(stream: Stream) -> Any:
    """Return a decoder of PyAV for packets of a stream."""
    av = import_av()
    try:
        context = av.CodecContext.create(stream.decoder, "r")
    except ValueError as error:  # of another build of FFmpeg than at indexing
        raise ValueError(f"PyAV has no decoder {stream.decoder!r} ({error})") from error
    context.extradata = stream.extradata or None
    context.height, context.width = stream.height, stream.width
    if stream.pix_fmt:
        context.pix_fmt = stream.pix_fmt
    if stream.tag:
        context.codec_tag = stream.tag
    if stream.bits:
        context.bits_per_coded_sample = stream.bits
    for name, value in zip(COLOURS, stream.colours, strict=False):
        setattr(context, name, value)
    context.thread_count, context.thread_type = 1, "NONE"
    if stream.decoder == "h264":
        # Else it guesses how far frames are reordered, and drops some until it knows.
        context.options = {"strict": "strict"}
    return context


def _read(av: Any, place: Place, packets: Packets, start: int, stop: int) -> Iterator[Any]:
    """Yield packets, which are read many at a time."""
    while start < stop:
        ends = np.cumsum(packets.nbytes[start:stop])
        count = max(1, int(np.searchsorted(ends, _AT_ONCE, "right")))
        some = [av.Packet(nbytes) for nbytes in packets.nbytes[start : start + count].tolist()]
        starts = packets.starts[start : start + count].tolist()
        place.read_many([(at, memoryview(one)) for at, one in zip(starts, some, strict=True)])
        yield from some
        start += count


def _check(frame: Any, number: int, stream: Stream) -> None:
    if frame.is_corrupt:
        raise ValueError(f"frame {number} is damaged, or one that it refers to")
    if (frame.height, frame.width) != (stream.height, stream.width):
        raise ValueError(
            f"frame {number} has {frame.height}x{frame.width} pixels (height x width), expected "
            f"{stream.height}x{stream.width} as in the first frame: split the video where its size "
            "changes, or convert it, e.g. with ffmpeg -i FILE FILE.mp4"
        )


def _rgb(frame: Any) -> NDArray[np.uint8]:
    """Return the pixels of an rgb24 frame, without the padding at the end of each row."""
    plane: Any = frame.planes[0]
    rows = np.frombuffer(plane, np.uint8).reshape(frame.height, plane.line_size)
    return rows[:, : 3 * frame.width].reshape(frame.height, frame.width, 3)
