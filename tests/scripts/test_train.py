"""train.py as a user runs it: it learns, resumes on other ranks, and ends when it has to."""

from __future__ import annotations

import csv
import dataclasses
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
import psutil
import pytest
import torch
from astropy.io import fits
from jobs import SCRIPTS, Job
from train import TrainConfig, Training, main

from readers.sampling.order import Order

ROWS, BATCH = 18, 4
TWO_RANKS = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]

FLAGS = """
    data epochs batch_size num_read_processes crop learning_rate seed checkpoint checkpoint_every
    resume device max_steps
"""
"""Flags are forever: add one here only after thinking twice."""


def test_the_flags_are_these() -> None:
    assert [field.name for field in dataclasses.fields(TrainConfig)] == FLAGS.split()


@pytest.fixture(autouse=True)
def sigterm_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


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
    return re.findall(r"^epoch \d+: loss (\S+),", out, re.MULTILINE)


def test_it_learns_and_a_stop_in_between_changes_nothing(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parts = (f"--checkpoint={tmp_path / name}" for name in ("whole.pt", "parts.pt"))
    assert main(flags(archive, "--epochs=10", whole)) == 0
    at_once = losses(capsys.readouterr().out)
    assert len(at_once) == 10
    assert float(at_once[-1]) < 0.6 * float(at_once[0])
    # 5 steps an epoch: the stop is within the fifth, whose loss is that of both parts.
    assert main(flags(archive, "--epochs=10", parts, "--resume", "--max_steps=22")) == 0
    assert main(flags(archive, "--epochs=10", parts, "--resume")) == 0
    found = capsys.readouterr()
    assert losses(found.out) == at_once
    assert found.err.count("is not there yet: starting anew") == 1
    first, second = (torch.load(tmp_path / name) for name in ("whole.pt", "parts.pt"))
    loaders = [state.pop("loader") for state in (first, second)]
    assert loaders[0] == loaders[1]
    assert loaders[0]["epoch"] == 10
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert sorted(os.listdir(tmp_path)) == ["parts.pt", "whole.pt"]


def log_steps(folder: Path, rank: int, pause_s: float = 0) -> Callable[..., Any]:
    """Give a `Training.step` that notes its rows, after they were learnt from."""
    step = Training.step

    def noting(self: Training, batch: Any, epoch: int, stop: bool) -> Any:
        result = step(self, batch, epoch, stop)
        with (folder / f"rank{rank}.csv").open("a") as file:
            csv.writer(file).writerow([epoch, *batch["row"].tolist()])
        time.sleep(pause_s)
        return result

    return noting


def logged(folder: Path, rank: int) -> list[list[int]]:
    """Give epoch and rows of each step of a rank."""
    path = folder / f"rank{rank}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [[int(word) for word in line] for line in csv.reader(file)]


def start(folder: Path, launch: list[str], arguments: list[str], pause_s: float = 0) -> Job:
    """Start train.py in a session of its own, with `log_steps`."""
    script = folder / "logged_train.py"
    script.write_text(
        "if __name__ == '__main__':\n"
        "    import os\n"
        "    from pathlib import Path\n"
        "    import test_train, train\n"
        "    rank = int(os.environ.get('RANK', 0))\n"
        f"    log = test_train.log_steps(Path({str(folder)!r}), rank, {pause_s})\n"
        "    train.Training.step = log\n"
        "    raise SystemExit(train.main())\n"
    )
    places = [SCRIPTS.parent, SCRIPTS, Path(__file__).parent, Path(__file__).parents[1]]
    return Job(
        [sys.executable, *launch, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_one_rank_goes_on_where_two_have_stopped(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = flags(archive, "--epochs=2", "--seed=3")
    parts, whole = tmp_path / "parts.pt", tmp_path / "whole.pt"
    # 3 steps an epoch, of which the last has 2 rows; the second epoch is left after its first step.
    with start(tmp_path, TWO_RANKS, [*arguments, f"--checkpoint={parts}", "--max_steps=4"]) as two:
        _, err = two.communicate(timeout=60)
    assert two.returncode == 0, err
    of_two = torch.load(parts)
    monkeypatch.setattr(Training, "step", log_steps(tmp_path, rank=2))
    assert main([*arguments, f"--checkpoint={parts}", "--resume"]) == 0

    together = zip(logged(tmp_path, 0), logged(tmp_path, 1), strict=True)
    steps = [[*first, *second[1:]] for first, second in together] + logged(tmp_path, 2)
    assert [len(rows) for _, *rows in steps] == [8, 8, 2, 8, 4, 4, 2]
    order = Order(ROWS, seed=3)
    for epoch in range(2):
        delivered = [row for of_epoch, *rows in steps for row in rows if of_epoch == epoch]
        assert delivered == [order.row(epoch, position) for position in range(ROWS)]

    # Two ranks learn what one does from batches of twice the size, but for the order of sums.
    more = ["--batch_size=8", "--max_steps=4", f"--checkpoint={whole}"]
    assert main([*arguments, *more]) == 0
    of_one = torch.load(whole)
    torch.testing.assert_close(of_two["model"], of_one["model"], rtol=0, atol=1e-5)
    torch.testing.assert_close(of_two["sums"], of_one["sums"])
    assert of_two["loader"] == of_one["loader"]


def wait_for_steps(folder: Path, process: subprocess.Popen[str], ranks: int) -> None:
    deadline = time.monotonic() + 60
    while any(len(logged(folder, rank)) < 2 for rank in range(ranks)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_a_dead_rank_ends_all(archive: Path, tmp_path: Path) -> None:
    with start(tmp_path, TWO_RANKS, flags(archive, "--epochs=1000000")) as job:
        wait_for_steps(tmp_path, job, ranks=2)
        everything = family(job)
        assert len(everything) >= 6  # each rank with a reader, and what that one comes from
        ranks = psutil.Process(job.pid).children()
        assert len(ranks) == 2
        ranks[1].kill()
        began = time.monotonic()
        _, err = job.communicate(timeout=60)
        assert job.returncode not in (0, None), err
        _, alive = psutil.wait_procs(everything, timeout=max(1, began + 60 - time.monotonic()))
        assert not alive


@pytest.mark.parametrize("whole_job", [False, True])
def test_sigterm_leaves_a_checkpoint_of_the_last_step(
    archive: Path, tmp_path: Path, whole_job: bool
) -> None:
    # Slow steps: none of the checkpoints at the end of an epoch is written before the signal.
    arguments = flags(archive, "--batch_size=1", f"--checkpoint={tmp_path / 'train.pt'}")
    with start(tmp_path, TWO_RANKS, arguments, pause_s=0.3) as job:
        wait_for_steps(tmp_path, job, ranks=2)
        everything = family(job)
        if whole_job:  # with torchrun and the readers, as Slurm does it
            os.killpg(job.pid, signal.SIGTERM)
        else:
            psutil.Process(job.pid).children()[1].terminate()
        _, err = job.communicate(timeout=60)
        _, alive = psutil.wait_procs(everything, timeout=10)
        assert not alive
    assert job.returncode not in (0, None), err
    state = torch.load(tmp_path / "train.pt")
    assert state["loader"]["epoch"] == 0
    assert state["steps"] == len(logged(tmp_path, 0)) == state["loader"]["position"] / 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--crop=0"], "--crop must be at least 1, got 0"),
        (["--learning_rate=0"], "--learning_rate must be positive, got 0.0"),
        (["--resume"], "--resume needs --checkpoint=FILE"),
        (["--checkpoint={archive}/00.fits"], "00.fits exists: add --resume to go on, or remove"),
        (["--data=/nowhere"], "/nowhere: no such folder or file"),
        (["--checkpoint=/nowhere/a.pt"], "/nowhere/a.pt cannot be written: expected a file in a"),
        (
            ["--crop=65"],
            "crop 65x65 is larger than the image 64x64 (height x width): use a smaller",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    archive: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    try:
        code: Any = main(flags(archive, *(flag.format(archive=archive) for flag in more)))
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda path: path.write_text('{"a": 1}'), "UnpicklingError"),
        (lambda path: path.write_text(""), "EOFError"),
        (lambda path: torch.save({"model": {}}, path), "KeyError"),
        (lambda path: torch.save([1], path), "TypeError"),
    ],
)
def test_what_is_no_checkpoint_is_told(
    archive: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    write: Callable[[Path], object],
    error: str,
) -> None:
    path = tmp_path / "train.pt"
    write(path)
    assert main(flags(archive, f"--checkpoint={path}", "--resume")) == 2
    assert capsys.readouterr().err == (
        f"train.py: {path}: expected a checkpoint that train.py wrote, got what cannot be read as "
        f"one ({error}): give another --checkpoint\n"
    )


def test_a_checkpoint_of_other_data_or_another_network_is_told(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.pt"
    resume = flags(archive, f"--checkpoint={path}", "--resume")
    assert main([*resume, "--max_steps=1"]) == 0
    state = torch.load(path)
    for change, message in (
        ({"loader": {**state["loader"], "digest": "another"}}, "the state was saved with another"),
        ({"model": {}}, "Error(s) in loading state_dict for Sequential: Missing key(s)"),
    ):
        torch.save({**state, **change}, path)
        capsys.readouterr()
        assert main(resume) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"train.py: {path}: {message}")


def test_ranks_that_found_different_files_are_told(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gather(digests: list[str], digest: str) -> None:
        digests[:] = [digest, "another"]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    assert main(flags(archive)) == 2
    assert capsys.readouterr().err.startswith("train.py: the ranks have found different files")


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_an_error_while_training_keeps_its_traceback(
    archive: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise kind("a reader died, say")

    monkeypatch.setattr(Training, "step", fail)
    try:
        with pytest.raises(kind, match="a reader died, say"):
            main(flags(archive))
    finally:
        torch.distributed.destroy_process_group()


def test_nothing_is_left_to_do(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = flags(archive, "--epochs=1", f"--checkpoint={tmp_path / 'train.pt'}", "--resume")
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(arguments) == 0
    assert capsys.readouterr() == (
        "",
        "nothing left to do: 1 of 1 epochs are done, give more --epochs\n",
    )


def test_files_of_which_none_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in range(BATCH):
        (tmp_path / f"{row}.fits").write_text("not FITS")
    assert main(flags(tmp_path, "--epochs=2")) == 1
    found = capsys.readouterr()
    assert found.out == ""
    last = found.err.splitlines()[-1]
    assert last.startswith(f"train.py: none of the {BATCH} files of the Index could be read: ")
    assert last.endswith(".fits: not a FITS file: it begins with b'not FITS'")


@pytest.mark.parametrize("bad", [1, 2])
def test_a_rank_alone_may_have_no_file_that_can_be_read(
    archive: Path, tmp_path: Path, bad: int
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for row in range(2):
        content = b"not FITS" if row < bad else (archive / "00.fits").read_bytes()
        (data / f"{row}.fits").write_bytes(content)
    arguments = flags(data, "--batch_size=1", "--epochs=1")
    with start(tmp_path, TWO_RANKS, arguments) as two:
        _, err = two.communicate(timeout=120)
    refused = "train.py: none of the 2 files of the Index could be read" in err
    assert not re.search(r"\[rank\d\]: Traceback", err), err
    assert (two.returncode != 0, refused) == (bad == 2, bad == 2), err
