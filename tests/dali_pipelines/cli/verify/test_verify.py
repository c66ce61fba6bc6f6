"""The command verify on FITS files: real ones, damaged copies, and differences it must not miss."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from fakes import DeadlyReader

from dali_pipelines.cli.main import main
from dali_pipelines.cli.verify import placed
from readers import Index

RAMP = np.arange(31 * 23, dtype=np.int16).reshape(31, 23)
Verify = Callable[..., dict[str, str]]
ChangeTruth = Callable[[Callable[[str, Any], None]], None]


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """One file: primary without image, a table, an image, a compressed image of other pixels."""
    table = fits.BinTableHDU.from_columns([fits.Column("a", "J", array=[1, 2])])
    hdus = [fits.PrimaryHDU(), table, fits.ImageHDU(RAMP), fits.CompImageHDU(RAMP.T + 1.5)]
    fits.HDUList(hdus).writeto(tmp_path / "several.fits")
    return tmp_path / "several.fits"


def damaged(content: bytes) -> dict[str, bytes]:
    """Return damaged copies that neither decoder can read."""
    noise = random.Random(0)
    last = len(content) - 2880  # a shorter cut may only take padding
    copies = {
        f"cut_{kept}": content[: min(last, int(kept * len(content)))]
        for kept in (0, 0.1, 0.5, 0.97, 1)
    }
    copies["head"] = noise.randbytes(2880) + content[2880:]
    return copies


def test_real_files_agree_and_damaged_copies_are_rejected(
    shared_data: Path, tmp_path: Path, verify: Verify
) -> None:
    real = sorted((shared_data / "fits").iterdir())
    bad = tmp_path / "bad"
    bad.mkdir()
    for path in real:
        content = path.read_bytes()
        for name, copy in damaged(content).items():
            (bad / f"{name}_{path.name}").write_bytes(copy)
        # Not of HCOMPRESS_1 and PLIO_1, whose streams cannot be told from noise.
        if path.stem in ("aia_171_cutout", "m13_rice", "m13_gzip"):
            middle, noise = len(content) // 2, random.Random(0).randbytes(4000)
            scrambled = content[:middle] + noise + content[middle + 4000 :]
            (bad / f"scrambled_{path.name}").write_bytes(scrambled)
    (bad / "text.fits").write_text("not FITS\n")

    lines = verify(shared_data / "fits", bad, "--json", tmp_path / "out.json")

    for path in real:
        assert lines[path.name].endswith("  0  OK")
    for name, facts in (
        ("m13_plio.fits", ["PLIO_1", "300x300", "int16"]),
        ("m13.fits", ["plain", "300x300", "int16"]),
        ("aia_171_cutout.fits", ["RICE_1", "705x769", "float32"]),
    ):
        assert lines[name].split() == [*facts, "0", "OK"]
    rejected = {name: line for name, line in lines.items() if "  REJECTED  " in line}
    assert {*rejected} == {path.name for path in bad.iterdir()}
    assert len(lines) == len(real) + len(rejected)
    reasons = {name: line.partition("  REJECTED  ")[2] for name, line in rejected.items()}
    assert all(reasons.values())
    assert "truncated" in reasons["cut_0.5_m13.fits"]
    assert "tile" in reasons["scrambled_aia_171_cutout.fits"]

    written = json.loads((tmp_path / "out.json").read_text())
    assert written["device"] == "CPU"
    assert {"python", "astropy", "nvidia-dali-cuda120"} <= {*written["versions"]}
    assert len(written["files"]) == len(lines)
    assert written["files"][0] == {
        "path": str(real[0]),
        "hdu": 1,
        "plane": None,
        "frame": None,
        "codec": "RICE_1",
        "shape": [705, 769],
        "dtype": "float32",
        "max_difference": 0.0,
        "verdict": "OK",
        "reason": "",
    }
    assert written["files"][-1]["reason"] == reasons["text.fits"]
    assert written["files"][-1]["shape"] is None


@pytest.mark.usefixtures("no_processes")
def test_a_file_for_run(several: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'data = "{several}"\nhdu = 2\nbatch_size = 2\nwindow = "random"\ncrop = 8\n')
    assert main(["verify", f"--config={file}"]) == 0
    assert "31x23" in capsys.readouterr().out
    file.write_text(f'data = "{several}"\ncrpo = 8\n')
    assert main(["verify", f"--config={file}"]) == 2
    assert "crpo" in capsys.readouterr().err


def test_a_file_that_ends_after_its_image_is_told(tmp_path: Path, verify: Verify) -> None:
    hdus = [fits.PrimaryHDU(), fits.ImageHDU(RAMP), fits.ImageHDU(RAMP)]
    fits.HDUList(hdus).writeto(tmp_path / "a.fits")
    content = (tmp_path / "a.fits").read_bytes()
    (tmp_path / "b.fits").write_bytes(content[:-2880])
    (tmp_path / "c.fits").write_bytes(content + b"anything")
    lines = verify(tmp_path)
    verdicts = {name: line.partition("  0  OK")[2] for name, line in lines.items()}
    assert (verdicts["a.fits"], verdicts["c.fits"]) == ("", "")
    assert "truncated" in verdicts["b.fits"]


@pytest.mark.usefixtures("no_processes")
def test_windows(shared_data: Path, several: Path, verify: Verify) -> None:
    lines = verify(shared_data / "fits", several, "--window=11,20,200,100")
    small = {"compressed_with_nan.fits": "12x12", "several.fits": "31x23"}
    assert lines.keys() > small.keys()
    for name, line in lines.items():
        if name in small:
            reason = line.partition("  REJECTED  ")[2]
            for fact in ("rows 11 to 210", "columns 20 to 119", small[name]):
                assert fact in reason
        else:
            assert "  200x100  " in line
            assert line.endswith("  0  OK")


def test_the_window_is_where_it_was_asked_for(
    tmp_path: Path, verify: Verify, change_truth: ChangeTruth
) -> None:
    """Each pixel is unique, so that no other window agrees with astropy's."""
    fits.CompImageHDU(RAMP, tile_shape=(4, 9)).writeto(tmp_path / "ramp.fits")
    seen = []
    change_truth(lambda name, truth: seen.append(truth.values.copy()))
    assert verify(tmp_path / "ramp.fits", "--window=7,3,5,20")["ramp.fits"].endswith("  0  OK")
    np.testing.assert_array_equal(seen[0].squeeze(), RAMP[7:12, 3:23])


