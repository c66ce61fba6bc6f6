"""Clips that DALI's decoder takes exactly, and the small files in which it gets them.

The rules follow from the source of DALI 2.4. On a GPU its decoder assumes that each picture of
NVDEC is the frame of the next packet. It looks for the frame to show among eight, and converts
colours by BT.601.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.buffers import buffer
from readers.places.contract import Place
from readers.video.clip_file import clip_header
from readers.video.contents import is_plain, is_progressive_h264
from readers.video.packets import HIDDEN, Packets, Stream

GraphDecoder = Literal["cpu", "gpu"]
"""Decoder of DALI: on a CPU FFmpeg, but without H.264, HEVC and AV1; on a GPU NVDEC."""
_CODECS: dict[str, tuple[str, ...]] = {
    "cpu": ("vp8", "vp9", "mjpeg"),
    "gpu": ("h264", "hevc", "vp8", "vp9"),
}
_NVDEC_SIDES = 144, 4096
"""Smallest and largest height and width that NVDEC takes for all of these codecs."""
_NVDEC_KEPT = 8
BT709 = 1
"""FFmpeg's number of a matrix; the graph corrects its colours."""
_BT601 = 2, 5, 6
"""FFmpeg's numbers of the matrices that count as BT.601: unspecified, and two names of BT.601."""
_FULL = 2
"""FFmpeg's number of the full range."""
_HEVC_MAIN = 1


class EncodedClip(NamedTuple):
    """A clip for DALI's decoder."""

    content: NDArray[np.uint8]
    """MP4 file, shape (bytes,), in memory of `readers.buffer`."""
    picked: NDArray[np.int32]
    """Numbers of the frames in that file, in order, each once."""


def takes(stream: Stream, decoder: GraphDecoder) -> bool:
    """Return whether a decoder of DALI takes clips of a stream, according to the Index.

    Their frames have 8 bits, 4:2:0, an even height and width, and colours of BT.601 or BT.709 in
    limited range; those of MJPEG have the full range.
    """
    if stream.codec not in _CODECS[decoder] or stream.height % 2 or stream.width % 2:
        return False
    is_jpeg = stream.codec == "mjpeg"
    if stream.pix_fmt != ("yuvj420p" if is_jpeg else "yuv420p") or not stream.frame_colours:
        return False
    matrix, extent = stream.frame_colours
    if matrix not in (BT709, *_BT601) or (extent == _FULL) != is_jpeg:
        return False
    if decoder == "cpu":
        return True
    least, most = _NVDEC_SIDES
    if not all(least <= side <= most for side in (stream.height, stream.width)):
        return False
    if stream.codec == "h264":
        return is_progressive_h264(stream.extradata)
    if stream.codec == "hevc":
        return stream.extradata[:1] == b"\1" and stream.extradata[1] & 0x1F == _HEVC_MAIN
    return True


def encoded_clip(
    place: Place, packets: Packets, frames: Sequence[int], decoder: GraphDecoder
) -> EncodedClip | None:
    """Return the packets of a clip as a file for a decoder of DALI, without decoding them.

    Parameters
    ----------
    place : Place
        Open place of the video.
    packets : Packets
        Its packets, of a stream that the decoder takes.
    frames : sequence of int
        Numbers of the frames, in order, each once.
    decoder : {"cpu", "gpu"}
        Decoder of DALI.

    Returns
    -------
    EncodedClip or None
        None if the decoder might show other frames, or if the packets are damaged.
    """
    stream = packets.stream
    start, stop = packets.needed(frames)
    # Frames of an open GOP that are shown before its key frame may refer to frames before that.
    kept = start + np.flatnonzero(packets.ticks[start:stop] >= packets.ticks[start])
    if len(kept) < stop - start and stream.codec != "hevc":
        return None
    if stream.codec == "vp8" and (packets.numbers[kept] == HIDDEN).any():
        return None  # they show nothing, and DALI counts them
    shown = np.argsort(np.argsort(packets.ticks[kept], kind="stable"))
    if decoder == "gpu" and (np.arange(len(kept)) - shown).max() >= _NVDEC_KEPT:
        return None
    nbytes, size = packets.nbytes[kept], (stream.height, stream.width)
    header = clip_header(stream.codec, stream.extradata, size, nbytes, shown, packets.is_key[kept])
    ends = len(header) + np.cumsum(nbytes)
    content = buffer(int(ends[-1]))
    content[: len(header)] = np.frombuffer(header, np.uint8)
    view = content.data
    starts = (ends - nbytes).tolist()
    parts = [view[begin:end] for begin, end in zip(starts, ends.tolist(), strict=True)]
    place.read_many(list(zip(packets.starts[kept].tolist(), parts, strict=True)))
    try:
        if not is_plain(parts, stream, hidden=decoder == "cpu"):
            return None
    except (IndexError, ValueError):
        return None
    picked = shown[np.searchsorted(kept, packets.showing(frames))]
    return EncodedClip(content, picked.astype(np.int32))
