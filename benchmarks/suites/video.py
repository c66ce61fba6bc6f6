"""Videos: clips at random places in videos of 10 s, with a key frame every 2 s."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Settings
from benchmarks.measure.race import Table, Way, race
from benchmarks.ways.loaders import data_loader_way, loader_of
from benchmarks.ways.peers import SEED
from benchmarks.ways.video import PEERS, Clip, Clips
from dali_pipelines import Index, video_pipeline

_FRAMES, _STRIDE = 8, 2
_RATE, _KEY_FRAMES = 30, 60
_BATCH = 4
_SLOW = {"PyAV from the beginning": 4}
"""How many times fewer clips a round has of those that take long."""


class Codec(NamedTuple):
    """How videos are encoded."""

    suffix: str
    encoder: str
    options: dict[str, str]


CODECS = {
    "H.264": Codec("mp4", "libx264", {"preset": "veryfast", "bf": "3", "g": str(_KEY_FRAMES)}),
    "HEVC": Codec(
        "mp4",
        "libx265",
        {"preset": "ultrafast", "x265-params": f"keyint={_KEY_FRAMES}:log-level=0"},
    ),
    "VP9": Codec("webm", "libvpx-vp9", {"cpu-used": "8", "g": str(_KEY_FRAMES)}),
}


def video_suite(settings: Settings) -> Iterator[Table]:
    """Time clips of each codec."""
    count, frames, size = (2, 40, (96, 128)) if settings.quick else (8, 300, (360, 640))
    crop = 64 if settings.quick else 224
    with tempfile.TemporaryDirectory() as folder:
        for codec in CODECS:
            paths = [write_video(folder, codec, n, frames, size) for n in range(count)]
            index = Index.scan_videos(paths)
            clips, rows = draw_clips(index, 4 if settings.quick else 16)
            yield _table(codec, rows, clips, crop, settings, size)


def write_video(folder: str, codec: str, number: int, frames: int, size: tuple[int, int]) -> str:
    """Write patches of all sizes that move, at about the density of films."""
    random, (height, width) = np.random.default_rng(number), size
    how = CODECS[codec]
    texture = np.full((height, width + frames, 3), 128.0)
    for scale in (2, 8, 32):
        shape = [-(-side // scale) for side in texture.shape[:2]]
        patches = random.normal(0, 12 * scale**0.5, (*shape, 3))
        texture += np.kron(patches, np.ones((scale, scale, 1)))[:height, : width + frames]
    path = str(Path(folder) / f"{codec}_{number}.{how.suffix}")
    with av.open(path, "w") as file:
        stream: Any = file.add_stream(how.encoder, rate=_RATE, options=how.options)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        stream.bit_rate = 1_500_000
        for shift in range(frames):
            image = texture[:, shift : shift + width].clip(0, 255).astype(np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        file.mux(stream.encode(None))
    return path


def draw_clips(index: Index, each: int) -> tuple[list[Clip], Index]:
    """Return random clips of each video, and their rows."""
    random, span = np.random.default_rng(SEED), (_FRAMES - 1) * _STRIDE + 1
    clips, rows, firsts = [], [], []
    for row, (path, frames) in enumerate(zip(index["path"], index["frames"], strict=True)):
        ticks = _ticks(path.as_py())
        for first in random.integers(0, frames.as_py() - span, each, endpoint=True).tolist():
            numbers = tuple(range(first, first + span, _STRIDE))
            clips.append(Clip(path.as_py(), numbers, tuple(ticks[one] for one in numbers)))
            rows.append(row)
            firsts.append(first)
    return clips, index.select(rows).with_column("frame", np.array(firsts))


def _ticks(path: str) -> list[int]:
    with av.open(path) as file:
        return sorted(one.pts for one in file.demux(video=0) if one.pts is not None)


def _table(
    codec: str,
    index: Index,
    clips: list[Clip],
    crop: int,
    settings: Settings,
    size: tuple[int, int],
) -> Table:
    pixels = Clips(clips, crop, "PyAV with seek")

    def expected(row: int, shape: tuple[int, ...]) -> NDArray[Any]:
        return pixels[row][0].numpy()

    ours = loader_of(
        "Loader",
        video_pipeline,
        index,
        2 if settings.quick else 4,
        agreement={"atol": 0.0},
        batch_size=_BATCH,
        frames=_FRAMES,
        stride=_STRIDE,
        crop=crop,
        dtype="uint8",
        num_read_processes=settings.num_read_processes,
        num_threads=settings.num_threads,
    )
    ways = [ours, *(_peer(name, clips, crop, settings) for name in PEERS)]
    return Table(
        title=f"Random clips of {codec}",
        baseline="DataLoader, PyAV with seek",
        results=race(ways, functools.cache(expected), settings.rounds),
        data=f"{len(clips)} clips of {_FRAMES} frames, every {_STRIDE}nd, {crop}x{crop} pixels of "
        f"{size[0]}x{size[1]}, a key frame every {_KEY_FRAMES} frames",
        note=f"{settings.num_read_processes} processes each; batches of {_BATCH}.",
    )


def _peer(name: str, clips: list[Clip], crop: int, settings: Settings) -> Way:
    order = np.random.default_rng(SEED).permutation(len(clips))
    few = order[: max(4, len(order) // _SLOW.get(name, 1))].tolist()
    return data_loader_way(
        f"DataLoader, {name}",
        Clips(clips, crop, name),
        few,
        batch_size=max(1, min(_BATCH, len(few) // settings.num_read_processes // 2)),
        num_workers=settings.num_read_processes,
        needs=(PEERS[name][1],),
        atol=1.0,
    )
