"""Stream and packets of a video: all of it is demuxed, and only its first frame is decoded."""

from __future__ import annotations

from collections import deque
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from readers.messages import pipeline_hint, printable
from readers.places.contract import Place
from readers.places.file_object import file_object
from readers.video.decoding import COLOURS, context_of, import_av
from readers.video.packets import HIDDEN, Orientation, Packets, Stream
from readers.video.parameter_sets import ParameterSets

_BUFFER_BYTES = 256 << 10
"""Bytes that are read at a time."""
_HEADER_BYTES = 64
"""Maximum number of bytes between the noted position of a packet and its content."""
_RECENT_BYTES = 16 << 20
"""Bytes that were read last and are kept; FFmpeg reads up to 5 MB before it gives a packet."""
_MOST_UNDECODED = 64
"""Maximum number of packets until the decoder returns the first frame."""
_VP8_SHOWN = 0x10
"""Flag in the first byte of a packet of VP8."""
_BEGINS = 12
"""Number of first bytes of a file that tell formats apart."""
_MATROSKA_BYTES = 256
"""Bytes at the beginning of a file of Matroska that include the size of its segment."""
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_MOST_BACK = 1.0
"""Seconds by which decoding times may go back; they do by some ms where they are rounded."""
_PARAMETERS = ("new_extradata", "param_change", "palette")
"""Side data of packets that change the parameters of the decoder."""
_ENCRYPTED = ("encv", "drmi")
"""Tags of streams of MP4 that are encrypted."""


def scan_video(place: Place) -> Packets:
    """Return the stream and packets of the video in an open place.

    Raises
    ------
    ImportError
        If PyAV is missing.
    ValueError
        If it is no video that can be read by packets.
    """
    av = import_av()
    if not place.nbytes:
        raise ValueError("the file is empty")
    with file_object(place, buffer=_BUFFER_BYTES) as (opened, _):
        _check_length(place.nbytes, opened.read(_MATROSKA_BYTES))
        opened.seek(0)
        file = _Recent(place, opened)
        try:
            container = av.open(file, metadata_errors="replace")
        except (av.error.FFmpegError, ValueError) as error:
            begin = place.read(0, _BEGINS)
            reason = getattr(error, "strerror", None) or str(error)
            raise ValueError(
                f"FFmpeg cannot open it as a video ({printable(reason)}); it begins with "
                f"{begin!r}{pipeline_hint(begin, 'video')}"
            ) from None
        with container:
            try:
                return _scanned(av, file, place, container)
            except av.error.FFmpegError as error:
                raise ValueError(f"FFmpeg: {error.strerror}: it is damaged or cut off") from error


def _check_length(nbytes: int, begin: bytes) -> None:
    """Raise ValueError if a file of Matroska or WebM ends before its only segment does.

    FFmpeg then reads what there is; it refuses files of other formats.
    """
    if not begin.startswith(_EBML):
        return
    header = _element_size(begin, len(_EBML))
    if header is None or not begin[header:].startswith(_SEGMENT):
        return
    end = _element_size(begin, header + len(_SEGMENT))
    if end is not None and end > nbytes:
        raise ValueError(
            f"it has {nbytes} of {end} bytes: it is cut off; ffmpeg -i FILE -c copy NEW.mkv "
            "keeps the frames before the cut"
        )


def _element_size(begin: bytes, at: int) -> int | None:
    """Return where an element of EBML ends whose size is noted at a position; None if unknown."""
    if at >= len(begin) or not begin[at]:
        return None
    count = 9 - begin[at].bit_length()
    noted = int.from_bytes(begin[at : at + count]) & ((1 << 7 * count) - 1)
    return None if noted == (1 << 7 * count) - 1 else at + count + noted


