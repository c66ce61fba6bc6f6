"""The command prep: what is written, skipped and refused, and what a killed run leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from jobs import Job
from solar_files import changed, frame, full_header, pointing_table, save, save_pointing

from dali_pipelines.cli.prep import main as script
from dali_pipelines.cli.prep.tiling import Tiling
from readers.contract import Row

Prep = Callable[..., list[str]]
PIXELS, HEADER = frame()
COUNTS = np.rint(PIXELS).astype(np.int16)
CORRECTION = """\
DATE,VER_NUM,WAVE_STR,T_START,T_STOP,EFFA_P1,EFFA_P2,EFFA_P3,EFF_AREA
2010-03-24T00:00:00Z,10,193_THIN,2010-03-24T00:00:00Z,2030-01-01T00:00:00Z,0,0,0,2.5
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Three fit files, one of them in a subfolder."""
    folder = tmp_path / "archive"
    (folder / "sub").mkdir(parents=True)
    for name in "a.fits", "b.fits.gz", "sub/c.fits":
        save(folder / name, COUNTS, HEADER)
    return folder


def figures(summary: str) -> dict[str, int]:
    """Return the numbers of files that a summary names."""
    found = re.findall(r"(\d+) (files|written|finished|bad)", summary)
    return {noun: int(number) for number, noun in found}


def written(out: Path) -> list[str]:
    """Return the names of the files in a folder; those that are FITS must be sound."""
    paths = sorted(path for path in out.rglob("*") if path.is_file())
    for path in paths:
        if path.suffix == ".fits":
            with fits.open(path, checksum=True) as hdus:
                hdus.verify("exception")
                assert hdus[-1].header["LVL_NUM"] == 1.5
                assert hdus[-1].data.shape == (128, 128)
    return [str(path.relative_to(out)) for path in paths]


class TestRun:
    def test_files_are_written_and_finished_ones_skipped(
        self, archive: Path, prep: Prep, tmp_path: Path
    ) -> None:
        (said,) = prep(archive)
        assert figures(said) == {"files": 3, "written": 3, "finished": 0, "bad": 0}
        names = ["a.fits", "b.fits", "prep.json", "sub/c.fits"]
        assert written(tmp_path / "out") == names
        os.unlink(tmp_path / "out/b.fits")
        before = os.stat(tmp_path / "out/a.fits")
        (said,) = prep(archive)
        assert figures(said) == {"files": 3, "written": 1, "finished": 2, "bad": 0}
        assert os.stat(tmp_path / "out/a.fits") == before
        assert written(tmp_path / "out") == names
        later = before.st_mtime + 10
        os.utime(archive / "a.fits", (later, later))
        older, said = prep(archive)
        assert older.startswith("1 ")
        assert f"{tmp_path}/out/a.fits" in older
        assert figures(said)["finished"] == 3

    def test_flags(self, archive: Path, prep: Prep, tmp_path: Path) -> None:
        (tmp_path / "V10.csv").write_text(CORRECTION.replace("193", "171"))
        flags = ["--order=1", "--exposure", "--scale=38.4", "--size=100", "--compress=rice"]
        flags += ["--quantize_level=20", f"--correction-table={tmp_path / 'V10.csv'}"]
        prep(archive / "a.fits", *flags)
        header = fits.getheader(tmp_path / "out/a.fits", 1)
        assert (header["NAXIS1"], header["CDELT1"], header["BITPIX"]) == (100, 38.4, -32)
        text = " ".join(header["HISTORY"])
        for word in "order 1,", "EXPTIME", "V10.csv", "1/20 of":
            assert word in text

    def test_other_settings_need_another_folder(
        self, archive: Path, prep: Prep, tmp_path: Path, contents: Callable[[Path], Any]
    ) -> None:
        prep(archive)
        before = contents(tmp_path)
        (line,) = prep(archive, "--exposure", status=2)
        for word in "prep.json", "exposure", "False", "True", "-o":
            assert word in line
        assert contents(tmp_path) == before

    def test_bad_files_are_listed_and_the_others_done(
        self, archive: Path, prep: Prep, tmp_path: Path
    ) -> None:
        (archive / "aa.fits").write_text("no FITS file")
        (archive / "short.fits").write_bytes((archive / "a.fits").read_bytes()[:-5760])
        *bad, said = prep(archive, status=1)
        assert [line.split(": ")[0] for line in bad] == [
            f"bad {archive / name}" for name in ("aa.fits", "short.fits")
        ]
        assert figures(said) == {"files": 5, "written": 3, "finished": 0, "bad": 2}
        assert written(tmp_path / "out") == ["a.fits", "b.fits", "prep.json", "sub/c.fits"]
        said = prep(archive, status=1)[-1]
        assert figures(said) == {"files": 5, "written": 0, "finished": 3, "bad": 2}

    def test_a_full_disk_ends_the_run(
        self, archive: Path, prep: Prep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        prep(archive / "a.fits")
        monkeypatch.setattr(os, "replace", full)
        (line,) = prep(archive, status=1)
        assert "No space left on device" in line
        assert written(tmp_path / "out") == ["a.fits", "prep.json"]

    def test_an_unknown_error_is_that_of_its_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Tiling, "write", lambda *_: 1 // 0)
        made = script.write_file(Row(0, "a.fits"), "b.fits", str(tmp_path), Tiling(64))
        assert made.bad is not None
        assert "ZeroDivisionError" in made.bad


class TestUnfit:
    """Each kind of file that cannot be calibrated has its own reason."""

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            ({"LVL_NUM": 1.5}, "LVL_NUM is 1.5, .*registered"),
            ({"QUALITY": 0x1000}, "QUALITY is 0x00001000.* 12 .*science pointing"),
            ({"CRPIX1": 20.0}, "full disk, .*cutout"),
            ({"CROTA2": None}, "CROTA2 is missing"),
            ({"INSTRUME": None}, "INSTRUME is missing"),
            ({"EXPTIME": 0.0}, "EXPTIME is 0.0"),
        ],
    )
    def test_header(
        self, archive: Path, prep: Prep, tmp_path: Path, words: dict[str, Any], reason: str
    ) -> None:
        save(archive / "a.fits", COUNTS, changed(HEADER, **words))
        bad, said = prep(archive, status=1)
        assert re.match(f"bad {archive}/a.fits: .*{reason}", bad)
        assert figures(said) == {"files": 3, "written": 2, "finished": 0, "bad": 1}
        assert written(tmp_path / "out") == ["b.fits", "prep.json", "sub/c.fits"]

    @pytest.mark.parametrize(
        ("flag", "factor", "reason"),
        [
            ("--correction-table={}/V10.csv", 1, "V10.csv has no channel 171.* 193"),
            ("--pointing-table={}/pointing.csv", 1, "128x128.* 4096x4096"),
            ("--psf", 1, "4096x4096.* AIA_3 of 128x128"),
            ("--dtype=int16", 1000, "float32"),
        ],
    )
    def test_flags(
        self, archive: Path, prep: Prep, tmp_path: Path, flag: str, factor: int, reason: str
    ) -> None:
        (tmp_path / "V10.csv").write_text(CORRECTION)
        save_pointing(pointing_table(), tmp_path / "pointing.csv")
        save(archive / "a.fits", COUNTS if factor == 1 else PIXELS * factor, HEADER)
        bad, _ = prep(archive / "a.fits", flag.format(tmp_path), status=1)
        assert re.match(f"bad {archive}/a.fits: .*{reason}", bad), bad

    def test_a_time_that_the_pointing_table_lacks(
        self, archive: Path, prep: Prep, tmp_path: Path
    ) -> None:
        save_pointing(pointing_table(), tmp_path / "pointing.csv")
        header = full_header(T_OBS="2020-01-01T00:00:00Z")
        save(archive / "b.fits", np.zeros((4096, 4096), np.int16), header)
        flag = f"--pointing-table={tmp_path / 'pointing.csv'}"
        bad, _ = prep(archive / "b.fits", flag, status=1)
        assert re.search(r"pointing\.csv .*2020-01-01T00:00:00Z", bad)


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestEnds:
    """What a run leaves that is ended from outside, and how it goes on."""

    NUMBER = 60

    @pytest.fixture
    def running(self, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
        """Start the command on many files, and wait for the first that it writes."""
        (tmp_path / "archive").mkdir()
        first = save(tmp_path / "archive/000.fits", COUNTS, HEADER)
        for number in range(1, self.NUMBER):
            os.link(first, tmp_path / f"archive/{number:03d}.fits")
        command = Job(
            [
                sys.executable,
                "-m",
                "dali_pipelines",
                "prep",
                "archive",
                "-o=out",
                "--num_processes=2",
            ],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 200
            while not list((tmp_path / "out").glob("*.fits")):
                assert command.poll() is None, command.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.005)
            yield command
        finally:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
            command.communicate()

    def test_killed(self, running: subprocess.Popen[str], tmp_path: Path, prep: Prep) -> None:
        running.kill()
        running.communicate(timeout=200)  # its child processes hold the pipe, too
        assert [path for path in (tmp_path / "out").glob(".part-*") if path.is_dir()]
        done = len(list((tmp_path / "out").glob("*.fits")))
        assert 0 < done < self.NUMBER
        (said,) = prep(tmp_path / "archive")
        left = self.NUMBER - done
        assert figures(said) == {"files": self.NUMBER, "written": left, "finished": done, "bad": 0}
        names = [f"{number:03d}.fits" for number in range(self.NUMBER)]
        assert written(tmp_path / "out") == [*names, "prep.json"]
        assert sorted(os.listdir(tmp_path / "out")) == [*names, "prep.json"]

    def test_interrupted(self, running: subprocess.Popen[str], tmp_path: Path) -> None:
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        _, err = running.communicate(timeout=200)
        assert running.returncode == 130
        assert (err.count("\n"), "interrupted" in err) == (1, True), err
        left = written(tmp_path / "out")
        assert left[-1] == "prep.json"
        assert 1 < len(left) <= self.NUMBER
        assert sorted(os.listdir(tmp_path / "out")) == left
