"""Operators of users in the graph, and random numbers for them and for Readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import solar_files
from astropy.io import fits
from epochs import HOW, by_row, check_pure, in_turns, new_loader
from fakes import ChoosingReader
from hypothesis import given, settings
from nvidia.dali import fn, types
from PIL import Image
from ramp_images import SEED, Archive, Samples
from read_here import read_here

from dali_pipelines import (
    Index,
    PipelineConfig,
    aia_pipeline,
    decode_array,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    reader_pipeline,
)
from readers import Draws
from readers.npy import NpyReader

Ramps = Callable[..., Archive]


@pytest.fixture
def index(ramps: Ramps) -> Index:
    """Images of npy, with three channels."""
    return ramps("npy").index


def delivered(factory: Any, index: Index, **options: Any) -> Samples:
    """Return all outputs of the first epoch by row."""
    found = read_here(factory, index, seed=SEED, **options)
    assert [*found] == list(range(len(index)))
    return found


# Outputs of Readers and decoders.


def test_the_matrix_of_aia_leads_to_the_registered_image(tmp_path: Path) -> None:
    for number in range(3):
        solar_files.save(tmp_path / f"{number}.fits", *solar_files.frame())
    index = Index.scan(tmp_path)
    whole = delivered(aia_pipeline, index, size=128, order=1)
    options: dict[str, Any] = {"crop": 32, "window": "random", "flip": "hv"}
    found = delivered(aia_pipeline, index, size=128, order=1, outputs=("matrix",), **options)
    for row, sample in found.items():
        y, x = np.mgrid[:32, :32]
        places = np.stack((x, y, np.ones_like(x)), axis=-1) @ sample["matrix"].T
        across, down = np.moveaxis(places.astype(int), -1, 0)
        truth = whole[row]["image"][0, down, across]
        np.testing.assert_allclose(sample["image"][0], truth, rtol=1e-4, atol=1e-2)


@dataclass(frozen=True)
class SizelessReader(NpyReader):
    """Does not say how large an image is."""

    regions: ClassVar[bool] = False


def test_a_reader_that_does_not_know_the_size_has_no_such_outputs(index: Index) -> None:
    config = PipelineConfig(batch_size=1, crop=8, outputs=("window",))
    with pytest.raises(ValueError, match=r"outputs window.*regions = True.*SizelessReader"):
        reader_pipeline(index, SizelessReader("float32", 3), decode_array, config)


def test_columns_may_not_have_the_names_of_outputs(index: Index) -> None:
    index = index.with_column("window", np.arange(len(index)))
    options: dict[str, Any] = {"channels": 3, "crop": 8, "columns": ("window",)}
    assert len(delivered(npy_pipeline, index, **options)) == 5
    with pytest.raises(ValueError, match=r"\['window'\].*another output.*rename"):
        npy_pipeline(index, batch_size=1, outputs=("window",), **options)


def test_outputs_of_decoders_have_names_of_their_own(index: Index) -> None:
    def decode(arrays: Any, config: PipelineConfig) -> Any:
        return decode_array(arrays, config)._replace(others={"shown": arrays["image"]})

    def shown(**options: Any) -> Any:
        config = PipelineConfig(batch_size=1, num_read_processes=0, **options)
        return reader_pipeline(index, NpyReader("float32", 3), decode, config)

    index = index.with_column("shown", np.arange(len(index)))
    shown().close()
    with pytest.raises(ValueError, match=r"columns \['shown'\].*another output"):
        shown(columns=("shown",))


# Operators of users.


def shaken(image: Any, chance: Any, config: PipelineConfig) -> Any:
    """Replace the image by numbers that say what was drawn."""
    del config
    drawn = [
        chance.uniform(),
        chance.uniform(10.0, 20.0),
        fn.cast(chance.bernoulli(0.25), dtype=types.FLOAT),
        fn.cast(chance.choice(7), dtype=types.FLOAT),
    ]
    numbers = fn.cat(fn.stack(*drawn), chance.fractions(2), axis=0)
    return image[0:1, 0:1, 0:1] * 0 + fn.reshape(numbers, shape=[1, 6, 1])


def numbers_of(sample: dict[str, np.ndarray]) -> np.ndarray:
    return sample["image"].reshape(-1)


def test_the_numbers_are_those_of_the_row(index: Index) -> None:
    options: dict[str, Any] = {"channels": 3, "crop": 8, "transform": shaken}
    found = delivered(npy_pipeline, index, **options)
    for row, sample in found.items():
        words = Draws.of(SEED, 0, row).graph_fractions(6)
        expected = [words[0], 10 + 10 * words[1], words[2] < 0.25, int(words[3] * 7), *words[4:]]
        np.testing.assert_allclose(numbers_of(sample)[:6], expected, rtol=1e-6)


def test_the_numbers_do_not_depend_on_how_samples_are_read(index: Index) -> None:
    options: dict[str, Any] = {"channels": 3, "crop": 8, "transform": shaken}
    expected = delivered(npy_pipeline, index, **options)

    @settings(max_examples=6)
    @given(HOW)
    def pure(how: dict[str, int]) -> None:
        check_pure(partial(read_here, npy_pipeline, index), how, expected, **options)

    pure()
    turns = ({"batch_size": 2}, {"batch_size": 1}, {"batch_size": 3, "num_read_processes": 2})
    found = in_turns(npy_pipeline, index, turns, **options)
    for row, sample in expected.items():
        np.testing.assert_array_equal(found[row]["image"], sample["image"])


def doubled(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return image * 2 + 1


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Images of 8 bits and of 16."""
    folder = tmp_path_factory.mktemp("mixed")
    pixels = np.random.default_rng(0).integers(0, 255, (4, 30, 40))
    for number in range(4):
        values = pixels[number] * (257 if number % 2 else 1)
        Image.fromarray(values.astype(np.uint16 if number % 2 else np.uint8)).save(
            folder / f"{number}.png"
        )
    return Index.scan(folder)


