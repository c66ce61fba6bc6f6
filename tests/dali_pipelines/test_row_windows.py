"""Windows whose place the Index gives: grids over images, and the columns that they need.

Pixels, turns and edges are those of `test_outside`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import solar_files
from astropy.io import fits
from astropy.nddata import Cutout2D
from astropy.table import Table
from epochs import by_row, new_loader
from ramp_images import Archive, check
from read_here import read_here

from dali_pipelines import Index, ReadError, aia_pipeline, fits_pipeline, pixel_statistics

Ramps = Callable[..., Archive]

CROP = 24
SHAPE = 90, 70
ROW: dict[str, Any] = {"crop": CROP, "window": "row"}


@pytest.fixture
def frames(ramps: Ramps) -> Archive:
    return ramps("RICE_1", (SHAPE,) * 3)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("RICE_1", {"mode": "train", "flip": "hv", "dtype": "int16"}),
        ("npy", {"mode": "eval", "flip": "hv"}),
        ("jpeg", {"resize": 12, "flip": "h"}),
        ("mcu rows", {}),
    ],
    ids=str,
)
def test_a_grid_is_the_whole_image(ramps: Ramps, kind: str, options: dict[str, Any]) -> None:
    archive = ramps(kind, (SHAPE,))
    height, width = archive.shapes[0]
    index = archive.index.each_window(CROP, (height, width), stride=20)
    corners = [*zip(*(index.table[name].to_pylist() for name in ("y", "x")), strict=True)]
    shown = np.zeros((height, width), bool)
    for y, x in corners:
        shown[y : y + CROP, x : x + CROP] = True
    assert shown.all()
    grid = Archive(
        archive.factory,
        index,
        archive.images * len(corners),
        archive.atol,
        corners,
        archive.settings,
    )
    assert len(check(grid, **ROW, **options)) == len(corners)


def test_windows_of_the_registered_image(tmp_path: Path) -> None:
    solar_files.save(tmp_path / "0.fits", *solar_files.frame())
    index, settings = Index.scan(tmp_path), {"size": 64, "order": 1}
    truth = read_here(aia_pipeline, index, **settings)[0]["image"][0]
    grid = index.each_window(32, (64, 64))
    options: dict[str, Any] = {"crop": 32, "window": "row", "columns": ("y", "x")}
    for sample in read_here(aia_pipeline, grid, **settings, **options).values():
        y, x = int(sample["y"]), int(sample["x"])
        part = truth[y : y + 32, x : x + 32]
        np.testing.assert_allclose(sample["image"][0], part, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("y", "x"), [(67, 0), (-1, 0), (0, 47), (0, -1)])
def test_a_window_outside_the_image_is_a_bad_row(frames: Archive, y: int, x: int) -> None:
    index = frames.index.with_column("y", [0, y, 0]).with_column("x", [0, x, 0])
    with new_loader(fits_pipeline, index, bad_sample="skip", **ROW) as loader:
        assert sorted(by_row(loader)) == [0, 2]
        (rejected,) = loader.stats.rejected.values()
        assert f"at y {y}, x {x} is not inside the image of 90x70" in rejected.reason
    with (
        pytest.raises(ReadError, match="row 1"),
        new_loader(fits_pipeline, index, **ROW) as loader,
    ):
        list(loader)


def cutouts(frames: Archive, outside: Any) -> Index:
    """Return cutouts in the middle, near two edges, and beside the image."""
    path = frames.index.path(0)
    objects = {"path": [path] * 4, "x": [30, 2, 66, 10], "y": [40, 3, 60, -3]}
    return Index.cutouts(frames.index, Table(objects), CROP, outside=outside)


@pytest.mark.parametrize("suffix", ["", ".parquet", ".arrow"])
@pytest.mark.parametrize(("outside", "count"), [("reject", 1), ("fill", 4), ("shift", 3)])
def test_a_loader_cuts_the_windows_of_its_index(
    frames: Archive, tmp_path: Path, outside: Any, count: int, suffix: str
) -> None:
    """Those of astropy's Cutout2D where they are inside or filled, also of a saved Index."""
    index = cutouts(frames, outside)
    if suffix:
        index.save(tmp_path / f"a{suffix}")
        index = Index.load(tmp_path / f"a{suffix}")
    assert index.outside == outside
    with new_loader(fits_pipeline, index) as loader:
        found = by_row(loader)
    assert sorted(found) == list(range(count))
    pixels = fits.getdata(index.path(0)).astype(np.float32)
    for row, sample in found.items():
        x, y = (index.table[f"catalogue_{name}"][row].as_py() for name in "xy")
        if outside == "shift":
            y, x = min(max(y, 12), SHAPE[0] - 12), min(max(x, 12), SHAPE[1] - 12)
        cutout = Cutout2D(pixels, (x, y), CROP, mode="partial", fill_value=np.nan)
        np.testing.assert_array_equal(sample["image"][0], cutout.data)


