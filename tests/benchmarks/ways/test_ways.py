"""The ways that suites time give the pixels of astropy and of Pillow, here on small files."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiapy.calibrate import register
from astropy.io import fits
from PIL import Image
from solar_files import frame, save

from benchmarks.data import Files, find_files
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Expected, Result, Round, Table, Way, race
from benchmarks.sheets import ancestors, level15, starting
from benchmarks.suites import aia, containers, jpeg, strategies
from benchmarks.ways import aiapy
from benchmarks.ways.aiapy import Spline
from benchmarks.ways.containers import pack
from benchmarks.ways.loaders import expected_pixels, files_way, loader_way
from benchmarks.ways.peers import Case
from benchmarks.ways.shards import in_processes

SIZE = 128


@dataclass(frozen=True)
class Settings:
    data: str
    quick: bool = True
    rounds: int = 1
    num_read_processes: int = 2
    num_threads: int = 1
    correction_table: str | None = None


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.measure.race._REST_S", 0.001)


@pytest.fixture(scope="module")
def level1(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Four times sunpy's frame, its pixels turned and its header not, exposed ever longer."""
    folder = tmp_path_factory.mktemp("level1")
    pixels, header = frame()
    for number in range(4):
        header = header.copy()
        header["EXPTIME"] = 1.0 + number
        compression = {"compression_type": "RICE_1", "tile_shape": (1, SIZE)}
        image = np.rint(np.rot90(pixels, number)).astype(np.int16)
        save(folder / f"{number}.fits", np.ascontiguousarray(image), header, **compression)
    return Settings(str(folder))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Of odd and even sizes, so that the middle is between pixels in some."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(6):
        small = random.integers(0, 256, (9, 12, 3), np.uint8)
        image = Image.fromarray(small).resize((301 + number, 250 - number))
        image.save(folder / f"{number}.jpg", quality=95)
    return Settings(str(folder))


def chosen(ways: Sequence[Way], *names: str) -> list[Way]:
    by_name = {way.name: way for way in ways}
    return [by_name[name] for name in names]


@pytest.mark.parametrize("normalise", [True, False])
def test_the_loader_and_the_data_loader_read_the_same_windows(
    level1: Settings, normalise: bool
) -> None:
    files = find_files(level1, "fits", 4)
    case = Case(kind="fits", batch_size=2, crop=(50, 40), normalise=normalise)
    ways = [
        loader_way("Loader", files.index, case, 2, num_read_processes=1, num_threads=1),
        ancestors.serial_way(files.paths, case, 1),
        *(
            files_way(files.paths, case, peer, 2, num_workers=0)
            for peer in ("astropy", "fitsio", "torchfits")
        ),
    ]
    *timed, torchfits = race(ways, expected_pixels(files.paths, case), 1)
    for result in timed:
        assert result.difference < 1e-4
        assert not result.note
    assert torchfits.note or torchfits.difference < 1e-4


def test_not_normalised_pixels_are_those_of_the_file(level1: Settings) -> None:
    files = find_files(level1, "fits", 1)
    case = Case(kind="fits", batch_size=1, flip=False, normalise=False)
    np.testing.assert_array_equal(
        expected_pixels(files.paths, case)(0, ())[0], fits.getdata(files.paths[0])
    )


def test_files_are_described(level1: Settings, photos: Settings) -> None:
    assert find_files(level1, "fits", 3).described.startswith("3 FITS files, the first 128x128, ")
    assert "the first 250x301" in find_files(photos, "jpeg", 99).described


def many_times(files: Files) -> Files:
    """Some batches, so that the kernel has counted the time of all threads."""
    rows = [*range(len(files.paths))] * 4
    paths = [files.paths[row] for row in rows]
    return replace(files, index=files.index.select(rows), paths=paths)


def expected_whole(files: Files, case: Case) -> Expected:
    """Read each file once, for a case in which a file that is listed twice is the same twice."""
    pixels = expected_pixels(files.paths, case)
    return lambda row, shape: pixels(files.paths.index(files.paths[row]), shape)