@pytest.mark.parametrize(
    ("channels", "options"),
    [
        (1, {}),
        (3, {"crop": (20, 16), "window": "random", "flip": "hv"}),
        (1, {"resize": 16, "flip": "h", "mean": 3.0, "std": 2.0}),
        (3, {"crop": 16, "rotate": 20.0}),
        (3, {"mean": 3.0, "std": 2.0}),
        (1, {"dtype": "float16"}),
    ],
    ids=str,
)
def test_the_place_of_the_operators(mixed: Index, channels: int, options: dict[str, Any]) -> None:
    """After the geometry, before mean and std, for images of any depth."""
    plain = {name: value for name, value in options.items() if name not in ("mean", "std")}
    before = delivered(jpeg_pipeline, mixed, channels=channels, **plain)
    after = delivered(jpeg_pipeline, mixed, channels=channels, transform=doubled, **options)
    mean, std = options.get("mean", 0.0), options.get("std", 1.0)
    for row, sample in after.items():
        assert sample["image"].dtype == (np.float16 if "dtype" in options else np.float32)
        pixels = before[row]["image"].astype(np.float32)
        expected = (pixels * 2 + 1 - mean) / std
        if "dtype" in options:
            expected = np.where(expected > 65504, np.inf, expected)
        np.testing.assert_allclose(
            sample["image"], expected, rtol=2e-3 if "dtype" in options else 1e-5
        )


