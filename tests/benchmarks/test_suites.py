"""Each suite runs on tiny files: its tables have the ways, pixels and figures that they should."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image
from solar_files import frame, save

from benchmarks.main import OWN_FILES, SUITES, BenchConfig, main
from benchmarks.measure.race import Table
from benchmarks.report.tables import Sheet, as_text
from benchmarks.sheets import bottlenecks, index, model
from benchmarks.suites import loader, scaling, transport
from benchmarks.ways import archive
from benchmarks.ways.peers import Case

SMALL = Case(kind="fits", batch_size=2, crop=(40, 50), flip="")
FEW_CASES = ("Random 512x512 windows of frames", "Random 224x224 windows of photographs")
FEW_LOADERS = ("Loader, local files", "Loader, cache, second epoch", "Loader, tile offsets")


def few_loaders(*given: Any) -> list[archive.Ours]:
    return [one for one in archive.our_loaders(*given) if one.name in FEW_LOADERS]


def small_frame(path: Path, number: int) -> None:
    noise = np.random.default_rng(number).normal(1000, 9, (600, 600)).astype(np.int16)
    fits.CompImageHDU(noise, compression_type="RICE_1", tile_shape=(1, 600)).writeto(path)


measure = model._measure


def measured(*given: Any) -> model.Measured:
    """Return at least 0.01 ms: tiny windows take less CPU time than the kernel's clock shows."""
    run = measure(*given)
    shown = {name: max(0.01, getattr(run, name)) for name in ("reader_ms", "graph_ms")}
    return replace(run, **shown)


OF_HDF5 = ("gzip", "LZ4", "zstd", "Blosc")


def of_hdf5(kind: str) -> tuple[str, ...]:
    return ("h5py, kept open", *(("h5py, whole frames",) if kind == "gzip" else ()))


OF_ARRAYS = ("DataLoader, zarr-python", "DataLoader, tensorstore")
SHRUNK: dict[str, dict[str, Any]] = {
    "decode": {"suites.decode.SIZE": 1024, "suites.decode.WINDOW": 64},
    "loader": {"suites.loader.CASES": {title: loader.CASES[title] for title in FEW_CASES}},
    "strategies": {"sheets.starting._METHODS": ("spawn", "fork")},
    "scaling": {
        "suites.scaling._BATCHES": (1, 2),
        "suites.scaling._FRAMES": {"flips": scaling._FRAMES["flips"]},
        "sheets.ancestors.AUGMENTATIONS": {"crop": SMALL},
        "sheets.model._measure": measured,
        "sheets.model._CHECKED": {"fits": model._CHECKED["fits"][:1]},
        "sheets.bottlenecks.SETUPS": {"slow storage": bottlenecks.SETUPS["slow storage"]},
        "sheets.index.QUICK_ROWS": 5003,
        "sheets.index.fresh": lambda step, *given: step(*given),  # not in a process of its own
        "sheets.index._CHUNK": 2 * index._FILES,
        "sheets.index._LOOKUPS": 100,
    },
    "aia": {
        "suites.aia.PROCESSES": 1,
        "suites.aia.VARIANTS": {"aiapy, order 3": {"order": 3}},
        "sheets.level15.PROCESSES": 1,
    },
    "cutouts": {"suites.cutouts._EDGE": 256},
    "chunks": {
        "suites.chunks._EDGE": 64,
        "suites.chunks._HDF5_EDGE": 96,
        "suites.chunks._HDF5_CHUNK": 32,
        "suites.chunks._SUN_EDGE": 96,
        "suites.chunks._SIZES": (16, 64),
        "suites.chunks._PLANES": 6,
        "suites.chunks._DEEP": 3,
    },
    "remote": {
        "suites.remote._EDGE": 256,
        "suites.remote._SIZE": 64,
        "suites.remote.our_loaders": few_loaders,
        "sheets.requests.our_loaders": few_loaders,
    },
    "serving": {"suites.serving.save_frame": small_frame, "sheets.serving._FEW_CALLS": (2, 5)},
    "transport": {
        "suites.transport.CASES": [transport.CASES[number] for number in (1, 4, 5)],
        "suites.transport.checkout": lambda _: nullcontext(transport.ROOT),  # not of a clone
    },
}
"""What a quick run of a suite still does at length."""

OTHERS = (*("torchfits", "torchvision", "torchcodec", "grain", "opencv", "tensorstore", "librosa"),)
"""Libraries that the tests do not install: their ways have a note in place of figures."""

