from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.nddata import Cutout2D
from astropy.table import Table
from astropy.wcs import WCS
from PIL import Image

from readers import Index
from readers.index.catalogue.cutouts import Cutouts

SHAPE = 40, 50


def header(ra: float, dec: float) -> fits.Header:
    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["RA---TAN", "DEC--TAN"]
    wcs.wcs.crval, wcs.wcs.crpix, wcs.wcs.cdelt = [ra, dec], [25.5, 20.5], [-0.01, 0.01]
    return wcs.to_header()


def write(path: Path, *extensions: fits.Header) -> Path:
    path.parent.mkdir(exist_ok=True)
    pixels = np.arange(2000, dtype=np.int16).reshape(SHAPE)
    images = [fits.ImageHDU(pixels, each, f"CCD{n}") for n, each in enumerate(extensions, 1)]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(path)
    return path


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    """Two mosaics; the second CCDs overlap."""
    write(tmp_path / "a" / "e1.fits", header(10, 0), header(10, 5))
    write(tmp_path / "a" / "e2.fits", header(20, 0), header(10.1, 5.1))
    return tmp_path / "a"


@pytest.fixture
def index(survey: Path) -> Index:
    """A row for each CCD."""
    paths = [survey / name for name in ("e1.fits", "e1.fits", "e2.fits", "e2.fits")]
    return Index.from_paths(paths).with_column("hdu", [1, 2, 1, 2]).with_column("exp", [1, 1, 2, 2])


def table_of(index: Index, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(index.table[name].to_pylist() for name in names), strict=True))


def test_a_position_gives_a_row_for_each_image_that_shows_it(
    index: Index, caplog: pytest.LogCaptureFixture
) -> None:
    stars = Table({"ra": [10.05, 20.0, 10.0, 77.0], "dec": [5.05, 0, 0, 0], "mag": [1, 2, 3, 4]})
    made = Index.cutouts(index, stars, (4, 6))
    names = ["path", "hdu", "exp", "y", "x", "ra", "dec", "mag", "catalogue_row"]
    assert made.table.column_names == names
    assert (made.window_size, made.outside) == ((4, 6), "reject")
    filled = Index.cutouts(index, stars, (4, 6), outside="fill")
    assert filled.select([0]).outside == "fill"
    assert Index.concat([filled, filled]).outside == "fill"
    both = Index.concat([filled, made])
    assert (both.window_size, both.outside) == ((4, 6), None)
    caplog.clear()
    assert table_of(made, "exp", "hdu", "mag") == [(1, 1, 3), (1, 2, 1), (2, 1, 2), (2, 2, 1)]
    assert made.table["y"].type == pa.int64()
    assert table_of(made, "y", "x")[0] == (18, 22)
    Index.cutouts(index, stars, (4, 6))
    (told,) = caplog.messages
    assert re.match(r"1 of 4 .*1 on no image \(catalogue row 3\)", told)


