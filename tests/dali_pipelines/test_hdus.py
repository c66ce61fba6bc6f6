"""Several images of each row, in the graph: against masks, against images of their own, and all
promises of the Loader."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from astropy.io import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from read_here import read_here

from dali_pipelines import (
    Hdu,
    Index,
    Loader,
    Mask,
    RandAugment,
    ReadError,
    fits_pipeline,
    jpeg_pipeline,
    with_tiles,
)
from dali_pipelines.memory import estimate_memory

SEED = 5
SHAPES = [(150, 200), (200, 150), (131, 233), (120, 120), (99, 140)]
TYPES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "uint8": ("u1", {"compression_type": "GZIP_2"}),
    "int8": ("i1", None),
    "int16": ("i2", {"compression_type": "RICE_1", "tile_shape": (16, 50)}),
    "uint16": ("u2", {"compression_type": "RICE_1"}),
    "int32": ("i4", {"compression_type": "HCOMPRESS_1"}),
    "int64": ("u4", None),
}
"""NumPy's types that are written, and how they are compressed."""
HDUS: dict[str, Any] = {"image": "SCI", "again": 1, "err": "ERR", **{name: name for name in TYPES}}

GEOMETRIES: dict[str, dict[str, Any]] = {
    "whole": {"batch_size": 1, "flip": "hv"},
    "whole, resized": {"resize": (40, 56), "flip": "hv"},
    "larger": {"resize": (333, 301), "flip": "hv"},
    "crop": {"crop": (64, 80), "window": "random", "flip": "hv"},
    "crop, resized": {"crop": (90, 64), "window": "random", "resize": 45, "flip": "h"},
    "region": {"random_area": (0.08, 1.0), "resize": (40, 56), "flip": "v"},
    "shorter": {"resize_shorter": 64, "crop": (40, 56), "window": "random", "flip": "hv"},
    "eval": {"resize_shorter": 64, "crop": 56, "mode": "eval"},
    "turned": {"crop": 64, "window": "random", "rotate": 180, "zoom": (0.7, 2.0), "flip": "hv"},
    "turned, resized": {"crop": (60, 80), "rotate": 30, "zoom": (1, 2), "resize": 40, "flip": "h"},
    "out of the image": {"crop": (90, 120), "rotate": 90, "zoom": (0.3, 0.5), "flip": "hv"},
}


