"""Windows, regions, resizes and turns in pipelines: each sample against `ramp_images.sample_of`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from epochs import HOW, by_row, check_equal, check_pure, new_loader
from hypothesis import given, settings
from PIL import Image
from ramp_images import Archive, check

from dali_pipelines import (
    Index,
    PipelineConfig,
    ReadError,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
)

Ramps = Callable[..., Archive]

REGION: dict[str, Any] = {"random_area": (0.08, 1.0), "resize": (20, 28)}
SHORTER: dict[str, Any] = {"resize_shorter": 32, "crop": (20, 27)}
TURNED: dict[str, Any] = {"crop": (28, 40), "rotate": 30.0, "zoom": (0.5, 2.0)}
RANDOM: dict[str, Any] = {"window": "random"}
STATS: dict[str, Any] = {"mean": 10.0, "std": 2.0}
LARGE = ((300, 400), (262, 300))

CASES: list[tuple[str, dict[str, Any]]] = [
    ("plain", {"crop": (29, 40), "flip": "h"}),
    ("plain", {**REGION, "flip": "v"}),
    ("plain", {**SHORTER, "flip": "hv", "mode": "eval"}),
    ("plain", {**TURNED, **RANDOM, "flip": "hv", **STATS}),
    ("RICE_1", {"batch_size": 1, "flip": "hv", **STATS}),
    ("RICE_1", {"crop": (28, 40), **RANDOM, "flip": "hv", "dtype": "int16"}),
    ("RICE_1", {"crop": (40, 30), **RANDOM, "resize": (13, 45), "flip": "h"}),
    ("RICE_1", {**SHORTER, **RANDOM, "flip": "hv", **STATS}),
    ("RICE_1", {**TURNED, "resize": (30, 20), "flip": "hv"}),
    ("GZIP_2", {"crop": (28, 40), **RANDOM, "flip": "v", "dtype": "float16"}),
    ("GZIP_2", {"resize": (20, 28), "flip": "hv", **STATS}),
    ("GZIP_2", {**TURNED, "mode": "eval", "flip": "hv", "window": "random"}),
    ("HCOMPRESS_1", {"crop": (28, 41), **RANDOM, "flip": "h"}),
    ("HCOMPRESS_1", {**TURNED, "zoom": (1, 1), "rotate": 180}),
    ("npy", {"crop": (40, 30), "resize": 16, "flip": "v", **STATS}),
    ("zarr", {"crop": (40, 30), **RANDOM, "flip": "hv", **STATS}),
    ("zarr", {**TURNED, "resize": (30, 20), "flip": "hv"}),
    ("zarr", {**REGION, "flip": "h"}),
    ("npy", {**REGION, "flip": "hv", **STATS}),
    ("npy", {"resize_shorter": 200, "crop": (130, 100), **RANDOM, "flip": "h"}),
    ("npy", {**TURNED, **RANDOM, "resize": (60, 20), "flip": "v"}),
    ("png", {"crop": (28, 40), **RANDOM, "flip": "hv", "dtype": "uint8"}),
    ("png", {"resize": (60, 28), "flip": "h", **STATS}),
    ("png", {**REGION, "flip": "hv"}),
    ("png", {**SHORTER, **RANDOM, "flip": "v", **STATS}),
    ("png", {**TURNED, **RANDOM, "rotate": 0.0, "flip": "h"}),
    ("jpeg", {"crop": (28, 40), **RANDOM, "flip": "v", **STATS}),
    ("jpeg", {**REGION, "flip": "h", **STATS}),
    ("jpeg", {**TURNED, "rotate": 180, "flip": "hv"}),
    ("mcu rows", {"crop": (28, 40), "flip": "hv"}),
    ("mcu rows", {**REGION, "flip": "v"}),
    ("mcu rows", {**SHORTER, **RANDOM, "flip": "h", **STATS}),
    ("mcu rows", {**TURNED, **RANDOM, "flip": "hv"}),
]


@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_samples(ramps: Ramps, kind: str, options: dict[str, Any]) -> None:
    assert len(check(ramps(kind), **options)) == 5


def test_each_epoch_has_draws_of_its_own(ramps: Ramps) -> None:
    check(ramps("npy"), epoch=1, **REGION, flip="hv")


def test_several_windows_of_a_file(ramps: Ramps) -> None:
    archive = ramps("npy").select(np.repeat(np.arange(5), 3))
    found = check(archive, crop=(20, 30), window="random", batch_size=4)
    assert len({sample["image"].tobytes() for sample in found.values()}) == 15


@pytest.mark.parametrize("crop", [(56, 56), (50, 64)])
def test_validation_is_that_of_torchvision(ramps: Ramps, crop: tuple[int, int]) -> None:
    """Resize(64) and CenterCrop, done by Pillow as torchvision does them."""
    archive = ramps("png")
    for row, sample in archive.samples(resize_shorter=64, crop=crop).items():
        photograph = Image.fromarray(archive.images[row])
        size = [int(64 * side / min(photograph.size)) for side in photograph.size]
        left, top = (int(round((a - b) / 2.0)) for a, b in zip(size, crop[::-1], strict=True))  # noqa: RUF046
        smaller = photograph.resize((size[0], size[1]), Image.Resampling.BILINEAR)
        truth = smaller.crop((left, top, left + crop[1], top + crop[0]))
        # Pillow rounds to integers, twice, and weighs pixels at the border differently.
        near = np.abs(sample["image"].transpose(1, 2, 0) - np.asarray(truth, np.float64)) < 2
        assert near[3:-3, 3:-3].all()
        assert near.mean() > 0.95


@pytest.mark.parametrize("options", [REGION, {**SHORTER, **RANDOM}, {**TURNED, **RANDOM}], ids=str)
def test_mcu_rows_give_the_same_pixels_from_fewer_bytes(
    ramps: Ramps, options: dict[str, Any]
) -> None:
    found = []
    for kind in ("jpeg", "mcu rows"):
        with new_loader(jpeg_pipeline, ramps(kind, LARGE).index, **options) as loader:
            found.append((by_row(loader), loader.stats.input_bytes))
    (whole, all_bytes), (cut, some_bytes) = found
    check_equal(cut, whole)
    assert some_bytes < 0.95 * all_bytes


@pytest.mark.parametrize("kind", ["plain", "RICE_1", "npy"])
def test_only_the_needed_pixels_are_read(ramps: Ramps, kind: str) -> None:
    archive = ramps(kind, LARGE)
    nbytes = []
    for options in (
        {"random_area": (1.0, 1.0), "random_aspect_ratio": (0.01, 100), "resize": 8},
        {"random_area": (0.05, 0.06), "resize": 8},
        {"crop": (10, 10), "resize_shorter": 64},
        {"crop": (10, 10), "rotate": 20.0},
    ):
        with new_loader(archive.factory, archive.index, **archive.settings, **options) as loader:
            assert len(by_row(loader)) == 2
            nbytes.append(loader.stats.input_bytes)
    assert max(nbytes[1:]) < 0.6 * nbytes[0]


@pytest.mark.parametrize(
    ("kind", "options"),
    [("npy", REGION), ("RICE_1", {**SHORTER, **RANDOM}), ("png", {**TURNED, **RANDOM})],
    ids=str,
)
def test_samples_do_not_depend_on_how_they_are_read(
    ramps: Ramps, kind: str, options: dict[str, Any]
) -> None:
    archive, own = ramps(kind), {**options, "flip": "hv", "outputs": ("matrix",)}
    expected = archive.samples(**own)

    @settings(max_examples=6)
    @given(HOW)
    def pure(how: dict[str, int]) -> None:
        check_pure(archive.samples, how, expected, **own)

    pure()


@pytest.mark.parametrize(
    ("options", "tail"),
    [({}, "partial"), (REGION, "fill"), (SHORTER, "partial"), (TURNED, "fill")],
    ids=str,
)
def test_a_bad_row_does_not_disturb_others(
    ramps: Ramps, tmp_path: Path, options: dict[str, Any], tail: str
) -> None:
    """Nor does a slot without a row of its own; `outputs` of bad rows have the shape of others."""
    archive = ramps("png", ((60, 90),) * 5)
    (tmp_path / "bad.png").write_bytes(b"no image")
    paths = [archive.index.path(row) for row in range(5)]
    index = Index.from_paths([paths[0], tmp_path / "bad.png", *paths[2:]])
    own: dict[str, Any] = {"shuffle": False, "outputs": ("window", "matrix"), **options}
    with new_loader(jpeg_pipeline, index, tail=tail, bad_sample="skip", **own) as loader:
        batches = [batch for (batch,) in loader]
    assert list(loader.stats.rejected) == [1]
    expected = archive.samples(**own)
    del expected[1]
    assert [*by_row([batch] for batch in batches)] == [*expected]
    for batch in batches:
        for slot, row in enumerate(batch["row"].tolist()):
            for name in ("image", "window", "matrix"):
                np.testing.assert_array_equal(batch[name][slot].numpy(), expected[row][name])


def test_a_crop_larger_than_the_resized_image_is_named(ramps: Ramps) -> None:
    loader = new_loader(jpeg_pipeline, ramps("png").index, resize_shorter=32, crop=(20, 50))
    message = r"crop 20x50 .*larger.*resized to.*smaller crop"
    with pytest.raises((ReadError, ValueError), match=message), loader:
        list(loader)


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"random_area": (0.1, 1)}, "random_area.*needs resize"),
    ({"random_area": 0.5, "resize": 8}, r"random_area.*\(least, most\).*0\.5"),
    ({"random_area": (0, 1), "resize": 8}, r"random_area.*above 0.*\(0, 1\)"),
    ({"random_area": (0.1, 1), "resize": 8, "crop": 4}, "random_area.*leave out crop"),
    ({"random_aspect_ratio": (1, 2)}, "random_aspect_ratio.*random_area"),
    ({"resize_shorter": 9}, "resize_shorter needs a crop"),
    ({"resize_shorter": 9, "crop": 8, "resize": 4}, "resize_shorter and resize"),
    ({"resize_shorter": 9, "crop": 10}, "crop 10x10.*larger.*9.*resize_shorter"),
    ({"resize_shorter": 0, "crop": 10}, "resize_shorter.*at least 1.*0"),
    ({"rotate": 5.0}, "rotate.*crop"),
    ({"rotate": 181.0, "crop": 8}, "rotate.*180.*181"),
    ({"zoom": (2, 1), "crop": 8}, r"zoom.*\(least, most\).*\(2"),
    ({"rotate": 5.0, "crop": 8, "dtype": "int16"}, "int16.*leave out rotate, or choose"),
    ({"zoom": (1, 2), "crop": 8, "dtype": "int16"}, "int16.*leave out zoom, or choose"),
    ({"resize_shorter": 9, "crop": 8, "dtype": "int16"}, "int16.*leave out resize_shorter"),
    ({"window": "random"}, "window 'random' needs a crop"),
    ({"window": "row", "crop": 8, "resize_shorter": 40}, "window 'row'.*leave out resize_shorter"),
    ({"crop": 8, "flip": "x"}, "flip.*'hv'.*'x'"),
    ({"crop": 8, "outputs": "window"}, "outputs.*tuple.*'window'"),
    ({"crop": 8, "outputs": ("windows",)}, "outputs.*window, flip, matrix.*'windows'"),
    ({"crop": 8, "outputs": ("window", "window")}, "outputs.*once"),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=str)
def test_settings_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineConfig(batch_size=1, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (REGION, "random_area.*aia_pipeline.*crop, window and zoom"),
        (SHORTER, "resize_shorter.*aia_pipeline"),
    ],
)
def test_aia_has_its_own(ramps: Ramps, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aia_pipeline(ramps("plain").index, batch_size=1, **options)


def test_the_memory_of_turned_windows_is_foreseen(ramps: Ramps) -> None:
    """A window of 20x20 at 45 degrees needs 30x30 pixels or so, and twice that at zoom 0.5."""
    frames = [
        jpeg_pipeline(ramps("png").index, batch_size=1, crop=20, **options).footprint.frame_nbytes
        for options in ({}, {"rotate": 90.0}, {"rotate": 90.0, "zoom": (0.5, 1.0)})
    ]
    assert frames[0] == 0
    assert 27**2 * 12 < frames[1] < 33**2 * 12
    assert 54**2 * 12 < frames[2] < 60**2 * 12


def test_arrays_that_are_not_used_are_not_sent(ramps: Ramps) -> None:
    cut = {"shape", "payload", "plan", "scaling", "row", "valid", "report"}
    for options, added in (
        ({}, set()),
        ({"crop": 8, "window": "random"}, set()),
        (REGION, set()),
        (SHORTER, {"part"}),
        (TURNED, {"affine"}),
    ):
        pipeline = fits_pipeline(ramps("plain").index, batch_size=1, **options)
        assert {spec.name for spec in pipeline.source.specs} == cut | added
