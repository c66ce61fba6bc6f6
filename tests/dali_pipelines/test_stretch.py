"""Stretches against astropy.visualization, and there and back."""

from __future__ import annotations

import math
import sys
from dataclasses import FrozenInstanceError
from types import ModuleType
from typing import Any, Literal

import jax
import numpy as np
import pytest
import torch
from astropy.visualization import AsinhStretch, ImageNormalize, LinearStretch, SqrtStretch
from hypothesis import assume, given
from hypothesis import strategies as st
from stretches import stretches

from dali_pipelines.stretch import Stretch

PIXELS = np.array([[-6, 0, 0.5, 3], [70, 812, 9e3, 16383]], np.float32)


@given(
    st.floats(1, 1e5),
    st.sampled_from([0.001, 0.005, 0.1, 0.9]),
    st.lists(st.floats(-1e4, 2e5), min_size=1, max_size=30),
)
def test_asinh_is_astropys(vmax: float, a: float, numbers: list[float]) -> None:
    values = np.array(numbers)
    stretch = Stretch.onto(0, 1, kind="asinh", unit=vmax, a=a, clip=(0, 1))
    expected = ImageNormalize(vmin=0, vmax=vmax, stretch=AsinhStretch(a), clip=True)(values)
    np.testing.assert_allclose(stretch(values), expected, rtol=1e-12, atol=1e-15)


def test_asinh_without_clip_is_astropys() -> None:
    values = np.linspace(-3, 3, 61)
    stretch = Stretch(kind="asinh", a=0.1, std=math.asinh(10))
    np.testing.assert_allclose(stretch(values), AsinhStretch(0.1)(values, clip=False), rtol=1e-12)


def test_sqrt_and_linear_are_astropys() -> None:
    values = np.linspace(-5, 205, 64)
    kinds: list[tuple[Literal["sqrt", "none"], Any]]
    kinds = [("sqrt", SqrtStretch()), ("none", LinearStretch())]
    for kind, theirs in kinds:
        stretch = Stretch.onto(0, 1, kind=kind, unit=200, clip=(0, 1))
        expected = ImageNormalize(vmin=0, vmax=200, stretch=theirs, clip=True)(values)
        np.testing.assert_allclose(stretch(values), expected, rtol=1e-12)


@given(stretches(), st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20))
def test_there_and_back(stretch: Stretch, numbers: list[float]) -> None:
    values = np.array(numbers)
    limits = np.array(stretch.clip) * stretch.unit
    stretched = stretch(values)
    # What clip_output cuts off does not come back.
    assume(np.all((stretched > stretch.clip_output[0]) & (stretched < stretch.clip_output[1])))
    back = stretch.inverse(stretched)
    # A float64 keeps 1e-16 of what the mean was subtracted from, the curves magnify that.
    np.testing.assert_allclose(back, np.clip(values, *limits), rtol=1e-6, atol=1e-6 * stretch.unit)


@given(stretches())
def test_it_never_turns_back(stretch: Stretch) -> None:
    values = np.linspace(-1e4, 1e4, 999)
    assert (np.diff(stretch(values)) >= 0).all()
    assert np.isnan(stretch(np.array([math.nan]))).all()


@given(stretches())
def test_torch_gives_the_same_as_numpy(stretch: Stretch) -> None:
    found = stretch(torch.from_numpy(PIXELS))
    expected = stretch(PIXELS)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float32
    assert expected.dtype == np.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-6, atol=1e-6)
    back = stretch.inverse(found)
    assert (back.dtype, tuple(back.shape)) == (torch.float32, PIXELS.shape)


@given(stretches())
def test_jax_gives_the_same_as_numpy(stretch: Stretch) -> None:
    found = stretch(jax.numpy.asarray(PIXELS))
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, stretch(PIXELS), rtol=1e-5, atol=1e-5)
    assert stretch.inverse(found).shape == PIXELS.shape