def test_differences_are_seen(tmp_path: Path, verify: Verify, change_truth: ChangeTruth) -> None:
    """Other pixels, NaN, another shape, a complaint."""

    def change(name: str, truth: Any) -> None:
        match name[0]:
            case "a":
                truth.values[3, 4] -= 2.5
                truth.values[5, :2] += 1
            case "b":
                truth.values[0, 0] = np.nan
            case "d":
                truth.values = truth.values.T
            case "e":
                truth.values, truth.complaint = None, "MemoryError: too large"

    change_truth(change)
    for name in "abdef":
        fits.PrimaryHDU(RAMP).writeto(tmp_path / f"{name}.fits")
    fits.PrimaryHDU(np.stack([RAMP] * 3)).writeto(tmp_path / "cube.fits")
    lines = verify(tmp_path, "--json", tmp_path / "out.json", status=1)
    files = json.loads((tmp_path / "out.json").read_text())["files"]
    found = {Path(file["path"]).stem: file for file in files}
    for name, verdict, difference, reason in (
        ("a", "DIFFERS", 2.5, "3 of 713"),
        ("b", "DIFFERS", "nan", "1 of 713"),
        ("d", "DIFFERS", None, "(31, 23)"),
        ("e", "DIFFERS", None, "MemoryError: too large"),
        ("f", "OK", 0.0, ""),
        ("cube", "REJECTED", None, "3 planes of 31x23"),
    ):
        file = found[name]
        assert (file["verdict"], file["max_difference"]) == (verdict, difference)
        assert reason in file["reason"]
        assert verdict in lines[f"{name}.fits"]
        assert reason in lines[f"{name}.fits"]