FITS_PEERS = ("DataLoader, astropy", "DataLoader, fitsio", "DataLoader, torchfits")
PHOTO_LOADERS = ("Loader, MCU index", "Loader")
PHOTO_WAYS = (
    *(*PHOTO_LOADERS, "Loader, uint8", "DALI's reader of files", "DataLoader, Pillow"),
    *("DataLoader, torchvision", "DataLoader, torchcodec", "DataLoader, torchcodec, uint8"),
    *("SPDL threads, torchvision", "DataLoader, webdataset and torchvision"),
    *("litData, torchvision", "MosaicML Streaming, torchvision", "grain, torchvision"),
)
OF_FRAME = ("decode_image", "astropy", "fitsio", "torchfits")
OF_CUTOUTS = (
    *("Loader", "Loader, shuffled in blocks", "DataLoader, astropy Cutout2D"),
    "DataLoader, astropy section, files kept open",
    "DataLoader, fitsio slices, files kept open",
)
OVER_S3 = (
    "DataLoader, astropy and s3fs, default blocks",
    "DataLoader, astropy and s3fs, blocks of 1 MB",
)
OVER_S3_OPEN = tuple(f"{name}, objects kept open" for name in OVER_S3)
OF_SEGMENTS = tuple(
    f"DataLoader, {name}" for name in ("soundfile with seek", "soundfile, whole files", "librosa")
)
OF_CLIPS = tuple(
    f"DataLoader, {name}" for name in ("PyAV with seek", "PyAV from the beginning", "torchcodec")
)
PREPROCESSORS = ("Preprocessor", "Preprocessor, NumPy")
FOUR_WAYS = ("serial source", "process per shard", "pool of readers", "both")

