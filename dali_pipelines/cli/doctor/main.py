"""Is this machine fit for a run? Takes the flags of run, and prints one line a check.

    dali-pipelines doctor --num_read_processes=16 --batch_size=16 --num_gpus=4

    OK    finding
    NOTE  finding that is worth knowing
    BAD   finding: the remedy

It reads up to 64 rows (8 if they are URLs) like a reader of the run, and decodes FITS images of one
plane. So it finds files that cannot be read, and batches of images that differ in size. Only the
graph decodes other images: check them with verify.

For arrays in chunks it checks the filters, and prints how many chunks a window needs.

For URLs it prints the source of credentials, the time of an answer, whether ranges, ETags and
If-Match work, the bytes per second, and the number of samples that each reader must read at once to
be busy.

No reader is started, and CUDA is not initialised in this process. Without --data it checks the
sample set, which it makes on first use, like run. The exit status is 0 if nothing is BAD, else 1; 2
for wrong usage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dali_pipelines.cli.doctor import arrays, data, system
from dali_pipelines.cli.doctor.job import Finding, Job, Unknown, note
from dali_pipelines.cli.errors import command
from dali_pipelines.cli.options import parse
from dali_pipelines.cli.run_config import RunConfig
from dali_pipelines.cli.samples.job import sample_job

Check = Callable[[Job], Finding | None]

REMOTE: tuple[Check, ...] = (data.credentials, data.requests, data.throughput, data.read_ahead)
"""Checks only for URLs."""

# The order matters: looking for GPUs may initialise CUDA, which affects the start method, and the
# first check that needs a fact reports its error.
CHECKS: tuple[Check, ...] = (
    system.packages,
    system.driver,
    system.gpus,
    system.cuda_libraries,
    system.pinned_memory,
    system.start_method,
    system.vectors,
    system.kernel_cache,
    system.cores,
    system.folders,
    data.data,
    *REMOTE,
    data.settings,
    arrays.chunks,
    data.rows,
    data.memory,
    data.address_space,
    data.open_files,
)


@command("doctor")
def main(argv: Sequence[str] | None = None) -> int:
    """Run all checks; return 0, 1 if something is BAD, 2 for wrong usage, 130 if interrupted."""
    job = Job(parse(RunConfig, argv, __doc__, "doctor", sample_job))
    fit = True
    for check in CHECKS:
        if (finding := examine(check, job)) is None:
            continue
        print(finding.line(), flush=True)
        fit = fit and finding.level != "BAD"
    return 0 if fit else 1


def examine(check: Check, job: Job) -> Finding | None:
    """Run one check; None if it does not apply to this job. Its errors become findings."""
    name = check.__name__.replace("_", " ")
    try:
        return check(job)
    except Unknown as reason:
        return note(f"{name}: not checked, {reason}")
    except (OSError, ValueError, MemoryError) as error:  # with a remedy in the text
        return Finding("BAD", f"{name}: {error}")
    except Exception as error:
        return Finding("BAD", f"{name}: the check failed with {type(error).__name__}: {error}")
