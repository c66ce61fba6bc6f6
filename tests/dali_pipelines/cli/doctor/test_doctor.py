"""The command doctor: each check both ways, and the exit status."""

from __future__ import annotations

import errno
import functools
import importlib.metadata
import os
import re
import resource
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numcodecs
import numpy as np
import psutil
import pyarrow as pa
import pynvml
import pytest
import xarray as xr
from astropy.io import fits
from jobs import SCRIPTS, run

from dali_pipelines import Index
from dali_pipelines.cli.doctor import arrays, data, main, system
from dali_pipelines.cli.doctor.job import Finding, Job
from dali_pipelines.cli.doctor.nvml import Driver
from dali_pipelines.cli.run_config import RunConfig
from dali_pipelines.kernels.vectors import FORMS

H200 = Driver("570.86", (12, 8), ("NVIDIA H200", "NVIDIA H200"))
V100 = Driver("470.1", (11, 4), ("V100",))
HIDDEN = {"driver": H200, "gpus": 0}
BUSY = {"num_read_processes": 4, "num_gpus": 2, "num_threads": 6}
READERS = {"num_read_processes": 6, "num_gpus": 2, "prefetch": 2, "batch_size": 1}

MakeJob = Callable[..., Job]
Machine = Callable[..., None]
Clock = Callable[[float], None]
Check = Callable[..., str]

TABLE: list[tuple[main.Check, dict[str, Any], dict[str, Any], str]] = [
    # A check, the machine, the settings of the run; level and words of the finding, in order.
    (system.driver, {"torch_cuda": None}, {"device": "gpu"}, "BAD missing --device=cpu"),
    (system.driver, {"driver": H200}, {"device": "cpu"}, "OK 570.86 12.8 not"),
    (
        system.driver,
        {"driver": H200, "torch_cuda": "12.9"},
        {"device": "gpu"},
        "OK 570.86 12.8",
    ),
    (
        system.driver,
        {"driver": H200, "torch_cuda": "13.0"},
        {"device": "gpu"},
        "BAD 570.86 12.8 PyTorch 13.0 install",
    ),
    (
        system.driver,
        {"driver": V100, "torch_cuda": "11.8"},
        {},
        "BAD 470.1 11.4 nvidia-dali-cuda120 12.0 install",
    ),
    (system.gpus, {"driver": H200}, {"device": "cpu"}, "OK --device=cpu"),
    (system.gpus, {"driver": H200}, {}, "OK 2 H200 1"),
    (system.gpus, {"driver": H200}, {"num_gpus": 4}, "BAD 4 2"),
    (system.gpus, {}, {"num_gpus": 2}, "NOTE 2 CPU"),
    (system.gpus, {}, {"device": "gpu"}, "BAD 1 no"),
    (system.gpus, {**HIDDEN, "torch_cuda": None}, {}, "BAD 2 PyTorch CUDA"),
    (
        system.gpus,
        {**HIDDEN, "torch_cuda": "12.6", "visible": 7},
        {},
        "BAD 2 CUDA_VISIBLE_DEVICES '7'",
    ),
    (system.gpus, {**HIDDEN, "torch_cuda": "12.6"}, {}, "BAD 2 nvidia-smi"),
    (system.gpus, {**HIDDEN, "torch_cuda": "12.6", "visible": ""}, {}, "NOTE 1 CPU"),
    *(
        (
            system.start_method,
            {"driver": driver, "cuda_initialised": initialised},
            {"start_method": method},
            expected,
        )
        for driver, method, initialised, expected in (
            (H200, "forkserver", True, "OK forkserver"),
            (H200, "spawn", True, "OK spawn"),
            (H200, "fork", True, "BAD fork --start_method=forkserver"),
            (H200, "fork", False, "NOTE fork"),
            (None, "fork", False, "OK fork"),
        )
    ),
    (system.cores, {"cores": 8, "quota": None}, BUSY, "OK 8 4 2 6 2.0"),
    (system.cores, {"cores": 4, "quota": None}, BUSY, "NOTE 4 4.0 --num_read_processes"),
    (system.cores, {"cores": 1, "quota": None}, BUSY, "BAD 1 16.0 --num_read_processes"),
    (system.cores, {"cores": 64, "quota": 1.5}, BUSY, "BAD 64 1.5 10.7"),
    (system.cores, {"cores": 8, "quota": 64.0}, BUSY, "OK 8 64 2.0"),
    (system.cores, {"cores": 8, "quota": None, "slurm": 2}, BUSY, "NOTE 8 Slurm 2 8.0"),
    # Each shard has a reader.
    (
        system.cores,
        {"cores": 64, "quota": None},
        {"num_read_processes": 1, "num_gpus": 3},
        "OK 3",
    ),
    (data.memory, {"memory": 16384}, {}, "OK 770 MiB 16.0 GiB"),
    (data.memory, {"memory": 512}, {}, "BAD 770 MiB"),
    # Two frames of 1024x512 float32.
    (data.memory, {"memory": 16384, "driver": H200}, {}, "OK CuPy 4 MiB"),
    (data.address_space, {"address_space": resource.RLIM_INFINITY}, {}, "OK 10 MiB 32.0 GiB"),
    (data.address_space, {"address_space": 1 << 40}, {}, "OK 10 MiB 32.0 GiB"),
    (data.address_space, {"address_space": 1 << 20}, {}, "BAD 10 MiB 0 MiB -v -f"),
    # 64 in any case, and 3 for each of 6 readers.
    (data.open_files, {"open_files": resource.RLIM_INFINITY}, READERS, "OK 82 6 2"),
    (data.open_files, {"open_files": 82}, READERS, "OK 82 6 2 82"),
    (data.open_files, {"open_files": 81}, READERS, "BAD 82 6 2 81 82"),
    (data.settings, {}, {}, "OK 1024x512 1.1 MB"),
    (data.settings, {}, {"crop": 2000}, "BAD crop 2000x2000 1024x512"),
    (data.settings, {}, {"batch_size": 5, "tail": "drop"}, "BAD 5 4"),
    (data.settings, {}, {"columns": ("target",)}, "BAD 'target' path"),
]


