"""Videos for tests, made by PyAV: each frame has its number drawn into it, as bits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 48, 64
FRAMES = 60
RATE = 30
_BITS, _BIT = 8, 8
"""Bits of a number, each of so many pixels beside each other."""
_X264 = "keyint=15:min-keyint=15:scenecut=0:bframes=3:b-pyramid=normal:log-level=none"


class Kind(NamedTuple):
    """How a video is encoded."""

    suffix: str
    encoder: str
    options: Mapping[str, str] = {}
    pix_fmt: str = "yuv420p"
    b_frames: int = 0
    container: Mapping[str, str] = {}


KINDS = {
    "h264": Kind("mp4", "libx264", {"x264-params": _X264}),
    "open GOP": Kind("mp4", "libx264", {"x264-params": f"{_X264}:open-gop=1"}),
    "fragments": Kind(
        "mp4", "libx264", {"x264-params": _X264}, container={"movflags": "frag_keyframe+empty_moov"}
    ),
    "h264 mkv": Kind("mkv", "libx264", {"x264-params": _X264}),
    "h264 flv": Kind("flv", "libx264", {"x264-params": _X264}),
    "h264 avi": Kind("avi", "libx264", {"x264-params": f"{_X264}:bframes=0"}),
    "hevc": Kind(
        "mp4", "libx265", {"x265-params": "keyint=15:min-keyint=15:open-gop=1:log-level=0"}
    ),
    "vp8": Kind("webm", "libvpx", {"auto-alt-ref": "1", "lag-in-frames": "16"}),
    "vp9": Kind("webm", "libvpx-vp9", {"cpu-used": "8", "lag-in-frames": "8"}),
    "av1": Kind("mkv", "libsvtav1", {"preset": "12"}),
    "mpeg4": Kind("mp4", "mpeg4", b_frames=2),
    "mpeg4 avi": Kind("avi", "mpeg4", b_frames=2),
    "mjpeg": Kind("avi", "mjpeg", pix_fmt="yuvj420p"),
    "ffv1": Kind("mkv", "ffv1", pix_fmt="bgr0"),
    "intra refresh": Kind("mp4", "libx264", {"x264-params": f"{_X264}:intra-refresh=1"}),
    "each frame a fragment": Kind(
        "mp4", "libx264", {"x264-params": _X264}, container={"movflags": "frag_every_frame"}
    ),
    "h264 nut": Kind("nut", "libx264", {"x264-params": _X264}),
    "hevc flv": Kind("flv", "libx265", {"x265-params": "keyint=15:log-level=0"}),
    "vp9 mp4": Kind("mp4", "libvpx-vp9", {"cpu-used": "8", "lag-in-frames": "8"}),
    "mpeg2": Kind("mkv", "mpeg2video", b_frames=2),
    "mpeg2 mxf": Kind("mxf", "mpeg2video", b_frames=2),
    "prores": Kind("mov", "prores", pix_fmt="yuv422p10le"),
    "png": Kind("mov", "png", pix_fmt="rgb24"),
    "qtrle": Kind("mov", "qtrle", pix_fmt="rgb24"),
    "raw": Kind("mov", "rawvideo", pix_fmt="rgb24"),
    "10 bits": Kind("mp4", "libx264", {"x264-params": _X264}, pix_fmt="yuv420p10le"),
    "4:4:4": Kind("mp4", "libx264", {"x264-params": _X264}, pix_fmt="yuv444p"),
}


def picture(number: int, seed: int = 0, size: tuple[int, int] = (HEIGHT, WIDTH)) -> NDArray[Any]:
    """Return frame `number` of a video: its bits on top, then patches that move."""
    height, width = size
    patches = np.random.default_rng(seed).integers(0, 255, (12, 40, 3), np.uint8)
    moving = np.kron(patches, np.ones((8, 8, 1), np.uint8))
    frame = np.ascontiguousarray(np.roll(moving, -number, 1)[:height, :width])
    frame[:16] = 0
    for bit in range(_BITS):
        frame[:16, _BIT * bit : _BIT * (bit + 1)] = 255 * (number >> bit & 1)
    return frame


def number_of(frame: NDArray[Any]) -> int:
    """Return the number that is drawn into a frame, shape (height, width, 3)."""
    parts = (frame[2:14, _BIT * bit + 2 : _BIT * bit + 6] for bit in range(_BITS))
    return sum(int(part.mean() > 127) << bit for bit, part in enumerate(parts))


def write_video(
    path: Path,
    kind: str | Kind = "h264",
    frames: int = FRAMES,
    *,
    seed: int = 0,
    size: tuple[int, int] = (HEIGHT, WIDTH),
    times: Callable[[int], int] | None = None,
    rotation: int = 0,
    container: Mapping[str, str] = {},
    draw: Callable[..., NDArray[Any]] = picture,
    setup: Callable[[Any], None] = lambda stream: None,
) -> Path:
    """Write a video with the suffix of its kind, and return its path.

    `times` gives the time of each frame in ticks of 1/30 s; `rotation` is in degrees
    counterclockwise; `setup` gets the stream before the first frame.
    """
    how = KINDS[kind] if isinstance(kind, str) else kind
    os.environ["SVT_LOG"] = "1"  # only errors
    path = path.with_name(f"{path.name}.{how.suffix}")
    with av.open(str(path), "w", options={**how.container, **container}) as file:
        stream: Any = file.add_stream(how.encoder, rate=RATE, options=dict(how.options))
        stream.height, stream.width = size
        stream.pix_fmt = how.pix_fmt
        context = stream.codec_context
        context.gop_size = 15
        context.time_base = Fraction(1, RATE)
        context.thread_count = 1
        if how.b_frames:
            context.max_b_frames = how.b_frames
        if how.encoder in ("mpeg4", "mjpeg", "libvpx", "libvpx-vp9"):
            context.bit_rate = 3_000_000
        if rotation:
            stream.set_display_rotation(rotation)
        setup(stream)
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(draw(number, seed, size), format="rgb24")
            frame.pts = number if times is None else times(number)
            frame.time_base = context.time_base
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path


def stored(path: Path | str) -> NDArray[np.uint8]:
    """Return all frames as PyAV decodes them, shape (frames, height, width, 3)."""
    with av.open(str(path)) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in _frames(file)])


def times_of(path: Path | str) -> list[float]:
    """Return the times of all frames as PyAV decodes them, in seconds from the first."""
    with av.open(str(path)) as file:
        times = [float(frame.time) for frame in _frames(file)]
    return [time - times[0] for time in times]


def _frames(file: Any) -> Iterator[Any]:
    file.streams.video[0].thread_type = "NONE"
    return file.decode(video=0)
