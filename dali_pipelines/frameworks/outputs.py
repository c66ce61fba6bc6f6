"""Batches of a pipeline without DALI's iterators: made ahead of time, or one by one."""

from __future__ import annotations

from collections.abc import Iterator

from dali_pipelines.frameworks.contract import Batch, Convert, Framework
from dali_pipelines.graph.pipeline import ReaderPipeline


class OutputsFramework(Framework):
    """Base class of frameworks that convert outputs directly."""

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Return an iterator over the outputs, each converted by `converter`."""
        return Outputs(pipeline, self.converter(pipeline))


class Outputs(Iterator[Batch]):
    """Endless iterator over the outputs of a pipeline, without a copy.

    Parameters
    ----------
    pipeline : ReaderPipeline
        Pipeline to iterate over. It is built here, and runs from the first batch on.
    convert : callable
        See `Convert`. The memory of an output then belongs to the array: DALI's dynamic executor
        does not reuse it after the release.
    """

    def __init__(self, pipeline: ReaderPipeline, convert: Convert) -> None:
        pipeline.build()
        self._pipeline, self._convert = pipeline, convert
        self._runs = False

    def __next__(self) -> Batch:
        """Return the next batch; ValueError if samples of an unlisted output differ in shape."""
        if not self._runs:
            self._pipeline.schedule_run()
            self._runs = True
        batch = _taken(self._pipeline, self._convert)
        self._pipeline.schedule_run()
        return batch


def run_once(pipeline: ReaderPipeline, convert: Convert) -> Batch:
    """Run a pipeline that was built with prefetch 1, and return its batch; nothing runs ahead.

    ValueError if the samples of an unlisted output differ in shape; the pipeline is then unusable.
    """
    pipeline.schedule_run()
    return _taken(pipeline, convert)


def _taken(pipeline: ReaderPipeline, convert: Convert) -> Batch:
    outputs = pipeline.share_outputs()
    check_even(pipeline)
    batch: Batch = {}
    for name, output in zip(pipeline.output_names, outputs, strict=True):
        if name in pipeline.listed:
            batch[name] = [convert(output[slot]) for slot in range(len(output))]
        else:
            batch[name] = convert(output.as_tensor())
    pipeline.release_outputs()
    return batch


def check_even(pipeline: ReaderPipeline) -> None:
    """Raise ValueError if the samples of an unlisted output differ in shape in the last batch."""
    if pipeline.uneven in ("audio", "features"):
        raise ValueError(
            "the recordings of one batch differ in length: set duration, ragged='list' or "
            "ragged='pad'"
        )
    if pipeline.uneven == "image":
        raise ValueError(
            "the images of one batch differ in size: set crop or resize, or ragged='list' or "
            "ragged='pad', or leave images of other sizes out of the Index; the results of a "
            "transform must also be of one size"
        )
    if pipeline.uneven is not None:
        raise ValueError(
            f"the arrays {pipeline.uneven!r} of one batch differ in shape: set crop or resize, or "
            "ragged='list' or ragged='pad' (targets need an attribute 'outside' for that)"
        )
