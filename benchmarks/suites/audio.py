"""Recordings: 1 s at random positions in recordings of 60 s, and their log mel features."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from benchmarks.data import Settings
from benchmarks.measure.race import Table, Way, race
from benchmarks.ways.audio import (
    HOP,
    LOG_MEL,
    N_FFT,
    N_MELS,
    PEERS,
    RATE,
    WINDOW,
    Segment,
    Segments,
    torch_log_mel,
    with_seek,
)
from benchmarks.ways.loaders import data_loader_way, loader_of
from benchmarks.ways.peers import SEED
from dali_pipelines import Index, LogMel, audio_pipeline

_LENGTH_S = 60
_EACH = 50
"""Segments of a recording in a round."""
_BATCH = 16
_SLOW = {"soundfile, whole files": 10, "librosa": 3}
"""How many times fewer segments a round has of those that take long."""
_FORMATS = {"WAV": "PCM_16", "FLAC": "PCM_16", "OGG": "VORBIS"}
_FEATURES = LogMel(n_fft=N_FFT, win_length=WINDOW, hop_length=HOP, n_mels=N_MELS)


def audio_suite(settings: Settings) -> Iterator[Table]:
    """Time segments of WAV, FLAC and OGG, and log mel features of those of WAV."""
    count, seconds = (2, 6) if settings.quick else (16, _LENGTH_S)
    with tempfile.TemporaryDirectory() as folder:
        for format in _FORMATS:
            paths = [write_recording(folder, format, n, seconds) for n in range(count)]
            segments = draw_segments(paths, seconds, 10 if settings.quick else _EACH)
            yield _table(format, segments, settings, log_mel=False)
            if format == "WAV":
                yield _table(format, segments, settings, log_mel=True)


def write_recording(folder: str, format: str, number: int, seconds: int) -> str:
    """Write tones that change their loudness, and noise, at about the density of speech."""
    random, frames = np.random.default_rng(number), seconds * RATE
    t = np.arange(frames) / RATE
    sound = random.normal(0, 0.01, frames)
    for tone, beat, phase in random.uniform(0, 1, (6, 3)):
        loudness = 0.5 + 0.5 * np.sin(2 * np.pi * (0.3 + 3 * beat) * t)
        sound += 0.1 * loudness * np.sin(2 * np.pi * (80 + 3400 * tone) * t + 6 * phase)
    path = str(Path(folder) / f"{number}.{format.lower()}")
    soundfile.write(path, sound.astype(np.float32), RATE, subtype=_FORMATS[format])
    return path


def draw_segments(paths: list[str], seconds: int, each: int) -> list[Segment]:
    """Return random segments of 1 s in each recording."""
    random = np.random.default_rng(SEED)
    starts = random.integers(0, (seconds - 1) * RATE, (len(paths), each), endpoint=True)
    return [
        Segment(path, start)
        for path, of_path in zip(paths, starts.tolist(), strict=True)
        for start in of_path
    ]


def _table(format: str, segments: list[Segment], settings: Settings, *, log_mel: bool) -> Table:
    def expected(row: int, shape: tuple[int, ...]) -> NDArray[Any]:
        sound = with_seek(segments[row], RATE)
        return (torch_log_mel(sound) if log_mel else sound)[np.newaxis]

    if log_mel:
        peers = [_peer("soundfile with seek", segments, settings, by) for by in LOG_MEL]
    else:
        peers = [_peer(name, segments, settings) for name in PEERS]
    return Table(
        title=f"Random 1 s of {format}" + ", log mel features" * log_mel,
        baseline=peers[0].name,
        results=race(
            [_ours(segments, settings, log_mel), *peers], functools.cache(expected), settings.rounds
        ),
        data=f"{len(segments)} segments in {len({one.path for one in segments})} recordings, "
        f"{RATE} Hz",
        note=f"{settings.num_read_processes} processes each; batches of {_BATCH}.",
    )


def _ours(segments: list[Segment], settings: Settings, log_mel: bool) -> Way:
    index = Index.from_paths([one.path for one in segments])
    index = index.with_column("start", np.array([one.start / RATE for one in segments]))
    index = index.with_column("duration", np.ones(len(segments)))
    return loader_of(
        "Loader",
        audio_pipeline,
        index,
        2 if settings.quick else 4,
        # Float32 rounds what is far below the loudest band.
        agreement={"atol": 1e-3, "outliers": 0.01} if log_mel else {"atol": 0.0},
        batch_size=_BATCH,
        duration=1.0,
        features=_FEATURES if log_mel else "waveform",
        num_read_processes=settings.num_read_processes,
        num_threads=settings.num_threads,
    )


def _peer(
    name: str, segments: list[Segment], settings: Settings, log_mel: str | None = None
) -> Way:
    order = np.random.default_rng(SEED).permutation(len(segments))
    few = order[: max(4, len(order) // _SLOW.get(name, 1))].tolist()
    return data_loader_way(
        f"DataLoader, {name}" + (f", {log_mel}'s log mel" if log_mel else ""),
        Segments(segments, RATE, name, log_mel),
        few,
        batch_size=max(1, min(_BATCH, len(few) // settings.num_read_processes // 2)),
        num_workers=settings.num_read_processes,
        needs=tuple({PEERS[name][1], log_mel or "torch"}),
        atol=1e-3 if log_mel else 1e-6,
        outliers=0.01 if log_mel else 0.0,
    )
