"""Images whose pixels say where they come from, in each format, and the sample that each becomes.

`sample_of` says how a sample with some settings must look. It uses NumPy, SciPy and DALI's resize,
and of the product only the random numbers of a row (`Draws`), which have tests of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from image_files import exif
from numpy.typing import ArrayLike, NDArray
from nvidia.dali import Pipeline, fn, types
from PIL import Image, ImageOps
from read_here import read_here
from scipy import ndimage

from dali_pipelines import (
    Index,
    chunked_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    with_mcu_rows,
)
from readers.sampling.draws import Draws, RandomPairs

SEED = 5
SHAPES = ((75, 100), (100, 75), (65, 127), (45, 45), (127, 90))
"""(height, width) of the images; both are below 128."""

Array = NDArray[Any]
Samples = dict[int, dict[str, Array]]
Shape = tuple[int, int]


def gray(shape: Shape, file: int = 0) -> NDArray[np.int16]:
    """Return pixels that are all different: 128 y + a number for x, by which files differ."""
    y, x = np.indices(shape)
    return (128 * y + (37 * x + 11 * y + 53 * file) % 128).astype(np.int16)


def colours(shape: Shape, file: int = 0) -> NDArray[np.uint8]:
    """Return red for x, green for y, and a blue that is rough, and differs by file."""
    y, x = np.indices(shape)
    return np.dstack((2 * x, 2 * y, (37 * x + 11 * y + 53 * file) % 256)).astype(np.uint8)


# Archives.


def _write(path: Path, kind: str, shape: Shape, file: int) -> Array:
    """Write an image; return its pixels as astropy, NumPy or Pillow read them, channels last."""
    if kind == "plain":
        fits.PrimaryHDU(gray(shape, file)).writeto(path)
    elif kind in ("RICE_1", "GZIP_2", "HCOMPRESS_1"):
        # The last tile of HCOMPRESS_1 must have 4 pixels along each axis.
        tile = (28, 32) if kind == "HCOMPRESS_1" else (16, 32)
        fits.CompImageHDU(gray(shape, file), compression_type=kind, tile_shape=tile).writeto(path)
    elif kind == "npy":
        np.save(path, colours(shape, file).astype(np.float32))
        return np.asarray(np.load(path))
    elif kind == "zarr":
        import zarr  # takes long

        group = zarr.create_group(str(path), zarr_format=2)
        for name, pixels in zip("rgb", np.moveaxis(colours(shape, file), -1, 0), strict=True):
            group.create_array(name, data=pixels, chunks=(16, 32))
        return np.stack([group[name][...] for name in "rgb"], axis=-1)
    elif kind == "png":
        Image.fromarray(colours(shape, file)).save(path)
    else:
        turn = exif((1, 6, 3, 8, 5)[file % 5])
        Image.fromarray(colours(shape, file)).save(path, quality=95, exif=turn)
    if path.suffix == ".fits":
        return np.asarray(fits.getdata(path))[..., None]
    with Image.open(path) as image:
        return np.asarray(ImageOps.exif_transpose(image))


KINDS: dict[str, tuple[Callable[..., Any], str]] = {
    "plain": (fits_pipeline, "fits"),
    "RICE_1": (fits_pipeline, "fits"),
    "GZIP_2": (fits_pipeline, "fits"),
    "HCOMPRESS_1": (fits_pipeline, "fits"),
    "npy": (npy_pipeline, "npy"),
    "zarr": (chunked_pipeline, "zarr"),
    "png": (jpeg_pipeline, "png"),
    "jpeg": (jpeg_pipeline, "jpg"),
    "mcu rows": (jpeg_pipeline, "jpg"),
}
"""Kind of archive -> factory and suffix. JPEGs are turned by EXIF; `mcu rows` are cut as such."""


@dataclass(frozen=True)
class Archive:
    """Files of one kind, and what the rows of their Index hold."""

    factory: Callable[..., Any]
    index: Index
    images: list[Array]
    """Pixels of each row, shape (height, width, channels)."""
    atol: float = 0
    """Levels by which decoders of JPEG may differ."""
    corners: list[tuple[float, float]] | None = None
    """First row and column that each row of the Index gives, for window 'row'."""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def shapes(self) -> list[Shape]:
        return [(image.shape[0], image.shape[1]) for image in self.images]

    def select(self, rows: Iterable[int]) -> Archive:
        chosen = [int(row) for row in rows]
        images = [self.images[row] for row in chosen]
        return replace(self, index=self.index.select(chosen), images=images)

    def at(self, corners: Sequence[tuple[float, float]]) -> Archive:
        """Return a row for each image and corner."""
        repeated = self.select(np.repeat(np.arange(len(self.images)), len(corners)))
        y, x = np.tile(np.array(corners), (len(self.images), 1)).T
        index = repeated.index.with_column("y", y).with_column("x", x)
        return replace(repeated, index=index, corners=[*corners] * len(self.images))

    def with_column(self, name: str, values: Any) -> Archive:
        return replace(self, index=self.index.with_column(name, values))

    def with_masks(self, folder: Path, suffix: str = "fits") -> tuple[Archive, list[Array]]:
        """Return the archive with a column `mask_path`, and the masks; all their pixels differ."""
        masks, paths = [], []
        for row, shape in enumerate(self.shapes):
            masks.append(gray(shape, row))
            paths.append(folder / f"mask{row}.{suffix}")
            if suffix == "npy":
                np.save(paths[-1], masks[-1])
            elif suffix == "png":
                Image.fromarray(masks[-1].astype(np.uint16)).save(paths[-1])
            else:
                made = fits.PrimaryHDU if row % 2 else fits.CompImageHDU
                made(masks[-1]).writeto(paths[-1], overwrite=True)
        return self.with_column("mask_path", [str(path) for path in paths]), masks

    def samples(self, **settings: Any) -> Samples:
        """Return the valid samples of an epoch, read by a pipeline in this process."""
        return read_here(self.factory, self.index, **{"seed": SEED, **self.settings, **settings})

    def truths(self, **settings: Any) -> dict[int, Truth]:
        """Return what the samples must be; rows that are rejected are missing."""
        corners: Sequence[Any] = self.corners or [None] * len(self.images)
        both = zip(self.images, corners, strict=True)
        found = [
            sample_of(image, row, corner, **settings) for row, (image, corner) in enumerate(both)
        ]
        return {row: truth for row, truth in enumerate(found) if truth is not None}


def write_archive(folder: Path, kind: str, shapes: Sequence[Shape] = SHAPES) -> Archive:
    """Write an image of each shape."""
    factory, suffix = KINDS[kind]
    paths = [folder / f"{file}.{suffix}" for file in range(len(shapes))]
    images = [
        _write(path, kind, shape, file)
        for file, (path, shape) in enumerate(zip(paths, shapes, strict=True))
    ]
    index = Index.from_paths(paths)
    if kind == "zarr":
        index = Index.from_zarr(paths, variables=[*"rgb"], dim=None)
    if kind == "mcu rows":
        index = with_mcu_rows(index)
    settings = {"channels": 3} if kind == "npy" else {}
    return Archive(factory, index, images, 1.0 if suffix == "jpg" else 0.0, settings=settings)


# What samples must be.


@dataclass(frozen=True)
class Truth:
    """A sample as it must be."""

    image: NDArray[np.float64]
    """Shape (height, width, channels)."""
    window: tuple[float, float, float, float]
    """y, x, height and width in the image of the file, before it is turned."""
    flip: tuple[bool, bool]
    """Whether it is flipped left-right, and up-down."""
    matrix: NDArray[np.float64]
    """Shape (2, 3): from pixels (x, y) of the sample to pixels of the file."""

    @property
    def shape(self) -> Shape:
        return self.image.shape[0], self.image.shape[1]

    def nearest(self, mask: Array, outside: float) -> Array:
        """Return the sample's mask; of two pixels equally near it takes the one right or down."""
        rows, columns = np.indices(self.shape)
        places = np.stack((columns, rows, np.ones_like(rows)), -1) @ self.matrix.T
        x, y = np.moveaxis(np.floor(places + 0.5 + 1e-6).astype(int), -1, 0)
        inside = (y >= 0) & (y < mask.shape[0]) & (x >= 0) & (x < mask.shape[1])
        return np.where(inside, mask[np.where(inside, y, 0), np.where(inside, x, 0)], outside)

    def boxes(self, boxes: ArrayLike) -> NDArray[np.float64]:
        """Return the boxes (x1, y1, x2, y2) of the sample that have an area in it."""
        given = np.reshape(np.asarray(boxes, np.float64), (-1, 4))
        inverse = np.linalg.inv(np.vstack((self.matrix, (0, 0, 1))))
        moved = []
        for x1, y1, x2, y2 in given - 0.5:
            corners = inverse @ [[x1, x2, x2, x1], [y1, y1, y2, y2], [1, 1, 1, 1]]
            (left, right), (top, bottom) = (
                (one.min() + 0.5, one.max() + 0.5) for one in corners[:2]
            )
            moved.append((left, top, right, bottom))
        size = np.array(self.shape[::-1] * 2)
        cut = np.clip(np.reshape(moved, (-1, 4)), 0, size)
        return cut[((cut[:, 2:] - cut[:, :2]) > 1e-6).all(axis=1)]


