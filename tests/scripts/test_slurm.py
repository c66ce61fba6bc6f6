"""train.slurm with stand-ins for Slurm's commands: what it starts, and when it requeues itself."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import SCRIPTS, Job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
COMMANDS = {
    # A task on each of two nodes. Its exit status is the highest, as srun's is.
    "srun": """
        for node in 0 1; do SLURM_NODEID=$node "$@" & done
        wait %1; first=$?
        wait %2; second=$?
        exit $((first > second ? first : second))
    """,
    "torchrun": """
        trap 'echo "$SLURM_NODEID" >> stopped; exit "$ends_with"' TERM
        printf '%s\\n' "$SLURM_NODEID" "$@" > "torchrun.$SLURM_NODEID.part"
        echo $$ > "pid.$SLURM_NODEID"
        mv "torchrun.$SLURM_NODEID.part" "torchrun.$SLURM_NODEID"
        [ -z "$ends_by_itself" ] || exit "$ends_with"
        while :; do sleep 0.05; done
    """,
    "scancel": """
        [ "$*" = "--signal=TERM 77" ] && kill -TERM "$(cat pid.0)" "$(cat pid.1)"
    """,
    "scontrol": """
        if [ "$1" = show ]; then
            [ "$2 $3" = "hostnames node[7-8]" ] && printf 'node7\\nnode8\\n'
        else
            echo "$@" >> scontrol.log
        fi
    """,
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    for name, script in COMMANDS.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/bash\n{script}")
        path.chmod(0o755)
    slurm = {"JOB_ID": "77", "JOB_NODELIST": "node[7-8]", "JOB_NUM_NODES": "2", "GPUS_ON_NODE": "4"}
    return {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        **{f"SLURM_{name}": value for name, value in slurm.items()},
    }


def start(folder: Path, environ: dict[str, str]) -> Job:
    command = ["bash", str(SCRIPTS / "train.slurm"), "--epochs=3"]
    return Job(
        command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def requeued(folder: Path) -> list[str]:
    log = folder / "scontrol.log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("status", [0, 3])
def test_it_ends_with_its_training(tmp_path: Path, environ: dict[str, str], status: int) -> None:
    more = {"ends_by_itself": "yes", "ends_with": str(status)}
    with start(tmp_path, environ | more) as job:
        _, err = job.communicate(timeout=200)
    assert (job.returncode, err, requeued(tmp_path)) == (status, "", [])
    for node in "01":
        number, *flags, rendezvous, script, _, _, _, readers, epochs = (
            (tmp_path / f"torchrun.{node}").read_text().splitlines()
        )
        assert (number, flags[:3]) == (node, ["--nnodes=2", "--nproc_per_node=4", flags[2]])
        assert flags[2:] == ["--rdzv_backend=c10d", "--rdzv_endpoint=node7:20077"]
        assert (rendezvous, script) == ("--rdzv_id=77.0", "scripts/train.py")
        assert (readers, epochs) == ("--num_read_processes=4", "--epochs=3")


@pytest.mark.parametrize("status", [0, 1])
def test_before_its_time_is_up_it_saves_and_is_queued_again(
    tmp_path: Path, environ: dict[str, str], status: int
) -> None:
    with start(tmp_path, environ | {"ends_with": str(status)}) as job:
        for _ in waiting(job):
            if all((tmp_path / f"torchrun.{node}").exists() for node in "01"):
                break
        job.send_signal(signal.SIGUSR1)  # only to the shell, as --signal=B:USR1 does
        _, err = job.communicate(timeout=200)
    assert (job.returncode, err) == (status, "")
    assert sorted((tmp_path / "stopped").read_text().split()) == ["0", "1"]
    assert requeued(tmp_path) == (["requeue 77"] if status else [])


def waiting(job: Job) -> Iterator[None]:
    while job.poll() is None:
        yield
        try:
            job.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(job.communicate()[1])
