"""Several images of each row: other HDUs, planes and files, under the geometry of the first."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from epochs import HOW, by_row, check_pure, in_turns, new_loader
from hypothesis import given, settings
from numpy.typing import NDArray
from ramp_images import Samples, Truth, gray, sample_of
from read_here import read_here
from scipy import ndimage

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

SHAPES = ((75, 100), (100, 75), (65, 117), (60, 60), (50, 70))
TYPES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "uint8": ("u1", {"compression_type": "GZIP_2"}),
    "int8": ("i1", None),
    "int16": ("i2", {"compression_type": "RICE_1", "tile_shape": (16, 50)}),
    "uint16": ("u2", {"compression_type": "RICE_1"}),
    "int32": ("i4", {"compression_type": "HCOMPRESS_1"}),
    "int64": ("u4", None),
}
"""EXTNAME, which is the type that is delivered -> the type that is written, and its compression."""
HDUS: dict[str, Any] = {"image": "SCI", "again": 1, "err": "ERR", **{name: name for name in TYPES}}

RANDOM: dict[str, Any] = {"window": "random", "flip": "hv"}
TURNED: dict[str, Any] = {"crop": 32, **RANDOM, "rotate": 180, "zoom": (0.7, 2.0)}
GEOMETRIES: list[dict[str, Any]] = [
    {"batch_size": 1, "flip": "hv"},
    {"resize": (20, 28), "flip": "hv"},
    {"resize": (166, 151), "flip": "hv"},
    {"crop": (32, 40), **RANDOM},
    {"crop": (45, 32), **RANDOM, "resize": 22},
    {"random_area": (0.08, 1.0), "resize": (20, 28), "flip": "v"},
    {"resize_shorter": 32, "crop": (20, 28), **RANDOM},
    {"resize_shorter": 32, "crop": 28, "mode": "eval"},
    TURNED,
    {"crop": (30, 40), "rotate": 30, "zoom": (1, 2), "resize": 20, "flip": "h"},
    {"crop": (45, 60), "rotate": 90, "zoom": (0.3, 0.5), "flip": "hv"},
]


def integers(dtype: str, shape: tuple[int, int], seed: int) -> NDArray[Any]:
    """Return values of the whole type, but half of the pixels are 1."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    least, most = (-1000, 1000) if dtype == "i4" else (info.min, info.max)  # HCOMPRESS_1 is limited
    values = rng.integers(least, most, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.5, 1, values).astype(dtype)


def write(path: Path, shape: tuple[int, int], seed: int) -> str:
    sci = gray(shape, seed).astype(np.float32)
    err = sci / 7
    err[::9, ::4] = np.nan
    hdus = [
        fits.PrimaryHDU(),
        fits.CompImageHDU(sci, name="SCI", compression_type="RICE_1"),
        fits.ImageHDU(err, name="ERR"),
    ]
    for name, (dtype, compression) in TYPES.items():
        made = fits.ImageHDU if compression is None else fits.CompImageHDU
        hdus.append(made(integers(dtype, shape, seed), name=name, **(compression or {})))
    fits.HDUList(hdus).writeto(path, overwrite=True)
    return str(path)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("frames")
    paths = [
        write(folder / f"{number}.fits{'.gz' * (number == 2)}", shape, number)
        for number, shape in enumerate(SHAPES)
    ]
    return Index(pa.table({"path": paths, "file": paths}))


def samples(index: Index, **options: Any) -> Samples:
    return read_here(fits_pipeline, index, **{"seed": 5, "hdus": HDUS, **options})


def truth_of(array: NDArray[Any], row: int, options: dict[str, Any]) -> Truth:
    own = {name: value for name, value in options.items() if name != "batch_size"}
    truth = sample_of(array[..., None], row, **own)
    assert truth is not None
    return truth


