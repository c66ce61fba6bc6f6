"""The command stats: its tables, and a file that run and show take."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import solar_files
import xarray as xr
from astropy.io import fits
from audio_files import sound, write
from PIL import Image
from video_files import stored, write_video

from dali_pipelines import Stretch, with_keys
from dali_pipelines.cli.main import main
from dali_pipelines.cli.options import parse
from dali_pipelines.cli.run_config import RunConfig
from readers import Index


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    for row in range(6):
        pixels = np.random.default_rng(row).normal(100 * (1 + row % 2), 5, (20, 30))
        header = fits.Header({"WAVELNTH": (171, 193)[row % 2]})
        fits.writeto(folder / f"{row}.fits", pixels.astype(np.float32), header)
    return folder


def test_the_file_is_a_configuration_of_run(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "stats.toml"
    assert main(["stats", str(archive), "-o", str(file)]) == 0
    out = capsys.readouterr().out
    assert "6 of 6 images" in out
    config = parse(RunConfig, [f"--config={file}"], None, "run").pipeline_config
    assert config.mean is not None and config.std is not None  # noqa: PT018
    assert (config.mean[0], config.std[0]) == pytest.approx((150, 50.25), rel=0.02)
    text = re.sub(r"^# (?=\[\[|\w+ = )", "", file.read_text(), flags=re.MULTILINE)
    file.write_text(re.sub(r"^(mean|std) = \[.*\n", "", text, flags=re.MULTILINE))
    config = parse(RunConfig, [f"--config={file}"], None, "run").pipeline_config
    assert config.stretch is not None
    (stretch,) = config.stretch
    assert isinstance(stretch, Stretch)
    assert stretch(np.array([80.0, 250.0])) == pytest.approx([0, 1], abs=0.1)
    assert main(["run", f"--data={archive}", f"--config={file}", "--batch_size=2"]) == 0


def test_groups_have_a_table_each(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = str(tmp_path / "index.parquet")
    with_keys(Index.scan(archive), ["WAVELNTH"]).save(index)
    assert main(["stats", index, "--by=wavelnth", "--count=2", "--crop=10"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"wavelnth (\d+): (\d+) of (\d+)", out) == [
        ("171", "2", "3"),
        ("193", "2", "3"),
    ]


def test_a_file_of_run_with_several_images_and_random_areas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [fits.ImageHDU(np.full((8, 8), 3.0 * n), name=name) for n, name in enumerate("ABC")]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    file = tmp_path / "run.toml"
    file.write_text(
        f'data = "{tmp_path / "a.fits"}"\nhdus = ["image=C", "other=B"]\nrandom_area = [0.1, 1.0]\n'
        "resize = 4\nbatch_size = 2\n"
    )
    assert main(["stats", f"--config={file}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["0", "6"]
    assert main(["stats", str(tmp_path / "a.fits"), "--hdus", "image=B"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["0", "3"]


def test_values_of_all_kinds_make_groups(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {
        "n": pa.array([1, None, 2, 1, None, 2]),
        "x": pa.array([0.5, float("nan"), None, 0.5, 1.5, 0.5]),
        "text": ["a\nmean = 5", "b", "b", "b", "b", "b"],
        "lists": [[1]] * 6,
        "none": pa.array([None] * 6, pa.int64()),
    }
    index, file = str(tmp_path / "index.arrow"), tmp_path / "stats.toml"
    table = Index.scan(archive).table
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    Index(table).save(index)
    for by, groups in (("n", ["1: 2", "2: 2"]), ("x", ["0.5: 3", "1.5: 1"]), ("text", ["b: 5"])):
        assert main(["stats", index, f"--by={by}", "-o", str(file)]) == 0
        out, err = capsys.readouterr()
        assert [one for one in groups if f"{by} {one} of" not in out] == []
        assert ("left out" in err) == (by != "text")
        tomllib.loads(file.read_text())
    for by in ("lists", "none"):
        assert main(["stats", index, f"--by={by}"]) == 2
        assert f"--by={by}: " in capsys.readouterr().err


def test_a_group_that_cannot_be_read(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, file = str(tmp_path / "index.arrow"), tmp_path / "stats.toml"
    Index.scan(archive).with_column("n", [2, 1, 1, 1, 1, 1]).save(index)
    (archive / "0.fits").write_text("no FITS")
    assert main(["stats", index, "--by=n", "-o", str(file)]) == 1
    out, err = capsys.readouterr()
    assert "n 1: 5 of 5" in out
    assert "n 2: " in err
    assert "n 1: 5 images" in file.read_text()


def test_bad_files_are_named(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (archive / "3.fits").write_text("no FITS")
    assert main(["stats", str(archive)]) == 0
    out = capsys.readouterr().out
    assert "5 of 6" in out
    assert str(archive / "3.fits") in out


def test_photographs_read_as_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (30, 20)).save(tmp_path / "a.jpg")
    Index.scan(tmp_path / "a.jpg").save(tmp_path / "a.arrow")
    assert main(["stats", str(tmp_path / "a.arrow")]) == 1
    assert "--pipeline=jpeg" in capsys.readouterr().err


def test_photographs_as_gray_images(tmp_path: Path) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8))
    image.save(tmp_path / "a.png")
    file = tmp_path / "stats.toml"
    flags = ["--pipeline=jpeg", "--channels=1"]
    assert main(["stats", str(tmp_path / "a.png"), *flags, f"--output={file}"]) == 0
    (mean,) = tomllib.loads(file.read_text())["mean"]
    assert mean == pytest.approx(np.asarray(image.convert("L")).mean(), abs=0.6)
    assert main(["stats", str(tmp_path / "a.png"), "--pipeline=jpeg", "--rate=1"]) == 2


def test_planes_and_a_file_for_run(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fits.writeto(tmp_path / "cube.fits", np.random.default_rng(0).normal(size=(3, 8, 9)))
    assert main(["stats", str(tmp_path / "cube.fits"), "--planes", "all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    file = tmp_path / "run.toml"
    file.write_text(f'data = "{archive}"\ncrop = 10\nflip = "hv"\nbatch_size = 2\nmean = 3\n')
    assert main(["stats", f"--config={file}"]) == 0
    assert "6 of 6 images" in capsys.readouterr().out
    file.write_text(f'data = "{archive}"\ncrpo = 10\n')
    assert main(["stats", f"--config={file}"]) == 2
    assert "crpo" in capsys.readouterr().err


def test_for_aia_it_writes_a_stretch(tmp_path: Path) -> None:
    solar_files.save(tmp_path / "a.fits", *solar_files.frame())
    file = tmp_path / "stats.toml"
    flags = ["--pipeline=aia", "--size=64"]
    assert main(["stats", str(tmp_path / "a.fits"), "-o", str(file), *flags]) == 0
    config = parse(RunConfig, [f"--config={file}", *flags], None, "run")
    assert config.calibration is not None
    assert isinstance(config.calibration.stretch, Stretch)
    assert config.calibration.stretch.kind == "asinh"


def test_for_samples_of_aia_it_writes_a_stretch_of_each_channel(tmp_path: Path) -> None:
    pixels, header = solar_files.frame()
    for wavelnth, gain in ((171, 1), (193, 3)):
        changed = solar_files.changed(header, WAVELNTH=wavelnth)
        solar_files.save(tmp_path / f"{wavelnth}.fits", gain * pixels, changed)
    index = Index.scan(tmp_path, keys=["WAVELNTH", "T_OBS"]).group([193, 171])
    index.save(tmp_path / "index.parquet")
    run, file, audit = (tmp_path / name for name in ("run.toml", "stats.toml", "audit.csv"))
    run.write_text(f'data = "{tmp_path}/index.parquet"\npipeline = "aia"\nsize = 64\n')
    assert main(["stats", f"--config={run}", "-o", str(file)]) == 0
    both = [f"--config={run}", f"--config={file}"]
    calibration = parse(RunConfig, both, None, "run").calibration
    assert calibration is not None
    stretch = calibration.of_channels(["193", "171"]).stretch
    assert isinstance(stretch, dict)
    first, second = stretch["193"], stretch["171"]
    assert first.unit == pytest.approx(3 * second.unit, rel=0.02)
    assert main(["run", *both, "--batch_size=1", f"--audit={audit}"]) == 0
    assert len(audit.read_text().splitlines()) == 2


def test_what_goes_wrong(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(archive), "--by=wavelength"]) == 2
    assert "'wavelength'" in capsys.readouterr().err
    bad = tmp_path / "bad.fits"
    bad.write_text("no FITS")
    assert main(["stats", str(bad)]) == 1
    assert str(bad) in capsys.readouterr().err
    assert main(["stats", str(archive), "-o", str(archive / "0.fits")]) == 2


def test_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = tmp_path / "speech", tmp_path / "stats.toml"
    folder.mkdir()
    for row in range(3):
        write(folder / f"{row}.wav", sound(4000 + 500 * row, seed=row), subtype="FLOAT")
    flags = ["--pipeline=audio", "-o", str(file)]
    assert main(["stats", str(folder), *flags]) == 0
    assert "3 of 3 recordings" in capsys.readouterr().out
    config = parse(RunConfig, [f"--config={file}", "--pipeline=audio", "--data=a"], None, "run")
    samples = np.concatenate([sound(4000 + 500 * row, seed=row) for row in range(3)])
    settings = config.pipeline_config
    assert settings.mean is not None and settings.std is not None  # noqa: PT018
    assert settings.mean[0] == pytest.approx(samples.mean(), abs=1e-5)
    assert settings.std[0] == pytest.approx(samples.std(), rel=1e-4)
    assert "stretch" not in file.read_text()
    assert main(["stats", str(folder), "--features=log_mel", *flags]) == 0
    run = ["run", f"--data={folder}", f"--config={file}", "--pipeline=audio", "--features=log_mel"]
    assert main([*run, "--batch_size=1", "--num_read_processes=1"]) == 0


def test_the_numbers_of_variables_keep_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default variables are sorted by name, and so would be those of a later run."""
    dims = ("time", "lat", "lon")
    random = np.random.default_rng(0)
    data = {"t2m": random.normal(280, 5, (4, 16, 16)), "msl": random.normal(1e5, 50, (4, 16, 16))}
    dataset = xr.Dataset({name: (dims, values) for name, values in data.items()})
    dataset.to_zarr(tmp_path / "a.zarr", consolidated=False)
    file = tmp_path / "stats.toml"
    arguments = [str(tmp_path / "a.zarr"), "--pipeline=chunked", "--variables=t2m,msl"]
    assert main(["stats", *arguments, "-o", str(file)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows[-2:]] == ["t2m", "msl"]
    config = parse(
        RunConfig,
        [f"--data={tmp_path}/a.zarr", "--pipeline=chunked", f"--config={file}"],
        None,
        "run",
    )
    assert config.factory_settings()["variables"] == ("t2m", "msl")
    expected = [data[name].mean() for name in ("t2m", "msl")]
    assert config.pipeline_config.mean == pytest.approx(expected, rel=1e-6)


def test_statistics_of_videos_are_by_colour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = tmp_path / "clips", tmp_path / "stats.toml"
    folder.mkdir()
    paths = [write_video(folder / f"{row}", "h264", 20, seed=row) for row in range(3)]
    flags = ["--pipeline=video", "-o", str(file)]
    for clip, frames in (([], [9]), (["--frames=4", "--stride=3"], [5, 8, 11, 14])):
        assert main(["stats", str(folder), *flags, *clip]) == 0
        assert "3 of 3 videos" in capsys.readouterr().out
        config = parse(RunConfig, [f"--config={file}", "--pipeline=video", "--data=a"], None, "run")
        pixels = np.concatenate([stored(path)[frames] for path in paths]).reshape(-1, 3)
        settings = config.pipeline_config
        assert settings.mean is not None and settings.std is not None  # noqa: PT018
        np.testing.assert_allclose(settings.mean, pixels.mean(0), rtol=1e-4)
        np.testing.assert_allclose(settings.std, pixels.std(0), rtol=1e-4)
    run = ["run", f"--data={folder}", f"--config={file}", "--pipeline=video", "--frames=4"]
    assert main([*run, "--batch_size=1", "--num_read_processes=1"]) == 0
    Index.scan_videos(folder).each_clip(4, stride=2).save(tmp_path / "clips.parquet")
    assert main(["stats", str(tmp_path / "clips.parquet"), *flags]) == 0
    assert "9 of 9 videos" in capsys.readouterr().out
