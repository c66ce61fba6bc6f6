"""show.py as a user runs it: what is on the sheet, and where."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import solar_files
import torch
from astropy.io import fits
from astropy.wcs import WCS
from matplotlib import colormaps
from numpy.typing import NDArray
from PIL import Image

from dali_pipelines import Calibration, Index
from dali_pipelines.aia.calibrate import calibrate
from dali_pipelines.cli.options import parse
from dali_pipelines.cli.paths import index_of
from dali_pipelines.cli.show import main as script
from dali_pipelines.cli.show import sheet
from dali_pipelines.cli.show.config import ShowConfig, of_run
from dali_pipelines.cli.show.pictures import coloured
from dali_pipelines.cli.show.steps import step_pictures
from readers import Row, Storage
from readers.sampling.geometry import Geometry

SIZE = 64
GREY = 237
"""Of a cell: 0.93 of white."""


Show = Callable[..., tuple[Any, str]]
Captions = list[tuple[tuple[str, ...], str]]


@pytest.fixture
def show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Show:
    """Run the command; give the sheet, shape (height, width, 3), and what was said."""

    def show(*arguments: object, status: int = 0) -> tuple[Any, str]:
        out = tmp_path / "sheet.png"
        found = script.main([*map(str, arguments), "-o", str(out), f"--size={SIZE}"])
        _, err = capsys.readouterr()
        assert found == status, err
        assert "Traceback" not in err
        sheet = np.array(Image.open(out).convert("RGB")) if out.exists() else None
        return sheet, err

    return show


@pytest.fixture
def captions(monkeypatch: pytest.MonkeyPatch) -> Captions:
    """The captions and remarks of the cells that were drawn."""
    seen: Captions = []
    draw = sheet._draw

    def note(*arguments: Any) -> None:
        picture = arguments[-1]
        seen.append((picture.caption, picture.remark))
        draw(*arguments)

    monkeypatch.setattr(sheet, "_draw", note)
    return seen


def cell(image: np.ndarray, place: int, columns: int, lines: int) -> np.ndarray:
    """Cut a cell out, without its caption."""
    pitch = SIZE + lines * sheet.LINE + sheet.GAP
    # From the end, as the heading has as many lines as it needs.
    rows = (image.shape[0] - 2 * sheet.GAP) // pitch
    top = image.shape[0] - rows * pitch + place // columns * pitch
    left = sheet.GAP + place % columns * (SIZE + sheet.GAP)
    return image[top : top + SIZE, left : left + SIZE]


def write(path: Path, pixels: np.ndarray, **header: object) -> Path:
    hdu = fits.PrimaryHDU(pixels)
    hdu.header.update(header)
    hdu.writeto(path)
    return path


def aia(folder: Path, channel: int = 171) -> Path:
    """A frame that is dark but for a bright corner: first rows, last columns."""
    pixels = np.zeros((SIZE, SIZE), np.int16)
    pixels[:16, -16:] = 900
    return write(
        folder / f"{channel}.fits",
        pixels,
        TELESCOP="SDO/AIA",
        WAVELNTH=channel,
        T_OBS="2015-01-01T00:00:25.34Z",
    )


def test_right_way_up_in_the_colours_of_the_channel(
    tmp_path: Path, show: Show, captions: Captions
) -> None:
    sheet, _ = show(aia(tmp_path))
    found = cell(sheet, 0, 1, 4)
    first, last = (np.array(colormaps["sdoaia171"](end, bytes=True)[:3]) for end in (0.0, 1.0))
    assert (found[-16:, -16:] == last).all()
    assert (found[:-16] == first).all()
    assert (found[:, :-16] == first).all()
    lines = (str(tmp_path / "171.fits"), "AIA 171 2015-01-01T00:00:25Z", "64x64", "0 to 900")
    assert captions == [(lines, "")]


def test_large_images_shrink_by_area_and_keep_their_shape(
    tmp_path: Path, show: Show, captions: Captions
) -> None:
    pixels = np.zeros((2 * SIZE, 4 * SIZE), np.float32)
    pixels[:, ::2] = 10
    pixels[:, : 2 * SIZE] *= 3
    pixels[:5, :4] = math.nan
    sheet, _ = show(write(tmp_path / "wide.fits", pixels))
    found = cell(sheet, 0, 1, 3)
    assert (found[:16] == GREY).all()
    assert (found[-16:] == GREY).all()
    picture = found[16:-16]
    assert (picture[:-2, :32] == 255).all()  # columns of 30 and 0, together
    assert (picture[:-2, 32:] == 0).all()
    assert (picture[-2:, 0] == 127).all()  # not a number
    assert captions[0][0][1:] == ("128x256, 20 NaN", "0 to 30")


def test_what_cannot_be_read_is_there_with_the_reason(
    tmp_path: Path, show: Show, captions: Captions
) -> None:
    good = aia(tmp_path)
    (tmp_path / "a.fits").write_bytes(good.read_bytes()[:4000])
    (tmp_path / "b.fits").write_text("text")
    sheet, err = show(tmp_path, "--columns=2", "--captions", "path")
    assert f"1 images, 2 rejected\nthe first, {tmp_path / 'a.fits'}: File may have been" in err
    (good_lines, _), *bad = sorted(captions, key=lambda found: bool(found[1]))
    assert good_lines[-2:] == ("0 to 900", f"path {good}")
    assert [lines for lines, _ in bad] == [
        (str(tmp_path / "a.fits"), "rejected"),
        (str(tmp_path / "b.fits"), "rejected"),
    ]
    assert all(len(reason) > 10 for _, reason in bad)
    for place in (1, 2):
        remark = cell(sheet, place, 2, 5)
        assert (remark[-1] == GREY).all()
        assert (remark != GREY).any()


def test_values_of_the_index_are_short_and_in_words(
    tmp_path: Path, show: Show, captions: Captions
) -> None:
    """Also of columns that have the name of an array of the graph."""
    times = pa.array([1420070417260000001, None], pa.timestamp("ns"))
    values = {
        "target": pa.array([1.8889539887823048e-06, 0.5], pa.float32()),
        "box": [[1.23456789, 2.0], []],
        "flip": [171, None],
        "t_obs": times,
        "note": ["two\nlines", "one"],
    }
    paths = [str(aia(tmp_path)), str(aia(tmp_path, 193))]
    Index(pa.table({"path": paths, **values})).save(tmp_path / "a.arrow")
    show(tmp_path / "a.arrow", "--captions", *values)
    assert [lines[-5:] for lines, _ in captions] == [
        (
            *("target 1.88895e-06", "box [1.23457, 2]", "flip 171"),
            *("t_obs 2015-01-01T00:00:17", "note two lines"),
        ),
        ("target 0.5", "box []", "flip -", "t_obs -", "note one"),
    ]
    _, err = show(tmp_path / "a.arrow", "--captions", "none", status=2)
    assert "show: the Index has no column 'none': did you mean note? it has path, target" in err


def test_nothing_to_show(tmp_path: Path, show: Show) -> None:
    (tmp_path / "a.fits").write_text("text")
    assert "0 images, 1 rejected" in show(tmp_path / "a.fits", status=1)[1]


def test_photographs(shared_data: Path, show: Show, captions: Captions) -> None:
    sheet, err = show(shared_data / "jpeg", "--pipeline=jpeg", "--count=3", "--columns=3")
    assert "3 images, 0 rejected" in err
    for place, (lines, _) in enumerate(captions):
        with Image.open(lines[0]) as image:
            assert lines[1] == f"{image.height}x{image.width}"
            image.thumbnail((SIZE, SIZE), Image.Resampling.BOX)
            expected = np.array(image.convert("RGB"), float)
        found = cell(sheet, place, 3, 3).astype(float)
        rows = np.flatnonzero((found != GREY).any(axis=(1, 2)))
        middle = found[rows[0] : rows[-1] + 1]
        assert abs(len(middle) - len(expected)) <= 2
        assert np.abs(middle.mean(axis=(0, 1)) - expected.mean(axis=(0, 1))).max() < 5


def test_photographs_of_16_bits_are_not_white() -> None:
    image = torch.arange(3 * 4 * 5).reshape(3, 4, 5) * 1000.0
    expected = (image.numpy() / 257).astype(np.uint8).transpose(1, 2, 0)
    np.testing.assert_array_equal(coloured(image, {}), expected)


def test_photographs_that_are_brighter_than_white_are_not_black() -> None:
    image = torch.full((3, 4, 5), 255.00002)
    assert (coloured(image, {}) == 255).all()


@pytest.mark.parametrize("draws", [1, 3])
def test_images_are_shown_as_the_flags_change_them(
    tmp_path: Path, show: Show, captions: Captions, draws: int
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    for number in range(2):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    flags = ["--pipeline=jpeg", "--crop=16", "--window=random", "--seed=5", f"--draws={draws}"]
    drawn, _ = show(tmp_path, *flags)
    columns = draws if draws > 1 else 6
    assert len(captions) == 2 * draws
    assert all(caption[1] == "16x16" for caption, _ in captions)
    for place in range(2 * draws):
        window = Geometry(crop=(16, 16), window="random").draw_window(5, 0, place)
        assert window is not None
        y, x = window.place(40, 40)
        enlarged = cell(drawn, place, columns, 3)[2::4, 2::4]
        assert np.array_equal(enlarged, pixels[y : y + 16, x : x + 16])


@pytest.mark.parametrize("ragged", ["list", "pad"])
def test_images_of_several_sizes(
    tmp_path: Path, show: Show, captions: Captions, ragged: str
) -> None:
    for number in range(2):
        Image.new("RGB", (30 + number, 20)).save(tmp_path / f"{number}.png")
    show(tmp_path, "--pipeline=jpeg", f"--ragged={ragged}")
    assert [caption[1] for caption, _ in captions] == ["20x30", "20x31"]


def test_each_augmentation_has_a_row(tmp_path: Path, show: Show, captions: Captions) -> None:
    for number in range(2):
        pixels = np.full((SIZE, SIZE, 3), 100 + 50 * number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    augment = ("Erase(1, value=7)", "ColorJitter((2, 2))")
    flags = ["--pipeline=jpeg", "--each_augment", "--draws=3", "--outputs", "window", "flip"]
    drawn, _ = show(tmp_path, "--augment", *augment, *flags)
    last = [caption[-3:] for caption, _ in captions]
    assert last == [(text, "window 0 0 64 64", "flip 0 0") for text in augment for _ in range(3)]
    for place in range(3):
        assert np.unique(cell(drawn, place, 3, 6)).tolist() == [7, 100]
        assert (cell(drawn, 3 + place, 3, 6) == 200).all()


@pytest.mark.parametrize("kind", ["photographs", "fits"])
def test_masks_and_boxes_lie_where_they_belong(tmp_path: Path, show: Show, kind: str) -> None:
    """A white rectangle below the middle, its mask and its box, drawn as large as the image."""
    image, box = np.zeros((SIZE, SIZE), np.uint8), (10, 36, 40, 56)
    image[box[1] : box[3], box[0] : box[2]] = 255
    mask = (image > 0).astype(np.uint8)
    if kind == "fits":
        path, mask_path = tmp_path / "0.fits", tmp_path / "mask.fits"
        fits.writeto(path, image.astype(np.int16))
        fits.writeto(mask_path, mask)
    else:
        path, mask_path = tmp_path / "0.png", tmp_path / "mask.png"
        Image.fromarray(image).convert("RGB").save(path)
        Image.fromarray(mask).save(mask_path)
    table = {"path": [str(path)], "mask_path": [str(mask_path)], "box": [[[*map(float, box)]]]}
    Index(pa.table({**table, "labels": [[3]]})).save(tmp_path / "all.arrow")
    flags = ["--pipeline=jpeg"] if kind == "photographs" else []
    arguments = (tmp_path / "all.arrow", *flags)
    plain = cell(show(*arguments)[0], 0, 1, 3).astype(int)
    masked = cell(show(*arguments, "--mask=mask_path")[0], 0, 1, 3).astype(int)
    rectangle = plain.max(axis=2) == 255
    assert int(rectangle.sum()) == 30 * 20
    assert np.flatnonzero(rectangle.any(axis=1))[0] == (36 if kind == "photographs" else 8)
    assert np.array_equal((masked != plain).any(axis=2), rectangle)
    boxed = cell(show(*arguments, "--boxes=box", "--labels=labels")[0], 0, 1, 3).astype(int)
    rows, columns = np.nonzero((boxed != plain).any(axis=2))
    left, right = 10, 40
    top, bottom = (36, 56) if kind == "photographs" else (8, 28)
    assert abs(columns.min() - left) <= 2
    assert abs(columns.max() + 1 - right) <= 2
    assert abs(rows.max() + 1 - bottom) <= 2
    assert top - 14 <= rows.min() <= top  # the label is above it


def test_images_are_spread_over_the_index(tmp_path: Path, show: Show, captions: Captions) -> None:
    for number in range(10):
        write(tmp_path / f"{number}.fits", np.full((4, 4), number, np.int16))
    show(tmp_path, "--count=4")
    assert [os.path.basename(lines[0]) for lines, _ in captions] == [
        f"{number}.fits" for number in (0, 2, 5, 7)
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such folder or file"),
        ([".", "--pipeline=aia", "--preset=itti"], "there is no preset 'itti': give one of fdl"),
        ([".", "--pipeline=aia", "--preset=iti"], "divides by the degradation: give correction_t"),
        ([".", "--pipeline=aia", "--psf", "1600"], "the PSF is known for the EUV channels"),
        ([".", "--preset=iti"], "--preset is for --pipeline=aia, got fits"),
        (
            [".", "--pipeline=jpeg", "--before_after"],
            "--before_after is for --pipeline=aia, got jp",
        ),
        ([".", "--registered_size=64"], "--registered_size is for --pipeline=aia, got fits"),
        ([".", "--pipeline=aia", "--registered_size", "1", "2", "3"], "takes one number or two"),
        ([".", "--columns=0"], "expected an integer from 1 on"),
        (
            [".", "--pipeline=aia", "--before_after", "--captions", "a"],
            "--captions and --before_after do not go together",
        ),
        ([], "the following arguments are required: FILE"),
    ],
)
def test_wrong_usage(show: Show, arguments: Any, message: str) -> None:
    sheet, err = show(*arguments, status=2)
    assert sheet is None
    assert err.startswith("dali-pipelines show: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'data = "a"\npipeline = "aia"\nsize = 512\ncolumns = ["b"]\nseed = 3\nmean = 1',
            {"files": ["a"], "pipeline": "aia", "registered_size": [512], "seed": 3},
        ),
        ("size = 512\ncolumns = 4\nseed = 3", {"size": 512, "columns": 4, "seed": 3}),
    ],
)
def test_a_file_for_a_run_is_taken(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    """Else size and columns are those of the sheet."""
    (tmp_path / "a.toml").write_text(text)
    flags = [f"--config={tmp_path / 'a.toml'}", "-o", "a.png", *(["a"] * ("files" not in expected))]
    found = parse(ShowConfig, flags, None, "show", translate=of_run)
    assert found == ShowConfig(**{"files": ["a"], "output": "a.png", **expected})


@pytest.mark.parametrize("line", ["hdus = ['err=ERR']", "planes = [2]", "sead = 3"])
def test_other_keys_are_named(tmp_path: Path, show: Show, line: str) -> None:
    (tmp_path / "a.toml").write_text(f"batch_size = 4\n{line}")
    _, err = show(f"--config={tmp_path / 'a.toml'}", status=2)
    assert f"a.toml: unknown keys {line.split()[0]};" in err


def test_an_output_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(aia(tmp_path)), "-o", str(tmp_path / "no" / "sheet.png")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert script.main([str(tmp_path), "-o", "sheet.jpg"]) == 2
    assert "dali-pipelines show: -o must end in .png, got sheet.jpg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("photos", "0.png is a file that is read"),
        ("photos/0.png", "--files and --output both name"),
    ],
)
def test_no_photograph_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: str, message: str
) -> None:
    photo = tmp_path / "photos" / "0.png"
    photo.parent.mkdir()
    Image.new("RGB", (8, 8)).save(photo)
    before = photo.read_bytes()
    assert script.main([str(tmp_path / data), "-o", str(photo), "--pipeline=jpeg"]) == 2
    assert message in capsys.readouterr().err
    assert photo.read_bytes() == before


def test_long_texts_stay_in_their_cells() -> None:
    long = "/a/path/that/is/longer/than/a/cell/of/the/sheet.fits"
    assert sheet._fitting(long, 128) == "…" + long[-20:]
    assert sheet._fitting("target 1.88895e-06 and more", 128) == "target 1.88895e-06 a…"
    assert sheet._fitting("short", 128) == "short"
    lines = sheet._wrapped("word " * 200, 100)
    assert len(lines) * sheet.LINE <= 100 - 12
    assert lines[-1] == "…"


# ---- AIA and HMI -------------------------------------------------------------------------------


def hmi_small(**words: Any) -> fits.Header:
    """The header of a magnetogram of 128x128."""
    small = {"CDELT1": 16.14, "CDELT2": 16.14, "CRPIX1": 64.2, "CRPIX2": 64.9}
    return solar_files.hmi_header(**{**small, **words})


def range_of(values: NDArray[Any]) -> str:
    return f"{values.min():.5g} to {values.max():.5g}"


def test_what_the_network_will_see(
    tmp_path: Path, shared_data: Path, show: Show, captions: Captions
) -> None:
    pixels, header = solar_files.frame()
    good = solar_files.save(tmp_path / "a.fits", pixels, header)
    dark = solar_files.changed(header, QUALITY=1 << 16)
    other = solar_files.changed(header, WAVELNTH=4500)
    solar_files.save(tmp_path / "b.fits", pixels, dark)
    solar_files.save(tmp_path / "c.fits", pixels, other)
    table = shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"
    flags = ["--pipeline=aia", "--preset=sdoml", f"--correction_table={table}"]
    _, err = show(tmp_path, *flags)
    assert "1 images, 2 rejected" in err
    (lines, _), (_, quality), (_, channel) = captions
    expected = calibrate(Row(0, str(good)), Calibration.of("sdoml", correction_table=table))
    time = header["T_OBS"][:19] + "Z"
    assert lines == (str(good), f"AIA 171 {time}", "512x512", range_of(expected))
    assert "16 (dark image)" in quality
    assert "has nothing for 4500" in channel or "no channel 4500" in channel


def test_frames_are_registered_as_by_a_run(tmp_path: Path, show: Show, captions: Captions) -> None:
    pixels, header = solar_files.frame()
    path = solar_files.save(tmp_path / "a.fits", pixels, header)
    show(path, "--pipeline=aia", "--registered_size", 96, 128, "--order=1", "--crop=32")
    whole = calibrate(Row(0, str(path)), Calibration(size=(96, 128), order=1))
    assert captions[0][0][2:] == ("32x32", range_of(whole[32:64, 48:80]))


def test_samples_have_a_picture_for_each_channel(
    tmp_path: Path, show: Show, captions: Captions
) -> None:
    pixels, header = solar_files.frame()
    first = str(solar_files.save(tmp_path / "171.fits", pixels, header))
    magnetogram = np.full((128, 128), -5, np.int16)
    magnetogram[:, 64:] = 5
    second = str(solar_files.save(tmp_path / "m.fits", magnetogram, hmi_small()))
    bad = str(solar_files.save(tmp_path / "bad.fits", pixels, hmi_small(CROTA2=None)))
    index = Index(
        pa.table(
            {
                "path": [first, first],
                "path_171": [first, first],
                "path_304": pa.array([None, None], pa.string()),
                "path_hmi": [second, bad],
            }
        )
    )
    index.save(tmp_path / "samples.parquet")
    sheet, err = show(tmp_path / "samples.parquet", "--pipeline=aia", "--exposure")
    assert "2 images, 1 rejected, 1 left out with them, 2 missing" in err
    assert [lines[:2] for lines, _ in captions] == [
        (first, f"AIA 171 {header['T_OBS'][:19]}Z"),
        ("part 304", "-"),
        (second, "HMI magnetogram 2011.02.15_00:01:12_TAI"),
        (first, "left out"),
        ("part 304", "-"),
        (bad, "rejected"),
    ]
    assert captions[1][1] == "missing: the sample has no such file"
    assert captions[3][1] == "left out: another file of the sample is rejected"
    assert "CROTA2 is missing" in captions[5][1]
    expected = calibrate(Row(0, first), Calibration(exposure=True))
    assert captions[0][0][3] == range_of(expected)
    # Turned by 180 degrees; 0, which is what there is off the frame, is in the middle of the greys.
    found = cell(sheet, 2, 3, 4)
    assert (found[20:44, 20:30] == 255).all()
    assert (found[20:44, 34:44] == 0).all()
    assert (np.abs(found[0].astype(int) - 127) <= 1).all()


def sharp_sun(path: Path, crota2: float, *, bright: float = 1000.0) -> Path:
    """A disk that is as large as its header says and as bright everywhere, and turned."""
    header = solar_files.full_header(
        NAXIS1=512,
        NAXIS2=512,
        CDELT1=4.9,
        CDELT2=4.9,
        CRPIX1=259.3,
        CRPIX2=249.9,
        CROTA2=crota2,
        LVL_NUM=1.0,
    )
    header["NAXIS"] = 2
    world = WCS(header, fix=False).pixel_to_world_values(
        *np.meshgrid(np.arange(512), np.arange(512))
    )
    away = [(value * 3600 + 648000) % 1296000 - 648000 for value in world]
    pixels = np.where(np.hypot(*away) < header["RSUN_OBS"], bright, 0).astype(np.float32)
    return solar_files.save(path, pixels, header)


@pytest.mark.parametrize("crota2", [0.0, 17.3, 179.9])
def test_the_limb_is_where_the_circle_is(tmp_path: Path, crota2: float) -> None:
    path = sharp_sun(tmp_path / "a.fits", crota2)
    pictures = list(step_pictures(Row(0, str(path)), Calibration(size=(512, 512), scale=4.8), SIZE))
    limbs = [picture for picture in pictures if picture.circle is not None]
    assert [limb.caption[0] for limb in limbs] == [
        "level 1: north limb",
        "registered: north limb",
        "level 1: west limb",
        "registered: west limb",
    ]
    for limb in limbs:
        assert limb.circle is not None
        assert limb.pixels is not None
        x, y, radius = limb.circle
        height, width, _ = limb.pixels.shape
        rows, columns = np.indices((height, width))
        away = np.hypot(columns - x, rows - y) - radius
        brightness = limb.pixels.sum(axis=2)
        border = 2 if limb.caption[0].startswith("registered") else 1
        assert brightness[away < -border].min() > 600
        assert brightness[away > border].max() < 100
        assert (away < -border).any()
        assert (away > border).any()
    for limb, side in zip(limbs[1::2], ("north", "west"), strict=True):
        # North is up, and west is right.
        assert limb.pixels is not None
        bright = limb.pixels.sum(axis=2) > 300
        assert bright[-1].all() if side == "north" else bright[:, 0].all()
        assert not (bright[0].any() if side == "north" else bright[:, -1].any())


def test_each_step_that_is_asked_for(
    tmp_path: Path, shared_data: Path, show: Show, captions: Captions
) -> None:
    path = sharp_sun(tmp_path / "a.fits", 17.3)
    table = shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"
    flags = ["--pipeline=aia", "--preset=sdoml", f"--correction_table={table}", "--before_after"]
    drawn, _ = show(path, *flags)
    calibration = Calibration.of("sdoml", correction_table=table)
    gain = calibration.reader().read(Row(0, str(path)), None)["gain"][0]
    titles = [lines[0] for lines, _ in captions]
    assert titles == [
        "level 1",
        "registered",
        f"EXPTIME and degradation: gain {gain:.5g}",
        "stretched and scaled",
        *(
            f"{step}: {side} limb"
            for side in ("north", "west")
            for step in ("level 1", "registered")
        ),
    ]
    assert captions[0][0][1].startswith("AIA 171 ")
    assert "4.9000 arcsec/pixel, CROTA2 17.3" in captions[0][0]
    assert "Sun's centre at CRPIX 259.30, 249.90" in captions[0][0]
    assert "Sun's centre at CRPIX 256.50, 256.50" in captions[1][0]
    final = calibrate(Row(0, str(path)), calibration)
    assert captions[3][0][-1] == range_of(final)
    # The steps in a row, the limbs in another.
    assert drawn.shape[1] == 4 * SIZE + 5 * sheet.GAP


def test_frames_are_deconvolved_before_they_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dali_pipelines.aia.psf.cached_psf", lambda channel: channel)
    monkeypatch.setattr(
        "dali_pipelines.aia.deconvolve.Deconvolver.of", lambda psf: lambda image: image + psf
    )
    header = solar_files.full_header()
    path = solar_files.save(tmp_path / "a.fits", np.zeros((4096, 4096), np.int16), header)
    calibration = Calibration(size=(64, 64), scale=2.4, psf=(171,), exposure=True)
    gain = 1 / header["EXPTIME"]
    lit = f"{171 * gain:.5g}"
    captions = [picture.caption for picture in step_pictures(Row(0, str(path)), calibration, SIZE)]
    assert [(lines[0], *lines[-2:]) for lines in captions] == [
        ("level 1", "4096x4096", "0 to 0"),
        ("deconvolved", "4096x4096", "171 to 171"),
        ("registered", "256x256", "171 to 171"),
        (f"EXPTIME: gain {gain:.5g}", "256x256", f"{lit} to {lit}"),
        ("reduced, means of 4x4 pixels", "64x64", f"{lit} to {lit}"),
        ("level 1: north limb", "64x64", "0 to 0"),
        ("level 1: west limb", "64x64", "0 to 0"),
    ]


def test_before_and_after_is_for_one_file_that_is_fit(
    tmp_path: Path, show: Show, captions: Captions
) -> None:
    pixels, header = solar_files.frame()
    solar_files.save(tmp_path / "a.fits", pixels, solar_files.changed(header, LVL_NUM=1.5))
    flags = ["--pipeline=aia", "--before_after"]
    show(tmp_path / "a.fits", *flags, status=1)
    assert captions[0][0][1] == "rejected"
    assert "must not be resampled twice" in captions[0][1]
    solar_files.save(tmp_path / "b.fits", pixels, header)
    assert "--before_after is for one file, got 2" in show(tmp_path, *flags, status=2)[1]


def test_files_of_samples_are_taken_one_by_one(tmp_path: Path) -> None:
    for name, parts in (("x", ("a", "b")), ("y", ("b", None))):
        columns = {f"path_{n}": pa.array([part], pa.string()) for n, part in enumerate(parts)}
        Index(pa.table({"path": ["a"], **columns})).save(tmp_path / f"{name}.parquet")
    index = index_of(
        [str(tmp_path / "x.parquet"), str(tmp_path / "y.parquet")], (".fits",), Storage()
    )
    assert [Path(index.path(row)).name for row in range(len(index))] == ["a", "b"]


def test_sequences_have_a_picture_for_each_frame(
    shared_data: Path, tmp_path: Path, show: Show, captions: Captions
) -> None:
    """One row of the sheet for each sample."""
    first, second = Index.scan(shared_data / "jpeg").table["path"].to_pylist()[:2]
    times = pa.array([0, 60], pa.timestamp("s"))
    files = Index(pa.table({"path": [first, second], "t_obs": times}))
    sequences = files.group(offsets=("-1min", "0"), missing="keep")
    sequences.save(tmp_path / "sequences.parquet")
    flags = ("--pipeline=jpeg", "--crop=64")
    show(tmp_path / "sequences.parquet", *flags)
    names = [lines[0] for lines, _ in captions]
    assert names == ["part -1min", first, first, second]
    assert captions[0][1] == "missing: the sample has no such file"


def test_frames_keep_their_captions_whatever_the_order_of_the_columns(
    tmp_path: Path, show: Show, captions: Captions
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


def test_positions_on_the_sky(show: Show, captions: Captions, tmp_path: Path) -> None:
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


def test_captions_colours_and_positions_are_of_the_hdu(
    show: Show, captions: Captions, tmp_path: Path
) -> None:
    wcs = WCS(naxis=2)
    wcs.wcs.ctype, wcs.wcs.cdelt = ("RA---TAN", "DEC--TAN"), (-0.001, 0.001)
    hdus = fits.HDUList([fits.PrimaryHDU()])
    for name, channel, year, ra in (("A", 171, 2015, 10), ("B", 304, 2020, 200)):
        wcs.wcs.crval = ra, 30
        pixels = np.zeros((SIZE, SIZE), np.int16)
        pixels[:16] = 900
        hdus.append(fits.ImageHDU(pixels, wcs.to_header(), name=name))
        keys = {"TELESCOP": "SDO/AIA", "WAVELNTH": channel, "T_OBS": f"{year}-01-01T00:00:00Z"}
        hdus[-1].header.update(keys)
    hdus.writeto(tmp_path / "a.fits")
    index = Index.from_paths([tmp_path / "a.fits"]).with_column("y", [0]).with_column("x", [0])
    index.save(tmp_path / "a.arrow")
    found, _ = show(tmp_path / "a.arrow", "--hdu=B", f"--crop={SIZE}", "--window=row")
    ((lines, _),) = captions
    assert "AIA 304 2020-01-01T00:00:00Z" in lines
    ra, dec = WCS(hdus["B"].header).pixel_to_world_values(*[(SIZE - 1) / 2] * 2)
    assert lines[-1] == f"RA {ra:.5f} DEC {dec:+.5f} deg"
    picture = cell(found, 0, 1, len(lines))
    assert (picture[-16:] == np.array(colormaps["sdoaia304"](1.0, bytes=True)[:3])).all()
