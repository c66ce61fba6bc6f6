"""Videos in an Index: facts and packets of each file, and rows for clips."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.contract import Row
from readers.index import schema
from readers.index.arrow import pa
from readers.index.file_facts import of_parts, seconds_of, with_facts
from readers.values import check_integer, is_integer
from readers.video.packets import DURATION, FRAME, NOTE, START, Clip, Packets, unpacked
from readers.video.reader import VideoReader, video_packets

_SECONDS = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?s")
"""Seconds as text."""


def with_video_facts(
    table: pa.Table,
    rows: Iterable[Row],
    num_threads: int,
    progress: Callable[[Iterable[Any]], Iterable[Any]],
    verify: bool = False,
) -> pa.Table:
    """Return a table with the facts of `readers.index.table.Index.scan_videos`.

    Rows that cannot be read are left out, and the log counts them. Durations of parts of videos,
    which have a ``start``, are kept; without one, a part ends with its video. With `verify` all
    frames are decoded, and videos are left out if that fails. ReadError if all are.
    """
    look = partial(_packets, verify=verify)
    table, found = with_facts(table, rows, look, "videos", num_threads, progress)
    streams = [one.stream for one in found]
    rates = (one.frames / one.duration if one.duration > 0 else None for one in streams)
    for name, values in (
        ("frames", pa.array([one.frames for one in streams], pa.int64())),
        ("fps", pa.array(rates, pa.float64())),
        ("height", pa.array([one.size[0] for one in streams], pa.int32())),
        ("width", pa.array([one.size[1] for one in streams], pa.int32())),
        (DURATION, of_parts(table, pa.array([one.duration for one in streams], pa.float64()))),
        ("codec", pa.array([one.codec for one in streams])),
        (NOTE, pa.array([one.note() for one in found], pa.large_binary())),
    ):
        table = schema.with_column(table, name, values)
    return table


def _packets(row: Row, verify: bool) -> Packets:
    """Return the packets of a video; with `verify` decode all of its frames."""
    packets = video_packets(row)
    if verify:
        VideoReader(1).verify(replace(row, notes={NOTE: packets.note()}))
    return packets


def clip_rows(table: pa.Table, frames: int, stride: int, every: int | str | None) -> pa.Table:
    """Return a row for each clip of each row, see `readers.index.table.Index.each_clip`."""
    check_integer("frames", frames, 1)
    check_integer("stride", stride, 1)
    clip = Clip(int(frames), int(stride))
    step = _step(clip.frames * clip.stride if every is None else every)
    if NOTE not in table.column_names:
        raise ValueError(
            f"each_clip needs an Index of videos with a column {NOTE!r}: make the Index by "
            "Index.scan_videos"
        )
    if FRAME in table.column_names:
        raise ValueError(f"the Index already has a column {FRAME!r}: rename or drop it")
    parts = [
        [math.nan if one is None else one for one in seconds_of(table, name).to_pylist()]
        for name in (START, DURATION)
    ]
    rows: list[int] = []
    starts: list[int] = []
    notes: list[bytes] = []
    for row, note in enumerate(table[NOTE]):
        packets = unpacked(note.as_py() or b"")
        span = (clip.frames - 1) * clip.stride + 1
        where = f"{table['path'][row].as_py()} (row {row})"
        try:
            part = packets.part(*(one[row] for one in parts))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if len(part) < span:
            is_part = len(part) < packets.stream.frames
            enough = f"duration * fps >= {span}" if is_part else f"frames >= {span}"
            raise ValueError(
                f"{where}: it has {len(part)} frames, and a clip of {frames} frames with stride "
                f"{stride} needs {span}: leave such rows out, e.g. with index.where('{enough}')"
            )
        firsts = _firsts(packets, part[: len(part) - span + 1], step)
        rows += [row] * len(firsts)
        starts += firsts
        notes += [packets.of_clip(first, clip).note() for first in firsts]
    chosen = table.take(pa.array(rows, pa.int64()))
    chosen = schema.with_column(chosen, NOTE, pa.array(notes, pa.large_binary()))
    return chosen.append_column(FRAME, pa.array(starts, pa.int64()))


def _step(every: Any) -> int | float:
    """Return the step between clips: an int of frames, or a float of seconds, else ValueError."""
    if is_integer(every, 1):
        return int(every)
    if isinstance(every, str) and (found := _SECONDS.fullmatch(every)) and float(found[1]) > 0:
        return float(found[1])
    raise ValueError(f"every must be frames, such as 16, or seconds, such as '2s', got {every!r}")


def _firsts(packets: Packets, possible: range, step: int | float) -> list[int]:
    """Return the first frames of clips, among the possible ones."""
    last = possible[-1]
    if isinstance(step, int):
        starts = possible[::step]
        return [*starts] if starts[-1] == last else [*starts, last]
    times: NDArray[np.float64] = packets.all_times()[possible.start : possible.stop]
    # Times are rounded to the ticks of the stream, so a frame may be a little early.
    wanted = np.arange(times[0], times[-1] + step / 1e3, step)
    found = possible.start + np.searchsorted(times, wanted - step / 1e3)
    return np.unique(np.append(found[found <= last], last)).tolist()