def test_cupy_is_asked_for_its_own_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in, as CuPy needs a GPU: NumPy under another name."""
    asked: set[str] = set()

    class Cupy(ModuleType):
        def __getattr__(self, name: str) -> Any:
            asked.add(name)
            return getattr(np, name)

    class Array(np.ndarray):
        __module__ = "cupy._core.core"

    monkeypatch.setitem(sys.modules, "cupy", Cupy("cupy"))
    stretch = Stretch(kind="asinh", a=0.1)
    np.testing.assert_array_equal(stretch(PIXELS.view(Array)), stretch(PIXELS))
    assert {"clip", "arcsinh"} <= asked


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    stretch = Stretch.onto(-1, 1, kind="asinh", unit=8600, a=0.005, clip=(0, 1))
    for found in (stretch(cupy.asarray(PIXELS)).get(), stretch(torch.tensor(PIXELS).cuda()).cpu()):
        np.testing.assert_allclose(found, stretch(PIXELS), rtol=1e-6)


def test_integers_become_floats() -> None:
    stretch = Stretch(kind="log1p", clip=(0, math.inf), unit=10)
    for array in (np.array([-3, 0, 90], np.int16), torch.tensor([-3, 0, 90], dtype=torch.int16)):
        np.testing.assert_allclose(stretch(array), [0, 0, math.log(10)], rtol=1e-6)


def test_in_which_order() -> None:
    stretch = Stretch(
        kind="sqrt", unit=100, clip=(0, 4), mean=0.5, std=0.5, clip_output=(-0.5, 2.5)
    )
    values = np.array([-1.0, 0, 25, 100, 225, 400, 1e9])
    np.testing.assert_allclose(stretch(values), [-0.5, -0.5, 0, 1, 2, 2.5, 2.5])


def test_onto_maps_the_clipped_range() -> None:
    for kind in ("none", "sqrt", "log1p", "signed_log1p"):
        stretch = Stretch.onto(-1, 1, kind=kind, clip=(0, 3), unit=7)
        np.testing.assert_allclose(stretch(np.array([0.0, 21])), [-1, 1], atol=1e-15)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "log"}, "kind.*'none', 'sqrt'.*'log'"),
        ({"unit": 0}, "unit.*positive.*0"),
        ({"unit": "3"}, "unit.*positive.*'3'"),
        ({"std": -1.0}, "std.*positive.*-1"),
        ({"kind": "asinh", "a": math.inf}, "a must.*positive.*inf"),
        ({"mean": math.nan}, "mean.*number.*nan"),
        ({"mean": True}, "mean.*number.*True"),
        ({"mean": "1"}, "mean.*number.*'1'"),
        ({"clip": 3}, "clip.*low < high.*3"),
        ({"clip": ("0", "1")}, "clip.*low < high.*'0'"),
        ({"clip": (1, 1)}, r"clip.*low < high.*\(1, 1\)"),
        ({"clip_output": (0, math.nan)}, "clip_output.*low < high.*nan"),
        ({"a": 0.005}, "a=0.005.*'asinh'.*'none'"),
        ({"kind": "sqrt"}, r"sqrt.*clip=\(0, inf\)"),
        ({"kind": "log1p", "clip": (-1, 5)}, "'signed_log1p'"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stretch(**settings)


@pytest.mark.parametrize(
    ("low", "high", "clip"),
    [
        (0, 1, (0, math.inf)),
        (1, 0, (0, 1)),
        ("0", 2, (0, 1)),
        (0, 2, 1),
        (0, 2, (0, "1")),
        (True, 2, (0, 2)),
    ],
)
def test_a_range_is_of_four_numbers(low: Any, high: Any, clip: Any) -> None:
    with pytest.raises(ValueError, match=r"four finite numbers.*low < high"):
        Stretch.onto(low, high, clip=clip)


@pytest.mark.parametrize("thing", [[1.0, 2.0], 3.0, "x"])
def test_other_things_are_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"NumPy.*CuPy.*torch"):
        Stretch()(thing)


def test_it_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Stretch().mean = 1  # type: ignore[misc]
    assert Stretch(unit=2) == Stretch(unit=2.0)
