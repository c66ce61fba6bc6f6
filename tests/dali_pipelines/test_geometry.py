"""Regions, scaled windows and turned ones in pipelines, against DALI, Pillow and SciPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import exif
from nvidia.dali import Pipeline, fn, types
from PIL import Image
from read_here import read_here
from scipy import ndimage

from dali_pipelines import (
    Index,
    Loader,
    PipelineConfig,
    ReadError,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    with_mcu_rows,
)
from readers.sampling.draws import Draws
from readers.sampling.geometry import Geometry

SEED = 5
SHAPES = [(150, 200), (200, 150), (131, 333), (90, 90), (400, 301)]
REGION: dict[str, Any] = {"random_area": (0.08, 1.0), "resize": (40, 56)}
SHORTER: dict[str, Any] = {"resize_shorter": 64, "crop": (40, 56)}
TURNED: dict[str, Any] = {"crop": (40, 56), "rotate": 30.0, "zoom": (0.5, 2.0)}
CASES = {
    "region": REGION,
    "shorter": SHORTER,
    "shorter, random": {**SHORTER, "window": "random"},
    "enlarged": {"resize_shorter": 500, "crop": (300, 200), "window": "random"},
    "turned": TURNED,
    "turned, random": {**TURNED, "window": "random"},
    "turned and resized": {**TURNED, "window": "random", "resize": (30, 20)},
}


@dataclass(frozen=True)
class Archive:
    factory: Callable[..., Any]
    index: Index
    images: list[np.ndarray]
    """Of shape (height, width, channels)."""


def smooth(height: int, width: int, channels: int) -> np.ndarray:
    """Return waves that differ by channel, from 0 to 250."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (9 + n)) + np.cos(y / (7 + 2 * n)) for n in range(channels)]
    return (np.stack(waves, axis=-1) + 2) * 62.5


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Archive]:
    folder = tmp_path_factory.mktemp("geometry")
    found: dict[str, list[np.ndarray]] = {"png": [], "plain": [], "rice": [], "npy": []}
    for number, shape in enumerate(SHAPES):
        colours = smooth(*shape, 3).astype(np.uint8)
        gray = smooth(*shape, 1).astype(np.int16)
        Image.fromarray(colours).save(folder / f"{number}.png")
        np.save(folder / f"{number}.npy", colours.astype(np.float32))
        fits.PrimaryHDU(gray[..., 0]).writeto(folder / f"{number}_plain.fits")
        tiles = {"compression_type": "RICE_1", "tile_shape": (16, 32)}
        hdus = [fits.PrimaryHDU(), fits.CompImageHDU(gray[..., 0], **tiles)]
        fits.HDUList(hdus).writeto(folder / f"{number}_rice.fits")
        for name, image in (("png", colours), ("npy", colours), ("plain", gray), ("rice", gray)):
            found[name].append(image.astype(np.float64))

    def npy(index: Index, **options: Any) -> Any:
        return npy_pipeline(index, channels=3, **options)

    factories: dict[str, Any] = {
        "png": jpeg_pipeline,
        "npy": npy,
        "plain": fits_pipeline,
        "rice": fits_pipeline,
    }
    globs = {"png": "*.png", "npy": "*.npy", "plain": "*_plain.fits", "rice": "*_rice.fits"}
    return {
        name: Archive(factories[name], Index.scan(str(folder / globs[name])), images)
        for name, images in found.items()
    }


def new_loader(factory: Any, index: Index, **options: Any) -> Loader:
    options = {"batch_size": 2, "num_read_processes": 1, **options}
    return Loader(factory, index, devices=[None], seed=SEED, **options)


def delivered(factory: Any, index: Index, **options: Any) -> dict[int, np.ndarray]:
    """Return the images of the first epoch by row, channels last."""
    samples = read_here(factory, index, seed=SEED, **options)
    assert [*samples] == list(range(len(index)))
    return {row: sample["image"].transpose(1, 2, 0) for row, sample in samples.items()}


def by_dali(image: np.ndarray, crop: Any = None, **options: Any) -> np.ndarray:
    """Resize by DALI, antialiased, then crop the middle."""
    pipeline = Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        node = fn.external_source(lambda: [image.astype(np.float32)], layout="HWC")
        node = fn.resize(node, dtype=types.FLOAT, interp_type=types.INTERP_LINEAR, **options)
        pipeline.set_outputs(node if crop is None else fn.crop(node, crop=crop))
    pipeline.build()
    return np.array(pipeline.run()[0][0])


