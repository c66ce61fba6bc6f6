"""aia_pipeline: what the graph delivers is what `calibrate` gives, file by file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from solar_files import changed, frame, hmi_header, save

from dali_pipelines import Boxes, Calibration, Loader, Preprocessor, Stretch, aia_pipeline
from dali_pipelines.aia.calibrate import calibrate
from readers import AiaReader, Draws, Index, Row, Window

PIXELS, HEADER = frame()
GRID: dict[str, Any] = {"size": 128, "scale": 19.2}
SIX = 6


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Six frames, differently turned, half of them compressed."""
    folder = tmp_path_factory.mktemp("archive")
    paths = []
    for number in range(SIX):
        header = changed(HEADER, CROTA2=3.0 * number, EXPTIME=1.0 + number)
        pixels = (PIXELS + 100 * number).astype(np.int16)
        how: dict[str, Any] = {"compression_type": "RICE_1"} if number % 2 else {}
        paths.append(save(folder / f"{number}.fits", pixels, header, **how))
    return Index.from_paths(paths)


def images(index: Index, **settings: Any) -> dict[int, Any]:
    all_settings: dict[str, Any] = {
        "batch_size": 2,
        "num_read_processes": 1,
        "devices": [None],
    } | settings
    with Loader(aia_pipeline, index, **all_settings) as loader:
        return {
            row: image
            for (batch,) in loader
            for row, image in zip(batch["row"].tolist(), batch["image"].numpy(), strict=True)
        }


def row_of(index: Index, number: int) -> Row:
    return Row(number, index.path(number))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"order": 1, "exposure": True, "stretch": Stretch(kind="asinh", a=50, mean=1)},
        {"size": 32, "scale": 76.8},
        {"missing": math.nan, "center": "sun", "radius": 40.0, "scale": None},
    ],
    ids=str,
)
def test_whole_frames(archive: Index, settings: dict[str, Any]) -> None:
    settings = GRID | settings
    found = images(archive, **settings)
    assert sorted(found) == list(range(SIX))
    for number, image in found.items():
        expected = calibrate(row_of(archive, number), Calibration(**settings))
        np.testing.assert_array_equal(image, expected[None])


def test_windows_turned_and_flipped(archive: Index) -> None:
    """All that chance decides is in one interpolation, and follows from (seed, epoch, row)."""
    found = images(
        archive,
        **GRID,
        crop=(40, 50),
        window="random",
        flip="hv",
        rotate=90.0,
        zoom=(0.8, 2.0),
        seed=5,
    )
    flips = set()
    for number, image in found.items():
        draws = Draws.of(5, 0, number)
        window = Window(
            height=40,
            width=50,
            y=draws.y,
            x=draws.x,
            angle=(2 * draws.turn - 1) * 90,
            zoom=0.8 * 2.5**draws.zoom,
        )
        expected = calibrate(row_of(archive, number), Calibration(**GRID), window)
        flips.add((draws.horizontal, draws.vertical))
        expected = expected[:: -1 if draws.vertical else 1, :: -1 if draws.horizontal else 1]
        np.testing.assert_array_equal(image, expected[None])
    assert len(flips) > 1


def test_a_calibration_given_whole(archive: Index) -> None:
    calibration = Calibration(**GRID, exposure=True)
    found = images(archive, calibration=calibration, dtype="float16")
    assert found[2].dtype == np.float16
    expected = calibrate(row_of(archive, 2), calibration)
    np.testing.assert_allclose(found[2][0], expected, rtol=2**-11)


