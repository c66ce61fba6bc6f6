"""show.py as a user runs it: what is on the sheet, and where."""

from __future__ import annotations

import math
import os
from pathlib import Path

import _sheet
import numpy as np
import pytest
import show as script
from astropy.io import fits
from matplotlib import colormaps
from PIL import Image

SIZE = 64
GREY = 237
"""Of a cell: 0.93 of white."""


@pytest.fixture
def show(tmp_path, capsys):
    """Run the command; give the sheet, shape (height, width, 3), and what was said."""

    def show(*arguments, status=0):
        out = tmp_path / "sheet.png"
        found = script.main([*map(str, arguments), "-o", str(out), f"--size={SIZE}"])
        _, err = capsys.readouterr()
        assert found == status, err
        assert "Traceback" not in err
        sheet = np.array(Image.open(out).convert("RGB")) if out.exists() else None
        return sheet, err

    return show


@pytest.fixture
def captions(monkeypatch):
    """The captions and remarks of the cells that were drawn."""
    seen = []
    draw = _sheet._draw

    def note(*arguments):
        seen.append((arguments[-1].caption, arguments[-1].remark))
        draw(*arguments)

    monkeypatch.setattr(_sheet, "_draw", note)
    return seen


def cell(sheet: np.ndarray, place: int, columns: int, lines: int) -> np.ndarray:
    """Cut a cell out, without its caption."""
    pitch = SIZE + lines * _sheet.LINE + _sheet.GAP
    # From the end, as the heading has as many lines as it needs.
    rows = (sheet.shape[0] - 2 * _sheet.GAP) // pitch
    top = sheet.shape[0] - rows * pitch + place // columns * pitch
    left = _sheet.GAP + place % columns * (SIZE + _sheet.GAP)
    return sheet[top : top + SIZE, left : left + SIZE]


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


def test_right_way_up_in_the_colours_of_the_channel(tmp_path, show, captions):
    sheet, _ = show(aia(tmp_path))
    found = cell(sheet, 0, 1, 4)
    first, last = (np.array(colormaps["sdoaia171"](end, bytes=True)[:3]) for end in (0.0, 1.0))
    assert (found[-16:, -16:] == last).all()
    assert (found[:-16] == first).all()
    assert (found[:, :-16] == first).all()
    lines = (str(tmp_path / "171.fits"), "AIA 171 2015-01-01T00:00:25Z", "64x64", "0 to 900")
    assert captions == [(lines, "")]


def test_large_images_shrink_by_area_and_keep_their_shape(tmp_path, show, captions):
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


def test_what_cannot_be_read_is_there_with_the_reason(tmp_path, show, captions):
    good = aia(tmp_path)
    (tmp_path / "a.fits").write_bytes(good.read_bytes()[:4000])
    (tmp_path / "b.fits").write_text("text")
    sheet, err = show(tmp_path, "--columns=2")
    assert "1 images, 2 rejected" in err
    (good_lines, _), *bad = sorted(captions, key=lambda found: bool(found[1]))
    assert good_lines[-1] == "0 to 900"
    assert [lines for lines, _ in bad] == [
        (str(tmp_path / "a.fits"), "rejected"),
        (str(tmp_path / "b.fits"), "rejected"),
    ]
    assert all(len(reason) > 10 for _, reason in bad)
    for place in (1, 2):
        remark = cell(sheet, place, 2, 4)
        assert (remark[-1] == GREY).all()
        assert (remark != GREY).any()


def test_nothing_to_show(tmp_path, show):
    (tmp_path / "a.fits").write_text("text")
    assert "0 images, 1 rejected" in show(tmp_path / "a.fits", status=1)[1]


def test_a_preset_stretches(tmp_path, show, captions):
    show(aia(tmp_path), aia(tmp_path, 4500), "--preset=iti")
    (lines, _), (_, reason) = captions
    expected = 2 * math.asinh(900 / 8600 / 0.005) / math.asinh(200) - 1
    assert lines[-1] == f"-1 to {expected:.5g}"
    assert reason.startswith("preset 'iti' has no numbers for channel 4500")


def test_a_preset_needs_a_channel(tmp_path, show, captions):
    show(write(tmp_path / "x.fits", np.ones((8, 8), np.int16)), "--preset=iti", status=1)
    assert captions[0][1].startswith("the header names no channel of AIA")


def test_photographs(shared_data, show, captions):
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


def test_images_are_spread_over_the_index(tmp_path, show, captions):
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
        ([".", "--preset=itti"], "there is no preset 'itti': give one of fdl, iti"),
        ([".", "--columns=0"], "expected an integer from 1 on"),
        ([], "the following arguments are required: FILE"),
    ],
)
def test_wrong_usage(show, arguments, message):
    sheet, err = show(*arguments, status=2)
    assert sheet is None
    assert err.startswith("show.py: ")
    assert err.count("\n") == 1
    assert message in err


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    assert script.main([str(aia(tmp_path)), "-o", str(tmp_path / "no" / "sheet.png")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_long_texts_stay_in_their_cells():
    long = "/a/path/that/is/longer/than/a/cell/of/the/sheet.fits"
    assert _sheet._ending(long, 128) == "…" + long[-20:]
    assert _sheet._ending("short", 128) == "short"
    lines = _sheet._wrapped("word " * 200, 100)
    assert len(lines) * _sheet.LINE <= 100 - 12
    assert lines[-1] == "…"