class _Recent:
    """A file that keeps the bytes that were read last."""

    def __init__(self, place: Place, file: BinaryIO) -> None:
        self._place, self._file = place, file
        self._parts: deque[tuple[int, bytes]] = deque()
        self._nbytes = 0
        self.seek, self.tell = file.seek, file.tell

    def read(self, nbytes: int = -1, /) -> bytes:
        """Read bytes, and keep them."""
        part = self._file.tell(), self._file.read(nbytes)
        self._parts.append(part)
        self._nbytes += len(part[1])
        while self._nbytes > _RECENT_BYTES:
            self._nbytes -= len(self._parts.popleft()[1])
        return part[1]

    def at(self, start: int, nbytes: int, more: int) -> bytes:
        """Return bytes of the file, which are read again if they are not kept.

        They have up to `more` than `nbytes` bytes, as far as that many were read.
        """
        begin, part = self._parts[-1]
        read = min(begin + len(part), self._place.nbytes)
        left = stop = max(min(start + nbytes + more, read), start + nbytes)
        found = bytearray(stop - start)
        for begin, part in reversed(self._parts):
            if begin < left <= begin + len(part):
                first = max(begin, start)
                found[first - start : left - start] = part[first - begin : left - begin]
                left = first
            if left <= start:
                return bytes(found)
        return self._place.read(start, min(stop, self._place.nbytes))