def expected(image: np.ndarray, row: int, options: dict[str, Any]) -> np.ndarray:
    """Return what DALI's resize and SciPy make of a whole image."""
    size = options.get("resize")
    own = {name: value for name, value in options.items() if name != "resize"}
    geometry = Geometry(**own)
    window = geometry.draw_window(SEED, 0, row)
    assert window is not None
    shape = image.shape[:2]
    if geometry.is_turned:
        # SciPy counts (y, x), from the centre of the first pixel.
        matrix = window.matrix(*shape)[::-1][:, [1, 0, 2]]
        out = window.height, window.width
        how: dict[str, Any] = {"output_shape": out, "order": 1, "mode": "grid-constant"}
        planes = [
            ndimage.affine_transform(plane, matrix[:, :2], matrix[:, 2], **how)
            for plane in np.moveaxis(image, -1, 0)
        ]
        turned = np.stack(planes, axis=-1)
        return turned if size is None else by_dali(turned, size=size)
    if geometry.resize_shorter is None:
        (y, x), box = window.within(*shape).place(*shape), window.within(*shape)
        return by_dali(image[y : y + box.height, x : x + box.width], size=size)
    short = min(shape)
    resized = by_dali(image, size=[geometry.resize_shorter * side // short for side in shape])
    free = resized.shape[0] - window.height, resized.shape[1] - window.width
    if window.y is None or window.x is None:
        y, x = round(free[0] / 2), round(free[1] / 2)
    else:
        y, x = int(window.y * (free[0] + 1)), int(window.x * (free[1] + 1))
    return resized[y : y + window.height, x : x + window.width]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["png", "plain", "rice", "npy"])
def test_pixels(archives: dict[str, Archive], kind: str, case: str) -> None:
    archive, options = archives[kind], CASES[case]
    found = delivered(archive.factory, archive.index, flip="hv", mean=10.0, std=2.0, **options)
    for row, image in found.items():
        draws = Draws.of(SEED, 0, row)
        down, across = -1 if draws.vertical else 1, -1 if draws.horizontal else 1
        truth = expected(archive.images[row], row, options)[::down, ::across]
        assert image.shape == truth.shape
        # DALI rounds its table of weights, and positions to float32.
        np.testing.assert_allclose(image * 2 + 10, truth, atol=0.15, err_msg=f"row {row}")


@pytest.mark.parametrize("crop", [(224, 224), (200, 256)])
def test_validation_is_that_of_pillow(archives: dict[str, Archive], crop: tuple[int, int]) -> None:
    """Resize(256) and CenterCrop of torchvision, done by Pillow."""
    archive = archives["png"]
    found = delivered(jpeg_pipeline, archive.index, resize_shorter=256, crop=crop)
    for row, image in found.items():
        photograph = Image.fromarray(archive.images[row].astype(np.uint8))
        width, height = photograph.size
        short = min(width, height)
        size = int(256 * width / short), int(256 * height / short)
        left, top = (int(round((a - b) / 2.0)) for a, b in zip(size, crop[::-1], strict=True))  # noqa: RUF046
        resized = photograph.resize(size, Image.Resampling.BILINEAR)
        cut = resized.crop((left, top, left + crop[1], top + crop[0]))
        # Pillow rounds to integers, twice, and at the border it weighs pixels differently.
        close = np.abs(image - np.asarray(cut, np.float64)) < 1.5
        assert close.mean() > 0.98
        assert close[5:-5, 5:-5].all()


def test_validation_is_that_of_dali(archives: dict[str, Archive]) -> None:
    """Where both sides are whole numbers: else DALI rounds, and torchvision rounds down."""
    archive = archives["npy"]
    options: dict[str, Any] = {"channels": 3, "resize_shorter": 45, "crop": (41, 37)}
    found = delivered(npy_pipeline, archive.index, **options)
    rows = [row for row, shape in enumerate(SHAPES) if max(shape) * 45 % min(shape) == 0]
    assert len(rows) == 3
    for row in rows:
        truth = by_dali(archive.images[row], crop=(41, 37), resize_shorter=45.0)
        np.testing.assert_allclose(found[row], truth, atol=0.15)


@pytest.mark.parametrize("case", ["region", "shorter, random", "turned, random"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_photographs_with_noted_rows(
    archives: dict[str, Archive], tmp_path: Path, orientation: int, case: str
) -> None:
    """With the rows of MCUs noted, the same pixels come from fewer bytes."""
    for row, image in enumerate(archives["png"].images):
        picture = Image.fromarray(image.astype(np.uint8))
        picture = picture.resize((picture.width * 2, picture.height * 2))
        picture.save(tmp_path / f"{row}.jpg", quality=90, exif=exif(orientation))
    index = Index.scan(tmp_path)
    found = []
    for rows in (index, with_mcu_rows(index)):
        with new_loader(jpeg_pipeline, rows, **CASES[case]) as loader:
            images = {int(row): image for (b,) in loader for row, image in _rows(b)}
            found.append((images, loader.stats.input_bytes))
    (whole, all_bytes), (cut, some_bytes) = found
    assert some_bytes < 0.95 * all_bytes
    for row, image in whole.items():
        assert np.array_equal(cut[row], image)


def _rows(batch: Any) -> Any:
    return zip(batch["row"].tolist(), batch["image"].numpy(), strict=True)


@pytest.mark.parametrize("kind", ["plain", "rice", "npy"])
def test_only_what_is_needed_is_read(archives: dict[str, Archive], kind: str) -> None:
    factory, index = archives[kind].factory, archives[kind].index
    nbytes = []
    cases: list[dict[str, Any]] = [
        {"random_area": (1.0, 1.0), "random_aspect_ratio": (0.01, 100), "resize": 8},
        {"random_area": (0.05, 0.06), "resize": 8},
        {"crop": (10, 10), "resize_shorter": 64},
        {"crop": (10, 10), "rotate": 20.0},
    ]
    for options in cases:
        with new_loader(factory, index, **options) as loader:
            assert sum(len(batch["row"]) for (batch,) in loader) == len(index)
            nbytes.append(loader.stats.input_bytes)
    assert max(nbytes[1:]) < 0.6 * nbytes[0]


pure = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 6),
        "num_shards": st.integers(1, 3),
        "num_read_processes": st.integers(0, 2),
        "stop": st.integers(0, 5),
    }
)