def integers(dtype: str, shape: tuple[int, int], seed: int) -> NDArray[Any]:
    """Return values of the whole type, but half of the pixels are 1."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    high = 1000 if dtype == "i4" else info.max  # HCOMPRESS_1 does not take all
    values = rng.integers(info.min if high > 1000 else -high, high, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.5, 1, values).astype(dtype)


def write(path: Path, shape: tuple[int, int], seed: int, *, packed: bool = False) -> str:
    sci = np.random.default_rng(seed).normal(100, 9, shape).astype(np.float32)
    err = sci / 7
    err[::9, ::4] = np.nan
    hdus = [
        fits.PrimaryHDU(),
        fits.CompImageHDU(sci, name="SCI", compression_type="RICE_1"),
        fits.ImageHDU(err, name="ERR"),
    ]
    for name, (dtype, settings_of) in TYPES.items():
        array = integers(dtype, shape, seed)
        made = fits.ImageHDU if settings_of is None else fits.CompImageHDU
        hdus.append(made(array, name=name, **(settings_of or {})))
    path = path.with_suffix(".fits.gz" if packed else ".fits")
    fits.HDUList(hdus).writeto(path, overwrite=True)
    return str(path)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("frames")
    paths = [
        write(folder / f"{number}", shape, number, packed=number == 2)
        for number, shape in enumerate(SHAPES)
    ]
    return Index(pa.table({"path": paths, "file": paths}))


def one_epoch(index: Index, **config: Any) -> list[dict[str, NDArray[Any]]]:
    return [*read_here(fits_pipeline, index, **{"seed": SEED, "hdus": HDUS, **config}).values()]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_integers_are_as_masks_and_floats_as_images(index: Index, geometry: str) -> None:
    """Masks are made by NumPy in the reader, of pixels that astropy decodes."""
    masks = {f"mask_{name}": Mask("file", dtype=name, hdu=name) for name in TYPES}
    options = GEOMETRIES[geometry]
    samples = one_epoch(index, targets=masks, **options)
    alone = one_epoch(index, hdus={"image": "ERR"}, **options)
    plain = one_epoch(index, hdus=None, hdu="SCI", **options)
    assert len(samples) == len(SHAPES)
    for sample, err, image in zip(samples, alone, plain, strict=True):
        np.testing.assert_array_equal(sample["image"], image["image"])
        np.testing.assert_array_equal(sample["again"], image["image"])
        np.testing.assert_array_equal(sample["err"], err["image"])
        for name in TYPES:
            assert sample[name].dtype == name
            assert sample[name].shape == sample["image"].shape
            np.testing.assert_array_equal(sample[name][0], sample[f"mask_{name}"], err_msg=name)


def test_only_the_image_is_normalised(index: Index) -> None:
    options: dict[str, Any] = {"crop": 64, "window": "random", "flip": "hv"}
    plain = one_epoch(index, **options)
    for settings_of in (
        {"mean": 90, "std": 4},
        {"mean": 90, "std": 4, "transform": lambda image, *_: image},
        {"mean": 90, "std": 4, "dtype": "float16"},
    ):
        for one, other in zip(one_epoch(index, **options, **settings_of), plain, strict=True):
            expected = (other["image"] - 90) / 4
            np.testing.assert_allclose(one["image"], expected, atol=2e-2)
            for name in ("again", "err", *TYPES):
                np.testing.assert_array_equal(one[name], other[name])
                assert one[name].dtype == other[name].dtype


@pytest.mark.parametrize("geometry", ["crop", "crop, resized", "turned"])
def test_planes(tmp_path: Path, geometry: str) -> None:
    cube = np.random.default_rng(0).integers(0, 99, (3, 150, 140)).astype(np.int16)
    floats = cube.astype(np.float32)
    made = [fits.PrimaryHDU(), fits.ImageHDU(cube), fits.ImageHDU(floats)]
    fits.HDUList(made).writeto(tmp_path / "a.fits")
    index = Index.scan(tmp_path)
    options = GEOMETRIES[geometry]
    hdus = {
        "image": Hdu(2, planes=1),
        "pair": Hdu(1, planes=(2, 0)),
        "every": Hdu(2, planes="all"),
        **{f"n{number}": Hdu(1, planes=number) for number in range(3)},
    }
    (sample,) = one_epoch(index, hdus=hdus, batch_size=1, **options)
    np.testing.assert_array_equal(sample["pair"], np.concatenate((sample["n2"], sample["n0"])))
    np.testing.assert_allclose(sample["every"][1:2], sample["image"], rtol=1e-6)
    assert sample["every"].shape == (3, *sample["image"].shape[1:])
    if geometry == "crop":
        every = np.concatenate([sample[f"n{number}"] for number in range(3)])
        np.testing.assert_array_equal(sample["every"], every)


@pytest.fixture(scope="module")
def read_at_once(index: Index) -> Callable[[str], list[dict[str, NDArray[Any]]]]:
    """Return what gives the samples of a geometry, each time the same."""
    return cache(lambda geometry: one_epoch(index, **GEOMETRIES[geometry]))


@settings(max_examples=12)
@given(
    st.sampled_from(["crop", "turned", "region"]),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, len(SHAPES) - 1),
)
def test_samples_are_pure(
    index: Index,
    read_at_once: Callable[[str], list[dict[str, NDArray[Any]]]],
    geometry: str,
    batch_size: int,
    num_shards: int,
    position: int,
) -> None:
    """Whatever the batch size and the shards, and from wherever an epoch is resumed."""
    expected = read_at_once(geometry)
    found = []
    for shard in range(num_shards):
        found += one_epoch(
            index,
            **(GEOMETRIES[geometry] | {"batch_size": batch_size}),
            shard_id=shard,
            num_shards=num_shards,
            position=position,
        )
    assert len(found) == len(expected) - position
    by_row = {int(sample["row"]): sample for sample in expected}
    for sample in found:
        for name in HDUS:
            np.testing.assert_array_equal(sample[name], by_row[int(sample["row"])][name])


@pytest.mark.parametrize(
    ("hdus", "config", "reason"),
    [
        ({"dq": "int16"}, {}, "hdus must name the HDU of 'image', as {'image': 'SCI'"),
        ("SCI", {}, "hdus must be a mapping of names to HDUs"),
        ({"image": 1, 2: 3}, {}, "hdus must be a mapping of names to HDUs"),
        ({"image": 1, "dq": 1.5}, {}, "hdu must be 0 or more"),
        ({"image": Hdu(1, dtype="int16")}, {}, "the dtype of 'image' is that of the settings"),
        ({"image": 1, "row": 2}, {}, r"hdus \['row'\] have the name of another output"),
        ({"image": 1, "flip": 2}, {"outputs": ("flip",)}, r"hdus \['flip'\] have the name of"),
        ({"image": 1, "z": 2}, {"columns": ("z",)}, r"columns \['z'\] have the name of another"),
        ({"image": 1, "z": 2}, {"targets": {"z": Mask("file")}}, r"targets \['z'\] have the name"),
        ({"image": 1, "z": 2}, {"hdu": 1}, "give hdu, planes and num_planes in hdus"),
        ({"image": 1, "z": Hdu(relative=1)}, {}, "relative=1 of 'z' counts from column 'hdu'"),
        ({"image": 1, "z": 2}, {"augment": (RandAugment(),)}, "RandAugment also shears"),
    ],
)
def test_settings_that_make_no_sense(
    index: Index, hdus: Any, config: dict[str, Any], reason: str
) -> None:
    index = index.with_column("z", range(len(index)))
    with pytest.raises(ValueError, match=reason):
        fits_pipeline(index, batch_size=1, hdus=hdus, **config)


def test_samples_of_several_files_need_the_part_of_an_hdu() -> None:
    index = Index(pa.table({"path": ["a.fits"], "path_mask": ["b.fits"]}))
    with pytest.raises(ValueError, match=r"\(mask\), .*give Hdu\(part='mask'\)"):
        fits_pipeline(index, hdus={"image": 0}, batch_size=1)


def test_columns_that_contradict_the_settings(index: Index) -> None:
    numbered = index.with_column("hdu", [1] * len(index))
    with pytest.raises(ValueError, match=r"the Index has a column 'hdu', .* hdus says 'SCI' for"):
        fits_pipeline(numbered, batch_size=1, hdus=HDUS)
    for hdu in (2, "SCI", ("SCI", 1)):
        with pytest.raises(ValueError, match="the Index names HDU 1, and hdu="):
            fits_pipeline(numbered, batch_size=1, hdu=hdu)
        with pytest.raises(ValueError, match=r"drop_columns\(\['hdu'\]\)"):
            with_tiles(numbered, hdu=hdu)
    fits_pipeline(numbered, batch_size=1, hdu=1)
    some = index.with_column("hdu", [1] + [None] * (len(index) - 1))
    fits_pipeline(some, batch_size=1, hdu="SCI")
    planed = index.with_column("plane", [0] * len(index))
    with pytest.raises(ValueError, match="the Index has a column 'plane', one for each row"):
        fits_pipeline(planed, batch_size=1, hdus={"image": Hdu(1, planes=(0, 1))})
    with pytest.raises(KeyError, match="mask"):
        fits_pipeline(index, batch_size=1, hdus={"image": 1, "dq": Hdu(2, part="mask")})
    with pytest.raises(TypeError, match="takes no setting 'hdus'"):
        Loader(jpeg_pipeline, index, batch_size=1, hdus=HDUS)


def test_a_name_that_several_detectors_have(tmp_path: Path) -> None:
    """It is that of the first one, whatever detector the row names."""
    images = [fits.ImageHDU(np.zeros((9, 9), np.int16), name=name) for name in ("SCI", "DQ") * 2]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    index = Index.from_paths([tmp_path / "a.fits"] * 2).with_column("hdu", [1, 3])
    with pytest.raises(
        ValueError, match=r"'dq' of 'flags' names 2 HDUs .*: give Hdu\(relative=N\)"
    ):
        fits_pipeline(index, batch_size=1, hdus={"image": Hdu(), "flags": "dq"})
    for flags in (Hdu(relative=1), ("DQ", 1)):
        fits_pipeline(index, batch_size=1, hdus={"image": Hdu(), "flags": flags})


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_relative_hdus_have_the_names_of_the_first_file(tmp_path: Path, suffix: str) -> None:
    """Files of another order, or with another number of detectors, are rejected by name."""
    orders = {
        "a": "SCI1 ERR1 WHT1 SCI2 ERR2 WHT2",
        "b": "SCI1 WHT1 ERR1",
        "c": "WHT1 SCI2 ERR2 WHT2 SCI1 ERR1",
        "d": "SCI1 SCI2 ERR1 ERR2",
        "e": "SCI2 ERR1",
        "f": "sci1 err1",
        "g": "CCD1 MASK1",
    }
    paths, numbers, good = [], [], []
    for file, order in orders.items():
        made: list[Any] = [fits.PrimaryHDU()]
        for name in order.split():
            pixels = np.full((9, 9), ord(name[0].upper()), np.float32)
            made.append(fits.ImageHDU(pixels, name=name[:-1], ver=int(name[-1])))
        fits.HDUList(made).writeto(tmp_path / f"{file}.fits{suffix}")
        for number, name in enumerate(order.split(), 1):
            if name[0] in "SsC":
                beside = order.split()[number]
                good.append(file == "g" or beside.upper() == f"ERR{name[-1]}")
                paths.append(str(tmp_path / f"{file}.fits{suffix}"))
                numbers.append(number)
    index = Index(pa.table({"path": paths, "hdu": numbers}))
    hdus = {"image": Hdu(), "err": Hdu(relative=1)}
    found = {}
    with loader(index, hdus=hdus, crop=None, batch_size=1, bad_sample="skip", max_bad=99) as read:
        for (batch,) in read:
            for row, err in zip(batch["row"].tolist(), batch["err"], strict=True):
                found[row] = chr(int(err[0, 0, 0]))
        rejected = dict(read.stats.rejected)
    wanted = [row for row, is_good in enumerate(good) if is_good]
    assert sorted(found) == wanted
    assert all(found[row] == ("M" if "g.fits" in paths[row] else "E") for row in wanted)
    assert sorted(rejected) == [row for row in range(len(good)) if row not in wanted]
    reason = next(one.reason for one in rejected.values() if "b.fits" in one.path)
    assert "WHT" in reason
    assert "ERR" in reason


def test_relative_hdus_in_a_file_of_their_own(tmp_path: Path) -> None:
    for name, extensions in {"a": "SCI", "b": "SCI", "dq_a": "DQ", "dq_b": "WHT"}.items():
        pixels = fits.ImageHDU(np.ones((9, 9), np.int16), name=extensions)
        fits.HDUList([fits.PrimaryHDU(), pixels]).writeto(tmp_path / f"{name}.fits")
    table = {
        "path": [str(tmp_path / f"{name}.fits") for name in "ab"],
        "path_dq": [str(tmp_path / f"dq_{name}.fits") for name in "ab"],
        "hdu": [1, 1],
    }
    hdus = {"image": Hdu(), "dq": Hdu(part="dq", relative=0)}
    index = Index(pa.table(table))
    assert list(read_here(fits_pipeline, index, hdus=hdus, batch_size=1, seed=SEED)) == [0]


def loader(index: Index, **config: Any) -> Loader:
    options = {"batch_size": 3, "num_read_processes": 2, "crop": 64, "hdus": HDUS, **config}
    return Loader(fits_pipeline, index, devices=[None], seed=SEED, **options)


def test_a_mosaic_and_its_parts(index: Index) -> None:
    """HDUs counted from the row's, and one in a file of its own; some rows lack either."""
    rows = len(index)
    table = index.table.append_column("path_mask", index.table["path"])
    several = Index(table).with_column("hdu", pa.array([1] * (rows - 1) + [None], pa.int64()))
    empty = pa.array([None, *table["path"].to_pylist()[1:]], pa.string())
    several = Index(several.table.set_column(2, "path_mask", empty))
    hdus = {"image": Hdu(), "err": Hdu(relative=1), "dq": Hdu(part="mask", relative=4)}
    with loader(several, hdus=hdus, bad_sample="skip") as batches:
        found = {int(row): one for (one,) in batches for row in one["row"]}
        rejected = batches.stats.rejected
    assert sorted(found) == list(range(1, rows - 1))
    assert all(one["dq"].dtype == torch.int16 for one in found.values())
    assert rejected[0].reason == "dq: the row has no file of part 'mask': leave it out"
    assert rejected[rows - 1].reason.startswith("err: relative=1 counts from column 'hdu', which")


