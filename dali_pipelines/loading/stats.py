"""Statistics of a Loader."""

from __future__ import annotations

from dataclasses import dataclass, field

from readers.worker.read_report import ReadReport


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that could not be read."""

    row: int
    """Row of the Index."""
    path: str
    """File of the row. If it has several files, this is the first, and `reason` names the bad
    one."""
    reason: str
    """Why it could not be read."""
    hdu: int | None = None
    """HDU that the Index names; None if it names none."""
    epoch: int = 0
    """Epoch of the first attempt to read it."""
    step: int = 0
    """Step of that epoch."""
    is_of_store: bool = False
    """Whether remote storage did not answer or denied access, which affects other objects, too."""
    name: str = ""
    """The path; for a member of a container, followed by its first byte and its end."""


@dataclass(slots=True)
class LoaderStats:
    """Counts and times of a Loader since it was made."""

    batches: int = 0
    """Steps delivered: each counts once, however many devices there are."""
    samples: int = 0
    """Valid samples delivered."""
    input_bytes: int = 0
    """Bytes read from files, those of repeated rows included."""
    requests: int = 0
    """Requests to remote storage."""
    remote_bytes: int = 0
    """Bytes that remote storage sent."""
    cached_bytes: int = 0
    """Bytes of remote objects that were taken from the cache on local disk."""
    output_pixels: int = 0
    """Pixels of valid samples, times channels, with those that ``ragged="pad"`` adds."""
    read_s: float = 0.0
    """Seconds of work, summed over the reader processes."""
    read_cpu_s: float = 0.0
    """Part of `read_s` that was CPU time; the rest is waiting for files or for a core."""
    wait_s: float = 0.0
    """Seconds that the consumer waited for batches."""
    wait_readers_s: float = 0.0
    """Part of `wait_s` until the readers had delivered and the graph was fed."""
    wait_graph_s: float = 0.0
    """Part of `wait_s` until the graph was done: transfer, decode and the rest."""
    start_s: float = 0.0
    """Seconds that starting the pipelines took."""
    restarts: int = 0
    """Number of restarts of the reader processes because one had died."""
    rejected: dict[int, Rejected] = field(default_factory=dict)
    """Rows that could not be read, by row."""

    def add(self, reports: ReadReport) -> None:
        """Add the times and bytes of the readers."""
        requests, remote_bytes, cached_bytes = reports.traffic
        self.read_s += reports.read_s
        self.read_cpu_s += reports.read_cpu_s
        self.input_bytes += reports.input_bytes
        self.requests += requests
        self.remote_bytes += remote_bytes
        self.cached_bytes += cached_bytes
