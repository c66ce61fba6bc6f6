"""Compare pixels and samples of the pipeline with those of other decoders."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dali_pipelines.cli.single_rows import num_processes
from dali_pipelines.cli.verify.placed import decoded_rows
from dali_pipelines.parallel.interpreter import Crash, isolated
from dali_pipelines.parallel.task_map import isolated_map, process_map
from dali_pipelines.parallel.worker import WorkerError, check_folders, fail
from dali_pipelines.runtime.ranks import Ranks
from readers.chunks.array import NOTE, unpacked
from readers.places.failures import nobody_answered
from readers.places.opener import Places
from readers.video.packets import FRAME
from readers.video.packets import NOTE as PACKETS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Executor

    import numpy as np
    from numpy.typing import NDArray

    from dali_pipelines import Index
    from dali_pipelines.cli.verify.config import VerifyConfig
    from dali_pipelines.cli.verify.truth import Truth
    from readers.contract import Row

_AT_ONCE = 128
"""Number of rows that a worker reads with one pipeline."""


@dataclass(slots=True)
class Record:
    """One file, or row: its properties according to another decoder, and the comparison."""

    path: str
    hdu: int | None
    """HDU that was read, or was to be read; None without HDUs."""
    plane: int | None = None
    """Plane that the Index names."""
    codec: str | None = None
    """None, like the fields below, if the other decoder cannot read the file."""
    shape: tuple[int, ...] | None = None
    """Shape of the window, or of the whole image, recording or video."""
    dtype: str | None = None
    max_difference: float | None = None
    """Infinite, or NaN, if only one of the two decoders has infinity or NaN at some pixel."""
    verdict: str = ""
    reason: str = ""
    """Reason for a verdict other than OK; or a remark that the file ends early after the image."""
    frame: int | None = None
    """First frame of the clip that the Index names."""

    def line(self) -> str:
        """Return the line to print."""
        facts = (
            self.path
            + (f" HDU {self.hdu}" if self.hdu else "")  # only the others need their number
            + ("" if self.plane is None else f" plane {self.plane}")
            + ("" if self.frame is None else f" frame {self.frame}"),
            self.codec or "-",
            "x".join(map(str, self.shape)) if self.shape else "-",
            self.dtype or "-",
            "-" if self.max_difference is None else f"{self.max_difference:g}",
            self.verdict,
            self.reason,
        )
        return "  ".join(filter(None, facts))


def records_of(
    index: Index, config: VerifyConfig, device: int | None
) -> Generator[tuple[str, Record], None, None]:
    """Yield the kind of device and a Record for each comparison.

    FITS come first, then encoded images, recordings and videos. Arrays are grouped by their
    variables.
    """
    for kind, of_kind in _by_kind(index, config):
        for record in _records_of_kind(kind, of_kind, config, device):
            yield _name_of(device), record


def records_of_workers(
    index: Index, config: VerifyConfig, executor: Executor
) -> Generator[tuple[str, Record], None, None]:
    """Like `records_of`, but each worker compares some rows, in another process."""
    tasks = (
        (kind, of_kind.select(range(at, min(at + _AT_ONCE, len(of_kind)))), config)
        for kind, of_kind in _by_kind(index, config)
        for at in range(0, len(of_kind), _AT_ONCE)
    )
    calls = ((compare_rows, [task]) for task in tasks)
    with closing(process_map(isolated, calls, 1, executor)) as results:
        for (records,) in results:
            if isinstance(records, Crash):
                raise WorkerError(
                    "a worker process was killed, possibly out of memory: use fewer workers"
                )
            yield from records


def compare_rows(kind: str, index: Index, config: VerifyConfig) -> list[tuple[str, Record]]:
    """Return the list of `records_of`; WorkerError if this machine lacks folders or GPUs."""
    check_folders(map(index.path, range(len(index))))
    try:
        (device,) = Ranks().choose_devices(config.device)
    except ValueError as error:
        fail(f"fails: {error}", error)
    name = _name_of(device)
    return [(name, record) for record in _records_of_kind(kind, index, config, device)]


def _name_of(device: int | None) -> str:
    return "CPU" if device is None else "GPU"


def _by_kind(index: Index, config: VerifyConfig) -> Iterator[tuple[str, Index]]:
    if NOTE in index:
        alike: dict[tuple[str, ...], list[int]] = {}
        for number, note in enumerate(index[NOTE].to_pylist()):
            alike.setdefault(tuple(unpacked(note)), []).append(number)
        yield from (("arrays", index.select(numbers)) for numbers in alike.values())
        return
    if PACKETS in index:
        yield "video", index
        return
    columns = index.columns().with_places(Places(config.storage))
    kinds = [_kind_of(columns.row(number)) for number in range(len(index))]
    for kind in ("fits", "image", "audio", "video"):
        if rows := [number for number, each in enumerate(kinds) if each == kind]:
            yield kind, index.select(rows)


def _kind_of(row: Row) -> str:
    from readers.errors import ReadError
    from readers.header_scan import is_encoded, is_recording, is_video

    kinds = {"audio": is_recording, "video": is_video, "image": is_encoded}
    try:
        return next((kind for kind, is_one in kinds.items() if is_one(row.place)), "fits")
    except ReadError as error:  # the pipeline reports it
        if nobody_answered(error):  # all other rows would wait just as long
            raise
        return "fits"


def _records_of_kind(
    kind: str, index: Index, config: VerifyConfig, device: int | None
) -> Generator[Record, None, None]:
    """Compare file by file, while both decoders run ahead."""
    if kind == "video":
        yield from _records_of_videos(index, config)
        return
    from dali_pipelines.cli.verify.arrays import by_xarray
    from dali_pipelines.cli.verify.truth import Truth, by_astropy, by_pillow, by_soundfile

    notes = (NOTE,) if kind == "arrays" else ()
    columns = index.columns(notes=notes).with_places(Places(config.storage))
    rows = [columns.row(number) for number in range(len(index))]
    decoder, truth_of = {
        "arrays": ("xarray", by_xarray),
        "fits": ("astropy", by_astropy),
        "image": ("Pillow", by_pillow),
        "audio": ("soundfile", by_soundfile),
    }[kind]
    hdus = [config.hdu if row.hdu is None else row.hdu for row in rows]
    tasks = ((row, hdu, config.window) for row, hdu in zip(rows, hdus, strict=True))
    with (
        closing(isolated_map(truth_of, tasks, num_processes(rows))) as truths,
        closing(decoded_rows(kind, index, rows, config, device)) as decoded,
    ):
        for row, truth, (pixels, refusal) in zip(rows, truths, decoded, strict=True):
            if isinstance(truth, Crash):
                complaint = f"a process was killed while {decoder} read it"
                truth = Truth(row.hdu, complaint=complaint, decoder=decoder)
            yield _judge(row, truth, pixels, refusal)


def _records_of_videos(index: Index, config: VerifyConfig) -> Generator[Record, None, None]:
    """Compare the frames of videos, each in a process of its own."""
    from dali_pipelines.cli.verify.videos import Compared, compare_video

    columns = index.columns(notes=(PACKETS, FRAME)).with_places(Places(config.storage))
    rows = [columns.row(number) for number in range(len(index))]
    tasks = ((row, config.window) for row in rows)
    with closing(isolated_map(compare_video, tasks, num_processes(rows))) as outcomes:
        for row, found in zip(rows, outcomes, strict=True):
            if isinstance(found, Crash):
                reason = "a process was killed while PyAV read it"
                found = Compared(verdict="REJECTED", reason=reason)
            dtype = None if found.shape is None else "uint8"
            largest = 0.0 if found.verdict == "OK" else None
            record = Record(row.name, None, None, found.codec, found.shape, dtype, largest)
            record.verdict, record.reason = found.verdict, found.reason
            if not math.isnan(first := float(row.notes.get(FRAME, math.nan))):
                record.frame = int(first)
            yield record


def _judge(row: Row, truth: Truth, pixels: NDArray[np.float32] | None, refusal: str) -> Record:
    """Compare the pipeline's pixels, or its reason for a rejection, with the other decoder's."""
    record = Record(row.name, truth.hdu, row.plane, truth.codec, truth.shape, truth.dtype)
    if pixels is None and truth.complaint:
        record.verdict, record.reason = "REJECTED", refusal
        return record
    record.verdict = "DIFFERS"
    if pixels is None:
        record.reason = f"read by {truth.decoder}, but not here: {refusal}"
    elif truth.values is None:
        record.reason = f"read here, but not by {truth.decoder}: {truth.complaint}"
    elif pixels.shape != truth.values.shape[-pixels.ndim :] or pixels.size != truth.values.size:
        record.reason = f"the shape here is {pixels.shape}"
    else:
        _compare(record, pixels, truth.values.reshape(pixels.shape), truth)
        if record.verdict == "OK" and truth.complaint:
            record.reason = f"but the file ends early: {truth.complaint}"
    return record


def _compare(
    record: Record,
    found: NDArray[np.float32],
    expected: NDArray[np.float32],
    truth: Truth,
) -> None:
    import numpy as np

    differ = (found != expected) & ~(np.isnan(found) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        differences = np.abs(found[differ].astype(np.float64) - expected[differ])
    record.max_difference = float(differences.max(initial=0.0))
    count = len(differences) - np.count_nonzero(differences <= truth.tolerance)
    if count:
        record.reason = f"{count} of {differ.size} {truth.noun}"
    else:
        record.verdict = "OK"
