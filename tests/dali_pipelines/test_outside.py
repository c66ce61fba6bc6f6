"""Windows of rows across the edges of images, and between pixels, against NumPy and SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.nddata import Cutout2D
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import exif
from numpy.typing import NDArray
from PIL import Image
from read_here import read_here
from scipy import ndimage

from dali_pipelines import (
    Boxes,
    Index,
    Loader,
    Mask,
    PipelineConfig,
    TrivialAugment,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    with_mcu_rows,
)
from readers.aia.reader import AiaReader
from readers.sampling.draws import Draws
from readers.sampling.geometry import Geometry
from readers.sampling.row_window import RowWindow

SEED = 5
CROP = 12, 16
SHAPES = [(40, 50), (31, 22), (8, 60), (9, 7)]
"""The last two are smaller than the crop."""
CORNERS: list[tuple[float, float]] = [
    (3, 4),
    (-5, -7),
    (35, 45),
    (-11, 20),
    (0, 0),
    (-3, -2),
    (-11, -15),
    (39, 49),
]
PLACES: list[tuple[float, float]] = [
    (3.25, 4.75),
    (-5.5, -7.125),
    (27.9, 33.99),
    (0.0, 0.0),
    (28.0, 34.0),
    (-10.9, 40.3),
    (5.0, 33.5),
    (1e-9, -1e-9),
]


@dataclass(frozen=True)
class Archive:
    factory: Callable[..., Any]
    index: Index
    images: list[NDArray[Any]]
    """As the pipeline delivers them whole, channels last."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Archive]:
    folder = tmp_path_factory.mktemp("outside")
    random = np.random.default_rng(0)
    paths: dict[str, list[Path]] = {name: [] for name in ("plain", "rice", "npy", "png", "jpeg")}
    for number, shape in enumerate(SHAPES):
        image = random.integers(-300, 3000, shape).astype(np.int16)
        colours = random.integers(0, 255, (*shape, 3)).astype(np.uint8)
        for name, suffix in zip(paths, ("fits", "fits", "npy", "png", "jpg"), strict=True):
            paths[name].append(folder / f"{number}_{name}.{suffix}")
        fits.PrimaryHDU(image).writeto(paths["plain"][-1])
        fits.CompImageHDU(image, tile_shape=(4, 9)).writeto(paths["rice"][-1])
        np.save(paths["npy"][-1], image.astype(np.float32))
        Image.fromarray(colours).save(paths["png"][-1])
        smooth = Image.fromarray(colours[:4, :4]).resize(shape[::-1], Image.Resampling.BICUBIC)
        smooth.save(paths["jpeg"][-1], quality=95, exif=exif((1, 6, 3, 8)[number]))
    factories: dict[str, Any] = {"npy": npy_pipeline, "png": jpeg_pipeline, "jpeg": jpeg_pipeline}
    found = {}
    for name, files in paths.items():
        factory = factories.get(name, fits_pipeline)
        index = Index.from_paths(files)
        how: dict[str, Any] = {"batch_size": 1, "num_read_processes": 1, "shuffle": False}
        with Loader(factory, index, devices=[None], **how) as whole:
            images = [batch["image"][0].numpy().transpose(1, 2, 0) for (batch,) in whole]
        found[name] = Archive(factory, index, images)
    assert found["plain"].images[0].shape == (*SHAPES[0], 1)
    assert found["jpeg"].images[1].shape == (22, 31, 3)
    noted = with_mcu_rows(found["jpeg"].index)
    found["mcu rows"] = Archive(jpeg_pipeline, noted, found["jpeg"].images)
    return found


def cutouts(archive: Archive, corners: list[tuple[float, float]], kind: Any) -> Index:
    """Return a row for each image and corner."""
    rows = np.repeat(np.arange(len(SHAPES)), len(corners))
    y, x = np.tile(np.array(corners, kind), (len(SHAPES), 1)).T
    return archive.index.select(rows).with_column("y", y).with_column("x", x)


def new_loader(archive: Archive, index: Index, **options: Any) -> Loader:
    options = {"batch_size": 3, "num_read_processes": 1, "bad_sample": "skip", **options}
    options = {"window": "row", "crop": CROP, "max_bad": len(index), **options}
    return Loader(archive.factory, index, devices=[None], seed=SEED, **options)


