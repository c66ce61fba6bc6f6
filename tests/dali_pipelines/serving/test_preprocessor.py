"""A Preprocessor gives what a Loader in mode eval gives, whatever the factory and the contents."""

from __future__ import annotations

import gc
import gzip
import math
import multiprocessing
import os
import pickle
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import serving_parts
import solar_files
import torch
from astropy.io import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import pillow, rgb, undecodable_jpeg
from torch.utils.data import DataLoader

from dali_pipelines import (
    ColorJitter,
    Hdu,
    Index,
    Loader,
    Mask,
    PreprocessError,
    Preprocessor,
    ReadError,
    Stretch,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)

RNG = np.random.default_rng(38)
CHANCE: dict[str, Any] = {"window": "random", "flip": "hv", "rotate": 20.0, "zoom": (0.5, 2.0)}


def loaded(factory: Any, index: Index, **config: Any) -> tuple[dict[str, Any], Preprocessor]:
    """Return the batch of all rows of an Index in mode eval, and the Loader's Preprocessor."""
    own = {"batch_size": len(index), "num_read_processes": 1, "devices": [None], **config}
    with Loader(factory, index, mode="eval", framework="numpy", **own) as loader:
        ((batch,),) = loader
        return batch, loader.preprocessor()


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two batches have the same outputs, element type, shape and value of each."""
    return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def contents_of(index: Index) -> list[bytes]:
    return [Path(path).read_bytes() for path in index.table["path"].to_pylist()]


@pytest.fixture(scope="module")
def mosaics(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """FITS files of an image, its flags, and a cube."""
    folder = tmp_path_factory.mktemp("mosaics")
    for row in range(5):
        image = RNG.normal(100, 10, (64, 80)).astype(np.float32)
        flags = RNG.integers(0, 100, (64, 80)).astype(np.int16)
        hdus = [
            fits.PrimaryHDU(),
            fits.ImageHDU(image, name="SCI"),
            fits.CompImageHDU(flags, name="DQ", tile_shape=(16, 16)),
            fits.ImageHDU(RNG.normal(0, 1, (3, 64, 80)).astype(np.float32), name="CUBE"),
        ]
        fits.HDUList(hdus).writeto(folder / f"{row}.fits")
    return Index.scan(folder)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """JPEG and PNG files of several sizes."""
    folder = tmp_path_factory.mktemp("photographs")
    for row in range(5):
        image = RNG.integers(0, 255, (40 + 3 * row, 60, 3), np.uint8)
        kind = "PNG" if row % 2 else "JPEG"
        (folder / f"{row}.{kind.lower()}").write_bytes(pillow(image, kind))
    return Index.scan(folder)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("arrays")
    for row in range(5):
        np.save(folder / f"{row}.npy", RNG.random((30, 40, 2)).astype(np.float32))
    return Index.scan(folder)


FITS_SETTINGS: dict[str, dict[str, Any]] = {
    "window": {"hdu": "SCI", "crop": 32, "mean": 90.0, "std": 12.0, **CHANCE},
    "whole": {"hdu": ("SCI", 1)},
    "stored": {"hdu": "DQ", "dtype": "int16", "crop": 20},
    "filled": {"hdu": "DQ", "dtype": "int16", "crop": 90, "outside": "fill", "missing": -1},
    "half": {"hdu": "SCI", "dtype": "float16", "crop": (20, 30), "resize": 16},
    "planes": {"hdu": "CUBE", "planes": (2, 0), "crop": 16, "mean": (0.5, 0.1)},
    "all planes": {"hdu": "CUBE", "planes": "all", "crop": 16, "outputs": ("window", "matrix")},
    "hdus": {
        "hdus": {"image": "SCI", "flags": "DQ", "cube": Hdu("CUBE", planes="all")},
        "crop": 24,
        **CHANCE,
    },
    "padded": {"hdu": "SCI", "ragged": "pad"},
    "listed": {"hdus": {"image": Hdu("CUBE", planes="all"), "flags": "DQ"}, "ragged": "list"},
    "transformed": {"hdu": "SCI", "transform": serving_parts.doubled, "crop": 8},
}
JPEG_SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {"resize_shorter": 32, "crop": 24, "mean": (120, 110, 100), "std": (60, 61, 62)},
    "gray": {"channels": 1, "crop": 30, "augment": (ColorJitter(0.4),), **CHANCE},
    "stored": {"dtype": "uint8", "crop": 24},
    "listed": {"ragged": "list"},
    "padded": {"ragged": "pad", "dtype": "uint8"},
    "transformed": {"transform": serving_parts.Scaled(3.0), "resize": 20},
}


@pytest.mark.parametrize("name", FITS_SETTINGS)
def test_fits(mosaics: Index, name: str) -> None:
    batch, pre = loaded(fits_pipeline, mosaics, **FITS_SETTINGS[name])
    assert equal(pre(contents_of(mosaics)), batch)
    assert equal(pre(mosaics.table["path"].to_pylist()), batch)


@pytest.mark.parametrize("name", JPEG_SETTINGS)
def test_jpeg(photographs: Index, name: str) -> None:
    batch, pre = loaded(jpeg_pipeline, photographs, **JPEG_SETTINGS[name])
    assert equal(pre(contents_of(photographs)), batch)


def test_npy(arrays: Index) -> None:
    batch, pre = loaded(npy_pipeline, arrays, channels=2, crop=16, **CHANCE)
    assert equal(pre(contents_of(arrays)), batch)
    assert equal(pre([np.load(path) for path in arrays.table["path"].to_pylist()]), batch)


@pytest.mark.gpu
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_on_a_gpu(mosaics: Index, photographs: Index, framework: Any) -> None:
    on_gpu: dict[str, Any] = {"devices": [0]}
    for factory, index, config in (
        (fits_pipeline, mosaics, FITS_SETTINGS["hdus"]),
        (jpeg_pipeline, photographs, JPEG_SETTINGS["usual"]),
    ):
        batch, pre = loaded(factory, index, **config, **on_gpu)
        assert pre.device_id == 0
        found = Preprocessor(factory, device_id=0, framework=framework, **pre.settings)(
            contents_of(index)
        )
        assert equal({name: to_cpu(one) for name, one in found.items()}, batch)


def to_cpu(array: Any) -> Any:
    return array.cpu() if isinstance(array, torch.Tensor) else array


def test_a_reader_of_ones_own(tmp_path: Path) -> None:
    for row in range(3):
        image = RNG.integers(0, 65535, (20, 30)).astype(">u2")
        (tmp_path / f"{row}.raw").write_bytes(image.tobytes())
    index = Index.scan(tmp_path, suffixes=(".raw",))
    factory = partial(serving_parts.raw_pipeline, shape=(20, 30), crop=8)
    batch, pre = loaded(factory, index)
    assert equal(pre(contents_of(index)), batch)


@pytest.fixture(scope="module")
def suns(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Two channels of two times, one of which is missing."""
    folder = tmp_path_factory.mktemp("suns")
    pixels, header = solar_files.frame()
    paths: dict[str, list[str | None]] = {"path_a": [], "path_b": []}
    for row in range(2):
        for part, column in paths.items():
            file = folder / f"{row}{part}.fits"
            solar_files.save(file, pixels + RNG.normal(0, 5, pixels.shape), header)
            column.append(str(file))
    paths["path_b"][1] = None
    return Index(pa.table({"path": paths["path_a"], **paths}))


