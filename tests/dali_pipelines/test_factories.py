"""Pixels of real DALI pipelines, with two readers, against astropy, Pillow and NumPy."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from astropy.io import fits
from nvidia.dali import fn
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from PIL import Image, ImageOps
from read_here import read_here

from dali_pipelines import (
    ChannelsReader,
    ColorJitter,
    Index,
    Loader,
    NpyReader,
    PipelineConfig,
    ReaderPipeline,
    ReadError,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    reader_pipeline,
)
from dali_pipelines.graph.decode import Decoded, decode_array
from readers.sampling.draws import Draws
from readers.window import Window

SEED = 11
DEVICES = [None, pytest.param(0, marks=pytest.mark.gpu)]


def images(
    factory: Callable[..., Any], index: Index, device: int | None = None, **options: Any
) -> dict[int, torch.Tensor]:
    """Return the images of one epoch by row."""
    settings = {"batch_size": 1, **options}
    loader = Loader(factory, index, num_read_processes=1, devices=[device], seed=SEED, **settings)
    with loader:
        found = {
            int(row): image.cpu()
            for (batch,) in loader
            for image, row in zip(batch["image"], batch["row"], strict=True)
        }
    assert sorted(found) == list(range(len(index)))
    return found


def truth(path: str) -> np.ndarray:
    return np.asarray(fits.getdata(path)).astype(np.float32)


@pytest.mark.parametrize("factory", [fits_pipeline, aia_pipeline])
def test_on_a_gpu_readers_decode_large_tiles(
    monkeypatch: pytest.MonkeyPatch, factory: Callable[..., Any]
) -> None:
    found: list[Any] = []
    name = "dali_pipelines.factories.reader_pipeline"
    monkeypatch.setattr(name, lambda _, reader, *__: found.append(reader))
    index = Index.from_paths(["image.fits"])
    for device in (None, 0):
        factory(index, batch_size=1, device_id=device)
    on_cpu, on_gpu = (reader.largest_tile for reader in found)
    assert on_cpu == math.inf
    assert on_gpu == 256 * 256


def cut_and_flipped(image: np.ndarray, row: int, crop: tuple[int, int] | None, flip: str) -> Any:
    """Do to an image of shape (height, width, ...) what the pipeline does in epoch 0."""
    draws = Draws.of(SEED, 0, row)
    if crop is not None:
        window = Window(height=crop[0], width=crop[1], y=draws.y, x=draws.x)
        y, x = window.place(*image.shape[:2])
        image = image[y : y + crop[0], x : x + crop[1]]
    up_down = -1 if draws.vertical and "v" in flip else 1
    left_right = -1 if draws.horizontal and "h" in flip else 1
    return image[::up_down, ::left_right]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("crop", "flip"), [(None, ""), ((97, 33), "hv"), ((64, 128), "v")])
def test_fits_equals_astropy(
    shared_data: Path, device: int | None, crop: tuple[int, int] | None, flip: str
) -> None:
    index = Index.scan(shared_data / "fits")
    if crop is not None:
        tall = [truth(index.path(row)).shape[0] >= 128 for row in range(len(index))]
        index = index.select(np.array(tall))
    found = images(
        fits_pipeline,
        index,
        device,
        crop=crop,
        window="random" if crop else "center",
        flip=flip,
        batch_size=1,
    )
    for row, image in found.items():
        expected = cut_and_flipped(truth(index.path(row)), row, crop, flip)
        assert image.dtype == torch.float32
        np.testing.assert_array_equal(image.numpy(), expected[None], err_msg=index.path(row))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("flip", ["", "hv"])
def test_fits_is_flipped_normalised_and_resized(
    shared_data: Path, device: int | None, flip: str
) -> None:
    index = Index.scan(shared_data / "fits").select([0, 3, 4])  # integers, all finite where cut
    options: dict[str, Any] = {"crop": 200, "flip": flip, "mean": 20.0, "std": 4.0}
    found = images(fits_pipeline, index, device, **options)
    small = images(fits_pipeline, index, device, resize=50, dtype="float16", **options)
    for row, image in found.items():
        whole = truth(index.path(row))
        y, x = Window(height=200, width=200).place(*whole.shape)
        part = whole[y : y + 200, x : x + 200]
        expected = (cut_and_flipped(part, row, None, flip) - 20) / 4
        np.testing.assert_allclose(image[0].numpy(), expected, rtol=1e-6, atol=1e-6)
        assert small[row].dtype == torch.float16
        resized = torch.nn.functional.interpolate(
            image[None], size=(50, 50), mode="bilinear", antialias=True
        )[0].half()
        inner = slice(1, -1)
        torch.testing.assert_close(
            small[row][:, inner, inner],
            resized[:, inner, inner],
            rtol=0.01,
            atol=0.01,
            equal_nan=True,
        )


@pytest.mark.parametrize("device", DEVICES)
def test_fits_integers_as_they_are_stored(shared_data: Path, device: int | None) -> None:
    index = Index.scan(shared_data / "fits" / "aia_171_cutout.fits")
    found = images(fits_pipeline, index, device, dtype="int16", crop=(300, 200), flip="hv")[0]
    stored = fits.getdata(index.path(0), do_not_scale_image_data=True)
    y, x = Window(height=300, width=200).place(*stored.shape)
    expected = cut_and_flipped(stored[y : y + 300, x : x + 200], 0, None, "hv")
    assert found.dtype == torch.int16
    np.testing.assert_array_equal(found[0].numpy(), expected)
    with pytest.raises(ReadError, match=r"aia_171_cutout.*BITPIX.*16.*32"):
        images(fits_pipeline, index, device, dtype="int32")


def test_jpeg_as_uint8(shared_data: Path) -> None:
    index = Index.scan(shared_data / "jpeg").select([0])
    found = images(jpeg_pipeline, index, dtype="uint8", flip="h")[0]
    assert found.dtype == torch.uint8
    assert far_share(found, cut_and_flipped(pillow(index.path(0)), 0, None, "h")) < 1e-3


@pytest.mark.parametrize(
    ("factory", "settings", "words"),
    [
        (jpeg_pipeline, {"dtype": "int16"}, "uint8.*int16"),
        (fits_pipeline, {"mean": (1, 2)}, r"mean.*one number, or 1.*\(1.0, 2.0\)"),
        (jpeg_pipeline, {"mean": (1, 2)}, r"mean.*one number, or 3.*\(1.0, 2.0\)"),
    ],
)
def test_settings_that_do_not_fit_the_format(
    factory: Callable[..., Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        factory(Index.from_paths(["a.jpg"]), batch_size=1, **settings)


@pytest.fixture
def cubes(tmp_path: Path) -> Index:
    """Two cubes of five planes, one of them compressed."""
    noise = np.random.default_rng(0).normal(100, 20, (2, 5, 24, 31)).astype(np.float32)
    fits.PrimaryHDU(noise[0]).writeto(tmp_path / "a.fits")
    compressed = fits.CompImageHDU(noise[1], name="SCI", quantize_method=1, dither_seed=9998)
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(noise[0], name="ERR"), compressed]).writeto(
        tmp_path / "b.fits"
    )
    return Index(pa.table({"path": [str(tmp_path / "a.fits"), str(tmp_path / "b.fits")]}))


def cube(index: Index, row: int) -> np.ndarray:
    return np.asarray(fits.getdata(index.path(row), 2 * row))


def normalised(pixels: np.ndarray, mean: float, std: float) -> np.ndarray:
    return (pixels - np.float32(mean)) * np.float32(1 / std)


@pytest.mark.parametrize("device", DEVICES)
def test_planes_are_channels(cubes: Index, device: int | None) -> None:
    """Cut, flipped and normalised by channel, in the order that was asked for."""
    cubes = Index(cubes.table.append_column("hdu", pa.array([0, 2])))
    mean, std = (1.0, 2.0, 3.0), (2.0, 4.0, 8.0)
    found = images(
        fits_pipeline,
        cubes,
        device,
        batch_size=2,
        planes=(4, 0, 1),
        crop=(9, 7),
        window="random",
        flip="hv",
        mean=mean,
        std=std,
    )
    for row, image in found.items():
        for place, plane in enumerate((4, 0, 1)):
            cut = cut_and_flipped(cube(cubes, row)[plane], row, (9, 7), "hv")
            expected = normalised(cut, mean[place], std[place])
            np.testing.assert_array_equal(image[place], expected)


def test_all_planes_and_a_name(cubes: Index, caplog: pytest.LogCaptureFixture) -> None:
    """The name is that of an HDU which one file has alone; the other is left out by name."""
    index = cubes.select([1, 0])
    loader = Loader(
        fits_pipeline,
        index,
        batch_size=1,
        num_read_processes=1,
        devices=[None],
        shuffle=False,
        bad_sample="skip",
        planes="all",
        hdu="sci",
        dtype="float16",
    )
    with loader:
        (batch,) = next(iter(loader))
        expected = cube(cubes, 1).astype(np.float16)
        np.testing.assert_array_equal(batch["image"][0], expected)
        assert loader.make_pipelines()[0].footprint.image_nbytes == 2 * expected.size
        for _ in loader:
            pass
    reason = loader.stats.rejected[1].reason
    assert "'sci'" in reason
    assert "PRIMARY" in reason


def test_a_plane_of_each_row(cubes: Index) -> None:
    index = cubes.select([0]).each_plane([3, 1])
    found = images(fits_pipeline, index)
    for row, plane in enumerate((3, 1)):
        np.testing.assert_array_equal(found[row][0], cube(cubes, 0)[plane])
    with pytest.raises(ValueError, match=r"'plane'.*each row"):
        fits_pipeline(index, batch_size=1, planes="all")


def test_planes_are_resized_alike(cubes: Index) -> None:
    index = cubes.select([0])
    options: dict[str, Any] = {"resize": (10, 12), "mean": 3.0, "std": 5.0, "flip": "v"}
    together = images(fits_pipeline, index, planes=[2, 4], **options)[0]
    for place, plane in enumerate((2, 4)):
        alone = images(fits_pipeline, index, planes=plane, **options)[0]
        torch.testing.assert_close(together[place], alone[0], rtol=1e-5, atol=1e-5)


def test_fits_names_the_hdu(tmp_path: Path) -> None:
    planes = [np.full((5, 6), value, np.int16) for value in range(3)]
    hdus = [fits.PrimaryHDU(planes[0]), *(fits.ImageHDU(plane) for plane in planes[1:])]
    fits.HDUList(hdus).writeto(tmp_path / "three.fits")
    index = Index.scan(tmp_path)
    assert images(fits_pipeline, index)[0].unique().tolist() == [0]  # type: ignore[no-untyped-call]
    assert images(fits_pipeline, index, hdu=2)[0].unique().tolist() == [2]  # type: ignore[no-untyped-call]


def pillow(path: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def far_share(image: torch.Tensor, expected: np.ndarray, most: int = 2) -> float:
    """Share of the values that differ by more than so many grey levels."""
    difference = np.abs(image.numpy() - expected.transpose(2, 0, 1).astype(np.float32))
    return float((difference > most).mean())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("crop", "flip"), [(None, ""), ((224, 224), "hv"), ((100, 250), "h")])
def test_jpeg_equals_pillow(
    shared_data: Path, device: int | None, crop: tuple[int, int] | None, flip: str
) -> None:
    index = Index.scan(shared_data / "jpeg")
    found = images(
        jpeg_pipeline, index, device, crop=crop, window="random" if crop else "center", flip=flip
    )
    for row, image in found.items():
        expected = cut_and_flipped(pillow(index.path(row)), row, crop, flip)
        most = 2 if device is None else 3  # nvJPEG rounds subsampled colours in another way
        assert far_share(image, expected, most) < 1e-3, index.path(row)


@pytest.mark.parametrize("device", DEVICES)
def test_gray_of_colour_jpegs_is_their_luma_as_stored(device: int | None, tmp_path: Path) -> None:
    """It is not that of the decoded colours where these clip; of other formats it is."""
    colours = np.random.default_rng(0).choice(np.array([0, 255], np.uint8), (8, 8, 3))
    picture = Image.fromarray(colours.repeat(16, 0).repeat(16, 1))
    picture.save(tmp_path / "0.jpg", quality=60)
    picture.save(tmp_path / "1.png")
    found = images(jpeg_pipeline, Index.scan(tmp_path), device, channels=1)
    with Image.open(tmp_path / "0.jpg") as opened:
        of_decoded = np.asarray(opened) @ [0.299, 0.587, 0.114]
    with Image.open(tmp_path / "0.jpg") as opened:
        opened.draft("L", None)
        stored = np.asarray(opened)
    assert far_share(found[0], stored[..., None]) < 1e-3
    assert far_share(found[0], of_decoded[..., None]) > 0.05
    of_png = np.asarray(picture) @ [0.299, 0.587, 0.114]
    assert far_share(found[1], of_png[..., None]) == 0


@pytest.fixture
def oddities(shared_data: Path, tmp_path: Path) -> Index:
    """All EXIF orientations, and files that are not what their names say."""
    with Image.open(sorted((shared_data / "jpeg").rglob("*.jpg"))[0]) as opened:
        photograph = opened.resize((160, 96))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        photograph.save(tmp_path / f"exif{orientation}.jpg", exif=exif, quality=95)
    for name, mode in (("png", "RGB"), ("rgba", "RGBA"), ("gray", "L")):
        stream = io.BytesIO()
        photograph.convert(mode).save(stream, "PNG")
        (tmp_path / f"{name}.jpg").write_bytes(stream.getvalue())
    photograph.convert("L").save(tmp_path / "gray_jpeg.jpg")
    return Index.scan(tmp_path)


@pytest.mark.parametrize("crop", [None, (64, 48)])
def test_orientation_and_content_are_honoured(
    oddities: Index, crop: tuple[int, int] | None
) -> None:
    found = images(
        jpeg_pipeline, oddities, crop=crop, window="random" if crop else "center", flip="h"
    )
    for row, image in found.items():
        expected = cut_and_flipped(pillow(oddities.path(row)), row, crop, "h")
        assert far_share(image, expected) < 1e-3, oddities.path(row)


def broken_jpeg(path: Path) -> None:
    """Write a JPEG with a good head and end whose middle neither Pillow nor DALI decodes."""
    encoded = bytearray(path.read_bytes())
    tables = encoded.index(b"\xff\xc4")  # Huffman tables: more codes than there can be
    encoded[tables + 5 : tables + 21] = b"\xff" * 16
    path.write_bytes(encoded)


def test_a_stream_that_the_graph_cannot_decode_is_found(shared_data: Path, tmp_path: Path) -> None:
    for number, path in enumerate(sorted((shared_data / "jpeg").rglob("*.jpg"))[:8]):
        (tmp_path / f"{number}.jpg").write_bytes(path.read_bytes())
    for number in (2, 5):
        broken_jpeg(tmp_path / f"{number}.jpg")
    index = Index.scan(tmp_path)
    options: dict[str, Any] = {
        "batch_size": 2,
        "crop": 64,
        "devices": [None, None],
        "shuffle": False,
    }
    with Loader(jpeg_pipeline, index, bad_sample="skip", **options) as loader:
        for _ in range(2):
            rows = [row for batches in loader for batch in batches for row in batch["row"].tolist()]
            assert rows == [0, 1, 3, 4, 6, 7]
    assert sorted(loader.stats.rejected) == [2, 5]
    with (
        Loader(jpeg_pipeline, index, **options) as loader,
        pytest.raises(ReadError, match=r"2\.jpg \(row 2\): "),
    ):
        list(loader)


def test_resize_equals_torch_with_antialias(shared_data: Path) -> None:
    index = Index.scan(shared_data / "jpeg")
    found = images(jpeg_pipeline, index, resize=(80, 100), batch_size=7)
    for row, image in found.items():
        whole = torch.from_numpy(pillow(index.path(row)).astype(np.float32)).permute(2, 0, 1)
        expected = torch.nn.functional.interpolate(
            whole[None], size=(80, 100), mode="bilinear", antialias=True
        )[0]
        # The filters are the same. Past the border DALI repeats the last pixel, and torch (like
        # Pillow) gives the others more weight, so the outermost pixels differ.
        difference = (image - expected).abs()
        assert float(difference[:, 1:-1, 1:-1].max()) < 0.01
        assert float(difference.mean()) < 0.3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_normalise_and_convert(npy_index: Index, dtype: str) -> None:
    found = images(npy_pipeline, npy_index, mean=3, std=0.5, dtype=dtype)
    for row, image in found.items():
        assert image.dtype == getattr(torch, dtype)
        assert image.shape == (1, 6, 8)
        assert image.unique().tolist() == [(row - 3) / 0.5]  # type: ignore[no-untyped-call]


def test_mean_and_std_of_each_channel(shared_data: Path) -> None:
    index = Index.scan(shared_data / "jpeg").select([0])
    mean, std = (10.0, 20.0, 30.0), (2.0, 4.0, 8.0)
    found = images(jpeg_pipeline, index, mean=mean, std=std)[0]
    expected = (pillow(index.path(0)).astype(np.float32) - mean) / std
    np.testing.assert_allclose(found.numpy(), expected.transpose(2, 0, 1), atol=0.6 / 2)


def test_npy_channels_and_crop(tmp_path: Path) -> None:
    image = np.arange(5 * 7 * 3, dtype=np.uint16).reshape(5, 7, 3)
    np.save(tmp_path / "a.npy", image)
    found = images(npy_pipeline, Index.scan(tmp_path), file_dtype="uint16", channels=3, crop=(3, 4))
    np.testing.assert_array_equal(found[0].numpy(), image[1:4, 1:5].transpose(2, 0, 1))


INTEGERS: dict[str, dict[str, Any]] = {
    "whole": {},
    "window": {"crop": (3, 4), "window": "random", "flip": "hv"},
    "filled": {"crop": (9, 11), "outside": "fill", "missing": 7, "flip": "h"},
    "padded": {"ragged": "pad", "flip": "v"},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32"])
def test_npy_integers_as_they_are_stored(
    tmp_path: Path, dtype: str, channels: int, kind: str, device: int | None
) -> None:
    """Up to the ends of their range, which float32 does not hold for int32."""
    limits, options = np.iinfo(dtype), INTEGERS[kind]
    shape = (5, 7, channels)
    stored = [
        np.random.default_rng(row).integers(limits.min, limits.max, shape, dtype, endpoint=True)
        for row in range(3)
    ]
    for row, image in enumerate(stored):
        image[0, 0], image[-1, -1] = limits.min, limits.max
        np.save(tmp_path / f"{row}.npy", image if channels == 3 else image[..., 0])
    settings: dict[str, Any] = {"file_dtype": dtype, "dtype": dtype, "channels": channels}
    if device is not None:
        found = images(npy_pipeline, Index.scan(tmp_path), device, **settings, **options)
        delivered = {row: image.numpy() for row, image in found.items()}
    else:
        samples = read_here(npy_pipeline, Index.scan(tmp_path), seed=SEED, **settings, **options)
        delivered = {row: sample["image"] for row, sample in samples.items()}
    for row, image in enumerate(stored):
        crop = options["crop"] if kind == "window" else None
        flip = options.get("flip", "")
        if kind == "filled":
            image = np.pad(image, ((2, 2), (2, 2), (0, 0)), constant_values=7)
        expected = cut_and_flipped(image, row, crop, flip)
        assert delivered[row].dtype == np.dtype(dtype)
        np.testing.assert_array_equal(delivered[row], np.moveaxis(expected, 2, 0))


def test_npy_integers_of_sequences(tmp_path: Path) -> None:
    """Frames of several files; one that is missing is 0."""
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.full((5, 7), 60000 + number, np.uint16))
    frames = Index.scan(tmp_path).with_column("t_obs", pa.array([0, 10, 20, 30], pa.timestamp("s")))
    index = frames.group(offsets=("0", "10s"), tolerance=1, missing="keep")
    samples = read_here(npy_pipeline, index, file_dtype="uint16", dtype="uint16")
    found = [samples[row]["image"] for row in sorted(samples)]
    assert {(image.dtype, image.shape) for image in found} == {(np.dtype("uint16"), (2, 1, 5, 7))}
    assert [image[:, 0, 0, 0].tolist() for image in found][-1] == [60003, 0]


@pytest.mark.parametrize(("stored", "dtype"), [("uint8", "uint16"), ("float32", "uint8")])
def test_npy_integers_of_another_type(tmp_path: Path, stored: str, dtype: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((5, 7), stored))
    with pytest.raises(ValueError, match=f"'{dtype}' .* {stored}"):
        images(npy_pipeline, Index.scan(tmp_path), file_dtype=stored, dtype=dtype)


def test_integers_of_an_own_reader(tmp_path: Path) -> None:
    """The fragment for arrays must be told their type; 8 bits take augmentations for these."""
    image = np.arange(0, 210, 2).astype(np.uint8).reshape(5, 7, 3)
    np.save(tmp_path / "a.npy", image)

    def factory(index: Index, stored: str | None = "uint8", **config: Any) -> ReaderPipeline:
        decode = functools.partial(decode_array, stored=stored)
        return reader_pipeline(index, NpyReader("uint8", 3), decode, PipelineConfig(**config))

    index = Index.scan(tmp_path)
    found = read_here(factory, index, dtype="uint8", augment=(ColorJitter(brightness=(2, 2)),))
    doubled = np.minimum(2 * image.astype(int), 255).transpose(2, 0, 1)
    np.testing.assert_array_equal(found[0]["image"], doubled)
    with pytest.raises(ValueError, match=r"converted to uint8.*stored"):
        read_here(factory, index, stored=None, dtype="uint8")


def test_float16_of_stored_nan(tmp_path: Path) -> None:
    fits.PrimaryHDU(np.array([[1, np.nan], [2, 3]], np.float32)).writeto(tmp_path / "a.fits")
    found = images(fits_pipeline, Index.scan(tmp_path), dtype="float16", flip="h")[0]
    assert int(found.isnan().sum()) == 1


def test_a_factory_alone_with_dali_generic_iterator(npy_index: Index) -> None:
    pipeline = npy_pipeline(npy_index, batch_size=10, shuffle=False, num_read_processes=2)
    batches = DALIGenericIterator([pipeline], list(pipeline.output_names), size=-1)
    schedule = pipeline.source.schedule
    rows = []
    for _, (batch,) in zip(range(schedule.steps(0)), batches, strict=False):
        rows += batch["row"][batch["valid"]].tolist()
    pipeline.close()
    assert rows == list(range(23))


def test_damaged_tiles_are_rejected_and_nothing_else(tmp_path: Path) -> None:
    """Flip bytes in the heap: either astropy sees the same pixels, or the row is rejected."""
    rng = np.random.default_rng(5)
    pixels = rng.normal(500, 30, (64, 96)).astype(np.int16)
    for row in range(24):
        path = tmp_path / f"{row:02d}.fits"
        fits.CompImageHDU(pixels + row, compression_type="RICE_1").writeto(path)
        if row % 2:
            data = bytearray(path.read_bytes())
            with fits.open(path, disable_image_compression=True) as hdus:
                heap = hdus[1].fileinfo()["datLoc"] + 64 * 8
                size = hdus[1].header["PCOUNT"]
            for place in rng.integers(heap, heap + size, 3):
                data[place] = rng.integers(256)
            path.write_bytes(data)
    index = Index.scan(tmp_path)
    options: dict[str, Any] = {"batch_size": 4, "devices": [None], "num_read_processes": 2}
    with Loader(fits_pipeline, index, bad_sample="skip", **options) as loader:
        for (batch,) in loader:
            for image, row in zip(batch["image"], batch["row"].tolist(), strict=True):
                np.testing.assert_array_equal(image[0].numpy(), truth(index.path(row)))
    assert 1 <= len(loader.stats.rejected) < 12
    assert all(row % 2 for row in loader.stats.rejected)
    assert loader.stats.samples == 24 - len(loader.stats.rejected)
    rejected = set(loader.stats.rejected)
    with Loader(fits_pipeline, index, bad_sample="skip", tail="fill", **options) as loader:
        for (batch,) in loader:
            assert batch["image"].shape[0] == 4
            for image, row in zip(batch["image"], batch["row"].tolist(), strict=True):
                assert row not in rejected
                np.testing.assert_array_equal(image[0].numpy(), truth(index.path(row)))
    assert set(loader.stats.rejected) == rejected
    with (
        Loader(fits_pipeline, index, **options) as loader,
        pytest.raises(ReadError, match="damaged"),
    ):
        list(loader)


def channels_pipeline(index: Index, **config: Any) -> Any:
    """Stack the channels; what is missing becomes -1."""

    def decode(arrays: Any, config: PipelineConfig) -> Decoded:
        del config
        present = fn.cast_like(arrays["present"], arrays["image_0"])
        planes = [arrays[f"image_{place}"] - (1 - present[place]) for place in (0, 1)]
        return Decoded(fn.cat(*planes, axis=2), "float32")

    reader = ChannelsReader(NpyReader(), ("193", "171"))
    return reader_pipeline(index, reader, decode, PipelineConfig(**config))


def test_samples_of_several_files(tmp_path: Path) -> None:
    times, waves, paths = [], [], []
    for number in range(6):
        for wave in (171, 193) if number != 2 else (171,):
            path = tmp_path / f"{wave}_{number}.npy"
            np.save(path, np.arange(48, dtype=np.float32).reshape(6, 8) + wave * 100 + number)
            times.append(12 * number + wave // 100)
            waves.append(wave)
            paths.append(str(path))
    time = pa.array(times, pa.timestamp("s"))
    files = Index(pa.table({"path": paths, "wavelnth": waves, "t_obs": time}))
    index = files.group([171, 193], tolerance=3, missing="keep")
    found = images(channels_pipeline, index, batch_size=2, crop=(2, 3), window="random")
    for row, image in found.items():
        for place, wave in enumerate((193, 171)):
            path = tmp_path / f"{wave}_{row}.npy"
            whole = np.load(path) if path.exists() else np.full((6, 8), -1, np.float32)
            np.testing.assert_array_equal(image[place], cut_and_flipped(whole, row, (2, 3), ""))
    assert not (tmp_path / "193_2.npy").exists()
    with pytest.raises(ValueError, match=r"2 files \(171, 193\).*NpyReader.*ChannelsReader"):
        reader_pipeline(index, NpyReader(), decode_array, PipelineConfig(batch_size=1))

    (tmp_path / "193_4.npy").write_bytes(b"")
    with Loader(
        channels_pipeline, index, batch_size=2, devices=[None], bad_sample="skip"
    ) as loader:
        rows = [row for (batch,) in loader for row in batch["row"].tolist()]
    assert sorted(rows) == [0, 1, 2, 3, 5]
    assert f"part 193, {tmp_path}/193_4.npy: " in loader.stats.rejected[4].reason


def test_wrong_types_are_reported_by_name(npy_index: Index) -> None:
    config: Any = PipelineConfig(batch_size=2)
    reader: Any = NpyReader
    with pytest.raises(TypeError, match=r"Reader.*NpyReader\(\).*class"):
        reader_pipeline(npy_index, reader, decode_array, config)
    config = {"batch_size": 2}
    with pytest.raises(TypeError, match=r"PipelineConfig\(batch_size.*{'batch_size'"):
        reader_pipeline(npy_index, NpyReader(), decode_array, config)
