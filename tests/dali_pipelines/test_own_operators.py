"""Operators of users in the graph, random numbers for them, and where samples lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import solar_files
from astropy.io import fits
from fakes import ChoosingReader
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import fn, types
from PIL import Image
from read_here import read_here

from dali_pipelines import (
    Index,
    Loader,
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

SEED = 5
SHAPES = [(150, 200), (200, 150), (131, 333), (90, 90), (400, 301)]
GEOMETRIES: dict[str, dict[str, Any]] = {
    "whole, resized": {"resize": (60, 50)},
    "window": {"crop": (40, 56), "window": "random"},
    "window, resized": {"crop": (80, 60), "window": "random", "resize": (20, 30)},
    "centre": {"crop": (40, 56)},
    "region": {"random_area": (0.08, 1.0), "resize": (40, 56)},
    "shorter": {"resize_shorter": 64, "crop": (40, 56), "window": "random"},
    "enlarged": {"resize_shorter": 500, "crop": (300, 200)},
    "turned": {"crop": (40, 56), "window": "random", "rotate": 30.0, "zoom": (0.8, 2.0)},
    "turned, resized": {"crop": (40, 56), "rotate": 90.0, "zoom": (2, 3), "resize": (60, 50)},
}


@pytest.fixture(scope="module")
def ramps(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Images whose pixels hold their own x, y and 1."""
    folder = tmp_path_factory.mktemp("ramps")
    for number, shape in enumerate(SHAPES):
        y, x = np.mgrid[: shape[0], : shape[1]].astype(np.float32)
        np.save(folder / f"{number}.npy", np.stack((x, y, np.ones_like(x)), axis=-1))
    return Index.scan(str(folder / "*.npy"))


def new_loader(factory: Any, index: Index, **options: Any) -> Loader:
    options = {"batch_size": 2, "num_read_processes": 1, "devices": [None], **options}
    return Loader(factory, index, seed=SEED, **options)


def delivered(factory: Any, index: Index, **options: Any) -> dict[int, dict[str, np.ndarray]]:
    """Return all outputs of the first epoch by row."""
    found = read_here(factory, index, seed=SEED, **options)
    assert [*found] == list(range(len(index)))
    return found


# Where samples lie.


@pytest.mark.parametrize("case", GEOMETRIES)
def test_the_matrix_leads_to_the_pixels_of_the_image(ramps: Index, case: str) -> None:
    options = {"flip": "hv", "channels": 3, "batch_size": 1, **GEOMETRIES[case]}
    found = delivered(npy_pipeline, ramps, outputs=("window", "flip", "matrix"), **options)
    turned = "rotate" in options
    for row, sample in found.items():
        image = sample["image"].transpose(1, 2, 0)
        height, width = image.shape[:2]
        y, x = np.mgrid[:height, :width]
        places = np.stack((x, y, np.ones_like(x)), axis=-1) @ sample["matrix"].T
        inside = (places >= 2).all(-1) & (places <= np.array(SHAPES[row])[::-1] - 3).all(-1)
        inside[[0, -1]] = inside[:, [0, -1]] = False  # filters are cut there
        inside &= np.abs(image[..., 2] - 1) < 1e-3  # without what lies outside the image
        assert inside.mean() > (0.1 if turned else 0.8)
        np.testing.assert_allclose(image[..., :2][inside], places[inside], atol=0.1)
        draws = Draws.of(SEED, 0, row)
        assert sample["flip"].tolist() == [draws.horizontal, draws.vertical]
        # Its centre is that of the window.
        middle = sample["matrix"] @ ((width - 1) / 2, (height - 1) / 2, 1)
        start, size = sample["window"][:2], sample["window"][2:]
        np.testing.assert_allclose(middle[::-1] + 0.5, start + size / 2, atol=1e-3)


def test_a_window_without_resampling_is_cut_out(ramps: Index) -> None:
    outputs = ("matrix", "window")
    found = delivered(
        npy_pipeline, ramps, crop=(9, 7), window="random", channels=3, outputs=outputs
    )
    for sample in found.values():
        y, x, height, width = sample["window"].tolist()
        assert (height, width) == (9, 7)
        assert sample["image"][:, 0, 0].tolist() == [x, y, 1]
        assert sample["matrix"].tolist() == [[1, 0, x], [0, 1, y]]


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


def test_outputs_of_rows_that_are_bad_have_the_shape_of_the_others(tmp_path: Path) -> None:
    for number in range(4):
        Image.new("RGB", (40, 30)).save(tmp_path / f"{number}.png")
    (tmp_path / "2.png").write_bytes(b"no image")
    with new_loader(
        jpeg_pipeline, Index.scan(tmp_path), outputs=("window", "matrix"), bad_sample="skip"
    ) as loader:
        rows = [row for (batch,) in loader for row in batch["row"].tolist()]
        assert sorted(rows) == [0, 1, 3]


