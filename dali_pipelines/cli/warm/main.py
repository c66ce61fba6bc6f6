"""Compile kernels for the CPU once, as a step of building an image for containers.

    dali-pipelines warm
    dali-pipelines warm --pipeline fits aia
    NUMBA_CACHE_DIR=/opt/kernels dali-pipelines warm

Without it the first run in each new container compiles what it needs, which takes seconds. What is
compiled is kept beside the package or, where that cannot be written, in the cache folder of the
user's home, or in NUMBA_CACHE_DIR, which runs must then have, too. It is found there even if files
are read-only, by CPUs of the same kind and with the same features alone: on others a run compiles
its own. Kernels for GPUs are compiled on GPUs, by the first run. What is there already is loaded,
to see that it is.

The exit status is 0; 1 if a kernel was not compiled or not kept, 2 for wrong usage, 130 if
interrupted.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from dali_pipelines.cli.errors import command, count
from dali_pipelines.cli.options import option, parse
from dali_pipelines.cli.shared_flags import ProcessFlags

_PIPELINES = ("fits", "jpeg", "aia", "augment")


@dataclass(frozen=True, kw_only=True)
class WarmConfig(ProcessFlags):
    """Flags of `warm`."""

    GROUPS: ClassVar[Mapping[str, str]] = {"kernels": "pipeline", "processes": "num_processes"}

    pipeline: tuple[str, ...] | None = option(
        None,
        "pipelines to compile for, and augment for augmentations (default: all)",
        type=str,
        nargs="+",
        choices=_PIPELINES,
    )


@command("warm")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if a kernel was not compiled or not kept, 2 for wrong usage."""
    config = parse(WarmConfig, argv, __doc__, "warm")
    from dali_pipelines.kernels.ahead import KERNELS

    names = sorted(
        {name for pipeline in config.pipeline or _PIPELINES for name in KERNELS[pipeline]}
    )
    jobs: dict[str, list[str]] = {}
    for name in names:  # a function for several types in one process, which share parts of it
        jobs.setdefault(name.partition(" ")[0], []).append(name)
    # The longest first.
    in_order = sorted(jobs.values(), key=lambda job: ("decode" not in job[0], "warp" not in job[0]))
    with ThreadPoolExecutor(config.num_processes) as pool:
        results = list(pool.map(_compile, in_order))
    failures = [failure for _, failure in results if failure]
    for message in failures:
        print(message, file=sys.stderr)
    if not failures:
        compiled = sum(number for number, _ in results)
        counts = {"compiled and kept": compiled, "there already": len(names) - compiled}
        print("; ".join(f"{count(n, 'kernel')} {what}" for what, n in counts.items() if n) + ".")
    return 1 if failures else 0


def _compile(names: Sequence[str]) -> tuple[int, str]:
    """Compile kernels in a process of their own; return how many were, and what went wrong."""
    from dali_pipelines.kernels.ahead import command_for

    done = subprocess.run(command_for(names), capture_output=True, text=True, check=False)
    failure = done.stderr.strip()
    if done.returncode:
        failure = f"{', '.join(names)}: {failure}"
    return len(done.stdout.splitlines()), failure
