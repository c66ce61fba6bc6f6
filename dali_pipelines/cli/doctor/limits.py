"""Checks of `doctor`: what this machine gives a run of memory, processors and open files."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from dali_pipelines.cli.doctor.finding import Finding, bad, note, ok
from dali_pipelines.cli.errors import count
from dali_pipelines.runtime.cgroup import CoreGrant, usable_cores
from readers.places.failures import is_of_store
from readers.worker.slab import region_bytes

if TYPE_CHECKING:
    from dali_pipelines.cli.doctor.finding import Job
    from dali_pipelines.graph.pipeline import ReaderPipeline

_BUSY = 2.0
"""Threads and readers for each core that need no comment: readers mostly wait for files."""
_TOO_MANY = 8.0
"""From here on they mostly take the cores from each other, and each reader costs 20 MB."""

# Open files of this process while readers start. Measured by lowering the limit until a run failed:
# 18, 46 and 49 were enough for 2, 16 and 16 readers with 1, 1 and 2 shards.
_FILES_ELSEWHERE = 64
"""Libraries, terminal, fork server, what shards share with readers, and what the script opens."""
_FILES_A_READER = 3
"""Descriptors that tell its end: two pipes, and a pidfd unless a fork server started it."""


def settings(job: Job) -> Finding:
    """Whether the settings fit the data; all that is estimated comes from this."""
    first = job.pipelines[0]
    config = job.config
    if first.peek is None:
        error = _first_error(first)
        reason = "" if error is None else f" (the first: {error})"
        if is_of_store(error):
            return Finding("BAD", f"settings: none of the first files can be read{reason}")
        return bad(
            f"settings: none of the first files can be read as {config.pipeline}{reason}",
            "give another --pipeline, or look at the files with dali-pipelines verify",
        )
    size = f"{first.peek.height}x{first.peek.width}"
    return ok(
        f"settings: fit the data, the first image is {size} and takes {first.peek.nbytes / 1e6:.1f}"
        f" MB on its way; batches of {config.batch_size}, {first.ahead} ahead"
    )


def _first_error(pipeline: ReaderPipeline) -> OSError | None:
    """Return what is wrong with the first file, which the pipeline has passed over."""
    source = pipeline.source
    try:
        source.reader.peek(source.columns.row(0), None)
    except OSError as error:
        return error
    return None  # it is the window that was asked for


def memory(job: Job) -> Finding:
    """Memory of the machine, or of the control group."""
    from dali_pipelines.memory import free_memory, in_words

    job.estimate.check()
    needed, free = in_words(job.estimate.total), in_words(free_memory())
    cupy = job.estimate.cupy if job.on_gpu else 0
    beside = f"; CuPy takes up to {in_words(cupy)} on each GPU beside DALI" if cupy else ""
    return ok(f"memory: about {needed} needed, {free} free{beside}")


def address_space(job: Job) -> Finding:
    """Limits of virtual memory and of file size, which hold for memory that processes share."""
    from dali_pipelines.memory import in_words

    readers = max(1, sum(pipeline.num_read_processes for pipeline in job.known_pipelines))
    # Readers take samples as they become free, some of them more than others.
    needed, room = 2 * job.estimate.shared // readers, region_bytes(readers)
    words = f"address space: {in_words(needed)} needed for samples of a reader, {in_words(room)}"
    if room < needed:
        return bad(
            f"{words} left by the limits of virtual memory and file size",
            "ulimit -v unlimited -f unlimited, and limit memory by a control group",
        )
    return ok(f"{words} free")


def open_files(job: Job) -> Finding:
    """Files that may be open, a limit that readers inherit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    pipelines = job.known_pipelines
    readers = sum(pipeline.num_read_processes for pipeline in pipelines)
    needed = _FILES_ELSEWHERE + _FILES_A_READER * readers
    words = (
        f"open files: {needed} needed for {count(readers, 'reader')} of "
        f"{count(len(pipelines), 'shard')}"
    )
    if limit != resource.RLIM_INFINITY and limit < needed:
        return bad(
            f"{words}, the limit is {limit}",
            f"ulimit -n {needed} (or more, docker run --ulimit nofile={needed}), or fewer "
            "--num_read_processes",
        )
    return ok(f"{words}, the limit is {'none' if limit == resource.RLIM_INFINITY else limit}")


def cores(job: Job) -> Finding:
    """Processors against the readers and DALI's threads."""
    from dali_pipelines.runtime.devices import share_out

    shards, threads = job.config.num_gpus, job.num_threads
    readers = sum(share_out(job.config.least_readers(shards), shards))
    wanted = readers + shards * threads
    grant, given = CoreGrant.of(), usable_cores()
    granted = ", ".join(f"the {name} grants {cores:g}" for name, cores in grant.limits.items())
    words = (
        f"cores: {len(grant.allowed)}{granted and f' ({granted})'} for {count(readers, 'reader')} "
        f"and {shards} x "
        f"{count(threads, 'thread')}, {wanted / given:.1f} a core"
    )
    if wanted <= _BUSY * given:
        return ok(words)
    remedy = f"fewer --num_read_processes, --num_threads or --num_gpus, {_BUSY * given:.0f} in all"
    return note(f"{words}; try {remedy}") if wanted <= _TOO_MANY * given else bad(words, remedy)