@pytest.mark.parametrize("tail", ["partial", "fill"])
@pytest.mark.parametrize("num_read_processes", [1, 2])
def test_bad_rows_are_left_out(
    index: Index, tmp_path: Path, tail: Any, num_read_processes: int
) -> None:
    """One lacks an HDU, one has another size, one another type; one tile cannot be decoded."""
    paths = [write(tmp_path / f"{number}", (80, 90), number) for number in range(6)]
    for number, change in ((1, "gone"), (3, "small"), (4, "wide")):
        with fits.open(paths[number]) as hdus:
            changed = hdus["int16"].data
            del hdus["int16"]
            changed = changed[:70] if change == "small" else changed
            changed = changed.astype(np.int32) if change == "wide" else changed
            if change != "gone":
                hdus.append(fits.ImageHDU(changed, name="int16"))
            hdus.writeto(paths[number], overwrite=True)
    with fits.open(paths[5], disable_image_compression=True) as hdus:
        table = hdus["int16"]
        at = table.fileinfo()["datLoc"] + table.header["NAXIS1"] * table.header["NAXIS2"]
    with open(paths[5], "r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 400)
    made = Index(pa.table({"path": paths}))
    hdus_of = {"image": "SCI", "dq": "int16", "err": "ERR"}
    options = {"hdus": hdus_of, "num_read_processes": num_read_processes, "tail": tail}
    with loader(made, bad_sample="skip", **options) as batches:
        for _ in range(2):
            rows = []
            for (batch,) in batches:
                assert batch["dq"].dtype == torch.int16
                rows += batch["row"][batch["valid"]].tolist()
            assert sorted(rows) == [0, 2]
        reasons = {row: one.reason for row, one in batches.stats.rejected.items()}
    assert reasons[1].startswith("dq: there is no HDU 'int16', the file has PRIMARY, SCI, ERR")
    assert "has 70x90 pixels, and HDU 1 (image) 80x90" in reasons[3]
    assert "dq: the values are of type int32 (BITPIX 32), expected int16" in reasons[4]
    assert reasons[5] == "dq: the compressed bytes of a tile are damaged"
    with loader(made, shuffle=False, **options) as batches, pytest.raises(ReadError) as caught:
        list(batches)
    assert caught.value.path == paths[1]


def test_resume_goes_on_with_the_same_samples(index: Index) -> None:
    options = GEOMETRIES["turned"]
    with loader(index, **options) as batches:
        whole = {int(row): one for (batch,) in batches for row, one in rows_of(batch)}
    with loader(index, **options) as first:
        found = {int(row): one for row, one in rows_of(next(iter(first))[0])}
        state = first.state_dict()
    with loader(index, **options, batch_size=2, num_read_processes=1) as second:
        second.load_state_dict(state)
        found |= {int(row): one for (batch,) in second for row, one in rows_of(batch)}
    assert set(found) == set(whole)
    for row, sample in found.items():
        for name in HDUS:
            assert torch.equal(sample[name].nan_to_num(7), whole[row][name].nan_to_num(7))


def rows_of(batch: dict[str, torch.Tensor]) -> list[tuple[int, dict[str, torch.Tensor]]]:
    return [
        (int(row), {name: batch[name][slot] for name in HDUS})
        for slot, row in enumerate(batch["row"])
    ]


def test_memory_counts_all_images(index: Index) -> None:
    config: dict[str, Any] = {"batch_size": 3, "crop": 64, "num_read_processes": 1}
    sizes = []
    for hdus in ({"image": "SCI"}, {"image": "SCI", "err": "ERR", "dq": "int64"}):
        with closing(fits_pipeline(index, hdus=hdus, **config)) as pipeline:
            sizes.append((estimate_memory([pipeline]), pipeline.footprint.image_nbytes))
            assert pipeline.peek is not None
    one, three = sizes
    assert three[1] - one[1] == 64 * 64 * (4 + 8)
    assert three[0].shared > 2 * one[0].shared
    assert three[0].images > 3 * one[0].images


def test_what_is_not_used_costs_nothing(index: Index) -> None:
    """One image alone is what it is without hdus, and no places of nearest pixels are sent."""
    config: dict[str, Any] = {"batch_size": 1, "crop": 64, "rotate": 9, "num_read_processes": 0}
    floats = {"image": "SCI", "err": "ERR"}
    for hdus, sends in ((floats, False), (floats | {"dq": "int16"}, True)):
        with closing(fits_pipeline(index, hdus=hdus, **config)) as pipeline:
            assert ("nearest" in {spec.name for spec in pipeline.source.specs}) == sends
            assert "matrix" not in pipeline.output_names