def test_outputs_are_named(ramps: Index) -> None:
    for outputs, message in (
        ("window", "outputs must be names in a tuple"),
        (("windows",), "any of window, flip, matrix"),
        (("window", "window"), "once each"),
    ):
        with pytest.raises(ValueError, match=message):
            new_loader(npy_pipeline, ramps, channels=3, outputs=outputs)


@dataclass(frozen=True)
class SizelessReader(NpyReader):
    """Does not say how large an image is."""

    regions: ClassVar[bool] = False


def sizeless_pipeline(index: Index, **options: Any) -> Any:
    reader = SizelessReader("float32", 3)
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**options))


def test_a_reader_that_does_not_know_the_size_has_no_such_outputs(ramps: Index) -> None:
    with pytest.raises(ValueError, match="SizelessReader has neither regions = True nor"):
        sizeless_pipeline(ramps, batch_size=1, crop=8, outputs=("window",))


def test_columns_may_not_have_the_names_of_outputs(ramps: Index) -> None:
    index = ramps.with_column("window", np.arange(len(ramps)))
    assert len(delivered(npy_pipeline, index, channels=3, crop=8, columns=("window",))) == 5
    options: dict[str, Any] = {"columns": ("window",), "outputs": ("window",), "crop": 8}
    with pytest.raises(ValueError, match=r"\['window'\] have the name of another output"):
        npy_pipeline(index, channels=3, batch_size=1, **options)


def shown_pipeline(index: Index, **options: Any) -> Any:
    def decode(arrays: Any, config: PipelineConfig) -> Any:
        return decode_array(arrays, config)._replace(others={"shown": arrays["image"]})

    return reader_pipeline(index, NpyReader("float32", 3), decode, PipelineConfig(**options))


def test_outputs_of_decoders_have_names_of_their_own(ramps: Index) -> None:
    index = ramps.with_column("shown", np.arange(len(ramps)))
    shown_pipeline(index, batch_size=1, num_read_processes=0).close()
    with pytest.raises(ValueError, match=r"columns \['shown'\] have the name of another output"):
        shown_pipeline(index, batch_size=1, columns=("shown",))


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


def test_the_numbers_are_those_of_the_row(ramps: Index) -> None:
    options: dict[str, Any] = {"channels": 3, "crop": 8, "transform": shaken}
    found = delivered(npy_pipeline, ramps, **options)
    for row, sample in found.items():
        words = Draws.of(SEED, 0, row).graph_fractions(6)
        expected = [words[0], 10 + 10 * words[1], words[2] < 0.25, int(words[3] * 7), *words[4:]]
        np.testing.assert_allclose(numbers_of(sample)[:6], expected, rtol=1e-6)


how = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 6),
        "num_shards": st.integers(1, 3),
        "num_read_processes": st.integers(1, 3),
    }
)


def test_the_numbers_do_not_depend_on_how_samples_are_read(ramps: Index) -> None:
    options: dict[str, Any] = {"channels": 3, "crop": 8, "transform": shaken}
    truth = delivered(npy_pipeline, ramps, **options)

    @settings(max_examples=6)
    @given(how, st.integers(0, 2))
    def check(how: dict[str, int], stop: int) -> None:
        found: dict[int, np.ndarray] = {}
        states = []
        for shard in range(how["num_shards"]):
            with new_loader(
                npy_pipeline, ramps, **options, **{**how, "batch_size": 1}, shard_id=shard
            ) as loader:
                for step, (batch,) in enumerate(loader, 1):
                    found |= zip(batch["row"].tolist(), batch["image"].numpy(), strict=True)
                    if step == stop:
                        break
                states.append(loader.state_dict())
        for shard in range(how["num_shards"]):
            with new_loader(npy_pipeline, ramps, **options, **how, shard_id=shard) as loader:
                loader.load_state_dict(states[shard])
                while loader.epoch == 0:
                    for (batch,) in loader:
                        found |= zip(batch["row"].tolist(), batch["image"].numpy(), strict=True)
        assert sorted(found) == list(range(len(truth)))
        for row, image in found.items():
            assert np.array_equal(image, truth[row]["image"])

    check()


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
    "options",
    [
        {},
        {"crop": (20, 16), "window": "random", "flip": "hv"},
        {"resize": 16, "flip": "h"},
        {"crop": 16, "rotate": 20.0},
        {"mean": 3.0, "std": 2.0},
        {"dtype": "float16"},
    ],
    ids=str,
)
@pytest.mark.parametrize("channels", [1, 3])
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
    assert np.array_equal(found[0]["image"], 255 - pixels.transpose(2, 0, 1))


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
    assert np.array_equal(found[0]["image"], expected)