@pytest.mark.parametrize(("function", "facts", "settings", "expected"), TABLE)
def test_a_check_on_a_machine(
    function: main.Check,
    facts: dict[str, Any],
    settings: dict[str, Any],
    expected: str,
    job: MakeJob,
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = job(**settings)
    machine(**facts)
    finding = main.examine(function, found)
    assert finding is not None
    level, *words = expected.split()
    assert finding.level == level, finding
    # Words, not parts of them: 2 is not in 12.8.
    ends = r"(?<![\w.]){}(?![\w.]*\w)"
    pattern = ".*".join(ends.format(re.escape(word)) for word in words)
    assert re.search(pattern, finding.text), finding
    assert capsys.readouterr().err == ""


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
    ("nvml", "level", "words"),
    [
        (Nvml(), "OK", ["550.54.14", "CUDA 12.4"]),
        (Nvml(pynvml.NVML_ERROR_DRIVER_NOT_LOADED), "NOTE", ["missing", "CPU"]),
        (Nvml(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), "NOTE", ["missing", "CPU"]),
        (Nvml(18), "BAD", ["NVML error 18"]),
        (Nvml(broken="nvmlDeviceGetName"), "BAD", ["NVML error 999"]),
    ],
)
def test_the_driver_is_asked_by_nvml(
    monkeypatch: pytest.MonkeyPatch, check: Check, nvml: Nvml, level: str, words: list[str]
) -> None:
    for name in (
        *("nvmlInit", "nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"),
        *("nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"),
    ):
        monkeypatch.setattr(pynvml, name, functools.partial(nvml.call, name))
    job = Job(RunConfig())
    check(system.driver, job, level, *words)
    assert job.gpus == (("GPU 100", "GPU 101") if level == "OK" else ())
    assert job.on_gpu == (level == "OK")
    assert nvml.open == 0


