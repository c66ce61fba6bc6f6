"""Samples of several files, and of several times, against pipelines of their single files."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from PIL import Image
from read_here import read_here

from dali_pipelines import (
    Blur,
    ColorJitter,
    Erase,
    Index,
    Loader,
    Mask,
    Noise,
    RandAugment,
    RandomGrayscale,
    ReaderPipeline,
    ReadError,
    TrivialAugment,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)
from dali_pipelines.memory import estimate_memory

SHAPE = 40, 50
CHANNELS = ("171", "193")
OFFSETS = ("-12min", "0", "+12min")
GONE = (193, 3)
"""Channel and number of a frame that does not exist."""
FACTORIES: dict[str, Any] = {".fits": fits_pipeline, ".png": jpeg_pipeline, ".npy": npy_pipeline}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames of two channels every 12 minutes, in each format; some FITS are compressed."""
    folder, random = tmp_path_factory.mktemp("archive"), np.random.default_rng(0)
    for number in range(7):
        for channel in map(int, CHANNELS):
            name = folder / f"{channel}_{number}"
            pixels = random.integers(0, 200, (*SHAPE, 3)).astype(np.uint8)
            stored = pixels[..., 0].astype(np.int16) * 3 - channel
            hdu = fits.CompImageHDU if number % 2 else fits.PrimaryHDU
            hdu(stored).writeto(f"{name}.fits")
            Image.fromarray(pixels).save(f"{name}.png")
            np.save(f"{name}.npy", stored.astype(np.float32))
    return folder


def files_of(archive: Path, suffix: str, gone: tuple[int, int] | None = GONE) -> Index:
    names = [(int(c), n) for c in CHANNELS for n in range(7) if (int(c), n) != gone]
    table = {
        "path": [str(archive / f"{channel}_{number}{suffix}") for channel, number in names],
        "wavelnth": [channel for channel, _ in names],
        "t_obs": pa.array([720 * number for _, number in names], pa.timestamp("s")),
    }
    return Index(pa.table(table))


def sequences(archive: Path, suffix: str = ".fits", **options: Any) -> Index:
    files = files_of(archive, suffix, options.pop("gone", GONE))
    return files.group([171, 193], **{"offsets": OFFSETS, "missing": "keep", **options})


def outputs(
    factory: Callable[..., Any], index: Index, epochs: int = 1, **settings: Any
) -> dict[str, np.ndarray]:
    """Return the outputs of the last epoch, by row."""
    settings = {"batch_size": 3, "seed": 7, "num_read_processes": 1, **settings}
    with Loader(factory, index, devices=[None], **settings) as loader:
        for _ in range(epochs):
            batches = [batch for (batch,) in loader]
    named = {
        name: np.concatenate([batch[name].numpy() for batch in batches]) for name in batches[0]
    }
    order = np.argsort(named["row"])
    assert named["row"][order].tolist() == list(range(len(index)))
    return {name: values[order] for name, values in named.items()}


def alone_here(
    factory: Callable[..., ReaderPipeline], index: Index, **settings: Any
) -> dict[str, np.ndarray]:
    """Return the outputs of an epoch, by row, of a pipeline that reads in this process."""
    samples = read_here(factory, index, seed=7, **settings)
    assert [*samples] == list(range(len(index)))
    return {name: np.stack([one[name] for one in samples.values()]) for name in samples[0]}


def alone(index: Index, part: str) -> tuple[Index, np.ndarray]:
    """Return the Index of the files of a part, and where there are any; others are in their place.

    Rows keep their numbers, and so their random draws.
    """
    paths = index.table[f"path_{part}"].to_pylist()
    exists = np.array([path is not None for path in paths])
    others = index.table["path"].to_pylist()
    table = {"path": [path or other for path, other in zip(paths, others, strict=True)]}
    return Index(pa.table(table)), exists


GEOMETRIES: list[dict[str, Any]] = [
    {},
    {"crop": (16, 20), "window": "random", "flip": "hv", "outputs": ("window", "matrix")},
    {"crop": (16, 20), "window": "random", "flip": "hv", "rotate": 30.0, "zoom": (0.5, 2.0)},
    {"random_area": (0.1, 0.9), "resize": (12, 14), "flip": "hv", "outputs": ("matrix",)},
    {"resize_shorter": 24, "crop": 20, "window": "random", "flip": "h"},
    {"resize": (12, 14), "flip": "v"},
]