@pytest.mark.parametrize("case", ["region", "shorter, random", "turned, random"])
def test_a_sample_does_not_depend_on_how_it_is_read(
    archives: dict[str, Archive], case: str
) -> None:
    archive, options = archives["rice"], {**CASES[case], "flip": "hv"}
    truth = delivered(archive.factory, archive.index, **options)

    @settings(max_examples=6)
    @given(pure)
    def check(how: dict[str, int]) -> None:
        found: dict[int, np.ndarray] = {}
        for shard in range(how["num_shards"]):
            found |= _read_by_pipelines(archive, options, how, shard)
        assert sorted(found) == list(range(len(truth)))
        for row, image in found.items():
            assert np.array_equal(image, truth[row]), row

    check()


def _read_by_pipelines(
    archive: Archive, options: dict[str, Any], how: dict[str, int], shard: int
) -> dict[int, np.ndarray]:
    """Read the first epoch in two parts, of different batch sizes."""
    found: dict[int, np.ndarray] = {}
    count = len(archive.index)
    stop = min(how["stop"], count)
    parts = [(0, stop, 1), (stop, count, how["batch_size"])]
    for start, end, batch_size in parts:
        pipeline = archive.factory(
            archive.index,
            **options,
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
            position = start + step * stride + shard * batch_size
            for slot in range(batch_size):
                if position + slot < end:
                    assert bool(np.array(out["valid"][slot]))
                    image = np.array(out["image"][slot]).transpose(1, 2, 0)
                    found[int(np.array(out["row"][slot]))] = image
        pipeline.close()
    return found


def test_epochs_differ(archives: dict[str, Archive]) -> None:
    factory, index = archives["npy"].factory, archives["npy"].index
    with new_loader(factory, index, batch_size=len(index), **REGION) as loader:
        epochs = [dict(_rows(batch)) for _ in range(2) for (batch,) in loader]
    for row, image in epochs[0].items():
        assert not np.array_equal(image, epochs[1][row])


def test_several_windows_of_a_file(archives: dict[str, Archive]) -> None:
    """Each row of an Index that repeats its files has a window of its own, exactly once."""
    archive = archives["npy"]
    index = archive.index.select(np.repeat(np.arange(len(archive.index)), 3))
    found = delivered(archive.factory, index, crop=(20, 30), window="random", batch_size=4)
    assert len({image.tobytes() for image in found.values()}) == 3 * len(archive.index)
    for row, image in found.items():
        window = Geometry(crop=(20, 30), window="random").draw_window(SEED, 0, row)
        assert window is not None
        whole = archive.images[row // 3]
        y, x = window.place(*whole.shape[:2])
        assert np.array_equal(image, whole[y : y + 20, x : x + 30])


@pytest.mark.parametrize("tail", ["partial", "fill"])
@pytest.mark.parametrize("case", ["region", "shorter", "turned"])
def test_bad_rows_and_tails(
    archives: dict[str, Archive], tmp_path: Path, case: str, tail: Any
) -> None:
    """A slot without a row of its own does not disturb the others."""
    paths = [Path(str(path)) for path in archives["png"].index.table["path"].to_pylist()]
    for path in paths:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / paths[1].name).write_bytes(b"no image")
    index = Index.scan(tmp_path)
    truth = delivered(jpeg_pipeline, archives["png"].index, shuffle=False, **CASES[case])
    options = {"shuffle": False, "tail": tail, "bad_sample": "skip", **CASES[case]}
    with new_loader(jpeg_pipeline, index, **options) as loader:
        batches = [batch for (batch,) in loader]
    assert list(loader.stats.rejected) == [1]
    rows = []
    for batch in batches:
        for row, image, valid in zip(batch["row"], batch["image"], batch["valid"], strict=True):
            assert np.array_equal(image.numpy().transpose(1, 2, 0), truth[int(row)])
            rows += [int(row)] if valid else []
    assert rows == [0, 2, 3, 4]


def test_images_smaller_than_the_scaled_window(archives: dict[str, Archive]) -> None:
    index = archives["png"].index
    loader = new_loader(jpeg_pipeline, index, resize_shorter=64, crop=(40, 100))
    message = "crop 40x100 is larger than the image of .*, resized to .*: use a smaller crop"
    with pytest.raises((ReadError, ValueError), match=message), loader:
        list(loader)


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"random_area": (0.1, 1)}, "random_area needs resize, the one size"),
    ({"random_area": 0.5, "resize": 8}, r"random_area must be \(least, most\), two numbers, got 0"),
    ({"random_area": (0, 1), "resize": 8}, "random_area must be .* shares above 0 and up to 1"),
    ({"random_area": (0.1, 1), "resize": 8, "crop": 4}, "leave out crop, window and resize_short"),
    ({"random_aspect_ratio": (1, 2)}, "random_aspect_ratio needs random_area"),
    ({"resize_shorter": 9}, "resize_shorter needs a crop"),
    ({"resize_shorter": 9, "crop": 8, "resize": 4}, "resize_shorter and resize are two ways"),
    ({"resize_shorter": 9, "crop": 10}, "is larger than an image whose shorter side is resized"),
    ({"resize_shorter": 0, "crop": 10}, "resize_shorter must be an integer, at least 1, got 0"),
    ({"rotate": 5.0}, "rotate and zoom need a crop"),
    ({"rotate": 5.0, "crop": 8, "dtype": "uint8"}, "as stored: leave out rotate, or choose"),
    ({"zoom": (1, 2), "crop": 8, "dtype": "uint8"}, "as stored: leave out zoom, or choose"),
    ({"resize_shorter": 9, "crop": 8, "dtype": "uint8"}, "as stored: leave out resize_shorter"),
]