# ---- Packages and kernels ----------------------------------------------------------------------

NO_GPU_PACKAGES = {"numba-cuda": None, "cupy-cuda12x": None, "cupy-cuda13x": None}


@pytest.mark.parametrize(
    ("versions", "driver", "torch_cuda", "wrong", "remedies"),
    [
        ({}, None, None, [], []),
        ({"torch": "2.13.0+cu126"}, None, None, [], []),
        (
            {"numba": None, "torch": "2.5.1+cu124"},
            None,
            None,
            ["numba is missing", "torch 2.5.1+cu124"],
            ["'numba>=0.61'", "'torch>=2.6'"],
        ),
        (
            {"torch": "2.15", "numpy": "2.5.2"},
            H200,
            "13.0",
            ["cupy-cuda13x is missing", "numba-cuda is missing", "numpy 2.5.2"],
            ["'cupy-cuda13x[ctk]>=14'", "'numba-cuda[cu13]>=0.30'", "'numpy<2.5'"],
        ),
        (
            {"torch": "2.15", "numpy": "2.4"},
            H200,
            "12.6",
            ["cupy-cuda12x is missing", "numba-cuda is missing", "torch 2.15"],
            ["'cupy-cuda12x[ctk]>=14'", "'numba-cuda[cu12]>=0.30'", "'torch<2.11,>=2.6'"],
        ),
    ],
)
def test_packages(
    job: MakeJob,
    check: Check,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    versions: dict[str, str | None],
    driver: Driver | None,
    torch_cuda: str | None,
    wrong: list[str],
    remedies: list[str],
) -> None:
    def version(name: str) -> str:
        known = {"nvidia-dali-cuda120": "2.4.1", **NO_GPU_PACKAGES, **versions}
        if (found := known.get(name, "99")) is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    machine(driver, torch_cuda=torch_cuda)
    text = check(system.packages, job(), "BAD" if wrong else "OK", *wrong)
    assert text.count(" is missing") + text.count(" is not ") == len(wrong)
    if wrong:
        command = text.partition("pip install ")[2]
        assert command.split() == remedies


def test_installed_packages(job: MakeJob, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("nvidia-dali-cuda120", "torch", "numpy", "astropy", "numba")
    check(
        system.packages,
        job(),
        "OK",
        *(f"{name} {importlib.metadata.version(name)}" for name in names),
    )

    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)  # of a clone on the path
    check(system.packages, job(), "NOTE", "not checked", "clone")


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
    job: MakeJob,
    check: Check,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    torch_cuda: str | None,
    cuda: tuple[int, int],
    extra: str,
) -> None:
    """Those that cannot be loaded are named, with the extra for this PyTorch and driver."""
    found = job()
    machine(Driver("580.1", cuda, ("H100",)), torch_cuda=torch_cuda)
    missing: set[str] = set()

    def load(name: str) -> None:
        if name in missing:
            raise RuntimeError(f"Failure finding {name!r}")

    pathfinder: Any = ModuleType("cuda.pathfinder")
    pathfinder.load_nvidia_dynamic_lib = load
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", pathfinder)
    check(system.cuda_libraries, found, "OK", "nvvm", "nvJitLink", "nvrtc", "cufft")
    missing |= {"nvvm", "cufft"}
    install = f"pip install '.[{extra}]'"
    text = check(system.cuda_libraries, found, "BAD", "nvvm", "cufft", install)
    assert "nvrtc" not in text
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    check(system.cuda_libraries, found, "BAD", "cuda-pathfinder", install)