@pytest.mark.parametrize("suffix", FACTORIES)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: "-".join(geometry) or "whole")
def test_frames_are_those_of_their_files(
    archive: Path, suffix: str, geometry: dict[str, Any]
) -> None:
    """All under one geometry, in their places; those that are missing are NaN."""
    factory, index = FACTORIES[suffix], sequences(archive, suffix)
    colours = 3 if suffix == ".png" else 1
    mean = [10.0 * number for number in range(2 * colours)]
    std = [1.0 + number for number in range(2 * colours)]
    found = outputs(factory, index, mean=mean, std=std, **geometry)
    height, width = found["image"].shape[-2:]
    assert found["image"].shape == (7, 3, 2 * colours, height, width)
    assert found["present"].dtype == np.bool_
    assert found["present"].shape == (7, 3, 2)
    for time in range(len(OFFSETS)):
        for place in range(len(CHANNELS)):
            own = slice(place * colours, (place + 1) * colours)
            files, exists = alone(index, index.parts[len(CHANNELS) * time + place])
            single = alone_here(factory, files, mean=mean[own], std=std[own], **geometry)
            frames = found["image"][:, time, own]
            assert found["present"][:, time, place].tolist() == exists.tolist()
            np.testing.assert_array_equal(frames[exists], single["image"][exists])
            assert np.isnan(frames[~exists]).all()
            for name in geometry.get("outputs", ()):
                np.testing.assert_array_equal(found[name][exists], single[name][exists])
    assert not found["present"].all()


CORNERS = np.array([[-5, 30, 8, 0, 33, -3, 2], [40, -6, 3, 0, 45, 7, 1]])


@pytest.mark.parametrize("suffix", FACTORIES)
@pytest.mark.parametrize(
    ("corners", "outside"), [(CORNERS, "fill"), (CORNERS, "shift"), (CORNERS + 0.3, "fill")]
)
def test_windows_across_edges(
    archive: Path, suffix: str, corners: np.ndarray, outside: str
) -> None:
    """All frames are filled and moved alike, between pixels, too."""

    def placed(index: Index) -> np.ndarray:
        index = index.with_column("y", corners[0]).with_column("x", corners[1])
        options: dict[str, Any] = {"crop": 12, "window": "row", "outside": outside, "flip": "hv"}
        return outputs(FACTORIES[suffix], index, **options)["image"]

    index = sequences(archive, suffix)
    found = placed(index)
    for time, part in enumerate(part for part in index.parts if part.startswith("193")):
        files, exists = alone(index, part)
        frames = np.split(found[:, time], 2, axis=1)[1]
        np.testing.assert_array_equal(frames[exists], placed(files)[exists])
        assert np.isnan(frames[~exists]).all()


@pytest.mark.parametrize("suffix", FACTORIES)
def test_without_offsets_files_are_channels(archive: Path, suffix: str) -> None:
    index = files_of(archive, suffix).group([171, 193], missing="keep")
    options: dict[str, Any] = {"crop": 16, "window": "random", "flip": "h", "dtype": "float16"}
    found = outputs(FACTORIES[suffix], index, **options)
    colours = 3 if suffix == ".png" else 1
    assert found["image"].shape == (7, 2 * colours, 16, 16)
    assert found["image"].dtype == np.float16
    for place, channel in enumerate(CHANNELS):
        files, exists = alone(index, channel)
        single = alone_here(FACTORIES[suffix], files, **options)["image"]
        frames = found["image"][:, place * colours : (place + 1) * colours]
        np.testing.assert_array_equal(frames[exists], single[exists])
        assert np.isnan(frames[~exists]).all()
        assert found["present"][:, place].tolist() == exists.tolist()


