"""verify.py as a user runs it: real files, damaged copies of them, and what it must not miss."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jobs
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from fakes import DeadlyReader
from jobs import SCRIPTS

from dali_pipelines.cli.verify import compare, placed
from dali_pipelines.cli.verify import main as script
from readers import Index

SCRIPT = SCRIPTS / "verify.py"
RAMP = np.arange(31 * 23, dtype=np.int16).reshape(31, 23)


Run = Callable[..., dict[str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on the CPU in this process; give its status, and lines by file name."""

    def run(*arguments: object, status: int) -> dict[str, str]:
        found = script.main(["--device=cpu", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert found == status, out + err
        assert "Traceback" not in err
        lines = dict(line.split("  ", 1) for line in out.splitlines())
        assert len(lines) == out.count("\n")
        return {os.path.basename(path): rest for path, rest in lines.items()}

    return run


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
    last = len(content) - 2880  # what the last block lacks may be padding
    copies = {
        f"cut_{kept}": content[: min(last, int(kept * len(content)))]
        for kept in (0, 0.1, 0.5, 0.97, 1)
    }
    copies["head"] = noise.randbytes(2880) + content[2880:]
    return copies


def test_real_files_agree_and_damaged_copies_are_rejected(
    shared_data: Path, tmp_path: Path, run: Run
) -> None:
    real = sorted((shared_data / "fits").iterdir())
    bad = tmp_path / "bad"
    bad.mkdir()
    for path in real:
        for name, content in damaged(path.read_bytes()).items():
            (bad / f"{name}_{path.name}").write_bytes(content)
    # Not of HCOMPRESS_1 and PLIO_1, whose streams cannot be told from noise.
    for path in [path for path in real if path.stem in ("aia_171_cutout", "m13_rice", "m13_gzip")]:
        content = path.read_bytes()
        middle = len(content) // 2
        noise = random.Random(0).randbytes(4000)
        scrambled = content[:middle] + noise + content[middle + 4000 :]
        (bad / f"scrambled_{path.name}").write_bytes(scrambled)
    (bad / "text.fits").write_text("not FITS\n")

    lines = run(shared_data / "fits", bad, "--json", tmp_path / "out.json", status=0)

    for path in real:
        assert lines[path.name].endswith("  0  OK")
    assert lines["m13_plio.fits"] == "PLIO_1  300x300  int16  0  OK"
    assert lines["m13.fits"] == "plain  300x300  int16  0  OK"
    assert lines["aia_171_cutout.fits"] == "RICE_1  705x769  float32  0  OK"
    rejected = {name: line for name, line in lines.items() if "  REJECTED  " in line}
    assert set(rejected) == {path.name for path in bad.iterdir()}
    assert len(lines) == len(real) + len(rejected)
    reasons = {name: line.partition("  REJECTED  ")[2] for name, line in rejected.items()}
    assert reasons["cut_0.5_m13.fits"].startswith("File may have been truncated: actual file")
    assert reasons["scrambled_aia_171_cutout.fits"] == "the compressed bytes of a tile are damaged"
    assert all(reasons.values())

    written = json.loads((tmp_path / "out.json").read_text())
    assert written["device"] == "CPU"
    assert {"python", "astropy", "nvidia-dali-cuda120"} <= set(written["versions"])
    assert len(written["files"]) == len(lines)
    assert written["files"][0] == {
        "path": str(real[0]),
        "hdu": 1,
        "plane": None,
        "codec": "RICE_1",
        "shape": [705, 769],
        "dtype": "float32",
        "max_difference": 0.0,
        "verdict": "OK",
        "reason": "",
    }
    assert written["files"][-1]["reason"] == reasons["text.fits"]
    assert written["files"][-1]["shape"] is None


def test_a_file_that_ends_after_its_image_is_told(tmp_path: Path, run: Run) -> None:
    hdus = [fits.PrimaryHDU(), fits.ImageHDU(RAMP), fits.ImageHDU(RAMP)]
    fits.HDUList(hdus).writeto(tmp_path / "a.fits")
    content = (tmp_path / "a.fits").read_bytes()
    (tmp_path / "b.fits").write_bytes(content[:-2880])
    (tmp_path / "c.fits").write_bytes(content + b"anything")
    lines = run(tmp_path, status=0)
    assert all(lines[name].endswith("  0  OK") for name in ("a.fits", "c.fits"))
    assert "  0  OK  but the file ends early: File may have been truncated" in lines["b.fits"]


def test_window(shared_data: Path, several: Path, run: Run) -> None:
    lines = run(shared_data / "fits", several, "--window=11,20,200,100", status=0)
    small = {"compressed_with_nan.fits": "12x12", "several.fits": "31x23"}
    assert lines.keys() > small.keys()
    for name, line in lines.items():
        if name in small:
            assert line.endswith(
                "  REJECTED  the window of rows 11 to 210 and columns 20 to 119 reaches outside "
                f"the image {small[name]}"
            )
        else:
            assert "  200x100  " in line
            assert line.endswith("  0  OK")


def test_the_window_is_where_it_was_asked_for(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pixel is unique, so that no other window agrees with astropy's."""
    fits.CompImageHDU(RAMP, tile_shape=(4, 9)).writeto(tmp_path / "ramp.fits")
    seen = []
    judge = compare._judge

    def seen_and_judged(*args: Any) -> compare.Record:
        seen.append(args[2])
        return judge(*args)

    monkeypatch.setattr(compare, "_judge", seen_and_judged)
    assert run(tmp_path / "ramp.fits", "--window=7,3,5,20", status=0)["ramp.fits"].endswith("OK")
    np.testing.assert_array_equal(seen[0], RAMP[7:12, 3:23])


def test_differences_are_seen(
    shared_data: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What astropy says is changed on the way: other pixels, NaN, another shape, a complaint."""

    def changed(
        function: Callable[..., Any], tasks: Iterable[Any], num_processes: int
    ) -> Iterator[Any]:
        del num_processes
        for task in tasks:
            truth = function(*task)
            match os.path.basename(task[0].path)[:2]:
                case "aa":
                    truth.values[3, 4] -= 2.5
                    truth.values[5, :2] += 1
                case "bb":
                    truth.values[0, 0] = np.nan
                case "cc":
                    truth.values = truth.values.T
                case "dd":
                    truth.values, truth.complaint = None, "MemoryError: too large"
            yield truth

    monkeypatch.setattr(compare, "isolated_map", changed)
    for name in ("aa", "bb", "cc", "dd", "ee"):
        fits.PrimaryHDU(RAMP).writeto(tmp_path / f"{name}.fits")
    fits.PrimaryHDU(np.stack([RAMP] * 3)).writeto(tmp_path / "cube.fits")
    lines = run(tmp_path, "--json", tmp_path / "out.json", status=1)
    facts = "plain  31x23  int16"
    assert lines["aa.fits"] == f"{facts}  2.5  DIFFERS  3 of 713 pixels"
    assert lines["bb.fits"] == f"{facts}  nan  DIFFERS  1 of 713 pixels"
    assert lines["cc.fits"] == f"{facts}  -  DIFFERS  the shape here is (31, 23)"
    assert lines["dd.fits"] == (
        f"{facts}  -  DIFFERS  read here, but not by astropy: MemoryError: too large"
    )
    assert lines["ee.fits"] == f"{facts}  0  OK"
    assert lines["cube.fits"].startswith(
        "plain  -  -  -  REJECTED  the image has 3 planes of 31x23 pixels: choose by"
    )
    written = json.loads((tmp_path / "out.json").read_text())["files"]
    assert [file["max_difference"] for file in written] == [2.5, "nan", None, None, None, 0.0]


def test_hdu(several: Path, tmp_path: Path, run: Run) -> None:
    assert run(several, "--hdu=3", status=0)["several.fits"] == "RICE_1  23x31  float64  0  OK"
    Index(pa.table({"path": [str(several)], "hdu": [2]})).save(tmp_path / "named.parquet")
    assert run(tmp_path / "named.parquet", "--hdu=2", status=0)
    for name in ("--hdu=3", "--hdu=SCI"):
        assert not run(tmp_path / "named.parquet", name, status=2)
    hdus = pa.array([3, None, 1, 9, 2], pa.int64())
    Index(pa.table({"path": [str(several)] * 5, "hdu": hdus})).save(tmp_path / "index.parquet")
    out = tmp_path / "out.json"
    script.main(["--device=cpu", "--hdu=2", str(tmp_path / "index.parquet"), f"--json={out}"])
    files = json.loads(out.read_text())["files"]
    assert [(file["hdu"], file["verdict"]) for file in files] == [
        (3, "OK"),
        (2, "OK"),
        (1, "REJECTED"),
        (9, "REJECTED"),
    ]
    assert files[2]["reason"].startswith("HDU 1 holds no image, it is a BinTableHDU")


def test_planes_and_names(tmp_path: Path, run: Run) -> None:
    """Each row is compared with its plane; a cube of which none is named is rejected by both."""
    cube = np.random.default_rng(0).normal(100, 9, (3, 8, 9)).astype(np.float32)
    image = fits.CompImageHDU(cube, name="SCI")
    fits.HDUList([fits.PrimaryHDU(RAMP), image]).writeto(tmp_path / "cube.fits")
    line = fits.PrimaryHDU(cube[0, 0])
    line.writeto(tmp_path / "line.fits")
    index = Index.from_paths([tmp_path / "cube.fits"])
    index = Index(index.table.append_column("hdu", pa.array([1]))).each_plane([2])
    index.save(tmp_path / "i.parquet")
    assert run(tmp_path / "i.parquet", status=0)["cube.fits"].startswith("RICE_1  8x9  float32  0")
    window = "--window=2,3,4,5"
    assert run(tmp_path / "i.parquet", window, status=0)["cube.fits"].endswith("  0  OK")
    assert (
        "REJECTED  the image has 3 planes"
        in run(tmp_path / "cube.fits", "--hdu=SCI", status=1)["cube.fits"]
    )
    assert run(tmp_path / "line.fits", status=0)["line.fits"].endswith("plain  1x9  float32  0  OK")


def test_a_file_that_kills_its_reader_does_not_stop_the_others(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placed, "PlacedReader", DeadlyReader)
    for number in range(12):
        name = f"{'deadly' if number in (4, 5, 11) else 'file'}{number:02d}.fits"
        fits.PrimaryHDU(RAMP + np.int16(number)).writeto(tmp_path / name)
    files = sorted(tmp_path.iterdir(), key=lambda path: path.stem[-2:])
    lines = run(*files, status=1)
    assert list(lines) == [path.name for path in files]
    for name, line in lines.items():
        if name.startswith("deadly"):
            assert line.endswith("but not here: it kills the process that reads it")
        else:
            assert line.endswith("  OK")


WRONG = [
    ([], "the following arguments are required: FILE"),
    (["/nowhere"], "/nowhere: no such folder or file; give a folder, a glob, a .csv or an Index"),
    (["FILE", "--window=1,2,3"], "expected Y,X,H,W in pixels, from 0,0,1,1 on, as 0,0,512,512;"),
    (["FILE", "--window=1,2,0,4"], "got '1,2,0,4'"),
    (["FILE", "--window=1,2,-3,4"], "got '1,2,-3,4'"),
    (["FILE", "--hdu=-1"], "expected the number of an HDU, its EXTNAME, or "),
    (["FILE", "--device=tpu"], "invalid choice: 'tpu'"),
    (["FILE", "--json=/nowhere/out.json"], "/nowhere/out.json cannot be written"),
    (["FILE", "--bogus"], "unrecognized arguments: --bogus"),
    (["FILE", "--device=gpu"], "1 shard needs a GPU, but no GPU is visible"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_usage(
    several: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: Any,
    message: str,
) -> None:
    monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: 0)
    assert script.main([str(several) if word == "FILE" else word for word in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dali-pipelines verify: ")
    assert message in err
    assert err.count("\n") == 1


def test_no_report_replaces_what_is_read(
    tmp_path: Path, several: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.fits").write_text("text")
    (tmp_path / "v.toml").write_text(f'files = ["{several}"]')
    for data, report, message in (
        (tmp_path, "text.fits", "text.fits is a file that is read"),
        (f"--config={tmp_path / 'v.toml'}", "v.toml", "--config and --json both name"),
    ):
        before = (tmp_path / report).read_text()
        assert script.main([str(data), f"--json={tmp_path / report}", "--device=cpu"]) == 2
        assert message in capsys.readouterr().err
        assert (tmp_path / report).read_text() == before


def test_as_a_command(several: Path) -> None:
    found = jobs.run([sys.executable, str(SCRIPT), str(several), "--device=cpu"])
    assert found.stdout == f"{several}  plain  31x23  int16  0  OK\n"
    assert found.stderr == "1 files on the CPU: 1 OK, 0 DIFFERS, 0 REJECTED\n"
    assert found.returncode == 0