def test_windows_of_one_size_with_other_edges(frames: Archive) -> None:
    """Those that are filled cannot be read as those that are inside, or moved there."""
    filled, inside = (cutouts(frames, outside) for outside in ("fill", "reject"))
    both = Index.concat([inside, filled])
    assert (both.window_size, both.outside) == ((CROP, CROP), None)
    assert Index.concat([filled, filled]).outside == "fill"
    with new_loader(fits_pipeline, both, outside="fill") as loader:
        assert len(by_row(loader)) == len(inside) + len(filled)


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "Whole images"), ({"crop": 8}, "middle"), ({"window": "center"}, None), (ROW, None)],
)
def test_windows_whose_size_is_lost_are_told_of(
    frames: Archive, options: dict[str, Any], words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    index = cutouts(frames, "fill")
    caplog.clear()
    new_loader(fits_pipeline, index)
    assert not caplog.records
    lost = Index(pa.table({name: index.table[name] for name in index.table.column_names}))
    other = Index.cutouts(frames.index, Table({"path": [index.path(0)], "x": [30], "y": [40]}), 9)
    for each in (lost, Index.concat([index, other])):
        assert each.window_size is None
        new_loader(fits_pipeline, each, **options)
        found = [one.getMessage() for one in caplog.records]
        caplog.clear()
        assert len(found) == (words is not None)
        assert words is None or (words in found[0] and "window='row'" in found[0])


def test_settings_win_over_those_of_the_index(frames: Archive) -> None:
    index = cutouts(frames, "fill")
    options: dict[str, Any] = {"outside": "shift"}
    inside = index.select([0, 1, 2])
    with new_loader(fits_pipeline, inside, **options) as loader:
        found = by_row(loader)
    expected = read_here(fits_pipeline, inside, **ROW, **options)
    for row, sample in found.items():
        np.testing.assert_array_equal(sample["image"], expected[row]["image"])
        assert not np.isnan(sample["image"]).any()
    for wrong in ({"crop": 20}, {"window": "random", "crop": CROP}):
        with pytest.raises(ValueError, match="windows of 24x24"):
            new_loader(fits_pipeline, index, **wrong).make_pipelines()
    assert pixel_statistics(fits_pipeline, index, count=4).images == 4


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {}, "no 'y'.*with_column.*each_window"),
        ({"y": [0] * 3}, {}, "Index has no 'x'"),
        ({"y": [0] * 3, "x": [0.5] * 3}, {}, "both floats.*int64 and (float64|double)"),
        ({"y": [True] * 3, "x": [True] * 3}, {}, "both floats.*bool and bool"),
        ({"y": [0.5] * 3, "x": [0.5] * 3}, {"dtype": "int16"}, "columns .y. and .x.*float32"),
        ({}, {"crop": None}, "window 'row' needs a crop"),
    ],
)
def test_settings_that_contradict_the_index(
    frames: Archive, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    for name, values in columns.items():
        frames = frames.with_column(name, values)
    with pytest.raises(ValueError, match=message):
        fits_pipeline(frames.index, batch_size=1, **{**ROW, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": "center"}, r"window 'center'.*window='row' and crop=\(24, 20"),
        ({"window": "random"}, "window 'random'.*whole images"),
        ({"window": "center", "crop": None}, "windows of 24x20"),
        ({"window": "row", "crop": (24, 24)}, r"crop 24x24.*crop=\(24, 20\)"),
    ],
)
def test_other_windows_than_those_of_the_index(
    frames: Archive, options: dict[str, Any], message: str
) -> None:
    """They are an error where the rows are windows, not where columns y and x are the user's."""
    grid = frames.index.each_window((24, 20), SHAPE)
    own: dict[str, Any] = {"batch_size": 1, "crop": (24, 20), **options}
    with pytest.raises(ValueError, match=message):
        fits_pipeline(grid, **own)
    fits_pipeline(grid.with_column("y", grid.table["y"]), **own)
    if options["window"] != "row":
        fits_pipeline(Index(grid.table.drop_columns(["y", "x"])), **own)