@pytest.mark.parametrize(
    "name", ["serial source", "both", "pool of threads", "parallel source", "DALI's reader of FITS"]
)
def test_strategies(level1: Settings, name: str) -> None:
    files = many_times(find_files(level1, "fits", 4))
    with new_ledger() as ledger:
        ways = chosen(strategies.strategies(files, level1, ledger), name)
        (result,) = race(ways, expected_whole(files, strategies.CASE), 1)
    assert 0 < result.difference < 1e-4
    assert result.parts is not None
    assert result.parts.graph > 0
    if name != "DALI's reader of FITS":  # whose threads do it all
        assert result.parts.decode > result.parts.read > 0


def test_both_is_two_processes_with_readers(level1: Settings) -> None:
    files = find_files(level1, "fits", 4)
    (way,) = chosen(strategies.strategies(files, level1, Ledger()), "both")
    start: Any = way.start
    (first, pool), (second, _) = (each.args for each in start.args[0])
    assert sorted(first.rows + second.rows) == [0, 1, 2, 3]
    assert pool.args[0] == 1


def test_a_process_that_dies_is_told() -> None:
    dying = functools.partial(os._exit, 3)
    with (
        in_processes([dying]) as run,
        pytest.raises(ChildProcessError, match="a process died"),
    ):
        list(run(False))


def test_dalis_reader_of_files_cuts_the_middle(photos: Settings) -> None:
    files = many_times(find_files(photos, "jpeg", 6))
    with new_ledger() as ledger:
        ways = jpeg.jpeg_ways(files, photos, ledger)
        ways = chosen(ways, "DALI's reader of files", "SPDL")
        dali, spdl = race(ways, expected_whole(files, jpeg.CASE), 1)
    assert dali.difference < 0.2
    assert dali.parts is not None
    assert dali.parts.graph > 0
    assert spdl.note or spdl.difference < 1


def test_random_regions_are_those_of_pillow(photos: Settings) -> None:
    files = many_times(find_files(photos, "jpeg", 6))
    with new_ledger() as ledger:
        ways = jpeg.region_ways(files, photos, ledger)
        results = race(ways, expected_pixels(files.paths, jpeg.REGIONS), 1)
    assert [result.name for result in results] == [
        *("Loader, rows noted", "Loader", "DALI's reader of files", "DataLoader, Pillow"),
    ]
    assert all(result.rounds for result in results)
    # Others of DALI's own.
    assert results[2].difference > 1


def test_arrays_of_jax_are_those_of_pillow(photos: Settings) -> None:
    files = many_times(find_files(photos, "jpeg", 6))
    with new_ledger() as ledger:
        ways = jpeg.jax_ways(files, replace(photos, num_read_processes=1), ledger)
        noted, ours, grain = race(ways, expected_pixels(files.paths, jpeg.WINDOWS), 1)
    assert all(result.difference < 0.2 for result in (noted, ours))
    assert grain.note or grain.difference < 1e-6  # Pillow, too


def test_the_loaders_readers_count(level1: Settings) -> None:
    files = many_times(find_files(level1, "fits", 4))
    case = Case(kind="fits", batch_size=2)
    with new_ledger() as ledger:
        way = loader_way(
            "Loader", files.index, case, 1, num_read_processes=1, num_threads=1, ledger=ledger
        )
        (result,) = race([way], expected_pixels(files.paths, case), 1)
    assert result.parts is not None
    assert result.parts.read > 0
    assert result.parts.graph > 0
    assert result.parts.decode == 0


def test_fork_comes_before_threads_in_a_process_of_its_own(level1: Settings) -> None:
    files = many_times(find_files(level1, "fits", 4))
    with new_ledger() as ledger:
        ways = starting.by_start_method(files, level1, ledger)
        assert [way.name for way in ways] == ["forkserver", "spawn", "fork"]
        (result,) = race(ways[2:], expected_whole(files, starting.CASE), 1)
    assert 0 < result.difference < 1e-4
    assert result.parts is not None
    assert result.parts.read > 0
    assert result.parts.graph > 0