def test_integers_as_they_are_stored(archive: Path) -> None:
    """Missing frames are 0."""
    for suffix, dtype in ((".fits", "int16"), (".png", "uint8")):
        index = sequences(archive, suffix)
        found = outputs(FACTORIES[suffix], index, dtype=dtype, flip="hv")
        assert found["image"].dtype == np.dtype(dtype)
        for time, part in enumerate(part for part in index.parts if part.startswith("193")):
            files, exists = alone(index, part)
            single = alone_here(FACTORIES[suffix], files, dtype=dtype, flip="hv")["image"]
            frames = np.split(found["image"][:, time], 2, axis=1)[1]
            np.testing.assert_array_equal(frames[exists], single[exists])
            assert not frames[~exists].any()


def test_planes_are_channels_of_each_file(tmp_path: Path) -> None:
    cubes = np.random.default_rng(0).normal(0, 9, (5, 4, 12, 10)).astype(np.float32)
    for number, cube in enumerate(cubes):
        fits.PrimaryHDU(cube).writeto(tmp_path / f"{number}.fits")
    table = Index.scan(tmp_path).table
    times = pa.array(range(0, 3600, 720), pa.timestamp("s"))
    index = Index(table.append_column("t_obs", times)).group(offsets=("0", "-12min"))
    options: dict[str, Any] = {"planes": (3, 1), "mean": (1.0, 2.0), "std": (3.0, 4.0)}
    found = outputs(fits_pipeline, index, **options)["image"]
    pairs = np.stack((cubes[1:], cubes[:-1]), axis=1)[:, :, [3, 1]]
    mean, std = (np.float32(options[name]).reshape(2, 1, 1) for name in ("mean", "std"))
    np.testing.assert_allclose(found, (pairs - mean) / std, rtol=1e-6, atol=1e-6)
    small = outputs(fits_pipeline, index, **options, resize=(6, 5))["image"]
    assert small.shape == (4, 2, 2, 6, 5)
    several = outputs(fits_pipeline, index, planes="all")["image"]
    assert several.shape == (4, 2, 4, 12, 10)


def test_pure(archive: Path) -> None:
    """What a sequence looks like does not depend on batches, shards and readers, or a resume."""
    index = sequences(archive, ".png").select([2, 0, 5, 3, 1, 6, 4])
    options: dict[str, Any] = {
        "crop": 16,
        "window": "random",
        "flip": "hv",
        "augment": (Noise(2.0), ColorJitter(0.3, 0.3, 0.3, 0.1)),
    }
    expected = outputs(jpeg_pipeline, index, epochs=2, **options)
    assert np.isnan(expected["image"]).any()
    again = outputs(jpeg_pipeline, index, epochs=2, **options, batch_size=2, num_read_processes=2)
    for name in ("image", "present"):
        np.testing.assert_array_equal(again[name], expected[name])
    # Two shards read the rest of the second epoch, of which one read the first batch.
    settings: dict[str, Any] = {"seed": 7, "num_read_processes": 1, **options}
    with Loader(jpeg_pipeline, index, batch_size=2, devices=[None], **settings) as loader:
        list(loader)
        state = json.loads(json.dumps(next(iter(loader)) and loader.state_dict()))
    with Loader(jpeg_pipeline, index, batch_size=1, devices=[None, None], **settings) as loader:
        loader.load_state_dict(state)
        rest = [batch for batches in loader for batch in batches]
    rows = [row for batch in rest for row in batch["row"].tolist()]
    assert len(rows) == len(set(rows)) == 5
    for batch in rest:
        for row, image in zip(batch["row"].tolist(), batch["image"].numpy(), strict=True):
            np.testing.assert_array_equal(image, expected["image"][row])


