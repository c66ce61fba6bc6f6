"""Samples of several files, and of several times: each frame is the sample of its file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from epochs import by_row, check_equal, in_turns, new_loader
from numpy.typing import NDArray
from PIL import Image
from ramp_images import RESAMPLED, Archive, Samples, sample_of
from read_here import read_here

from dali_pipelines import (
    Blur,
    ColorJitter,
    Erase,
    Index,
    Mask,
    Noise,
    RandAugment,
    RandomGrayscale,
    ReadError,
    TrivialAugment,
    fits_pipeline,
    jpeg_pipeline,
)
from dali_pipelines.memory import estimate_memory

Ramps = Callable[..., Archive]

SHAPE = 40, 50
CHANNELS = ("171", "193")
OFFSETS = ("-12min", "0", "+12min")
NUMBERS = 7
GONE = (193, 3)
"""Channel and number of a frame that does not exist."""


@dataclass(frozen=True)
class Frames:
    """Frames of two channels every 12 minutes."""

    factory: Callable[..., Any]
    paths: dict[tuple[int, int], str]
    """By channel and number."""
    images: dict[str, NDArray[Any]]
    """By path."""
    settings: dict[str, Any]

    def files(self, gone: tuple[int, int] | None = GONE) -> Index:
        names = [name for name in self.paths if name != gone]
        table = {
            "path": [self.paths[name] for name in names],
            "wavelnth": [channel for channel, _ in names],
            "t_obs": pa.array([720 * number for _, number in names], pa.timestamp("s")),
        }
        return Index(pa.table(table))

    def sequences(self, gone: tuple[int, int] | None = GONE, missing: Any = "keep") -> Index:
        return self.files(gone).group([171, 193], offsets=OFFSETS, missing=missing)

    def samples(self, index: Index, **options: Any) -> Samples:
        return read_here(self.factory, index, **{"seed": 5, **self.settings, **options})

    def check(self, index: Index, **options: Any) -> Samples:
        """Compare each frame with the sample of its file; those that are missing are NaN, or 0."""
        found = self.samples(index, **options)
        assert sorted(found) == list(range(len(index)))
        dtype = np.dtype(options.pop("dtype", "float32"))
        for name in ("outputs", "channels"):
            options.pop(name, None)
        rtol = 1e-3 if dtype == np.float16 else 1e-6
        is_resampled = any(name in options for name in RESAMPLED) or "y" in index.table.column_names
        atol = 1.0 if is_resampled else 1e-3
        for row, sample in found.items():
            assert sample["image"].dtype == dtype
            frames = sample["image"].reshape(len(index.parts), -1, *sample["image"].shape[-2:])
            present = sample["present"].reshape(-1)
            for number, part in enumerate(index.parts):
                label = f"row {row}, part {part}"
                path = index.table[f"path_{part}"][row].as_py()
                assert bool(present[number]) == (path is not None), label
                if path is None:
                    missing = np.nan if dtype.kind == "f" else 0
                    np.testing.assert_array_equal(frames[number], missing, err_msg=label)
                    continue
                truth = self.truth(index, row, number, path, options)
                image = frames[number].transpose(1, 2, 0)
                np.testing.assert_allclose(image, truth.image, rtol, atol, err_msg=label)
                if "matrix" in sample:
                    np.testing.assert_allclose(sample["matrix"], truth.matrix, 1e-9, 1e-7)
        return found

    def truth(self, index: Index, row: int, number: int, path: str, options: Any) -> Any:
        own, image = dict(options), self.images[path]
        for name in {"mean", "std"} & own.keys():
            first = number % len(CHANNELS) * image.shape[2]
            own[name] = own[name][first : first + image.shape[2]]
        corner = None
        if own.get("window") == "row":
            corner = index.table["y"][row].as_py(), index.table["x"][row].as_py()
        return sample_of(image, row, corner, **own)


@pytest.fixture
def frames_of(ramps: Ramps) -> Callable[[str], Frames]:
    """Return the frames of a kind of archive; those of FITS are plain and compressed by turns."""
    shapes = (SHAPE,) * (2 * NUMBERS)

    def made(kind: str) -> Frames:
        archive, compressed = ramps(kind, shapes), ramps("RICE_1", shapes)
        paths, images = {}, {}
        for number in range(NUMBERS):
            for place, channel in enumerate((171, 193)):
                file = 2 * number + place
                source = compressed if kind == "plain" and number % 2 else archive
                paths[channel, number] = path = source.index.path(file)
                images[path] = source.images[file]
        return Frames(archive.factory, dict(sorted(paths.items())), images, archive.settings)

    return made


@pytest.fixture
def frames(frames_of: Callable[[str], Frames]) -> Frames:
    return frames_of("plain")


FramesOf = Callable[[str], Frames]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("plain", {}),
    ("plain", {"crop": (16, 20), "window": "random", "rotate": 30.0, "zoom": (0.5, 2.0)}),
    ("plain", {"resize": (12, 14), "flip": "v"}),
    ("png", {"crop": (16, 20), "window": "random", "flip": "hv", "outputs": ("matrix",)}),
    ("png", {"random_area": (0.1, 0.9), "resize": (12, 14), "flip": "hv"}),
    ("npy", {"resize_shorter": 24, "crop": 20, "window": "random", "flip": "h"}),
    ("npy", {"random_area": (0.1, 0.9), "resize": (12, 14), "outputs": ("matrix",)}),
    ("plain", {"dtype": "int16", "flip": "hv"}),
    ("png", {"dtype": "uint8", "flip": "h", "crop": 16}),
]


@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_each_frame_is_the_sample_of_its_file(
    frames_of: FramesOf, kind: str, options: dict[str, Any]
) -> None:
    """All under one geometry, in their places, with mean and std of their channel."""
    frames = frames_of(kind)
    index = frames.sequences()
    channels = 2 if kind == "plain" else 6
    if "dtype" not in options:
        stats = [10.0 * number for number in range(channels)]
        options = {**options, "mean": stats, "std": [1.0 + number for number in range(channels)]}
    found = frames.check(index, **options)
    assert found[0]["image"].shape[:2] == (3, channels)
    assert found[0]["present"].shape == (3, 2)
    assert not all(sample["present"].all() for sample in found.values())


CORNERS = np.array([[-5, 30, 8, 0, 33, -3, 2], [40, -6, 3, 0, 45, 7, 1]])


@pytest.mark.parametrize(
    ("kind", "corners", "outside"),
    [
        ("plain", CORNERS, "fill"),
        ("plain", CORNERS + 0.3, "shift"),
        ("png", CORNERS + 0.3, "fill"),
        ("npy", CORNERS, "shift"),
    ],
    ids=["plain", "plain, between", "png, between", "npy"],
)
def test_windows_across_edges(
    frames_of: FramesOf, kind: str, corners: NDArray[Any], outside: str
) -> None:
    frames = frames_of(kind)
    index = frames.sequences().with_column("y", corners[0]).with_column("x", corners[1])
    frames.check(index, crop=12, window="row", outside=outside, flip="hv")


@pytest.mark.parametrize("kind", ["plain", "png", "npy"])
def test_without_offsets_files_are_channels(frames_of: FramesOf, kind: str) -> None:
    frames = frames_of(kind)
    index = frames.files().group([171, 193], missing="keep")
    options: dict[str, Any] = {"crop": 16, "window": "random", "flip": "h", "dtype": "float16"}
    found = frames.check(index, **options)
    assert found[0]["image"].shape == (2 if kind == "plain" else 6, 16, 16)


def test_planes_are_channels_of_each_file(tmp_path: Path) -> None:
    cubes = np.random.default_rng(0).normal(0, 9, (5, 4, 12, 10)).astype(np.float32)
    for number, cube in enumerate(cubes):
        fits.PrimaryHDU(cube).writeto(tmp_path / f"{number}.fits")
    times = pa.array(range(0, 3600, 720), pa.timestamp("s"))
    table = Index.scan(tmp_path).table.append_column("t_obs", times)
    index = Index(table).group(offsets=("0", "-12min"))
    options: dict[str, Any] = {"mean": (1.0, 2.0), "std": (3.0, 4.0)}
    mean, std = (np.reshape(options[name], (2, 1, 1)) for name in ("mean", "std"))
    for row, sample in read_here(fits_pipeline, index, planes=(3, 1), **options).items():
        pair = np.stack((cubes[row + 1], cubes[row]))[:, [3, 1]]
        np.testing.assert_allclose(sample["image"], (pair - mean) / std, rtol=1e-5, atol=1e-5)
    for options, shape in (
        ({"planes": (3, 1), "resize": (6, 5)}, (2, 2, 6, 5)),
        ({"planes": "all"}, (2, 4, 12, 10)),
    ):
        assert read_here(fits_pipeline, index, **options)[0]["image"].shape == shape


def test_frames_of_8_and_16_bits(frames_of: FramesOf, tmp_path: Path) -> None:
    frames = frames_of("png")
    for channel, number in list(frames.paths):
        pixels: NDArray[Any] = frames.images[frames.paths[channel, number]][..., 2]
        if channel == 171:
            pixels = pixels.astype(np.uint16) * 257
        path = str(tmp_path / f"{channel}_{number}.png")
        Image.fromarray(pixels).save(path)
        frames.paths[channel, number] = path
        frames.images[path] = pixels[..., None]
    index = frames.sequences()
    frames.check(index, channels=1)
    with (
        pytest.raises(ReadError, match=r"part 171.*16 bits.*8"),
        new_loader(jpeg_pipeline, index, channels=1, dtype="uint8") as loader,
    ):
        list(loader)


def test_masks_follow(frames: Frames, tmp_path: Path) -> None:
    """One mask to a sample, under the geometry of its frames."""
    index, masks = frames.sequences(), []
    for row in range(len(index)):
        masks.append(np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE) % 251 + row % 5)
        Image.fromarray(masks[-1].astype(np.uint8)).save(tmp_path / f"{row}.png")
    paths = [str(tmp_path / f"{row}.png") for row in range(len(index))]
    index = index.with_column("mask_path", paths)
    options: dict[str, Any] = {"crop": 16, "window": "random", "flip": "hv"}
    targets = {"mask": Mask("mask_path")}
    for row, sample in frames.samples(index, targets=targets, **options).items():
        truth = sample_of(np.zeros((*SHAPE, 1)), row, **options)
        assert truth is not None
        np.testing.assert_array_equal(sample["mask"], truth.nearest(masks[row], 0))


def test_sequences_do_not_depend_on_how_they_are_read(frames_of: FramesOf) -> None:
    """Nor do their augmentations, also after a resume on another number of shards."""
    frames = frames_of("png")
    index = frames.sequences().select([2, 0, 5, 3, 1, 6, 4])
    options: dict[str, Any] = {
        "crop": 16,
        "window": "random",
        "flip": "hv",
        "augment": (Noise(2.0), ColorJitter(0.3, 0.3, 0.3, 0.1)),
    }
    expected = frames.samples(index, **options)
    assert any(np.isnan(sample["image"]).any() for sample in expected.values())
    check_equal(frames.samples(index, batch_size=2, num_read_processes=2, **options), expected)
    turns = ({"batch_size": 2}, {"batch_size": 1, "devices": [None] * 2, "num_read_processes": 2})
    found = in_turns(jpeg_pipeline, index, turns, **options)
    assert sorted(found) == sorted(expected)
    for row, sample in found.items():
        np.testing.assert_array_equal(sample["image"], expected[row]["image"])
        np.testing.assert_array_equal(sample["present"], expected[row]["present"])


class TestBadFrames:
    def damaged(self, frames: Frames, folder: Path, damage: Any) -> tuple[Index, str]:
        """Return the Index of copies, and the path of the damaged one: channel 171, number 2."""
        for name, path in frames.paths.items():
            copy = folder / f"{name[0]}_{name[1]}{Path(path).suffix}"
            copy.write_bytes(Path(path).read_bytes())
            frames.paths[name] = str(copy)
        bad = frames.paths[171, 2]
        damage(Path(bad))
        return frames.sequences(None, "drop"), bad

    def parts_with(self, index: Index, path: str) -> dict[int, str]:
        """Return by row the part whose file it is."""
        paths = {part: index.table[f"path_{part}"].to_pylist() for part in index.parts}
        return {
            row: part
            for row in range(len(index))
            for part, files in paths.items()
            if files[row] == path
        }

    def rejected(self, frames: Frames, index: Index, **options: Any) -> tuple[Any, list[int]]:
        own: dict[str, Any] = {**frames.settings, "bad_sample": "skip", **options}
        with new_loader(frames.factory, index, shuffle=False, **own) as loader:
            return loader.stats.rejected, sorted(by_row(loader))

    @pytest.mark.parametrize("kind", ["plain", "png", "npy"])
    def test_the_frame_and_the_file_are_named(
        self, frames_of: FramesOf, tmp_path: Path, kind: str
    ) -> None:
        frames = frames_of(kind)
        index, bad = self.damaged(frames, tmp_path, lambda path: path.write_bytes(b"nothing"))
        found, rows = self.rejected(frames, index)
        with_it = self.parts_with(index, bad)
        assert found.keys() == with_it.keys()
        assert sorted([*rows, *found]) == list(range(len(index)))
        for row, part in with_it.items():
            assert f"part {part}" in found[row].reason
            assert bad in f"{index.path(row)} {found[row].reason}"

    @pytest.mark.parametrize(
        "options", [{}, {"crop": 16}, {"random_area": (0.2, 1.0), "resize": 8}], ids=str
    )
    def test_frames_of_other_sizes(
        self, frames_of: FramesOf, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        frames = frames_of("png")
        index, bad = self.damaged(
            frames, tmp_path, lambda path: Image.new("RGB", (50, 39)).save(path)
        )
        found, _ = self.rejected(frames, index, **options)
        assert found
        for one in found.values():
            assert "one size (height x width): part 171" in one.reason
            assert "40x50" in one.reason
            assert "39x50" in one.reason
            assert bad in f"{one.path} {one.reason}"

    def test_a_frame_that_the_graph_cannot_decode(
        self, frames_of: FramesOf, tmp_path: Path
    ) -> None:
        """The rows of the batch are run one by one, and Pillow finds the file."""

        def damage(path: Path) -> None:
            coded = bytearray(path.read_bytes())
            coded[len(coded) // 2] ^= 255
            path.write_bytes(coded)

        frames = frames_of("png")
        index, bad = self.damaged(frames, tmp_path, damage)
        found, rows = self.rejected(frames, index)
        assert sorted(found) == sorted(self.parts_with(index, bad))
        assert sorted([*rows, *found]) == list(range(len(index)))
        assert all("part 171" in one.reason for one in found.values())

    @pytest.mark.parametrize("tail", ["partial", "fill"])
    def test_damaged_tiles(self, frames: Frames, tmp_path: Path, tail: str) -> None:
        """The graph's decoder finds them."""

        def damage(path: Path) -> None:
            pixels = np.random.default_rng(5).integers(0, 30000, SHAPE).astype(np.int16)
            fits.CompImageHDU(pixels).writeto(path, overwrite=True)
            with fits.open(path, disable_image_compression=True) as hdus:
                header, start = hdus[1].header, hdus[1].fileinfo()["datLoc"]
            coded = bytearray(path.read_bytes())
            heap = start + header["NAXIS1"] * header["NAXIS2"]
            coded[heap : heap + 3000] = bytes(3000)
            path.write_bytes(coded)

        index, bad = self.damaged(frames, tmp_path, damage)
        found, _ = self.rejected(frames, index, tail=tail)
        parts = self.parts_with(index, bad)
        assert len(found) > 1
        assert found.keys() == parts.keys()
        for row, one in found.items():
            own = "" if index.path(row) == bad else f", {bad}"
            reason = f"part {parts[row]}{own}: the compressed bytes of a tile are damaged"
            assert one.reason == reason

    def test_a_row_without_any_frame(self, frames: Frames) -> None:
        index = frames.sequences()
        for part in index.parts:
            paths = index.table[f"path_{part}"].to_pylist()
            index = index.with_column(f"path_{part}", pa.array([None, *paths[1:]], pa.string()))
        found, rows = self.rejected(frames, index)
        assert rows == [1, 2, 3, 4, 5, 6]
        assert "none of the parts 171-12min, 193-12min, 171+0, " in found[0].reason
        for part in index.parts:
            index = index.with_column(f"path_{part}", pa.nulls(len(index), pa.string()))
        with (
            pytest.raises(ReadError, match="none of the parts"),
            new_loader(fits_pipeline, index) as loader,
        ):
            list(loader)


