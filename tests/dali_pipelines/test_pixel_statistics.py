"""Statistics of pixels against NumPy and astropy, and stretches that follow from them."""

from __future__ import annotations

import io
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import solar_files
from astropy.io import fits
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dali_pipelines import (
    Calibration,
    Index,
    Loader,
    Noise,
    PixelStatistics,
    ReadError,
    Stretch,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    pixel_statistics,
)
from dali_pipelines.pixel_statistics import PERCENTILES
from dali_pipelines.spread_rows import spread_rows


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Five cubes of two planes and several sizes, far from 0, with NaN."""
    folder = tmp_path_factory.mktemp("cubes")
    for row in range(5):
        pixels = np.random.default_rng(row).normal(1e5, 3 + row, (2, 20 + row, 30))
        pixels[1] *= 2
        pixels[:, row, :4] = np.nan
        fits.writeto(folder / f"{row}.fits", pixels.astype(np.float32))
    return Index.scan(folder)


def compare(found: PixelStatistics, planes: list[np.ndarray]) -> None:
    """`planes` are all pixels of each channel."""
    pixels = [plane.astype(np.float64) for plane in planes]
    np.testing.assert_allclose(found.mean, [np.nanmean(one) for one in pixels], rtol=1e-12)
    np.testing.assert_allclose(found.std, [np.nanstd(one) for one in pixels], rtol=1e-9)
    assert found.minimum == tuple(np.nanmin(one) for one in pixels)
    assert found.maximum == tuple(np.nanmax(one) for one in pixels)
    assert found.valid == pytest.approx([np.mean(~np.isnan(one)) for one in pixels])
    for percent in PERCENTILES:
        expected = [np.nanpercentile(one, percent) for one in pixels]
        np.testing.assert_allclose(found.percentiles[percent], expected, rtol=1e-6)


def of_files(index: Index, part: Any = ...) -> list[np.ndarray]:
    cubes = [fits.getdata(index.path(row))[part] for row in range(len(index))]
    return [np.concatenate([cube[plane].ravel() for cube in cubes]) for plane in range(2)]


def test_they_are_those_of_all_pixels(cubes: Index) -> None:
    found = pixel_statistics(fits_pipeline, cubes, planes="all", ragged="list")
    assert (found.images, found.rejected) == (5, {})
    compare(found, of_files(cubes))


def test_they_are_of_the_geometry_without_chance_and_what_follows(cubes: Index) -> None:
    settings: dict[str, Any] = {"crop": (10, 12), "window": "random", "flip": "hv", "mean": 3}
    more: dict[str, Any] = {"std": 9, "augment": (Noise(100.0),), "stretch": Stretch(kind="asinh")}
    found = pixel_statistics(fits_pipeline, cubes, planes="all", **settings, **more)
    windows = []
    more = {"outputs": ("window",), "shuffle": False, "batch_size": 1, "devices": "cpu"}
    with Loader(fits_pipeline, cubes, planes="all", **settings, **more) as loader:
        for batch in loader:
            y, x, _, _ = map(int, batch["window"][0])
            cube = fits.getdata(cubes.path(int(batch["row"][0])))
            windows.append(cube[:, y : y + 10, x : x + 12])
    compare(found, [np.concatenate([one[plane].ravel() for one in windows]) for plane in range(2)])


def test_a_window_in_the_middle_stays_there(cubes: Index) -> None:
    found = pixel_statistics(fits_pipeline, cubes, planes="all", crop=(10, 12), rotate=90)
    centred = []
    for row in range(len(cubes)):
        cube = fits.getdata(cubes.path(row))
        top, left = (cube.shape[1] - 10) // 2, (cube.shape[2] - 12) // 2
        centred.append(cube[:, top : top + 10, left : left + 12])
    compare(found, [np.concatenate([one[plane].ravel() for one in centred]) for plane in range(2)])


def test_infinity_is_no_value_either(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).normal(50, 3, (2, 30, 40)).astype(np.float32)
    pixels[0, :2], pixels[1, 3] = np.inf, -np.inf  # more than a percentile leaves out
    fits.writeto(tmp_path / "a.fits", pixels)
    found = pixel_statistics(fits_pipeline, Index.scan(tmp_path), planes="all")
    compare(found, [np.where(np.isinf(plane), np.nan, plane) for plane in pixels])
    assert all(np.isfinite(one.clip).all() for one in found.stretches())


def test_photographs(tmp_path: Path) -> None:
    for row in range(3):
        pixels = np.random.default_rng(row).integers(0, 256, (9, 8, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{row}.png")
    found = pixel_statistics(jpeg_pipeline, Index.scan(tmp_path))
    images = [np.array(Image.open(tmp_path / f"{row}.png")) for row in range(3)]
    compare(found, [np.concatenate([one[..., c].ravel() for one in images]) for c in range(3)])


def test_large_images_are_sampled_for_the_percentiles(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).normal(0, 1, (400, 500)).astype(np.float32)
    fits.writeto(tmp_path / "a.fits", pixels)
    found = pixel_statistics(fits_pipeline, Index.scan(tmp_path))
    for percent in (16.0, 50.0, 84.0):
        assert found.percentiles[percent][0] == pytest.approx(
            np.percentile(pixels, percent), abs=0.05
        )
    assert found == pixel_statistics(fits_pipeline, Index.scan(tmp_path))


def test_bad_files_are_named_and_left_out(tmp_path: Path) -> None:
    fits.writeto(tmp_path / "a.fits", np.ones((4, 4), np.float32))
    (tmp_path / "b.fits").write_text("no FITS")
    found = pixel_statistics(fits_pipeline, Index.scan(tmp_path))
    assert (found.images, [*found.rejected]) == (1, [str(tmp_path / "b.fits")])
    (tmp_path / "a.fits").unlink()
    with pytest.raises(ReadError, match=r"b\.fits.*none of 1 images"):
        pixel_statistics(fits_pipeline, Index.scan(tmp_path))


@given(num_rows=st.integers(1, 300), count=st.integers(1, 60), seed=st.integers(0, 9))
def test_rows_are_spread_but_not_at_equal_distances(num_rows: int, count: int, seed: int) -> None:
    rows = spread_rows(num_rows, count, seed)
    assert len(rows) == min(num_rows, count)
    assert rows == sorted(set(rows))
    for number, row in enumerate(rows):
        assert number * num_rows // len(rows) <= row < (number + 1) * num_rows // len(rows)


def test_rows_of_classes_that_take_turns() -> None:
    classes = {row % 3 for row in spread_rows(72, 24, 0)}
    assert classes == {0, 1, 2}


@pytest.mark.parametrize("kind", ["none", "sqrt", "log1p", "signed_log1p", "asinh"])
def test_stretches_map_most_pixels_onto_0_to_1(kind: Any) -> None:
    pixels = np.random.default_rng(0).lognormal(3, 2, 100_000) - 5
    percentiles = {one: (float(np.percentile(pixels, one)),) for one in PERCENTILES}
    unused: Any = dict.fromkeys(("mean", "std", "minimum", "maximum", "valid"), (0.0,))
    found = PixelStatistics(images=1, percentiles=percentiles, **unused)
    (stretch,) = found.stretches(kind)
    assert stretch.kind == kind
    values = stretch(pixels)
    assert values.min() == pytest.approx(0, abs=1e-6)
    assert values.max() == pytest.approx(1, abs=1e-6)
    if kind == "asinh":  # faint pixels are told apart
        assert np.diff(np.percentile(values, [16, 84]))[0] > 0.2


def test_bound_settings_have_as_little_effect(cubes: Index) -> None:
    bound = partial(fits_pipeline, planes="all", mean=3, std=5, stretch=Stretch(kind="asinh"))
    order: dict[str, Any] = {"epoch_steps": 100, "batch_size": 3, "shuffle": True, "num_epochs": 7}
    found = pixel_statistics(bound, cubes, **order)
    assert found.images == 5
    compare(found, of_files(cubes))


def test_a_calibration_without_its_stretch(tmp_path: Path) -> None:
    solar_files.save(tmp_path / "a.fits", *solar_files.frame())
    index, size = Index.scan(tmp_path), 64
    plain = pixel_statistics(aia_pipeline, index, size=size)
    stretch = Stretch(kind="asinh", unit=100)
    assert pixel_statistics(aia_pipeline, index, size=size, stretch=stretch) == plain
    calibration = Calibration(size=(size, size), stretch=stretch)
    assert pixel_statistics(aia_pipeline, index, calibration=calibration) == plain


def test_rejected_rows_are_those_of_the_index(cubes: Index) -> None:
    found = pixel_statistics(fits_pipeline, cubes, planes=0, rejected={1: "x", 4: "y"})
    assert found.images == 3
    assert [*found.rejected] == [cubes.path(1), cubes.path(4)]


def test_each_bad_row_of_one_file_is_counted(tmp_path: Path) -> None:
    """Members of a container, and planes, have one path."""
    good = io.BytesIO()
    Image.new("RGB", (8, 8), (1, 2, 3)).save(good, "JPEG")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number, content in enumerate((good.getvalue(), b"\xff\xd8", b"\xff\xd8\xff")):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    index = Index.scan(tmp_path / "a.tar")
    found = pixel_statistics(jpeg_pipeline, index)
    assert found.images == 1
    assert [*found.rejected] == [index.name(1), index.name(2)]
    twice = pixel_statistics(jpeg_pipeline, index.select([0, 1, 1]))
    assert (twice.images, len(twice.rejected)) == (1, 2)


def test_rejected_rows_are_those_of_the_index_where_only_some_are_read(cubes: Index) -> None:
    bad = {row: f"reason of row {row}" for row in (1, 3, 4)}
    found = pixel_statistics(fits_pipeline, cubes, planes=0, count=3, rejected=bad)
    rows = {cubes.path(row): row for row in range(len(cubes))}
    of_rows = {rows[path]: reason for path, reason in found.rejected.items()}
    assert of_rows == {row: bad.get(row) for row in of_rows}
    assert of_rows.keys() & {3, 4}, "one of the last two rows is among the three"
    assert found.images == 3 - len(of_rows)


def test_a_channel_of_nan(tmp_path: Path) -> None:
    pixels = np.stack([np.full((4, 5), np.nan), np.arange(20).reshape(4, 5)]).astype(np.float32)
    fits.writeto(tmp_path / "a.fits", pixels)
    found = pixel_statistics(fits_pipeline, Index.scan(tmp_path), planes="all")
    of_first = (found.mean, found.std, found.minimum, found.maximum, found.percentiles[50.0])
    assert np.isnan([one[0] for one in of_first]).all()
    assert (found.valid, found.mean[1]) == ((0.0, 1.0), 9.5)
    with pytest.raises(ValueError, match="channel 0 has no range"):
        found.stretches()


@pytest.mark.parametrize("kind", ["none", "sqrt", "log1p", "signed_log1p", "asinh"])
def test_a_stretch_of_values_far_from_0(tmp_path: Path, kind: Any) -> None:
    pixels = np.random.default_rng(0).normal(30_000, 5, (100, 100)).astype(np.float32)
    fits.writeto(tmp_path / "a.fits", pixels)
    (stretch,) = pixel_statistics(fits_pipeline, Index.scan(tmp_path)).stretches(kind)
    values = stretch(np.percentile(pixels, [1, 50, 99.9]))
    assert values[[0, 2]] == pytest.approx([0, 1], abs=0.01)
    assert 0.2 < values[1] < 0.8


def test_equal_pixels_have_no_stretch(tmp_path: Path) -> None:
    fits.writeto(tmp_path / "a.fits", np.ones((4, 4), np.float32))
    found = pixel_statistics(fits_pipeline, Index.scan(tmp_path))
    with pytest.raises(ValueError, match="channel 0 has no range"):
        found.stretches()