class TestBadFrames:
    def damaged(self, archive: Path, folder: Path, suffix: str, damage: Any) -> Index:
        """Return the Index of copies, of which that of 171 number 2 is damaged."""
        for path in archive.glob(f"*{suffix}"):
            (folder / path.name).write_bytes(path.read_bytes())
        damage(folder / f"171_2{suffix}")
        return sequences(folder, suffix, missing="drop", gone=None)

    def rejected(self, factory: Any, index: Index, **options: Any) -> tuple[Any, list[int]]:
        options = {"batch_size": 2, "bad_sample": "skip", **options}
        with Loader(
            factory, index, devices=[None], num_read_processes=1, shuffle=False, **options
        ) as loader:
            rows = [row for (batch,) in loader for row in batch["row"].tolist()]
            return loader.stats.rejected, rows

    @pytest.mark.parametrize("suffix", FACTORIES)
    def test_the_frame_and_the_file_are_named(
        self, archive: Path, tmp_path: Path, suffix: str
    ) -> None:
        index = self.damaged(archive, tmp_path, suffix, lambda path: path.write_bytes(b"nothing"))
        found, rows = self.rejected(FACTORIES[suffix], index)
        with_it = {
            row: part
            for part in index.parts
            for row, path in enumerate(index.table[f"path_{part}"].to_pylist())
            if path.endswith(f"171_2{suffix}")
        }
        assert found.keys() == with_it.keys()
        assert sorted([*rows, *found]) == list(range(len(index)))
        for row, part in with_it.items():
            assert f"part {part}" in found[row].reason
            named = f"{index.path(row)} {found[row].reason}"
            assert str(tmp_path / f"171_2{suffix}") in named
        with pytest.raises(ReadError, match="part 171"):
            outputs(FACTORIES[suffix], index)

    def test_of_other_sizes(self, archive: Path, tmp_path: Path) -> None:
        index = self.damaged(
            archive, tmp_path, ".png", lambda path: Image.new("RGB", (50, 39)).save(path)
        )
        for options in ({}, {"crop": 16}, {"random_area": (0.2, 1.0), "resize": 8}):
            found, _ = self.rejected(jpeg_pipeline, index, **options)
            (reason, *_) = {bad.reason for bad in found.values()}
            assert "the files of a sample must have one size (height x width): part 171" in reason
            assert "40x50" in reason
            assert "39x50" in reason
            assert all(
                str(tmp_path / "171_2.png") in f"{bad.path} {bad.reason}" for bad in found.values()
            )

    def test_what_the_graph_cannot_decode(self, archive: Path, tmp_path: Path) -> None:
        """The rows of the batch are run one by one, and the file is found by Pillow."""

        def damage(path: Path) -> None:
            coded = bytearray(path.read_bytes())
            coded[len(coded) // 2] ^= 255
            path.write_bytes(coded)

        index = self.damaged(archive, tmp_path, ".png", damage)
        found, rows = self.rejected(jpeg_pipeline, index)
        assert sorted([*rows, *found]) == list(range(len(index)))
        assert found
        assert all("part 171" in bad.reason for bad in found.values())

    def test_damaged_tiles(self, archive: Path, tmp_path: Path) -> None:
        """What the graph's decoder finds is named, too."""

        def damage(path: Path) -> None:
            pixels = np.random.default_rng(5).integers(0, 30000, SHAPE).astype(np.int16)
            fits.CompImageHDU(pixels).writeto(path, overwrite=True)
            with fits.open(path, disable_image_compression=True) as hdus:
                header, start = hdus[1].header, hdus[1].fileinfo()["datLoc"]
            coded = bytearray(path.read_bytes())
            heap = start + header["NAXIS1"] * header["NAXIS2"]
            coded[heap : heap + 3000] = bytes(3000)
            path.write_bytes(coded)

        index = self.damaged(archive, tmp_path, ".fits", damage)
        for tail in ("partial", "fill"):
            found, _ = self.rejected(fits_pipeline, index, tail=tail)
            for row, bad in found.items():
                (part,) = (
                    part
                    for part in index.parts
                    if index.table[f"path_{part}"][row].as_py().endswith("171_2.fits")
                )
                own = "" if index.path(row).endswith("171_2.fits") else f", {tmp_path}/171_2.fits"
                assert bad.reason == f"part {part}{own}: the compressed bytes of a tile are damaged"
            assert len(found) > 1

    def test_all_frames_missing(self, archive: Path) -> None:
        index = sequences(archive)
        empty = pa.nulls(len(index), pa.string())
        for part in index.parts:
            paths = index.table[f"path_{part}"].to_pylist()
            index = index.with_column(f"path_{part}", pa.array([None, *paths[1:]], pa.string()))
        found, rows = self.rejected(fits_pipeline, index)
        assert rows == [1, 2, 3, 4, 5, 6]
        assert "none of the parts 171-12min, 193-12min, 171+0, " in found[0].reason
        for part in index.parts:
            index = index.with_column(f"path_{part}", empty)
        with pytest.raises(ReadError, match="none of the parts"):
            outputs(fits_pipeline, index)


def test_frames_of_8_and_16_bits(archive: Path, tmp_path: Path) -> None:
    for path in archive.glob("*.png"):
        if path.name.startswith("171"):
            deep = np.random.default_rng(1).integers(0, 1 << 16, SHAPE).astype(np.uint16)
            Image.fromarray(deep).save(tmp_path / path.name)
        else:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    index = sequences(tmp_path, ".png")
    found = outputs(jpeg_pipeline, index, channels=1)["image"]
    for time in range(len(OFFSETS)):
        for place in range(len(CHANNELS)):
            files, exists = alone(index, index.parts[len(CHANNELS) * time + place])
            single = alone_here(jpeg_pipeline, files, channels=1)["image"]
            np.testing.assert_array_equal(found[exists, time, place], single[exists, 0])
    with pytest.raises(ReadError, match=r"part 171.*: 16 bits per sample, expected 8"):
        outputs(jpeg_pipeline, index, channels=1, dtype="uint8")


class TestOwnOperators:
    def test_a_transform_gets_all_channels(self, archive: Path) -> None:
        """Missing frames are NaN there; mean and std come after it, for each time."""

        def doubled(image: Any, chance: Any, config: Any) -> Any:
            del chance, config
            return image * 2

        index = sequences(archive)
        plain = alone_here(fits_pipeline, index)["image"]
        mean, std = (1.0, 2.0), (4.0, 8.0)
        found = outputs(fits_pipeline, index, transform=doubled, mean=mean, std=std)["image"]
        expected = (plain * 2 - np.reshape(mean, (2, 1, 1))) / np.reshape(std, (2, 1, 1))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("suffix", [".fits", ".png"])
    @pytest.mark.parametrize("one", [Noise(1.0), Blur(3), Erase(p=1.0), ColorJitter(0.5, 0.5)])
    def test_augmentations(self, archive: Path, suffix: str, one: Any) -> None:
        """They change all frames that are there, and missing ones stay NaN."""
        index = sequences(archive, suffix)
        plain = alone_here(FACTORIES[suffix], index)
        found = outputs(FACTORIES[suffix], index, augment=(one,))
        colours = found["image"].shape[2] // 2
        present = np.repeat(found["present"], colours, axis=2)
        np.testing.assert_array_equal(np.isnan(found["image"]).any((3, 4)), ~present)
        assert (found["image"] != plain["image"]).any((3, 4))[present].all()

    def test_colours_are_those_of_each_frame(self, archive: Path) -> None:
        """All frames of a sample get the same change, in their own red, green and blue."""
        index = sequences(archive, ".png", gone=None, missing="drop")
        jitter = ColorJitter(brightness=0.2, saturation=0.5, hue=0.2)
        found = outputs(jpeg_pipeline, index, augment=(jitter,))["image"]
        for time in range(len(OFFSETS)):
            for place in range(len(CHANNELS)):
                files, _ = alone(index, index.parts[len(CHANNELS) * time + place])
                single = alone_here(jpeg_pipeline, files, augment=(jitter,))["image"]
                np.testing.assert_array_equal(found[:, time, 3 * place : 3 * place + 3], single)

    def test_three_gray_frames_are_not_red_green_and_blue(self, archive: Path) -> None:
        files = files_of(archive, ".png").where("wavelnth = 171")
        index = files.group(offsets=OFFSETS)
        options: dict[str, Any] = {"channels": 1, "augment": (RandomGrayscale(p=1.0),)}
        plain = alone_here(jpeg_pipeline, index, channels=1)["image"]
        assert plain.shape[1:3] == (3, 1)
        np.testing.assert_array_equal(outputs(jpeg_pipeline, index, **options)["image"], plain)

    @pytest.mark.parametrize("policy", [TrivialAugment(), RandAugment()])
    def test_policies(self, archive: Path, policy: Any) -> None:
        index = sequences(archive, ".png", gone=None, missing="drop")
        found = outputs(jpeg_pipeline, index, augment=(policy,), dtype="uint8")["image"]
        assert found.shape == (5, 3, 6, *SHAPE)

    def test_eval(self, archive: Path) -> None:
        index = sequences(archive)
        plain = alone_here(fits_pipeline, index, crop=16)
        options: dict[str, Any] = {"crop": 16, "window": "random", "flip": "hv", "mode": "eval"}
        found = outputs(fits_pipeline, index, **options, augment=(Noise(1.0),))
        np.testing.assert_array_equal(found["image"], plain["image"])


def test_masks_follow(archive: Path, tmp_path: Path) -> None:
    """One mask to a sample, under the geometry of its frames."""
    index = sequences(archive)
    paths = []
    for row in range(len(index)):
        image = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE) % 251
        Image.fromarray((image + row).astype(np.uint8)).save(tmp_path / f"{row}.png")
        paths.append(str(tmp_path / f"{row}.png"))
    index = index.with_column("mask_path", paths)
    options: dict[str, Any] = {
        "crop": 16,
        "window": "random",
        "flip": "hv",
        "targets": {"mask": Mask("mask_path")},
    }
    found = outputs(fits_pipeline, index, **options)
    files, _ = alone(index, "171+0")
    files = files.with_column("mask_path", paths)
    single = alone_here(fits_pipeline, files, **options)
    np.testing.assert_array_equal(found["mask"], single["mask"])


