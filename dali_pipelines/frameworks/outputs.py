"""The batches of a pipeline where no iterator of DALI makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dali_pipelines.frameworks.contract import Array, Batch
from dali_pipelines.graph.pipeline import ReaderPipeline


class Outputs(Iterator[Batch]):
    """Iterate over the outputs of a pipeline, without end and without a copy.

    Parameters
    ----------
    pipeline : ReaderPipeline
        It is built here, and runs from the first batch on.
    convert : callable
        Turns a TensorCPU or TensorGPU of DALI into an array that holds it. Its memory then belongs
        to the array: DALI's dynamic executor does not use it again when it is released.
    """

    def __init__(self, pipeline: ReaderPipeline, convert: Callable[[Any], Array]) -> None:
        pipeline.build()
        self._pipeline, self._convert = pipeline, convert
        self._runs = False

    def __next__(self) -> Batch:
        """Return the next batch; ValueError if arrays that should be one differ in shape."""
        if not self._runs:
            self._pipeline.schedule_run()
            self._runs = True
        outputs = self._pipeline.share_outputs()
        check_even(self._pipeline)
        named = zip(self._pipeline.output_names, outputs, strict=True)
        batch = {name: self._converted(name, output) for name, output in named}
        self._pipeline.release_outputs()
        self._pipeline.schedule_run()
        return batch

    def _converted(self, name: str, output: Any) -> Array | list[Array]:
        if name in self._pipeline.listed:
            return [self._convert(output[slot]) for slot in range(len(output))]
        return self._convert(output.as_tensor())


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
