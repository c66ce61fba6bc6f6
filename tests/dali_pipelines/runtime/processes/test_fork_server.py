"""What the fork server imports, and from where."""

from __future__ import annotations

import multiprocessing.forkserver
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from jobs import ROOT, run
from PIL import Image

from dali_pipelines import NpyReader
from dali_pipelines.runtime.processes.fork_server import start_fork_server

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
from beside import Mine
from dali_pipelines import Index, Loader, PipelineConfig, reader_pipeline
from dali_pipelines.graph.decode import decode_array

def pipeline(index, **config):
    return reader_pipeline(index, Mine(), decode_array, PipelineConfig(**config))

if __name__ == "__main__":
    index = Index.scan(sys.argv[1], suffixes=(".npy",))
    with Loader(pipeline, index, batch_size=8, num_read_processes=1, devices=[None]) as loader:
        print(sum(len(batch["row"]) for (batch,) in loader))
"""


def test_it_imports_what_the_script_does(npy_folder: Path, tmp_path: Path) -> None:
    """Neither other `readers` of the current folder, nor without what lies beside the script."""
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "readers").mkdir(parents=True)
    (here / "readers" / "__init__.py").write_text("raise SystemExit('other readers')")
    there.mkdir()
    (there / "beside.py").write_text("from readers import NpyReader\nclass Mine(NpyReader): pass\n")
    script = there / "script.py"
    script.write_text(SCRIPT)
    found = run(
        [sys.executable, str(script), str(npy_folder)],
        cwd=here,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert (found.returncode, found.stdout) == (0, "23\n"), found.stderr


@pytest.mark.parametrize(("closed", "out"), [(1, ""), (2, "23\n")])
def test_a_stream_may_be_closed(npy_folder: Path, tmp_path: Path, closed: int, out: str) -> None:
    (tmp_path / "beside.py").write_text("from readers import NpyReader as Mine\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    found = run(
        [sys.executable, "script.py", str(npy_folder)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=partial(os.close, closed),
    )
    assert (found.returncode, found.stdout) == (0, out), found.stderr


def test_threads_that_start_it_leave_the_environment_alone() -> None:
    """It learns by variables what to import; a thread could keep those of another for good."""

    def start(_: int) -> None:
        for _ in range(10):
            start_fork_server(NpyReader())

    before, interval = dict(os.environ), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(start, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert dict(os.environ) == before


def test_ctrl_c_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while it imports, when it has no handler yet."""
    server = multiprocessing.forkserver.ForkServer()
    monkeypatch.setattr("multiprocessing.forkserver.ensure_running", server.ensure_running)
    start_fork_server(NpyReader())
    try:
        status = Path(f"/proc/{server._forkserver_pid}/status").read_text()  # type: ignore[attr-defined]
    finally:
        server._stop()  # type: ignore[attr-defined]
    blocked = re.search(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)
    assert blocked is not None
    assert int(blocked[1], 16) & 1 << (signal.SIGINT - 1)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


LOGGED = """
import os, sys
with open(os.environ["LOG"], "a") as log:
    log.write(f"{__name__} {sys.argv[2:]}\\n")
print("imported", end=" ")
from dali_pipelines import Index, Loader, npy_pipeline
if __name__ == "__main__":
    index = Index.scan(sys.argv[1], suffixes=(".npy",))
    with Loader(npy_pipeline, index, batch_size=8, num_read_processes=3, devices=[None]) as loader:
        print(sum(len(batch["row"]) for (batch,) in loader))
"""


@pytest.mark.parametrize(
    ("how", "more"),
    [(["script.py"], ["a", "\udcff"]), (["-m", "script"], ["x" * 120_000])],
    ids=["by path", "as a module, with too many arguments"],
)
def test_the_script_is_imported_once_for_all_readers(
    npy_folder: Path, tmp_path: Path, how: list[str], more: list[str]
) -> None:
    """With the same arguments; if these are too long to be handed on, in each reader."""
    (tmp_path / "script.py").write_text(LOGGED)
    log = tmp_path / "log"
    found = run(
        [sys.executable, *how, str(npy_folder), *more],
        cwd=tmp_path,
        env={**os.environ, "LOG": str(log), "PYTHONPATH": str(ROOT)},
    )
    assert (found.returncode, found.stdout.split()[-1]) == (0, "23"), found.stderr
    times = 1 if len(more) > 1 else 3
    assert found.stdout.count("imported") == 1 + times
    assert log.read_text().splitlines() == [
        f"{name} {more}" for name in ("__main__", *["__mp_main__"] * times)
    ]
    assert not found.stderr


