"""Videos, frame by frame, as PyAV decodes them from the beginning, for `verify`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_pipelines.cli.errors import one_line
from readers.places.file_object import file_object
from readers.video.decoding import decoded, import_av
from readers.video.packets import FRAME, NOTE, Packets, Stream
from readers.video.reader import packets_of

if TYPE_CHECKING:
    from dali_pipelines.cli.verify.config import Area
    from readers import Index
    from readers.contract import Row

_COLUMNS = ("path", "offset", "nbytes", "etag", "file_bytes", FRAME, NOTE)
"""Columns that locate the data of a row."""
_STRICT = {"err_detect": "crccheck+bitstream+buffer+explode"}
"""Options of a decoder, so that it does not hide damage, and looks at checksums."""
_LATE = 1e-6
"""Largest difference of the times of a frame, in seconds."""


class Compared(NamedTuple):
    """Outcome of a comparison."""

    codec: str | None = None
    shape: tuple[int, ...] | None = None
    """Frames, 3, height and width."""
    verdict: str = "OK"
    reason: str = ""


class _Found(NamedTuple):
    """Frames of a video by one of the two ways."""

    frames: dict[int, bytes]
    """Digest of each frame by number."""
    times: dict[int, float]
    """Seconds from the first frame."""
    complaint: str = ""
    """Why there are no more frames."""


def video_rows(files: Sequence[str]) -> Index | None:
    """Return the rows of Index files of videos; None if there are other files."""
    import pyarrow as pa

    from readers.index.table import INDEX_SUFFIXES, Index

    tables = []
    for file in files:
        index = None
        if file.endswith(INDEX_SUFFIXES) and os.path.isfile(file):
            with suppress(OSError, ValueError):  # who reads it says why
                index = Index.load(file)
        if index is None or NOTE not in index:
            return None
        names = [name for name in _COLUMNS if name in index]
        tables.append(index.table.select(names))
    return Index(pa.concat_tables(tables, promote_options="permissive"))


def compare_video(row: Row, window: Area | None) -> Compared:
    """Compare all frames of a video, or those of a clip, each decoded from its key frame.

    The frames after a key frame are read in two turns, with a stride of 2.
    """
    try:
        with row.place as place:
            packets = packets_of(row, place)
    except Exception as error:  # of any kind on hostile input
        reason = one_line(error)
        if _by_pyav(row, None, None).complaint:
            return Compared(verdict="REJECTED", reason=reason)
        return Compared(verdict="DIFFERS", reason=f"read by PyAV, but not here: {reason}")
    stream = packets.stream
    expected, found = _by_pyav(row, stream, window), _by_reader(row, packets, window)
    shape = (len(found.frames), 3, *(stream.size if window is None else window[2:]))
    if found.complaint or expected.complaint:
        if found.complaint and expected.complaint:
            return Compared(stream.codec, shape, "REJECTED", found.complaint)
        who = "read by PyAV, but not here" if found.complaint else "read here, but not by PyAV"
        reason = f"{who}: {found.complaint or expected.complaint}"
        return Compared(stream.codec, shape, "DIFFERS", reason)
    reason = _difference(packets, found, expected)
    return Compared(stream.codec, shape, "DIFFERS" if reason else "OK", reason)


def _difference(packets: Packets, found: _Found, expected: _Found) -> str:
    """Return in words how frames differ; empty if they are equal."""
    if packets.stream.frames != len(expected.frames):
        return f"{packets.stream.frames} frames here, {len(expected.frames)} by PyAV"
    differ = [
        number for number, digest in found.frames.items() if digest != expected.frames[number]
    ]
    if differ:
        more = f" and {len(differ) - 1} more" if len(differ) > 1 else ""
        return f"frame {_named(packets, min(differ))}{more} of {len(found.frames)} differ"
    for number, time in found.times.items():
        if abs(time - expected.times[number]) > _LATE:
            return (
                f"frame {_named(packets, number)} is shown at {time:g} s here, by PyAV at "
                f"{expected.times[number]:g} s"
            )
    return ""


def _named(packets: Packets, number: int) -> str:
    """Return the number of a frame with the first byte of its packet."""
    return f"{number} (packet at byte {packets.starts[packets.showing([number])][0]})"


def _by_reader(row: Row, packets: Packets, window: Area | None) -> _Found:
    """Decode frames from their key frames, as a VideoReader does."""
    stream = packets.stream
    numbers: Sequence[int] = range(stream.frames)
    if stream.clip is not None:
        first, (frames, stride) = int(row.notes[FRAME]), stream.clip
        numbers = range(first, first + frames * stride, stride)
    digests: dict[int, bytes] = {}
    complaint = ""
    try:
        with row.place as place:
            for some in _turns(packets, numbers):
                for number, frame in decoded(place, packets, some):
                    digests[number] = _digest(stream.orientation.apply(frame), window)
    except Exception as error:  # of any kind on hostile input
        complaint = one_line(error)
    times = dict(zip(numbers, packets.times(numbers).tolist(), strict=True))
    return _Found(digests, times, complaint)


def _turns(packets: Packets, numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield the frames that are decoded from one key frame, in two turns."""
    groups: dict[int, list[int]] = {}
    for number in numbers:
        groups.setdefault(packets.needed([number])[0], []).append(number)
    for group in groups.values():
        yield from filter(None, (group[::2], group[1::2]))


def _by_pyav(row: Row, stream: Stream | None, window: Area | None) -> _Found:
    """Decode the whole video from its beginning; without a stream only to see if that works."""
    digests: dict[int, bytes] = {}
    times: dict[int, float] = {}
    number = 0
    try:
        av = import_av()
        with (
            row.place as place,
            file_object(place) as (file, _),
            av.open(file, metadata_errors="replace") as container,
        ):
            video = container.streams.video[0]
            video.codec_context.thread_count = 1
            video.codec_context.options = _STRICT
            for number, packet in enumerate(container.demux(video)):
                if packet.is_corrupt:
                    return _Found(digests, times, f"packet {number} is cut off")
                for frame in packet.decode():
                    if frame.is_corrupt:
                        return _Found(digests, times, f"frame {len(digests)} is damaged")
                    times[len(digests)] = float(frame.time or 0)
                    digests[len(digests)] = b""
                    if stream is not None:
                        shown = stream.orientation.apply(frame.to_ndarray(format="rgb24"))
                        digests[len(digests) - 1] = _digest(shown, window)
    except Exception as error:  # of any kind on hostile input
        reason = getattr(error, "strerror", None) or str(error)
        return _Found(digests, times, one_line(f"packet {number}: {reason}"))
    begins = times.get(0, 0.0)
    return _Found(digests, {at: time - begins for at, time in times.items()})


def _digest(frame: Any, window: Area | None) -> bytes:
    """Return a digest of the pixels and the shape of a frame, or of a window of it."""
    import numpy as np

    if window is not None:
        window.check(*frame.shape[:2])
        frame = frame[window.slices()]
    digest = hashlib.blake2b(np.ascontiguousarray(frame).data, digest_size=16)
    digest.update(str(frame.shape).encode())
    return digest.digest()