def test_files_of_a_sample(suns: Index) -> None:
    stretch = Stretch(kind="asinh", unit=100)
    batch, pre = loaded(aia_pipeline, suns, size=64, exposure=True, stretch=stretch, crop=32)
    assert pre.files == ("a", "b")
    a, b = (suns.table[f"path_{part}"].to_pylist() for part in "ab")
    contents = [{"a": Path(a[0]).read_bytes(), "b": b[0]}, {"a": a[1], "b": None}]
    assert equal(pre(contents), batch)
    assert batch["present"].tolist() == [[True, True], [True, False]]


def test_a_file_of_its_own_for_another_hdu(mosaics: Index) -> None:
    paths = mosaics.table["path"].to_pylist()
    index = Index(pa.table({"path": paths, "path_flags": paths[::-1]}))
    hdus = {"image": "SCI", "flags": Hdu("DQ", part="flags")}
    batch, pre = loaded(fits_pipeline, index, hdus=hdus, crop=16)
    contents = contents_of(mosaics)
    several = [
        {"path": one, "flags": other} for one, other in zip(contents, contents[::-1], strict=True)
    ]
    assert equal(pre(several), batch)


@pytest.fixture(scope="module")
def cut(mosaics: Index) -> Iterator[tuple[Preprocessor, list[bytes], np.ndarray]]:
    """A Preprocessor of at most 4 contents at a time, contents, and their images."""
    batch, _ = loaded(fits_pipeline, mosaics, hdu="SCI", crop=16)
    with Preprocessor(fits_pipeline, hdu="SCI", crop=16, framework="numpy", max_batch=4) as pre:
        yield pre, contents_of(mosaics), batch["image"]