def sample_of(
    image: Array,
    row: int,
    corner: tuple[float, float] | None = None,
    *,
    epoch: int = 0,
    mode: str = "train",
    crop: int | Shape | None = None,
    window: str = "center",
    outside: str = "reject",
    missing: float | None = None,
    flip: str = "",
    rotate: float = 0.0,
    zoom: tuple[float, float] = (1, 1),
    random_area: tuple[float, float] | None = None,
    resize_shorter: int | None = None,
    resize: int | Shape | None = None,
    mean: Any = 0.0,
    std: Any = 1.0,
) -> Truth | None:
    """Return the sample of a row whose file holds the image; None if the row must be rejected.

    The settings have the names of a pipeline; `corner` is first row and column, for window 'row'.
    """
    draws, image = Draws.of(SEED, epoch, row), image.astype(np.float64)
    if mode == "eval":
        flip, rotate, zoom = "", 0, (1, 1)
        window = "center" if window == "random" else window
    whole = matrix = np.eye(3)
    if resize_shorter is not None:
        shape = [resize_shorter * side // min(image.shape[:2]) for side in image.shape[:2]]
        whole = matrix = _scaling(image.shape[:2], shape)
        image = resized(image, shape)
    height, width = image.shape[:2]
    size = (height, width) if crop is None else _pair(crop)
    free = height - size[0], width - size[1]  # negative where the image is smaller
    y: float
    x: float
    if random_area is not None:
        y, x, *region = _region(height, width, random_area, row, epoch)
        size = region[0], region[1]
    elif window == "row":
        assert corner is not None
        y, x = (float(round(one, 6)) for one in corner)
    elif window == "random":
        places = zip(free, (draws.y, draws.x), strict=True)
        y, x = (int(one * (a + 1)) if a >= 0 else _middle(a) for a, one in places)
    else:
        # As CenterCrop of torchvision, where the image was resized as by its Resize.
        y, x = (round(a / 2) if resize_shorter else _middle(a) for a in free)
    if outside == "reject" and min(free) < 0:
        return None
    if window == "row" or outside == "fill":
        if outside == "reject" and not (0 <= y <= free[0] and 0 <= x <= free[1]):
            return None
        if not _shows(y, size[0], height) or not _shows(x, size[1], width):
            return None
        if outside == "shift":
            if min(free) < 0:
                return None
            y, x = min(max(y, 0), free[0]), min(max(x, 0), free[1])
    value = math.nan if missing is None and outside == "fill" else float(missing or 0)
    place = y * whole[1, 1], x * whole[0, 0], size[0] * whole[1, 1], size[1] * whole[0, 0]
    matrix = matrix @ _shift(x, y)
    if rotate or tuple(zoom) != (1, 1):
        angle = np.deg2rad((2 * draws.turn - 1) * rotate)
        factor = zoom[0] * (zoom[1] / zoom[0]) ** draws.zoom
        matrix = matrix @ _turn(size, angle, factor)
        image = _warped(image, matrix, size, "grid-constant", value)
    else:
        image = _warped(image, _shift(x, y), size, "constant", value)
    if resize is not None:
        matrix = matrix @ _scaling(size, _pair(resize))
        image = resized(image, _pair(resize))
    flips = draws.horizontal and "h" in flip, draws.vertical and "v" in flip
    for axis, is_flipped in enumerate(flips):
        if is_flipped:
            image = np.flip(image, 1 - axis)
            matrix = matrix @ _mirror(axis, image.shape[1 - axis])
    return Truth((image - mean) / std, place, flips, matrix[:2])


def resized(image: Array, shape: Sequence[int]) -> NDArray[np.float64]:
    """Resize by DALI, antialiased; a NaN that has a weight in a pixel makes that NaN."""
    holes = np.isnan(image)
    pipeline = Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    both = np.concatenate((np.where(holes, 0, image), holes), -1).astype(np.float32)
    with pipeline:
        node = fn.external_source(lambda: [both], layout="HWC")
        pipeline.set_outputs(
            fn.resize(node, size=shape, dtype=types.FLOAT, interp_type=types.INTERP_LINEAR)
        )
    pipeline.build()
    values, lost = np.split(np.array(pipeline.run()[0][0], np.float64), 2, axis=-1)
    return np.where(lost > 1e-6, np.nan, values)


def _warped(
    image: Array, matrix: Array, shape: Shape, mode: str, value: float
) -> NDArray[np.float64]:
    """Sample by SciPy, which counts (y, x), at the places to which the matrix leads."""
    swapped = matrix[[1, 0]][:, [1, 0, 2]]
    is_between = bool((matrix % 1).any())  # else a NaN would spread, by a weight of 0
    how: dict[str, Any] = {"order": int(is_between), "mode": mode, "cval": value}
    how["output_shape"] = shape
    planes = [
        ndimage.affine_transform(plane, swapped[:, :2], swapped[:, 2], **how)
        for plane in np.moveaxis(image, -1, 0)
    ]
    return np.stack(planes, axis=-1)


def _region(
    height: int, width: int, area: tuple[float, float], row: int, epoch: int
) -> tuple[int, int, int, int]:
    """Return y, x, height and width of a region, as RandomResizedCrop of torchvision draws it."""
    draws, (least, most) = Draws.of(SEED, epoch, row), (math.log(3 / 4), math.log(4 / 3))
    for share, ratio in RandomPairs(SEED, epoch, row):
        pixels = height * width * (area[0] + (area[1] - area[0]) * share)
        aspect = math.exp(least + (most - least) * ratio)
        h, w = round(math.sqrt(pixels / aspect)), round(math.sqrt(pixels * aspect))
        if 0 < h <= height and 0 < w <= width:
            return int(draws.y * (height - h + 1)), int(draws.x * (width - w + 1)), h, w
    raise AssertionError("no attempt fits: choose another seed")


def _pair(size: int | Shape) -> Shape:
    return (size, size) if isinstance(size, int) else size


def _middle(free: int) -> int:
    """Return the place of a centred window; what is odd is left, or missing, at its end."""
    return free // 2 if free >= 0 else -(-free // 2)


def _shows(first: float, pixels: int, size: int) -> bool:
    """Return whether one of the pixels at first, first + 1, ... is within an image."""
    places = first + np.arange(pixels)
    return bool(((places >= 0) & (places <= size - 1)).any())


def _shift(x: float, y: float) -> Array:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def _scaling(size: Sequence[int], new: Sequence[int]) -> Array:
    """Return the matrix from pixels of a resized image to those before; edges stay edges."""
    (y, x) = (before / after for before, after in zip(size, new, strict=True))
    return np.array([[x, 0, x / 2 - 0.5], [0, y, y / 2 - 0.5], [0, 0, 1]])


def _turn(size: Shape, angle: float, zoom: float) -> Array:
    """Return the matrix of a rotation and a zoom about the centre of a window."""
    y, x = ((side - 1) / 2 for side in size)
    cos, sin = math.cos(angle) / zoom, math.sin(angle) / zoom
    return _shift(x, y) @ np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]]) @ _shift(-x, -y)