def as_type(kind: Any) -> Any:
    def convert(image: Any, chance: Any, config: PipelineConfig) -> Any:
        del chance, config
        return fn.cast(image + 0.5, dtype=kind)

    return convert


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", [types.UINT8, types.INT32, types.FLOAT64, types.FLOAT])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
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
    options: dict[str, Any] = {"transform": middle, "batch_size": 3, "devices": [None, None]}
    with new_loader(jpeg_pipeline, Index.scan(tmp_path), channels=1, **options) as loader:
        batches = [batch for step in loader for batch in step]
    images = {
        row: image
        for one in batches
        for row, image in zip(one["row"].tolist(), one["image"], strict=True)
    }
    assert sorted(images) == list(range(7))
    for row, image in images.items():
        assert image.shape == (1, 50, 50)
        assert (image == row).all()


def test_many_bad_rows_beside_whole_images(tmp_path: Path) -> None:
    """More of them than rows that are tried for the size of a substitute."""
    for number in range(7):
        Image.new("L", (40, 30), number).save(tmp_path / f"good{number}.png")
    paths = [tmp_path / f"gone{number}.png" for number in range(70)]
    index = Index.concat([Index.scan(tmp_path), Index.from_paths(paths)])
    for tail in ("partial", "fill"):
        options: dict[str, Any] = {"batch_size": 77, "shuffle": False, "tail": tail}
        with new_loader(jpeg_pipeline, index, bad_sample="skip", **options) as loader:
            rows = [row for (batch,) in loader for row in batch["row"][batch["valid"]].tolist()]
        assert sorted(rows) == list(range(7))


def random_noise(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return fn.noise.gaussian(image, stddev=2.0)


def random_angle(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return fn.rotate(image, angle=fn.random.uniform(range=(0.0, 1.0)) * 2)


def number(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del image, chance, config
    return 3


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (random_noise, r"transform 'random_noise' uses noise.Gaussian.*chance.uniform"),
        (random_angle, r"transform 'random_angle' uses random.Uniform"),
        (number, "transform 'number' must return the image, a DataNode of DALI, got 3"),
        ("lamp", r"transform must be a function of \(image, chance, config\)"),
    ],
)
def test_what_cannot_be_a_transform(ramps: Index, transform: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        npy_pipeline(ramps, channels=3, batch_size=1, crop=8, transform=transform)


@pytest.mark.parametrize("dtype", ["uint16", "int16", "int32"])
def test_stored_integers_stay_what_they_are(ramps: Index, dtype: Any) -> None:
    with pytest.raises(ValueError, match="leave out transform, or choose float32"):
        npy_pipeline(ramps, channels=3, batch_size=1, dtype=dtype, transform=doubled)


def test_chance_has_limits(ramps: Index) -> None:
    def asks(ask: Any) -> Any:
        return npy_pipeline(ramps, channels=3, batch_size=1, crop=8, transform=ask)

    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="p must be a number from 0 to 1"):
            asks(lambda image, chance, _, p=p: image * chance.bernoulli(p))
    for least in ((0.6, 1.4), None, "1"):
        with pytest.raises(TypeError, match="uniform takes two numbers or DataNodes, got"):
            asks(lambda image, chance, _, least=least: image * chance.uniform(least))
    for count in (-1, 0, 1.5):
        with pytest.raises(ValueError, match="count must be an integer, at least 1"):
            asks(lambda image, chance, _, count=count: image * chance.fractions(count)[0])
    for count in (0, 1 << 17, 2.5):
        with pytest.raises(ValueError, match="count must be an integer from 1"):
            asks(lambda image, chance, _, count=count: image * chance.choice(count))


def test_a_transform_cannot_look_at_values(ramps: Index) -> None:
    def branches(image: Any, chance: Any, _: Any) -> Any:
        return image * 2 if chance.bernoulli() else image

    with pytest.raises(TypeError) as caught:
        npy_pipeline(ramps, channels=3, batch_size=1, crop=8, transform=branches)
    (note,) = caught.value.__notes__
    assert note.startswith("transform '")
    assert "adds operators for all samples at once" in note


def test_mode_eval_is_without_chance(ramps: Index) -> None:
    options: dict[str, Any] = {"channels": 3, "crop": 8, "mode": "eval"}
    with pytest.raises(ValueError, match="mode 'eval' is without chance"):
        npy_pipeline(ramps, batch_size=1, transform=shaken, **options)
    found = delivered(npy_pipeline, ramps, transform=doubled, **options)
    plain = delivered(npy_pipeline, ramps, **options)
    for row, sample in found.items():
        assert np.array_equal(sample["image"], plain[row]["image"] * 2 + 1)


# A Reader's own choices.


def choosing_pipeline(index: Index, **options: Any) -> Any:
    reader = ChoosingReader("float32", 3)
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**options))


def test_a_reader_gets_numbers_of_the_row(ramps: Index) -> None:
    for row, sample in delivered(choosing_pipeline, ramps, crop=4).items():
        expected = Draws.of(SEED, 0, row).fractions(3)
        np.testing.assert_allclose(sample["image"][:, 0, 0], expected, rtol=1e-6)
    for sample in delivered(choosing_pipeline, ramps, crop=4, mode="eval").values():
        assert np.all(sample["image"] == -1)
