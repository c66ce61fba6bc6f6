"""Settings of a Preprocessor in a file, and what a Loader's state says of them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import serving_parts
import solar_files
import tomli_w
from astropy.io import fits

from dali_pipelines import (
    Blur,
    ColorJitter,
    CorrectionTable,
    Hdu,
    HeaderRules,
    Index,
    Loader,
    PointingTable,
    Preprocessor,
    Stretch,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)

DATA = Path(__file__).parents[4] / "shared" / "data"
RESPONSE = DATA / "tables" / "aia_V10_20201119_190000_response_table.txt"

SETTINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "numbers": (
        jpeg_pipeline,
        {
            "resize_shorter": 256,
            "crop": (224, 200),
            "mean": np.array([1.1, 2.2, 3], np.float32),
            "std": 0.1,
        },
    ),
    "augmentations": (jpeg_pipeline, {"augment": (ColorJitter(0.4, hue=0.1), Blur(3))}),
    "missing": (
        fits_pipeline,
        {"outside": "fill", "crop": 9, "missing": math.nan, "hdu": ("A", 2)},
    ),
    "hdus": (
        fits_pipeline,
        {
            "hdus": {
                "image": Hdu(1, planes="all", num_planes=3),
                "flags": Hdu(part="flags", dtype="int16", outside=-1),
            }
        },
    ),
    "a function": (fits_pipeline, {"transform": serving_parts.doubled}),
    "an object": (fits_pipeline, {"transform": serving_parts.Scaled(2.5)}),
    "a factory": (serving_parts.raw_pipeline, {"shape": (20, 30), "crop": 8}),
    "partial": (partial(npy_pipeline, channels=2), {"file_dtype": "uint8", "dtype": "uint8"}),
    "calibration": (
        aia_pipeline,
        {
            "size": (64, 32),
            "stretch": {171: Stretch(kind="sqrt", clip=(0, math.inf)), 193: Stretch(std=2)},
            "rules": HeaderRules(level=None, quality=1 << 31),
            "missing": math.nan,
            "psf": (171, 193),
        },
    ),
    "preset": (aia_pipeline, {"preset": "iti", "size": 512, "correction_table": str(RESPONSE)}),
    "none": (jpeg_pipeline, {}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_saved_and_loaded(tmp_path: Path, name: str) -> None:
    factory, settings = SETTINGS[name]
    pre = Preprocessor(factory, parts=("a", "b"), offsets=("-1h", "0"), **settings)
    pre.save(tmp_path / "a.toml")
    again = Preprocessor.load(tmp_path / "a.toml", max_batch=3, framework="numpy", num_threads=1)
    assert (again.max_batch, again.framework, again.num_threads) == (3, "numpy", 1)
    assert again.factory is pre.factory
    assert again.frames == pre.frames
    assert again.digest == pre.digest
    again.save(tmp_path / "b.toml")
    assert (tmp_path / "a.toml").read_text() == (tmp_path / "b.toml").read_text()
    assert str(tmp_path) not in (tmp_path / "a.toml").read_text()
    if name not in ("calibration", "numbers", "missing"):  # NaN and arrays do not equal themselves
        assert again.settings == pre.settings


def test_digests_tell_settings_apart() -> None:
    found = {name: Preprocessor(one, **given).digest for name, (one, given) in SETTINGS.items()}
    assert len({*found.values()}) == len(found)
    others = Preprocessor(jpeg_pipeline, max_batch=2, num_threads=3, framework="numpy")
    assert others.digest == found["none"]


def test_digests_do_not_depend_on_how_settings_are_written() -> None:
    one = Preprocessor(jpeg_pipeline, crop=8, mean=1, dtype="float32", flip="h", window="random")
    assert one.digest == Preprocessor(jpeg_pipeline, crop=(8, 8), mean=[1.0]).digest


@pytest.fixture(scope="module")
def solar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A frame of AIA and a pointing table."""
    folder = tmp_path_factory.mktemp("solar")
    pixels = np.random.default_rng(3).integers(0, 9000, (4096, 4096)).astype(np.int16)
    header = solar_files.full_header(BLANK=None)
    solar_files.save(folder / "a.fits", pixels, header, compression_type="RICE_1")
    solar_files.save_pointing(solar_files.pointing_table(), folder / "pointing.csv")
    return folder


def test_tables_go_along(solar: Path, tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "pointing_table": PointingTable.read(solar / "pointing.csv"),
        "correction_table": CorrectionTable.read(RESPONSE),
    }
    index = Index.scan(solar)
    config: dict[str, Any] = {"batch_size": 1, "devices": [None], "size": 64, "framework": "numpy"}
    with Loader(aia_pipeline, index, mode="eval", **config, **tables) as loader:
        ((batch,),) = loader
        loader.preprocessor().save(tmp_path / "preprocess.toml")
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in [*tmp_path.glob("*.*")]:
        path.rename(moved / path.name)
    assert len([*moved.iterdir()]) == 3
    with Preprocessor.load(moved / "preprocess.toml", framework="numpy") as pre:
        np.testing.assert_array_equal(pre([solar / "a.fits"])["image"], batch["image"])
    without = Preprocessor(aia_pipeline, size=64, framework="numpy").image(solar / "a.fits")
    assert not np.array_equal(without, batch["image"][0])


