"""The graph for a GPU, without one: DALI checks operators and arguments when it is serialised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nvidia.dali import Pipeline, fn
from nvidia.dali.types import to_dali_type

from dali_pipelines import PipelineConfig
from dali_pipelines.decode import Decode, decode_array, decode_jpeg
from dali_pipelines.transform import transform
from readers import JpegReader, NpyReader


@pytest.mark.parametrize("crop", [None, (8, 8)])
@pytest.mark.parametrize(
    "options", [{}, {"flip": "hv"}, {"resize": (4, 4), "mean": 1.0, "dtype": "float16"}]
)
@pytest.mark.parametrize(
    ("reader", "decode"), [(JpegReader, decode_jpeg), (NpyReader, decode_array)]
)
def test_the_graph_is_accepted(
    reader: Callable[[], Any], decode: Decode, options: dict[str, Any], crop: Any
) -> None:
    config = PipelineConfig(batch_size=2, device_id=0, crop=crop, **options)
    pipeline = Pipeline(batch_size=2, num_threads=1, device_id=None)
    with pipeline:
        nodes = {
            spec.name: fn.external_source(
                name=spec.name, dtype=to_dali_type(spec.dtype), ndim=spec.ndim, layout=spec.layout
            )
            for spec in reader().specs
        }
        flip = fn.external_source(name="flip", dtype=to_dali_type("int32"), ndim=1)
        decoded = decode(nodes, True, crop is not None)
        pipeline.set_outputs(transform(decoded, flip, reader().channels, config))
    graph = pipeline.serialize()
    assert (b"mixed" in graph) == (decode is decode_jpeg)
    assert b"gpu" in graph
