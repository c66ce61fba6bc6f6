"""Clips of videos by others: PyAV with a seek and from the beginning, torchcodec."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Clip(NamedTuple):
    """Frames of a clip in a file."""

    path: str
    numbers: tuple[int, ...]
    ticks: tuple[int, ...]
    """When each of them is shown, in units of the stream's time base: known before, as ours are."""


def pyav_with_seek(clip: Clip) -> NDArray[Any]:
    """Seek to the key frame by PyAV, and decode up to the last frame."""
    return _by_pyav(clip, seek=True)


def pyav_whole(clip: Clip) -> NDArray[Any]:
    """Decode from the beginning of the file by PyAV."""
    return _by_pyav(clip, seek=False)


def _by_pyav(clip: Clip, *, seek: bool) -> NDArray[Any]:
    import av
    import numpy as np

    missing = set(clip.ticks)
    frames: dict[int, NDArray[Any]] = {}
    with av.open(clip.path) as file:
        stream = file.streams.video[0]
        stream.thread_count, stream.thread_type = 1, "NONE"
        found = _sought(file, stream, clip.ticks[0]) if seek else file.decode(stream)
        for frame in found:
            if frame.pts in missing:
                frames[frame.pts] = frame.to_ndarray(format="rgb24")
                missing.remove(frame.pts)
                if not missing:
                    break
    return np.stack([frames[one] for one in clip.ticks])


def _sought(file: Any, stream: Any, ticks: int) -> Iterator[Any]:
    """Yield frames from the key frame before a frame on.

    FFmpeg seeks by decoding times, and may find the key frame after it.
    """
    target = ticks
    while True:
        file.seek(target, stream=stream)
        frames = file.decode(stream)
        first = next(frames)
        if first.pts <= ticks:
            return itertools.chain([first], frames)
        target -= int(1 / stream.time_base)


def with_torchcodec(clip: Clip) -> NDArray[Any]:
    """Decode by torchcodec, with its index of all frames."""
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(clip.path, dimension_order="NHWC", num_ffmpeg_threads=1)
    return decoder.get_frames_at([*clip.numbers]).data.numpy()


PEERS: dict[str, tuple[Callable[[Clip], NDArray[Any]], str]] = {
    "PyAV with seek": (pyav_with_seek, "av"),
    "PyAV from the beginning": (pyav_whole, "av"),
    "torchcodec": (with_torchcodec, "torchcodec"),
}
"""Functions, and what they need."""


@dataclass(frozen=True)
class Clips:
    """The DataLoader's dataset: the middle of each frame, shape (frames, 3, crop, crop)."""

    clips: Sequence[Clip]
    crop: int
    peer: str

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import torch

        found = PEERS[self.peer][0](self.clips[row])
        y, x = ((side - self.crop) // 2 for side in found.shape[1:3])
        window = found[:, y : y + self.crop, x : x + self.crop]
        return torch.from_numpy(window.transpose(0, 3, 1, 2).copy()), row
