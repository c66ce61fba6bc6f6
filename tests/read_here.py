"""Samples of a pipeline that reads in this process: a Loader would start readers for each test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_pipelines import Index, ReaderPipeline


def read_here(
    factory: Callable[..., ReaderPipeline], index: Index, **settings: Any
) -> dict[int, dict[str, NDArray[Any]]]:
    """Return all outputs of the valid samples of an epoch by row, in the order of the Index."""
    settings = {"batch_size": 3, "num_read_processes": 0, **settings}
    shards, position = settings.get("num_shards", 1), settings.get("position", 0)
    found = {}
    with closing(factory(index, **settings)) as pipeline:
        pipeline.build()
        for _ in range(-(-(len(index) - position) // (settings["batch_size"] * shards))):
            batch = dict(zip(pipeline.output_names, pipeline.run(), strict=True))
            for slot in np.flatnonzero([np.array(one) for one in batch["valid"]]).tolist():
                sample = {name: np.array(node[slot]) for name, node in batch.items()}
                assert int(sample["row"]) not in found
                found[int(sample["row"])] = sample
    return dict(sorted(found.items()))


def in_this_process(
    factory: Callable[..., ReaderPipeline], index: Index, **settings: Any
) -> ReaderPipeline:
    """Make a pipeline without reader processes, also where a Loader asks for some.

    ``Loader(partial(in_this_process, npy_pipeline), ...)`` reads in this process.
    """
    return factory(index, **{**settings, "num_read_processes": 0})