def delivered(archive: Archive, index: Index, **options: Any) -> dict[int, dict[str, Any]]:
    options = {"window": "row", "crop": CROP, **options}
    return read_here(archive.factory, index, seed=SEED, **options)


def cut(
    image: NDArray[Any], y: float, x: float, outside: str, missing: float
) -> NDArray[Any] | None:
    """Return the window, channels last, by NumPy or SciPy; None where the row is rejected."""
    shape, (rows, columns) = image.shape[:2], CROP
    whole = np.full((*CROP, image.shape[2]), missing, np.float64)
    fits_in = 0 <= y <= shape[0] - rows and 0 <= x <= shape[1] - columns
    if outside == "reject" and not fits_in:
        return None
    lines, places = y + np.arange(rows), x + np.arange(columns)
    inside = [(a >= 0) & (a <= size - 1) for a, size in zip((lines, places), shape, strict=True)]
    if not inside[0].any() or not inside[1].any():
        return None
    if outside == "shift":
        if rows > shape[0] or columns > shape[1]:
            return None
        lines = np.clip(y, 0, shape[0] - rows) + np.arange(rows)
        places = np.clip(x, 0, shape[1] - columns) + np.arange(columns)
    grid = np.stack(np.meshgrid(lines, places, indexing="ij"))
    for channel in range(image.shape[2]):
        plane = image[..., channel].astype(np.float64)
        whole[..., channel] = ndimage.map_coordinates(plane, grid, order=1, cval=missing)
    return whole


KINDS = ("plain", "rice", "npy", "png", "jpeg", "mcu rows")