def test_without_hdus_the_first_image_of_each_file(
    survey: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stars = Table({"ra": [10.05, 20.0, 10.0], "dec": [5.05, 0, 0]})
    made = Index.cutouts(survey, stars, 4)
    assert [Path(path).name for path in made.table["path"].to_pylist()] == ["e1.fits", "e2.fits"]
    assert made.table["catalogue_row"].to_pylist() == [2, 1]
    (told,) = caplog.messages
    words = rf"1 of 3 .*row 0\).*first image.*{survey}/e1.fits has images in HDUs 1, 2: .*hdus="
    assert re.match(words, told)
    caplog.clear()
    write(survey / "single" / "e3.fits", header(20, 0))
    Index.cutouts(survey / "single", stars, 4)
    Index.cutouts(survey, stars, 4, hdus=[1])
    assert len(caplog.messages) == 2
    assert "hdus=" not in caplog.text


def test_hdus_of_mosaics(survey: Path, caplog: pytest.LogCaptureFixture) -> None:
    stars = Table({"ra": [10.05, 20.0], "dec": [5.05, 0]})
    choices: list[str | list[int | str]] = ["CCD*", [1, "ccd2"], [2, 1]]
    for hdus in choices:
        made = Index.cutouts(survey, stars, 4, hdus=hdus)
        assert table_of(made, "hdu", "catalogue_row") == [(2, 0), (1, 1), (2, 0)]
    assert Index.cutouts(survey, stars, 4, hdus=2).table["hdu"].to_pylist() == [2, 2]
    write(survey / "e3.fits", header(20, 0))
    caplog.clear()
    made = Index.cutouts(survey, stars, 4, hdus=["CCD1", "CCD2"])
    assert len(made) == 3
    (told,) = caplog.messages
    assert re.match(rf"1 image .*{survey}/e3.fits: .*'CCD2'.*1 \(CCD1\)", told)
    with pytest.raises(ValueError, match=f"none of 3 files.*{survey}/e1.fits"):
        Index.cutouts(survey, stars, 4, hdus="WHT")
    with pytest.raises(ValueError, match=r"hdus=.*'hdu'"):
        Index.cutouts(made.select([0]), stars, 4, hdus=1)


def test_hdus_that_the_catalogue_names_become_rows(survey: Path) -> None:
    """By base name or path, relative to the catalogue."""
    catalogue = survey.parent / "stars.csv"
    lines = ["path,hdu,x,y,ra", "e2.fits,1,25,20,7", "a/e1.fits,2,24,20.4,8", "./a/e2.fits,2,9,9,9"]
    catalogue.write_text("\n".join(lines))
    made = Index.cutouts(survey, catalogue, 5)
    assert made.table.column_names[:4] == ["path", "hdu", "y", "x"]
    assert [Path(path).name for path in made.table["path"].to_pylist()] == [
        *("e1.fits", "e2.fits", "e2.fits")
    ]
    assert table_of(made, "hdu", "y", "x", "ra", "catalogue_x", "catalogue_row") == [
        (2, 18, 22, 8, 24, 1),
        (1, 18, 23, 7, 25, 0),
        (2, 7, 7, 9, 9, 2),
    ]
    again = Index.cutouts([survey / "e1.fits", survey / "e2.fits"], catalogue, 5)
    assert again.digest == made.digest


def test_the_hdu_of_an_index_is_needed_to_name_one_of_several(index: Index) -> None:
    stars = {"path": ["e1.fits"] * 2, "x": [20.0, 30], "y": [20, 30]}
    with pytest.raises(ValueError, match=r"'hdu'.*e1.fits has images in HDUs 1, 2"):
        Index.cutouts(index, Table(stars), 4)
    made = Index.cutouts(index, Table(stars | {"hdu": [2, 1]}), 4)
    assert table_of(made, "hdu", "y", "catalogue_row") == [(1, 28, 1), (2, 18, 0)]
    first = index.select([0, 2])
    assert table_of(Index.cutouts(first, Table(stars), 4), "hdu", "y") == [(1, 18), (1, 28)]


def test_positions_on_the_sky_of_named_images(index: Index) -> None:
    """They are looked for in all HDUs of the file, not in other files."""
    stars = Table({"path": ["e2.fits", "e1.fits"], "ra": [10.05, 10.05], "dec": [5.05, 5.05]})
    made = Index.cutouts(index, stars, 4)
    assert table_of(made, "exp", "hdu", "catalogue_row") == [(1, 2, 1), (2, 2, 0)]


POSITIONS = Table({"x": [3.0], "y": [4.0], "ra": [10.0], "dec": [0.0], "X": [9.0], "R": [20.0]})


def test_positions_are_pixels_if_it_is_clear_of_which_image_else_the_sky(index: Index) -> None:
    assert table_of(Index.cutouts(index, POSITIONS, 4), "y", "x") == [(18, 23)]
    one = index.select([0])
    assert table_of(Index.cutouts(one, POSITIONS, 4), "y", "x") == [(2, 1)]
    assert table_of(Index.cutouts(one, POSITIONS, 4, x="X"), "y", "x") == [(2, 7)]
    assert table_of(Index.cutouts(one, POSITIONS, 4, x="X", origin=1), "y", "x") == [(1, 6)]
    assert table_of(Index.cutouts(one, POSITIONS, 4, x="X", ra="R"), "y", "x") == [(2, 7)]
    assert Index.cutouts(index, POSITIONS, 4, ra="R").table["exp"].to_pylist() == [2]
    assert Index.cutouts(index, POSITIONS, 4, x="X", ra="R").table["exp"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("catalogue", "names", "error", "words"),
    [
        (POSITIONS["x", "y"], {}, ValueError, "'x' and 'y'.*4 images.*'path'"),
        (POSITIONS, {"x": "X"}, ValueError, "'X' and 'y'.*'path'"),
        (POSITIONS, {"x": "xx"}, KeyError, "'xx'"),
        (POSITIONS, {"ra": "rr"}, KeyError, "'rr'"),
        (Table({"RA": [1.0], "DE": [2.0]}), {}, KeyError, "'ra' and 'dec'.*ra='RA', dec='DE'"),
        (Table({"a": [1.0], "DE": [2.0]}), {}, KeyError, "'dec'.*x=, y= or ra=, dec="),
    ],
)
def test_columns_that_are_not_positions(
    index: Index, catalogue: Table, names: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Index.cutouts(index, catalogue, 4, **names)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"path": ["same.fits"]}, "'same.fits'.*2 images"),
        ({"path": ["z"]}, "'z'.*rename"),
        ({"path": [1]}, "'path'.*int64.*text"),
        ({"path": ["other.fits"], "hdu": ["SCI"]}, "'hdu'.*numbers of HDUs"),
    ],
)
def test_names_of_images(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    for folder in "ab":
        write(tmp_path / folder / "same.fits", header(10, 0))
    write(tmp_path / "b" / "other.fits", header(10, 0))
    at = {"x": [20.0], "y": [20.0]}
    with pytest.raises(ValueError, match=words):
        Index.cutouts(tmp_path, Table(columns | at), 4)
    path = str(tmp_path / "b" / "same.fits")
    made = Index.cutouts(tmp_path, pa.table({"path": pa.array([path]).dictionary_encode()} | at), 4)
    assert made.path(0) == path


def test_objects_and_images_left_out_are_counted(
    survey: Path, index: Index, caplog: pytest.LogCaptureFixture
) -> None:
    fits.writeto(survey / "dark.fits", np.zeros(SHAPE))
    (survey / "text.fits").write_text("no image")
    images = Index.concat([index, Index.from_paths([survey / "dark.fits"])], fill=True)
    images = Index.concat([images, Index.from_paths([survey / "text.fits"])], fill=True)
    ra = [10, np.nan, 10.24, 50, 10, *[70.0] * 6]
    stars = Table({"ra": ra, "dec": [0, 0, 0, 0, -99.0, *[0.0] * 6]})
    made = Index.cutouts(images, stars, 8)
    assert made.table["catalogue_row"].to_pylist() == [0]
    (told,) = caplog.messages
    for words in (
        r"^10 of 11 ",
        r"7 on no image \(catalogue rows 3, 5, 6, 7, 8, ...\)",
        r"1 with a window of 8x8 .*edge \(catalogue row 2\)",
        r"2 without a position \(catalogue rows 1, 4\)",
        rf"2 images .*{survey}/dark.fits: .*CTYPE.*{survey}/text.fits: not a FITS file",
    ):
        assert re.search(words, told)
    assert Index.cutouts(images, stars, 8, outside="fill").table["x"].to_pylist() == [21, -3]
    assert len(Index.cutouts(images, stars, 8, outside="shift")) == 2
    with pytest.raises(ValueError, match=r"11 of 11 .* 2 with a window of 60"):
        Index.cutouts(images, stars, 60)
    with pytest.raises(ValueError, match=r"1 on no image .*1 image .*dark.fits"):
        Index.cutouts(survey / "dark.fits", stars[:1], 4)


def test_hdus_and_files_that_are_missing(survey: Path, caplog: pytest.LogCaptureFixture) -> None:
    stars = Table({"path": ["e1.fits", "e1.fits"], "hdu": [1, 7], "x": [20.0, 20], "y": [20.0, 20]})
    made = Index.cutouts([survey / "e1.fits", survey / "e3.fits"], stars, 4)
    assert len(made) == 1
    assert re.search(r"left out \(catalogue row 1\).*e1.fits HDU 7: .*3 HDUs", caplog.text)
    stars["hdu"] = np.ma.MaskedArray([1, 1], [True, True])
    with pytest.raises(ValueError, match=r"'hdu'.*empty"):
        Index.cutouts(survey, stars, 4)


def test_columns_that_are_there_twice(index: Index) -> None:
    stars = Table({"ra": [10.0], "dec": [0.0], "exp": [7], "mag": [8]})
    with pytest.raises(ValueError, match=r"columns exp.*\{'exp': 'catalogue_exp'"):
        Index.cutouts(index, stars, 4)
    made = Index.cutouts(index, stars, 4, columns={"exp": "e", "mag": "mag"})
    assert table_of(made, "exp", "e", "mag", "catalogue_row") == [(1, 7, 8, 0)]
    assert table_of(Index.cutouts(index, stars, 4, columns=[]), "catalogue_row") == [(0,)]
    with pytest.raises(ValueError, match=r"columns hdu.*\{'mag': 'catalogue_mag'"):
        Index.cutouts(index, stars, 4, columns={"exp": "e", "mag": "hdu"})
    stars["hdu"] = [5]  # not that of an image, as there is no path
    with pytest.raises(ValueError, match="columns hdu"):
        Index.cutouts(
            Index.from_paths(index.table["path"].to_pylist()), stars[["ra", "dec", "hdu"]], 4
        )
    with pytest.raises(ValueError, match="columns catalogue_row, x, y"):
        Index.cutouts(made, stars["ra", "dec"], 4)


def test_sizes_are_read_unless_the_index_has_them(tmp_path: Path) -> None:
    Image.new("L", (50, 40)).save(tmp_path / "a.png")
    np.save(tmp_path / "b.npy", np.zeros((30, 20, 3)))
    stars = Table({"path": ["a.png", "b.npy"], "x": [47.0, 17], "y": [37.0, 27]})
    made = Index.cutouts([tmp_path / "a.png", tmp_path / "b.npy"], stars, 6)
    assert table_of(made, "y", "x") == [(34, 44), (24, 14)]
    with pytest.raises(ValueError, match="no object"):
        Index.cutouts([tmp_path / "a.png", tmp_path / "b.npy"], stars, 8)
    named = Index.from_paths(["/no/a.png", "/no/b.npy"]).with_column("height", [40, 30])
    made = Index.cutouts(named.with_column("width", [50, 20]), stars, 6)
    assert table_of(made, "y", "x") == [(34, 44), (24, 14)]
    sky = Table({"ra": [1.0], "dec": [2.0]})
    with pytest.raises(ValueError, match=r"a.png: .*sky.*FITS"):
        Index.cutouts([tmp_path / "a.png"], sky, 6)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"size": 0}, ValueError, "size.*0"),
        ({"size": 4, "outside": "trim"}, ValueError, "outside.*'reject', 'fill', 'shift'.*'trim'"),
        ({"size": 4, "origin": 2}, ValueError, "origin.*0 or 1.*2"),
        ({"size": 4, "origin": True}, ValueError, "origin.*0 or 1.*True"),
        ({"size": 4, "x": None}, TypeError, "names of columns.*None"),
    ],
)
def test_settings(settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Cutouts(**settings)


def test_classes_stay(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / name / "image.fits", header(10, 0))
    index = Index.from_class_folders(tmp_path, suffixes=(".fits",))
    made = Index.cutouts(index, Table({"ra": [10.0], "dec": [0.0]}), 4)
    assert made.classes == ("a", "b")
    assert made.table["label"].to_pylist() == [0, 1]


@pytest.mark.parametrize("subpixel", [False, True])
def test_cutouts_of_a_real_image(shared_data: Path, subpixel: bool) -> None:
    """Pixels equal those of Cutout2D, which is given positions on the sky, too."""
    path = shared_data / "fits" / "decam_dither1.fits.fz"
    with fits.open(path) as hdus:
        pixels, wcs = hdus[1].data, WCS(hdus[1].header)
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-20, 300, 200), rng.uniform(-20, 400, 200)
    ra, dec = wcs.all_pix2world(x, y, 0)
    stars = Table({"ra": ra, "dec": dec})
    made = Index.cutouts(path, stars, (30, 21), outside="fill", subpixel=subpixel)
    assert 150 < len(made) < 200
    padded = np.pad(pixels, 60, constant_values=np.nan)
    for top, left, row in table_of(made, "y", "x", "catalogue_row"):
        if subpixel:
            np.testing.assert_allclose((top + 14.5, left + 10), (y[row], x[row]), atol=1e-3)
            continue
        sky = SkyCoord(ra[row], dec[row], unit="deg")
        cutout = Cutout2D(pixels, sky, (30, 21), wcs, mode="partial", fill_value=np.nan)
        mine = padded[top + 60 : top + 90, left + 60 : left + 81]
        np.testing.assert_array_equal(mine, cutout.data)


