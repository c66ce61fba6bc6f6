"""Chunked arrays as batches: channels, stretches, stored integers, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from read_here import in_this_process, read_here

from dali_pipelines import (
    Index,
    Loader,
    Mask,
    ReadError,
    Stretch,
    chunked_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    load_preset,
    pixel_statistics,
)
from dali_pipelines.cli.main import main as command
from readers.chunks.array import unpacked

QUIET: dict[str, Any] = {"devices": [None], "num_read_processes": 1}


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    rng = np.random.default_rng(3)
    axes = ("time", "lat", "lon")
    return xr.Dataset(
        {
            "t2m": (axes, rng.normal(280, 9, (7, 20, 18)).astype("f4")),
            "u10": (axes, rng.normal(0, 5, (7, 20, 18)).astype("f4")),
        },
        {"time": np.datetime64("2020-01-01", "ns") + np.arange(7) * np.timedelta64(6, "h")},
    )


@pytest.fixture(scope="module", params=[2, 3])
def index(
    dataset: xr.Dataset, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Index:
    root = tmp_path_factory.mktemp("stores") / f"v{request.param}.zarr"
    chunks = {name: {"chunks": (3, 8, 8)} for name in ("t2m", "u10")}
    is_v2 = request.param == 2
    dataset.to_zarr(root, zarr_format=request.param, encoding=chunks, consolidated=is_v2)
    return Index.from_zarr(root)


def images(index: Index, **settings: Any) -> Any:
    found = read_here(chunked_pipeline, index, shuffle=False, **settings)
    return np.stack([one["image"] for one in found.values()])


def test_variables_are_channels(index: Index, dataset: xr.Dataset) -> None:
    both = np.stack([dataset.t2m.values, dataset.u10.values], axis=1)
    np.testing.assert_array_equal(images(index), both, strict=True)
    one = images(index, variables=["u10"], crop=(5, 7))
    np.testing.assert_array_equal(one, both[:, 1:, 7:12, 5:12], strict=True)


def test_times(index: Index, dataset: xr.Dataset) -> None:
    np.testing.assert_array_equal(index["time"].to_numpy(), dataset.time.values)


def test_a_stretch_for_each_variable(index: Index, dataset: xr.Dataset) -> None:
    stretch = Stretch(unit=100, kind="asinh")
    found = images(index, stretch={"u10": stretch})
    with Loader(chunked_pipeline, index, batch_size=7, stretch={"u10": stretch}, **QUIET) as loader:
        (batch,) = next(iter(loader))
        np.testing.assert_array_equal(batch["image"].numpy(), found[batch["row"].numpy()])
    np.testing.assert_array_equal(found[:, 0], dataset.t2m.values)
    np.testing.assert_allclose(found[:, 1], stretch(dataset.u10.values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variables": ["t2n"]}, "no variable 't2n'.*has t2m, u10"),
        ({"variables": "t2m"}, "must be names"),
        ({"variables": []}, "must be names"),
        ({"stretch": {"t2n": Stretch()}}, "'t2n'.*variable.*t2m, u10"),
    ],
)
def test_settings(index: Index, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        chunked_pipeline(index, batch_size=1, num_read_processes=0, **settings)


def test_another_pipeline(index: Index) -> None:
    for factory in (fits_pipeline, jpeg_pipeline):
        with pytest.raises(ValueError, match="use chunked_pipeline"):
            factory(index, batch_size=1)


def test_another_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Index.from_zarr"):
        chunked_pipeline(Index.from_paths([tmp_path / "a"]), batch_size=1)


def test_sequences(index: Index, dataset: xr.Dataset) -> None:
    sequences = index.group(offsets=("-6h", "0", "+12h"), time="time", tolerance="1h")
    assert len(sequences) == 4
    found = read_here(chunked_pipeline, sequences, shuffle=False, variables=["u10", "t2m"])
    assert list(found) == [0, 1, 2, 3]
    for row, sample in found.items():
        times = [row, row + 1, row + 3]
        expected = np.stack([dataset.u10.values[times], dataset.t2m.values[times]], axis=1)
        np.testing.assert_array_equal(sample["image"], expected, strict=True)


SURYA = ("aia94", "aia171", "aia1600", "hmi_m")


@pytest.fixture(scope="module")
def solar_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with variables named like those of Surya's data set."""
    rng = np.random.default_rng(5)
    variables = {
        name: (("y", "x"), rng.normal(90, 200, (24, 20)).astype("f4")) for name in (*SURYA, "psf")
    }
    path = tmp_path_factory.mktemp("surya") / "20140101_0000.nc"
    xr.Dataset(variables).to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.parametrize("as_path", [False, True])