def _scanned(av: Any, file: _Recent, place: Place, container: Any) -> Packets:
    stream = _video_stream(container)
    context, frame = stream.codec_context, None
    context.thread_count = 1
    colours = tuple(int(getattr(context, name)) for name in COLOURS)
    bits = int(context.bits_per_coded_sample)
    starts: list[int] = []
    nbytes: list[int] = []
    ticks: list[int] = []
    decoding: list[int] = []
    is_key: list[bool] = []
    is_shown: list[bool] = []
    first: list[bytes] = []
    sets = ParameterSets(context.name, bytes(context.extradata or b""))
    last, header = None, 0
    for packet in container.demux(stream):
        if not packet.size:
            continue
        number = len(starts)
        _check_packet(packet, number, context, container.format.name)
        if frame is None:
            frame = _first_frame(av, packet, number)
            first.append(bytes(packet))
        content = bytes(packet)
        header = _header_bytes(file, packet.pos, content, header, container.format.name)
        starts.append(packet.pos + header)
        nbytes.append(packet.size)
        tick = packet.dts if packet.pts is None else packet.pts
        is_key.append(sets.suffice(content) and packet.is_keyframe)
        is_shown.append(not packet.is_discard and _shows(context.name, packet))
        if tick is None and _leads(context.name, ticks):
            tick = ticks[0] - 1
        elif packet.pts is None and (packet.dts is None or context.reorder_depth):
            raise ValueError(
                f"its packet {number} does not say when it is shown: convert the video, e.g. with "
                "ffmpeg -i FILE FILE.mp4"
            )
        ticks.append(tick)
        if packet.dts is not None:
            decoding.append(packet.dts)
        last = packet
    if last is None:
        raise ValueError("its video stream has no frames")
    if context.reorder_depth and container.format.name == "avi" and context.name != "mpeg4":
        raise ValueError(
            "AVI does not say in which order its frames are shown, and some refer to later ones: "
            "convert the video, e.g. with ffmpeg -i FILE FILE.mp4"
        )
    if context.reorder_depth and container.format.name == "mxf" and (np.diff(ticks) > 0).all():
        raise ValueError(
            "its packets do not say in which order its frames are shown: convert the video, e.g. "
            "with ffmpeg -i FILE -c copy FILE.h264, and ffmpeg -i FILE.h264 FILE.mp4"
        )
    if "mp4" in container.format.name and len(stream.index_entries) > len(starts):
        raise ValueError(
            f"it has {len(starts)} of {len(stream.index_entries)} packets: it is cut off"
        )
    for one in context.decode(None) if frame is None else ():
        frame = frame or one
    if frame is None:
        raise ValueError("its first packets show no frame: it is damaged, or encrypted")
    _check_decoding_times(decoding, float(stream.time_base))
    times = np.array(ticks, np.int64)
    numbers = _numbers(times, np.array(is_key), np.array(is_shown))
    if not (frames := int(numbers.max()) + 1):
        raise ValueError("no frame is shown: it has no key frame, or an empty edit list")
    shown = times[numbers != HIDDEN]
    in_order = np.sort(shown)
    if context.reorder_depth and (same := np.flatnonzero(np.diff(in_order) == 0)).size:
        raise ValueError(
            f"frames {same[0]} and {same[0] + 1} are shown at the same time, and the order of its "
            "frames is known by their times alone: make the video again with finer times, as in MP4"
        )
    end = shown.max() + (last.duration or np.ptp(shown) // max(1, frames - 1))
    base = stream.time_base
    described = Stream(
        decoder=context.name,
        codec=context.codec.canonical_name,
        tag=_text(context.codec_tag),
        extradata=bytes(context.extradata or b""),
        pix_fmt=context.pix_fmt or "",
        height=frame.height,
        width=frame.width,
        orientation=_orientation(frame),
        time_base=(base.numerator, base.denominator),
        frames=frames,
        begins=int(shown.min()),
        duration=float((end - shown.min()) * base),
        file_bytes=place.nbytes,
        bits=bits,
        colours=colours,
        frame_colours=(int(frame.colorspace), int(frame.color_range)),
    )
    _check_decoder(av, described, first)
    positions, lengths = np.array(starts, np.int64), np.array(nbytes, np.int64)
    return Packets(described, positions, lengths, times, numbers, np.array(is_key))


def _video_stream(container: Any) -> Any:
    """Return the video stream that FFmpeg finds best; ValueError if there is none."""
    stream = container.streams.best("video")
    if stream is None or "attached_pic" in str(stream.disposition):
        kinds = sorted({one.type for one in container.streams if one is not stream})
        held = f", it has {' and '.join(kinds)}" if kinds else ""
        raise ValueError(f"it has no video stream{held}")
    tag = _text(stream.codec_context and stream.codec_context.codec_tag)
    if tag in _ENCRYPTED:
        raise ValueError("its video stream is encrypted (DRM): only its owner can decrypt it")
    if stream.codec_context is None:
        raise ValueError("FFmpeg has no decoder for its video stream; it may be encrypted (DRM)")
    return stream


def _text(tag: Any) -> str:
    return str(tag or "").strip("\0")


def _check_packet(packet: Any, number: int, context: Any, container: str) -> None:
    if packet.has_sidedata("encryption_info"):
        raise ValueError("its video stream is encrypted (DRM): only its owner can decrypt it")
    if packet.is_corrupt:
        raise ValueError("a packet ends too early: the file is cut off")
    if packet.pos is None or packet.pos < 0:
        raise ValueError(_in_pieces("its packets have no positions", container))
    for one in packet.iter_sidedata():
        # An FLV may repeat the parameters of its decoder.
        same = one.data_type == "new_extradata" and bytes(one) == bytes(context.extradata or b"")
        if one.data_type in _PARAMETERS and not same:
            raise ValueError(
                f"packet {number} changes the parameters of its decoder ({one.data_type}): split "
                "the video there, or convert it, e.g. with ffmpeg -i FILE FILE.mp4"
            )


def _in_pieces(what: str, container: str) -> str:
    suffix = "mov" if "matroska" in container else "mkv"
    return (
        f"{what} in the file, as in MPEG-TS, MPEG-PS and OGG: copy the stream to another container,"
        f" e.g. with ffmpeg -fflags +genpts -i FILE -c copy FILE.{suffix}"
    )


def _first_frame(av: Any, packet: Any, number: int) -> Any:
    """Return the first frame that the packets up to this one give, if any."""
    try:
        frames = packet.decode()
    except av.error.FFmpegError as error:
        if number < _MOST_UNDECODED:
            return None
        raise ValueError(
            f"its first packets cannot be decoded ({error.strerror}): it is damaged, or encrypted"
        ) from error
    return next(iter(frames), None)


def _check_decoder(av: Any, stream: Stream, first: list[bytes]) -> None:
    """Raise ValueError if the noted stream does not suffice to decode the first packets."""
    context = context_of(stream)
    try:
        frames = [frame for content in first for frame in context.decode(av.Packet(content))]
        frames = frames or context.decode(None)
        found = {(frame.height, frame.width) for frame in frames}
    except av.error.FFmpegError as error:
        raise ValueError(_needs_container(stream, error.strerror)) from error
    if found != {(stream.height, stream.width)}:
        raise ValueError(_needs_container(stream, f"its frames have sizes {sorted(found)}"))


def _check_decoding_times(ticks: list[int], seconds: float) -> None:
    """Raise ValueError if times begin again, as in joined FLV files: frames would be mixed."""
    times = np.multiply(ticks, seconds)
    back = np.flatnonzero(np.maximum.accumulate(times) - times > _MOST_BACK)
    if back.size:
        at = int(back[0])
        raise ValueError(
            f"its times go back from {times[at - 1]:g} to {times[at]:g} s at packet {at}, as in "
            "joined files: split the video there, or join its parts by ffmpeg -f concat"
        )


def _needs_container(stream: Stream, reason: str) -> str:
    return (
        f"its codec, {stream.codec}, cannot be decoded without its container ({reason}): convert "
        "it, e.g. with ffmpeg -i FILE FILE.mp4"
    )


def _leads(decoder: str, ticks: list[int]) -> bool:
    """Return whether the next packet follows the first key frame, but is shown before it.

    In HEVC that was cut out of a video, such packets refer to frames before the cut, and are left
    out.
    """
    return decoder == "hevc" and bool(ticks) and all(tick < ticks[0] for tick in ticks[1:])


def _shows(decoder: str, packet: Any) -> bool:
    """Return whether a packet shows a frame: VP8 has packets that others only refer to."""
    return decoder != "vp8" or bool(memoryview(packet)[0] & _VP8_SHOWN)


def _header_bytes(file: _Recent, start: int, content: bytes, likely: int, container: str) -> int:
    """Return the number of bytes between the position of a packet and its content in the file.

    ValueError if the content is not there in one piece.
    """
    found = file.at(start, len(content), _HEADER_BYTES)
    at = likely if found.startswith(content, likely) else found.find(content)
    if at < 0:
        raise ValueError(_in_pieces("its packets are not in one piece", container))
    return at


def _numbers(
    ticks: NDArray[np.int64], is_key: NDArray[np.bool_], is_shown: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the number of the frame that each packet shows, in the order of their times.

    Frames that are decoded or shown before the first key frame cannot be decoded.
    """
    numbers = np.full(len(ticks), HIDDEN, np.int64)
    keys = np.flatnonzero(is_key)
    if not len(keys):
        return numbers
    is_shown = is_shown & (ticks >= ticks[keys[0]])
    is_shown[: keys[0]] = False
    shown = np.flatnonzero(is_shown)
    numbers[shown[np.argsort(ticks[shown], kind="stable")]] = np.arange(len(shown))
    return numbers


def _orientation(frame: Any) -> Orientation:
    """Return the orientation by the display matrix of the first frame, if it has one."""
    from av.sidedata.sidedata import Type

    if (found := frame.side_data.get(Type.DISPLAYMATRIX)) is None:
        return Orientation()
    a, b, _, c, d = np.frombuffer(bytes(found), np.int32)[:5].tolist()
    if (b == c == 0 and a and d) or (a == d == 0 and b and c):
        return Orientation(a == 0, (d or b) < 0, (a or c) < 0)
    raise ValueError(
        "its display matrix turns frames by other angles than multiples of 90 degrees: convert the "
        "video, e.g. with ffmpeg -i FILE FILE.mp4"
    )
