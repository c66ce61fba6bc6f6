"""The command doctor: each check both ways, the exit codes, and real runs."""

from __future__ import annotations

import errno
import functools
import importlib.metadata
import math
import os
import resource
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pynvml
import pytest
from astropy.io import fits
from jobs import SCRIPTS, run

from dali_pipelines import Index
from dali_pipelines.cli.doctor import files, limits, main, rows, software
from dali_pipelines.cli.doctor.finding import Finding, Job
from dali_pipelines.cli.doctor.nvml import Driver
from dali_pipelines.cli.run_config import RunConfig
from dali_pipelines.kernels.vectors import FORMS
from dali_pipelines.runtime import cgroup

SCRIPT = SCRIPTS / "doctor.py"
GIB = 1 << 30
H200 = Driver("570.86", (12, 8), ("NVIDIA H200", "NVIDIA H200"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four plain frames of 1024x512 int16, 1 MB each."""
    folder = tmp_path_factory.mktemp("archive")
    for number in range(4):
        frame = np.full((1024, 512), number, np.int16)
        fits.PrimaryHDU(frame).writeto(folder / f"{number}.fits")
    return folder


@pytest.fixture
def job(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Make a job, by default a small one on the CPU, on a machine with the driver given."""
    monkeypatch.setattr(rows, "_SECONDS", math.inf)

    def job(driver: Driver | None = None, **settings: Any) -> Job:
        monkeypatch.setattr("dali_pipelines.cli.doctor.finding.installed_driver", lambda: driver)
        monkeypatch.setattr(
            "dali_pipelines.runtime.devices.visible_gpus", lambda: len(driver.gpus) if driver else 0
        )
        small = {"data": str(archive), "batch_size": 2, "num_read_processes": 2, "num_threads": 1}
        return Job(RunConfig(**{**small, **settings}))

    return job


def line(check: main.Check, job: Job) -> str:
    finding = main.examine(check, job)
    assert finding is not None
    return finding.line()


# ---- Driver and GPUs ---------------------------------------------------------------------------


class Nvml:
    """Stands in for NVML: two GPUs, CUDA 12.4."""

    def __init__(self, error: int = 0, broken: str = "") -> None:
        self.error, self.broken, self.open = error, broken, 0

    def call(self, name: str, *arguments: Any) -> Any:
        if name == self.broken:
            raise pynvml.NVMLError(999)
        match name:
            case "nvmlInit":
                if self.error:
                    raise pynvml.NVMLError(self.error)
                self.open += 1
            case "nvmlShutdown":
                self.open -= 1
            case "nvmlDeviceGetHandleByIndex":
                return 100 + arguments[0]
            case "nvmlDeviceGetName":
                return f"GPU {arguments[0]}"
        return {
            "nvmlSystemGetDriverVersion": "550.54.14",
            "nvmlSystemGetCudaDriverVersion_v2": 12040,
            "nvmlDeviceGetCount": 2,
        }.get(name)


@pytest.mark.parametrize(
    ("nvml", "expected"),
    [
        (Nvml(), "OK   driver: NVIDIA 550.54.14, offers CUDA 12.4"),
        (
            Nvml(pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
            "NOTE driver: none from NVIDIA, all shards run on the CPU",
        ),
        (
            Nvml(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
            "NOTE driver: none from NVIDIA, all shards run on the CPU",
        ),
        (Nvml(18), "BAD  driver: NVIDIA's driver does not answer (NVML error 18): see what"),
        (Nvml(broken="nvmlDeviceGetName"), "BAD  driver: NVIDIA's driver does not answer (NVML"),
    ],
)
def test_the_driver_is_asked_by_nvml(
    monkeypatch: pytest.MonkeyPatch, nvml: Nvml, expected: str
) -> None:
    for name in (
        *("nvmlInit", "nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"),
        *("nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"),
    ):
        monkeypatch.setattr(pynvml, name, functools.partial(nvml.call, name))
    job = Job(RunConfig())
    assert line(software.driver, job).startswith(expected)
    assert job.gpus == (("GPU 100", "GPU 101") if expected.startswith("OK") else ())
    assert job.on_gpu == expected.startswith("OK")
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("driver", "torch_cuda", "device", "expected"),
    [
        (None, None, "gpu", "BAD  driver: none from NVIDIA: install it, or use --device=cpu"),
        (H200, "12.6", "cpu", "OK   driver: NVIDIA 570.86, offers CUDA 12.8, not used"),
        (H200, "12.9", "gpu", "OK   driver: NVIDIA 570.86, offers CUDA 12.8"),
        (H200, "13.0", "gpu", "BAD  driver: NVIDIA 570.86, offers CUDA 12.8, PyTorch was built fo"),
        (
            Driver("470.1", (11, 4), ("V100",)),
            "11.8",
            "auto",
            "BAD  driver: NVIDIA 470.1, offers CUDA 11.4, nvidia-dali-cuda120 needs 12.0: install",
        ),
    ],
)
def test_driver(
    job: Any, monkeypatch: Any, driver: Any, torch_cuda: Any, device: str, expected: str
) -> None:
    monkeypatch.setattr(software, "_torch_cuda", lambda: torch_cuda)
    assert line(software.driver, job(driver, device=device)).startswith(expected)


@pytest.mark.parametrize(
    ("driver", "settings", "expected"),
    [
        (H200, {"device": "cpu"}, "OK   GPUs: none wanted, --device=cpu"),
        (H200, {}, "OK   GPUs: 2 visible (NVIDIA H200), 1 wanted"),
        (H200, {"num_gpus": 4}, "BAD  gpus: 4 shards need a GPU each, but 2 GPUs are visible"),
        (None, {"num_gpus": 2}, "NOTE GPUs: none is visible, 2 shards on the CPU"),
        (None, {"device": "gpu"}, "BAD  gpus: 1 shard needs a GPU, but no GPU is visible"),
    ],
)
def test_gpus(job: Any, capsys: Any, driver: Any, settings: Any, expected: str) -> None:
    assert line(software.gpus, job(driver, **settings)).startswith(expected)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("torch_cuda", "named", "expected"),
    [
        (None, None, "BAD  GPUs: PyTorch sees none of 2 (NVIDIA H200): install a PyTorch with"),
        ("12.6", "7", "BAD  GPUs: PyTorch sees none of 2 (NVIDIA H200): CUDA_VISIBLE_DEVICES is"),
        ("12.6", None, "BAD  GPUs: PyTorch sees none of 2 (NVIDIA H200): see whether nvidia-smi"),
        ("12.6", "", "NOTE GPUs: none is visible, 1 shard on the CPU"),
    ],
)
def test_gpus_that_pytorch_does_not_see(
    job: Any, monkeypatch: Any, torch_cuda: Any, named: Any, expected: str
) -> None:
    found = job(H200)
    monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: 0)
    monkeypatch.setattr(software, "_torch_cuda", lambda: torch_cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert line(software.gpus, found).startswith(expected)


# ---- Packages, start method, kernels -----------------------------------------------------------


def test_packages(job: Any, monkeypatch: Any) -> None:
    found = line(software.packages, job())
    assert found.startswith("OK   packages: Python 3.")
    for name in ("nvidia-dali-cuda120", "torch", "numpy", "astropy", "numba"):
        assert f", {name} {importlib.metadata.version(name)}" in found
    versions = {"numba": None, "torch": "2.5.1+cu124", "numba-cuda": None}
    versions |= {"cupy-cuda12x": None, "cupy-cuda13x": None}

    def version(name: str) -> str:
        if versions.get(name, "99") is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions.get(name) or {"nvidia-dali-cuda120": "2.4.1"}.get(name, "99")

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert line(software.packages, job()) == (
        "BAD  packages: numba is missing, torch 2.5.1+cu124 is not >=2.6: "
        "pip install 'numba>=0.61' 'torch>=2.6'"
    )
    versions |= {"numba": "0.61", "torch": "2.13.0+cu126"}
    assert line(software.packages, job()).startswith("OK ")
    versions |= {"torch": "2.15", "numpy": "2.5.2"}
    monkeypatch.setattr(software, "_torch_cuda", lambda: "13.0")
    assert line(software.packages, job(H200)) == (
        "BAD  packages: cupy-cuda13x is missing, numba-cuda is missing, numpy 2.5.2 is not <2.5: "
        "pip install 'cupy-cuda13x[ctk]>=14' 'numba-cuda[cu13]>=0.30' 'numpy<2.5'"
    )
    versions["numpy"] = "2.4"
    monkeypatch.setattr(software, "_torch_cuda", lambda: "12.6")
    assert line(software.packages, job(H200)) == (
        "BAD  packages: cupy-cuda12x is missing, numba-cuda is missing, torch 2.15 is not "
        "<2.11,>=2.6: pip install 'cupy-cuda12x[ctk]>=14' 'numba-cuda[cu12]>=0.30' "
        "'torch<2.11,>=2.6'"
    )


def test_packages_of_a_clone_that_is_not_installed(job: Any, monkeypatch: Any) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert line(software.packages, job()) == (
        "NOTE packages: not checked, dali-pipelines runs from a clone, and is not installed"
    )


@pytest.mark.parametrize(
    ("torch_cuda", "cuda", "extra"),
    [
        ("12.6", (13, 0), "gpu-cuda12"),
        ("13.0", (13, 0), "gpu"),
        (None, (12, 8), "gpu-cuda12"),
        (None, (13, 0), "gpu"),
    ],
)
def test_cuda_libraries(
    job: Any, monkeypatch: Any, torch_cuda: str | None, cuda: tuple[int, int], extra: str
) -> None:
    """Those that cannot be loaded are named, with the extra for this PyTorch and driver."""
    found = job(Driver("580.1", cuda, ("H100",)))
    monkeypatch.setattr(software, "_torch_cuda", lambda: torch_cuda)
    missing: set[str] = set()

    def load(name: str) -> None:
        if name in missing:
            raise RuntimeError(f"Failure finding {name!r}")

    pathfinder: Any = ModuleType("cuda.pathfinder")
    pathfinder.load_nvidia_dynamic_lib = load
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", pathfinder)
    assert line(software.cuda_libraries, found) == (
        "OK   CUDA libraries: nvvm, nvJitLink, nvrtc, cufft can be loaded"
    )
    missing |= {"nvvm", "cufft"}
    assert line(software.cuda_libraries, found) == (
        f"BAD  CUDA libraries: nvvm, cufft cannot be loaded: pip install 'dali-pipelines[{extra}]'"
    )
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    assert "cuda-pathfinder, which finds them, is missing" in line(software.cuda_libraries, found)


@pytest.mark.parametrize(
    ("driver", "method", "initialised", "expected"),
    [
        (H200, "forkserver", True, "OK   start method: forkserver, safe with CUDA"),
        (H200, "spawn", True, "OK   start method: spawn, safe with CUDA"),
        (H200, "fork", True, "BAD  start method: fork, but here CUDA is initialised by asking"),
        (H200, "fork", False, "NOTE start method: fork, which must come before anything that"),
        (None, "fork", False, "OK   start method: fork, CUDA is not initialised"),
    ],
)
def test_start_method(
    job: Any, monkeypatch: Any, driver: Any, method: str, initialised: bool, expected: str
) -> None:
    if initialised:
        monkeypatch.setattr("nvidia.dali.backend.IsDriverInitialized", lambda: True)
    assert line(software.start_method, job(driver, start_method=method)).startswith(expected)


def test_vectors(job: Any, monkeypatch: Any) -> None:
    expected = ("OK   vectors: the CPU has AVX-512,", "OK   vectors: the CPU has AVX2,")
    for form, start in zip(FORMS, (*expected, "NOTE vectors: neither AVX2 nor"), strict=True):
        monkeypatch.setattr("dali_pipelines.kernels.vectors.FORM", form)
        assert line(software.vectors, job()).startswith(start)
    assert line(software.vectors, job(pipeline="aia")).startswith("NOTE vectors: neither AVX2")
    assert line(software.vectors, job(pipeline="jpeg")).startswith("OK   vectors: not used")


def test_kernel_cache(job: Any, monkeypatch: Any, tmp_path: Path) -> None:
    for jpeg, module in ((False, "fits"), (True, "mcu")):
        folder = software._cache_folder(jpeg)
        assert (folder.parent.name, folder.name) == (module, "__pycache__")
    monkeypatch.setattr(software, "_cache_folder", lambda _: tmp_path)
    assert line(software.kernel_cache, job()) == (
        f"NOTE kernel cache: {tmp_path} has no kernels yet, the first start takes 6 s longer"
    )
    (tmp_path / "image.decode_image.part-39.py311.nbi").touch()
    assert line(software.kernel_cache, job()) == f"OK   kernel cache: {tmp_path}, in use"
    assert "has no kernels yet" in line(software.kernel_cache, job(pipeline="jpeg"))
    (tmp_path / "scan.cut-47.py311.nbi").touch()
    assert "in use" in line(software.kernel_cache, job(pipeline="jpeg"))
    nowhere = tmp_path / "file" / "cache"
    nowhere.parent.touch()
    monkeypatch.setattr(software, "_cache_folder", lambda _: nowhere)
    assert line(software.kernel_cache, job()) == (
        f"BAD  kernel cache: numba cannot keep what it compiles ([Errno 20] Not a directory: "
        f"'{nowhere}'): set NUMBA_CACHE_DIR to a folder that you can write"
    )


# ---- Cores -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "quota", "expected"),
    [
        (8, None, "OK   cores: 8 for 4 readers and 2 x 6 threads, 2.0 a core"),
        (4, None, "NOTE cores: 4 for 4 readers and 2 x 6 threads, 4.0 a core; try fewer --num_r"),
        (1, None, "BAD  cores: 1 for 4 readers and 2 x 6 threads, 16.0 a core: fewer --num_read"),
        (64, 1.5, "BAD  cores: 64 (the control group grants 1.5) for 4 readers and 2 x 6 threads"),
        (8, 64.0, "OK   cores: 8 (the control group grants 64) for 4 readers and 2 x 6 threads, 2"),
    ],
)
def test_cores(job: Any, monkeypatch: Any, allowed: int, quota: Any, expected: str) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)))
    monkeypatch.setattr(cgroup, "cpu_quota", lambda: quota)
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    found = job(num_read_processes=4, num_gpus=2, num_threads=6)
    assert line(limits.cores, found).startswith(expected)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "2")
    assert "the Slurm job grants 2" in line(limits.cores, found)


