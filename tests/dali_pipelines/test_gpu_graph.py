"""The graph for a GPU, without one: DALI checks operators and arguments when it is serialised."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from nvidia.dali import Pipeline, fn
from nvidia.dali.types import to_dali_type

from dali_pipelines import Calibration, PipelineConfig
from dali_pipelines.decode import Decode, aia_decoder, decode_array, decode_fits, decode_jpeg
from dali_pipelines.transform import transform
from readers import ChannelsReader, FitsReader, JpegReader, NpyReader
from readers.sample import Reader


def arrays_of(reader: Reader) -> dict[str, Any]:
    return {
        spec.name: fn.external_source(
            name=spec.name, dtype=to_dali_type(spec.dtype), ndim=spec.ndim, layout=spec.layout
        )
        for spec in reader.specs
    }


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
        nodes = arrays_of(reader())
        flip = fn.external_source(name="flip", dtype=to_dali_type("int32"), ndim=1)
        decoded = decode({**nodes, "flip": flip}, config)
        pipeline.set_outputs(transform(decoded, flip, reader().channels, config))
    graph = pipeline.serialize()
    assert (b"mixed" in graph) == (decode is decode_jpeg)
    assert b"gpu" in graph


@pytest.mark.parametrize("options", [{}, {"mean": 1.0, "std": 2.0}, {"dtype": "int16"}])
def test_the_graph_of_fits_is_accepted(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """DALI cannot serialise a Python function, so this is as far as it goes without a driver."""
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    config = PipelineConfig(batch_size=2, device_id=0, **options)
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        decoded = decode_fits(arrays_of(FitsReader()), config)
    assert decoded.finished
    assert (decoded.image.device, decoded.status.device) == ("gpu", "cpu")


@pytest.mark.parametrize("parts", [(), ("171", "193")])
def test_the_graph_of_aia_is_accepted(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    config = PipelineConfig(batch_size=2, device_id=0)
    calibration = Calibration()
    reader: Reader = calibration.reader()
    if parts:
        reader = ChannelsReader(reader, parts)
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        decoded = aia_decoder(calibration, parts)(arrays_of(reader), config)
    assert decoded.finished
    assert (decoded.image.device, decoded.status.device) == ("gpu", "cpu")
    assert list(decoded.others) == (["present"] if parts else [])