@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_settings_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineConfig(batch_size=1, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (REGION, "random_area is not for aia_pipeline: give crop, window and zoom"),
        (SHORTER, "resize_shorter is not for aia_pipeline: give size and crop"),
    ],
)
def test_aia_has_its_own(
    archives: dict[str, Archive], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        aia_pipeline(archives["plain"].index, batch_size=1, **options)


def test_the_memory_of_turned_windows_is_foreseen(archives: dict[str, Archive]) -> None:
    """A window of 20x20 at 45 degrees needs 30x30 pixels or so, and twice that at zoom 0.5."""
    frames = [
        jpeg_pipeline(
            archives["png"].index, batch_size=1, crop=20, **options
        ).footprint.frame_nbytes
        for options in ({}, {"rotate": 90.0}, {"rotate": 90.0, "zoom": (0.5, 1.0)})
    ]
    assert frames[0] == 0
    assert 27**2 * 12 < frames[1] < 33**2 * 12
    assert 54**2 * 12 < frames[2] < 60**2 * 12


def test_what_is_not_used_costs_nothing(archives: dict[str, Archive]) -> None:
    """No array is sent, and none has another name, where windows are only cut."""
    specs = [
        [
            spec.name
            for spec in fits_pipeline(archives["plain"].index, batch_size=1, **o).source.specs
        ]
        for o in ({}, {"crop": (8, 8), "window": "random"}, REGION, SHORTER, TURNED)
    ]
    cut = ["shape", "payload", "plan", "scaling", "row", "valid", "report"]
    assert specs[:3] == [cut] * 3
    added = [sorted(set(names) - set(cut)) for names in specs[3:]]
    assert list(itertools.chain(*added)) == ["part", "affine"]
