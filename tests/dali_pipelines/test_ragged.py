"""Images of several sizes in a batch, as lists and padded: each is the whole image of its file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

import lazy_loader
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from epochs import HOW, check_equal, check_pure, in_turns, new_loader
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from on_gpu.devices import DEVICES
from ramp_images import SEED, Archive, Samples, gray
from read_here import read_here

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

SIZES = ((23, 40), (31, 17), (16, 16), (40, 22), (17, 33), (28, 28), (9, 52), (36, 11), (20, 24))
"""(height, width) of each file."""
ROWS = len(SIZES)
KINDS: list[Any] = ["list", "pad"]
NUMPY = framework_named("numpy")
Photos = tuple[Archive, list[NDArray[Any]]]
MASK = Mask("mask_path", "int16", outside=255)


@pytest.fixture(scope="module")
def photos(ramps: Callable[..., Archive], tmp_path_factory: pytest.TempPathFactory) -> Photos:
    """JPEGs with boxes and masks, and the masks."""
    archive, masks = ramps("jpeg", SIZES).with_masks(tmp_path_factory.mktemp("masks"))
    boxes = [np.array([[1.0, 2, width, height]]) for height, width in archive.shapes]
    return archive.with_column("boxes", boxes), masks


@pytest.fixture(scope="module")
def index(photos: Photos) -> Index:
    return photos[0].index


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """FITS images of int16 in tiles, with flags."""
    folder = tmp_path_factory.mktemp("frames")
    for row, size in enumerate(SIZES):
        tiles = {"compression_type": "RICE_1", "tile_shape": (7, size[1])}
        tiled = fits.CompImageHDU(gray(size, row) + 1, **tiles)
        flags = fits.ImageHDU(gray(size, row) % 9 + 1)
        fits.HDUList([fits.PrimaryHDU(), tiled, flags]).writeto(folder / f"{row}.fits")
    return Index.scan(folder)


def numpy_of(array: Any) -> NDArray[Any]:
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def samples_of(
    batches: Iterable[dict[str, Any]],
    ragged: str,
    outside: dict[str, float],
    largest: tuple[int, int] | None = None,
) -> list[tuple[int, dict[str, NDArray[Any]]]]:
    """Return row and arrays of each sample, after a look at the padding.

    Batches are as large as the `largest` image, by default of those that are delivered.
    """
    found = []
    for batch in batches:
        rows = numpy_of(batch["row"]).tolist()
        sizes = numpy_of(batch["size"]) if ragged == "pad" else None
        for name in outside:
            assert len(batch[name]) == len(rows)
            if sizes is None:
                assert isinstance(batch[name], list)
            elif rows:
                assert sizes.dtype == np.int32
                assert batch[name].shape[-2:] == (largest or tuple(sizes.max(axis=0)))
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


def check_photos(photos: Photos, found: list[tuple[int, dict[str, NDArray[Any]]]]) -> None:
    archive, masks = photos
    for row, arrays in found:
        image = archive.images[row].transpose(2, 0, 1)
        np.testing.assert_allclose(arrays["image"], image, rtol=0, atol=archive.atol)
        np.testing.assert_array_equal(arrays["mask"], masks[row])


@pytest.mark.parametrize("ragged", KINDS)
def test_photos_in_each_framework(photos: Photos, framework: Any, ragged: str) -> None:
    """All batches are kept, those of the next epoch, too, and the last ones are short or empty."""
    options: dict[str, Any] = {"batch_size": 4, "devices": [None] * 2, "num_read_processes": 2}
    options |= {"targets": {"mask": MASK, "boxes": Boxes("boxes")}}
    with new_loader(
        jpeg_pipeline, photos[0].index, framework=framework, ragged=ragged, **options
    ) as loader:
        kept = [batch for _ in range(2) for step in loader for batch in step]
    assert [len(batch["image"]) for batch in kept] == [4, 4, 1, 0] * 2
    packages = {"jax": "jaxlib", "dlpack": "numpy"}
    for name in ("image", "mask"):
        array = kept[0][name][0] if ragged == "list" else kept[0][name]
        package = type(array).__module__.partition(".")[0]
        assert package == packages.get(framework, framework)
    found = samples_of(kept, ragged, {"image": 0, "mask": 255})
    check_photos(photos, found)
    assert sorted(row for row, _ in found) == sorted([*range(ROWS)] * 2)
    for batch in kept:
        for boxes, row in zip(numpy_of(batch["boxes"]), batch["row"].tolist(), strict=True):
            height, width = photos[0].shapes[row]
            assert boxes.tolist() == [[1, 2, width, height]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ragged", KINDS)
def test_frames_and_their_flags(frames: Index, ragged: str, device: int | None) -> None:
    """Padding of the image is 0 also after mean and std."""
    hdus = {"image": 1, "flags": Hdu(2, outside=-1), "again": 2}
    options: dict[str, Any] = {"mean": 100.0, "std": 50.0, "devices": [device], "hdus": hdus}
    with new_loader(fits_pipeline, frames, ragged=ragged, batch_size=4, **options) as loader:
        batches = [batch for step in loader for batch in step]
        pixels = loader.stats.output_pixels
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
    whole = sum(height * width for height, width in SIZES)
    padded = sum(np.size(numpy_of(batch["image"])) for batch in batches if ragged == "pad")
    assert pixels == (whole if ragged == "list" else padded)


@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_lists_are_not_copied(index: Index, monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    pipeline = jpeg_pipeline(index, ragged="list", batch_size=4, num_read_processes=0)
    pipeline.build()
    pipeline.schedule_run()
    outputs = pipeline.share_outputs()
    monkeypatch.setattr(pipeline, "share_outputs", lambda: outputs)
    images = next(framework_named(name).iterate(pipeline))["image"]
    addresses = [image.ctypes.data if name == "numpy" else image.data_ptr() for image in images]
    assert addresses == [outputs[0][slot].data_ptr() for slot in range(4)]
    pipeline.close()


@pytest.mark.parametrize("ragged", [None, *KINDS])
def test_outputs_without_a_loader(photos: Photos, ragged: Any) -> None:
    """They are what DALI delivers."""
    archive = photos[0]
    options: dict[str, Any] = {"batch_size": 4, "num_read_processes": 0, "shuffle": False}
    pipeline = jpeg_pipeline(archive.index, ragged=ragged, **options)
    pipeline.build()
    outputs = dict(zip(pipeline.output_names, pipeline.run(), strict=True))
    assert pipeline.listed == ({"image"} if ragged == "list" else set())
    shapes = archive.shapes[:4]
    if ragged == "pad":
        largest = [max(sides) for sides in zip(*shapes, strict=True)]
        assert outputs["image"].as_tensor().shape() == [4, 3, *largest]
        assert np.asarray(outputs["size"].as_tensor()).tolist() == [*map(list, shapes)]
    else:
        assert [shape[1:] for shape in outputs["image"].shape()] == shapes
    pipeline.close()


# However they are read.


def padding_removed(found: Samples) -> Samples:
    """Return samples without padding, nor the output that says how large they are."""
    whole: Samples = {}
    for row, sample in found.items():
        height, width = sample.get("size", sample["mask"].shape)
        whole[row] = {name: sample[name][..., :height, :width] for name in ("image", "mask")}
    return whole


@pytest.fixture(scope="module")
def expected(photos: Photos) -> Samples:
    found = padding_removed(photos[0].samples(ragged="list", targets={"mask": MASK}))
    check_photos(photos, [*found.items()])
    return found


@pytest.mark.parametrize("tail", ["partial", "fill"])
@pytest.mark.parametrize("ragged", KINDS)
def test_samples_do_not_depend_on_how_they_are_read(
    index: Index, expected: Samples, ragged: str, tail: str
) -> None:
    def read(**options: Any) -> Samples:
        return padding_removed(read_here(jpeg_pipeline, index, **options))

    @settings(max_examples=4)
    @given(HOW)
    def pure(how: dict[str, int]) -> None:
        own: dict[str, Any] = {"ragged": ragged, "tail": tail, "targets": {"mask": MASK}}
        check_pure(read, how, expected, **own)

    pure()


def test_a_resume_goes_on_in_the_other_way(index: Index, expected: Samples) -> None:
    turns = [
        {"ragged": ragged, "batch_size": batch_size}
        for ragged, batch_size in (("pad", 2), ("list", 4), ("pad", 1), ("pad", 3))
    ]
    found = in_turns(jpeg_pipeline, index, turns, targets={"mask": MASK})
    check_equal(padding_removed(found), expected)


@pytest.mark.parametrize("ragged", KINDS)
def test_a_killed_reader(photos: Photos, index: Index, ragged: str) -> None:
    options: dict[str, Any] = {"ragged": ragged, "restart_readers": 1, "prefetch": 1}
    options |= {"batch_size": 1, "targets": {"mask": MASK}}
    with new_loader(jpeg_pipeline, index, **options) as loader:
        steps = iter(loader)
        batches = [batch for (batch,) in islice(steps, 2)]
        (victim,) = loader.pipelines[0].processes()
        os.kill(victim.pid or 0, signal.SIGKILL)
        wait([victim.sentinel])
        batches += [batch for (batch,) in steps]
        assert loader.stats.restarts == 1
    found = samples_of(batches, ragged, {"image": 0, "mask": 255})
    check_photos(photos, found)
    order = Order(ROWS, seed=SEED)
    assert [row for row, _ in found] == [order.row(0, place) for place in range(ROWS)]


# Bad rows.


@pytest.mark.parametrize(
    ("ragged", "tail"), [("list", "partial"), ("pad", "fill"), ("pad", "partial")]
)
def test_bad_rows_take_no_place(photos: Photos, tmp_path: Path, ragged: str, tail: str) -> None:
    """The widest, whose mask is gone, makes no batch wider."""
    archive, bad = photos[0], (6, 8)
    masks = archive.index.table["mask_path"].to_pylist()
    for row in bad:
        masks[row] = str(tmp_path / f"gone{row}.png")
    index = Index(archive.index.table.drop("mask_path")).with_column("mask_path", masks)
    options: dict[str, Any] = {"targets": {"mask": MASK}, "shuffle": False, "ragged": ragged}
    options |= {"devices": [None] * 2, "num_read_processes": 2, "tail": tail}
    with new_loader(jpeg_pipeline, index, bad_sample="skip", **options) as loader:
        batches = [batch for step in loader for batch in step]
        assert sorted(loader.stats.rejected) == [*bad]
    found = samples_of(batches, ragged, {"image": 0, "mask": 255})
    check_photos(photos, found)
    valid = [is_valid for batch in batches for is_valid in batch["valid"].tolist()]
    counted = [row for (row, _), is_valid in zip(found, valid, strict=True) if is_valid]
    assert counted == [row for row in range(ROWS) if row not in bad]
    assert len(found) == (12 if tail == "fill" else ROWS - 2)
    if ragged == "pad":
        assert batches[2]["image"].shape[2:] == archive.shapes[7]
    if tail == "partial":
        with (
            pytest.raises(ReadError, match=r"gone6\.png"),
            new_loader(jpeg_pipeline, index, **options) as loader,
        ):
            list(loader)


@pytest.mark.parametrize("ragged", KINDS)
def test_frames_with_damaged_tiles(frames: Index, tmp_path: Path, ragged: str) -> None:
    """The graph finds the damage after they were read, so that their size counts."""
    path = tmp_path / "damaged.fits"
    data = bytearray(Path(frames.path(0)).read_bytes())
    with fits.open(frames.path(0), disable_image_compression=True) as file:
        header = file[1].header
        start = file[1].fileinfo()["datLoc"] + header["NAXIS1"] * header["NAXIS2"]
        data[start : start + 20] = b"\xff" * 20
    path.write_bytes(data)
    index = Index.from_paths([path, *(frames.path(row) for row in range(1, 4))])
    options: dict[str, Any] = {"hdu": 1, "batch_size": 4, "shuffle": False, "ragged": ragged}
    with new_loader(fits_pipeline, index, bad_sample="skip", **options) as loader:
        ((batch,),) = loader
        assert [*loader.stats.rejected] == [0]
    found = samples_of([batch], ragged, {"image": 0}, largest=(40, 40))
    assert [row for row, _ in found] == [1, 2, 3]
    for row, arrays in found:
        np.testing.assert_array_equal(arrays["image"][0], gray(SIZES[row], row) + 1)


@given(st.lists(st.booleans(), max_size=9))
def test_slots_of_lists(flags: list[bool]) -> None:
    arrays = [np.full((slot, 2), slot) for slot in range(len(flags))]
    batch = {"image": arrays, "row": np.arange(len(flags))}
    found = valid_only(batch, np.array(flags, bool), NUMPY)
    assert found["row"].tolist() == [slot for slot, is_valid in enumerate(flags) if is_valid]
    assert all(one is arrays[row] for one, row in zip(found["image"], found["row"], strict=True))


# Other outputs.


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


@pytest.mark.parametrize("ragged", KINDS)
def test_a_target_of_ones_own(photos: Photos, ragged: Any) -> None:
    archive = photos[0]
    options: dict[str, Any] = {"batch_size": 4, "num_read_processes": 0, "ragged": ragged}
    pipeline = jpeg_pipeline(archive.index, targets={"at": Told()}, **options)
    found = samples_of([next(NUMPY.iterate(pipeline))], ragged, {"image": 0, "at": -2.5})
    for row, arrays in found:
        np.testing.assert_array_equal(arrays["at"], np.indices(archive.shapes[row]))
    pipeline.close()
    pipeline = jpeg_pipeline(archive.index, targets={"at": Distances()}, **options)
    with pytest.raises(ValueError, match=r"'at'.*differ in shape.*attribute 'outside'"):
        next(NUMPY.iterate(pipeline))
    pipeline.close()


@pytest.mark.parametrize("ragged", KINDS)
def test_sequences(tmp_path: Path, ragged: Any) -> None:
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
    options: dict[str, Any] = {"flip": "hv", "augment": (Erase(1.0, value=7),), "shuffle": False}
    options |= {"batch_size": 2, "num_read_processes": 0, "ragged": ragged}
    pipeline = npy_pipeline(index, transform=lambda image, *_: image + 1, **options)
    batches = NUMPY.iterate(pipeline)
    first, second = (samples_of([next(batches)], ragged, {"image": 0}) for _ in range(2))
    for pair, (_, arrays) in enumerate([*first, *second[:1]]):
        assert arrays["image"].shape == (2, 2, *SIZES[pair])
        for number, frame in enumerate(arrays["image"].reshape(4, -1)):
            value = 20 * pair + 10 * (number // 2) + number % 2
            assert set(np.unique(frame)) == {value + 1, 8}
    pipeline.close()


# Settings.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ragged": "crop"}, "ragged.*'list', 'pad', None.*'crop'"),
        (
            {"targets": {"mask": Mask("mask_path", dtype="float64")}},
            "'mask' is float64.*dtype='float32', or ragged='list'",
        ),
        (
            {"targets": {"mask": Mask("mask_path", dtype="int32", outside=2**31 - 1)}},
            "outside=2147483647 of 'mask'.*float32.*ragged='list'",
        ),
        ({"targets": {"size": MASK}}, r"targets \['size'\].*another output.*rename"),
        ({"columns": ("size",)}, r"columns \['size'\].*another output"),
    ],
)
def test_settings_that_cannot_be_padded(index: Index, options: Any, message: str) -> None:
    index = index.with_column("size", range(ROWS))
    with pytest.raises(ValueError, match=message):
        jpeg_pipeline(index, **{"batch_size": 2, "ragged": "pad", **options})
    if options.get("ragged") is None:
        jpeg_pipeline(index, batch_size=2, ragged="list", num_read_processes=0, **options).close()


@pytest.mark.parametrize("ragged", KINDS)
def test_global_arrays_are_of_one_size(npy_index: Index, ragged: Any) -> None:
    jax: Any = lazy_loader.load("jax")
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("b",))
    options: dict[str, Any] = {"framework": "jax", "tail": "drop", "batch_size": 2}
    options["sharding"] = jax.sharding.NamedSharding(mesh, jax.P("b"))
    with pytest.raises(ValueError, match=f"ragged='{ragged}'.*sharding"):
        Loader(npy_pipeline, npy_index, ragged=ragged, **options)