def _mirror(axis: int, pixels: int) -> Array:
    matrix = np.eye(3)
    matrix[axis, axis], matrix[axis, 2] = -1, pixels - 1
    return matrix


# The comparison.

RESAMPLED = ("rotate", "zoom", "random_area", "resize_shorter", "resize")


def check(archive: Archive, *, epoch: int = 0, **settings: Any) -> Samples:
    """Compare all samples of an epoch with what they must be, and return them."""
    own: dict[str, Any] = {"outputs": ("window", "flip", "matrix"), "epoch": epoch, **settings}
    found = archive.samples(**own)
    dtype = np.dtype(settings.pop("dtype", "float32"))
    for name in ("outputs", "batch_size", "num_read_processes", "targets", "hdus", "shuffle"):
        settings.pop(name, None)
    truths = archive.truths(epoch=epoch, **settings)
    assert sorted(found) == sorted(truths), "other rows are rejected"
    is_between = any(y % 1 or x % 1 for y, x in archive.corners or ())
    atol = archive.atol
    if is_between or any(name in settings for name in RESAMPLED):
        # DALI rounds its table of weights to float32, and positions.
        atol += 1e-4 * max(np.abs(image.astype(float)).max() for image in archive.images)
    for row, sample in found.items():
        truth, label = truths[row], f"row {row}, an image of {archive.shapes[row]}"
        assert sample["image"].dtype == dtype, label
        rtol = 1e-3 if dtype == np.float16 else 0
        std = np.max(settings.get("std", 1.0))
        pixels = sample["image"].transpose(1, 2, 0)
        np.testing.assert_allclose(pixels, truth.image, rtol, atol / std, err_msg=label)
        if "outputs" not in own or "window" in own["outputs"]:
            assert sample["flip"].tolist() == [*truth.flip], label
            np.testing.assert_allclose(sample["window"], truth.window, 1e-6, 1e-4, err_msg=label)
            np.testing.assert_allclose(sample["matrix"], truth.matrix, 1e-9, 1e-7, err_msg=label)
    return found