def test_the_log_is_quiet_if_all_is_there(index: Index, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Index.cutouts(index, Table({"ra": [10.0], "dec": [0.0]}), 4)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("kind", "cards", "is_named"),
    [
        ("same", {}, False),
        ("part of a pixel", {"CRVAL2": 0.005}, False),
        ("another pointing", {"CRVAL2": 0.1}, True),
        ("turned", {"PC1_1": 0.0, "PC1_2": 1.0, "PC2_1": -1.0, "PC2_2": 0.0}, True),
        ("other side of the sky", {"CRVAL1": 200.0}, True),
        ("another frame", {"RADESYS": "FK5"}, False),
        ("a mask", {"CTYPE1": "", "CTYPE2": ""}, False),
        ("missing", None, False),
    ],
)
@pytest.mark.parametrize("with_hdus", [False, True])
def test_files_of_a_sample_that_show_other_parts_of_the_sky_are_named(
    tmp_path: Path,
    kind: str,
    cards: dict[str, Any] | None,
    is_named: bool,
    with_hdus: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, other = header(10, 0), header(10, 0)
    other.update(cards or {})
    one = str(write(tmp_path / "g" / "a.fits", first))
    two = str(write(tmp_path / "r" / "a.fits", other)) if cards is not None else None
    table: dict[str, Any] = {"path": [one], "path_g": [one], "path_r": pa.array([two], pa.string())}
    if with_hdus:
        table |= {"hdu": [1], "hdu_g": [1], "hdu_r": [1]}
    catalogue = Table({"ra": [10.0], "dec": [0.0]})
    found = Index.cutouts(Index(pa.table(table)), catalogue, 8)
    assert len(found) == 1
    assert len(caplog.records) == is_named, kind
    if is_named:
        assert two is not None
        assert two in caplog.text
        assert "'r'" in caplog.text
    caplog.clear()
    Index.cutouts(Index(pa.table(table)), Table({"x": [25.0], "y": [20.0]}), 8)
    assert not caplog.records  # pixels are those of each file


@pytest.mark.parametrize(
    ("ra", "dec", "words"),
    [
        (np.radians([10.0, 11]), np.radians([0.0, 1]), r"ra from 0.174533 to 0.191986"),
        (np.array([1.0, 2]), np.array([149.0, 150]), "dec from 149 to 150"),
        (np.array([np.nan, 40]), np.array([1.0, -20]), "ra from 40 to 40 and dec from -20 to 1"),
    ],
)
def test_positions_of_a_catalogue_on_no_image_are_named(
    index: Index, ra: Any, dec: Any, words: str
) -> None:
    """Radians, swapped columns and other fields are seen in their ranges."""
    with pytest.raises(ValueError, match=words):
        Index.cutouts(index, Table({"ra": ra, "dec": dec}), 8)
