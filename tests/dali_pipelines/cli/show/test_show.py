"""The command show: which images are on the sheet, where, and as the pipeline delivers them."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import xarray as xr
from astropy.io import fits
from astropy.table import Table
from astropy.visualization import (
    AsinhStretch,
    AsymmetricPercentileInterval,
    LinearStretch,
    LogStretch,
    SqrtStretch,
    ZScaleInterval,
)
from astropy.wcs import WCS
from matplotlib import colormaps
from PIL import Image

from dali_pipelines import Index
from dali_pipelines.cli.errors import CommandError
from dali_pipelines.cli.options import gathered, parse
from dali_pipelines.cli.paths import index_of
from dali_pipelines.cli.show import pictures, sheet
from dali_pipelines.cli.show.config import ShowConfig, of_run
from dali_pipelines.cli.show.pictures import coloured
from dali_pipelines.cli.show.sheet import Outline, Picture, save_sheet
from readers import Storage
from readers.sampling.geometry import Geometry

SIZE = 64
GREY = 237
"""Value of the background of a cell, 0.93 of white."""

Show = Callable[..., tuple[Any, str]]
Captions = list[tuple[tuple[str, ...], str]]
Cell = Callable[..., Any]


def write(path: Path, pixels: np.ndarray, **header: object) -> Path:
    hdu = fits.PrimaryHDU(pixels)
    hdu.header.update(header)
    hdu.writeto(path)
    return path


def aia(folder: Path, channel: int = 171) -> Path:
    """Write a frame that is dark but for a bright corner: first rows, last columns."""
    pixels = np.zeros((SIZE, SIZE), np.int16)
    pixels[:16, -16:] = 900
    words = {"TELESCOP": "SDO/AIA", "WAVELNTH": channel, "T_OBS": "2015-01-01T00:00:25.34Z"}
    return write(folder / f"{channel}.fits", pixels, **words)


class TestFits:
    def test_right_way_up_in_the_colours_of_the_channel(
        self, tmp_path: Path, show: Show, captions: Captions, cell: Cell
    ) -> None:
        found = cell(show(aia(tmp_path))[0], 0, 1, 4)
        colours = colormaps["sdoaia171"]
        first, last = (np.array(colours(end, bytes=True)[:3]) for end in (0.0, 1.0))
        assert (found[-16:, -16:] == last).all()
        assert (found[:-16] == first).all()
        assert (found[:, :-16] == first).all()
        [((path, *facts), remark)] = captions
        assert (path, remark) == (str(tmp_path / "171.fits"), "")
        assert facts == ["AIA 171 2015-01-01T00:00:25Z", "64x64", "0 to 900"]

    def test_large_images_shrink_by_area_and_keep_their_shape(
        self, tmp_path: Path, show: Show, captions: Captions, cell: Cell
    ) -> None:
        pixels = np.zeros((2 * SIZE, 4 * SIZE), np.float32)
        pixels[:, ::2] = 10
        pixels[:, : 2 * SIZE] *= 3
        pixels[:5, :4] = math.nan
        found = cell(show(write(tmp_path / "wide.fits", pixels))[0], 0, 1, 3)
        assert (found[:16] == GREY).all()
        assert (found[-16:] == GREY).all()
        picture = found[16:-16]
        assert (picture[:-2, :32] == 255).all()  # columns of 30 and 0, together
        assert (picture[:-2, 32:] == 0).all()
        assert (picture[-2:, 0] == 127).all()  # not a number
        assert captions[0][0][1:] == ("128x256, 20 NaN", "0 to 30")

    def test_unreadable_files_are_there_with_the_reason(
        self, tmp_path: Path, show: Show, captions: Captions, cell: Cell
    ) -> None:
        good = aia(tmp_path)
        (tmp_path / "a.fits").write_bytes(good.read_bytes()[:4000])
        (tmp_path / "b.fits").write_text("text")
        drawn, err = show(tmp_path, "--columns=2", "--captions", "path")
        assert "1 images, 2 rejected" in err
        assert f"{tmp_path / 'a.fits'}: the file is truncated" in err
        (good_lines, _), *bad = sorted(captions, key=lambda found: bool(found[1]))
        assert good_lines[-2:] == ("0 to 900", f"path {good}")
        for name, place, (lines, reason) in zip("ab", (1, 2), bad, strict=True):
            assert lines == (str(tmp_path / f"{name}.fits"), "rejected")
            assert len(reason) > 10
            remark = cell(drawn, place, 2, 5)
            assert (remark[-1] == GREY).all()
            assert (remark != GREY).any()
        (tmp_path / "171.fits").unlink()
        assert "0 images, 2 rejected" in show(tmp_path, status=1)[1]

    def test_spread_over_the_index(self, tmp_path: Path, show: Show, captions: Captions) -> None:
        for number in range(10):
            write(tmp_path / f"{number}.fits", np.full((4, 4), number, np.int16))
        show(tmp_path, "--count=4")
        rows = [int(os.path.basename(lines[0])[0]) for lines, _ in captions]
        for part, row in enumerate(rows):
            assert 10 * part // 4 <= row < 10 * (part + 1) // 4

    def test_values_of_the_index_are_captions(
        self, tmp_path: Path, show: Show, captions: Captions
    ) -> None:
        """Also of columns that have the name of an array of the graph."""
        values = {
            "target": pa.array([1.8889539887823048e-06, 0.5], pa.float32()),
            "box": [[1.23456789, 2.0], []],
            "flip": [171, None],
            "t_obs": pa.array([1420070417260000001, None], pa.timestamp("ns")),
            "note": ["two\nlines", "one"],
        }
        paths = [str(aia(tmp_path)), str(aia(tmp_path, 193))]
        Index(pa.table({"path": paths, **values})).save(tmp_path / "a.arrow")
        show(tmp_path / "a.arrow", "--captions", *values)
        shown = [[line.partition(" ")[2] for line in lines[-5:]] for lines, _ in captions]
        first = ["1.88895e-06", "[1.23457, 2]", "171", "2015-01-01T00:00:17", "two lines"]
        assert shown == [first, ["0.5", "[]", "-", "-", "one"]]
        assert [line.partition(" ")[0] for line in captions[0][0][-5:]] == [*values]

    def test_positions_on_the_sky(self, show: Show, captions: Captions, tmp_path: Path) -> None:
        wcs = WCS(naxis=2)
        wcs.wcs.ctype, wcs.wcs.crval = ("RA---TAN", "DEC--TAN"), (359.999, -30)
        wcs.wcs.cdelt, wcs.wcs.crpix = (-0.001, 0.001), (20.5, 10.5)
        pixels = np.random.default_rng(0).normal(size=(30, 40))
        fits.writeto(tmp_path / "sky.fits", pixels, wcs.to_header())
        fits.writeto(tmp_path / "plain.fits", pixels)
        paths = [str(tmp_path / name) for name in ("sky.fits", "sky.fits", "plain.fits")]
        index = Index.from_paths(paths).with_column("y", [3, 25, 0]).with_column("x", [5, 0, 0])
        index.save(tmp_path / "cutouts.parquet")
        flags = ("--crop=8", "--window=row", "--outside=fill", "--rotate=30", "--flip=hv")
        show(tmp_path / "cutouts.parquet", *flags)
        for (caption, _), corner in zip(captions, ((3, 5), (25, 0)), strict=False):
            y, x = np.array(corner) + 3.5  # turns and flips leave the middle where it is
            ra, dec = wcs.pixel_to_world_values(x, y)
            assert caption[-1] == f"RA {ra:.5f} DEC {dec:+.5f} deg"
        assert "deg" not in captions[2][0][-1]
        captions.clear()
        objects = Table({"path": paths[:1], "x": [2], "y": [5]})
        cutouts = Index.cutouts(Index.from_paths(paths[:1]), objects, 9, outside="fill")
        cutouts.save(tmp_path / "cutouts.parquet")
        ra, dec = wcs.pixel_to_world_values(2, 5)
        for more in ((), ("--outside=fill", "--rotate=30")):  # by the windows of the Index
            captions.clear()
            show(tmp_path / "cutouts.parquet", *more)
            assert captions[0][0][-1] == f"RA {ra:.5f} DEC {dec:+.5f} deg"

    def test_captions_colours_and_positions_are_of_the_hdu(
        self, show: Show, captions: Captions, tmp_path: Path, cell: Cell
    ) -> None:
        wcs = WCS(naxis=2)
        wcs.wcs.ctype, wcs.wcs.cdelt = ("RA---TAN", "DEC--TAN"), (-0.001, 0.001)
        hdus = fits.HDUList([fits.PrimaryHDU()])
        for name, channel, year, ra in (("A", 171, 2015, 10), ("B", 304, 2020, 200)):
            wcs.wcs.crval = ra, 30
            pixels = np.zeros((SIZE, SIZE), np.int16)
            pixels[:16] = 900
            hdus.append(fits.ImageHDU(pixels, wcs.to_header(), name=name))
            time = f"{year}-01-01T00:00:00Z"
            hdus[-1].header.update({"TELESCOP": "SDO/AIA", "WAVELNTH": channel, "T_OBS": time})
        hdus.writeto(tmp_path / "a.fits")
        index = Index.from_paths([tmp_path / "a.fits"]).with_column("y", [0]).with_column("x", [0])
        index.save(tmp_path / "a.arrow")
        found, _ = show(tmp_path / "a.arrow", "--hdu=B", f"--crop={SIZE}", "--window=row")
        ((lines, _),) = captions
        assert "AIA 304 2020-01-01T00:00:00Z" in lines
        ra, dec = WCS(hdus["B"].header).pixel_to_world_values(*[(SIZE - 1) / 2] * 2)
        assert lines[-1] == f"RA {ra:.5f} DEC {dec:+.5f} deg"
        bright = np.array(colormaps["sdoaia304"](1.0, bytes=True)[:3])
        assert (cell(found, 0, 1, len(lines))[-16:] == bright).all()


class TestDisplay:
    """Colours are those of astropy.visualization."""

    @pytest.mark.parametrize(
        ("flags", "interval", "stretch"),
        [
            ([], AsymmetricPercentileInterval(1, 99.9), AsinhStretch),
            (["--display=asinh"], AsymmetricPercentileInterval(1, 99.9), AsinhStretch),
            (["--display=log"], AsymmetricPercentileInterval(1, 99.9), LogStretch()),
            (["--display=sqrt"], AsymmetricPercentileInterval(1, 99.9), SqrtStretch()),
            (["--display=zscale"], ZScaleInterval(), LinearStretch()),
            (["--stretch=none(unit=2)"], AsymmetricPercentileInterval(1, 99.9), LinearStretch()),
        ],
    )
    def test_of_an_image(
        self, tmp_path: Path, show: Show, cell: Cell, flags: list[str], interval: Any, stretch: Any
    ) -> None:
        pixels = np.random.default_rng(0).normal(100, 5, (SIZE, SIZE)).astype(np.float32)
        pixels[20:30, 20:30] += 3000
        found = cell(show(write(tmp_path / "a.fits", pixels), *flags)[0], 0, 1, 3)
        low, high = interval.get_limits(pixels)
        if stretch is AsinhStretch:  # linear up to the spread of the sky
            below, above = np.percentile(pixels, (16, 84))
            assert 4.5 < (above - below) / 2 < 5.5
            stretch = AsinhStretch((above - below) / 2 / (high - low))
        scaled = stretch(np.clip((pixels[::-1].astype(float) - low) / (high - low), 0, 1))
        assert np.abs(found[..., 0] - 255 * scaled).max() <= 2  # there are 256 greys, rounded

    def test_one_range_for_the_sheet(self, tmp_path: Path, show: Show, cell: Cell) -> None:
        for number, most in enumerate((10, 1000)):
            pixels = np.zeros((SIZE, SIZE), np.int16)
            pixels[:, : SIZE // 2] = most
            write(tmp_path / f"{number}.fits", pixels)
        flags = ["--display=linear", "--columns=2"]
        for more, expected in ([], [255, 255]), (["--same_range"], [2, 255]):
            drawn, _ = show(tmp_path, *flags, *more)
            assert [cell(drawn, place, 2, 3).max() for place in (0, 1)] == expected

    def test_channels_of_aia_have_ranges_of_their_own(
        self, tmp_path: Path, show: Show, cell: Cell
    ) -> None:
        for channel in (171, 193):
            aia(tmp_path, channel)
        words = {"TELESCOP": "SDO/AIA", "WAVELNTH": 193, "T_OBS": "2015-01-01T00:00:25.34Z"}
        write(tmp_path / "194.fits", np.full((SIZE, SIZE), 90, np.int16), **words)
        drawn, _ = show(tmp_path, "--same_range", "--display=linear", "--columns=3")
        last = np.array(colormaps["sdoaia171"](1.0, bytes=True)[:3])
        assert (cell(drawn, 0, 3, 4)[-16:, -16:] == last).all()
        tenth = np.array(colormaps["sdoaia193"](0.1, bytes=True)[:3]).astype(int)
        assert np.abs(cell(drawn, 2, 3, 4) - tenth).max() <= 2

    def test_photographs_that_were_stretched_are_not_black(
        self, tmp_path: Path, show: Show, cell: Cell
    ) -> None:
        pixels = np.zeros((SIZE, SIZE, 3), np.uint8)
        pixels[:, : SIZE // 2] = 200
        Image.fromarray(pixels).save(tmp_path / "0.png")
        flags = ["--pipeline=jpeg", "--stretch=none(unit=255)"]
        found = cell(show(tmp_path, *flags)[0], 0, 1, 3)
        assert np.unique(found).tolist() == [0, 255]

    def test_the_heading_has_the_flags(
        self, tmp_path: Path, show: Show, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        headings = []
        save = sheet.save_sheet

        def noted(path: str, rows: Any, **settings: Any) -> None:
            headings.append(settings["heading"])
            save(path, rows, **settings)

        monkeypatch.setattr(sheet, "save_sheet", noted)
        write(tmp_path / "a.fits", np.zeros((SIZE, SIZE), np.int16))
        show(tmp_path, "--crop", 32, 48, "--window=random", "--seed=0", "--display=zscale")
        for flag in ("--crop 32 48", "--window random", "--seed 0", "--display zscale"):
            assert flag in headings[0]

    def test_without_sunpy_frames_are_gray(
        self, tmp_path: Path, show: Show, cell: Cell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "sunpy.visualization.colormaps", None)
        pictures._has_sunpy_colours.cache_clear()
        try:
            drawn, err = show(aia(tmp_path))
        finally:
            pictures._has_sunpy_colours.cache_clear()
        assert err.count("SunPy") == 1
        assert np.unique(cell(drawn, 0, 1, 4)).tolist() == [0, 255]


class TestPhotographs:
    def test_pixels_are_those_of_pillow(
        self, shared_data: Path, show: Show, captions: Captions, cell: Cell
    ) -> None:
        drawn, err = show(shared_data / "jpeg", "--pipeline=jpeg", "--count=3", "--columns=3")
        assert "3 images, 0 rejected" in err
        for place, (lines, _) in enumerate(captions):
            with Image.open(lines[0]) as image:
                assert lines[1] == f"{image.height}x{image.width}"
                image.thumbnail((SIZE, SIZE), Image.Resampling.BOX)
                expected = np.array(image.convert("RGB"), float)
            found = cell(drawn, place, 3, 3).astype(float)
            is_drawn = (found != GREY).any(axis=2)
            rows, columns = (np.flatnonzero(is_drawn.any(axis=axis)) for axis in (1, 0))
            middle = found[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert np.abs(np.subtract(middle.shape, expected.shape)).max() <= 2
            assert np.abs(middle.mean(axis=(0, 1)) - expected.mean(axis=(0, 1))).max() < 5

    def test_those_of_16_bits_are_not_white_and_bright_ones_not_black(self) -> None:
        image = torch.arange(3 * 4 * 5).reshape(3, 4, 5) * 1000.0
        expected = (image.numpy() / 257).astype(np.uint8).transpose(1, 2, 0)
        np.testing.assert_array_equal(coloured(image, {}), expected)
        assert (coloured(torch.full((3, 4, 5), 255.00002), {}) == 255).all()

    @pytest.mark.parametrize("draws", [1, 3])
    def test_windows_are_those_that_the_flags_draw(
        self, tmp_path: Path, show: Show, captions: Captions, cell: Cell, draws: int
    ) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
        for number in range(2):
            Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        flags = ["--crop=16", "--window=random", "--seed=5", f"--draws={draws}"]
        drawn, _ = show(tmp_path, "--pipeline=jpeg", *flags)
        columns = draws if draws > 1 else 6
        assert [lines[1] for lines, _ in captions] == ["16x16"] * 2 * draws
        for place in range(2 * draws):
            window = Geometry(crop=(16, 16), window="random").draw_window(5, 0, place)
            assert window is not None
            y, x = window.place(40, 40)
            enlarged = cell(drawn, place, columns, 3)[2::4, 2::4]
            np.testing.assert_array_equal(enlarged, pixels[y : y + 16, x : x + 16])

    @pytest.mark.parametrize("ragged", ["list", "pad"])
    def test_of_several_sizes(
        self, tmp_path: Path, show: Show, captions: Captions, ragged: str
    ) -> None:
        for number in range(2):
            Image.new("RGB", (30 + number, 20)).save(tmp_path / f"{number}.png")
        show(tmp_path, "--pipeline=jpeg", f"--ragged={ragged}")
        assert [caption[1] for caption, _ in captions] == ["20x30", "20x31"]

    def test_each_augmentation_has_a_row(
        self, tmp_path: Path, show: Show, captions: Captions, cell: Cell
    ) -> None:
        for number in range(2):
            pixels = np.full((SIZE, SIZE, 3), 100 + 50 * number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        augment = ("Erase(1, value=7)", "ColorJitter((2, 2))")
        flags = ["--pipeline=jpeg", "--each_augment", "--draws=3", "--outputs", "window", "flip"]
        drawn, _ = show(tmp_path, "--augment", *augment, *flags)
        last = [lines[-3:] for lines, _ in captions]
        assert last == [(name, "window 0 0 64 64", "flip 0 0") for name in augment for _ in "123"]
        for place in range(3):
            assert np.unique(cell(drawn, place, 3, 6)).tolist() == [7, 100]
            assert (cell(drawn, 3 + place, 3, 6) == 200).all()


def test_boxes_have_the_names_of_their_classes(
    tmp_path: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (SIZE, SIZE)).save(tmp_path / "0.png")
    boxes = [[1.0, 0.0, 30.0, 20.0], [10.0, 40.0, 60.0, 60.0]]
    content = {
        "images": [{"id": 1, "file_name": "0.png", "height": SIZE, "width": SIZE}],
        "annotations": [
            {"image_id": 1, "category_id": kind, "bbox": [x, y, right - x, bottom - y]}
            for kind, (x, y, right, bottom) in zip((7, 3), boxes, strict=True)
        ],
        "categories": [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}],
    }
    (tmp_path / "all.json").write_text(json.dumps(content))
    Index.from_coco(tmp_path, tmp_path / "all.json").save(tmp_path / "all.arrow")
    shown: list[str] = []
    save = sheet.save_sheet

    def noted(path: str, rows: Any, **settings: Any) -> None:
        shown.extend(outline.text for outline in rows[0][0].outlines)
        save(path, rows, **settings)

    monkeypatch.setattr(sheet, "save_sheet", noted)
    show(tmp_path / "all.arrow", "--pipeline=jpeg", "--boxes=boxes", "--labels=labels")
    assert shown == ["dog", "cat"]


@pytest.mark.parametrize(
    "box", [(2, 0, 30, 20), (100, 0, 27, 20), (2, 60, 30, 20), (100, 100, 27, 27), (0, 0, 128, 128)]
)
def test_labels_are_whole(tmp_path: Path, box: tuple[int, int, int, int]) -> None:
    """A white text on red has as much blue at the edges of a cell as in its middle."""

    def blue(place: tuple[int, int, int, int]) -> int:
        pixels = np.zeros((128, 128, 3), np.uint8)
        outlines = [Outline(*place, "a class", "red")]
        path = str(tmp_path / "a.png")
        save_sheet(path, [[Picture(("a",), pixels, outlines=outlines)]], heading="a", size=128)
        drawn = np.array(Image.open(path).convert("RGB")).astype(int)
        top = sheet.GAP + sheet.LINE + sheet.GAP // 2
        return int(drawn[top : top + 128, sheet.GAP : sheet.GAP + 128, 2].sum())

    whole = blue((40, 60, 40, 40))
    assert whole > 0
    assert abs(blue(box) - whole) < 0.05 * whole


@pytest.mark.parametrize("kind", ["photographs", "fits"])
def test_masks_and_boxes_are_where_they_belong(
    tmp_path: Path, show: Show, cell: Cell, kind: str
) -> None:
    """A white rectangle below the middle, its mask and its box, drawn as large as the image."""
    image, box = np.zeros((SIZE, SIZE), np.uint8), (10, 36, 40, 56)
    image[box[1] : box[3], box[0] : box[2]] = 255
    mask = (image > 0).astype(np.uint8)
    is_photo = kind == "photographs"
    suffix = "png" if is_photo else "fits"
    path, mask_path = tmp_path / f"0.{suffix}", tmp_path / f"mask.{suffix}"
    if is_photo:
        Image.fromarray(image).convert("RGB").save(path)
        Image.fromarray(mask).save(mask_path)
    else:
        fits.writeto(path, image.astype(np.int16))
        hdus = [fits.PrimaryHDU(mask * 0), fits.ImageHDU(mask, name="SEG")]
        fits.HDUList(hdus).writeto(mask_path)
    table = {"path": [str(path)], "mask_path": [str(mask_path)], "box": [[[*map(float, box)]]]}
    Index(pa.table({**table, "labels": [[3]]})).save(tmp_path / "all.arrow")

    def drawn(*flags: str) -> Any:
        found, _ = show(tmp_path / "all.arrow", *["--pipeline=jpeg"] * is_photo, *flags)
        return cell(found, 0, 1, 3).astype(int)

    plain = drawn()
    rectangle = plain.max(axis=2) == 255
    top, bottom = (36, 56) if is_photo else (8, 28)  # the first row of FITS is at the bottom
    assert int(rectangle.sum()) == 30 * 20
    assert np.flatnonzero(rectangle.any(axis=1))[0] == top
    flag = "--mask=mask_path" if is_photo else "--mask=mask_path=SEG"
    np.testing.assert_array_equal((drawn(flag) != plain).any(axis=2), rectangle)
    if is_photo:  # numbers of instances need not fit into 8 bits
        Image.fromarray(mask.astype(np.uint16) * 700).save(mask_path)
        np.testing.assert_array_equal((drawn("--mask=mask_path") != plain).any(axis=2), rectangle)
    rows, columns = np.nonzero((drawn("--boxes=box", "--labels=labels") != plain).any(axis=2))
    assert abs(columns.min() - 10) <= 2
    assert abs(columns.max() + 1 - 40) <= 2
    assert abs(rows.max() + 1 - bottom) <= 2
    assert top - 14 <= rows.min() <= top  # the label is above it


class TestSequences:
    def test_a_picture_for_each_frame(self, tmp_path: Path, show: Show, captions: Captions) -> None:
        """One row of the sheet for each sample."""
        first, second = (str(tmp_path / f"{number}.png") for number in range(2))
        for path in first, second:
            Image.new("RGB", (70, 80)).save(path)
        times = pa.array([0, 60], pa.timestamp("s"))
        files = Index(pa.table({"path": [first, second], "t_obs": times}))
        sequences = files.group(offsets=("-1min", "0"), missing="keep")
        sequences.save(tmp_path / "sequences.parquet")
        _, err = show(tmp_path / "sequences.parquet", "--pipeline=jpeg", "--crop=64")
        assert "3 images, 0 rejected, 1 missing" in err
        assert [lines[0] for lines, _ in captions] == ["part -1min", first, first, second]
        assert "missing" in captions[0][1]

    def test_captions_do_not_depend_on_the_order_of_columns(
        self, tmp_path: Path, show: Show, captions: Captions
    ) -> None:
        files = [str(tmp_path / f"{value}.fits") for value in (3, 5)]
        for value, file in zip((3, 5), files, strict=True):
            fits.writeto(file, np.full((8, 8), value, np.int16))
        times = pa.array([0, 60], pa.timestamp("s"))
        index = Index(pa.table({"path": files, "t_obs": times})).group(offsets=("-1min", "0"))
        others = [name for name in reversed(index.table.column_names) if name != "path"]
        other = Index(index.table.select(["path", *others])).with_column("path_mask", ["none.png"])
        other.save(tmp_path / "sequences.parquet")
        show(tmp_path / "sequences.parquet")
        assert [(lines[0], *lines[-2:]) for lines, _ in captions] == [
            (files[0], "3 to 3", "-1min"),
            (files[1], "5 to 5", "0"),
        ]

    def test_files_of_samples_are_taken_one_by_one(self, tmp_path: Path) -> None:
        for name, parts in (("x", ("a", "b")), ("y", ("b", None))):
            columns = {f"path_{n}": pa.array([part], pa.string()) for n, part in enumerate(parts)}
            Index(pa.table({"path": ["a"], **columns})).save(tmp_path / f"{name}.parquet")
        files = [str(tmp_path / f"{name}.parquet") for name in "xy"]
        index = index_of(files, (".fits",), Storage())
        assert [Path(index.path(row)).name for row in range(len(index))] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'data = "a"\npipeline = "aia"\nsize = 512\ncolumns = ["b"]\nseed = 3\nmean = 1',
            {"files": ["a"], "pipeline": "aia", "registered_size": 512, "seed": 3},
        ),
        ("size = 512\ncolumns = 4\nseed = 3", {"size": 512, "columns": 4, "seed": 3}),
        ('size = 512\ncount = 3\npipeline = "aia"', {"size": 512, "count": 3, "pipeline": "aia"}),
        ('columns = ["label"]\nseed = 3', {"seed": 3}),
        (
            'size = [512, 256]\npipeline = "aia"',
            {"registered_size": [512, 256], "pipeline": "aia"},
        ),
    ],
)
def test_a_file_for_a_run_is_taken(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    """Without keys of a run, size and columns belong to the sheet."""
    (tmp_path / "a.toml").write_text(text)
    flags = [f"--config={tmp_path / 'a.toml'}", "-o", "a.png", *(["a"] * ("files" not in expected))]
    found = parse(ShowConfig, flags, None, "show", translate=of_run)
    given = {"files": ["a"], "output": "a.png", **expected}
    assert found == ShowConfig(**gathered(ShowConfig, given))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('size = 512\npipeline = "aia"', "registered_size"),
        ('data = "a"\nhdus = ["image=SCI", "dq=DQ"]', "hdus.*--hdu"),
        ('data = "a"\nplanes = [0, 1]', "planes.*--hdu"),
    ],
)
def test_a_file_for_a_run_that_cannot_be_shown(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    flags = ["a", f"--config={tmp_path / 'a.toml'}", "-o", "a.png"]
    with pytest.raises(CommandError, match=rf"a\.toml: .*{named}"):
        parse(ShowConfig, flags, None, "show", translate=of_run)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--crop=600", "--registered_size=512"], "--registered_size 600 600"),
        (["--resize=512"], "--resize is not for --pipeline=aia.*--registered_size=512"),
    ],
)
def test_messages_have_the_flags_of_show(
    tmp_path: Path, show: Show, flags: list[str], named: str
) -> None:
    write(tmp_path / "a.fits", np.zeros((SIZE, SIZE), np.int16))
    _, err = show(tmp_path, "--pipeline=aia", *flags, status=2)
    assert re.search(named, err)


class TestTexts:
    """A long text is drawn like its shortened form, and cells stay apart."""

    def drawn(self, folder: Path, caption: str, remark: str = "") -> Any:
        pixels = np.zeros((SIZE, SIZE, 3), np.uint8)
        left = Picture((caption,), None if remark else pixels, remark)
        path = folder / "a.png"
        save_sheet(str(path), [[left, Picture(("b",), pixels)]], heading="a", size=128)
        return np.array(Image.open(path).convert("RGB")).astype(int)

    @pytest.mark.parametrize(
        "text", ["/a/path/that/is/longer/than/a/cell.fits", "target 1.88895e-06 and more"]
    )
    def test_captions(self, tmp_path: Path, text: str) -> None:
        """A path keeps its end, all else its beginning."""
        most = int(128 / sheet.CHARACTER)
        expected = "…" + text[1 - most :] if "/" in text else text[: most - 1] + "…"
        found = self.drawn(tmp_path, text)
        np.testing.assert_array_equal(found, self.drawn(tmp_path, expected))
        gap = slice(sheet.GAP + 128, 2 * sheet.GAP + 128)
        assert (found[:, gap] == 255).all()

    def test_remarks(self, tmp_path: Path) -> None:
        found = self.drawn(tmp_path, "a", "word " * 200)
        red = found[..., 0] - found[..., 2] > 60
        rows, columns = np.nonzero(red)
        assert len(rows) > 0
        assert sheet.GAP < columns.min() < columns.max() < sheet.GAP + 128
        assert rows.max() < found.shape[0] - sheet.GAP - sheet.LINE  # above the caption


@pytest.mark.parametrize("offsets", [None, ("0", "+1h")])
def test_each_variable_of_arrays_has_a_picture(
    show: Show, captions: Captions, cell: Cell, tmp_path: Path, offsets: tuple[str, ...] | None
) -> None:
    """In colours of its own: pressures would make temperatures black."""
    ramp = np.tile(np.linspace(0, 1, 64, dtype=np.float32), (4, 64, 1))
    dims = ("time", "lat", "lon")
    times = np.datetime64("2020-01-01", "ns") + np.arange(4) * np.timedelta64(1, "h")
    variables = {"t2m": (dims, 250 + 30 * ramp), "msl": (dims, 101000 - 500 * ramp)}
    xr.Dataset(variables, {"time": times}).to_zarr(tmp_path / "a.zarr", consolidated=False)
    index = Index.from_zarr(tmp_path / "a.zarr", variables=["t2m", "msl"])
    if offsets:
        index = index.group(offsets=offsets, time="time", tolerance="1min")
    index.save(tmp_path / "a.parquet")
    image, err = show(tmp_path / "a.parquet", "--pipeline=chunked", "--count=2")
    count = 8 if offsets else 4
    assert f"{count} images, 0 rejected" in err
    names = [name for lines, _ in captions for name in ("t2m", "msl") if name in lines]
    assert names == ["t2m", "msl"] * (count // 2)
    lines = 6 if offsets else 5
    columns = 4 if offsets else 2
    t2m, msl = (cell(image, place, columns, lines)[32, ::9, 0].astype(int) for place in (0, 1))
    assert (np.diff(t2m) > 0).all()
    assert (np.diff(msl) < 0).all()


def test_several_stores_and_files_of_arrays(show: Show, captions: Captions, tmp_path: Path) -> None:
    dims = ("time", "lat", "lon")
    for name in ("a.zarr", "b.zarr"):
        data = xr.Dataset({"a": (dims, np.ones((2, 8, 8)))})
        data.to_zarr(tmp_path / name, consolidated=False)
    data.isel(time=0).to_netcdf(tmp_path / "c.nc", engine="h5netcdf")
    names = [tmp_path / name for name in ("a.zarr", "b.zarr", "c.nc")]
    _, err = show(*names, "--pipeline=chunked", "--count=9")
    assert "5 images, 0 rejected" in err
    assert [lines[0].rpartition("/")[2] for lines, _ in captions] == [
        *("a.zarr", "a.zarr", "b.zarr", "b.zarr", "c.nc")
    ]


def test_masks_of_arrays_may_be_floats(show: Show, cell: Cell, tmp_path: Path) -> None:
    """As the fraction of land of ERA5, of which each time of a sequence has the same one."""
    land = np.zeros((64, 64), np.float32)
    land[:32, :32], land[32:, :32] = 1, np.nan
    dims = ("time", "lat", "lon")
    times = np.datetime64("2020-01-01", "ns") + np.arange(3) * np.timedelta64(1, "h")
    variables = {"t2m": (dims, np.ones((3, 64, 64))), "lsm": (dims[1:], land)}
    xr.Dataset(variables, {"time": times}).to_zarr(tmp_path / "a.zarr", consolidated=False)
    index = Index.from_zarr(tmp_path / "a.zarr", variables=["t2m", "lsm"])
    pairs = index.group(offsets=("0", "+1h"), time="time", tolerance="1min")
    pairs.save(tmp_path / "a.parquet")
    image, _ = show(tmp_path / "a.parquet", "--pipeline=chunked", "--mask=lsm", "--count=1")
    for place in (0, 1):
        shown = cell(image, place, 2, 6)
        coloured = np.ptp(shown[8:56:8, 8:56:8].astype(int), axis=-1) > 0
        expected = np.zeros((6, 6), bool)
        expected[3:, :3] = True  # the first row is at the bottom
        np.testing.assert_array_equal(coloured, expected)


@pytest.mark.parametrize("kind", ["zarr", "nc"])
@pytest.mark.parametrize(
    ("latitudes", "encoding"),
    [
        (np.linspace(80, -80, 64), {}),
        (np.linspace(-80, 80, 64), {}),
        (np.linspace(80, -80, 64), {"scale_factor": -0.5, "dtype": "i2", "_FillValue": -999}),
        (None, {}),
    ],
)
def test_maps_of_arrays_are_drawn_as_xarray_draws_them(
    show: Show, cell: Cell, tmp_path: Path, kind: str, latitudes: Any, encoding: dict[str, Any]
) -> None:
    from matplotlib.figure import Figure

    ramp = np.tile(np.linspace(0, 1, 64, dtype=np.float32)[:, None], (2, 1, 64))
    land = np.zeros((64, 64), np.uint8)
    land[:20, :20] = 1
    dims = ("time", "lat", "lon")
    coords = {} if latitudes is None else {"lat": latitudes}
    data = xr.Dataset({"t2m": (dims, ramp), "land": (dims[1:], land)}, coords)
    path = tmp_path / f"a.{kind}"
    encodings = {"lat": encoding} if encoding else {}
    if kind == "zarr":
        data.to_zarr(path, consolidated=False, encoding=encodings)
        index = Index.from_zarr(path, variables=["t2m", "land"])
    else:
        data.to_netcdf(path, engine="h5netcdf", encoding=encodings)
        index = Index.scan_arrays(path, variables=["t2m", "land"], dim="time")
    index.save(tmp_path / "a.parquet")
    image, _ = show(tmp_path / "a.parquet", "--pipeline=chunked", "--mask=land", "--count=1")
    shown = cell(image, 0, 1, 5)
    plot = data["t2m"][0].plot(ax=Figure().subplots(), add_colorbar=False).axes
    rows = (0, 63) if latitudes is None else (latitudes[0], latitudes[-1])
    first, last = (plot.transData.transform((0, row))[1] for row in rows)
    brightness = shown[8:56, 40, 0].astype(int)  # Matplotlib counts upwards
    assert brightness[-1] != brightness[0]
    assert (brightness[-1] > brightness[0]) == (first > last)
    coloured = np.ptp(shown[:, 8].astype(int), axis=-1) > 0
    assert coloured[16 if first > last else 48]
    assert not coloured[48 if first > last else 16]


def test_variables_of_arrays_that_cannot_be_read(
    show: Show, captions: Captions, tmp_path: Path
) -> None:
    dims = ("time", "lat", "lon")
    data = {name: (dims, np.ones((2, 8, 8))) for name in ("a", "b", "c")}
    encoding = {name: {"chunks": (1, 8, 8)} for name in data}
    path = tmp_path / "a.zarr"
    xr.Dataset(data).to_zarr(path, zarr_format=2, consolidated=False, encoding=encoding)
    (path / "b" / "1.0.0").write_bytes(b"damaged")
    _, err = show(path, "--pipeline=chunked", "--count=2")
    assert "3 images, 1 rejected" in err
    assert [bool(remark) for _, remark in captions] == [False] * 3 + [True, False, False]