def test_tables_that_were_changed(solar: Path, tmp_path: Path) -> None:
    table = tmp_path / "pointing.csv"
    table.write_bytes((solar / "pointing.csv").read_bytes())
    pre = Preprocessor(aia_pipeline, pointing_table=table)
    saved = tmp_path / "saved"
    saved.mkdir()
    pre.save(saved / "a.toml")
    copy = saved / "pointing.csv"
    copy.write_bytes(copy.read_bytes() + b"\n")
    with pytest.raises(ValueError, match=r"pointing\.csv.*SHA-256"):
        Preprocessor.load(saved / "a.toml")
    with pytest.raises(FileExistsError, match=r"pointing\.csv"):
        pre.save(saved / "a.toml")
    copy.unlink()
    with pytest.raises(OSError, match=r"pointing\.csv"):
        Preprocessor.load(saved / "a.toml")
    table.write_bytes(table.read_bytes() + b"\n")
    with pytest.raises(OSError, match="changed"):
        pre.save(saved / "a.toml")


def test_factors_of_one_channel(tmp_path: Path) -> None:
    table = tmp_path / "factors.csv"
    table.write_text("date,factor\n2011-01-01,1.0\n2012-01-01,0.5\n")
    pre = Preprocessor(aia_pipeline, correction_table=CorrectionTable.read(table, channel=171))
    pre.save(tmp_path / "a.toml")
    again = Preprocessor.load(tmp_path / "a.toml")
    found = again.settings["calibration"].correction_table
    assert found == pre.settings["calibration"].correction_table


class NotSaved:
    def __call__(self, image: Any, chance: Any, config: Any) -> Any:
        return image


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"transform": lambda image, chance, config: image}, "transform .*lambda"),
        ({"transform": NotSaved()}, "transform .*NotSaved"),
        ({"transform": partial(serving_parts.doubled, chance=None)}, "transform .*partial"),
        ({"hdu": "/absolute"}, "absolute"),
    ],
)
def test_what_cannot_be_saved(tmp_path: Path, settings: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Preprocessor(fits_pipeline, **settings).save(tmp_path / "a.toml")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_function_of_the_script_cannot_be_saved(tmp_path: Path) -> None:
    program = (
        "from dali_pipelines import Preprocessor, fits_pipeline\n"
        "def own(image, chance, config): return image\n"
        "Preprocessor(fits_pipeline, transform=own).save('a.toml')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert "transform is own of __main__" in done.stderr


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "newer release.*install"),
        ({"version": 0}, "older release.*install"),
        ({"settings": {"crop": 33}}, "changed after"),
        ({"factory": "dali_pipelines:no_pipeline"}, "changed after"),
        ({"digest": None}, "lacks digest"),
        ({"settings": None}, "lacks settings"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = tmp_path / "a.toml"
    Preprocessor(jpeg_pipeline, crop=32).save(path)
    document = {**tomllib.loads(path.read_text()), **change}
    path.write_text(tomli_w.dumps({name: one for name, one in document.items() if one is not None}))
    with pytest.raises(ValueError, match=reason) as caught:
        Preprocessor.load(path)
    assert str(path) in str(caught.value)


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\x00")
    with pytest.raises(ValueError, match="TOML"):
        Preprocessor.load(tmp_path / "a.toml")
    with pytest.raises(OSError, match=r"b\.toml"):
        Preprocessor.load(tmp_path / "b.toml")
    with pytest.raises(ValueError, match=r"\.toml"):
        Preprocessor(jpeg_pipeline).save(tmp_path / "a.json")


@pytest.mark.slow
def test_a_module_that_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "import own_steps\n"
        "from dali_pipelines import Preprocessor, fits_pipeline\n"
        "Preprocessor(fits_pipeline, transform=own_steps.own).save('a.toml')\n"
    )
    (tmp_path / "own_steps.py").write_text("def own(image, chance, config): return image\n")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    with pytest.raises(ImportError, match=r"a\.toml.*own_steps:own"):
        Preprocessor.load(tmp_path / "a.toml")


def test_the_state_of_a_loader_names_it(tmp_path: Path) -> None:
    fits.PrimaryHDU(np.zeros((20, 20), np.float32)).writeto(tmp_path / "a.fits")
    index = Index.scan(tmp_path)
    config: dict[str, Any] = {"batch_size": 1, "devices": [None]}
    loader = Loader(fits_pipeline, index, crop=8, flip="h", **config)
    state = loader.state_dict()
    assert state["preprocess"] == loader.preprocessor().digest
    loader.load_state_dict(state)
    other = Loader(fits_pipeline, index, crop=9, **config)
    assert other.state_dict()["preprocess"] != state["preprocess"]
    other.load_state_dict(state)  # the order of rows is that of the state, the images are not
    without = Loader(fits_pipeline, index, random_area=(0.1, 1), resize=8, **config)
    assert "preprocess" not in without.state_dict()
    for name in os.listdir(tmp_path):
        assert name == "a.fits"
