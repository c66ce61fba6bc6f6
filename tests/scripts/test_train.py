"""train.py as a user runs it: it learns, resumes on other ranks, and ends when it has to."""

from __future__ import annotations

import argparse
import csv
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from astropy.io import fits
from jobs import SCRIPTS, Job
from train import Training, main

from readers.sampling.order import Order

ROWS, BATCH = 18, 4
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

FLAGS = """
    data epochs batch_size num_read_processes crop learning_rate seed checkpoint checkpoint_every
    resume device max_steps
"""
"""Flags are forever: add one here only after thinking twice."""


def test_the_flags_are_these(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(flags: argparse.Namespace) -> None:
        assert list(vars(flags)) == FLAGS.split()
        raise ValueError

    monkeypatch.setattr("train.Training", stop)
    with pytest.raises(SystemExit):
        main([])


def test_it_imports_only_what_is_public() -> None:
    lines = (SCRIPTS / "train.py").read_text().splitlines()
    imports = [line.split() for line in lines if re.match(r" *(from|import) ", line)]
    ours = {
        words[1] for words in imports if words[1].partition(".")[0] not in sys.stdlib_module_names
    }
    assert ours == {"torch", "dali_pipelines"}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other beside other tests
    yield
    torch.set_num_threads(threads)
    signal.signal(signal.SIGTERM, before)
    if torch.distributed.is_initialized():  # not after an error
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 small compressed FITS files: of 2 ranks of batch 4 one has nothing in the third step."""
    folder = tmp_path_factory.mktemp("archive")
    y, x = np.mgrid[:64, :64]
    for row in range(ROWS):
        image = 200 + 100 * np.sin((x + row) / 5) + 50 * np.cos(y / (3 + row % 4))
        frame = fits.CompImageHDU(image.astype(np.int16), compression_type="RICE_1")
        frame.writeto(folder / f"{row:02d}.fits")
    return folder


def flags(archive: Path, *more: str) -> list[str]:
    small = ["--crop=32", f"--batch_size={BATCH}", "--num_read_processes=2", "--device=cpu"]
    return [f"--data={archive}", *small, *more]


def losses(out: str) -> list[str]:
    return re.findall(r"^epoch \d+: loss (\S+)$", out, re.MULTILINE)


def test_it_learns_and_a_stop_in_between_changes_nothing(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parts = (f"--checkpoint={tmp_path / name}" for name in ("whole.pt", "parts.pt"))
    assert main(flags(archive, "--epochs=8", whole)) == 0
    at_once = losses(capsys.readouterr().out)
    assert len(at_once) == 8
    assert float(at_once[-1]) < 0.8 * float(at_once[0])
    # 5 steps an epoch: the stop is within the third epoch, whose loss needs both parts.
    assert main(flags(archive, "--epochs=8", parts, "--resume", "--max_steps=12")) == 0
    assert main(flags(archive, "--epochs=8", parts, "--resume")) == 0
    assert losses(capsys.readouterr().out) == at_once
    first, second = (torch.load(tmp_path / name) for name in ("whole.pt", "parts.pt"))
    loaders = [state.pop("loader") for state in (first, second)]
    assert loaders[0] == loaders[1]
    assert loaders[0]["epoch"] == 8
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert sorted(os.listdir(tmp_path)) == ["parts.pt", "whole.pt"]


def log_steps(folder: Path, rank: int) -> Callable[..., bool]:
    """Return a `Training.step` that notes its rows, after they were learned from."""
    step = Training.step

    def noting(self: Training, batch: Any, stop: bool) -> bool:
        epoch, result = self.cursor["epoch"], step(self, batch, stop)
        with (folder / f"rank{rank}.csv").open("a") as file:
            csv.writer(file).writerow([epoch, *batch["row"].tolist()])
        return result

    return noting


LOGGED = """
    if __name__ == "__main__":
        import csv, os, signal, time
        from train import Training, main
        step, ended = Training.step, []

        def noting(self, batch, stop):
            epoch, result = self.cursor["epoch"], step(self, batch, stop)
            with open(os.path.join({folder!r}, f"rank{{os.environ['RANK']}}.csv"), "a") as file:
                csv.writer(file).writerow([epoch, *batch["row"].tolist()])
            if {waits} and os.environ["RANK"] == "1" and self.steps == 4:
                handler = signal.getsignal(signal.SIGTERM)
                signal.signal(signal.SIGTERM, lambda *_: (ended.append(True), handler(*_)))
                open(os.path.join({folder!r}, "waits"), "w").close()
                while not ended:
                    time.sleep(0.01)
            return result

        Training.step = noting
        raise SystemExit(main())
"""
"""The same, for torchrun; if it waits, the second rank does so, after 4 steps, for SIGTERM."""


def logged(folder: Path, rank: int) -> list[list[int]]:
    """Return epoch and rows of each step of a rank."""
    path = folder / f"rank{rank}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [[int(word) for word in line] for line in csv.reader(file)]


def start(
    folder: Path, arguments: list[str], *, waits: bool = False, node: Sequence[str] = ()
) -> Job:
    """Start train.py on two ranks, in a session of its own, with `LOGGED`.

    Or on one of two nodes, a rank on each, with these flags of torchrun.
    """
    script = folder / "logged_train.py"
    script.write_text(textwrap.dedent(LOGGED).format(folder=str(folder), waits=waits))
    places = {"PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": "1"}
    return Job(
        [*TORCHRUN, *(node or ["--standalone", "--nproc_per_node=2"]), str(script), *arguments],
        env={**os.environ, **places},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_node_goes_on_where_two_were_stopped(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = flags(archive, "--epochs=4", "--seed=3")
    parts, whole = tmp_path / "parts.pt", tmp_path / "whole.pt"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    meet = [f"--rdzv_endpoint=127.0.0.1:{port}", "--rdzv_backend=c10d", "--local_addr=127.0.0.1"]
    node = ["--nnodes=2", "--nproc_per_node=1", "--rdzv_id=1", *meet]
    # 3 steps an epoch. The last has 2 rows: none for the second rank.
    both = [*arguments, f"--checkpoint={parts}"]
    with (
        start(tmp_path, both, waits=True, node=node) as one,
        start(tmp_path, both, waits=True, node=node) as other,
    ):
        wait_for(lambda: (tmp_path / "waits").exists(), one)
        for job in (one, other):
            os.killpg(job.pid, signal.SIGTERM)  # with torchrun and the readers, as Slurm does it
        errors = [job.communicate(timeout=200)[1] for job in (one, other)]
    assert 0 not in (one.returncode, other.returncode), errors
    of_two = torch.load(parts)
    assert of_two["steps"] == len(logged(tmp_path, 0)) < 12
    monkeypatch.setattr(Training, "step", log_steps(tmp_path, rank=2))
    assert main([*arguments, f"--checkpoint={parts}", "--resume"]) == 0

    together = zip(logged(tmp_path, 0), logged(tmp_path, 1), strict=True)
    steps = [[*first, *second[1:]] for first, second in together] + logged(tmp_path, 2)
    order = Order(ROWS, seed=3)
    for epoch in range(4):
        delivered = [row for of_epoch, *rows in steps for row in rows if of_epoch == epoch]
        assert delivered == [order.row(epoch, position) for position in range(ROWS)]

    # Two ranks learn what one does from batches of twice the size, but for the order of sums.
    more = ["--batch_size=8", f"--max_steps={of_two['steps']}", f"--checkpoint={whole}"]
    assert main([*arguments, *more]) == 0
    of_one = torch.load(whole)
    torch.testing.assert_close(of_two["model"], of_one["model"], rtol=0, atol=1e-5)
    torch.testing.assert_close(of_two["sums"], of_one["sums"])
    assert of_two["loader"] == of_one["loader"]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_rank_may_have_no_file_that_can_be_read_but_a_dead_one_ends_all(
    archive: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for row, content in enumerate([b"not FITS", (archive / "00.fits").read_bytes()]):
        (data / f"{row}.fits").write_bytes(content)
    with start(tmp_path, flags(data, "--batch_size=1", "--epochs=1000000")) as job:
        wait_for(lambda: all(len(logged(tmp_path, rank)) >= 4 for rank in range(2)), job)
        both = zip(logged(tmp_path, 0), logged(tmp_path, 1), strict=False)
        assert all([*one[1:], *other[1:]] == [1] for one, other in both)  # each step has one row
        everything = family(job)
        assert len(everything) >= 6  # each rank with a reader, and the fork server
        psutil.Process(job.pid).children()[-1].kill()
        _, err = job.communicate(timeout=200)
        assert job.returncode not in (0, None), err
        _, alive = psutil.wait_procs(everything, timeout=200)
        assert not alive


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigterm_to_one_rank_leaves_a_checkpoint_of_the_last_step(
    archive: Path, tmp_path: Path
) -> None:
    arguments = flags(archive, "--batch_size=1", f"--checkpoint={tmp_path / 'train.pt'}")
    with start(tmp_path, arguments, waits=True) as job:
        wait_for(lambda: (tmp_path / "waits").exists(), job)
        everything = family(job)
        psutil.Process(job.pid).children()[-1].terminate()  # one is enough
        _, err = job.communicate(timeout=200)
        _, alive = psutil.wait_procs(everything, timeout=200)
        assert not alive
    assert job.returncode not in (0, None), err
    state = torch.load(tmp_path / "train.pt")
    assert state["loader"]["epoch"] == 0
    assert state["steps"] == len(logged(tmp_path, 0)) == state["loader"]["position"] / 2


@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("--crop=0", "crop"),
        ("--batch_size=0", "batch_size"),
        ("--epochs=0", "epochs.*at least 1"),
        ("--num_read_processes=0", "readers.*at least 1"),
        ("--checkpoint_every=0", "at least 1"),
        ("--max_steps=0", "steps.*at least 1"),
        ("--learning_rate=-1", "learning rate.*-1"),
        ("--checkpoint={archive}/00.fits", "00.fits.*--resume"),
        ("--data=/nowhere", "/nowhere"),
        ("--checkpoint=/nowhere/a.pt", "/nowhere"),
    ],
)
def test_wrong_usage(
    archive: Path,
    capsys: pytest.CaptureFixture[str],
    flag: str,
    named: str,
) -> None:
    before = {path.name: path.read_bytes() for path in archive.iterdir()}
    with pytest.raises(SystemExit) as stop:
        main(flags(archive, flag.format(archive=archive)))
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(named, err.splitlines()[-1])
    assert {path.name: path.read_bytes() for path in archive.iterdir()} == before


@pytest.mark.parametrize("damage", ["other data", "other network", "empty", "text", "cut off"])
def test_a_checkpoint_that_does_not_fit(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    path = tmp_path / "train.pt"
    resume = flags(archive, f"--checkpoint={path}", "--resume")
    assert main([*resume, "--max_steps=1"]) == 0
    state, content = torch.load(path), path.read_bytes()
    if damage == "other data":
        torch.save({**state, "loader": {**state["loader"], "digest": "another"}}, path)
    elif damage == "other network":
        torch.save({**state, "model": {}}, path)
    else:
        path.write_bytes({"empty": b"", "text": b"text", "cut off": content[:1000]}[damage])
    before = path.read_bytes()
    with pytest.raises(SystemExit) as stop:
        main(resume)
    assert stop.value.code == 2
    assert str(path) in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_checkpoint_at_the_end_of_an_epoch_has_no_sums_of_it(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next epoch would report the mean of both."""
    saved = []
    monkeypatch.setattr(
        Training, "save", lambda self: saved.append((self.cursor["position"], float(self.sums[1])))
    )
    path = tmp_path / "train.pt"
    assert main(flags(archive, f"--checkpoint={path}", "--epochs=2", "--checkpoint_every=1")) == 0
    assert len(saved) > 4
    assert all(count == 0 for position, count in saved if position == 0)


def test_an_error_while_training_keeps_its_traceback(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a reader died")

    monkeypatch.setattr(Training, "step", fail)
    with pytest.raises(RuntimeError, match="a reader died"):
        main(flags(archive))


def test_a_finished_training_is_resumed_without_a_step(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = flags(archive, "--epochs=1", f"--checkpoint={tmp_path / 'train.pt'}", "--resume")
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(arguments) == 0
    assert capsys.readouterr() == ("", "")


def test_files_of_which_none_can_be_read(tmp_path: Path) -> None:
    for row in range(BATCH):
        (tmp_path / f"{row}.fits").write_text("not FITS")
    with pytest.raises(SystemExit, match="none of the files"):  # status 1
        main(flags(tmp_path, "--epochs=2"))
