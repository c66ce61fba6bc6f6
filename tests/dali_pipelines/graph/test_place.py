"""Nearest pixels in the graph, against those of masks, exactly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from nvidia.dali import Pipeline, fn

from dali_pipelines import PipelineConfig
from dali_pipelines.graph.decode import Decoded
from dali_pipelines.graph.gpu.operators import Nearest
from dali_pipelines.graph.place import place
from readers.sampling.geometry import Geometry
from readers.targets.nearest import NearestPixels

CASES = 60
READER: Any = SimpleNamespace(regions=True, nearest=True)
GEOMETRIES: dict[str, dict[str, Any]] = {
    "whole": {"resize": (40, 56)},
    "crop": {"crop": (30, 24), "window": "random", "resize": (45, 12)},
    "region": {"random_area": (0.08, 1.0), "resize": (40, 56)},
    "shorter": {"resize_shorter": 33, "crop": (20, 24), "window": "random"},
    "turned": {"crop": (21, 28), "window": "random", "rotate": 180, "zoom": (0.4, 2.5)},
    "turned, resized": {"crop": 24, "rotate": 30, "zoom": (1, 2), "resize": (40, 12)},
    "filled": {"crop": (23, 28), "window": "row", "outside": "fill"},
    "filled, resized": {"crop": (23, 28), "window": "row", "outside": "fill", "resize": (12, 30)},
    "filled, turned": {"crop": (23, 28), "window": "row", "outside": "fill", "rotate": 90},
    "between": {"crop": (23, 28), "window": "row", "outside": "fill"},
    "between, resized": {"crop": 20, "window": "row", "outside": "fill", "resize": (50, 9)},
}
OWN = ("crop", "window", "outside", "resize", "resize_shorter", "random_area", "rotate", "zoom")


class Between(Geometry):
    is_resampled = True


def geometry_of(kind: str) -> Geometry:
    config = PipelineConfig(batch_size=1, **GEOMETRIES[kind])
    geometry = Between if kind.startswith("between") else Geometry
    return geometry(**{name: getattr(config, name) for name in OWN})


def samples(kind: str, dtype: str, channels: int) -> Any:
    """Yield what is read of an image, the numbers for it, and what a mask would be."""
    generator = np.random.default_rng(3)
    geometry = geometry_of(kind)
    for row in range(CASES):
        height, width = (int(size) for size in generator.integers(40, 90, 2))
        image = generator.integers(0, 120, (height, width, channels)).astype(dtype)
        flip = bool(row % 2), bool(row // 2 % 2)
        y, x = generator.uniform(-10, 40, 2).tolist()
        y, x = (y, x) if isinstance(geometry, Between) else (int(y), int(x))
        corner = (y, x) if geometry.window == "row" else None
        window = geometry.draw_window(5, 0, row, corner)
        placement = geometry.placement(window, (height, width), flip)
        part = image
        if window is not None:
            box = window.within(height, width)
            y, x = box.place(height, width)
            part = np.ascontiguousarray(image[y : y + box.height, x : x + box.width])
        arrays = geometry.geometry_arrays(READER, window, (height, width), placement)
        nearest = NearestPixels.of(placement)
        y, x, rows, columns = nearest.box
        planes = np.moveaxis(image[y : y + rows, x : x + columns], -1, 0)
        expected = np.stack([nearest.take(plane, 0) for plane in planes])
        yield part, arrays, np.array(flip, np.int32), expected


def source_of(batch: list[Any], **options: Any) -> Any:
    return fn.external_source(lambda: batch, **options)


def placed(given: list[Any], dtype: str, channels: int, kind: str) -> Any:
    config = PipelineConfig(batch_size=len(given), flip="hv", **GEOMETRIES[kind])
    pipeline = Pipeline(batch_size=len(given), num_threads=1, device_id=None)
    with pipeline:
        image = source_of([part for part, *_ in given], layout="HWC")
        nodes = {name: source_of([arrays[name] for _, arrays, *_ in given]) for name in given[0][1]}
        nodes["flip"] = source_of([flip for _, _, flip, _ in given])
        decoded = Decoded(image, dtype)
        made = place(decoded, nodes, channels, config, interpolation="nearest", missing=0)
        pipeline.set_outputs(made.image)
    assert made.dtype == dtype
    (out,) = pipeline.run()
    axes = (0, 1, 2) if made.layout == "CHW" else (2, 0, 1)
    return [np.asarray(out.at(i)).transpose(axes) for i in range(len(given))]


@pytest.mark.parametrize("kind", GEOMETRIES)
@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 1), ("int16", 2), ("int32", 1)])
def test_nearest_is_that_of_masks(kind: str, dtype: str, channels: int) -> None:
    given = list(samples(kind, dtype, channels))
    for found, (*_, expected) in zip(placed(given, dtype, channels, kind), given, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [kind for kind in GEOMETRIES if kind != "filled"])
def test_nearest_of_a_gpu(kind: str) -> None:
    import cupy

    for part, arrays, _, expected in samples(kind, "int16", 2):
        numbers, outside = (cupy.asarray(one) for one in (arrays["nearest"], np.zeros(1)))
        shape = expected.shape[1:]
        (found,) = Nearest(shape)([cupy.asarray(part)], [numbers], [outside])
        assert found.dtype == np.int16
        np.testing.assert_array_equal(np.asarray(found.get()), expected)


def test_plain_windows_are_only_flipped() -> None:
    """Nothing is sampled where pixels are cut out."""
    image: NDArray[Any] = np.arange(24, dtype=np.int16).reshape(4, 6, 1)
    config = PipelineConfig(batch_size=1, flip="hv", crop=(4, 6))
    pipeline = Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        node = source_of([image], layout="HWC")
        flip = source_of([np.array((1, 0), np.int32)])
        made = place(
            Decoded(node, "int16"), {"flip": flip}, 1, config, interpolation="nearest", missing=0
        )
        pipeline.set_outputs(made.image)
    (out,) = pipeline.run()
    np.testing.assert_array_equal(np.asarray(out.at(0)), image[:, ::-1])
