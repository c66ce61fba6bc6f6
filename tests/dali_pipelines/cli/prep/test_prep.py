"""prep.py as a user runs it: what is written, skipped and refused, and what a killed run leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from jobs import ROOT, Job
from solar_files import changed, frame, full_header, pointing_table, save, save_pointing

from dali_pipelines.cli.prep import main as script
from dali_pipelines.parallel.task_map import isolated_map

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


@pytest.fixture
def prep(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command; give its status and the lines it said. One process is this one."""

    def here(function: Any, tasks: Any, num_processes: int, executor: Any) -> Any:
        if num_processes > 1 or executor is not None:
            return isolated_map(function, tasks, num_processes, executor)
        return (function(*task) for task in tasks)

    monkeypatch.setattr(script, "isolated_map", here)

    def prep(*arguments: object, num_processes: int = 1) -> tuple[int, list[str]]:
        out = ("-o", str(tmp_path / "out"))
        status = script.main([*map(str, arguments), *out, f"--num_processes={num_processes}"])
        said, err = capsys.readouterr()
        assert said == ""
        return status, err.splitlines()

    return prep


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
    @pytest.mark.parametrize("num_processes", [1, 2])
    def test_files_are_written_and_skipped(
        self, archive: Path, prep: Any, tmp_path: Path, num_processes: int
    ) -> None:
        status, said = prep(archive, num_processes=num_processes)
        assert (status, said) == (0, ["3 files: 3 written, 0 finished before, 0 bad"])
        assert written(tmp_path / "out") == ["a.fits", "b.fits", "prep.json", "sub/c.fits"]
        os.unlink(tmp_path / "out/b.fits")
        before = os.stat(tmp_path / "out/a.fits")
        assert prep(archive) == (0, ["3 files: 1 written, 2 finished before, 0 bad"])
        assert os.stat(tmp_path / "out/a.fits") == before
        assert written(tmp_path / "out") == ["a.fits", "b.fits", "prep.json", "sub/c.fits"]
        later = before.st_mtime + 10
        os.utime(archive / "a.fits", (later, later))
        older, summary = prep(archive)[1]
        assert older.startswith(
            f"1 finished before are older than their sources, the first: {tmp_path}"
        )
        assert summary == "3 files: 0 written, 3 finished before, 0 bad"

    def test_flags(self, archive: Path, prep: Any, tmp_path: Path) -> None:
        (tmp_path / "V10.csv").write_text(CORRECTION.replace("193", "171"))
        flags = ["--order=1", "--exposure", "--scale=38.4", "--size=100", "--compress=rice"]
        flags += ["--quantize_level=20", f"--correction-table={tmp_path / 'V10.csv'}"]
        assert prep(archive / "a.fits", *flags)[0] == 0
        header = fits.getheader(tmp_path / "out/a.fits", 1)
        assert (header["NAXIS1"], header["CDELT1"], header["BITPIX"]) == (100, 38.4, -32)
        text = " ".join(header["HISTORY"])
        for words in "spline of order 1,", "divided by EXPTIME", "table V10.csv", "1/20 of":
            assert words in text

    def test_other_settings_need_another_folder(self, archive: Path, prep: Any) -> None:
        assert prep(archive)[0] == 0
        status, (line,) = prep(archive, "--exposure")
        assert status == 2
        assert "prep.json: the files there were made with exposure False, not True" in line

    def test_bad_files_are_listed_and_the_others_done(
        self, archive: Path, prep: Any, tmp_path: Path
    ) -> None:
        (archive / "aa.fits").write_text("no FITS file")
        whole = (archive / "a.fits").read_bytes()
        (archive / "short.fits").write_bytes(whole[:-5760])
        status, said = prep(archive)
        assert status == 1
        assert said[0].startswith(f"bad {archive / 'aa.fits'}: not a FITS file")
        assert said[1].startswith(f"bad {archive / 'short.fits'}: ")
        assert said[2:] == ["5 files: 3 written, 0 finished before, 2 bad"]
        assert written(tmp_path / "out") == ["a.fits", "b.fits", "prep.json", "sub/c.fits"]
        assert prep(archive)[1][-1] == "5 files: 0 written, 3 finished before, 2 bad"

    def test_a_full_disk_ends_the_run(
        self, archive: Path, prep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        assert prep(archive / "a.fits")[0] == 0
        monkeypatch.setattr(os, "replace", full)
        status, said = prep(archive)
        assert (status, said) == (
            1,
            ["dali-pipelines prep: stopped: [Errno 28] No space left on device"],
        )
        assert written(tmp_path / "out") == ["a.fits", "prep.json"]


class TestUnfit:
    """Each kind of file that cannot be calibrated has its own reason."""

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            ({"LVL_NUM": 1.5}, "LVL_NUM is 1.5, expected 1: it is registered already, and must"),
            ({"QUALITY": 0x1000}, "QUALITY is 0x00001000: .* set: 12 .not in science pointing"),
            ({"CRPIX1": 20.0}, "expected a full disk, got a cutout: the Sun has its centre at"),
            ({"CROTA2": None}, "CROTA2 is missing, and so are PCi_j and CDi_j: the rotation"),
            ({"INSTRUME": None}, "INSTRUME is missing"),
            ({"EXPTIME": 0.0}, "EXPTIME is 0.0, expected more than 0 seconds"),
        ],
    )
    def test_header(
        self, archive: Path, prep: Any, tmp_path: Path, words: Any, reason: str
    ) -> None:
        save(archive / "a.fits", COUNTS, changed(HEADER, **words))
        status, said = prep(archive)
        assert status == 1
        assert re.match(f"bad {archive}/a.fits: {reason}", said[0])
        assert said[1:] == ["3 files: 2 written, 0 finished before, 1 bad"]
        assert written(tmp_path / "out") == ["b.fits", "prep.json", "sub/c.fits"]

    def test_a_channel_that_the_correction_table_lacks(
        self, archive: Path, prep: Any, tmp_path: Path
    ) -> None:
        (tmp_path / "V10.csv").write_text(CORRECTION)
        status, said = prep(archive / "a.fits", "--correction-table", tmp_path / "V10.csv")
        assert (status, said[0]) == (
            1,
            f"bad {archive}/a.fits: correction table V10.csv has no channel 171, it has 193",
        )

    def test_a_time_or_size_that_the_pointing_table_lacks(
        self, archive: Path, prep: Any, tmp_path: Path
    ) -> None:
        save_pointing(pointing_table(), tmp_path / "pointing.csv")
        header = full_header(T_OBS="2020-01-01T00:00:00Z")
        save(archive / "b.fits", np.zeros((4096, 4096), np.int16), header)
        flag = f"--pointing-table={tmp_path / 'pointing.csv'}"
        status, said = prep(archive / "a.fits", archive / "b.fits", flag)
        assert status == 1
        assert "the image is 128x128, but a pointing table is for frames of 4096x4096" in said[0]
        assert "pointing.csv has no slot for T_OBS 2020-01-01T00:00:00Z, it covers" in said[1]

    def test_psf(self, archive: Path, prep: Any) -> None:
        status, said = prep(archive / "a.fits", "--psf")
        assert status == 1
        assert "only AIA frames of 4096x4096 can be deconvolved, got AIA_3, 128x128" in said[0]

    def test_pixels_beyond_int16(self, archive: Path, prep: Any) -> None:
        save(archive / "a.fits", PIXELS * 1000, HEADER)
        assert "store them as float32" in prep(archive / "a.fits", "--dtype=int16")[1][0]


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["none.fits"], "none.fits: no such folder or file"),
            (["archive", "--order=2"], "argument --order: invalid choice"),
            (["archive", "--size=0"], "expected an integer from 1 on, got '0'"),
            (["archive", "--scale=inf"], "expected a number above 0, got 'inf'"),
            (["archive", "--scale=x"], "expected a number above 0, got 'x'"),
            (["archive", "--ord=1"], "unrecognized arguments: --ord=1"),
            (["archive", "--dtype=int8"], "argument --dtype: invalid choice"),
            (["archive", "--pointing-table=table.csv"], "table.csv: expected a master pointing"),
            (["archive", "--correction-table=table.csv"], "expected an AIA response table"),
            (["archive", "--correction-table=none.csv"], "none.csv: No such file or directory"),
            (["archive/sub/a.fits", "archive"], "a.fits would be written to"),
        ],
    )
    def test_wrong(
        self,
        archive: Path,
        prep: Any,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        message: str,
    ) -> None:
        (archive / "sub/a.fits").touch()
        (tmp_path / "table.csv").write_text("T_START,T_STOP\n2011-01-01,2012-01-01\n")
        monkeypatch.chdir(tmp_path)
        status, (line,) = prep(*arguments)
        assert status == 2
        assert line.startswith("dali-pipelines prep: ")
        assert message in line
        assert not (tmp_path / "out").exists()

    def test_no_output_folder(self, capsys: Any) -> None:
        assert script.main(["archive"]) == 2
        assert "required: -o/--out" in capsys.readouterr().err