SHOWN: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "decode": [
        ("A frame in RICE_1 to int16*", OF_FRAME),
        ("A frame in RICE_1 to float32*", OF_FRAME),
        ("A frame in GZIP_1 *", OF_FRAME),
        ("A window of 64x64 in RICE_1 *", OF_FRAME),
        ("A window of 64x64 in GZIP_1 *", OF_FRAME),
        ("By the form of the decoder*", ("*, 6.3",)),
    ],
    "loader": [
        ("Random 512x512 windows of frames", ("Loader", *FITS_PEERS)),
        ("Random 224x224 windows of photographs", (*PHOTO_LOADERS, "DataLoader, Pillow")),
    ],
    "strategies": [
        (
            "Strategies to feed DALI with whole frames",
            (
                *("Loader", *FOUR_WAYS, "pool of threads", "parallel source"),
                *("DALI's reader of FITS", *FITS_PEERS),
            ),
        ),
        ("The four strategies of dali_examples*", (*FOUR_WAYS, "Loader")),
        ("The Loader by start method*", ("spawn", "fork")),
        ("The Loader by prefetch*", ("prefetch 1", "prefetch 2")),
    ],
    "scaling": [
        ("By processes*", ("Loader, 1", "DataLoader, 1", "Loader, 2", "DataLoader, 2")),
        ("By batch size*", ("Loader, 2", "DataLoader, 2")),
        ("By augmentation of whole*", ("Loader, flips", "DataLoader, flips")),
        ("By augmentation of random*", ("Loader, 512x512, flips", "DataLoader, 512x512, flips")),
        ("Speedup over a serial loader*: crop", ("1", "2")),
        ("Cost model: constants", ("reader, per image", "reader, per MB*", "graph*", "g*", "g*")),
        ("Cost model: predictions", ("FITS, random *",)),
        ("Artificial bottlenecks*", ("slow storage",)),
        (
            "An Index of 5,003 rows",
            ("save*", "open", "look up*", "Loader*", "Loader*", "open,*", "shuffle*", "stop*"),
        ),
    ],
    "aia": [
        (
            "AIA level 1 to calibrated images",
            (
                *("aia_pipeline, 128x128", "aia_pipeline, 32x32"),
                *("calibrate, 128x128, 1 processes", "calibrate, 32x32, 1 processes"),
                *("aiapy, order 3", "aiapy, order 3, 1 processes"),
            ),
        ),
        (
            "AIA level 1 to level 1.5 files",
            ("prep.py, int16 in RICE_1", "prep.py, float32", "aiapy register and save"),
        ),
    ],
    "photographs": [
        *((title, PHOTO_WAYS) for title in ("Random regions*", "Shorter side*", "Random windows*")),
        ("Random windows*JAX arrays", (*PHOTO_LOADERS, "grain, Pillow")),
        (
            "Order, continuing and pixels",
            (
                *("Loader", "DALI's reader of files", "DataLoader", "SPDL", "webdataset"),
                *("litData", "MosaicML Streaming", "grain"),
            ),
        ),
    ],
    "copies": [
        (
            "Random regions*smaller copies*",
            (
                *("Loader", "Loader, smaller copies"),
                *("DataLoader, Pillow", "DataLoader, Pillow, smaller copies"),
            ),
        )
    ],
    "cutouts": [("Cutouts of 64x64*", OF_CUTOUTS), ("Image, mask and weight*", OF_CUTOUTS)],
    "chunks": [
        *(
            (f"{what}, {kind}, one process", ("ChunkedReader", "zarr-python", "tensorstore"))
            for kind in ("Zarr 2", "Zarr 3", "shards")
            for what in ("Windows of 16x16", "Whole frames")
        ),
        *(
            (f"Windows of 32x32, HDF5 with {kind}, one process", ("ChunkedReader", *of_hdf5(kind)))
            for kind in OF_HDF5
        ),
        (
            "Windows of 32x32, variables of a file, one process",
            ("ChunkedReader", "xarray, whole file", "h5py, kept open"),
        ),
        *(
            (f"{what}, {kind}, Loader", ("Loader", *OF_ARRAYS))
            for kind in ("Zarr 2", "Zarr 3", "shards")
            for what in ("Windows of 16x16", "Whole frames")
        ),
        *(
            (
                f"Windows of 32x32, HDF5 with {kind}, Loader",
                ("Loader", *(f"DataLoader, {name}" for name in of_hdf5(kind))),
            )
            for kind in OF_HDF5
        ),
        (
            "Windows of 32x32, variables of a file, Loader",
            ("Loader", "DataLoader, xarray, whole file", "DataLoader, h5py, kept open"),
        ),
    ],
    "containers": [
        (
            "Centre windows of 224x224 from photographs in containers",
            (
                *("Loader, loose files", "Loader, tars", "Loader, TFRecord", "Loader, LMDB"),
                *("Loader, loose files, MCU index", "Loader, tars, MCU index"),
                *("DALI's reader of tars", "DALI's reader of TFRecord"),
                "DataLoader, webdataset and Pillow",
            ),
        ),
        ("Indexes of tars", ("Index.scan", "Index.scan", "tarfile*", "open an*", "open an*")),
    ],
    "remote": [
        ("Random windows of 64x64*", (*FEW_LOADERS, *OVER_S3, *OVER_S3_OPEN)),
        ("Requests: Random windows*", (*FEW_LOADERS[1:], *OVER_S3, *OVER_S3_OPEN)),
        ("Whole remote frames", (*FEW_LOADERS, *OVER_S3)),
        ("Requests: Whole*", (*FEW_LOADERS[1:], *OVER_S3)),
    ],
    "transport": [
        ("512x512 windows of frames*", ("this version", "2b53110", "ratio to 2b53110")),
        (
            "224x224 windows of photographs, MCU index*",
            ("this version", "2b53110", "ratio to 2b53110"),
        ),
        ("8x8 arrays*", ("this version", "2b53110", "ratio to 2b53110")),
    ],
    "audio": [
        ("Random 1 s of WAV", ("Loader", *OF_SEGMENTS)),
        (
            "Random 1 s of WAV, log mel*",
            (
                "Loader",
                "DataLoader, soundfile with seek, torch's log mel",
                "DataLoader, soundfile with seek, librosa's log mel",
            ),
        ),
        ("Random 1 s of FLAC", ("Loader", *OF_SEGMENTS)),
        ("Random 1 s of OGG", ("Loader", *OF_SEGMENTS)),
    ],
    "video": [
        (f"Random clips of {codec}", ("Loader", *OF_CLIPS)) for codec in ("H.264", "HEVC", "VP9")
    ],
    "headers": [("Headers of FITS files", ("index", "astropy getheader"))],
    "serving": [
        ("One photograph per call*", (*PREPROCESSORS, "Pillow and NumPy")),
        ("16 photographs per call*", (*PREPROCESSORS, "the Loader's graph")),
        ("A window of 512x512*", (*PREPROCESSORS, "astropy", "astropy, section")),
        ("Threads that share a Preprocessor", ("1", "2", "4")),
        ("The first call of a Preprocessor", ("JPEG, NumPy",)),
        ("Memory of a Preprocessor", ("2", "5")),
    ],
}
"""Titles of the tables of each suite, and the names of their ways or lines; * is any text."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames of 600x600, and photographs of odd and even sizes."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    for number in range(4):
        small_frame(folder / f"{number}.fits", number)
    for number in range(16):
        small = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8))
        small.resize((301 + number, 250 - number)).save(folder / f"{number:02}.jpg", quality=95)
    return folder


@pytest.fixture(scope="module")
def level1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sunpy's frame of AIA, turned under the same header, and exposed ever longer."""
    folder = tmp_path_factory.mktemp("level1")
    pixels, header = frame()
    for number in range(2):
        image = np.ascontiguousarray(np.rint(np.rot90(pixels, number)).astype(np.int16))
        header["EXPTIME"] = 1.0 + number
        save(folder / f"{number}.fits", image, header, compression_type="RICE_1")
    return folder


