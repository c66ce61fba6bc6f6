"""The batches of a pipeline where no iterator of DALI makes them: ahead of time, or one by one."""

from __future__ import annotations

from collections.abc import Iterator

from dali_pipelines.frameworks.contract import Batch, Convert, Framework
from dali_pipelines.graph.pipeline import ReaderPipeline


class OutputsFramework(Framework):
    """A framework that takes outputs as they are."""

    def iterate(self, pipeline: ReaderPipeline) -> Iterator[Batch]:
        """Return an iterator over the outputs, each of which `converter` turns into an array."""
        return Outputs(pipeline, self.converter(pipeline))


class Outputs(Iterator[Batch]):
    """Iterate over the outputs of a pipeline, without end and without a copy.

    Parameters
    ----------
    pipeline : ReaderPipeline
        It is built here, and runs from the first batch on.
    convert : callable
        See `Convert`. The memory of an output then belongs to the array: DALI's dynamic executor
        does not use it again when it is released.
    """

    def __init__(self, pipeline: ReaderPipeline, convert: Convert) -> None:
        pipeline.build()
        self._pipeline, self._convert = pipeline, convert
        self._runs = False

    def __next__(self) -> Batch:
        """Return the next batch; ValueError if arrays that should be one differ in shape."""
        if not self._runs:
            self._pipeline.schedule_run()
            self._runs = True
        batch = _taken(self._pipeline, self._convert)
        self._pipeline.schedule_run()
        return batch


def run_once(pipeline: ReaderPipeline, convert: Convert) -> Batch:
    """Run a pipeline that was built with prefetch 1, and return its batch: nothing runs ahead.

    ValueError if arrays that should be one differ in shape; then the pipeline cannot go on.
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
    """Raise ValueError if arrays of the last batch differ in shape that should be one."""
    if pipeline.uneven == "image":
        raise ValueError(
            "the images of one batch differ in size: give crop or resize, or ragged='list' or "
            "'pad', or leave images of other sizes out of the Index; what a transform returns must "
            "be of one size, too"
        )
    if pipeline.uneven is not None:
        raise ValueError(
            f"the arrays {pipeline.uneven!r} of one batch differ in shape: give crop or resize, or "
            "ragged='list' or 'pad', which targets follow that have an attribute 'outside'"
        )