def test_columns_and_targets_may_have_the_names_of_what_is_sent_besides(archive: Index) -> None:
    of_source = ("flip", "draws", "part", "affine", "inside", "nearest", "record", "placed_matrix")
    names = (*(spec.name for spec in AiaReader.specs if spec.name != "matrix"), *of_source)
    index = archive.with_column("matrix", [[[0.0, 0, 9, 7]]] * SIX)
    for place, name in enumerate(names):
        index = index.with_column(name, [10 * place + row for row in range(SIX)])
    options: dict[str, Any] = {"crop": 40, "flip": "hv", "outputs": ("window",), **GRID}
    expected = images(archive, **options)
    options |= {"batch_size": 2, "devices": [None], "num_read_processes": 1}
    options |= {"columns": names, "targets": {"matrix": Boxes("matrix")}}
    with Loader(aia_pipeline, index, **options) as loader:
        for (batch,) in loader:
            assert batch["matrix"].shape == (2, 1, 4)
            for slot, row in enumerate(batch["row"].tolist()):
                np.testing.assert_array_equal(batch["image"][slot], expected[row])
                assert [int(batch[name][slot]) % 10 for name in names] == [row] * len(names)
                assert [int(batch[name][slot]) // 10 for name in names] == list(range(len(names)))


def test_unfit_files_are_named(tmp_path: Path) -> None:
    good = save(tmp_path / "good.fits", PIXELS, HEADER)
    level15 = save(tmp_path / "level15.fits", PIXELS, changed(HEADER, LVL_NUM=1.5))
    dark = save(tmp_path / "dark.fits", PIXELS, changed(HEADER, QUALITY=1 << 16))
    index = Index.from_paths([good, level15, dark])
    settings: dict[str, Any] = {"batch_size": 3, "devices": [None], "bad_sample": "skip"}
    with Loader(aia_pipeline, index, **settings, **GRID) as loader:
        rows = [row for (batch,) in loader for row in batch["row"].tolist()]
    assert rows == [0]
    reasons = {row: bad.reason for row, bad in loader.stats.rejected.items()}
    assert "already registered" in reasons[1]
    assert "dark image" in reasons[2]


def test_samples_of_several_files(tmp_path: Path) -> None:
    """AIA and HMI on one grid; a channel that is missing is NaN, and told."""
    hmi = hmi_header(CDELT1=16.14, CDELT2=16.14, CRPIX1=64.2, CRPIX2=64.9)
    files: list[tuple[str, int, Path]] = []
    for number in range(3):
        header = changed(HEADER, CROTA2=1.0 * number)
        magnetogram = changed(hmi, CROTA2=170.0 + number)
        path = tmp_path / f"171_{number}.fits"
        files.append(("171", number, save(path, PIXELS + number, header)))
        if number != 1:
            path = tmp_path / f"hmi_{number}.fits"
            files.append(("hmi", number, save(path, PIXELS - 50 * number, magnetogram)))
    channels, numbers, paths = zip(*files, strict=True)
    table = pa.table(
        {
            "path": [str(path) for path in paths],
            "channel": channels,
            "t_obs": pa.array([720 * number for number in numbers], pa.timestamp("s")),
        }
    )
    index = Index(table).group(["171", "hmi"], by="channel", missing="keep")
    stretch = {"171": Stretch(unit=10), "hmi_m": Stretch(unit=1000)}
    settings: dict[str, Any] = {**GRID, "stretch": stretch, "exposure": True}
    with Loader(
        aia_pipeline, index, batch_size=3, shuffle=False, devices=[None], **settings
    ) as loader:
        ((batch,),) = list(loader)
    assert batch["image"].shape == (3, 2, 128, 128)
    assert batch["present"].tolist() == [[True, True], [True, False], [True, True]]
    for number in range(3):
        for place, name in enumerate(("171", "hmi")):
            path = tmp_path / f"{name}_{number}.fits"
            found = batch["image"][number, place].numpy()
            if not path.exists():
                assert np.isnan(found).all()
                continue
            expected = calibrate(Row(0, str(path)), Calibration(**settings))
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resize": 64}, "resize.*size=512"),
        ({"mean": 3.0}, "mean.*Stretch"),
        ({"random_area": (0.1, 1)}, "random_area.*crop"),
        ({"stretch": (Stretch(), Stretch(unit=2))}, "stretch.*2 channels.*none.*171"),
        ({"dtype": "int16"}, "float32 or float16.*'int16'"),
        (
            {"calibration": Calibration(), "preset": "iti", "size": 4},
            "calibration.*size, preset.*not both",
        ),
        ({"calibration": "iti"}, "calibration.*Calibration.*'iti'"),
        ({"crop": (128, 129)}, "crop.*128x129.*128x128.*smaller crop"),
        ({"crop": 200, "outside": "fill"}, "outside='fill'.*aia_pipeline"),
    ],
)
def test_wrong_settings(archive: Index, settings: dict[str, Any], message: str) -> None:
    grid = {} if "calibration" in settings else GRID
    with pytest.raises(ValueError, match=message):
        aia_pipeline(archive, batch_size=2, **grid, **settings)


def test_sequences(archive: Index) -> None:
    """Frames at several times, each registered by its own header; flipped alike."""
    times = pa.array(range(0, 720 * SIX, 720), pa.timestamp("s"))
    table = archive.table.append_column("t_obs", times)
    index = Index(table).group(offsets=("-12min", "0", "+24min"), missing="keep")
    settings: dict[str, Any] = {**GRID, "crop": (24, 40), "flip": "hv", "window": "random"}
    with Loader(aia_pipeline, index, batch_size=4, devices=[None], **settings) as loader:
        batches = [batch for (batch,) in loader]
    found = {
        row: (image, present)
        for batch in batches
        for row, image, present in zip(
            batch["row"].tolist(), batch["image"].numpy(), batch["present"].numpy(), strict=True
        )
    }
    assert sorted(found) == list(range(SIX))
    alone = {
        offset: images(archive.select(np.clip(np.arange(SIX) + shift, 0, SIX - 1)), **settings)
        for offset, shift in (("-12min", -1), ("0", 0), ("+24min", 2))
    }
    for row, (image, present) in found.items():
        assert image.shape == (3, 1, 24, 40)
        for one, there, (offset, single) in zip(image, present, alone.items(), strict=True):
            is_there = index.table[f"path_{offset}"][row].as_py() is not None
            assert there.tolist() == [is_there]
            if is_there:
                np.testing.assert_array_equal(one, single[row])
            else:
                assert np.isnan(one).all()


def test_stretches_in_the_order_of_the_channels(tmp_path: Path) -> None:
    """A tuple, also saved with a model, is the same as a mapping; another number is an error."""
    for wavelnth in (171, 193):
        save(tmp_path / f"{wavelnth}.fits", PIXELS, changed(HEADER, WAVELNTH=wavelnth))
    index = Index.scan(tmp_path, keys=["WAVELNTH", "T_OBS"]).group([193, 171])
    first, second = Stretch(kind="asinh", a=50), Stretch(unit=5)
    found = images(index, **GRID, stretch=(first, second))
    expected = images(index, **GRID, stretch={171: second, 193: first})
    np.testing.assert_array_equal(found[0], expected[0])
    with pytest.raises(ValueError, match=r"3 channels.*2, 193, 171"):
        images(index, **GRID, stretch=(Stretch(),) * 3)
    settings: dict[str, Any] = {**GRID, "stretch": [first, second]}
    with Loader(aia_pipeline, index, batch_size=1, devices="cpu", **settings) as loader:
        loader.preprocessor().save(tmp_path / "preprocess.toml")
    with Preprocessor.load(tmp_path / "preprocess.toml") as saved:
        files = {part: (tmp_path / f"{part}.fits").read_bytes() for part in ("193", "171")}
        np.testing.assert_array_equal(saved([files])["image"].numpy()[0], found[0])