def run(suite: str, data: Path | None, monkeypatch: pytest.MonkeyPatch) -> list[Table | Sheet]:
    # The rest before each round is for a quiet machine: figures are not compared here.
    monkeypatch.setattr("benchmarks.measure.race._REST_S", 0.001)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name, value in SHRUNK.get(suite, {}).items():
        monkeypatch.setattr(f"benchmarks.{name}", value)
    config = BenchConfig(
        suite=suite,
        data=None if data is None else str(data),
        quick=True,
        rounds=1,
        num_read_processes=1,
        num_threads=1,
    )
    return [*getattr(import_module(f"benchmarks.suites.{suite}"), f"{suite}_suite")(config)]


QUICK = ("decode", "headers")
"""Suites that start no processes, or one."""


# DALI's own pool of readers, one of the strategies, drops its sockets without closing them.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(suite, marks=() if suite in QUICK else pytest.mark.slow, id=suite)
        for suite in SHOWN
    ],
)
def test_a_suite(
    suite: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    data: Path | None = None
    if suite not in OWN_FILES:
        data = request.getfixturevalue("level1" if suite == "aia" else "files")
    shown = run(suite, data, monkeypatch)
    expected = SHOWN[suite]
    assert len(shown) == len(expected)
    for one, (title, names) in zip(shown, expected, strict=True):
        assert fnmatch(one.title, title)
        check_ways(one, names) if isinstance(one, Table) else check_lines(one, names)


def check_ways(table: Table, names: tuple[str, ...]) -> None:
    assert same([result.name for result in table.results], names), table.title
    for result in table.results:
        if result.note:
            assert any(name in result.name for name in OTHERS), f"{result.name}: {result.note}"
            continue
        assert all(0 < rate < math.inf for rate in result.rates()), result.name
        assert math.isfinite(result.difference), result.name
        has_baseline = not any(name in table.baseline for name in ("grain", "librosa"))
        assert table.speedup(result) > 0 or not has_baseline, result.name
    assert as_text(table)


def check_lines(sheet: Sheet, names: tuple[str, ...]) -> None:
    assert same([line[0] for line in sheet.lines], names), sheet.title
    assert {len(line) for line in sheet.lines} == {len(sheet.header)}
    assert as_text(sheet)


def same(found: list[str], names: tuple[str, ...]) -> bool:
    return len(found) == len(names) and all(map(fnmatch, found, names))


def test_each_suite_is_tested() -> None:
    assert {*SHOWN, "kernels"} == {*SUITES}  # tests/gpu_offline/test_kernels.py has kernels


def test_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All figures as JSON, each round as CSV, tables as Markdown, and plots."""
    monkeypatch.setattr("benchmarks.measure.race._REST_S", 0.001)
    assert main(["--suite=headers", "--quick", "--rounds=7", f"--out={tmp_path}"]) == 0
    found = json.loads((tmp_path / "headers.json").read_text())
    assert found["command"].startswith("dali-pipelines bench --suite=headers --quick")
    assert found["config"]["rounds"] == 2  # quick
    assert found["hardware"]["cores"] == len(os.sched_getaffinity(0))
    assert found["versions"]["astropy"]
    (table,) = found["tables"]
    ours, astropy = table["results"]
    mine, its = (
        np.array([one["images_per_s"] for one in result["rounds"]]) for result in (ours, astropy)
    )
    assert ours["speedup"] == pytest.approx(np.median(mine / its))
    with (tmp_path / "headers.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "index"]
    assert [float(row["images_per_s"]) for row in rows] == mine.tolist()
    markdown = (tmp_path / "headers.md").read_text()
    assert markdown.count("| index |") == markdown.count("| astropy getheader |") == 1
    assert f"<!-- {table['title']} -->" in (tmp_path / "headers.svg").read_text()
    assert (tmp_path / "headers.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rounds=0"], "--rounds.*at least 1.*0"),
        (["--suite=transport", "--against=none"], "--against.*none.*commit"),
        *(
            ([f"--suite={suite}", "--data=a"], f"--data.*loader.*{suite}.*leave it out")
            for suite in OWN_FILES
        ),
    ],
)
def test_wrong_flags(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_folder_without_such_files_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.fits").touch()
    assert main(["--suite=photographs", f"--data={tmp_path}"]) == 2
    assert str(tmp_path) in capsys.readouterr().err
