"""Batches of a pipeline, without DALI's iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dali_pipelines.graph.pipeline import ReaderPipeline

Array = Any
"""Array of the framework, or of NumPy. It can be sliced and, on the CPU, viewed by NumPy."""

Batch = dict[str, Array]
"""Arrays of one device by name; with ``ragged="list"`` some are lists with an array per sample."""

Convert = Callable[[Any], Array]
"""Function that turns a TensorCPU or TensorGPU of DALI into an array, without a copy if
possible."""


class Outputs(Iterator[Batch]):
    """Endless iterator over the outputs of a pipeline, one batch ahead, without a copy.

    Parameters
    ----------
    pipeline : ReaderPipeline
        Pipeline to iterate over. It is built here, and first runs for the first batch.
    convert : callable
        See `Convert`. The array keeps the memory of the output: DALI's dynamic executor does not
        reuse it.
    """

    def __init__(self, pipeline: ReaderPipeline, convert: Convert) -> None:
        pipeline.build()
        self._pipeline, self._convert = pipeline, convert
        self._runs = False

    def __next__(self) -> Batch:
        """Return the next batch; ValueError as of `check_even`."""
        if not self._runs:
            self._pipeline.schedule_run()
            self._runs = True
        batch = _taken(self._pipeline, self._convert)
        self._pipeline.schedule_run()
        return batch


def run_once(pipeline: ReaderPipeline, convert: Convert) -> Batch:
    """Run a pipeline that was built with prefetch 1, and return its batch; nothing runs ahead.

    ValueError as of `check_even`; the pipeline is then unusable.
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
    """Raise ValueError if the last batch has samples that differ in shape and are not listed."""
    if pipeline.uneven in ("audio", "features"):
        raise ValueError(
            "the recordings of one batch differ in length: set duration, ragged='list' or "
            "ragged='pad'"
        )
    if pipeline.uneven == "image":
        raise ValueError(
            "the images of one batch differ in size: set crop or resize, or ragged='list' or "
            "ragged='pad', or leave images of other sizes out of the Index; a transform must also "
            "return images of one size"
        )
    if pipeline.uneven is not None:
        raise ValueError(
            f"the arrays {pipeline.uneven!r} of one batch differ in shape: set crop or resize, or "
            "ragged='list' or ragged='pad' (targets need an attribute 'outside' for that)"
        )