class TestOwnOperators:
    def test_a_transform_gets_all_channels(self, frames: Frames) -> None:
        """Mean and std come after it, for each time."""

        def doubled(image: Any, chance: Any, config: Any) -> Any:
            del chance, config
            return image * 2

        index = frames.sequences()
        mean, std = (1.0, 2.0), (4.0, 8.0)
        plain = frames.samples(index)
        for row, one in frames.samples(index, transform=doubled, mean=mean, std=std).items():
            shifted = plain[row]["image"] * 2 - np.reshape(mean, (2, 1, 1))
            expected = shifted / np.reshape(std, (2, 1, 1))
            np.testing.assert_allclose(one["image"], expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize(
        ("kind", "one"),
        [
            ("plain", Noise(1.0)),
            ("plain", Blur(3)),
            ("plain", Erase(p=1.0)),
            ("plain", ColorJitter(0.5, 0.5)),
            ("png", Noise(1.0)),
            ("png", Erase(p=1.0)),
        ],
    )
    def test_augmentations_change_all_frames(
        self, frames_of: FramesOf, kind: str, one: Any
    ) -> None:
        frames = frames_of(kind)
        index = frames.sequences()
        plain = frames.samples(index)
        for row, sample in frames.samples(index, augment=(one,)).items():
            images = sample["image"]
            present = np.repeat(sample["present"], images.shape[1] // 2, axis=1)
            np.testing.assert_array_equal(np.isnan(images).any((2, 3)), ~present)
            assert (images != plain[row]["image"]).any((2, 3))[present].all()

    def test_colours_are_those_of_each_frame(self, frames_of: FramesOf) -> None:
        """All frames of a sample get the same change, in their own red, green and blue."""
        frames = frames_of("png")
        index = frames.sequences(None, "drop")
        options: dict[str, Any] = {"augment": (ColorJitter(0.2, saturation=0.5, hue=0.2),)}
        found = frames.samples(index, **options)
        for number, part in enumerate(index.parts):
            paths = index.table[f"path_{part}"].to_pylist()
            alone = read_here(jpeg_pipeline, Index.from_paths(paths), seed=5, **options)
            for row, sample in found.items():
                image = sample["image"].reshape(6, 3, *SHAPE)[number]
                np.testing.assert_array_equal(image, alone[row]["image"])

    def test_three_gray_frames_are_not_red_green_and_blue(self, frames_of: FramesOf) -> None:
        frames = frames_of("png")
        index = frames.files().where("wavelnth = 171").group(offsets=OFFSETS)
        plain = frames.samples(index, channels=1)
        assert plain[0]["image"].shape[:2] == (3, 1)
        augment = (RandomGrayscale(p=1.0),)
        check_equal(frames.samples(index, channels=1, augment=augment), plain)

    @pytest.mark.parametrize("policy", [TrivialAugment(), RandAugment()])
    def test_policies(self, frames_of: FramesOf, policy: Any) -> None:
        frames = frames_of("png")
        index = frames.sequences(None, "drop")
        found = frames.samples(index, augment=(policy,), dtype="uint8")
        assert [sample["image"].shape for sample in found.values()] == [(3, 6, *SHAPE)] * 5

    def test_eval(self, frames: Frames) -> None:
        options: dict[str, Any] = {"crop": 16, "window": "random", "flip": "hv", "mode": "eval"}
        found = frames.samples(frames.sequences(), augment=(Noise(1.0),), **options)
        check_equal(found, frames.samples(frames.sequences(), crop=16))


# The Index of sequences.


def test_columns_of_the_sequence_are_needed(frames: Frames) -> None:
    index = frames.sequences()
    lacking = Index(index.table.drop_columns("path_193-12min"))
    message = r"channels 171, 193 at -12min, 0, .12min.*no column 'path_193-12min'"
    with pytest.raises(ValueError, match=message):
        fits_pipeline(lacking, batch_size=1)
    reordered = Index(index.table.select(index.table.column_names[::-1]))
    check_equal(frames.samples(reordered), frames.samples(index))


def test_a_table_that_has_lost_its_offsets(
    frames: Frames, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)  # libraries set that of the root logger
    index, files = frames.sequences(), frames.files()
    of_one = files.where("wavelnth = 171").group(offsets=OFFSETS)
    plain = files.group(CHANNELS, missing="keep").table
    short = Index(plain.rename_columns({"path_193": "path_0", "path_171": "path_a-b"}))
    for kept in (index, of_one, short):
        fits_pipeline(kept, batch_size=1, num_read_processes=0).close()
    assert not caplog.messages
    for lost in (index, of_one):
        for _ in range(2):
            table = pa.Table.from_pandas(lost.table.to_pandas())
            pipeline = fits_pipeline(Index(table), batch_size=1, num_read_processes=0)
            assert pipeline.source.reader.channels == len(lost.parts)
            pipeline.close()
        (message,) = caplog.messages
        assert f"columns path_{lost.parts[0]}, path_" in message
        caplog.clear()
    kept = Index(table.replace_schema_metadata(of_one.table.schema.metadata))
    assert kept.offsets == of_one.offsets


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": (1.0, 2.0, 3.0)}, "mean must be one number, or 2"),
        ({"std": (1.0,) * 6}, "std must be one number, or 2"),
        ({"mean": (1.0,) * 6, "augment": (Noise(1.0),)}, "mean must be one number, or 2"),
        ({"columns": ("present",)}, r"columns \['present'\].*another output"),
        ({"augment": (ColorJitter(hue=0.1),)}, "ColorJitter with saturation or hue"),
    ],
)
def test_settings_that_contradict_each_other(
    frames: Frames, options: dict[str, Any], message: str
) -> None:
    index = frames.sequences().with_column("present", [1.0] * 7)
    with pytest.raises(ValueError, match=message):
        fits_pipeline(index, batch_size=1, **options)


def test_memory_counts_all_frames(frames: Frames) -> None:
    """Samples of six files need six times the memory, and that of joining them."""
    index = frames.sequences(None, "drop")
    several = fits_pipeline(index, batch_size=8)
    single = fits_pipeline(Index.from_paths([frames.paths[171, 0]]), batch_size=8)
    with_missing = fits_pipeline(frames.sequences(), batch_size=8)
    assert several.peek is not None
    assert single.peek is not None
    assert with_missing.peek is not None
    assert several.peek.nbytes == pytest.approx(6 * single.peek.nbytes, rel=0.5)
    assert with_missing.peek.nbytes == pytest.approx(several.peek.nbytes, rel=0.5)
    assert several.footprint.image_nbytes == 6 * single.footprint.image_nbytes
    assert several.footprint.num_stages == single.footprint.num_stages + 1
    assert with_missing.footprint.num_stages == single.footprint.num_stages + 2
    assert estimate_memory([several]).images > 6 * estimate_memory([single]).images
