from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_pipelines import PipelineConfig


def test_short_forms() -> None:
    config = PipelineConfig(batch_size=2, crop=5, resize=(4, 3), mean=1, std=[2, 3, 4])
    assert (config.crop, config.resize) == ((5, 5), (4, 3))
    assert (config.mean, config.std) == ((1.0,), (2.0, 3.0, 4.0))


def test_numbers_of_numpy() -> None:
    config = PipelineConfig(batch_size=2, crop=np.int64(5), mean=np.float32(1), std=np.ones(3))  # type: ignore[arg-type]
    assert (config.crop, config.mean, config.std) == ((5, 5), (1.0,), (1.0, 1.0, 1.0))


@pytest.mark.parametrize("name", ["batch_size", "seed", "num_threads", "prefetch", "num_epochs"])
def test_integers_of_numpy_become_those_of_python(name: str) -> None:
    settings: dict[str, Any] = {"batch_size": 1, name: np.int64(3)}
    config = PipelineConfig(**settings)
    assert type(getattr(config, name)) is int


def test_a_time_limit_of_numpy() -> None:
    config = PipelineConfig(batch_size=1, read_timeout=np.float32(2))  # type: ignore[arg-type]
    assert type(config.read_timeout) is float


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"crop": (1, 2, 3)},
            r"crop must be \(height, width\) in pixels, at least 1x1, or one integer for",
        ),
        ({"crop": 64.0}, r"crop must be \(height, width\) in pixels, at least 1x1, or .* got 64.0"),
        ({"resize": 0}, r"resize must be \(height, width\) in pixels, at least 1x1, or .* got 0"),
        ({"mean": "x"}, "mean must be a number, or one for each channel, got 'x'"),
        ({"std": 0}, r"std must be positive, got \(0.0,\)"),
        ({"num_threads": 0}, "num_threads must be an integer, at least 1, got 0"),
        ({"read_timeout": 0}, "read_timeout must be positive, in seconds, got 0"),
        ({"read_timeout": float("nan")}, "read_timeout must be positive, in seconds, got nan"),
        ({"read_timeout": float("inf")}, "read_timeout must be positive, .*; None is no limit"),
        ({"crop": True}, r"crop must be \(height, width\) in pixels, at least 1x1, or .* got True"),
        ({"crop": np.array(4)}, r"crop must be \(height, width\) in pixels, .* got array\(4\)"),
        ({"mean": np.array(4.0)}, r"mean must be a number, or one for each .* got array\(4\.\)"),
        ({"columns": 5}, r"columns must be names in a tuple, as \('label',\), got 5"),
        ({"columns": ("a", "a")}, r"columns must be named once each, got \('a', 'a'\)"),
        ({"prefetch": 0}, "prefetch must be an integer, at least 1, got 0"),
        ({"prefetch": 2.0}, "prefetch must be an integer, at least 1, got 2.0"),
        ({"zoom": 2}, r"zoom must be \(least, most\), two numbers, got 2"),
        ({"zoom": (1, "x")}, r"zoom must be \(least, most\), two numbers, got \(1, 'x'\)"),
        ({"zoom": None}, r"zoom must be \(least, most\), two numbers, got None"),
        ({"zoom": (1e-4, 1), "crop": 4}, "zoom must be .*, both from 0.001 to 1000 .*, got "),
        ({"random_aspect_ratio": None}, r"random_aspect_ratio must be \(least, .* got None"),
        ({"crop": (True, True)}, r"crop must be \(height, width\) in pixels, .*\(True, True\)"),
        ({"mean": True}, "mean must be a number, or one for each channel, got True"),
        ({"mean": float("nan")}, r"mean must be finite in float32, got \(nan,\)"),
        ({"mean": (0, -1e39)}, r"mean must be finite in float32, got \(0.0, -1e\+39\)"),
        ({"std": float("nan")}, r"std must be positive, got \(nan,\)$"),
        ({"std": float("inf")}, r"got \(inf,\); and its inverse must be finite in float32$"),
        ({"std": 1e-39}, r"got \(1e-39,\); and its inverse must be finite in float32$"),
        ({"std": (1, 1e38)}, r"got \(1.0, 1e\+38\); and its inverse must be finite in float32$"),
        ({"rejected": {"1": "x"}}, "rejected must be a mapping of rows to reasons, got {'1': 'x'}"),
        ({"rejected": {-1: "x"}}, "rejected must be a mapping of rows to reasons, got {-1: 'x'}"),
        ({"flip": "x"}, "flip must be one of '', 'h', 'v', 'hv', got 'x'"),
        ({"dtype": "float64"}, "dtype must be one of 'float32', 'float16', 'uint8', "),
        ({"dtype": "int16", "mean": 1, "std": 2}, "as stored: leave out mean and std, or"),
        ({"start_method": "thread"}, "start_method must be one of 'spawn', "),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineConfig(batch_size=1, **settings)