class TestEnds:
    """What a run leaves that is ended from outside, and how it goes on."""

    NUMBER = 60

    @pytest.fixture
    def running(self, tmp_path: Path) -> Any:
        """Start the command on many files, and wait for the first that it writes."""
        (tmp_path / "archive").mkdir()
        first = save(tmp_path / "archive/000.fits", COUNTS, HEADER)
        for number in range(1, self.NUMBER):
            os.link(first, tmp_path / f"archive/{number:03d}.fits")
        command = Job(
            [
                sys.executable,
                str(ROOT / "scripts/prep.py"),
                "archive",
                "-o=out",
                "--num_processes=2",
            ],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 60
            while not list((tmp_path / "out").glob("*.fits")):
                assert command.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.005)
            yield command
        finally:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
            command.communicate()

    def test_killed(self, running: Any, tmp_path: Path, prep: Any) -> None:
        running.kill()
        running.communicate(timeout=30)  # its child processes hold the pipe, too
        assert [path for path in (tmp_path / "out").glob(".part-*") if path.is_dir()]
        done = len(list((tmp_path / "out").glob("*.fits")))
        assert 0 < done < self.NUMBER
        status, said = prep(tmp_path / "archive")
        assert status == 0
        assert said == [
            f"{self.NUMBER} files: {self.NUMBER - done} written, {done} finished before, 0 bad"
        ]
        names = [f"{number:03d}.fits" for number in range(self.NUMBER)]
        assert written(tmp_path / "out") == [*names, "prep.json"]
        assert sorted(os.listdir(tmp_path / "out")) == [*names, "prep.json"]

    def test_interrupted(self, running: Any, tmp_path: Path) -> None:
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        _, err = running.communicate(timeout=30)
        assert running.returncode == 130
        assert err == "dali-pipelines prep: interrupted; the same command continues\n"
        left = written(tmp_path / "out")
        assert left[-1] == "prep.json"
        assert 1 < len(left) <= self.NUMBER
        assert sorted(os.listdir(tmp_path / "out")) == left
