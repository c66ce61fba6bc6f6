"""Findings of the checks of `doctor`, and the job that all checks examine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from dali_pipelines.cli.doctor.nvml import Driver, installed_driver, usable_gpus
from dali_pipelines.cli.errors import one_line

if TYPE_CHECKING:
    from dali_pipelines import Index
    from dali_pipelines.cli.run_config import RunConfig
    from dali_pipelines.graph.pipeline import ReaderPipeline
    from dali_pipelines.memory import MemoryEstimate


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer."""

    level: str
    """OK, NOTE or BAD."""
    text: str
    """Text of the finding; with BAD also the remedy, after a colon."""

    def line(self) -> str:
        """Return the line that is printed."""
        return f"{self.level:<4} {one_line(self.text)}"


def ok(found: str) -> Finding:
    """Return a finding: as it should be."""
    return Finding("OK", found)


def note(found: str) -> Finding:
    """Return a finding that is worth knowing and no fault."""
    return Finding("NOTE", found)


def bad(found: str, remedy: str) -> Finding:
    """Return a finding of what is not fit, with the remedy."""
    return Finding("BAD", f"{found}: {remedy}")


class Unknown(Exception):
    """A check needs what another check could not find out and has reported."""


class Job:
    """The run to check, and facts that several checks need, each looked up once.

    Each raises Unknown where another check has reported why it cannot be known.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config

    @cached_property
    def driver(self) -> Driver | None:
        """NVIDIA's driver, None without one."""
        return installed_driver()

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs, none of them if they are hidden on purpose."""
        try:
            return usable_gpus(self.driver)
        except OSError:  # the check of the driver reports it
            return ()

    @property
    def on_gpu(self) -> bool:
        """Whether GPUs are asked for, or there to be used."""
        wanted = self.config.device
        return wanted == "gpu" or (wanted == "auto" and bool(self.gpus))

    @property
    def num_threads(self) -> int:
        """DALI's threads of a shard."""
        return int(self.config.pipeline_settings()["num_threads"])

    @cached_property
    def index(self) -> Index:
        """Rows of the data that were asked for."""
        from dali_pipelines.cli.run_config import open_index

        return open_index(self.config)

    @cached_property
    def pipelines(self) -> list[ReaderPipeline]:
        """The pipelines that a run would start, on the CPU, so that CUDA is left alone."""
        from dali_pipelines.cli.run_config import new_loader

        try:
            index = self.index
        except Exception as error:
            raise Unknown("the data could not be opened") from error
        return new_loader(self.config, index, [None] * self.config.num_gpus).make_pipelines()

    @property
    def known_pipelines(self) -> list[ReaderPipeline]:
        """The pipelines, for all checks but the one that reports why they cannot be made."""
        try:
            pipelines = self.pipelines
        except Exception as error:
            raise Unknown("what the settings need is not known") from error
        if pipelines[0].peek is None:
            raise Unknown("what the files need is not known")
        return pipelines

    @cached_property
    def estimate(self) -> MemoryEstimate:
        """Memory that the pipelines will take."""
        from dali_pipelines.memory import estimate_memory

        estimate = estimate_memory(self.known_pipelines)
        # With GPUs the decoded batches lie there; all else is the same.
        return replace(estimate, images=0) if self.on_gpu else estimate
