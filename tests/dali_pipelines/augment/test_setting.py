"""The setting `augment`: purity of what it does to samples, and values that make no sense."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import solar_files
from astropy.io import fits
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nvidia.dali import fn
from PIL import Image

from dali_pipelines import (
    AugMix,
    AutoAugment,
    Blur,
    ColorJitter,
    Erase,
    Index,
    Loader,
    Mask,
    Noise,
    PhotonNoise,
    PipelineConfig,
    RandAugment,
    RandomGrayscale,
    TrivialAugment,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)
from dali_pipelines.memory import estimate_memory

NUM_ROWS = 7
COLORS = (ColorJitter(0.4, 0.4, 0.4, 0.1), RandomGrayscale(0.5))
POLICIES = (TrivialAugment(), RandAugment(2, 9), AutoAugment(), AugMix())
PARTS = (Blur(5, p=0.5), Erase(0.7, value=9), Noise((1, 9)), PhotonNoise(2.0, 1.0))
EVERYTHING = (*COLORS, *POLICIES, *PARTS)
NOWHERE = Index.from_paths(["/nowhere/0.fits"])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for row in range(NUM_ROWS):
        pixels = random.integers(0, 256, (20, 24, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    return Index.scan(folder)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("arrays")
    for row in range(NUM_ROWS):
        np.save(folder / f"{row}.npy", np.full((20, 24), 1000 * row, np.float32))
    return Index.scan(folder)


def images_of(factory: Any, index: Index, steps: int, **options: Any) -> Iterator[tuple[int, Any]]:
    """Yield row and image of the first steps of a pipeline, without reader processes."""
    pipeline = factory(index, num_read_processes=0, crop=16, window="random", flip="hv", **options)
    pipeline.build()
    for _ in range(steps):
        image, row, valid, *_ = pipeline.run()
        for number in range(len(row)):
            if np.array(valid.at(number)):
                yield int(np.array(row.at(number))), np.array(image.at(number))
    pipeline.close()


@settings(max_examples=6)
@given(
    batch_size=st.integers(1, 8),
    num_shards=st.integers(1, 3),
    position=st.integers(0, NUM_ROWS - 1),
    epoch=st.integers(0, 2),
    dtype=st.sampled_from(("float32", "uint8")),
)
@example(batch_size=7, num_shards=1, position=0, epoch=1, dtype="float32")
def test_images_are_those_of_any_batch_shard_and_resume(
    photos: Index, batch_size: int, num_shards: int, position: int, epoch: int, dtype: str
) -> None:
    options: dict[str, Any] = {"augment": EVERYTHING, "seed": 3, "dtype": dtype, "tail": "partial"}
    expected = dict(
        images_of(jpeg_pipeline, photos, NUM_ROWS, batch_size=1, epoch=epoch, **options)
    )
    assert len(expected) == NUM_ROWS
    found: dict[int, Any] = {}
    left = NUM_ROWS - position
    for shard in range(num_shards):
        found |= dict(
            images_of(
                jpeg_pipeline,
                photos,
                -(-left // (batch_size * num_shards)),
                **{**options, "batch_size": batch_size, "epoch": epoch, "position": position},
                num_shards=num_shards,
                shard_id=shard,
            )
        )
    assert len(found) == left
    for row, image in found.items():
        np.testing.assert_array_equal(image, expected[row])


def test_each_epoch_and_row_is_another(photos: Index) -> None:
    found = [
        dict(images_of(jpeg_pipeline, photos, 1, batch_size=7, epoch=epoch, augment=EVERYTHING))
        for epoch in (0, 1)
    ]
    for row in range(NUM_ROWS):
        assert not np.array_equal(found[0][row], found[1][row])


def test_eval_leaves_images_as_they_are(photos: Index) -> None:
    found = [
        dict(images_of(jpeg_pipeline, photos, 1, batch_size=7, mode="eval", augment=augment))
        for augment in (EVERYTHING, ())
    ]
    for row in range(NUM_ROWS):
        np.testing.assert_array_equal(found[0][row], found[1][row])
    assert not PipelineConfig(batch_size=1, mode="eval", augment=EVERYTHING).has_own_operators


def test_without_augmentations_there_are_no_operators(photos: Index) -> None:
    for augment, draws in (((), None), ((Blur(3),), 1)):
        pipeline = jpeg_pipeline(photos, batch_size=2, augment=augment)
        assert pipeline.source.num_draws == draws
        names = {spec.name for spec in pipeline.source.specs}
        assert ("draws" in names) == (draws is not None)


def test_they_come_before_transform_and_mean(arrays: Index) -> None:
    seen = []

    def lamp(image: Any, _chance: Any, _config: Any) -> Any:
        seen.append(image)
        return image + 1

    options: dict[str, Any] = {"augment": (ColorJitter(brightness=(2, 2)),), "transform": lamp}
    images = dict(images_of(npy_pipeline, arrays, 1, batch_size=7, mean=1, std=10, **options))
    for row, image in images.items():
        np.testing.assert_allclose(image, 2000 * row / 10, rtol=1e-6)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_images_of_16_bits_are_rejected(tmp_path: Path, mode: Any) -> None:
    Image.fromarray(np.full((20, 20), 300, np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray(np.full((20, 20), 30, np.uint8)).save(tmp_path / "flat.png")
    options: dict[str, Any] = {"batch_size": 2, "num_read_processes": 1, "bad_sample": "skip"}
    options["mode"] = mode
    for augment, num_rejected in ((COLORS, 1), (PARTS, 0)):
        with Loader(
            jpeg_pipeline, Index.scan(tmp_path), crop=16, devices=[None], augment=augment, **options
        ) as loader:
            rows = [row for (batch,) in loader for row in batch["row"].tolist()]
            assert len(rows) == 2 - num_rejected
            assert len(loader.stats.rejected) == num_rejected
            for bad in loader.stats.rejected.values():
                assert re.search("16 bits.*8.*ColorJitter, RandomGrayscale.*leave", bad.reason)


@pytest.mark.parametrize(
    ("one", "factory"),
    [
        (RandomGrayscale(), npy_pipeline),
        (RandomGrayscale(), fits_pipeline),
        (ColorJitter(saturation=0.1), npy_pipeline),
        (ColorJitter(hue=0.1), fits_pipeline),
        *((policy, npy_pipeline) for policy in POLICIES),
    ],
)
def test_values_without_a_range(arrays: Index, factory: Any, one: Any) -> None:
    with pytest.raises(ValueError, match=r"8 bits.*jpeg_pipeline.*leave it out.*Erase, Blur"):
        factory(arrays, batch_size=1, augment=(one,))


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (ColorJitter, {}, "brightness, contrast"),
    (ColorJitter, {"brightness": -1}, "brightness.*from 0.*-1"),
    (ColorJitter, {"contrast": (2, 1)}, r"contrast.*\(lowest, highest\).*\(2, 1\)"),
    (ColorJitter, {"hue": 0.6}, r"hue.*0\.5.*0\.6"),
    (ColorJitter, {"hue": (-0.6, 0.1)}, r"hue.*-0\.5 to 0\.5.*-0\.6"),
    (ColorJitter, {"saturation": math.nan}, "saturation.*number.*nan"),
    (RandomGrayscale, {"p": 1.5}, r"p must.*0 to 1.*1\.5"),
    (Blur, {"kernel_size": 4}, "kernel_size.*odd.*4"),
    (Blur, {"kernel_size": 0}, "kernel_size.*integer.*0"),
    (Blur, {"kernel_size": 10001}, "kernel_size.*1 to 1023.*10001"),
    (Blur, {"kernel_size": 3, "sigma": 0}, r"sigma.*0\.001.*0"),
    (Noise, {"std": -1}, "std.*from 0.*-1"),
    (Noise, {"std": 1e39}, r"std.*1e\+39"),
    (Noise, {"std": True}, "std.*True"),
    (Noise, {"std": b"12"}, "std.*b'12'"),
    (PhotonNoise, {"gain": 0}, "gain.*1e-30.*0"),
    (PhotonNoise, {"gain": 1, "read_noise": -1}, "read_noise.*from 0.*-1"),
    (Erase, {"scale": (0.5, 1.2)}, r"scale.*0 to 1.*1\.2"),
    (Erase, {"ratio": (0, 1)}, r"ratio.*0\.001.*\(0, 1\)"),
    (Erase, {"value": "red"}, "value.*number.*'r'"),
    (Erase, {"value": 1e39}, r"value.*number.*1e\+39"),
    (RandAugment, {"num_ops": 0}, "num_ops.*integer.*0"),
    (RandAugment, {"num_ops": 50}, "num_ops.*1 to 16.*50"),
    (RandAugment, {"magnitude": 31}, "magnitude.*num_magnitude_bins.*31"),
    (RandAugment, {"interpolation": "cubic"}, "interpolation.*'nearest', 'bilinear'.*'cubic'"),
    (TrivialAugment, {"num_magnitude_bins": 1}, "num_magnitude_bins.*integer.*1"),
    (TrivialAugment, {"num_magnitude_bins": 3000}, "num_magnitude_bins.*2 to 1000.*3000"),
    (TrivialAugment, {"fill": 300}, "fill.*0 to 255.*300"),
]


@pytest.mark.parametrize(("augmentation", "settings", "message"), WRONG)
def test_values_that_make_no_sense(
    augmentation: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        augmentation(**settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"augment": Blur(3)}, r"augment.*tuple.*\(Blur\(3\),\)"),
        ({"augment": "Blur"}, "augment.*tuple.*'Blur'"),
        ({"augment": (Blur,)}, r"augmentations.*Blur\(...\)"),
        ({"augment": (3,)}, r"augmentations.*Blur\(3\).*3"),
        ({"augment": PARTS, "dtype": "uint16"}, "augment.*float32.*uint8"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineConfig(batch_size=1, **options)


@pytest.mark.parametrize(
    "others", [{"targets": {"mask": Mask("mask_path")}}, {"outputs": ("matrix",)}], ids=str
)
@pytest.mark.parametrize("one", POLICIES)
def test_what_moves_pixels_goes_without_targets(one: Any, others: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{type(one).__name__}.*shears"):
        PipelineConfig(batch_size=1, augment=(ColorJitter(0.1), one), **others)
    PipelineConfig(batch_size=1, augment=(ColorJitter(0.1), one), mode="eval", **others)
    PipelineConfig(batch_size=1, augment=(ColorJitter(0.1), Erase()), **others)


def test_erased_pixels_of_uint8_are_rounded(tmp_path: Path) -> None:
    Image.fromarray(np.full((20, 20), 30, np.uint8)).save(tmp_path / "0.png")
    index = Index.scan(tmp_path)
    options: dict[str, Any] = {"batch_size": 1, "num_read_processes": 1}
    erase: dict[str, Any] = {"dtype": "uint8", "augment": (Erase(1, value=123.675),)}
    with Loader(jpeg_pipeline, index, devices=[None], **erase, **options) as loader:
        pixels = next(iter(loader))[0]["image"].numpy()
    assert np.unique(pixels).tolist() == [30, 124]
    for value in (-1, 255.5):
        erase["augment"] = (Erase(value=value),)
        with pytest.raises(ValueError, match=r"value.*Erase.*'uint8'"):
            jpeg_pipeline(index, **erase, **options)


def test_each_channel_needs_its_value(photos: Index) -> None:
    with pytest.raises(ValueError, match=r"value.*Erase.*one number, or 3"):
        jpeg_pipeline(photos, batch_size=1, augment=(Erase(value=(1, 2)),))


def test_random_operators_of_dali_are_no_augmentations(photos: Index) -> None:
    class Grain:
        of_8_bits, moves_pixels, num_images = False, False, 1

        def add(self, image: Any, _chance: Any, _kind: Any) -> Any:
            return fn.noise.gaussian(image, stddev=3.0)

    with pytest.raises(ValueError, match=r"Grain.*noise\.Gaussian"):
        jpeg_pipeline(photos, batch_size=1, augment=(Grain(),))


def test_their_images_count_in_the_estimate_of_memory(photos: Index) -> None:
    plain, more = (
        estimate_memory(
            [jpeg_pipeline(photos, batch_size=2, num_read_processes=1, augment=augment)]
        )
        for augment in ((), EVERYTHING)
    )
    held = sum(one.num_images for one in EVERYTHING)
    assert more.images - plain.images == 2 * 2 * held * 20 * 24 * 3 * 4


def test_aia_takes_those_for_any_values(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ColorJitter.*saturation.*8 bits"):
        aia_pipeline(NOWHERE, batch_size=1, size=64, augment=COLORS)
    pixels, header = solar_files.frame()
    index = Index.from_paths([solar_files.save(tmp_path / "a.fits", pixels, header)])
    found = []
    for factor in (1.5, 3.0):
        augment = (ColorJitter(brightness=(factor, factor)),)
        pipeline = aia_pipeline(
            index, batch_size=1, size=64, num_read_processes=0, augment=augment, flip="hv"
        )
        pipeline.build()
        found.append(np.array(pipeline.run()[0].at(0)))
    assert found[0].shape == (1, 64, 64)
    assert np.nanstd(found[0]) > 0
    np.testing.assert_allclose(found[1], 2 * found[0], rtol=1e-6)


def test_photons_of_fits(tmp_path: Path) -> None:
    pixels = np.full((200, 100), 50, np.float32)
    pixels[:, ::4] = np.nan
    fits.PrimaryHDU(pixels).writeto(tmp_path / "a.fits")
    pipeline = fits_pipeline(
        Index.scan(tmp_path), batch_size=1, num_read_processes=0, augment=(PhotonNoise(2.0, 3.0),)
    )
    pipeline.build()
    image = np.array(pipeline.run()[0].at(0))[0]
    np.testing.assert_array_equal(np.isnan(image), np.isnan(pixels))
    assert abs(np.nanmean(image) / 50 - 1) < 0.01
    assert abs(np.nanstd(image) / ((100 + 9) ** 0.5 / 2) - 1) < 0.03