@pytest.mark.parametrize(
    ("reason", "level", "words"),
    [
        (None, "OK", ["without another copy"]),
        ("cuMemHostRegister returns X", "NOTE", ["once more", "cuMemHostRegister returns X"]),
    ],
)
def test_pinned_memory(
    job: MakeJob,
    check: Check,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    reason: str | None,
    level: str,
    words: list[str],
) -> None:
    check(system.pinned_memory, job(), "OK", "not used")
    machine(H200)
    found = job()
    program = f"def why_refused(): return {reason!r}\nprint(why_refused() or '')"
    monkeypatch.setattr(system, "_WHY_REFUSED", program)  # there is no GPU to ask
    check(system.pinned_memory, found, level, *words)
    monkeypatch.setattr(system, "_WHY_REFUSED", "raise SystemExit('the driver is broken')")
    check(system.pinned_memory, found, "NOTE", "not checked", "the driver is broken")


def test_pinned_memory_without_a_driver(job: MakeJob, check: Check, machine: Machine) -> None:
    """The process that asks finds none here, whatever the machine is said to have."""
    found = job()
    machine(H200)
    if not Path("/dev/nvidiactl").exists():
        check(system.pinned_memory, found, "NOTE", "once more", "driver")


@pytest.mark.parametrize(
    ("form", "level", "word"),
    [*zip(FORMS, ("OK", "OK", "NOTE"), ("AVX-512", "AVX2", "neither"), strict=True)],
)
def test_vectors(
    job: MakeJob, check: Check, monkeypatch: pytest.MonkeyPatch, form: Any, level: str, word: str
) -> None:
    monkeypatch.setattr("dali_pipelines.kernels.vectors.FORM", form)
    check(system.vectors, job(), level, word)
    check(system.vectors, job(pipeline="aia"), level, word)
    check(system.vectors, job(pipeline="jpeg"), "OK", "not used")


@pytest.mark.parametrize("pipeline", ["fits", "jpeg"])
def test_kernel_cache(
    job: MakeJob, check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pipeline: str
) -> None:
    module = {"fits": "dali_pipelines.kernels.jit", "jpeg": "readers.jpeg.mcu.jit"}[pipeline]
    monkeypatch.setattr(f"{module}.JIT", SimpleNamespace(folder=tmp_path))
    check(system.kernel_cache, job(pipeline=pipeline), "NOTE", str(tmp_path))
    (tmp_path / "kernel.nbi").touch()
    check(system.kernel_cache, job(pipeline=pipeline), "OK", str(tmp_path))
    monkeypatch.setattr(f"{module}.JIT", SimpleNamespace(folder=None))
    check(system.kernel_cache, job(pipeline=pipeline), "BAD", "NUMBA_CACHE_DIR")


# ---- Memory, rows and files --------------------------------------------------------------------


def test_on_gpus_images_take_no_memory_of_the_host(job: MakeJob, machine: Machine) -> None:
    on_cpu = job().estimate
    machine(H200)
    on_gpu = job().estimate
    assert on_cpu.images > on_gpu.images == 0
    assert (on_cpu.shared, on_cpu.processes) == (on_gpu.shared, on_gpu.processes)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_gets_by_with_the_open_files_that_are_asked_for(
    archive: Path, job: MakeJob, check: Check
) -> None:
    settings = {"num_read_processes": 8, "prefetch": 4}
    words = check(data.open_files, job(**settings), "OK").split()
    needed = int(words[words.index("needed") - 1])
    command = [sys.executable, str(SCRIPTS / "run.py"), f"--data={archive}", "--device=cpu"]
    command += ["--batch_size=2", *(f"--{name}={value}" for name, value in settings.items())]
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (needed, needed))
    found = run(command, preexec_fn=limit)
    assert found.returncode == 0, found.stderr


