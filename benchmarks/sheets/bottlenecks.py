"""Whether the advice is right: bottlenecks made on purpose, and what becomes of them.

Each is run three times by the Loader: as it is, with the advice of `_advice` followed to the
letter, and with another change that one might have tried.
"""

# Reader processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.data import Settings
from benchmarks.report.tables import Sheet, number
from dali_pipelines.cli.run.advice import Advice, Limit, advise
from dali_pipelines.cli.run.stages import Moment
from readers.fits.reader import FitsReader

if TYPE_CHECKING:
    from dali_pipelines import Index
    from dali_pipelines.graph.pipeline import ReaderPipeline
    from readers.contract import Row, Sample
    from readers.window import Window

_HEADER = (
    *("bottleneck", "named by the advice", "images/s", "advised change", "images/s after it"),
    *("another change", "images/s after it", "the advice is"),
)
_LATENCY_S = 0.04
"""Of the slow storage: a file on a busy server, or an object in a store."""
_STEP_S = 0.08
"""Of the slow consumer, for a batch."""
_FILES = 16
_SIZE = 1024
_HELPS = 1.2
"""Times as fast from which on a change is said to help."""
_TAKEN = 0.5
"""Cores that other work takes from which on the CPU may be the limit, in place of what is slow."""


class LateReader(FitsReader):
    """A FitsReader whose files lie far away: reads wait, and can wait side by side."""

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read, late."""
        time.sleep(_LATENCY_S)
        return super().read(row, window)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A run with a bottleneck."""

    limit: Limit
    """What is slow, on purpose."""
    compression: str = "RICE_1"
    """Of the files. RICE_1 is decoded in the graph, GZIP_2 by astropy in the readers."""
    reader: Callable[[], FitsReader] = FitsReader
    resize: int | None = None
    """Pixels either way that the graph resizes images to."""
    step_s: float = 0.0
    """Seconds that the consumer takes for a batch."""
    flags: dict[str, int] = field(
        default_factory=lambda: {"num_read_processes": 1, "num_threads": 1, "prefetch": 2}
    )
    other: dict[str, int]
    """The other change."""


class Measured(NamedTuple):
    """What came of a run."""

    advice: Advice
    rate: float
    """Images per second."""
    cores_elsewhere: float
    """That were busy with other work."""


SETUPS = {
    "slow storage": Setup(limit="storage", reader=LateReader, other={"num_threads": 2}),
    "slow decode, in the readers": Setup(
        limit="readers", compression="GZIP_2", other={"num_threads": 2}
    ),
    "slow graph, which resizes": Setup(
        limit="graph", resize=2 * _SIZE, other={"num_read_processes": 2}
    ),
    "slow consumer": Setup(limit="consumer", step_s=_STEP_S, other={"num_read_processes": 2}),
}


def bottleneck_sheet(settings: Settings) -> Sheet:
    """Make all bottlenecks, follow the advice, and see."""
    seconds = 0.8 if settings.quick else 5.0
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        archives = {
            compression: write_archive(Path(folder, compression), compression)
            for compression in sorted({setup.compression for setup in SETUPS.values()})
        }
        for name, setup in SETUPS.items():
            lines.append(_line(name, setup, archives[setup.compression], seconds))
    return Sheet(
        title="Artificial bottlenecks, and the advice on them",
        header=_HEADER,
        lines=tuple(lines),
        data=f"{_FILES} synthetic FITS files of {_SIZE}x{_SIZE} int16, in the page cache",
        note=f"Advice is right if it names the bottleneck, and its change makes the run at least "
        f"{_HELPS} times as fast, and faster than the other change. Slow storage delays files by "
        f"{1e3 * _LATENCY_S:.0f} ms; the slow consumer takes {1e3 * _STEP_S:.0f} ms for a batch of "
        f"4. If other programs use more than {_TAKEN:g} cores, no change can help computation.",
    )


def _line(name: str, setup: Setup, index: Index, seconds: float) -> tuple[str, ...]:
    first = measured(setup, index, seconds)
    advice = first.advice
    if advice.limit == "consumer":
        # The loading needs no change. A consumer that is twice as fast confirms the bottleneck.
        followed, advised = replace(setup, step_s=setup.step_s / 2), "consumer twice as fast"
    else:
        followed, advised = _with(setup, advice.change), _flags(advice.change)
    then = measured(followed, index, seconds)
    other = measured(_with(setup, setup.other), index, seconds)
    if advice.limit == setup.limit and then.rate > max(_HELPS * first.rate, other.rate):
        verdict = "right"
    elif advice.limit == "cpu" and first.cores_elsewhere > _TAKEN:
        verdict = "no core is idle"
    else:
        verdict = "WRONG"
    return (
        name,
        advice.limit,
        number(first.rate),
        advised or "nothing",
        number(then.rate),
        _flags(setup.other),
        number(other.rate),
        verdict,
    )


def measured(setup: Setup, index: Index, seconds: float) -> Measured:
    """Run for some seconds after the first batches."""
    from dali_pipelines import Loader

    flags = dict(setup.flags)
    with Loader(
        partial(_pipeline, reader=setup.reader()),
        index,
        batch_size=4,
        devices=[None],
        resize=setup.resize,
        **flags,  # type: ignore[arg-type]
    ) as loader:
        before = None
        while True:
            for _ in loader:
                time.sleep(setup.step_s)
                if before is not None and time.perf_counter() > before.at + seconds:
                    stages = before.stages(loader)
                    rate = stages.samples / stages.seconds
                    return Measured(advise(stages), rate, stages.cores_elsewhere)
            # Readers have found their pace after an epoch.
            before = before or Moment.of(loader)


def _pipeline(index: Index, *, reader: FitsReader, **config: Any) -> ReaderPipeline:
    from dali_pipelines import PipelineConfig, reader_pipeline
    from dali_pipelines.graph.decode import decode_fits

    return reader_pipeline(index, reader, decode_fits, PipelineConfig(**config))


def write_archive(folder: Path, compression: str) -> Index:
    """Write frames with the noise of a detector."""
    import numpy as np
    from astropy.io import fits

    from dali_pipelines import Index

    folder.mkdir()
    random = np.random.default_rng(0)
    for count in range(_FILES):
        frame = random.normal(100, 8, (_SIZE, _SIZE)).astype(np.int16)
        hdu = fits.CompImageHDU(frame, compression_type=compression)
        hdu.writeto(folder / f"{count}.fits")
    return Index.scan(str(folder))


def _with(setup: Setup, change: Any) -> Setup:
    return replace(setup, flags={**setup.flags, **change})


def _flags(change: Any) -> str:
    return " ".join(f"--{flag}={value}" for flag, value in change.items())