def test_prefetch_counts_what_may_be_ready(level1: Settings) -> None:
    files = many_times(find_files(level1, "fits", 4))
    with new_ledger() as ledger:
        ways = starting.by_prefetch(files, level1, ledger)
        (result,) = race(ways[1:2], expected_whole(files, starting.CASE), 1)
    assert 0 < result.difference < 1e-4
    assert [(way.name, way.ahead) for way in ways] == [
        ("prefetch 1", 3),
        ("prefetch 2", 5),
    ]


def test_speedups_over_a_serial_loader(level1: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Case(kind="fits", batch_size=1, crop=(40, 50), normalise=False)
    monkeypatch.setattr(ancestors, "AUGMENTATIONS", {"crop and flips": small})
    files = find_files(level1, "fits", 4)
    sheet = ancestors._sheet("crop and flips", [1], [1, 2], files, level1)
    assert "crop and flips" in sheet.title
    assert sheet.header == (
        *("workers", "serial NumPy, images/s"),
        *("Loader, batch 1", "Loader, batch 2", "DataLoader, batch 1", "DataLoader, batch 2"),
    )
    (line,) = sheet.lines
    assert line[0] == "1"
    assert all(float(cell) > 0 for cell in line)


@pytest.mark.parametrize(("quick", "augmentations"), [(True, 2), (False, 4)])
def test_each_augmentation_has_a_sheet(
    level1: Settings, monkeypatch: pytest.MonkeyPatch, quick: bool, augmentations: int
) -> None:
    made: list[Any] = []

    def sheet(*how: Any) -> Any:
        made.append(how)
        return how[0]

    monkeypatch.setattr(ancestors, "_sheet", sheet)
    settings = replace(level1, quick=quick)
    titles: list[Any] = list(ancestors.speedup_sheets(find_files(level1, "fits", 4), settings))
    assert titles == list(ancestors.AUGMENTATIONS)[:: 1 if augmentations == 4 else 3]
    for _, workers, batch_sizes, *_ in made:
        assert list(workers)[:2] == [1, 2]
        assert 4 in batch_sizes


def test_the_epochs_of_dali_examples_stand_beside_its_own() -> None:
    names = ("Loader", "serial source", "process per shard", "pool of readers", "both")
    results = tuple(
        Result(
            name=name,
            rounds=(Round(images_per_s=rate, cpu_s_here=0.0, cpu_s_elsewhere=0.0),),
        )
        for name, rate in zip(names, itertools.count(10.0, -2.0))
    )
    table = Table(title="T", baseline="serial source", results=results, data="16 files")
    sheet = ancestors.epoch_sheet(table, 16)
    assert sheet.lines[0] == ("serial source", "2.00", "1.00", "81", "1.0")
    assert sheet.lines[3] == ("both", "8.00", "0.25", "16", "5.0")
    assert sheet.lines[4] == ("Loader", "1.60", "1.25", "", "")
    assert "not measured here" in sheet.note


def test_others_read_the_same_photographs_from_containers(photos: Settings, tmp_path: Path) -> None:
    files = find_files(photos, "jpeg", 6)
    packed = pack(files.paths, tmp_path)
    with new_ledger() as ledger:
        ways = containers.others(files, packed, replace(photos, num_read_processes=1), ledger)
        results = race(ways, expected_pixels(files.paths, containers.CASE), 1)
    assert [result.difference < 0.2 for result in results] == [True, True, True]
    assert results[2].difference == 0  # Pillow, too


@pytest.fixture(scope="module")
def spline(level1: Settings) -> Spline:
    files = find_files(level1, "fits", 4)
    table, _ = aia.correction_table(level1)
    make = functools.partial(aiapy.aiapy_image, table=table, double=True, order=3)
    return aiapy.Spline(files.paths, make)


def test_aia_ways_agree_with_the_spline(level1: Settings, spline: Spline) -> None:
    files = find_files(level1, "fits", 4)
    ways = aia.aia_ways(files, level1)
    names = ("aia_pipeline, 32x32", "aiapy, order 3", "aiapy, order 1", "aiapy, order 3 opencv")
    reduced, order3, order1, opencv = race(chosen(ways, *names), spline, 1)
    assert 0.3 < order3.difference < 0.6  # of a second's exposure: aiapy rounds to whole DN
    assert 0 < reduced.difference < 1e-2
    assert order1.difference > 1
    assert opencv.note or opencv.difference > 0.1


def test_calibrate_agrees_with_the_spline(level1: Settings, spline: Spline) -> None:
    files = find_files(level1, "fits", 4)
    calibration = aia.calibrations(files, level1)["128x128"]
    frames = aia.OurFrames(files.paths, calibration)
    for image, row in map(frames.__getitem__, range(len(frames))):
        wanted = spline(row, image.shape)
        seen = np.isfinite(wanted)
        assert seen.mean() > 0.7
        np.testing.assert_allclose(image[seen], wanted[seen], atol=2e-3, rtol=1e-5)


def test_the_spline_is_aiapys_register_over_exposure_and_degradation(
    level1: Settings, spline: Spline
) -> None:
    from aiapy.calibrate import degradation
    from aiapy_releases import get_correction_table, version_of
    from sunpy.map import Map

    files = find_files(level1, "fits", 4)
    path, _ = aia.correction_table(level1)
    smap = Map(files.paths[2])
    assert smap.exposure_time.value == 3
    table = get_correction_table(path)
    left = degradation(
        smap.wavelength, smap.date, correction_table=table, **version_of(table)
    ).item()
    level15 = register(Map(smap.data.astype(float), smap.meta), order=3)
    middle = level15.data[60:68, 60:68] / 3 / left
    np.testing.assert_allclose(
        aiapy.fitted(spline(2, (1, SIZE, SIZE))[0], (8, 8)), middle, rtol=1e-12
    )


def test_level15_files_agree_with_the_spline(level1: Settings, tmp_path: Path) -> None:
    files = find_files(level1, "fits", 4)
    spline = aiapy.Spline(
        files.paths, lambda path: aiapy.registered(path, double=True, order=3).data
    )
    writers: dict[str, tuple[Callable[[str, str], None], float]] = {
        "int16": (functools.partial(level15.with_ours, "int16"), 0.502),
        "float32": (functools.partial(level15.with_ours, "float32"), 2e-3),
        "aiapy": (level15.with_aiapy, 0.502),
    }
    for name, (write, limit) in writers.items():
        dataset = level15.Written(files.paths, str(tmp_path), write)
        for _, row in map(dataset.__getitem__, range(len(dataset))):
            pixels = dataset.pixels(row)
            wanted = spline(row, pixels.shape)
            seen = np.isfinite(wanted)
            off = np.abs(pixels[seen] - wanted[seen]).max()
            assert off < limit + 1e-5 * np.nanmax(wanted), name


@pytest.mark.parametrize(("size", "expected"), [(6, 6), (8, 8), (4, 4)])
def test_images_are_fitted_about_their_centres(size: int, expected: int) -> None:
    image = np.arange(36.0).reshape(6, 6)
    found = aiapy.fitted(image, (size, size))
    assert found.shape == (expected, expected)
    np.testing.assert_array_equal(aiapy.fitted(found, (4, 4)), image[1:5, 1:5])
    assert np.isnan(found).sum() == max(0, size**2 - 36)


def test_area_means_are_of_a_frame_filled_to_whole_squares() -> None:
    image = np.arange(36.0).reshape(6, 6)
    found = aiapy.area_mean(image, 2)
    assert found.shape == (4, 4)
    assert found[1, 1] == image[1:3, 1:3].mean()
    assert np.isnan(found[0]).all()