def test_columns_of_the_sequence_are_needed(archive: Path) -> None:
    index = sequences(archive)
    lacking = Index(index.table.drop_columns("path_193-12min"))
    message = (
        "the samples of the Index have channels 171, 193 at -12min, 0, .12min, and there is no "
        "column 'path_193-12min'"
    )
    with pytest.raises(ValueError, match=message):
        fits_pipeline(lacking, batch_size=1)
    reordered = Index(index.table.select(index.table.column_names[::-1]))
    np.testing.assert_array_equal(
        outputs(fits_pipeline, reordered)["image"], outputs(fits_pipeline, index)["image"]
    )


def test_a_table_that_has_lost_its_offsets(archive: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)  # libraries set that of the root logger
    index = sequences(archive)
    files = files_of(archive, ".fits")
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
        ({"mean": (1.0, 2.0, 3.0)}, "mean must be one number, or 2, one for each channel"),
        ({"std": (1.0,) * 6}, "std must be one number, or 2"),
        ({"mean": (1.0,) * 6, "augment": (Noise(1.0),)}, "mean must be one number, or 2"),
        ({"columns": ("present",)}, r"columns \['present'\] have the name of another output"),
        ({"augment": (ColorJitter(hue=0.1),)}, "ColorJitter with saturation or hue is for images"),
    ],
)
def test_wrong_settings(archive: Path, options: dict[str, Any], message: str) -> None:
    index = sequences(archive).with_column("present", [1.0] * 7)
    with pytest.raises(ValueError, match=message):
        fits_pipeline(index, batch_size=1, **options)


def test_memory_counts_all_frames(archive: Path) -> None:
    """Samples of six files need six times the memory, and that of joining them."""
    index = sequences(archive, gone=None, missing="drop")
    several = fits_pipeline(index, batch_size=8)
    single = fits_pipeline(alone(index, "171+0")[0], batch_size=8)
    assert several.peek is not None
    assert single.peek is not None
    assert several.peek.nbytes == pytest.approx(6 * single.peek.nbytes, rel=0.5)
    assert several.footprint.image_nbytes == 6 * single.footprint.image_nbytes
    assert several.footprint.num_stages == single.footprint.num_stages + 1
    with_missing = fits_pipeline(sequences(archive), batch_size=8)
    assert with_missing.footprint.num_stages == single.footprint.num_stages + 2
    assert with_missing.peek is not None
    assert with_missing.peek.nbytes == pytest.approx(several.peek.nbytes, rel=0.5)
    assert estimate_memory([several]).images > 6 * estimate_memory([single]).images
