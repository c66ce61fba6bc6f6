"""Windows whose place the Index gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import solar_files
from astropy.io import fits
from PIL import Image

from dali_pipelines import (
    Index,
    Loader,
    ReadError,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    with_mcu_rows,
)
from readers import Draws

CROP = 24
SHAPE = 90, 70


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, np.ndarray]:
    folder = tmp_path_factory.mktemp("frames")
    pixels = np.random.default_rng(0).integers(0, 1000, (3, *SHAPE)).astype(np.int16)
    for number, image in enumerate(pixels):
        fits.CompImageHDU(image, tile_shape=(16, 32)).writeto(folder / f"{number}.fits")
    return Index.scan(folder), pixels


def loader(factory: Any, index: Index, **options: Any) -> Loader:
    options = {"batch_size": 4, "num_read_processes": 1, "crop": CROP, "window": "row", **options}
    return Loader(factory, index, devices=[None], seed=3, **options)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_grid_is_the_whole_image(frames: tuple[Index, np.ndarray], mode: str) -> None:
    index, pixels = frames
    grid = index.each_window(CROP, SHAPE, stride=20)
    found, flip = np.full(pixels.shape, -1.0), "" if mode == "eval" else "hv"
    with loader(fits_pipeline, grid, columns=("y", "x"), mode=mode, flip="hv") as tiles:
        for (batch,) in tiles:
            for image, row, y, x in zip(
                *(batch[k].numpy() for k in ("image", "row", "y", "x")), strict=True
            ):
                draws = Draws.of(3, 0, int(row))
                down = -1 if flip and draws.vertical else 1
                across = -1 if flip and draws.horizontal else 1
                part = found[int(row) * 3 // len(grid), y : y + CROP, x : x + CROP]
                part[:] = image[0, ::down, ::across]
    assert np.array_equal(found, pixels)


@pytest.mark.parametrize("options", [{"rotate": 30.0}, {"zoom": (1.5, 2.0)}, {"resize": 12}])
def test_windows_turn_about_their_own_centre(
    frames: tuple[Index, np.ndarray], options: dict[str, Any]
) -> None:
    index = frames[0].with_column("y", [0, 30, 66]).with_column("x", [46, 11, 0])
    with loader(fits_pipeline, index, outputs=("window", "matrix"), **options) as tiles:
        for (batch,) in tiles:
            size = batch["image"].shape[-1]
            for row, window, matrix in zip(
                *(batch[k].numpy() for k in ("row", "window", "matrix")), strict=True
            ):
                corner = [0, 30, 66][row], [46, 11, 0][row]
                assert window.tolist() == [*corner, CROP, CROP]
                centre = matrix @ ((size - 1) / 2, (size - 1) / 2, 1)
                np.testing.assert_allclose(
                    centre[::-1], np.array(corner) + (CROP - 1) / 2, atol=1e-9
                )


def test_photographs_with_noted_rows(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (20, 25, 3), np.uint8)
    picture = Image.fromarray(pixels).resize((500, 400))
    picture.save(tmp_path / "0.jpg", quality=95)
    index = Index.scan(tmp_path)
    with loader(jpeg_pipeline, index, crop=(400, 500), window="center") as whole:
        truth = next(iter(whole))[0]["image"][0].numpy()
    for rows in (index, with_mcu_rows(index)):
        grid = rows.each_window(100, (400, 500))
        with loader(jpeg_pipeline, grid, crop=100, columns=("y", "x")) as tiles:
            for (batch,) in tiles:
                for image, y, x in zip(
                    *(batch[k].numpy() for k in ("image", "y", "x")), strict=True
                ):
                    assert np.array_equal(image, truth[:, y : y + 100, x : x + 100])


def test_windows_of_the_registered_image(tmp_path: Path) -> None:
    solar_files.save(tmp_path / "0.fits", *solar_files.frame())
    index = Index.scan(tmp_path)
    with loader(aia_pipeline, index, size=64, order=1, crop=None, window="center") as whole:
        truth = next(iter(whole))[0]["image"][0].numpy()
    grid = index.each_window(32, (64, 64))
    with loader(aia_pipeline, grid, size=64, order=1, crop=32, columns=("y", "x")) as tiles:
        for (batch,) in tiles:
            for image, y, x in zip(*(batch[k].numpy() for k in ("image", "y", "x")), strict=True):
                part = truth[:, y : y + 32, x : x + 32]
                np.testing.assert_allclose(image, part, rtol=1e-4, atol=1e-2)


def test_a_window_outside_the_image_is_a_bad_row(frames: tuple[Index, np.ndarray]) -> None:
    for y, x in ((67, 0), (-1, 0), (0, 47), (0, -1)):
        index = frames[0].with_column("y", [0, y, 0]).with_column("x", [0, x, 0])
        with loader(fits_pipeline, index, bad_sample="skip", shuffle=False) as tiles:
            assert [row for (batch,) in tiles for row in batch["row"].tolist()] == [0, 2]
            (rejected,) = tiles.stats.rejected.values()
            assert f"at y {y}, x {x} is not inside the image of 90x70" in rejected.reason
        with loader(fits_pipeline, index) as tiles, pytest.raises(ReadError, match="row 1"):
            list(tiles)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {}, "has no 'y': add them by Index.with_column, make a grid by Index.each_window, or"),
        ({"y": [0] * 3}, {}, "the Index has no 'x'"),
        ({"y": [0] * 3, "x": [0.5] * 3}, {}, "both hold integers, or both floats, .* and float64"),
        ({"y": [True] * 3, "x": [True] * 3}, {}, "or both floats, .* got bool and bool"),
        ({"y": [0.5] * 3, "x": [0.5] * 3}, {"dtype": "int16"}, "round these to integers, or ch"),
        ({}, {"crop": None}, "window 'row' needs a crop"),
        ({}, {"resize_shorter": 40}, "leave out resize_shorter, and give crop and resize"),
    ],
)
def test_what_makes_no_sense(
    frames: tuple[Index, np.ndarray],
    columns: dict[str, Any],
    options: dict[str, Any],
    message: str,
) -> None:
    index = frames[0]
    for name, values in columns.items():
        index = index.with_column(name, values)
    with pytest.raises(ValueError, match=message):
        loader(fits_pipeline, index, **options).make_pipelines()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"window": "center"},
            r"window 'center' would show .*: give window='row' and crop=\(24, 20",
        ),
        ({"window": "random"}, "window 'random' would show another part of each image"),
        ({"window": "center", "crop": None}, "the rows of the Index are windows of 24x20"),
        ({"crop": (24, 24)}, r"crop 24x24 would not have the same middle: give crop=\(24, 20\)"),
    ],
)
def test_other_windows_than_those_of_the_index(
    frames: tuple[Index, np.ndarray], options: dict[str, Any], message: str
) -> None:
    grid = frames[0].each_window((24, 20), SHAPE)
    with pytest.raises(ValueError, match=message):
        loader(fits_pipeline, grid, **{"crop": (24, 20), **options}).make_pipelines()
    moved = grid.with_column("y", grid.table["y"])
    whole = Index(grid.table.drop_columns(["y", "x"]))
    for index in (moved,) if options.get("window", "row") == "row" else (moved, whole):
        loader(fits_pipeline, index, **{"crop": (24, 20), **options}).make_pipelines()