@pytest.mark.usefixtures("no_processes")
def test_hdus_of_flags_and_of_an_index(
    several: Path, tmp_path: Path, verify: Verify, command: Callable[..., tuple[str, str]]
) -> None:
    assert verify(several, "--hdu=3")["several.fits"] == "RICE_1  23x31  float64  0  OK"
    hdus = pa.array([3, None, 1, 9, 2], pa.int64())
    Index(pa.table({"path": [str(several)] * 5, "hdu": hdus})).save(tmp_path / "index.parquet")
    out = tmp_path / "out.json"
    command("verify", tmp_path / "index.parquet", "--device=cpu", "--hdu=2", f"--json={out}")
    files = json.loads(out.read_text())["files"]
    assert [(file["hdu"], file["verdict"]) for file in files] == [
        (3, "OK"),
        (2, "OK"),
        (1, "REJECTED"),
        (9, "REJECTED"),
    ]
    assert "BinTableHDU" in files[2]["reason"]


@pytest.mark.usefixtures("no_processes")
def test_lines_of_detectors_name_their_hdu(
    tmp_path: Path, command: Callable[..., tuple[str, str]]
) -> None:
    path = tmp_path / "detectors.fits"
    images = [fits.ImageHDU(RAMP, name="SCI", ver=version) for version in (1, 2)]
    fits.HDUList([fits.PrimaryHDU(RAMP), *images]).writeto(path)
    index = Index(pa.table({"path": [str(path)] * 3, "hdu": pa.array([0, 1, 2], pa.int64())}))
    index.save(tmp_path / "index.parquet")
    out, _ = command("verify", tmp_path / "index.parquet", "--device=cpu")
    named = [line.partition("  ")[0] for line in out.splitlines()]
    assert named == [str(path), f"{path} HDU 1", f"{path} HDU 2"]


@pytest.mark.usefixtures("no_processes")
def test_planes_of_an_index_and_names_of_hdus(tmp_path: Path, verify: Verify) -> None:
    """Each row is compared with its plane; both decoders reject a cube without one."""
    cube = np.random.default_rng(0).normal(100, 9, (3, 8, 9)).astype(np.float32)
    image = fits.CompImageHDU(cube, name="SCI")
    fits.HDUList([fits.PrimaryHDU(RAMP), image]).writeto(tmp_path / "cube.fits")
    fits.PrimaryHDU(cube[0, 0]).writeto(tmp_path / "line.fits")
    index = Index.from_paths([tmp_path / "cube.fits"])
    index = Index(index.table.append_column("hdu", pa.array([1]))).each_plane([2])
    index.save(tmp_path / "i.parquet")
    assert verify(tmp_path / "i.parquet")["cube.fits plane 2"] == "RICE_1  8x9  float32  0  OK"
    window = verify(tmp_path / "i.parquet", "--window=2,3,4,5")["cube.fits plane 2"]
    assert window == "RICE_1  4x5  float32  0  OK"
    rejected = verify(tmp_path / "cube.fits", "--hdu=SCI", status=1)["cube.fits"]
    assert "REJECTED" in rejected
    assert "3 planes" in rejected
    assert verify(tmp_path / "line.fits")["line.fits"] == "plain  1x9  float32  0  OK"
    fits.PrimaryHDU(np.arange(432).reshape(2, 3, 8, 9)).writeto(tmp_path / "four.fits")
    Index.from_paths([tmp_path / "four.fits"]).each_plane([4]).save(tmp_path / "four.parquet")
    assert verify(tmp_path / "four.parquet")["four.fits plane 4"] == "plain  8x9  int64  0  OK"
    verify(tmp_path / "four.parquet", "--window=2,3,4,5")


@pytest.mark.slow
def test_a_file_that_kills_its_reader_does_not_stop_the_others(
    tmp_path: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Reader that dies: no file is known that brings ours down."""
    monkeypatch.setattr(placed, "PlacedReader", DeadlyReader)
    for number in range(12):
        name = f"{'deadly' if number in (4, 5, 11) else 'file'}{number:02d}.fits"
        fits.PrimaryHDU(RAMP + np.int16(number)).writeto(tmp_path / name)
    files = sorted(tmp_path.iterdir(), key=lambda path: path.stem[-2:])
    lines = verify(*files, status=1)
    assert list(lines) == [path.name for path in files]
    for name, line in lines.items():
        assert ("DIFFERS" if name.startswith("deadly") else "  0  OK") in line