def inverted(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance
    assert config.dtype == "uint8"
    return fn.cast(255 - image, dtype=types.UINT8)


def test_images_of_8_bits_may_stay_so(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "0.png")
    index = Index.scan(tmp_path)
    found = delivered(jpeg_pipeline, index, dtype="uint8", transform=inverted)
    np.testing.assert_array_equal(found[0]["image"], 255 - pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("planes", [None, (0, 2)])
def test_physical_values_of_fits(tmp_path: Path, planes: tuple[int, ...] | None) -> None:
    cube = np.random.default_rng(0).normal(size=(3, 20, 30)).astype(np.float32)
    fits.writeto(tmp_path / "0.fits", cube if planes else cube[0])
    options: dict[str, Any] = {"flip": "hv", "mean": 1.0, "std": 4.0, "crop": 16, "planes": planes}
    index = Index.scan(tmp_path)
    before = delivered(fits_pipeline, index, **{**options, "mean": None, "std": None})
    found = delivered(fits_pipeline, index, transform=doubled, **options)
    expected = (before[0]["image"] * 2 + 1 - 1) / 4
    np.testing.assert_allclose(found[0]["image"], expected, rtol=1e-5)


def with_negative(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return fn.cat(image, -image, axis=2)


@pytest.mark.parametrize("options", [{}, {"mean": 1.0, "std": 2.0}, {"dtype": "float16"}], ids=str)
def test_a_transform_may_add_channels(tmp_path: Path, options: dict[str, Any]) -> None:
    pixels = np.random.default_rng(0).integers(0, 99, (6, 5)).astype(np.float32)
    fits.writeto(tmp_path / "0.fits", pixels)
    found = delivered(fits_pipeline, Index.scan(tmp_path), transform=with_negative, **options)
    expected = (np.stack((pixels, -pixels)) - options.get("mean", 0)) / options.get("std", 1)
    np.testing.assert_array_equal(found[0]["image"], expected)


def as_type(kind: Any) -> Any:
    def convert(image: Any, chance: Any, config: PipelineConfig) -> Any:
        del chance, config
        return fn.cast(image + 0.5, dtype=kind)

    return convert


@pytest.mark.parametrize(
    ("channels", "kind", "dtype"),
    [
        (1, types.UINT8, "float32"),
        (1, types.INT32, "float16"),
        (1, types.FLOAT64, "uint8"),
        (1, types.FLOAT, "uint8"),
        (3, types.UINT8, "uint8"),
        (3, types.INT32, "float32"),
        (3, types.FLOAT64, "float16"),
        (3, types.FLOAT, "float32"),
    ],
)
def test_what_a_transform_returns_becomes_the_dtype(
    tmp_path: Path, channels: int, kind: Any, dtype: Any
) -> None:
    pixels = np.random.default_rng(0).integers(0, 254, (4, 6), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "0.png")
    options: dict[str, Any] = {"channels": channels, "dtype": dtype}
    found = delivered(jpeg_pipeline, Index.scan(tmp_path), transform=as_type(kind), **options)
    assert found[0]["image"].dtype == dtype
    assert found[0]["image"].shape == (channels, 4, 6)
    assert np.abs(found[0]["image"] - (pixels + 0.5)).max() <= 0.5


def middle(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return fn.crop(image, crop=(50, 50))


def test_batches_without_rows_have_room_for_a_transform(tmp_path: Path) -> None:
    for number in range(7):
        Image.new("L", (60, 60), number).save(tmp_path / f"{number}.png")
    options: dict[str, Any] = {"transform": middle, "num_read_processes": 2}
    with new_loader(
        jpeg_pipeline, Index.scan(tmp_path), channels=1, devices=[None, None], **options
    ) as loader:
        found = by_row(loader)
    assert sorted(found) == list(range(7))
    for row, sample in found.items():
        np.testing.assert_array_equal(sample["image"], np.full((1, 50, 50), row))


@pytest.mark.parametrize("tail", ["partial", "fill"])
def test_many_bad_rows_beside_whole_images(tmp_path: Path, tail: str) -> None:
    """More of them than rows that are tried for the size of a substitute."""
    for number in range(7):
        Image.new("L", (40, 30), number).save(tmp_path / f"good{number}.png")
    paths = [tmp_path / f"gone{number}.png" for number in range(70)]
    index = Index.concat([Index.scan(tmp_path), Index.from_paths(paths)])
    options: dict[str, Any] = {"batch_size": 77, "shuffle": False, "tail": tail}
    with new_loader(jpeg_pipeline, index, bad_sample="skip", **options) as loader:
        assert sorted(by_row(loader)) == list(range(7))


def random_noise(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return fn.noise.gaussian(image, stddev=2.0)


def random_angle(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return fn.rotate(image, angle=fn.random.uniform(range=(0.0, 1.0)) * 2)


def number(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del image, chance, config
    return 3


def multiplied(factor: Callable[[Any], Any]) -> Any:
    """Return a transform that multiplies the image by something random."""

    def transform(image: Any, chance: Any, config: PipelineConfig) -> Any:
        del config
        return image * factor(chance)

    return transform


@pytest.mark.parametrize(
    ("transform", "dtype", "message"),
    [
        (random_noise, "float32", "'random_noise' uses noise.Gaussian.*chance.uniform"),
        (random_angle, "float32", "'random_angle' uses random.Uniform"),
        (number, "float32", "'number' must return the image.*got 3"),
        ("lamp", "float32", r"transform must be a function of \(image, chance, config\)"),
        (doubled, "uint16", "uint16.*leave out transform, or choose float32"),
        (doubled, "int16", "int16.*leave out transform"),
        (doubled, "int32", "int32.*leave out transform"),
        (multiplied(lambda chance: chance.bernoulli(-0.1)), "float32", r"p must.*0 to 1.*-0\.1"),
        (multiplied(lambda chance: chance.bernoulli(1.1)), "float32", r"p must.*0 to 1.*1\.1"),
        (multiplied(lambda chance: chance.bernoulli(np.nan)), "float32", "p must.*0 to 1.*nan"),
        (multiplied(lambda chance: chance.uniform((0, 1))), "float32", "uniform.*two numbers"),
        (multiplied(lambda chance: chance.uniform("1")), "float32", "uniform.*two numbers.*'1'"),
        (multiplied(lambda chance: chance.fractions(0)), "float32", "count.*at least 1.*0"),
        (multiplied(lambda chance: chance.fractions(1.5)), "float32", r"count.*at least 1.*1\.5"),
        (multiplied(lambda chance: chance.choice(0)), "float32", "count.*from 1.*0"),
        (multiplied(lambda chance: chance.choice(1 << 17)), "float32", "count.*from 1.*131072"),
        (multiplied(lambda chance: chance.choice(2.5)), "float32", r"count.*from 1.*2\.5"),
    ],
)
def test_transforms_that_are_an_error(
    index: Index, transform: Any, dtype: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        npy_pipeline(index, channels=3, batch_size=1, dtype=dtype, transform=transform)


def test_a_transform_cannot_look_at_values(index: Index) -> None:
    def branches(image: Any, chance: Any, _: Any) -> Any:
        return image * 2 if chance.bernoulli() else image

    with pytest.raises(TypeError) as caught:
        npy_pipeline(index, channels=3, batch_size=1, crop=8, transform=branches)
    (note,) = caught.value.__notes__
    assert note.startswith("transform '")
    assert "DALI's operators" in note


def test_mode_eval_is_without_chance(index: Index) -> None:
    options: dict[str, Any] = {"channels": 3, "crop": 8, "mode": "eval"}
    with pytest.raises(ValueError, match=r"mode 'eval'.*random numbers"):
        npy_pipeline(index, batch_size=1, transform=shaken, **options)
    found = delivered(npy_pipeline, index, transform=doubled, **options)
    plain = delivered(npy_pipeline, index, **options)
    for row, sample in found.items():
        np.testing.assert_array_equal(sample["image"], plain[row]["image"] * 2 + 1)


# A Reader's own choices.


def choosing_pipeline(index: Index, **options: Any) -> Any:
    reader = ChoosingReader("float32", 3)
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**options))


def test_a_reader_gets_numbers_of_the_row(index: Index) -> None:
    for row, sample in delivered(choosing_pipeline, index, crop=4).items():
        expected = Draws.of(SEED, 0, row).fractions(3)
        np.testing.assert_allclose(sample["image"][:, 0, 0], expected, rtol=1e-6)
    for sample in delivered(choosing_pipeline, index, crop=4, mode="eval").values():
        assert np.all(sample["image"] == -1)
