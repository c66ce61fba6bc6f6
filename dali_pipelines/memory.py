"""Estimates of the memory that the pipelines of a machine need: of the host, and of CuPy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.runtime.cgroup import free_memory_of_groups

logger = logging.getLogger(__name__)

_CONSUMER_BYTES = 700 << 20
"""Bytes of this process with PyTorch, DALI and numba; measured 0.5 GiB without GPU contexts."""
_READER_BYTES = 20 << 20
"""Bytes that a reader process does not share; measured 9 to 19 MiB."""
_SPAWNED_READER_BYTES = 120 << 20
"""Bytes of a reader process that shares no imports; measured 110 MiB, for JPEG."""
_FRAMES = 2
"""Batches of whole frames that the graph holds: the current one, and the next."""
_READER_FRAMES = 4
"""Maximum number of copies of a sample in a reader process."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Peak memory in bytes, of the host unless stated otherwise."""

    shared: int
    """Samples in flight, in memory that readers and consumer share."""
    images: int
    """Decoded batches, including the batches that the consumer holds; 0 for pipelines on a GPU."""
    processes: int
    """The processes, with the samples that readers are reading."""
    cupy: int = 0
    """Memory of CuPy on each GPU that decodes FITS, in addition to DALI's; not part of `total`."""
    sample: int = 0
    """One sample in shared memory; part of `shared`."""

    @property
    def total(self) -> int:
        """Sum of the host's memory."""
        return self.shared + self.images + self.processes

    def check(self) -> None:
        """Raise MemoryError if the pipelines do not fit into the free memory."""
        if (reason := self.lacking()) is not None:
            raise MemoryError(reason)

    def lacking(self) -> str | None:
        """Return None, or a message if the pipelines do not fit into the free memory."""
        free = free_memory()
        if self.total <= free:
            return None
        return (
            f"this needs about {in_words(self.total)} of memory ({in_words(self.shared)} for "
            f"samples in flight, of {in_words(self.sample)} each, {in_words(self.images)} for "
            f"decoded batches, {in_words(self.processes)} for processes), but only "
            f"{in_words(free)} are free: use a smaller batch_size, prefetch or crop, or fewer "
            "channels, devices or num_read_processes"
        )


def warn_of_memory(pipelines: Sequence[ReaderPipeline], num_consumers: int) -> None:
    """Log a warning if pipelines that are about to start do not fit into the free memory."""
    if (reason := estimate_memory(pipelines, num_consumers).lacking()) is not None:
        logger.warning("%s; otherwise the system may kill this job", reason)


def estimate_memory(pipelines: Sequence[ReaderPipeline], num_consumers: int = 1) -> MemoryEstimate:
    """Estimate the memory from the footprints of the pipelines.

    Parameters
    ----------
    pipelines : sequence of ReaderPipeline
        All pipelines of this process, with the same settings, started or not.
    num_consumers : int
        Number of processes on this machine that run such pipelines, including this one.
    """
    shared = images = processes = sample = 0
    for pipeline in pipelines:
        nbytes = pipeline.peek.nbytes if pipeline.peek is not None else 0
        sample = max(sample, nbytes)
        batch, ahead = pipeline.max_batch_size, pipeline.ahead
        # The readers keep `ahead` batches ready, the graph as many, and one is being filled.
        shared += (2 * ahead + 1) * batch * nbytes
        if pipeline.device_id is None:
            held = 1 + ahead
            footprint = pipeline.footprint
            images += (held + footprint.num_stages - 1) * batch * footprint.image_nbytes
            images += held * batch * footprint.targets_nbytes
            images += _FRAMES * batch * footprint.frame_nbytes + footprint.decoder_nbytes
        spawned = pipeline.start_method == "spawn"
        own = _SPAWNED_READER_BYTES if spawned else _READER_BYTES
        processes += pipeline.num_read_processes * (own + _READER_FRAMES * nbytes)
    of_one = shared, images, processes + _CONSUMER_BYTES
    # Each pipeline has its own GPU.
    cupy = max((pipeline.footprint.cupy_nbytes for pipeline in pipelines), default=0)
    shared, images, processes = (num_consumers * nbytes for nbytes in of_one)
    return MemoryEstimate(shared, images, processes, cupy, sample)


def free_memory() -> int:
    """Return the free memory in bytes: of the system or a control group, whichever has less."""
    free, of_groups = int(psutil.virtual_memory().available), free_memory_of_groups()
    return free if of_groups is None else min(free, of_groups)


def in_words(nbytes: int) -> str:
    """Format a number of bytes in GiB or MiB."""
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"
