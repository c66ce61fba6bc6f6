"""Settings of a pipeline: short forms, numbers of NumPy, and wrong values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dali_pipelines import ColorJitter, PipelineConfig
from dali_pipelines.config import FLOATS


def same(image: Any, chance: Any, config: PipelineConfig) -> Any:
    return image


def test_short_forms() -> None:
    config = PipelineConfig(batch_size=2, crop=5, resize=(4, 3), mean=1, std=[2, 3, 4])
    assert (config.crop, config.resize) == ((5, 5), (4, 3))
    assert (config.mean, config.std) == ((1.0,), (2.0, 3.0, 4.0))


def test_numbers_of_numpy() -> None:
    config = PipelineConfig(batch_size=2, crop=np.int64(5), mean=np.float32(1), std=np.ones(3))  # type: ignore[arg-type]
    assert (config.crop, config.mean, config.std) == ((5, 5), (1.0,), (1.0, 1.0, 1.0))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("shape", [(3,), (3, 1, 1), (1, 3, 1, 1)])
def test_arrays_and_tensors_have_a_number_for_each_channel(kind: Any, shape: Any) -> None:
    values = [1.5, 2.0, 4.0]
    config = PipelineConfig(batch_size=2, mean=kind(values).reshape(shape), std=kind(2.0))
    assert (config.mean, config.std) == (tuple(values), (2.0,))
    assert {type(one) for one in config.mean or ()} == {float}
    for wrong in ([[1.0, 2.0], [3.0, 4.0]], [True], []):
        with pytest.raises(ValueError, match="mean must be a number, or one for each channel"):
            PipelineConfig(batch_size=2, mean=kind(wrong))


@pytest.mark.parametrize("name", ["batch_size", "seed", "num_threads", "prefetch", "num_epochs"])
def test_integers_of_numpy_become_those_of_python(name: str) -> None:
    settings: dict[str, Any] = {"batch_size": 1, name: np.int64(3)}
    config = PipelineConfig(**settings)
    assert type(getattr(config, name)) is int


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16"), torch.float16])
def test_dtypes_of_numpy_and_pytorch(dtype: Any) -> None:
    assert PipelineConfig(batch_size=1, dtype=dtype).dtype == "float16"


def test_dtypes_of_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    names = [PipelineConfig(batch_size=1, dtype=getattr(jnp, name)).dtype for name in FLOATS]
    assert names == [*FLOATS]


@pytest.mark.parametrize("dtype", ["float8_e5m2", torch.float64, np.float64, "x"])
def test_a_dtype_that_does_not_exist_is_told_as_such(dtype: Any) -> None:
    """Also beside settings that need floats."""
    with pytest.raises(ValueError, match="dtype must be one of 'float32', 'float16'"):
        PipelineConfig(batch_size=1, dtype=dtype, mean=1, resize=3)


@pytest.mark.parametrize("transform", [lambda x: x, abs, "name"])
def test_a_transform_of_tensors_is_not_for_the_graph(transform: Any) -> None:
    with pytest.raises(ValueError, match=r"transform must be .*\(image, chance, config\)"):
        PipelineConfig(batch_size=1, transform=transform)


def test_a_time_limit_of_numpy() -> None:
    config = PipelineConfig(batch_size=1, read_timeout=np.float32(2))  # type: ignore[arg-type]
    assert type(config.read_timeout) is float


@pytest.mark.parametrize(
    ("name", "given", "in_eval"),
    [
        ("window", "random", "center"),
        ("window", "center", "center"),
        ("window", "row", "row"),
        ("flip", "hv", ""),
        ("interpolation", "nearest", "nearest"),
        ("rotate", 9.0, 0.0),
        ("zoom", (0.5, 2.0), (1.0, 1.0)),
        ("zoom", (2.0, 2.0), (2.0, 2.0)),  # no chance
        ("augment", (ColorJitter(brightness=0.5),), ()),
        ("transform", same, same),
        ("shuffle", True, True),
        ("shuffle", "blocks", "blocks"),
        ("outside", "fill", "fill"),
        ("resize", (3, 3), (3, 3)),
        ("resize_shorter", 9, 9),
        ("mean", (1.0,), (1.0,)),
    ],
)
def test_mode_eval_turns_off_chance_and_nothing_else(name: str, given: Any, in_eval: Any) -> None:
    settings: dict[str, Any] = {"batch_size": 1, "crop": 4, "std": 1.0, name: given}
    assert getattr(PipelineConfig(**settings), name) == given
    assert getattr(PipelineConfig(mode="eval", **settings), name) == in_eval


def test_the_probability_of_flips_in_mode_eval() -> None:
    config = PipelineConfig(batch_size=1, flip="h", flip_probability=1, mode="eval")
    assert config.flip == ""
    assert replace(config, batch_size=2).flip == ""


def test_rows_are_shuffled_by_default_but_in_mode_eval() -> None:
    assert PipelineConfig(batch_size=1).shuffle
    assert not PipelineConfig(batch_size=1, mode="eval").shuffle


# Setting, value, and words of the message after the name: the remedy, and the value if it is short.
WRONG: list[tuple[str, Any, str]] = [
    ("crop", (1, 2, 3), "height, width"),
    ("crop", 64.0, "one integer.*64.0"),
    ("crop", True, "height, width.*True"),
    ("crop", (True, True), "height, width.*True, True"),
    ("crop", np.array(4), r"height, width.*array\(4\)"),
    ("resize", 0, "at least 1x1.* 0"),
    ("mean", "x", "number, or one for each channel.*'x'"),
    ("mean", True, "number, or one for each channel.*True"),
    ("mean", np.full((2, 2), 4.0), "number, or one for each channel.*4"),
    ("mean", float("nan"), "finite.*nan"),
    ("mean", (0, -1e39), r"finite in float32.*-1e\+39"),
    ("std", 0, "positive.*0.0"),
    ("std", float("nan"), "positive.*nan"),
    ("std", float("inf"), "1 / std finite.*inf"),
    ("std", 1e-39, "1 / std finite.*1e-39"),
    ("std", (1, 1e38), r"1 / std finite.*1e\+38"),
    ("num_threads", 0, "at least 1.* 0"),
    ("prefetch", 0, "at least 1.* 0"),
    ("prefetch", 2.0, "integer.*2.0"),
    ("read_timeout", 0, "positive, in seconds.* 0"),
    ("read_timeout", float("nan"), "positive.*nan"),
    ("read_timeout", float("inf"), "None for no limit"),
    ("columns", 5, r"\('label',\).* 5"),
    ("columns", ("a", "a"), "once each.*'a', 'a'"),
    ("zoom", 2, r"\(least, most\).* 2"),
    ("zoom", (1, "x"), r"\(least, most\).*'x'"),
    ("zoom", None, r"\(least, most\).*None"),
    ("zoom", (1e-4, 1), "from 0.001 to 1000.*0.0001"),
    ("random_aspect_ratio", None, r"\(least,.*None"),
    ("rejected", {"1": "x"}, "rows to reasons.*'1'"),
    ("rejected", {-1: "x"}, "rows to reasons.*-1"),
    ("flip", "x", "'', 'h', 'v', 'hv'.*'x'"),
    ("flip_probability", 1.5, "from 0 to 1.*1.5"),
    ("flip_probability", 0.1, "0.1.*set flip"),
    ("dtype", "float64", "'float32', 'float16', 'bfloat16', 'uint8'"),
    ("start_method", "thread", "'spawn'.*'thread'"),
]


@pytest.mark.parametrize(("name", "value", "words"), WRONG, ids=str)
def test_wrong_values(name: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{words}"):
        PipelineConfig(batch_size=1, **{name: value})


def test_integers_as_stored_cannot_be_normalised() -> None:
    with pytest.raises(ValueError, match=r"int16.*leave out mean and std"):
        PipelineConfig(batch_size=1, dtype="int16", mean=1, std=2)