@pytest.mark.parametrize("outside", ["reject", "fill", "shift"])
@pytest.mark.parametrize("name", KINDS)
def test_pixels_of_any_corner(archives: dict[str, Archive], name: str, outside: str) -> None:
    """Integer corners give pixels as they are in the image, bit by bit."""
    archive = archives[name]
    index = cutouts(archive, CORNERS, np.int64)
    found = delivered(archive, index, outside=outside)
    for row in range(len(index)):
        corner, image = CORNERS[row % len(CORNERS)], archive.images[row // len(CORNERS)]
        expected = cut(image, *corner, outside, math.nan)
        assert (row in found) == (expected is not None), (row, corner)
        if expected is not None:
            np.testing.assert_array_equal(found[row]["image"].transpose(1, 2, 0), expected)
    assert 4 <= len(found) < len(index)


@pytest.mark.parametrize("outside", ["reject", "fill", "shift"])
@pytest.mark.parametrize("name", KINDS)
def test_pixels_of_any_place(archives: dict[str, Archive], name: str, outside: str) -> None:
    """Floats are places between pixels; 1e-9 next to one is that pixel."""
    archive = archives[name]
    index = cutouts(archive, PLACES, np.float64)
    found = delivered(archive, index, outside=outside, outputs=("window", "matrix"))
    for row in range(len(index)):
        y, x = np.round(PLACES[row % len(PLACES)], 6)
        image = archive.images[row // len(PLACES)]
        expected = cut(image, y, x, outside, math.nan)
        assert (row in found) == (expected is not None), (row, y, x)
        if expected is None:
            continue
        sample = found[row]
        scale = np.abs(image).max()
        np.testing.assert_allclose(
            sample["image"].transpose(1, 2, 0) / scale, expected / scale, atol=1e-4
        )
        if outside != "shift":
            np.testing.assert_allclose(sample["window"], (y, x, *CROP), atol=1e-5)
            np.testing.assert_allclose(sample["matrix"], [[1, 0, x], [0, 1, y]], atol=1e-5)
    assert 2 <= len(found) < len(index)


@pytest.mark.parametrize("place", [(8.0, 8.0), (8.5, 8.0), (8.25, 9.75), (8, 8)])
def test_between_pixels_a_nan_becomes_four(tmp_path: Path, place: tuple[float, float]) -> None:
    """As the guide says: of 2x2 neighbours those without weight count, too."""
    image = np.arange(400, dtype=np.float32).reshape(20, 20)
    image[10, 10] = np.nan
    fits.PrimaryHDU(image).writeto(tmp_path / "nan.fits")
    index = Index.scan(tmp_path).with_column("y", [place[0]]).with_column("x", [place[1]])
    sample = delivered(Archive(fits_pipeline, index, []), index, crop=5)[0]["image"][0]
    reach = (10,) if isinstance(place[0], int) else (9, 10)
    down, across = ([math.floor(first + k) in reach for k in range(5)] for first in place)
    np.testing.assert_array_equal(np.isnan(sample), np.outer(down, across))


def test_filled_windows_are_those_of_astropy(archives: dict[str, Archive]) -> None:
    archive = archives["rice"]
    index = cutouts(archive, CORNERS, np.int64)
    found = delivered(archive, index, outside="fill")
    for row, sample in found.items():
        (y, x), image = CORNERS[row % len(CORNERS)], archive.images[row // len(CORNERS)][..., 0]
        position = x + CROP[1] / 2 - 0.5, y + CROP[0] / 2 - 0.5
        truth = Cutout2D(image, position, CROP, mode="partial", fill_value=np.nan)
        np.testing.assert_array_equal(sample["image"][0], truth.data)


@pytest.mark.parametrize(
    ("name", "dtype", "missing"),
    [
        ("plain", "int16", -32768),
        ("rice", "int16", 7),
        ("plain", "float16", -1.5),
        ("png", "uint8", 255),
        ("png", "float32", 0),
        ("png", "float32", -0.5),
        ("mcu rows", "uint8", 3),
    ],
)
def test_values_of_what_is_missing(
    archives: dict[str, Archive], name: str, dtype: Any, missing: float
) -> None:
    archive = archives[name]
    index = cutouts(archive, CORNERS, np.int64)
    found = delivered(
        archive, index, outside="fill", dtype=dtype, missing=missing, flip="hv", shuffle=False
    )
    for row, sample in found.items():
        corner, image = CORNERS[row % len(CORNERS)], archive.images[row // len(CORNERS)]
        draws = Draws.of(SEED, 0, row)
        down, across = -1 if draws.vertical else 1, -1 if draws.horizontal else 1
        expected = cut(image, *corner, "fill", missing)
        assert expected is not None
        assert sample["image"].dtype == dtype
        np.testing.assert_allclose(
            sample["image"].transpose(1, 2, 0),
            expected[::down, ::across],
            rtol=1e-3 if dtype == "float16" else 0,
        )
    assert len(found) > len(index) / 2


def same(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return image


@pytest.mark.parametrize("transform", [None, same])
def test_mean_and_std_come_after_it(archives: dict[str, Archive], transform: Any) -> None:
    archive = archives["png"]
    index = cutouts(archive, CORNERS, np.int64)
    options: dict[str, Any] = {"outside": "fill", "mean": (1, 2, 3), "std": (4, 5, 6)}
    found = delivered(archive, index, missing=9, transform=transform, **options)
    for row, sample in found.items():
        corner, image = CORNERS[row % len(CORNERS)], archive.images[row // len(CORNERS)]
        expected = cut(image, *corner, "fill", 9)
        assert expected is not None
        expected = (expected - (1, 2, 3)) / (4, 5, 6)
        np.testing.assert_allclose(sample["image"].transpose(1, 2, 0), expected, atol=1e-4)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("missing", [math.nan, 50.0])
def test_fill_comes_before_the_resize(
    archives: dict[str, Archive], kind: Any, missing: float
) -> None:
    """By half, each pixel is a mean of 4x4 of the window: missing if one of these is."""
    archive = archives["plain"]
    corners = CORNERS if kind is np.int64 else PLACES
    index = cutouts(archive, corners, kind)
    found = delivered(archive, index, outside="fill", missing=missing, resize=(6, 8))
    weights = np.array([1, 3, 3, 1]) / 8
    for row, sample in found.items():
        y, x = np.round(corners[row % len(corners)], 6)
        expected = cut(archive.images[row // len(corners)], y, x, "fill", missing)
        assert expected is not None
        padded = np.pad(expected[..., 0], 1, mode="edge")
        rows = sum(w * padded[k : k + 11 : 2] for k, w in enumerate(weights))
        mean = sum(w * rows[:, k : k + 15 : 2] for k, w in enumerate(weights))
        np.testing.assert_allclose(sample["image"][0], mean, atol=0.5)


@pytest.mark.parametrize("missing", [math.nan, 0.0, -700.0])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_turned_windows_are_filled(archives: dict[str, Archive], missing: float, kind: Any) -> None:
    archive, corners = archives["rice"], CORNERS if kind is np.int64 else PLACES
    index = cutouts(archive, corners, kind)
    options: dict[str, Any] = {"rotate": 40.0, "zoom": (0.5, 1.5), "outside": "fill"}
    found = delivered(archive, index, missing=missing, outputs=("matrix",), **options)
    assert len(found) > len(index) / 2
    for row, sample in found.items():
        image = archive.images[row // len(corners)][..., 0].astype(np.float64)
        matrix = sample["matrix"][::-1][:, [1, 0, 2]]
        how: dict[str, Any] = {"order": 1, "mode": "grid-constant", "cval": missing}
        truth = ndimage.affine_transform(
            image, matrix[:, :2], matrix[:, 2], output_shape=CROP, **how
        )
        np.testing.assert_allclose(sample["image"][0], truth, atol=1.0)


@pytest.mark.parametrize("options", [{}, {"resize": (24, 8)}, {"rotate": 50.0}])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_targets_follow(archives: dict[str, Archive], kind: Any, options: Any) -> None:
    """The mask is outside where the image is missing, and boxes are cut."""
    archive, corners = archives["plain"], CORNERS if kind is np.int64 else PLACES
    index = cutouts(archive, corners, kind)
    masks = []
    for number, path in enumerate(archive.index.table["path"].to_pylist()):
        masks.append(Path(path).with_name(f"{number}_mask.fits"))
        if not masks[-1].exists():
            fits.PrimaryHDU(np.full(SHAPES[number], 9, np.uint8)).writeto(masks[-1])
    names = [str(masks[row // len(corners)]) for row in range(len(index))]
    boxes = [[[0.0, 0.0, *SHAPES[row // len(corners)][::-1]]] for row in range(len(index))]
    index = index.with_column("mask_path", names).with_column("boxes", boxes)
    targets = {"mask": Mask("mask_path", outside=1), "boxes": Boxes("boxes", min_area=0)}
    given = {"outside": "fill", "flip": "hv", "targets": targets, "outputs": ("matrix",)}
    found = delivered(archive, index, **given, **options)
    assert len(found) > len(index) / 2
    for sample in found.values():
        image, mask = sample["image"][0], sample["mask"]
        # Pixels within half a pixel of the edge have a neighbour that is missing.
        near = ndimage.binary_dilation(np.pad(mask, 1, constant_values=1) == 1, iterations=3)
        near = near[1:-1, 1:-1]
        assert not (np.isnan(image) & ~near).any()
        assert np.isnan(image[mask == 1]).all()
        if sample["num_boxes"] and "rotate" not in options:
            x1, y1, x2, y2 = sample["boxes"][0]
            centres = np.arange(image.shape[0])[:, None] + 0.5, np.arange(image.shape[1]) + 0.5
            inside = (centres[0] > y1) & (centres[0] < y2) & (centres[1] > x1) & (centres[1] < x2)
            clear = ~np.isin(centres[0], (y1, y2)) & ~np.isin(centres[1], (x1, x2))
            assert np.array_equal((mask == 9)[clear], inside[clear])


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("crop", [1, (1, 3), 100])
def test_crops_of_one_pixel_and_larger_than_any_image(
    archives: dict[str, Archive], crop: Any, mode: Any
) -> None:
    archive = archives["rice"]
    index = archive.index.with_column("y", [0, 30, 7, -50]).with_column("x", [49, 21, 0, -60])
    found = delivered(archive, index, crop=crop, outside="fill", mode=mode, flip="hv", missing=-9)
    rows, columns = (crop, crop) if isinstance(crop, int) else crop
    assert set(found) == ({0, 1, 2} if rows < 100 else {0, 1, 2, 3})
    for row, sample in found.items():
        y, x = [0, 30, 7, -50][row], [49, 21, 0, -60][row]
        padded = np.pad(archive.images[row][..., 0], 200, constant_values=-9)
        truth = padded[200 + y : 200 + y + rows, 200 + x : 200 + x + columns]
        if mode == "train":
            flips = Draws.of(SEED, 0, row)
            truth = truth[:: -1 if flips.vertical else 1, :: -1 if flips.horizontal else 1]
        np.testing.assert_array_equal(sample["image"][0], truth)


HUGE = [2**62, -(2**62), 10**6]
NO_PLACES = [math.nan, math.inf, -math.inf, 1e300, -1e18]


@pytest.mark.parametrize("outside", ["reject", "fill", "shift"])
@pytest.mark.parametrize("name", ["plain", "npy", "png", "mcu rows"])
def test_places_that_are_none(archives: dict[str, Archive], name: str, outside: Any) -> None:
    archive = archives[name]
    for values in (HUGE, NO_PLACES):
        index = archive.index.select([0] * (1 + 2 * len(values)))
        zeros = [values[0] * 0 if values is HUGE else 0.0] * len(values)
        index = index.with_column("y", [zeros[0], *values, *zeros])
        index = index.with_column("x", [zeros[0], *zeros, *values])
        with new_loader(archive, index, outside=outside, shuffle=False) as loader:
            assert [row for (batch,) in loader for row in batch["row"].tolist()] == [0]
            reasons = [bad.reason for bad in loader.stats.rejected.values()]
        assert len(reasons) == 2 * len(values)
        finite = "is not inside" if outside == "reject" else "shows nothing of the image of "
        for reason in reasons:
            assert finite in reason or "columns y and x must be finite" in reason


def test_only_what_is_inside_is_read(archives: dict[str, Archive]) -> None:
    archive = archives["plain"]
    index = archive.index.select([0])
    read = []
    for y, kind in ((0, int), (-10, int), (-10.5, float), (10.5, float)):
        one = index.with_column("y", [kind(y)]).with_column("x", [kind(3)])
        with new_loader(archive, one, outside="fill") as loader:
            list(loader)
            read.append(loader.stats.input_bytes)
    row = 2 * SHAPES[0][1]
    header = read[0] - 12 * row
    assert [(nbytes - header) / row for nbytes in read] == [12, 2, 2, 13]


pure = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 6),
        "num_shards": st.integers(1, 3),
        "num_read_processes": st.integers(0, 2),
        "stop": st.integers(0, 20),
    }
)


@pytest.mark.parametrize("name", ["rice", "png"])
def test_a_sample_does_not_depend_on_how_it_is_read(
    archives: dict[str, Archive], name: str
) -> None:
    archive = archives[name]
    corners = [
        corner for corner in PLACES if cut(archive.images[0], *corner, "fill", 0) is not None
    ]
    index = cutouts(archive, corners, np.float64)
    index = index.select(np.arange(len(corners)))  # all of them can be read
    options: dict[str, Any] = {"outside": "fill", "flip": "hv", "missing": 3}
    truth = delivered(archive, index, **options)
    assert len(truth) == len(index)

    @settings(max_examples=6)
    @given(pure)
    def check(how: dict[str, int]) -> None:
        seen = []
        count, stop = len(index), min(how["stop"], len(index))
        for shard in range(how["num_shards"]):
            for start, end, batch_size in ((0, stop, 1), (stop, count, how["batch_size"])):
                pipeline = archive.factory(
                    index,
                    **options,
                    window="row",
                    crop=CROP,
                    batch_size=batch_size,
                    shard_id=shard,
                    num_shards=how["num_shards"],
                    num_read_processes=how["num_read_processes"],
                    seed=SEED,
                    position=start,
                )
                pipeline.build()
                stride = batch_size * how["num_shards"]
                for step in range(-(-(end - start) // stride)):
                    out = dict(zip(pipeline.output_names, pipeline.run(), strict=True))
                    for slot in range(batch_size):
                        if start + step * stride + shard * batch_size + slot < end:
                            row = int(np.array(out["row"][slot]))
                            image = np.array(out["image"][slot])
                            np.testing.assert_array_equal(image, truth[row]["image"])
                            seen.append(row)
                pipeline.close()
        assert sorted(seen) == list(range(count))

    check()


def test_plain_windows_send_what_they_did(archives: dict[str, Archive]) -> None:
    index = archives["plain"].index
    rows = index.with_column("y", [0] * 4).with_column("x", [0] * 4)
    floats = index.with_column("y", [0.0] * 4).with_column("x", [0.0] * 4)
    plain = ["shape", "payload", "plan", "scaling", "row", "valid", "report"]
    for one, options, added in (
        (rows, {}, []),
        (rows, {"outside": "shift"}, []),
        (rows, {"outside": "fill"}, ["inside"]),
        (rows, {"outside": "fill", "rotate": 9.0}, ["affine"]),
        (floats, {}, ["affine"]),
        (floats, {"outside": "fill"}, ["affine", "inside"]),
    ):
        made = fits_pipeline(one, batch_size=1, crop=8, window="row", **options)
        assert [spec.name for spec in made.source.specs] == [*plain[:4], *added, *plain[4:]]


def test_the_digest_has_the_places(archives: dict[str, Archive]) -> None:
    index = archives["plain"].index
    floats = index.with_column("y", [0.5, 1, 2, 3]).with_column("x", [0.0] * 4)
    moved = floats.with_column("y", [0.25, 1, 2, 3])
    integers = index.with_column("y", [0, 1, 2, 3]).with_column("x", [0] * 4)
    mixed = index.with_column("y", [0.5, 1, 2, 3]).with_column("x", [0] * 4)
    digests = {one.digest for one in (index, floats, moved, integers)}
    assert len(digests) == 4
    assert mixed.digest == index.digest
    single = floats.with_column("y", np.array([0.5, 1, 2, 3], np.float32))
    assert single.digest == floats.digest


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"outside": "fill", "crop": None}, "outside='fill' is for windows of the image itself: give"),
    ({"outside": "fill", "resize_shorter": 9}, "leave out random_area and resize_shorter"),
    ({"outside": "shift", "window": "random"}, "outside='shift' is for window 'row'"),
    ({"outside": "pad", "window": "row"}, "outside must be one of 'reject', 'fill', 'shift'"),
    ({"window": "row", "missing": 3}, "missing=3 is for filled pixels: give outside='fill'"),
    ({"window": "row", "outside": "shift", "missing": 3}, "missing=3 is for filled pixels"),
    ({"window": "row", "outside": "fill", "missing": "0"}, "missing must be a number, or None"),
    ({"window": "row", "outside": "fill", "missing": True}, "missing must be a number, or None"),
    ({"window": "row", "outside": "fill", "dtype": "uint8"}, "dtype 'uint8' has no NaN .* 0 to 25"),
    ({"window": "row", "outside": "fill", "dtype": "int16", "missing": 0.5}, "32767 .*, got 0.5"),
    ({"window": "row", "outside": "fill", "dtype": "int32", "missing": 2**24 + 1}, "float32 holds"),
    ({"window": "row", "outside": "fill", "dtype": "uint8", "missing": -1}, "got -1"),
    ({"window": "row", "outside": "fill", "dtype": "int16", "missing": math.nan}, "got nan"),
    ({"window": "row", "outside": "fill", "dtype": "float16", "missing": 1e6}, "is no float16"),
    ({"window": "row", "outside": "fill", "augment": (TrivialAugment(),)}, "TrivialAugment has no"),
    ({"window": "row", "outside": "fill", "missing": 1e39}, "missing=1e[+]39 is no float32"),
]


@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_settings_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineConfig(**{"batch_size": 1, "crop": 8, **options})


def test_readers_that_cannot() -> None:
    with pytest.raises(ValueError, match=r"fill' needs a Reader .* AiaReader has no regi"):
        Geometry(crop=(8, 8), window="row", outside="fill").check_reader(AiaReader())


def test_windows_that_are_shifted_stay_in_the_image() -> None:
    for top in (-10.5, -3, 0, 2.25, 28, 31.5):
        window = RowWindow(height=12, width=16, top=top, left=5, outside="shift")
        assert window.start(40, 50) == (min(max(top, 0), 28), 5)
    geometry = Geometry(crop=(12, 16), window="row", outside="fill")
    assert geometry.largest_window() is not None
    geometry.check_size(3, 3)