def test_a_script_that_starts_threads_is_imported_in_each_reader(
    npy_folder: Path, tmp_path: Path
) -> None:
    """Readers that are forked beside such threads could wait for their locks for ever."""
    thread = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    (tmp_path / "script.py").write_text(LOGGED.replace("from dali", f"{thread}\nfrom dali", 1))
    found = run(
        [sys.executable, "script.py", str(npy_folder)],
        cwd=tmp_path,
        env={**os.environ, "LOG": str(tmp_path / "log"), "PYTHONPATH": str(ROOT)},
    )
    assert (found.returncode, found.stdout.split()[-1]) == (0, "23"), found.stderr
    assert found.stdout.count("imported") == 1 + 1 + 3


def test_threads_that_are_made_for_forks_do_not_count(npy_folder: Path, tmp_path: Path) -> None:
    """Those of OpenBLAS, of which scipy has its own, and of jemalloc, which pandas brings."""
    imports = "import pandas, scipy.linalg\nfrom dali"
    script = LOGGED.replace("from dali", imports, 1).replace("None]", "None], framework='numpy'")
    (tmp_path / "script.py").write_text(script)
    given = {"LOG": str(tmp_path / "log"), "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "2"}
    found = run(
        [sys.executable, "script.py", str(npy_folder)],
        cwd=tmp_path,
        env={**os.environ, **given},
    )
    assert (found.returncode, found.stdout.split()[-1]) == (0, "23"), found.stderr
    assert found.stdout.count("imported") == 1 + 1


UNIMPORTED = """
import os, sys
if __name__ == "__main__":
    os.environ["PYTHONPROFILEIMPORTTIME"] = "1"
    import dali_pipelines
    index = dali_pipelines.Index.scan(sys.argv[1])
    config = dict(batch_size=2, num_read_processes=2, devices=[None], crop=(2, 2))
    with dali_pipelines.Loader(getattr(dali_pipelines, sys.argv[2]), index, **config) as loader:
        print(sum(len(batch["row"]) for (batch,) in loader))
"""


@pytest.mark.parametrize(
    ("kind", "pipeline"),
    [("npy", "npy"), ("fits", "fits"), ("hcompress", "fits"), ("jpeg", "jpeg"), ("png", "jpeg")],
)
def test_readers_import_nothing_of_ours(tmp_path: Path, kind: str, pipeline: str) -> None:
    """A script that imports this project only below its guard: the fork server has imported all.

    It imports numba for the formats that need it alone.
    """
    folder, script = tmp_path / kind, tmp_path / "script.py"
    folder.mkdir()
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    for number in range(4):
        path = folder / f"{number}.{'fits' if pipeline == 'fits' else kind}"
        if pipeline == "npy":
            np.save(path, pixels.astype(np.float32))
        elif pipeline == "fits":
            compression = {"fits": "RICE_1", "hcompress": "HCOMPRESS_1"}[kind]
            hdu = fits.CompImageHDU(
                pixels.astype(np.int16), compression_type=compression, tile_shape=(8, 8)
            )
            hdu.writeto(path)
        else:
            Image.fromarray(pixels).save(path)
    script.write_text(UNIMPORTED)
    found = run(
        [sys.executable, str(script), str(folder), f"{pipeline}_pipeline"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (found.returncode, found.stdout) == (0, "4\n"), found.stderr
    before, last, after = found.stderr.rpartition("dali_pipelines.runtime.processes.main_module\n")
    assert last
    assert "readers.worker.setup\n" in before
    assert (" numba\n" in before) == (kind in ("hcompress", "jpeg"))
    assert not re.findall(r"(?:readers|dali_pipelines|multiprocessing\.popen)[.\w]*$", after, re.M)


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise ValueError('not here')"])
def test_a_script_that_cannot_be_imported_is_an_error(
    npy_folder: Path, tmp_path: Path, end: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOGGED.replace("from dali", f"if __name__ != '__main__': {end}\nfrom dali"))
    found = run(
        [sys.executable, str(script), str(npy_folder)],
        cwd=tmp_path,
        env={**os.environ, "LOG": str(tmp_path / "log"), "PYTHONPATH": str(ROOT)},
    )
    assert found.returncode == 1
    assert "ReaderProcessError" in found.stderr