def with_holes_of(
    found: NDArray[Any], expected: NDArray[np.float64]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return both with the NaN of the first, which may be a pixel larger where weights are 0."""
    lost, wide = np.isnan(expected), ndimage.binary_dilation(np.isnan(expected), np.ones((3, 3)))
    assert not (lost & ~np.isnan(found)).any(), "a NaN is lost"
    assert not (np.isnan(found) & ~wide).any(), "a NaN has spread"
    return found, np.where(np.isnan(found), np.nan, expected)


@pytest.mark.parametrize("options", GEOMETRIES, ids=str)
def test_all_images_have_one_geometry(index: Index, options: dict[str, Any]) -> None:
    """Floats are interpolated; integers, and the mask of the same HDU, are the nearest pixel."""
    mask = {"mask": Mask("file", dtype="int16", hdu="int16")}
    found = samples(index, targets=mask, **options)
    assert len(found) == len(SHAPES)
    for row, sample in found.items():
        with fits.open(index.path(row)) as file:
            arrays = {name: file[hdu].data for name, hdu in HDUS.items()}
        for name in ("image", "again", "err"):
            truth = truth_of(arrays[name], row, options)
            # Weights and positions are rounded to float32.
            found_of, expected = with_holes_of(sample[name][0], truth.image[..., 0])
            np.testing.assert_allclose(found_of, expected, rtol=1e-5, atol=3, err_msg=name)
        for name in TYPES:
            expected = truth.nearest(arrays[name], 0)
            assert sample[name].dtype == name
            np.testing.assert_array_equal(sample[name][0], expected, err_msg=name)
        np.testing.assert_array_equal(sample["mask"], sample["int16"][0])


@pytest.mark.parametrize(
    ("options", "corner"),
    [({"zoom": (0.4, 0.4)}, -5), ({"zoom": (0.4, 0.4), "resize": 13}, -5), ({"mode": "eval"}, 8)],
)
def test_floats_outside_a_turned_image_have_the_value_of_their_hdu(
    tmp_path: Path, options: dict[str, Any], corner: float
) -> None:
    pixels = np.full((40, 40), 7, np.float32)
    images = [fits.ImageHDU(pixels, name="SCI"), fits.ImageHDU(pixels + 1, name="ERR")]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    hdus = {"image": Hdu("SCI"), "err": Hdu("ERR", outside=-5)}
    (sample,) = samples(Index.scan(tmp_path), hdus=hdus, crop=39, batch_size=1, **options).values()
    err, image = sample["err"][0], sample["image"][0]
    values = err[[0, -1, err.shape[0] // 2], [0, -1, err.shape[1] // 2]]
    assert values.tolist() == pytest.approx([corner, corner, 8])
    assert image[0, 0] == pytest.approx(7 if corner == 8 else 0)


def test_missing_is_of_the_image_alone(tmp_path: Path) -> None:
    """What is outside of another HDU of floats is NaN, unless that HDU has a value for it."""
    pixels = np.full((20, 20), 7, np.float32)
    names = "SCI", "ERR", "WHT"
    images = [fits.ImageHDU(pixels + n, name=name) for n, name in enumerate(names)]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    hdus = {"image": Hdu("SCI"), "err": Hdu("ERR"), "weight": Hdu("WHT", outside=-5)}
    index = Index.scan(tmp_path).with_column("y", [-2]).with_column("x", [0])
    settings: dict[str, Any] = {"window": "row", "outside": "fill", "missing": 3, "crop": 8}
    (sample,) = samples(index, hdus=hdus, **settings).values()
    columns = [sample[name][0, 1:3, 0].tolist() for name in hdus]
    np.testing.assert_array_equal(columns, [[3, 7], [np.nan, 8], [-5, 9]])


@pytest.mark.parametrize(
    "options",
    [
        {"mean": 90, "std": 4},
        {"mean": 90, "std": 4, "transform": lambda image, *_: image},
        {"mean": 90, "std": 4, "dtype": "float16"},
    ],
    ids=["", "transform", "float16"],
)
def test_only_the_image_is_normalised(index: Index, options: dict[str, Any]) -> None:
    plain = samples(index, crop=32, **RANDOM)
    for row, sample in samples(index, crop=32, **RANDOM, **options).items():
        expected = (plain[row]["image"] - 90) / 4
        np.testing.assert_allclose(sample["image"], expected, rtol=1e-3, atol=2e-2)
        for name in ("again", "err", *TYPES):
            np.testing.assert_array_equal(sample[name], plain[row][name], strict=True)


@pytest.mark.parametrize("options", [GEOMETRIES[3], GEOMETRIES[4], TURNED], ids=str)
def test_planes_of_a_cube(tmp_path: Path, options: dict[str, Any]) -> None:
    cube = np.stack([gray((75, 70), plane) // (1 + plane) for plane in range(3)])
    hdus = [fits.PrimaryHDU(), fits.ImageHDU(cube), fits.ImageHDU(cube.astype(np.float32))]
    fits.HDUList(hdus).writeto(tmp_path / "a.fits")
    images = {
        "image": Hdu(2, planes=1),
        "pair": Hdu(1, planes=(2, 0)),
        "every": Hdu(2, planes="all"),
        "last": Hdu(1, planes=2),
    }
    (sample,) = samples(Index.scan(tmp_path), hdus=images, batch_size=1, **options).values()
    truths = [truth_of(plane, 0, options) for plane in cube]
    floats = np.stack([truth.image[..., 0] for truth in truths])
    nearest = np.stack([truth.nearest(plane, 0) for truth, plane in zip(truths, cube, strict=True)])
    np.testing.assert_allclose(sample["image"], floats[1:2], atol=3)
    np.testing.assert_allclose(sample["every"], floats, atol=3)
    np.testing.assert_array_equal(sample["pair"], nearest[[2, 0]])
    np.testing.assert_array_equal(sample["last"], nearest[2:])


@pytest.mark.parametrize("options", [GEOMETRIES[3], TURNED, GEOMETRIES[5]], ids=str)
def test_samples_do_not_depend_on_how_they_are_read(index: Index, options: dict[str, Any]) -> None:
    expected = samples(index, **options)

    @settings(max_examples=4)
    @given(HOW)
    def pure(how: dict[str, int]) -> None:
        check_pure(lambda **own: samples(index, **own), how, expected, **options)

    pure()


def test_a_resume_goes_on_with_the_same_samples(index: Index) -> None:
    expected = samples(index, **TURNED)
    turns = ({"batch_size": 2}, {"batch_size": 2, "num_read_processes": 2})
    found = in_turns(fits_pipeline, index, turns, hdus=HDUS, **TURNED)
    assert sorted(found) == sorted(expected)
    for row, sample in found.items():
        for name in HDUS:
            np.testing.assert_array_equal(sample[name], expected[row][name])


# Which HDU it is.


def write_named(path: Path, *names: str) -> str:
    """Write HDUs of these names, such as SCI1 for EXTNAME SCI and EXTVER 1; pixels are their
    first letter.
    """
    made: list[Any] = [fits.PrimaryHDU()]
    for name in names:
        pixels = np.full((9, 9), ord(name[0].upper()), np.float32)
        made.append(fits.ImageHDU(pixels, name=name[:-1], ver=int(name[-1])))
    fits.HDUList(made).writeto(path)
    return str(path)


TRIPLET = "SCI", "ERR", "DQ"
DETECTORS = (
    (("SCI", 1), ("ERR", 1), ("DQ", 1), ("SCI", 2), ("ERR", 2), ("DQ", 2)),
    (("DQ", 2), ("ERR", 2), ("SCI", 1), ("SCI", 2), ("DQ", 1), ("ERR", 1)),
    (("ERR", 3), ("SCI", None), ("DQ", None), ("SCI", 3), ("ERR", None), ("DQ", 3)),
)
"""EXTNAME and EXTVER of the HDUs of files, None for a header without EXTVER."""


def write_detectors(path: Path, hdus: tuple[tuple[str, int | None], ...]) -> str:
    """Write a file whose pixels are the number of their HDU."""
    made: list[Any] = [fits.PrimaryHDU()]
    for number, (name, version) in enumerate(hdus, 1):
        made.append(fits.ImageHDU(np.full((9, 9), number, np.float32), name=name))
        if version is not None:
            made[-1].header["EXTVER"] = version
    fits.HDUList(made).writeto(path)
    return str(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("image", ["sci", Hdu()])
def test_a_name_is_that_of_the_detector_of_the_row(
    tmp_path: Path, suffix: str, image: str | Hdu
) -> None:
    """As astropy finds it by EXTNAME and EXTVER, which is 1 where the header has none."""
    paths, numbers, expected = [], [], []
    for file, detectors in enumerate(DETECTORS):
        path = write_detectors(tmp_path / f"{file}.fits{suffix}", detectors)
        with fits.open(path) as opened:
            for number, hdu in enumerate(opened):
                if hdu.name != "SCI":
                    continue
                paths.append(path)
                numbers.append(number)
                expected.append([opened[name, hdu.ver].data[0, 0] for name in TRIPLET])
    assert len(expected) == 6
    index = Index(pa.table({"path": paths, "hdu": numbers}))
    hdus = {"image": image, "err": "ERR", "dq": Hdu("dq")}
    found = samples(index, hdus=hdus, batch_size=2)
    values = [[found[row][name][0, 0, 0] for name in hdus] for row in range(len(index))]
    assert values == expected


def test_a_name_in_a_file_of_its_own_is_that_of_the_detector(tmp_path: Path) -> None:
    path = write_named(tmp_path / "a.fits", "SCI1", "SCI2")
    for name in ("DQ", "SCI"):
        flags = write_detectors(tmp_path / f"{name}.fits", ((name, 2), (name, 1)))
        index = Index(pa.table({"path": [path] * 2, "path_dq": [flags] * 2, "hdu": [1, 2]}))
        found = samples(index, hdus={"image": Hdu(), "dq": Hdu(name, part="dq")}, batch_size=1)
        assert [found[row]["dq"][0, 0, 0] for row in range(2)] == [2, 1]


@pytest.mark.parametrize("where", ["own", "other"])
def test_a_mask_is_that_of_the_detector_of_the_row(tmp_path: Path, where: str) -> None:
    """As astropy finds it by EXTNAME and EXTVER."""
    paths, numbers, masks, expected = [], [], [], []
    for file, detectors in enumerate(DETECTORS):
        path = write_detectors(tmp_path / f"{file}.fits", detectors)
        mask = path
        if where == "other":
            mask = write_detectors(tmp_path / f"mask{file}.fits", detectors[::-1])
        with fits.open(path) as opened, fits.open(mask) as flags:
            for number, hdu in enumerate(opened):
                if hdu.name == "SCI":
                    paths.append(path)
                    numbers.append(number)
                    masks.append(mask)
                    expected.append(flags["DQ", hdu.ver].data[0, 0])
    index = Index(pa.table({"path": paths, "hdu": numbers, "mask_path": masks}))
    column = "path" if where == "own" else "mask_path"
    targets = {"dq": Mask(column, "float32", hdu="dq")}
    found = samples(index, hdus={"image": "SCI"}, targets=targets, batch_size=2)
    assert [found[row]["dq"][0, 0] for row in range(len(index))] == expected


def test_rows_whose_detector_has_no_mask_are_rejected(tmp_path: Path) -> None:
    path = write_named(tmp_path / "a.fits", "SCI1", "SCI2", "DQ1")
    index = Index(pa.table({"path": [path] * 2, "hdu": [1, 2]}))
    for hdu, rows in (("DQ", [0]), (("DQ", 1), [0, 1])):
        targets = {"dq": Mask("path", "float32", hdu=hdu)}
        with new_loader(
            fits_pipeline, index, targets=targets, bad_sample="skip", batch_size=1
        ) as loader:
            assert sorted(by_row(loader)) == rows
            for rejected in loader.stats.rejected.values():
                assert "'DQ', 2" in rejected.reason
                assert "('DQ', N)" in rejected.reason


@pytest.mark.parametrize("hdu", [None, 1, "DQ", ("DQ", 1)])
def test_a_mask_that_several_detectors_share_is_a_warning(
    tmp_path: Path, hdu: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_named(tmp_path / "a.fits", "SCI1", "SCI2")
    masks = write_named(tmp_path / "masks.fits", "DQ1", "DQ2")
    index = Index(pa.table({"path": [path] * 2, "hdu": [1, 2], "mask_path": [masks] * 2}))
    fits_pipeline(index, targets={"dq": Mask("mask_path", "float32", hdu=hdu)}, batch_size=1)
    warnings = [one.getMessage() for one in caplog.records]
    assert len(warnings) == (hdu in (None, 1))
    assert all(masks in one and "EXTVER" in one for one in warnings)


@pytest.mark.parametrize("flags", [Hdu(part="dq"), Hdu("DQ", part="dq")])
def test_a_file_whose_first_image_several_detectors_share_is_a_warning(
    tmp_path: Path, flags: Hdu, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_named(tmp_path / "a.fits", "SCI1", "SCI2")
    other = write_named(tmp_path / "dq.fits", "DQ1", "DQ2")
    columns = {"path": [path] * 2, "hdu": [1, 2], "path_dq": [other] * 2}
    for more in ({}, {"hdu_dq": [1, 2]}):
        caplog.clear()
        hdus: dict[str, Any] = {"image": "SCI", "dq": flags}
        fits_pipeline(Index(pa.table(columns | more)), hdus=hdus, batch_size=1)
        assert len(caplog.records) == (flags.hdu is None and not more)
        assert all(other in one.getMessage() for one in caplog.records)


@pytest.mark.parametrize(("column", "setting"), [("hdu", {"hdu": 2}), ("plane", {"planes": 0})])
def test_hdus_and_planes_of_samples_of_several_files_are_those_of_the_parts(
    tmp_path: Path, column: str, setting: dict[str, Any]
) -> None:
    paths = [write_detectors(tmp_path / f"{n}.fits", DETECTORS[n]) for n in range(2)]
    table = {"path": paths[:1], "path_g": paths[:1], "path_r": paths[1:], column: [2]}
    whole = {**table, f"{column}_g": [2], f"{column}_r": [3]}
    for columns in (table, {**table, f"{column}_g": [2]}):
        with pytest.raises(ValueError, match=f"'{column}'.*add columns.*{column}_r"):
            fits_pipeline(Index(pa.table(columns)), batch_size=1)
        fits_pipeline(Index(pa.table(columns)), batch_size=1, **setting)
    if column == "hdu":
        with new_loader(fits_pipeline, Index(pa.table(whole)), batch_size=1) as loader:
            (batch,) = next(iter(loader))
        assert batch["image"][0, :, 0, 0].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("names", "hdu", "reasons"),
    [
        # EXTVER does not tell the detectors apart, or the flags of one.
        ("SCI1 ERR1 SCI1 ERR1", 3, ("SCI", "EXTVER", "Hdu(relative=N)")),
        ("SCI1 SCI2 ERR2 ERR2", 2, ("ERR", "EXTVER", "Hdu(relative=N)")),
        ("SCI1 ERR1 SCI2", 3, ("'ERR', 2", "EXTVER", "HDU 3")),
        ("ERR1 SCI1", 1, ("ERR", "expected 'SCI'", "--hdus SCI")),
        ("SCI1 ERR1", 4, ("no HDU 4",)),
    ],
)
def test_rows_whose_detector_has_no_such_hdu(
    tmp_path: Path, names: str, hdu: int, reasons: tuple[str, ...]
) -> None:
    """In the first file it is an error where no row could be right; other files are rejected."""
    good = write_named(tmp_path / "good.fits", "SCI1", "ERR1")
    bad = write_named(tmp_path / "bad.fits", *names.split())
    hdus = {"image": "SCI", "err": "ERR"}
    index = Index(pa.table({"path": [good, bad], "hdu": [1, hdu]}))
    with new_loader(fits_pipeline, index, hdus=hdus, bad_sample="skip", batch_size=1) as loader:
        if "ERR2" in names:  # only the headers up to the row's are read, as the first one counts
            assert sorted(by_row(loader)) == [0, 1]
        else:
            assert sorted(by_row(loader)) == [0]
            (rejected,) = loader.stats.rejected.values()
            assert rejected.path == bad
            for words in reasons:
                assert words in rejected.reason
    with pytest.raises((ValueError, ReadError)) as caught:
        fits_pipeline(index.select([1]), hdus=hdus, batch_size=1)
    for words in (bad, *reasons):
        assert words in str(caught.value)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_first_hdus_of_several_detectors_are_an_error(tmp_path: Path, suffix: str) -> None:
    """Without a column ``hdu`` names are those of the first HDUs, which may not belong together."""
    good = write_named(tmp_path / f"good.fits{suffix}", "SCI2", "ERR2", "SCI1", "ERR1")
    bad = write_named(tmp_path / f"bad.fits{suffix}", "SCI1", "SCI2", "ERR2", "ERR1")
    counted = write_named(tmp_path / f"counted.fits{suffix}", "SCI1", "ERR2")
    index = Index.from_paths([good, bad, counted])
    hdus: dict[str, Any] = {"image": "SCI", "err": "ERR"}
    with new_loader(fits_pipeline, index, hdus=hdus, bad_sample="skip", batch_size=1) as loader:
        assert sorted(by_row(loader)) == [0, 2]
        assert "('ERR', 1)" in loader.stats.rejected[1].reason
    with pytest.raises(ReadError, match=r"bad.fits.*EXTVER 2.*EXTVER 1.*\('ERR', 1\)"):
        fits_pipeline(Index.from_paths([bad]), hdus=hdus, batch_size=1)
    meant = {"image": "SCI", "err": ("ERR", 2)}
    assert len(samples(Index.from_paths([bad]), hdus=meant, batch_size=1)) == 1


def test_an_hdu_with_its_extver_is_that_of_all_rows(tmp_path: Path) -> None:
    path = write_named(tmp_path / "a.fits", "SCI1", "DQ1", "SCI2")
    index = Index(pa.table({"path": [path] * 2, "hdu": [1, 3]}))
    found = samples(index, hdus={"image": Hdu(), "flags": ("DQ", 1)}, batch_size=1)
    assert [found[row]["flags"][0, 0, 0] for row in range(2)] == [ord("D")] * 2


@pytest.mark.parametrize(
    "settings", [{"hdu": "sci"}, {"hdus": {"image": "SCI", "dq": "DQ"}}], ids=["hdu", "hdus"]
)
def test_only_the_first_of_several_images_of_a_name_is_read_with_a_warning(
    tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    path = write_named(tmp_path / "a.fits", "SCI1", "DQ1", "SCI2", "DQ2")
    index = Index.scan(tmp_path)
    for _ in range(2):
        fits_pipeline(index, batch_size=1, **settings)
    warnings = [one.getMessage() for one in caplog.records if "HDUs 1, 3" in one.getMessage()]
    assert len(warnings) == len(caplog.records) == 1
    assert path in warnings[0]
    assert "--hdus" in warnings[0]
    assert ("HDUs 2, 4" in warnings[0]) == ("hdus" in settings)
    caplog.clear()
    numbered = Index(pa.table({"path": [path] * 2, "hdu": [1, 3]}))
    fits_pipeline(numbered, hdus={"image": "SCI", "dq": "DQ"}, batch_size=1)
    fits_pipeline(index, hdus={"image": ("SCI", 2), "dq": ("DQ", 2)}, batch_size=1)
    assert not caplog.records


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
    paths: list[str] = []
    numbers: list[int] = []
    expected: dict[int, str] = {}
    for file, order in orders.items():
        names = order.upper().split()
        path = write_named(tmp_path / f"{file}.fits{suffix}", *order.split())
        for number, name in enumerate(names, 1):
            if name[0] not in "SC":
                continue
            beside = names[number]
            if file == "g" or beside == f"ERR{name[-1]}":
                expected[len(paths)] = beside[0]
            paths.append(path)
            numbers.append(number)
    index = Index(pa.table({"path": paths, "hdu": numbers}))
    hdus = {"image": Hdu(), "err": Hdu(relative=1)}
    with new_loader(fits_pipeline, index, hdus=hdus, bad_sample="skip", max_bad=99) as loader:
        found = {row: chr(int(one["err"][0, 0, 0])) for row, one in by_row(loader).items()}
        rejected = loader.stats.rejected
    assert dict(sorted(found.items())) == expected
    assert sorted(rejected) == [row for row in range(len(paths)) if row not in expected]
    reason = next(one.reason for one in rejected.values() if "b.fits" in one.path)
    assert "WHT" in reason
    assert "ERR" in reason


def test_relative_hdus_in_a_file_of_their_own(tmp_path: Path) -> None:
    names = {"a": "SCI1", "b": "SCI1", "dq_a": "DQ1", "dq_b": "WHT1"}
    paths = {file: write_named(tmp_path / f"{file}.fits", name) for file, name in names.items()}
    table = {
        "path": [paths["a"], paths["b"]],
        "path_dq": [paths["dq_a"], paths["dq_b"]],
        "hdu": [1, 1],
    }
    hdus = {"image": Hdu(), "dq": Hdu(part="dq", relative=0)}
    assert list(samples(Index(pa.table(table)), hdus=hdus, batch_size=1)) == [0]


def loader(index: Index, **options: Any) -> Loader:
    return new_loader(fits_pipeline, index, **{"crop": 32, "hdus": HDUS, **options})


def test_rows_without_a_number_or_a_file_are_rejected(index: Index) -> None:
    """HDUs counted from the row's, and one in a file of its own; the first and last lack either."""
    rows, paths = len(index), index.table["path"].to_pylist()
    table = {
        "path": paths,
        "path_mask": pa.array([None, *paths[1:]], pa.string()),
        "hdu": pa.array([1] * (rows - 1) + [None], pa.int64()),
    }
    hdus = {"image": Hdu(), "err": Hdu(relative=1), "dq": Hdu(part="mask", relative=4)}
    with loader(Index(pa.table(table)), hdus=hdus, bad_sample="skip") as batches:
        found, rejected = by_row(batches), batches.stats.rejected
    assert sorted(found) == list(range(1, rows - 1))
    assert all(one["dq"].dtype == np.int16 for one in found.values())
    assert rejected[0].reason.startswith("dq: the row has no file of part 'mask'")
    assert rejected[rows - 1].reason.startswith("err: relative=1 counts from column 'hdu'")


@pytest.mark.parametrize(("tail", "num_read_processes"), [("partial", 1), ("fill", 2)])
def test_bad_rows_are_rejected(
    index: Index, tmp_path: Path, tail: str, num_read_processes: int
) -> None:
    """One lacks an HDU, one has another size, one another type; one tile cannot be decoded."""
    paths = [write(tmp_path / f"{number}.fits", (80, 90), number) for number in range(6)]
    for number, change in ((1, "gone"), (3, "small"), (4, "wide")):
        with fits.open(paths[number]) as hdus:
            pixels = hdus["int16"].data
            del hdus["int16"]
            changed = pixels[:70] if change == "small" else pixels.astype(np.int32)
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
    options = {"hdus": hdus_of, "crop": 64, "num_read_processes": num_read_processes, "tail": tail}
    with loader(made, bad_sample="skip", **options) as batches:
        for _ in range(2):
            found = by_row(batches)
            assert sorted(found) == [0, 2]
            assert {one["dq"].dtype for one in found.values()} == {np.dtype("int16")}
        reasons = {row: one.reason for row, one in batches.stats.rejected.items()}
    assert reasons[1].startswith("dq: there is no HDU 'int16'")
    assert "70x90" in reasons[3]
    assert "(image) has 80x90" in reasons[3]
    assert "dq: the values are of type int32 (BITPIX 32), expected int16" in reasons[4]
    assert reasons[5] == "dq: the compressed bytes of a tile are damaged"
    with loader(made, shuffle=False, **options) as batches, pytest.raises(ReadError) as caught:
        list(batches)
    assert caught.value.path == paths[1]


# Settings.

TAKEN = "have the name of another output"


@pytest.mark.parametrize(
    ("hdus", "options", "message"),
    [
        ({"dq": "int16"}, {}, "hdus.*'image'.*'dq'"),
        ("SCI", {}, "hdus must be a mapping.*'SCI'"),
        ({"image": 1, 2: 3}, {}, "hdus must be a mapping"),
        ({"image": 1, "dq": 1.5}, {}, r"hdu must be.*1\.5"),
        ({"image": Hdu(1, dtype="int16")}, {}, "'image'.*leave dtype out"),
        ({"image": Hdu(1, outside=5)}, {}, "'image' takes no outside.*leave.*missing"),
        ({"image": 1, "err": Hdu("ERR", outside=1e300)}, {}, r"outside=1e\+300 of 'err'.*float32"),
        ({"image": 1, "row": 2}, {}, rf"hdus \['row'\] {TAKEN}"),
        ({"image": 1, "flip": 2}, {"outputs": ("flip",)}, rf"hdus \['flip'\] {TAKEN}"),
        ({"image": 1, "z": 2}, {"columns": ("z",)}, rf"columns \['z'\] {TAKEN}"),
        ({"image": 1, "z": 2}, {"targets": {"z": Mask("file")}}, rf"targets \['z'\] {TAKEN}"),
        ({"image": 1, "z": 2}, {"hdu": 1}, "hdu, planes and num_planes in hdus"),
        ({"image": 1, "z": Hdu(relative=1)}, {}, "relative=1 of 'z'.*column 'hdu'"),
        ({"image": 1, "z": 2}, {"augment": (RandAugment(),)}, "RandAugment.*rotate and zoom"),
        ({"image": 1, "size": 2}, {"ragged": "pad"}, rf"hdus \['size'\] {TAKEN}"),
        (
            {"image": 1, "dq": Hdu(2, dtype="int64", outside=2**31 + 1)},
            {"ragged": "pad"},
            "outside=2147483649 of 'dq'.*float32",
        ),
    ],
)
def test_settings_that_contradict_each_other(
    index: Index, hdus: Any, options: dict[str, Any], message: str
) -> None:
    index = index.with_column("z", range(len(index)))
    with pytest.raises(ValueError, match=message):
        fits_pipeline(index, batch_size=1, hdus=hdus, **options)


def test_samples_of_several_files_need_the_part_of_an_hdu() -> None:
    index = Index(pa.table({"path": ["a.fits"], "path_mask": ["b.fits"]}))
    with pytest.raises(ValueError, match=r"\(mask\).*Hdu\(part='mask'\)"):
        fits_pipeline(index, hdus={"image": 0}, batch_size=1)


def test_columns_that_contradict_the_settings(index: Index) -> None:
    numbered = index.with_column("hdu", [1] * len(index))
    with pytest.raises(ValueError, match=r"column 'hdu'.*hdus has \('SCI', 1\)"):
        fits_pipeline(numbered, batch_size=1, hdus=HDUS | {"image": ("SCI", 1)})
    for hdu in (2, "SCI", ("SCI", 1)):
        with pytest.raises(ValueError, match="Index names HDU 1, but hdu="):
            fits_pipeline(numbered, batch_size=1, hdu=hdu)
        with pytest.raises(ValueError, match=r"drop_columns\(\['hdu'\]\)"):
            with_tiles(numbered, hdu=hdu)
    fits_pipeline(numbered, batch_size=1, hdu=1)
    some = index.with_column("hdu", [1] + [None] * (len(index) - 1))
    fits_pipeline(some, batch_size=1, hdu="SCI")
    planed = index.with_column("plane", [0] * len(index))
    with pytest.raises(ValueError, match=r"column 'plane'.*planes=\(0, 1\)"):
        fits_pipeline(planed, batch_size=1, hdus={"image": Hdu(1, planes=(0, 1))})
    with pytest.raises(KeyError, match="mask"):
        fits_pipeline(index, batch_size=1, hdus={"image": 1, "dq": Hdu(2, part="mask")})
    with pytest.raises(TypeError, match="'hdus'"):
        Loader(jpeg_pipeline, index, batch_size=1, hdus=HDUS)


def test_memory_counts_all_images(index: Index) -> None:
    sizes = []
    for hdus in ({"image": "SCI"}, {"image": "SCI", "err": "ERR", "dq": "int64"}):
        config: dict[str, Any] = {"batch_size": 3, "crop": 32, "num_read_processes": 1}
        with closing(fits_pipeline(index, hdus=hdus, **config)) as pipeline:
            sizes.append((estimate_memory([pipeline]), pipeline.footprint.image_nbytes))
            assert pipeline.peek is not None
    one, three = sizes
    assert three[1] - one[1] == 32 * 32 * (4 + 8)
    assert three[0].shared > 2 * one[0].shared
    assert three[0].images > 3 * one[0].images


def test_arrays_that_are_not_used_are_not_sent(index: Index) -> None:
    """The places of nearest pixels are for integers alone."""
    config: dict[str, Any] = {"batch_size": 1, "crop": 32, "rotate": 9, "num_read_processes": 0}
    floats = {"image": "SCI", "err": "ERR"}
    for hdus, sends in ((floats, False), (floats | {"dq": "int16"}, True)):
        with closing(fits_pipeline(index, hdus=hdus, **config)) as pipeline:
            assert ("nearest" in {spec.name for spec in pipeline.source.specs}) == sends
            assert "matrix" not in pipeline.output_names