def test_a_preset_stretches_by_channel(solar_file: Path, as_path: bool, tmp_path: Path) -> None:
    index = Index.scan_arrays(solar_file)
    preset: Any = "surya"
    if as_path:
        preset = tmp_path / "own.toml"
        preset.write_text(
            "size = 8\nscale = 0.6\nexposure = true\ndegradation = true\n[stretch]\n"
            'kind = "signed_log1p"\nunit = 100\n[channels]\n94 = { mean = 1, std = 2 }\n'
            "171 = { mean = 3 }\n1600 = {}\nhmi_m = { std = 5 }\n"
        )
    found = images(index, variables=SURYA, stretch=preset)[0]
    truth = xr.open_dataset(solar_file, engine="h5netcdf")
    recipe = load_preset(preset)
    channels: tuple[Any, ...] = (94, 171, 1600, "hmi_m")
    for image, name, channel in zip(found, SURYA, channels, strict=True):
        curve = recipe.stretch(channel)
        x = truth[name].values / 100
        expected = (np.sign(x) * np.log1p(np.abs(x)) - curve.mean) / curve.std
        np.testing.assert_allclose(image, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found, images(index, variables=SURYA, stretch=recipe)[0])


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"variables": ("aia171", "psf")}, ValueError, "'psf'.*'surya' has no numbers.*stretch="),
        ({"stretch": "suria"}, ValueError, "no preset 'suria'.*surya"),
        ({"stretch": Path("/nowhere.toml")}, OSError, "nowhere"),
        ({"stretch": 3}, ValueError, "stretch must be"),
    ],
)
def test_presets_that_do_not_fit(
    solar_file: Path, settings: dict[str, Any], kind: type[Exception], words: str
) -> None:
    index = Index.scan_arrays(solar_file)
    settings = {"variables": ("aia171",), "stretch": "surya", **settings}
    with pytest.raises(kind, match=words):
        chunked_pipeline(index, batch_size=1, num_read_processes=0, **settings)


@pytest.fixture
def wavelengths(tmp_path: Path) -> Index:
    """Arrays like those of SDOMLv2: one for each wavelength, with times of its own."""
    parts = []
    for wavelength, count in ((171, 5), (193, 6)):
        path = tmp_path / "2014" / f"{wavelength}A"
        made = zarr.create_array(path, shape=(count, 9, 8), chunks=(3, 9, 8), dtype="f4")
        made[...] = np.arange(count)[:, None, None] + wavelength
        made.attrs["T_OBS"] = [f"2014-01-01T00:{6 * k:02}:0{k}.57Z" for k in range(count)]
        found = Index.from_zarr(path, columns={"time": "T_OBS"})
        parts.append(found.with_column("wavelnth", [wavelength] * count))
    return Index.concat(parts)


def test_arrays_of_other_names_are_channels_of_a_sample(wavelengths: Index) -> None:
    samples = wavelengths.group((171, 193), time="time")
    assert len(samples) == 5
    found = images(samples)
    expected = np.add.outer(np.arange(5), [171, 193])
    np.testing.assert_array_equal(found[..., 3, 4], expected)
    stretch = {"193A": Stretch(unit=10)}
    np.testing.assert_allclose(images(samples, stretch=stretch)[..., 0, 0], expected / [1, 10])
    # Sums of 2x2 pixels, of which the arrays hold means.
    np.testing.assert_allclose(images(samples, stretch="sdoml")[..., 0, 0], 4 * expected)
    np.testing.assert_array_equal(images(samples, stretch="sdomlv2")[..., 0, 0], expected)
    sequences = wavelengths.group((171, 193), offsets=("0", "+6min"), time="time")
    found = images(sequences, stretch="sdoml")
    assert found.shape == (4, 2, 2, 9, 8)
    np.testing.assert_allclose(found[1, ..., 0, 0], 4 * expected[1:3])
    with pytest.raises(ValueError, match=r"part 193.*no variable '171A'.*has 193A"):
        chunked_pipeline(samples, variables=["171A"], batch_size=1, num_read_processes=0)