@given(rows=st.lists(st.integers(0, 6), max_size=12))
@settings(deadline=None, max_examples=40)
def test_any_contents_in_any_order(cut: Any, rows: list[int]) -> None:
    pre, contents, images = cut
    contents = [*contents, b"not FITS", contents[0][:5000]]
    good = [number for number, row in enumerate(rows) if row < 5]
    batch = pre([contents[row] for row in rows], bad_sample="skip")
    assert batch["row"].tolist() == good
    assert _same(batch["image"], images[[rows[number] for number in good]])
    assert sorted(batch["rejected"]) == sorted({*range(len(rows))} - {*good})


def test_kinds_of_contents(cut: Any, tmp_path: Path) -> None:
    pre, contents, images = cut
    path = tmp_path / "a.fits"
    path.write_bytes(contents[0])
    as_array = np.frombuffer(contents[0], np.uint8)
    for content in (
        *(contents[0], bytearray(contents[0]), memoryview(contents[0]), as_array),
        *(torch.from_numpy(as_array.copy()), path, str(path), gzip.compress(contents[0])),
    ):
        assert _same(pre.image(content), images[0]), type(content)


@pytest.mark.parametrize(
    "image", [rgb(8), rgb(8)[..., 0], rgb(8)[:, ::-1], rgb(16), rgb(16)[..., 1]], ids=str
)
def test_images_that_are_arrays(image: np.ndarray, tmp_path: Path) -> None:
    found = Preprocessor(jpeg_pipeline, crop=8, framework="numpy").image(image)
    y, x = (image.shape[0] - 8) // 2, (image.shape[1] - 8) // 2
    window = np.broadcast_to(np.atleast_3d(image), (*image.shape[:2], 3))[y : y + 8, x : x + 8]
    assert _same(found, window.transpose(2, 0, 1).astype(np.float32))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "float64", ">i2"])
def test_fits_images_that_are_arrays(dtype: str) -> None:
    image = RNG.integers(0, 100, (20, 30)).astype(dtype)
    found = Preprocessor(fits_pipeline, framework="numpy").image(image)
    assert _same(found, image[None].astype(np.float32))


@pytest.mark.parametrize("content", [3, None, [b""], object(), np.zeros((4, 4, 2)), {"a": b""}])
def test_what_is_no_content(content: Any) -> None:
    with pytest.raises(TypeError, match="content 1"):
        Preprocessor(jpeg_pipeline, crop=8)([pillow(rgb(8)), content])


@pytest.mark.parametrize("content", [b"", "a.jpg", bytearray(), Path("a"), {"a": b""}])
def test_one_content_must_be_in_a_list(content: Any) -> None:
    with pytest.raises(TypeError, match=r"\[content\]"):
        Preprocessor(jpeg_pipeline, crop=8)(content)


def test_contents_that_cannot_be_read(cut: Any) -> None:
    pre, contents, images = cut
    bad = [contents[0], b"", contents[1], contents[1][:7000], Path("/no/such.fits"), b"SIMPLE  "]
    with pytest.raises(PreprocessError, match=r"content 1: .*content 3: .*content 4: .*content 5"):
        pre(bad)
    batch = pre(bad, bad_sample="skip")
    assert _same(batch["image"], images[:2])
    assert batch["row"].tolist() == [0, 2]
    assert sorted(batch["rejected"]) == [1, 3, 4, 5]
    error = pickle.loads(pickle.dumps(PreprocessError(batch["rejected"])))
    assert error.rejected == batch["rejected"]


def test_many_bad_contents_make_a_short_message(cut: Any) -> None:
    pre, _, _ = cut
    with pytest.raises(PreprocessError) as caught:
        pre([b"?"] * 30)
    assert len(caught.value.rejected) == 30
    assert len(str(caught.value)) < 600


def test_a_content_that_the_graph_cannot_decode() -> None:
    good = [pillow(RNG.integers(0, 255, (40, 40, 3), np.uint8)) for _ in range(3)]
    with Preprocessor(jpeg_pipeline, crop=16, framework="numpy") as pre:
        images = pre(good)["image"]
        contents = [good[0], undecodable_jpeg(), good[1], b"", undecodable_jpeg(), good[2]]
        batch = pre(contents, bad_sample="skip")
        assert _same(batch["image"], images)
        assert sorted(batch["rejected"]) == [1, 3, 4]
        assert _same(pre(good)["image"], images)


