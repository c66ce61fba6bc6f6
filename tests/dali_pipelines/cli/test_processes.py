"""Each command as a process of its own: how it starts and ends, and that it leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest
from astropy.io import fits
from jobs import ROOT, SCRIPTS, Job, run
from private_shm import private_shm

from dali_pipelines import Preprocessor, jpeg_pipeline
from dali_pipelines.cli.main import COMMANDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Case(NamedTuple):
    flags: str
    out: str
    """A regex of stdout."""
    err: str = ""
    """A regex of all of stderr."""
    status: int = 0
    made: str = ""
    """A file that it writes."""


CASES = {
    "index": Case(
        "archive -o=a.parquet --num_processes=2 --where=exptime=1 --keys=EXPTIME,DATE-OBS",
        "^4 files found: 2 rows kept, 1 rejected, 1 dropped by --where",
        r"archive: .*1 \.txt\nrejected \S+/z\.fits: .*\nkey DATE-OBS .*\n",
        made="a.parquet",
    ),
    "run": Case(
        "--data=archive --device=cpu --batch_size=2 --num_read_processes=2 --bad_sample=skip "
        "--audit=audit.csv",
        "^3 images in 2 steps on 1 CPU shard: ",
        r"(archive: .*1 \.txt\n)?",
        made="audit.csv",
    ),
    "verify": Case(
        "archive --device=cpu --json=v.json",
        r"^\S+/0\.fits HDU 1  RICE_1  20x24  int16  0  OK\n(.*\n){3}$",
        r"(archive: .*\n)?4 files on the CPU: 3 OK, 0 DIFFERS, 1 REJECTED\n",
        made="v.json",
    ),
    "stats": Case("archive/0.fits", "^1 of 1 images\n", "^$"),
    "show": Case("archive/0.fits -o=a.png", "^$", "a.png: 1 images, 0 rejected\n", made="a.png"),
    "prep": Case(
        "archive --tiles=16 -o=tiled",
        "^$",
        r"(archive: .*\n)?bad \S+/z\.fits: .*\n4 files: 3 written, 0 finished before, 1 bad.*\n",
        status=1,
        made="tiled/0.fits",
    ),
    "doctor": Case(
        "--data=archive/0.fits --config=doctor.toml",
        r"^OK   packages: .*\n((OK  |NOTE) .*\n){10,}$",
    ),
    "warm": Case("--pipeline=jpeg", r"^\d+ kernels? .*\n$"),
    "bench": Case("--help", r"--suite"),
    "export": Case("triton small.toml -o=models --name=a", "models/a", made="models/a/1/model.py"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three compressed images, a file that is none, and settings."""
    (tmp_path / "archive").mkdir()
    for row in range(3):
        image = fits.CompImageHDU(np.full((20, 24), row, np.int16), compression_type="RICE_1")
        image.header["EXPTIME"] = 1 + row // 2
        image.writeto(tmp_path / f"archive/{row}.fits")
    for name in "z.fits", "notes.txt":
        (tmp_path / "archive" / name).write_text("no FITS")
    Preprocessor(jpeg_pipeline, crop=(24, 16)).save(tmp_path / "small.toml")
    (tmp_path / "doctor.toml").write_text(
        'batch_size = 1\nnum_read_processes = 1\nnum_threads = 1\ndevice = "cpu"\n'
    )
    return tmp_path


def test_each_command_has_a_case() -> None:
    assert {*CASES} == {*COMMANDS}


@pytest.mark.parametrize("name", CASES)
def test_a_command_does_its_work_and_leaves_nothing(folder: Path, name: str) -> None:
    case = CASES[name]
    pipe, shm_of_its_own = subprocess.PIPE, private_shm("256m")
    program = [str(SCRIPTS / "run.py")] if name == "run" else ["-m", "dali_pipelines", name]
    with Job(
        [sys.executable, *program, *case.flags.split()],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        preexec_fn=shm_of_its_own,
    ) as job:
        shm = os.open(f"/proc/{job.pid}/root/dev/shm", os.O_RDONLY | os.O_DIRECTORY)
        try:
            out, err = job.communicate(timeout=200)
            assert job.returncode == case.status, out + err
            assert re.search(case.out, out), out
            assert re.fullmatch(case.err, err), err
            assert (folder / case.made).exists()
            wait_until_gone(job.pid, shm)
        finally:
            os.close(shm)


def wait_until_gone(session: int, shm: int) -> None:
    """Wait for the processes of a session to end, which may come after the first one's end."""
    began = time.monotonic()
    while (left := processes_of(session)) or os.listdir(shm):
        assert time.monotonic() - began < 200, f"left: {left}, {os.listdir(shm)}"
        time.sleep(0.05)


def processes_of(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            if not is_dead and os.getsid(process.pid) == session:
                found.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def test_the_program_as_a_module_names_its_version() -> None:
    found = run([sys.executable, "-m", "dali_pipelines", "--version"])
    assert found.stdout.split() == ["dali-pipelines", version("dali-pipelines")]


def test_a_script_names_the_interpreter_that_lacks_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-S", str(SCRIPTS / "run.py")]  # -S: nothing is installed
    found = run(command, cwd=tmp_path, env={})
    assert (found.returncode, found.stdout) == (2, "")
    for word in ("run.py", sys.executable, "pip install"):
        assert word in found.stderr


@pytest.mark.parametrize(
    ("flags", "first"), [("index a -o=b.parquet", 0), ("prep a -o=b.parquet --tiles=16", 2)]
)
def test_standard_streams_may_be_closed(tmp_path: Path, flags: str, first: int) -> None:
    """Some schedulers and services close all of them, or stderr."""
    (tmp_path / "a").mkdir()
    fits.writeto(tmp_path / "a" / "a.fits", np.zeros((20, 20), np.int16))
    command = [sys.executable, "-m", "dali_pipelines", *flags.split()]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    found = run(command, cwd=tmp_path, env=env, preexec_fn=partial(os.closerange, first, 3))
    assert found.returncode == 0
    assert (tmp_path / "b.parquet").exists()


@pytest.mark.parametrize(
    ("name", "flags", "is_full"),
    [
        ("index", "archive/0.fits -o=a.parquet", True),
        ("doctor", "--data=archive/0.fits", True),
        ("run", "--data=archive/0.fits --device=cpu --batch_size=1", False),
    ],
)
def test_output_that_nobody_takes(folder: Path, name: str, flags: str, is_full: bool) -> None:
    """A full disk, or a pipe whose reader has gone."""
    if is_full:
        out = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, out = os.pipe()
        os.close(reader)
    command = [sys.executable, "-m", "dali_pipelines", name, *flags.split()]
    try:
        with Job(command, cwd=folder, stdout=out, stderr=subprocess.PIPE, text=True) as job:
            _, err = job.communicate(timeout=200)
    finally:
        os.close(out)
    assert job.returncode == (1 if is_full else 128 + signal.SIGPIPE)
    errors = [text for text in err.splitlines() if text.startswith("dali-pipelines ")]
    assert ["No space left on device" in line for line in errors] == [True] * is_full
    assert "Traceback" not in err
    assert "Exception ignored" not in err
