"""Presets against the arithmetic of the programs that they are from."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.visualization import AsinhStretch, ImageNormalize
from jobs import ROOT

from dali_pipelines import load_preset, preset_names

CONFIGS = ROOT / "configs"
RATES = np.array([-3, 0, 0.4, 7, 90, 812, 5000, 40000], np.float32)
"""DN/s, the mean over the pixels that fall into one of the result."""
WAVELENGTHS = {"94", "131", "171", "193", "211", "304", "335", "1600", "1700"}

MINIMAL = """
size = 8
scale = 0.6
exposure = true
degradation = false
[channels]
171 = {}
"""


def test_which_there_are() -> None:
    assert preset_names() == ["fdl", "iti", "sdoml", "sdoml_lite", "sdomlv2", "surya"]


@pytest.mark.parametrize("name", preset_names())
def test_each_is_named_with_its_sources(name: str) -> None:
    preset = load_preset(name)
    assert preset.name == name
    assert preset == pickle.loads(pickle.dumps(preset))
    for channel in preset.channels:
        assert channel in WAVELENGTHS or channel.startswith("hmi_")
        assert preset.stretch(channel)(RATES).dtype == np.float32
    path = CONFIGS / "presets" / f"{name}.toml"
    assert load_preset(path) == preset
    assert "github.com/" in path.read_text()


@pytest.mark.parametrize(("name", "factor"), [("sdoml", 4), ("sdomlv2", 1)])
def test_sdoml_sums_what_v2_averages(name: str, factor: float) -> None:
    """aia_fits_to_np.py multiplies downscale_local_mean by (1024 / 512)**2, aia_fits_to_zarr.py
    does not."""
    preset = load_preset(name)
    assert set(preset.channels) == WAVELENGTHS
    assert (preset.size, preset.negative) == (512, "missing")
    # RSUN_OBS becomes 976 arcsec on a grid of 1024 / 512 * 2.4 arcsec.
    assert preset.disk_radius == pytest.approx(976 / 4.8, rel=1e-15)
    np.testing.assert_array_equal(preset.stretch(171)(RATES), factor * RATES)


def test_fdl_divides_sdoml_by_its_units() -> None:
    units = {"94": 10, "131": 80, "171": 2000, "193": 3000, "211": 1000, "304": 500, "335": 80}
    units |= {"1600": 500, "1700": 7000}
    preset = load_preset("fdl")
    assert set(preset.channels) == set(units)
    for channel, unit in units.items():
        np.testing.assert_allclose(preset.stretch(channel)(RATES), 4 * RATES / unit, rtol=1e-6)


@pytest.mark.parametrize(("channel", "limit"), [(131, 3118163.8), (211, 50685.844)])
def test_sdoml_lite_clips_behind_the_root_which_is_the_same(channel: int, limit: float) -> None:
    rates = np.append(RATES[RATES >= 0], 1e7)
    data = np.sqrt(4 * rates)
    data = np.clip(data, a_min=None, a_max=np.sqrt(limit)) / np.sqrt(limit)
    found = load_preset("sdoml_lite").stretch(channel)(rates)
    np.testing.assert_allclose(found, data, rtol=1e-12)


def test_iti_is_astropys_normalisation_onto_minus_one_to_one() -> None:
    preset = load_preset("iti")
    for channel, vmax, a in ((94, 340, 0.005), (171, 8600, 0.005), (304, 8800, 0.001)):
        norm = ImageNormalize(vmin=0, vmax=vmax, stretch=AsinhStretch(a), clip=True)
        expected = norm(RATES.astype(np.float64)) * 2 - 1
        np.testing.assert_allclose(preset.stretch(channel)(RATES), expected, atol=1e-6)
    assert preset.disk_radius == pytest.approx(2048 / 2 / 1.1, rel=1e-15)


@pytest.mark.parametrize(
    ("channel", "mean", "std"),
    [
        ("94", 0.007682247087359428, 0.014216765761375427),
        ("1600", 0.27640828490257263, 0.2708348035812378),
        ("hmi_m", -1.8074297258863226e-05, 0.09871617704629898),
    ],
)
def test_surya_is_its_transform(channel: str, mean: float, std: float) -> None:
    data = np.append(RATES, -RATES).astype(np.float64)
    expected = data * 0.01
    expected = np.sign(expected) * np.log1p(np.abs(expected))
    expected = (expected - mean) / (std + 1e-8)
    found = load_preset("surya").stretch(channel)(data)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "channel"), [("surya", 1700), ("sdoml_lite", 304), ("iti", 4500)])
def test_a_number_that_is_not_published_is_not_made_up(name: str, channel: int) -> None:
    with pytest.raises(ValueError, match=f"'{name}'.*{channel}.*131.*leave"):
        load_preset(name).stretch(channel)


def test_a_sum_goes_into_the_unit_and_back() -> None:
    preset = replace(load_preset("sdoml"), size=256)
    stretch = preset.stretch("171")
    assert stretch(np.array([3.0])) == 16 * 3
    assert stretch.inverse(np.array([48.0])) == 3


def test_a_preset_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL + "304 = { kind = 'log1p', clip = [0, inf], clip_output = [0, 9] }\n")
    preset = load_preset(str(path))
    assert (preset.name, preset.channels) == ("mine", ("171", "304"))
    assert preset.stretch(304).clip == (0, math.inf)
    assert (preset.reduction, preset.negative, preset.scale) == ("mean", "keep", 0.6)


def test_a_preset_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"'SDOML'.*fdl, iti.*path"):
        load_preset("SDOML")
    with pytest.raises(FileNotFoundError):
        load_preset("nowhere/mine.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size = ", "Invalid value"),
        (MINIMAL.replace("size = 8\n", ""), "size.*disk_radius"),
        (MINIMAL.replace("8", "'8'"), "size.*integer.*'8'"),
        (MINIMAL.replace("0.6", "-1"), "scale.*positive.*-1"),
        (MINIMAL.replace("true", "1"), "exposure.*True or False.*1"),
        ("radius = 3" + MINIMAL, "radius.*known.*disk_radius"),
        ("disk_radius = 3" + MINIMAL, r"one of scale.*disk_radius.*0\.6.*3"),
        ("reduction = 'sum'" + MINIMAL, "reduced_from.*'sum'"),
        ("reduction = 'max'" + MINIMAL, "reduction.*'mean', 'sum'.*'max'"),
        ("negative = 'abs'" + MINIMAL, "negative.*'keep', 'zero', 'missing'.*'abs'"),
        (MINIMAL.replace("[channels]\n171 = {}", ""), r"\[channels\].*at least one"),
        ("channels = 3\n" + MINIMAL.split("[")[0], r"\[channels\].*table.*3"),
        (MINIMAL + "193 = 5", r"\[channels\].*193.*table.*5"),
        (MINIMAL + "193 = {scale = 5}", "193.*scale.*known.*clip"),
        (MINIMAL + "193 = {unit = '5'}", "193.*unit.*number.*'5'"),
        (MINIMAL + "193 = {clip = [1]}", r"193.*clip.*two numbers.*\[1\]"),
        (MINIMAL + "193 = {kind = 'sqrt'}", "193.*sqrt"),
        (MINIMAL + "193 = {range = [0, 1]}", "193.*four finite numbers"),
        (MINIMAL + "193 = {range = [0, 1], clip = [0, 1], std = 2}", "193.*range.*std"),
        (MINIMAL + "[stretch]\nkind = 'cubic'", "171.*kind.*'cubic'"),
    ],
)
def test_what_is_wrong_is_said_with_the_path(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"wrong.toml: .*{message}"):
        load_preset(path)