def test_damaged_tiles_name_their_image(mosaics: Index) -> None:
    content = bytearray(contents_of(mosaics)[0])
    with fits.open(mosaics.path(0), disable_image_compression=True) as hdus:
        header = hdus["DQ"].header
        start = hdus["DQ"].fileinfo()["datLoc"] + header["NAXIS1"] * header["NAXIS2"]
    content[start : start + 60] = b"\xff" * 60
    hdus = {"image": "SCI", "flags": Hdu("DQ", dtype="int16")}
    pre = Preprocessor(fits_pipeline, hdus=hdus)
    with pytest.raises(PreprocessError, match=r"content 0: flags: .*damaged"):
        pre([content])


def test_images_of_several_sizes(photographs: Index) -> None:
    contents = contents_of(photographs)
    pre = Preprocessor(jpeg_pipeline, max_batch=2)
    with pytest.raises(ValueError, match="ragged"):
        pre(contents[:2])
    with pytest.raises(ValueError, match="ragged"):
        pre([contents[0], contents[0], contents[1], contents[1]])
    assert pre(contents[:1])["image"].shape == (1, 3, 40, 60)  # it goes on
    listed = Preprocessor(jpeg_pipeline, max_batch=2, ragged="list")(contents)
    assert [image.shape[1] for image in listed["image"]] == [40, 43, 46, 49, 52]
    with pytest.raises(ValueError, match="at most max_batch=2"):
        Preprocessor(jpeg_pipeline, max_batch=2, ragged="pad")(contents)


def test_nan_stays() -> None:
    image = np.full((8, 8), 5, np.float32)
    image[2, 3] = math.nan
    found = Preprocessor(fits_pipeline, mean=1, framework="numpy").image(image)
    assert math.isnan(found[0, 2, 3])
    assert np.nansum(found) == 4 * 63


@pytest.mark.parametrize("framework", ["torch", "jax", "numpy", "dlpack"])
def test_frameworks(cut: Any, framework: Any) -> None:
    _, contents, images = cut
    with Preprocessor(fits_pipeline, hdu="SCI", crop=16, framework=framework, max_batch=2) as pre:
        found = pre(contents)["image"]
        assert type(found).__module__.split(".")[0] in (framework, "jaxlib", "numpy", "torch")
        assert _same(found, images)


def test_kept_batches_stay_right(cut: Any) -> None:
    pre, contents, images = cut
    kept = [pre(contents) for _ in range(12)]
    assert all(_same(batch["image"], images) for batch in kept)


@pytest.mark.parametrize("how", ["good", "skip", "raise", "undecodable"])
def test_contents_are_not_kept(cut: Any, how: str) -> None:
    """A server would hold the requests of the last batch of each size."""
    pre, contents, _ = cut
    bad = {"good": [], "undecodable": [undecodable_jpeg()]}.get(how, [b"not FITS"])
    if how == "undecodable":
        pre = Preprocessor(jpeg_pipeline, crop=16, framework="numpy")
        contents = [pillow(RNG.integers(0, 255, (40, 40, 3), np.uint8)) for _ in range(3)]
    arrays = [np.frombuffer(content, np.uint8).copy() for content in (*contents, *bad)]
    kept = [weakref.ref(array) for array in arrays]
    given = [array.data for array in arrays]
    if how == "raise":
        with pytest.raises(PreprocessError):
            pre(given)
    else:
        assert len(pre(given, bad_sample="skip")["row"]) == len(contents)
    del arrays, given
    gc.collect()
    assert not [number for number, one in enumerate(kept) if one() is not None]