def test_settings_of_files_of_another_kind(job: MakeJob, check: Check, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.fits").write_text("no FITS")
    wrong = job(data=str(tmp_path))
    check(data.settings, wrong, "BAD", "fits", f"{tmp_path}/a.fits", "--pipeline")
    check(data.memory, wrong, "NOTE", "not checked")


def test_rows_are_read_as_by_a_run(
    job: MakeJob, check: Check, archive: Path, tmp_path: Path
) -> None:
    """Rows of all shards; one file is cut off, which its header does not say."""
    check(data.rows, job(num_gpus=3), "OK", "4 tried")
    for number in range(4):
        os.link(archive / f"{number}.fits", tmp_path / f"{number}.fits")
    cut = tmp_path / "9.fits"
    cut.write_bytes((archive / "0.fits").read_bytes()[:600_000])
    found = functools.partial(job, data=str(tmp_path))
    check(data.rows, found(num_gpus=3), "BAD", "1 of 5", f"{cut}: ", "--bad_sample=skip")
    check(data.rows, found(bad_sample="skip"), "NOTE", "1 of 5", f"{cut}: ")


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


def test_tiles_are_decoded_as_by_a_run(job: MakeJob, check: Check, tmp_path: Path) -> None:
    damaged = damaged_tiles(tmp_path, sound=1)
    found = functools.partial(job, data=str(tmp_path))
    check(data.rows, found(), "BAD", "1 of 2", f"{damaged}: ", "--bad_sample=skip")
    check(data.rows, found(hdus=(("image", 1), ("b", 1))), "OK", "2 tried", "verify")


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_no_row_can_be_read(job: MakeJob, check: Check, tmp_path: Path, policy: str) -> None:
    first = damaged_tiles(tmp_path, sound=0)
    found = job(data=str(tmp_path), bad_sample=policy)
    check(data.rows, found, "BAD", "2 of 2", f"{first}: ", "--data", "--pipeline")


def test_images_of_several_sizes(job: MakeJob, check: Check, archive: Path, tmp_path: Path) -> None:
    os.link(archive / "0.fits", tmp_path / "0.fits")
    fits.PrimaryHDU(np.zeros((8, 9), np.int16)).writeto(tmp_path / "1.fits")
    found = functools.partial(job, data=str(tmp_path), shuffle=False)
    sizes = [f"1024x512 ({tmp_path}/0.fits)", f"8x9 ({tmp_path}/1.fits)"]
    check(data.rows, found(), "BAD", *sizes, "--crop", "--resize", "--ragged")
    for settings in ({"crop": 4}, {"resize": 4}, {"ragged": "pad"}, {"batch_size": 1}):
        check(data.rows, found(**settings), "OK", "2 tried")


def test_reading_rows_is_bounded(
    job: MakeJob, check: Check, archive: Path, tmp_path: Path, clock: Clock
) -> None:
    """By 64 rows, and by 2 s from the second one on."""
    for number in range(65):
        os.link(archive / "0.fits", tmp_path / f"{number:02d}.fits")
    check(data.rows, job(data=str(tmp_path)), "OK", "33 tried")
    clock(3.0)
    check(data.rows, job(data=str(tmp_path)), "OK", "2 tried")


def test_data(job: MakeJob, check: Check, tmp_path: Path) -> None:
    check(data.data, job(), "OK", "4 files", "read 4 of them", "4.2 MB", " MB/s ")
    nowhere = job(data=str(tmp_path / "nowhere"))
    check(data.data, nowhere, "BAD", f"{tmp_path}/nowhere")
    for other in data.settings, data.rows, data.memory:
        check(other, nowhere, "NOTE", "not checked")


def test_members_are_counted_by_their_files(
    job: MakeJob, check: Check, archive: Path, tmp_path: Path
) -> None:
    """And each file is read once."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for file in archive.glob("*.fits"):
            tar.add(file, file.name)
    found = job(data=str(tmp_path))
    check(data.data, found, "OK", "1 file of 4 rows", "read 1 of them", "4.2 MB")


def test_files_of_samples_are_counted(
    job: MakeJob, check: Check, archive: Path, tmp_path: Path
) -> None:
    """Two samples share a file; one lacks another."""
    names = [str(archive / f"{number}.fits") for number in range(3)]
    columns = {"path": names[:2], "path_a": names[:2], "path_b": [names[2], None]}
    Index(pa.table(columns)).save(tmp_path / "a.parquet")
    found = job(data=str(tmp_path / "a.parquet"))
    check(data.data, found, "OK", "3 files of 2 rows", "read 3 of them", "3.2 MB")


def test_files_that_are_gone(job: MakeJob, check: Check, archive: Path, tmp_path: Path) -> None:
    """Even root cannot read a file that is gone."""
    catalogue = tmp_path / "catalogue.csv"
    catalogue.write_text(f"path\n{archive}/0.fits\n{tmp_path}/gone.fits\n{archive}/1.fits\n")
    found = functools.partial(job, data=str(catalogue))
    gone = f"{tmp_path}/gone.fits: No such file or directory"
    check(data.data, found(), "BAD", "1 of 3 files", gone, "--bad_sample=skip")
    check(data.data, found(bad_sample="skip"), "NOTE", "1 of 3 files", gone)


def sparse(path: Path, nbytes: int) -> str:
    """Make a file of zeros, which takes no room; give its path."""
    with path.open("wb") as file:
        file.truncate(nbytes)
    return str(path)


def test_reading_files_is_bounded(job: MakeJob, check: Check, tmp_path: Path, clock: Clock) -> None:
    """By 512 MB, and by 2 s."""
    found = job(data=sparse(tmp_path / "a.fits", 1 << 30))
    check(data.data, found, "OK", "515.9 MB")  # in blocks of 4 MiB
    clock(3.0)
    check(data.data, found, "OK", "read 0 of them")


def test_slow_storage_is_noted(job: MakeJob, check: Check, tmp_path: Path, clock: Clock) -> None:
    clock(0.1)
    found = job(data=sparse(tmp_path / "a.fits", 20_000_000))
    check(data.data, found, "NOTE", "20.0 MB", "--num_read_processes")
    # Small files say nothing of the storage.
    check(data.data, job(data=sparse(tmp_path / "a.fits", 1000)), "OK")


@pytest.mark.parametrize(
    ("kind", "has_o_direct", "words"),
    [
        ("ext4", True, ["uncached", "ext4"]),
        ("tmpfs", True, ["from memory", "tmpfs"]),
        ("fuse", False, ["perhaps cached", "fuse"]),
    ],
)
def test_kind_of_storage(
    job: MakeJob,
    check: Check,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    has_o_direct: bool,
    words: list[str],
) -> None:
    real, asked = os.open, []

    def opened(path: str, flags: int) -> int:
        asked.append(flags & os.O_DIRECT)
        if flags & os.O_DIRECT and not has_o_direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags & ~os.O_DIRECT)

    part = SimpleNamespace(mountpoint="/", fstype=kind)
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [part])
    found = job()
    found.index  # noqa: B018  opened before os.open is replaced
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opened)
        check(data.data, found, "OK", *words)
    assert asked == ([os.O_DIRECT] if has_o_direct else [os.O_DIRECT, 0]) * 4


def test_folders(
    job: MakeJob, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "not" / "yet"))
    report = str(tmp_path / "report.json")
    check(system.folders, job(report=report), "OK", f"{tmp_path}/not/yet/dali-pipelines")
    assert list(tmp_path.iterdir()) == []
    check(system.folders, job(audit="/nowhere/audit.csv"), "BAD", "/nowhere ", "--audit")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    check(system.folders, job(), "BAD", "/proc/dali-pipelines", "XDG_CACHE_HOME")


def test_a_home_that_cannot_be_written(
    job: MakeJob, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()  # not even root can write below it
    folder = str(tmp_path / "file")
    monkeypatch.setenv("XDG_CONFIG_HOME", folder)
    check(system.folders, job(), "NOTE", f"{folder}/matplotlib", "XDG_CONFIG_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    check(system.folders, job(), "NOTE", f"{folder}/dali-pipelines", "XDG_CACHE_HOME")
    monkeypatch.setattr(system, "_SHM", tmp_path / "file" / "shm")
    check(system.folders, job(), "NOTE", "file/shm", "NCCL")


def test_the_folder_of_the_cache(job: MakeJob, check: Check, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    found = functools.partial(job, cache=str(cache))
    check(system.folders, found(cache_bytes=10**7), "OK", f"{cache} (")
    check(system.folders, found(cache_bytes=10**15), "NOTE", "--cache_bytes=1e+06GB")
    cache.touch()
    check(system.folders, found(cache_bytes=10**7), "BAD", f"{cache} ", "set --cache")


# ---- The command -------------------------------------------------------------------------------


def test_a_check_that_fails_is_a_finding(
    job: MakeJob, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cores(_: Job) -> Any:
        raise KeyError("a bug")

    check(cores, job(), "BAD", "cores", "KeyError", "'a bug'")
    monkeypatch.setitem(sys.modules, "torch", None)
    check(system.start_method, job(start_method="fork"), "BAD", "ModuleNotFoundError")


@pytest.mark.parametrize(
    ("levels", "status"), [(["OK", "NOTE"], 0), (["OK", "BAD", "OK"], 1), (["BAD"], 1)]
)
def test_the_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., tuple[str, str]],
    levels: list[str],
    status: int,
) -> None:
    checks = [
        functools.partial(lambda _, level: Finding(level, "x\ny"), level=level) for level in levels
    ]
    for function in checks:
        function.__name__ = "x"  # type: ignore[attr-defined]
    monkeypatch.setattr(main, "CHECKS", checks)
    out, _ = command("doctor", status=status)
    assert [line.split() for line in out.splitlines()] == [[level, "x", "y"] for level in levels]


def test_each_check_has_its_line_and_all_is_well_here(
    shared_data: Path, tmp_path: Path, command: Callable[..., tuple[str, str]]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('batch_size = 2\nnum_read_processes = 2\nnum_threads = 1\ndevice = "cpu"\n')
    out, _ = command("doctor", f"--data={shared_data / 'fits'}", "--crop=6", f"--config={config}")
    lines = out.splitlines()
    assert len(lines) == len(main.CHECKS) - len(main.REMOTE) - 1  # that of arrays
    assert {line.split()[0] for line in lines} <= {"OK", "NOTE"}
    assert "not checked" not in out


@pytest.fixture
def weather(tmp_path: Path) -> Path:
    """A store of chunks that hold three times, without and with Blosc."""
    axes, numbers = ("time", "y", "x"), np.zeros((6, 128, 96), "f4")
    variables = {"plain": (axes, numbers), "cut": (axes, numbers)}
    chunks: dict[str, Any] = {name: {"chunks": (3, 32, 32)} for name in variables}
    chunks["plain"]["compressors"] = numcodecs.Zlib()
    chunks["cut"]["compressors"] = numcodecs.Blosc()
    xr.Dataset(variables).to_zarr(tmp_path / "a.zarr", encoding=chunks, zarr_format=2)
    return tmp_path / "a.zarr"


def test_chunks(job: MakeJob, check: Check, weather: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"pipeline": "chunked", "data": str(weather), "crop": 64}
    found = check(arrays.chunks, job(**settings), "NOTE", "3x32x32", "several positions", "zlib")
    # Centred windows of 64 of 96 and 128 pixels touch 3 and 2 chunks.
    assert "64x64 pixels need 6 chunks" in found
    settings["variables"] = ("cut",)
    check(arrays.chunks, job(**settings), "OK", "cut", "blosc")
    settings |= {"window": "random"}
    check(arrays.chunks, job(**settings), "OK", "64x64 pixels need 8.7 chunks")
    check(arrays.chunks, job(**settings, grid="chunks"), "OK", "64x64 pixels need 4 chunks")
    check(data.data, job(**settings), "OK", "1 file of 6 rows")
    check(data.rows, job(**settings), "OK", "6 tried, all can be read")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check(arrays.chunks, job(**settings), "BAD", "numcodecs", "chunks")


def test_chunks_are_no_matter_of_images(job: MakeJob) -> None:
    assert main.examine(arrays.chunks, job()) is None