def test_each_shard_has_a_reader(job: Any) -> None:
    for count in (1, "auto"):
        found = line(limits.cores, job(num_read_processes=count, num_gpus=3))
        assert "for 3 readers and 3 x 1 thread, " in found


# ---- Memory and open files ---------------------------------------------------------------------


def test_shared_memory(job: Any, monkeypatch: Any) -> None:
    """8 frames of 1 MiB are in flight."""
    monkeypatch.setattr("dali_pipelines.memory.free_shared", lambda: GIB)
    found = job(prefetch=2)
    assert line(limits.shared_memory, found).startswith("OK   shared memory: 8 MiB needed, 1.0 GiB")
    monkeypatch.setattr("dali_pipelines.memory.free_shared", lambda: 9 << 20)
    assert line(limits.shared_memory, job(prefetch=2)).startswith("OK ")
    small = line(limits.shared_memory, job(prefetch=3))
    assert small.startswith("BAD  shared memory: the readers need 12 MiB in /dev/shm, which has 9")
    assert "docker run --shm-size" in small


def test_memory(job: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("dali_pipelines.memory.free_memory", lambda: 16 * GIB)
    assert line(limits.memory, job()).startswith("OK   memory: about 768 MiB needed, 16.0 GiB")
    monkeypatch.setattr("dali_pipelines.memory.free_memory", lambda: GIB >> 1)
    assert line(limits.memory, job()).startswith("BAD  memory: this needs about 768 MiB of memory")


def test_on_gpus_images_take_no_memory_of_the_host(job: Any) -> None:
    on_cpu, on_gpu = job().estimate, job(H200).estimate
    assert on_cpu.images > on_gpu.images == 0
    assert (on_cpu.shared, on_cpu.processes) == (on_gpu.shared, on_gpu.processes)


def test_what_cupy_takes_is_said_where_there_are_gpus(job: Any) -> None:
    """Two frames of 1024x512 float32."""
    beside = "; CuPy takes up to 4 MiB on each GPU beside DALI"
    assert line(limits.memory, job(H200)).endswith(beside)
    assert "CuPy" not in line(limits.memory, job())


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (resource.RLIM_INFINITY, "OK   open files: 100 needed for 6 readers of 2 shards, the limi"),
        (100, "OK   open files: 100 needed for 6 readers of 2 shards, the limit is 100"),
        (99, "BAD  open files: 100 needed for 6 readers of 2 shards, the limit is 99, and b"),
    ],
)
def test_open_files(job: Any, monkeypatch: Any, limit: int, expected: str) -> None:
    """64 in any case, 4 for each of 6 readers, and 2 x 2 x 3 chunks for a shard at a time."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    found = job(num_read_processes=6, num_gpus=2, prefetch=2, batch_size=1)
    assert line(limits.open_files, found).startswith(expected)


def test_a_run_gets_by_with_the_open_files_that_are_asked_for(archive: Path, job: Any) -> None:
    settings = {"num_read_processes": 8, "prefetch": 4}
    words = line(limits.open_files, job(**settings)).split()
    needed = int(words[words.index("needed") - 1])
    command = [sys.executable, str(SCRIPT.with_name("run.py")), f"--data={archive}"]
    command += ["--device=cpu", "--batch_size=2", *(f"--{k}={v}" for k, v in settings.items())]
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (needed, needed))
    found = run(command, preexec_fn=limit, warm_children=False)
    assert found.returncode == 0, found.stderr


# ---- Data and folders --------------------------------------------------------------------------


def test_settings(job: Any, tmp_path: Path) -> None:
    assert line(limits.settings, job()).startswith(
        "OK   settings: fit the data, the first image is 1024x512 and takes 1.1 MB on its way; "
    )
    found = line(limits.settings, job(crop=(2000,)))
    assert found.startswith("BAD  settings: ")
    assert "crop 2000x2000 is larger than the image 1024x512" in found
    found = line(limits.settings, job(batch_size=5, tail="drop"))
    assert "a step takes 5 rows (5 for each of 1 shards) and the index has 4: use a" in found
    for name in "ab":
        (tmp_path / f"{name}.fits").write_text("no FITS")
    wrong = job(data=str(tmp_path))
    assert line(limits.settings, wrong).startswith(
        f"BAD  settings: none of the first files can be read as fits (the first: {tmp_path}/a.fits "
        "(row 0): not a FITS file: it begins with b'no FITS"
    )
    assert line(limits.shared_memory, wrong) == (
        "NOTE shared memory: not checked, what the files need is not known"
    )


def test_data(job: Any, tmp_path: Path) -> None:
    found = line(files.data, job())
    assert found.startswith("OK   data: 4 files; one process read 4 of them, 4.2 MB, at ")
    assert " MB/s " in found
    nowhere = job(data=str(tmp_path / "nowhere"))
    assert line(files.data, nowhere).startswith(f"BAD  data: {tmp_path}/nowhere: no such folder")
    assert line(limits.settings, nowhere) == (
        "NOTE settings: not checked, the data could not be opened"
    )
    assert line(limits.memory, nowhere) == (
        "NOTE memory: not checked, what the settings need is not known"
    )


def test_members_are_counted_by_their_files(job: Any, archive: Path, tmp_path: Path) -> None:
    """And each file is read once."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for file in archive.glob("*.fits"):
            tar.add(file, file.name)
    found = line(files.data, job(data=str(tmp_path)))
    assert found.startswith("OK   data: 1 file of 4 rows; one process read 1 of them, 4.2 MB, at ")