@pytest.fixture(scope="module", params=["zarr", "netcdf"])
def labelled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Images whose pixels tell where they are, with labels and heights that do, too."""
    axes, shape = ("time", "y", "x"), (4, 21, 26)
    ramp = np.arange(np.prod(shape)).reshape(shape)
    dataset = xr.Dataset(
        {
            "image": (axes, ramp.astype("f4")),
            "labels": (axes, (ramp % 251).astype("i2")),
            "height": (axes, ramp / 8),
        },
        {"time": np.datetime64("2020-01-01", "ns") + np.arange(4) * np.timedelta64(6, "h")},
    )
    packed = {"dtype": "int16", "scale_factor": 0.125, "_FillValue": -1}
    folder = tmp_path_factory.mktemp("labelled")
    if request.param == "zarr":
        chunks: dict[Any, Any] = {name: {"chunks": (2, 8, 9)} for name in dataset}
        chunks["height"] |= packed
        dataset.to_zarr(folder / "a.zarr", encoding=chunks, zarr_format=2)
        return Index.from_zarr(folder / "a.zarr")
    sizes: dict[Any, Any] = {name: {"chunksizes": (2, 8, 9), "zlib": True} for name in dataset}
    sizes["height"] |= packed
    dataset.to_netcdf(folder / "a.nc", engine="h5netcdf", encoding=sizes)
    return Index.scan_arrays(folder, dim="time")


MASKS = {"labels": Mask(variable="labels"), "height": Mask(variable="height", dtype="float32")}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"crop": (9, 10), "window": "random", "flip": "hv"},
        {"crop": (9, 10), "window": "random", "resize": (18, 5), "interpolation": "nearest"},
        {"crop": 30, "outside": "fill"},
    ],
)
def test_masks_follow_the_geometry(labelled: Index, settings: dict[str, Any]) -> None:
    found = read_here(chunked_pipeline, labelled, targets=MASKS, seed=3, **settings)
    assert len(found) == 4
    for sample in found.values():
        image = sample["image"]
        assert image.shape[0] == 1  # variables of masks are no channels
        assert sample["labels"].dtype == np.uint8
        image = np.nan_to_num(image)  # beyond the image
        np.testing.assert_array_equal(sample["labels"], image[0] % 251)
        np.testing.assert_array_equal(sample["height"], image[0] / 8)


def test_a_mask_at_another_time(labelled: Index) -> None:
    sequences = labelled.group(offsets=("0", "+6h"), time="time", tolerance="1h")
    targets = {"next": Mask(variable="labels", part="+6h", dtype="int16")}
    settings: dict[str, Any] = {"crop": (9, 10), "window": "random", "flip": "hv"}
    found = read_here(chunked_pipeline, sequences, variables=["image"], targets=targets, **settings)
    assert len(found) == 3
    for sample in found.values():
        assert sample["image"].shape == (2, 1, 9, 10)
        np.testing.assert_array_equal(sample["next"], sample["image"][1, 0] % 251)
    for part in (None, "+7h"):
        wrong = {"next": Mask(variable="labels", part=part)}
        with pytest.raises(ValueError, match=r"set part .*one of 0, \+6h"):
            chunked_pipeline(sequences, batch_size=1, num_read_processes=0, targets=wrong)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ({"variable": "labls"}, "no variable 'labls'.*labels"),
        ({"variable": "image"}, "mask: image: .*float32.*dtype"),
        ({"variable": "height"}, "mask: height: .*packed.*dtype='float32'"),
        ({"variable": "labels", "dtype": "int8"}, "mask: labels: .*values from 0 to 250.*int8"),
    ],
)
def test_masks_that_are_rejected(labelled: Index, mask: dict[str, Any], words: str) -> None:
    settings: dict[str, Any] = {"batch_size": 2, "variables": ["image"], **QUIET}
    loader = Loader(chunked_pipeline, labelled, targets={"mask": Mask(**mask)}, **settings)
    with loader, pytest.raises((ReadError, ValueError), match=words):
        list(loader)


def test_a_mask_of_another_size(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["image"], file["small"] = np.zeros((9, 8), "f4"), np.zeros((9, 7), "u1")
    one, other = (Index.scan_arrays(tmp_path, variables=[name]) for name in ("image", "small"))
    with pytest.raises(ValueError, match="same height and width"):
        Index.scan_arrays(tmp_path, variables=["image", "small"])
    targets = {"mask": Mask(variable="small")}
    assert len(one) == len(other) == 1
    with pytest.raises(ValueError, match=r"masks use all variables.*small"):
        chunked_pipeline(other, batch_size=1, num_read_processes=0, targets=targets)
    with pytest.raises(ValueError, match=r"Index.from_zarr"):
        Mask(variable="small").fitted(Index.from_paths([tmp_path]).table)


def test_statistics_leave_out_the_variables_of_masks(labelled: Index) -> None:
    factory = partial(in_this_process, chunked_pipeline)
    found = pixel_statistics(factory, labelled, count=4)
    assert len(found.mean) == 3
    found = pixel_statistics(chunked_pipeline, labelled, count=4, targets=MASKS)
    assert len(found.mean) == 1


@pytest.mark.parametrize(
    ("crop", "grid", "step"),
    [
        ((8, 9), "chunks", (8, 9)),
        ((4, 12), "chunks", (4, 9)),
        ((5, 2), "chunks", (4, 1)),
        ((10, 10), (5, 4), (5, 4)),
        (10, 7, (7, 7)),
    ],
)
@pytest.mark.parametrize("outside", ["reject", "fill"])
def test_windows_begin_on_the_grid(
    labelled: Index, crop: Any, grid: Any, step: tuple[int, int], outside: str
) -> None:
    """The chunks are 8x9, the images 21x26; masks and outputs follow."""
    settings: dict[str, Any] = {"crop": crop, "window": "random", "outside": outside}
    places = set()
    for seed in range(12):
        found = read_here(
            *(chunked_pipeline, labelled),
            **{"grid": grid, "targets": MASKS, "outputs": ("window",), "seed": seed, **settings},
        )
        for row, sample in found.items():
            y, x = sample["window"][:2].astype(int).tolist()
            places.add((y, x))
            assert sample["image"][0, 0, 0] == row * 21 * 26 + y * 26 + x
            np.testing.assert_array_equal(sample["labels"], sample["image"][0] % 251)
    height, width = crop if isinstance(crop, tuple) else (crop, crop)
    assert {y for y, _ in places} <= {*range(0, 21 - height, step[0]), 21 - height}
    assert {x for _, x in places} <= {*range(0, 26 - width, step[1]), 26 - width}
    assert len(places) > 3
    again = read_here(chunked_pipeline, labelled, grid=grid, mode="eval", **settings)
    centred = read_here(chunked_pipeline, labelled, crop=crop, outside=outside)
    np.testing.assert_array_equal(again[0]["image"], centred[0]["image"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"grid": 9}, r"grid must be from 1x1 to the crop, 8x8.*9, 9.*never be in a window"),
        ({"grid": 0}, "grid must be"),
        ({"grid": "tiles"}, "grid must be"),
        ({"grid": "chunks", "window": "center"}, "grid is for random windows"),
        ({"grid": 4, "resize_shorter": 9}, "grid is for random windows.*resize_shorter"),
        ({"grid": 4, "crop": None, "window": "center"}, "grid is for random windows"),
    ],
)
def test_grids_that_do_not_fit(labelled: Index, settings: dict[str, Any], words: str) -> None:
    settings = {"crop": 8, "window": "random", "batch_size": 1, **settings}
    with pytest.raises(ValueError, match=words):
        chunked_pipeline(labelled, num_read_processes=0, **settings)


def test_a_variable_without_times_is_in_each_row(tmp_path: Path) -> None:
    times, land = np.arange(4 * 9 * 8, dtype="f4").reshape(4, 9, 8), np.eye(9, 8, dtype="f4")
    axes = ("time", "y", "x")
    dataset = xr.Dataset({"t2m": (axes, times), "land": (axes[1:], land)})
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=2)
    sizes: Any = {"t2m": {"chunksizes": (2, 5, 5)}, "land": {"chunksizes": (5, 5)}}
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=sizes)
    variables = ["land", "t2m"]
    for index in (
        Index.from_zarr(tmp_path / "a.zarr", variables=variables),
        Index.scan_arrays(tmp_path / "a.nc", variables=variables, dim="time"),
    ):
        assert len(index) == 4
        found = images(index)
        np.testing.assert_array_equal(found[:, 1], times)
        np.testing.assert_array_equal(found[:, 0], np.stack([land] * 4))
        targets = {"land": Mask(variable="land", dtype="float32")}
        for sample in read_here(chunked_pipeline, index, targets=targets, flip="h").values():
            expected = land if sample["image"][0, 0, 0] % 8 == 0 else land[:, ::-1]
            np.testing.assert_array_equal(sample["land"], expected)
        times_of = np.datetime64("2020-01-01", "ns") + np.arange(4) * np.timedelta64(6, "h")
        pairs = index.with_column("time", times_of)
        pairs = pairs.group(offsets=("0", "+6h"), time="time", tolerance="1h")
        found = read_here(chunked_pipeline, pairs, targets=targets)
        assert len(found) == 3
        for sample in found.values():
            assert sample["image"].shape == (2, 1, 9, 8)
            np.testing.assert_array_equal(sample["land"], land)
    with pytest.raises(ValueError, match=r"none of the variables land has the axis 'time'"):
        Index.from_zarr(tmp_path / "a.zarr", variables=["land"])
    assert list(unpacked(Index.from_zarr(tmp_path / "a.zarr")["chunks"][0].as_py())) == ["t2m"]


def test_integers_as_stored(tmp_path: Path) -> None:
    stored = np.arange(4 * 9 * 8).reshape(4, 9, 8) - 7
    packed = {"dtype": "int16", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -7}
    values = xr.DataArray(stored * 0.5 + 3.0, dims=("time", "y", "x"))
    root = tmp_path / "packed.zarr"
    values.to_dataset(name="v").to_zarr(root, encoding={"v": packed}, zarr_format=2)
    index = Index.from_zarr(root)
    as_stored = images(index, dtype="int16")
    np.testing.assert_array_equal(as_stored[:, 0], stored.astype(np.int16), strict=True)
    truth = xr.open_zarr(root)["v"].values.astype(np.float32)
    np.testing.assert_array_equal(images(index)[:, 0], truth, strict=True)
    assert np.isnan(truth).sum() == 1


def test_geometry_and_statistics(index: Index, dataset: xr.Dataset) -> None:
    """What other Readers with `regions` can do: turn, resize, measure."""
    settings: dict[str, Any] = {"crop": 12, "window": "random", "flip": "hv", "seed": 4}
    turned = images(index, rotate=30, zoom=(0.8, 1.2), **settings)
    assert turned.shape == (7, 2, 12, 12)
    whole = images(index, resize=(10, 9))
    assert np.abs(whole.mean() - images(index).mean()) < 1
    found = pixel_statistics(partial(in_this_process, chunked_pipeline), index, count=7)
    np.testing.assert_allclose(found.mean, [dataset.t2m.mean(), dataset.u10.mean()], rtol=1e-3)


def test_a_loader_resumes_in_mid_epoch(index: Index) -> None:
    settings: dict[str, Any] = {"crop": 8, "window": "random", "seed": 2, "devices": [None]}
    with Loader(chunked_pipeline, index, batch_size=2, num_read_processes=2, **settings) as loader:
        batches = [batch for (batch,) in loader]
        rows = [row for batch in batches for row in batch["row"].tolist()]
        assert sorted(rows) == list(range(7))
    with Loader(chunked_pipeline, index, batch_size=2, num_read_processes=2, **settings) as loader:
        steps = iter(loader)
        next(steps)
        state = loader.state_dict()
    with Loader(chunked_pipeline, index, batch_size=3, num_read_processes=1, **settings) as loader:
        loader.load_state_dict(state)
        rest = [batch for (batch,) in loader]
    assert [row for batch in rest for row in batch["row"].tolist()] == rows[2:]
    np.testing.assert_array_equal(
        np.concatenate([batch["image"].numpy() for batch in rest]),
        np.concatenate([batch["image"].numpy() for batch in batches])[2:],
    )


def test_a_damaged_chunk_is_skipped_and_named(dataset: xr.Dataset, tmp_path: Path) -> None:
    root = tmp_path / "damaged.zarr"
    encoding = {"t2m": {"chunks": (1, 20, 18)}}
    dataset[["t2m"]].to_zarr(root, zarr_format=2, encoding=encoding)
    (root / "t2m" / "3.0.0").write_bytes(b"not Blosc at all")
    index = Index.from_zarr(root)
    settings: dict[str, Any] = {"batch_size": 2, "devices": [None], "bad_sample": "skip"}
    with Loader(chunked_pipeline, index, num_read_processes=1, **settings) as loader:
        rows = [row for (batch,) in loader for row in batch["row"].tolist()]
        assert sorted(rows) == [0, 1, 2, 4, 5, 6]
        assert list(loader.stats.rejected) == [3]


def test_commands_take_a_store(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--pipeline=chunked", "--batch_size=2", "--num_read_processes=1", "--crop=8"]
    assert command(["run", f"--data={index.path(0)}", *settings]) == 0
    assert "7" in capsys.readouterr().out
    assert command(["run", "--pipeline=chunked"]) == 2
    store, picture = index.path(0), tmp_path / "sheet.png"
    assert command(["stats", store, "--pipeline=chunked"]) == 0
    assert command(["show", store, "--pipeline=chunked", "-o", str(picture), "--count=2"]) == 0
    assert picture.stat().st_size
    assert command(["show", str(tmp_path), "--pipeline=chunked", "-o", str(picture)]) != 0