def test_threads_take_turns(cut: Any) -> None:
    pre, contents, images = cut
    wrong: list[int] = []

    def work(first: int) -> None:
        for number in range(first, first + 20):
            rows = [number % 5, (number + 2) % 5, (number * 3) % 5]
            if not _same(pre([contents[row] for row in rows])["image"], images[rows]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(7 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_forked_and_other_processes(cut: Any) -> None:
    pre, contents, images = cut
    pre(contents)
    parent, child = multiprocessing.Pipe()
    if (pid := os.fork()) == 0:
        child.send(_same(pre(contents)["image"], images))
        os._exit(0)
    assert parent.poll(60)
    assert parent.recv()
    assert os.waitpid(pid, 0)[1] == 0
    again = pickle.loads(pickle.dumps(pre))
    assert _same(again(contents)["image"], images)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_the_workers_of_a_dataloader(cut: Any, method: str) -> None:
    _, contents, images = cut
    pre = Preprocessor(fits_pipeline, hdu="SCI", crop=16)
    pre(contents[:1])
    dataset = serving_parts.Contents(contents, pre.image)
    batches: Any = DataLoader(dataset, 5, num_workers=2, multiprocessing_context=method)
    (found,) = batches
    assert _same(found, images)


def test_closed(cut: Any) -> None:
    _, contents, _ = cut
    with Preprocessor(fits_pipeline, hdu="SCI") as pre:
        pre(contents[:1])
    with pytest.raises(RuntimeError, match="closed"):
        pre(contents[:1])
    pre.close()


def test_build_and_outputs(cut: Any) -> None:
    pre, contents, images = cut
    pre.build()
    assert pre.outputs()["image"] == (np.dtype(np.float32), (1, 16, 16))
    assert _same(pre(contents)["image"], images)
    whole = Preprocessor(fits_pipeline, dtype="int16", num_planes=3, planes="all")
    assert whole.outputs()["image"] == (np.dtype(np.int16), (3, None, None))
    assert pre([])["image"].shape == (0, 1, 16, 16)


@pytest.mark.parametrize(
    ("factory", "config", "reason"),
    [
        (jpeg_pipeline, {"columns": ("label",)}, "Index"),
        (jpeg_pipeline, {"targets": {"mask": Mask("mask_path")}}, "Index"),
        (jpeg_pipeline, {"weights": "weight"}, "Index"),
        (jpeg_pipeline, {"batch_size": 3}, "Index"),
        (jpeg_pipeline, {"shuffle": True}, "Index"),
        (jpeg_pipeline, {"window": "row", "crop": 8}, "Index"),
        (jpeg_pipeline, {"mode": "train"}, "eval"),
        (jpeg_pipeline, {"random_area": (0.1, 1), "resize": 8}, "eval"),
        (jpeg_pipeline, {"corp": 8}, "crop"),
        (jpeg_pipeline, {"hdu": 1}, "hdu"),
        (jpeg_pipeline, {"max_batch": 0}, "max_batch"),
        (jpeg_pipeline, {"max_batch": True}, "max_batch"),
        (jpeg_pipeline, {"framework": "tensorflow"}, "framework"),
        (partial(jpeg_pipeline, num_threads=3), {}, "num_threads"),
        (fits_pipeline, {"planes": "all"}, "num_planes"),
        (fits_pipeline, {"hdus": {"image": 1, "flags": 2}}, "dtype"),
        (fits_pipeline, {"hdus": {"image": 1, "flags": Hdu(relative=1)}}, "relative"),
        (fits_pipeline, {"planes": 2, "num_planes": 3}, "num_planes"),
        (aia_pipeline, {"preset": "no such"}, "no such"),
    ],
)
def test_settings_that_are_not_for_contents(factory: Any, config: Any, reason: str) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        Preprocessor(factory, **config)([])


class TestOfALoader:
    def preprocessor(self, index: Index, **config: Any) -> Preprocessor:
        return Loader(fits_pipeline, index, batch_size=2, devices=[None], **config).preprocessor()

    def with_column(self, index: Index, name: str, values: Any) -> Index:
        return Index(index.table.append_column(name, pa.array(values)))

    def test_what_the_index_names(self, mosaics: Index) -> None:
        index = self.with_column(mosaics, "hdu", [3] * 5)
        batch, pre = loaded(fits_pipeline, self.with_column(index, "plane", [1] * 5), crop=8)
        assert equal(pre(contents_of(mosaics)), batch)
        images = {"image": Hdu(relative=0), "flags": Hdu(relative=-1, planes=0)}
        index = self.with_column(index, "plane", [2] * 5)
        batch, pre = loaded(fits_pipeline, index, crop=8, hdus=images)
        assert equal(pre(contents_of(mosaics)), batch)

    def test_images_of_the_detector_that_the_index_names(self, tmp_path: Path) -> None:
        names = [(name, version) for version in (1, 2) for name in ("SCI", "ERR")]
        hdus = [
            fits.ImageHDU(np.full((8, 8), number, np.float32), name=name, ver=version)
            for number, (name, version) in enumerate(names, 1)
        ]
        fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(tmp_path / "a.fits")
        index = self.with_column(Index.scan(tmp_path), "hdu", [3])
        batch, pre = loaded(fits_pipeline, index, hdus={"image": "SCI", "err": "ERR"})
        assert [batch[name].flatten()[0] for name in ("image", "err")] == [3, 4]
        assert equal(pre(contents_of(index)), batch)

    def test_images_of_one_of_several_detectors(self, tmp_path: Path) -> None:
        names = [(name, version) for version in (1, 2) for name in ("SCI", "ERR")]
        hdus = [
            fits.ImageHDU(np.full((8, 8), number, np.float32), name=name, ver=version)
            for number, (name, version) in enumerate(names, 1)
        ]
        fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(tmp_path / "a.fits")
        index = Index.scan(tmp_path).select([0, 0]).with_column("hdu", [1, 3])
        images = {"image": "SCI", "err": "ERR"}
        loader = Loader(fits_pipeline, index, batch_size=2, devices=[None], hdus=images)
        with pytest.raises(ValueError, match=r"1, 3.*hdus.*EXTVER"):
            loader.preprocessor()
        contents = contents_of(index)[:1]
        with loader.preprocessor(hdus={"image": ("SCI", 2), "err": ("ERR", 2)}) as pre:
            batch = pre(contents)
        assert [float(batch[name].flatten()[0]) for name in images] == [3, 4]
        # The first ERR is that of another detector.
        with (
            pytest.raises(ReadError, match=r"EXTVER 1.*\('ERR', 2\)"),
            loader.preprocessor(hdus={"image": ("SCI", 2), "err": "ERR"}) as pre,
        ):
            pre(contents)

    def test_several_that_the_index_names(self, mosaics: Index) -> None:
        index = self.with_column(mosaics, "hdu", [1, 1, 2, 2, 1])
        with pytest.raises(ValueError, match=r"'hdu' .*1, 2"):
            self.preprocessor(index)
        loader = Loader(fits_pipeline, index, batch_size=2, devices=[None])
        assert loader.preprocessor(hdu=1).settings == {"hdu": 1}

    @pytest.mark.parametrize(("column", "setting"), [("hdu", "hdu"), ("plane", "planes")])
    def test_rows_for_which_the_index_names_none(
        self, mosaics: Index, column: str, setting: str
    ) -> None:
        """They are read from another HDU or plane than the rest."""
        index = self.with_column(mosaics, column, [2, None, 2, 2, None])
        with pytest.raises(ValueError, match=rf"'{column}' .*2.*pass {setting}"):
            self.preprocessor(index)

    def test_files_that_a_sample_lacks_do_not_count(self, suns: Index) -> None:
        index = self.with_column(suns, "hdu_a", [0, 0])
        index = self.with_column(index, "hdu_b", [0, None])
        assert self.preprocessor(index).settings == {"hdu": 0}

    def test_windows_of_rows(self, mosaics: Index) -> None:
        index = mosaics.each_window((16, 16), (64, 80))
        with pytest.raises(ValueError, match="center"):
            self.preprocessor(index, window="row", crop=16)

    def test_labels_and_order_do_not_count(self, mosaics: Index) -> None:
        index = self.with_column(mosaics, "label", [1, 2, 3, 4, 5])
        pre = self.preprocessor(
            index, columns=("label",), weights="label", hdu="SCI", crop=8, restart_readers=2
        )
        assert pre.settings == {"hdu": "SCI", "crop": (8, 8)}

    def test_random_regions_need_others(self, photographs: Index) -> None:
        loader = Loader(
            jpeg_pipeline,
            photographs,
            batch_size=2,
            random_area=(0.1, 1),
            resize=24,
            devices=[None],
        )
        with pytest.raises(ValueError, match="resize_shorter"):
            loader.preprocessor()
        pre = loader.preprocessor(random_area=None, resize=None, resize_shorter=32, crop=24)
        batch, _ = loaded(jpeg_pipeline, photographs, resize_shorter=32, crop=24)
        assert equal(pre(contents_of(photographs)), batch)

    def test_the_framework_is_that_of_the_loader(self, mosaics: Index) -> None:
        pre = self.preprocessor(mosaics, framework="numpy", hdu="SCI", crop=8)
        assert isinstance(pre(contents_of(mosaics))["image"], np.ndarray)