def test_files_of_samples_are_counted(job: Any, archive: Path, tmp_path: Path) -> None:
    """Of two samples, which share a file; one lacks another."""
    names = [str(archive / f"{number}.fits") for number in range(3)]
    columns = {"path": names[:2], "path_a": names[:2], "path_b": [names[2], None]}
    Index(pa.table(columns)).save(tmp_path / "a.parquet")
    found = line(files.data, job(data=str(tmp_path / "a.parquet")))
    assert found.startswith("OK   data: 3 files of 2 rows; one process read 3 of them, 3.2 MB, at ")


def test_a_wrong_column_is_a_wrong_setting(job: Any) -> None:
    assert line(limits.settings, job(columns=("target",))) == (
        "BAD  settings: the Index has no column 'target': it has path"
    )


def test_the_folder_of_the_cache(job: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    fits = line(files.folders, job(cache=str(cache), cache_bytes=10**7))
    assert fits.startswith("OK   folders: can be written, ")
    assert f", {cache} (" in fits
    full = line(files.folders, job(cache=str(cache), cache_bytes=10**15))
    assert full.startswith("NOTE folders: ")
    assert "less than --cache_bytes=1e+06GB, so that the disk gets full" in full
    cache.touch()
    found = line(files.folders, job(cache=str(cache), cache_bytes=10**7))
    assert found.startswith(
        f"BAD  folders: {cache} cannot be written (Not a directory): set --cach"
    )


def test_files_that_cannot_be_read(job: Any, archive: Path, tmp_path: Path) -> None:
    """Root may read anything, but not what is gone."""
    catalogue = tmp_path / "catalogue.csv"
    catalogue.write_text(f"path\n{archive}/0.fits\n{tmp_path}/gone.fits\n{archive}/1.fits\n")
    cause = f"{tmp_path}/gone.fits: No such file or directory"
    assert line(files.data, job(data=str(catalogue))) == (
        f"BAD  data: 1 of 3 files tried cannot be read (the first: {cause}): fix it, or leave "
        "such files out by --bad_sample=skip"
    )
    assert line(files.data, job(data=str(catalogue), bad_sample="skip")) == (
        f"NOTE data: 1 of 3 files tried cannot be read and will be left out, the first: {cause}"
    )


def test_rows_are_read_as_by_a_run(job: Any, archive: Path, tmp_path: Path) -> None:
    """Those of all shards; one is cut off, of which its header says nothing."""
    assert line(rows.rows, job(num_gpus=3)) == "OK   rows: 4 tried, all can be read"
    for number in range(4):
        os.link(archive / f"{number}.fits", tmp_path / f"{number}.fits")
    cut = tmp_path / "9.fits"
    cut.write_bytes((archive / "0.fits").read_bytes()[:600_000])
    found = line(rows.rows, job(data=str(tmp_path), num_gpus=3))
    assert found.startswith(f"BAD  rows: 1 of 5 tried cannot be read (the first: {cut}: ")
    assert found.endswith("): fix it, or leave such files out by --bad_sample=skip")
    skipped = line(rows.rows, job(data=str(tmp_path), bad_sample="skip"))
    assert skipped.startswith("NOTE rows: 1 of 5 tried cannot be read and will be left out, the fi")
    assert line(rows.rows, job(data=str(tmp_path / "no"))).startswith("NOTE rows: not checked")


def damaged_tiles(folder: Path, *, sound: int) -> Path:
    """Write two images in tiles, and let some be sound; give the first that is not."""
    noise = np.random.default_rng(0).integers(0, 900, (32, 32), np.int16)
    for number in range(2):
        file = folder / f"{number}.fits"
        fits.CompImageHDU(noise, compression_type="RICE_1").writeto(file)
        if number >= sound:
            content = file.read_bytes()
            at = len(content.rstrip(b"\0")) - 300
            file.write_bytes(content[:at] + b"\xff" * 300 + content[at + 300 :])
    return folder / f"{sound}.fits"


def test_tiles_are_decoded_as_by_a_run(job: Any, tmp_path: Path) -> None:
    cause = f"{damaged_tiles(tmp_path, sound=1)}: the compressed bytes of a tile are damaged"
    assert line(rows.rows, job(data=str(tmp_path))) == (
        f"BAD  rows: 1 of 2 tried cannot be read (the first: {cause}): fix it, or leave such files "
        "out by --bad_sample=skip"
    )
    assert line(rows.rows, job(data=str(tmp_path), hdus=(("image", 1), ("b", 1)))) == (
        "OK   rows: 2 tried, all can be read; whether they decode, verify tells"
    )


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_no_row_can_be_read(job: Any, tmp_path: Path, policy: str) -> None:
    first = damaged_tiles(tmp_path, sound=0)
    found = line(rows.rows, job(data=str(tmp_path), bad_sample=policy))
    assert found.startswith(f"BAD  rows: 2 of 2 tried cannot be read (the first: {first}: the comp")
    assert found.endswith("): fix them, or give other --data or another --pipeline")


def test_rows_whose_images_differ_in_size(job: Any, archive: Path, tmp_path: Path) -> None:
    os.link(archive / "0.fits", tmp_path / "0.fits")
    fits.PrimaryHDU(np.zeros((8, 9), np.int16)).writeto(tmp_path / "1.fits")
    found = functools.partial(job, data=str(tmp_path), shuffle=False)
    assert line(rows.rows, found()) == (
        f"BAD  rows: the images of a batch differ in size, as 1024x512 ({tmp_path}/0.fits) and 8x9 "
        f"({tmp_path}/1.fits): give --crop or --resize, or --ragged"
    )
    for settings in ({"crop": (4,)}, {"resize": (4,)}, {"ragged": "pad"}, {"batch_size": 1}):
        assert line(rows.rows, found(**settings)).startswith("OK   rows: 2 tried")


def test_reading_rows_is_bounded(job: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(rows, "_ROWS", 2)
    assert line(rows.rows, job()) == "OK   rows: 2 tried, all can be read"
    monkeypatch.setattr(rows, "_ROWS", 4)
    monkeypatch.setattr(rows, "_SECONDS", -1.0)
    assert line(rows.rows, job()) == "OK   rows: 2 tried, all can be read"


def test_reading_is_bounded(archive: Path, monkeypatch: Any) -> None:
    paths = [str(archive / f"{number}.fits") for number in range(4)]
    monkeypatch.setattr(files, "_BLOCK", 1 << 16)
    monkeypatch.setattr(files, "_BYTES", 100_000)
    reading = files._read_files(paths)
    assert (reading.files, reading.nbytes) == (1, 1 << 17)
    monkeypatch.setattr(files, "_SECONDS", -1.0)
    assert files._read_files(paths).nbytes == 0


def test_what_the_speed_is_of(job: Any, archive: Path, monkeypatch: Any) -> None:
    def mounted(kind: str) -> None:
        part = SimpleNamespace(mountpoint="/", fstype=kind)
        monkeypatch.setattr(psutil, "disk_partitions", lambda all: [part])

    real = os.open
    asked = []

    def refuse(path: str, flags: int) -> int:
        asked.append(flags & os.O_DIRECT)
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags)

    def accept(path: str, flags: int) -> int:
        return real(path, flags & ~os.O_DIRECT)

    for opened, kind, expected in (
        (accept, "ext4", "uncached (ext4, O_DIRECT)"),
        (accept, "tmpfs", "from memory (tmpfs)"),
        (refuse, "fuse", "perhaps cached (fuse has no O_DIRECT)"),
    ):
        found = job()
        found.index  # noqa: B018  opened before os.open is replaced
        mounted(kind)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", opened)
            assert line(files.data, found).endswith(expected)
    assert asked == [os.O_DIRECT, 0] * 4


def test_slow_storage_is_noted(job: Any, monkeypatch: Any) -> None:
    slow = files.Reading(files=4, nbytes=20_000_000, seconds=2.0)
    monkeypatch.setattr(files, "_read_files", lambda paths: slow)
    found = line(files.data, job())
    assert found.startswith("NOTE data: 4 files; one process read 4 of them, 20.0 MB, at 10 MB/s ")
    slow.nbytes = 1000  # small files say nothing of the storage
    assert line(files.data, job()).startswith("OK ")


def test_folders(job: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet"))
    found = line(files.folders, job(report=str(tmp_path / "report.json")))
    assert found.startswith("OK   folders: can be written, ")
    assert f"{tmp_path}/not/yet/dali-pipelines (" in found
    assert list(tmp_path.iterdir()) == []
    assert line(files.folders, job(audit="/nowhere/audit.csv")) == (
        "BAD  folders: /nowhere cannot be written (No such file or directory): "
        "set --audit to another"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    assert line(files.folders, job()).startswith("BAD  folders: /proc/dali-pipelines cannot be")


# ---- The command -------------------------------------------------------------------------------


def test_a_check_that_fails_is_a_finding(job: Any, monkeypatch: Any) -> None:
    def cores(_: Job) -> Any:
        raise KeyError("a bug")

    assert line(cores, job()) == "BAD  cores: the check failed with KeyError: 'a bug'"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert line(software.start_method, job(start_method="fork")).startswith(
        "BAD  start method: the check failed with ModuleNotFoundError: "
    )


@pytest.mark.parametrize(
    ("levels", "status"), [(["OK", "NOTE"], 0), (["OK", "BAD", "OK"], 1), (["BAD"], 1)]
)
def test_the_exit_status(monkeypatch: Any, capsys: Any, levels: list[str], status: int) -> None:
    checks = [lambda _, level=level: Finding(level, "x\ny") for level in levels]
    for check in checks:
        check.__name__ = "x"
    monkeypatch.setattr(main, "CHECKS", checks)
    assert main.main([]) == status
    assert capsys.readouterr().out.splitlines() == [f"{level:<4} x y" for level in levels]


@pytest.mark.parametrize("flag", ["--bogus=1", "--batch_size=0", "--device=tpu"])
def test_wrong_usage(flag: str) -> None:
    assert main.main([flag]) == 2


def test_as_a_command(shared_data: Path, tmp_path: Path) -> None:
    """With a config file; nothing is BAD here, and each check has its line."""
    config = tmp_path / "config.toml"
    config.write_text('batch_size = 2\nnum_read_processes = 2\nnum_threads = 1\ndevice = "cpu"\n')
    command = [sys.executable, str(SCRIPT), f"--data={shared_data / 'fits'}", "--crop=6"]
    found = run([*command, f"--config={config}"])
    lines = found.stdout.splitlines()
    assert found.returncode == 0, found.stdout + found.stderr
    assert len(lines) == len(main.CHECKS) - len(main.REMOTE)
    assert {line[:5] for line in lines} <= {"OK   ", "NOTE "}
    assert not any("not checked" in line for line in lines)
    assert "Traceback" not in found.stderr
