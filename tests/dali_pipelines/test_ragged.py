"""Images of several sizes in a batch, as lists and padded: each that of its file, in any batch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

import lazy_loader
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from on_gpu.devices import DEVICES
from PIL import Image

from dali_pipelines import (
    Boxes,
    Erase,
    Hdu,
    Index,
    Loader,
    Mask,
    ReadError,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)
from dali_pipelines.frameworks.choose import framework_named
from dali_pipelines.loading.batches import valid_only
from readers import Order, Sample, SampleSpec, Target

SIZES = [(23, 40), (31, 17), (16, 16), (40, 22), (17, 33), (28, 28), (9, 52), (36, 11), (20, 24)]
"""(height, width) of each row."""
ROWS = len(SIZES)

KINDS: list[Any] = ["list", "pad"]
NUMPY = framework_named("numpy")

Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """JPEGs with masks and boxes."""
    folder = tmp_path_factory.mktemp("photos")
    chance = np.random.default_rng(1)
    for row, (height, width) in enumerate(SIZES):
        pixels = chance.integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.jpg", quality=95, subsampling=0)
        classes = chance.integers(1, 6, (height, width), np.uint8)
        Image.fromarray(classes).save(folder / f"{row}.png")
    index = Index.from_paths([folder / f"{row}.jpg" for row in range(ROWS)])
    index = index.with_column("mask_path", [str(folder / f"{row}.png") for row in range(ROWS)])
    return index.with_column("boxes", [np.array([[1.0, 2, w, h]]) for h, w in SIZES])


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """FITS images of int16 in tiles, with flags."""
    folder = tmp_path_factory.mktemp("frames")
    chance = np.random.default_rng(2)
    for row, size in enumerate(SIZES):
        image = chance.integers(1, 500, size).astype(np.int16)
        tiled = fits.CompImageHDU(image, compression_type="RICE_1", tile_shape=(7, size[1]))
        flags = fits.ImageHDU(chance.integers(1, 9, size).astype(np.int16))
        fits.HDUList([fits.PrimaryHDU(), tiled, flags]).writeto(folder / f"{row}.fits")
    return Index.scan(folder)


def numpy_of(array: Any) -> NDArray[Any]:
    array = array.get() if hasattr(array, "get") else array
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def samples_of(
    batches: Iterable[dict[str, Any]],
    ragged: str,
    outside: dict[str, float],
    largest: tuple[int, int] | None = None,
) -> list[tuple[int, Arrays]]:
    """Return row and images of each sample, after a look at what is beyond them.

    Padded ones are as large as the `largest`, by default of those that are delivered.
    """
    found = []
    for batch in batches:
        rows = numpy_of(batch["row"]).tolist()
        sizes = numpy_of(batch["size"]) if ragged == "pad" else None
        for name in outside:
            if sizes is None:
                assert isinstance(batch[name], list)
            elif rows:
                assert sizes.dtype == np.int32
                assert batch[name].shape[-2:] == (largest or tuple(sizes.max(axis=0)))
            assert len(batch[name]) == len(rows)
        for slot, row in enumerate(rows):
            arrays = {name: numpy_of(batch[name][slot]) for name in outside}
            if sizes is not None:
                height, width = sizes[slot].tolist()
                for name, array in arrays.items():
                    arrays[name] = array[..., :height, :width]
                    assert (array[..., height:, :] == outside[name]).all()
                    assert (array[..., width:] == outside[name]).all()
            found.append((row, arrays))
    return found


def loader_of(factory: Any, index: Index, **options: Any) -> Loader:
    shards = options.pop("shards", 1)
    given = {"batch_size": 3, "num_read_processes": shards, "devices": [None] * shards}
    return Loader(factory, index, **{**given, **options})


def photo(index: Index, row: int) -> Arrays:
    """Return what Pillow reads of a row."""
    with (
        Image.open(index.path(row)) as image,
        Image.open(index.table["mask_path"][row].as_py()) as mask,
    ):
        return {"image": np.asarray(image).transpose(2, 0, 1), "mask": np.asarray(mask)}


def check_photos(index: Index, found: list[tuple[int, Arrays]]) -> None:
    for row, arrays in found:
        for name, expected in photo(index, row).items():
            np.testing.assert_array_equal(arrays[name], expected)


@pytest.mark.parametrize("ragged", KINDS)
def test_photos_in_each_framework(photos: Index, framework: Any, ragged: Any) -> None:
    """All batches are kept, those of the next epoch, too, and the last ones are short or empty."""
    targets: dict[str, Any] = {"mask": Mask("mask_path", outside=255), "boxes": Boxes("boxes")}
    options: dict[str, Any] = {"shards": 2, "batch_size": 4, "targets": targets}
    with loader_of(jpeg_pipeline, photos, framework=framework, ragged=ragged, **options) as loader:
        kept = [batch for _ in range(2) for step in loader for batch in step]
    found = samples_of(kept, ragged, {"image": 0, "mask": 255})
    assert [len(batch["image"]) for batch in kept] == [4, 4, 1, 0] * 2
    arrays = [kept[0][name][0] if ragged == "list" else kept[0][name] for name in ("image", "mask")]
    packages = {"jax": "jaxlib", "dlpack": "numpy", "cupy": "cupy_standin"}
    assert {type(array).__module__.partition(".")[0] for array in arrays} == {
        packages.get(framework, framework)
    }
    check_photos(photos, found)
    assert sorted(row for row, _ in found) == sorted([*range(ROWS)] * 2)
    for batch in kept:
        for boxes, row in zip(numpy_of(batch["boxes"]), batch["row"].tolist(), strict=True):
            height, width = SIZES[row]
            assert boxes.tolist() == [[1, 2, width, height]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ragged", KINDS)
def test_frames_and_their_flags(frames: Index, ragged: Any, device: int | None) -> None:
    """What is beyond an image is 0 also after mean and std."""
    hdus = {"image": 1, "flags": Hdu(2, outside=-1), "again": 2}
    options: dict[str, Any] = {"mean": 100.0, "std": 50.0, "devices": [device], "hdus": hdus}
    with loader_of(fits_pipeline, frames, ragged=ragged, batch_size=4, **options) as loader:
        batches = [batch for step in loader for batch in step]
        stats = loader.stats
    found = samples_of(batches, ragged, {"image": 0, "flags": -1, "again": 0})
    assert sorted(row for row, _ in found) == [*range(ROWS)]
    for row, arrays in found:
        with fits.open(frames.path(row)) as file:
            image, flags = file[1].data, file[2].data
        assert arrays["image"].dtype == np.float32
        np.testing.assert_allclose(arrays["image"][0], (image - 100.0) / 50, rtol=1e-5, atol=1e-5)
        for name in ("flags", "again"):
            assert arrays[name].dtype == np.int16
            np.testing.assert_array_equal(arrays[name][0], flags)
    if ragged == "list":
        assert stats.output_pixels == sum(height * width for height, width in SIZES)
    else:
        assert stats.output_pixels == sum(batch["image"].numel() for batch in batches)


@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_lists_are_not_copied(photos: Index, monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    settings: dict[str, Any] = {"batch_size": 4, "num_read_processes": 0}
    pipeline = jpeg_pipeline(photos, ragged="list", **settings)
    pipeline.build()
    pipeline.schedule_run()
    outputs = pipeline.share_outputs()
    monkeypatch.setattr(pipeline, "share_outputs", lambda: outputs)
    images = next(framework_named(name).iterate(pipeline))["image"]
    addresses = [image.ctypes.data if name == "numpy" else image.data_ptr() for image in images]
    assert addresses == [outputs[0][slot].data_ptr() for slot in range(4)]
    pipeline.close()


def test_bare_pipelines(photos: Index) -> None:
    """Without a Loader, as DALI gives the outputs."""
    options: dict[str, Any] = {"batch_size": 4, "num_read_processes": 0, "shuffle": False}
    for ragged in (None, "list"):
        pipeline = jpeg_pipeline(photos, ragged=ragged, **options)
        pipeline.build()
        images = pipeline.run()[0]
        assert [shape[1:] for shape in images.shape()] == SIZES[:4]
        assert pipeline.listed == ({"image"} if ragged == "list" else set())
        pipeline.close()
    pipeline = jpeg_pipeline(photos, ragged="pad", **options)
    pipeline.build()
    outputs = dict(zip(pipeline.output_names, pipeline.run(), strict=True))
    assert outputs["image"].as_tensor().shape() == [4, 3, 40, 40]
    assert np.asarray(outputs["size"].as_tensor()).tolist() == [*map(list, SIZES[:4])]
    pipeline.close()


@settings(max_examples=8)
@given(
    st.sampled_from(KINDS),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, ROWS - 1),
    st.sampled_from(["partial", "fill"]),
)
def test_samples_are_pure(
    photos: Index, ragged: Any, batch_size: int, num_shards: int, position: int, tail: Any
) -> None:
    """From any position on, in batches and shards of any number."""
    rows = []
    for shard_id in range(num_shards):
        pipeline = jpeg_pipeline(
            photos,
            ragged=ragged,
            batch_size=batch_size,
            shard_id=shard_id,
            num_shards=num_shards,
            position=position,
            tail=tail,
            seed=7,
            num_read_processes=0,
            targets={"mask": Mask("mask_path")},
        )
        batches = NUMPY.iterate(pipeline)
        for _ in range(pipeline.source.schedule.steps(0)):
            batch = next(batches)
            if tail == "partial":
                batch = valid_only(batch, batch["valid"], NUMPY)
            found = samples_of([batch], ragged, {"image": 0, "mask": 0})
            check_photos(photos, found)
            valid = batch["valid"].tolist()
            rows += [row for (row, _), is_valid in zip(found, valid, strict=True) if is_valid]
        pipeline.close()
    order = Order(ROWS, seed=7)
    assert sorted(rows) == sorted(order.row(0, place) for place in range(position, ROWS))


@pytest.fixture(scope="module")
def uninterrupted(photos: Index) -> list[tuple[int, Arrays]]:
    with loader_of(jpeg_pipeline, photos, ragged="list", seed=3) as loader:
        return samples_of([batch for (batch,) in loader], "list", {"image": 0})


def check_same(found: list[tuple[int, Arrays]], expected: list[tuple[int, Arrays]]) -> None:
    assert [row for row, _ in found] == [row for row, _ in expected]
    for (_, arrays), (_, others) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(arrays["image"], others["image"])


def test_resume(photos: Index, uninterrupted: list[tuple[int, Arrays]]) -> None:
    """With other batch sizes, and the other way to deliver them."""
    state: dict[str, Any] = {}
    found = []
    for ragged, batch_size, steps in (("pad", 2, 1), ("list", 4, 1), ("pad", 1, 1), ("pad", 3, 1)):
        options: dict[str, Any] = {"ragged": ragged, "batch_size": batch_size, "seed": 3}
        with loader_of(jpeg_pipeline, photos, **options) as loader:
            if state:
                loader.load_state_dict(state)
            batches = [batch for (batch,) in islice(loader, steps)]
            state = loader.state_dict()
        found += samples_of(batches, ragged, {"image": 0})
    assert state["epoch"] == 1
    check_same(found, uninterrupted)


@pytest.mark.parametrize("ragged", KINDS)
def test_a_killed_reader(
    photos: Index, uninterrupted: list[tuple[int, Arrays]], ragged: Any
) -> None:
    options: dict[str, Any] = {"ragged": ragged, "seed": 3, "restart_readers": 1, "prefetch": 1}
    with loader_of(jpeg_pipeline, photos, batch_size=1, **options) as loader:
        steps = iter(loader)
        batches = [batch for (batch,) in islice(steps, 2)]
        (victim,) = loader.pipelines[0].processes()
        os.kill(victim.pid or 0, signal.SIGKILL)
        wait([victim.sentinel])
        batches += [batch for (batch,) in steps]
        assert loader.stats.restarts == 1
    check_same(samples_of(batches, ragged, {"image": 0}), uninterrupted)


@pytest.mark.parametrize("tail", ["partial", "fill"])
@pytest.mark.parametrize("ragged", KINDS)
def test_rows_that_cannot_be_read(photos: Index, tmp_path: Path, ragged: Any, tail: Any) -> None:
    """They take no place, and the widest, of which the mask is gone, makes no batch wider."""
    bad, masks = (6, 8), photos.table["mask_path"].to_pylist()
    for row in bad:
        masks[row] = str(tmp_path / f"gone{row}.png")
    index = Index(photos.table.drop("mask_path")).with_column("mask_path", masks)
    options: dict[str, Any] = {"targets": {"mask": Mask("mask_path")}, "shuffle": False}
    with loader_of(
        jpeg_pipeline, index, ragged=ragged, bad_sample="skip", tail=tail, shards=2, **options
    ) as loader:
        batches = [batch for step in loader for batch in step]
        assert sorted(loader.stats.rejected) == [*bad]
    found = samples_of(batches, ragged, {"image": 0, "mask": 0})
    check_photos(photos, found)
    rows = [row for row, _ in found]
    valid = [is_valid for batch in batches for is_valid in batch["valid"].tolist()]
    counted = [row for row, is_valid in zip(rows, valid, strict=True) if is_valid]
    assert counted == [row for row in range(ROWS) if row not in bad]
    assert len(rows) == (12 if tail == "fill" else ROWS - 2)
    if ragged == "pad":
        assert batches[2]["image"].shape[2:] == (36, 11)
    if tail == "partial":
        with (
            pytest.raises(ReadError, match=r"gone6\.png"),
            loader_of(jpeg_pipeline, index, ragged=ragged, **options) as loader,
        ):
            list(loader)


def test_frames_with_damaged_tiles(frames: Index, tmp_path: Path) -> None:
    """Which the graph finds after they were read, so that their size counts."""
    path = tmp_path / "damaged.fits"
    data = bytearray(Path(frames.path(0)).read_bytes())
    with fits.open(frames.path(0), disable_image_compression=True) as file:
        header = file[1].header
        start = file[1].fileinfo()["datLoc"] + header["NAXIS1"] * header["NAXIS2"]
        data[start : start + 20] = b"\xff" * 20
    path.write_bytes(data)
    index = Index.from_paths([path, *(frames.path(row) for row in range(1, 4))])
    options: dict[str, Any] = {"hdu": 1, "batch_size": 4, "shuffle": False, "bad_sample": "skip"}
    for ragged in KINDS:
        with loader_of(fits_pipeline, index, ragged=ragged, **options) as loader:
            ((batch,),) = loader
            assert [*loader.stats.rejected] == [0]
        found = samples_of([batch], ragged, {"image": 0}, largest=(40, 40))
        assert [row for row, _ in found] == [1, 2, 3]
        for row, arrays in found:
            with fits.open(index.path(row)) as file:
                np.testing.assert_array_equal(arrays["image"][0], file[1].data)


@given(st.lists(st.booleans(), max_size=9))
def test_slots_of_lists(flags: list[bool]) -> None:
    valid = np.array(flags, bool)
    arrays = [np.full((slot, 2), slot) for slot in range(len(flags))]
    batch = {"image": arrays, "row": np.arange(len(flags))}
    found = valid_only(batch, valid, NUMPY)
    assert found["row"].tolist() == [slot for slot, is_valid in enumerate(flags) if is_valid]
    assert all(one is arrays[row] for one, row in zip(found["image"], found["row"], strict=True))
    assert len(found["image"]) == len(found["row"])


class Distances(Target):
    """Two planes as large as the sample, which does not say so."""

    columns = ()

    def fitted(self, table: Any) -> Self:
        return self

    def specs(self, name: str) -> tuple[SampleSpec, ...]:
        return (SampleSpec(name=name, dtype="float32", ndim=3),)

    def read(self, name: str, values: Any, placement: Any) -> Sample:
        return Sample({name: np.mgrid[tuple(map(slice, placement.shape))].astype(np.float32)})

    def blank(self, name: str, shape: tuple[int, int]) -> Sample:
        return Sample({name: np.zeros((2, *shape), np.float32)})


class Told(Distances):
    """As large as the sample, and says so."""

    outside = -2.5


def test_a_target_of_ones_own(photos: Index) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_read_processes": 0, "shuffle": False}
    for ragged in KINDS:
        pipeline = jpeg_pipeline(photos, ragged=ragged, targets={"at": Told()}, **options)
        found = samples_of([next(NUMPY.iterate(pipeline))], ragged, {"image": 0, "at": -2.5})
        for row, arrays in found:
            np.testing.assert_array_equal(arrays["at"], np.mgrid[tuple(map(slice, SIZES[row]))])
        pipeline.close()
        pipeline = jpeg_pipeline(photos, ragged=ragged, targets={"at": Distances()}, **options)
        message = "arrays 'at' of one batch differ in shape: .* have an attribute 'outside'"
        with pytest.raises(ValueError, match=message):
            next(NUMPY.iterate(pipeline))
        pipeline.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ragged": "crop"}, "ragged must be one of 'list', 'pad', None, got 'crop'"),
        (
            {"targets": {"mask": Mask("mask_path", dtype="float64")}},
            "'mask' is float64, which DALI does not pad: give dtype='float32', or ragged='list'",
        ),
        (
            {"targets": {"mask": Mask("mask_path", dtype="int32", outside=2**31 - 1)}},
            "outside=2147483647 of 'mask' is not exact in float32, by which DALI pads",
        ),
        (
            {"targets": {"size": Mask("mask_path")}},
            r"targets \['size'\] have the name of another output: rename them",
        ),
        ({"columns": ("size",)}, r"columns \['size'\] have the name of another output"),
    ],
)
def test_what_cannot_be_padded(photos: Index, options: Any, message: str) -> None:
    index = photos.with_column("size", range(ROWS))
    with pytest.raises(ValueError, match=message):
        jpeg_pipeline(index, **{"batch_size": 2, "ragged": "pad", **options})
    if options.get("ragged") is None:
        jpeg_pipeline(index, batch_size=2, ragged="list", num_read_processes=0, **options).close()


def test_images_of_hdus_that_cannot_be_padded(frames: Index) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"image": 1, "size": 2}, r"hdus \['size'\] have the name of another output"),
        ({"image": 1, "dq": Hdu(2, dtype="int64", outside=2**31 + 1)}, "not exact in float32"),
    ]
    for hdus, message in cases:
        with pytest.raises(ValueError, match=message):
            fits_pipeline(frames, batch_size=2, ragged="pad", hdus=hdus)


def test_global_arrays_are_of_one_size(npy_index: Index) -> None:
    jax: Any = lazy_loader.load("jax")
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("b",))
    sharding = jax.sharding.NamedSharding(mesh, jax.P("b"))
    for ragged in KINDS:
        message = f"ragged='{ragged}' gives each shard sizes of its own, and with a sharding all"
        with pytest.raises(ValueError, match=message):
            Loader(
                npy_pipeline,
                npy_index,
                batch_size=2,
                tail="drop",
                framework="jax",
                sharding=sharding,
                ragged=ragged,
            )


def test_sequences(tmp_path: Path) -> None:
    """Of two times and two channels, with augmentations and operators of one's own."""
    paths, times = [], []
    for pair, size in enumerate(SIZES[:3]):
        for number in (2 * pair, 2 * pair + 1):
            for channel in (0, 1):
                paths.append(tmp_path / f"{number}{channel}.npy")
                np.save(paths[-1], np.full(size, 10 * number + channel, np.float32))
                times.append(720 * number)
    table = {"path": [*map(str, paths)], "wavelnth": [0, 1] * 6}
    files = Index(pa.table({**table, "t_obs": pa.array(times, pa.timestamp("s"))}))
    index = files.group([0, 1], offsets=("0", "+12min")).select([0, 2, 4])
    options: dict[str, Any] = {"flip": "hv", "augment": (Erase(1.0, value=7),)}
    for ragged in KINDS:
        settings: Any = {"batch_size": 2, "num_read_processes": 0, "ragged": ragged}
        pipeline = npy_pipeline(index, transform=_one_more, shuffle=False, **settings, **options)
        batches = NUMPY.iterate(pipeline)
        first, second = (samples_of([next(batches)], ragged, {"image": 0}) for _ in range(2))
        for pair, (_, arrays) in enumerate([*first, *second[:1]]):
            image = arrays["image"]
            assert image.shape == (2, 2, *SIZES[pair])
            for number, frame in enumerate(image.reshape(4, -1)):
                value = 20 * pair + 10 * (number // 2) + number % 2
                assert set(np.unique(frame)) == {value + 1, 8}
        pipeline.close()


def _one_more(image: Any, chance: Any, config: Any) -> Any:
    return image + 1
