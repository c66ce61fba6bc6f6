"""Checks of `doctor` that do not depend on the data: the machine and its software."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from platformdirs import user_config_path

from dali_pipelines.cli.doctor.job import Finding, Unknown, bad, note, ok
from dali_pipelines.cli.errors import count, one_line
from dali_pipelines.runtime.cgroup import CoreGrant, usable_cores
from readers.messages import install

if TYPE_CHECKING:
    from dali_pipelines.cli.doctor.job import Job

_DALI_CUDA = (12, 0)
"""CUDA version of the driver that nvidia-dali-cuda120 needs (DALI's installation page: 525.60 or
later)."""

_CUDA_LIBRARIES = ("nvvm", "nvJitLink", "nvrtc", "cufft")
"""Names in cuda-pathfinder."""

_WHY_REFUSED = """
from dali_pipelines.runtime.pinned import why_refused
print(why_refused() or "")
"""

_SHM = Path("/dev/shm")

_BUSY = 2.0
"""Threads and readers per core up to which all is well: readers mostly wait for files."""
_TOO_MANY = 8.0
"""Threads and readers per core above which they mostly compete; a reader takes 20 MB."""


def driver(job: Job) -> Finding:
    """NVIDIA's driver, and its CUDA compared with that of DALI and PyTorch."""
    found = job.driver
    if found is None:
        if job.config.device == "gpu":
            return bad("driver: NVIDIA's is missing", "install it, or use --device=cpu")
        return note("driver: NVIDIA's is missing, so all shards run on the CPU")
    words = f"driver: NVIDIA {found.version}, offers CUDA {found.cuda[0]}.{found.cuda[1]}"
    if not job.on_gpu:
        return ok(f"{words}, not used")
    if found.cuda < _DALI_CUDA:
        return bad(f"{words}, nvidia-dali-cuda120 needs 12.0", "install driver 525.60 or later")
    torch_cuda = _torch_cuda()
    if torch_cuda is not None and int(torch_cuda.partition(".")[0]) > found.cuda[0]:
        return bad(
            f"{words}, PyTorch was built for CUDA {torch_cuda}",
            "install a newer driver, or a PyTorch for this CUDA (pytorch.org has the command)",
        )
    return ok(words)


def gpus(job: Job) -> Finding:
    """GPUs that PyTorch sees, as `run` counts them, compared with the shards."""
    config = job.config
    from dali_pipelines.cli.run_config import choose_devices
    from dali_pipelines.runtime.devices import visible_gpus
    from dali_pipelines.runtime.ranks import Ranks

    if config.device == "cpu":
        return ok("GPUs: none wanted, --device=cpu")
    visible = visible_gpus()
    names = job.gpus
    if names and not visible:
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        if _torch_cuda() is None:
            remedy = "install a PyTorch with CUDA (pytorch.org has the command)"
        elif named is not None:
            remedy = f"CUDA_VISIBLE_DEVICES is {named!r}, change or unset it"
        else:
            remedy = "see whether nvidia-smi works, and whether a job has reserved them"
        return bad(f"GPUs: PyTorch sees none of {len(names)} ({names[0]})", remedy)
    with contextlib.redirect_stderr(io.StringIO()):  # the finding says it
        devices = choose_devices(config, Ranks())
    if devices[0] is None:
        return note(f"GPUs: none is visible, {count(len(devices), 'shard')} on the CPU")
    kinds = ", ".join(sorted(set(names))) or "of unknown kind"
    return ok(f"GPUs: {visible} visible ({kinds}), {len(devices)} wanted")


def packages(job: Job) -> Finding:
    """Check the required packages, with the extra cli and the extra for the GPU.

    Unknown if this package is on the path but not installed, because its requirements are unknown.
    """
    extras = ("cli", _gpu_extra(job)) if job.on_gpu else ("cli",)
    found, wrong, wanted = [f"Python {platform.python_version()}"], [], []
    try:
        requirements = importlib.metadata.requires("dali-pipelines") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise Unknown("dali-pipelines runs from a clone, and is not installed") from error
    for text in requirements:
        requirement = Requirement(text)
        name, marker = requirement.name, requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = None
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            found.append(f"{name} {version}")
        else:
            wrong.append(
                f"{name} is missing"
                if version is None
                else f"{name} {version} is not {requirement.specifier}"
            )
            requirement.marker = None
            wanted.append(f"'{requirement}'")
    if wrong:
        return bad(f"packages: {', '.join(wrong)}", f"pip install {' '.join(wanted)}")
    return ok(f"packages: {', '.join(dict.fromkeys(found))}")


def cuda_libraries(job: Job) -> Finding:
    """Check that NVVM and nvJitLink (kernels), NVRTC (CuPy) and cuFFT (PSF) can be loaded."""
    if not job.on_gpu:
        return ok("CUDA libraries: not used")
    remedy = install(_gpu_extra(job))
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return bad("CUDA libraries: cuda-pathfinder, which finds them, is missing", remedy)
    missing = []
    for name in _CUDA_LIBRARIES:
        try:
            load_nvidia_dynamic_lib(name)
        except RuntimeError:  # the library cannot be found or loaded
            missing.append(name)
    if missing:
        return bad(f"CUDA libraries: {', '.join(missing)} cannot be loaded", remedy)
    return ok(f"CUDA libraries: {', '.join(_CUDA_LIBRARIES)} can be loaded")


def pinned_memory(job: Job) -> Finding:
    """Check that CUDA page-locks memory; another process asks, because this initialises CUDA."""
    if not job.on_gpu:
        return ok("pinned memory: not used")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    asked = subprocess.run(
        [sys.executable, "-P", "-c", _WHY_REFUSED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        raise Unknown(f"a process that asked CUDA failed: {one_line(asked.stderr)[-200:]}")
    if reason := asked.stdout.strip():
        return note(
            "pinned memory: CUDA does not page-lock the memory of readers, so samples are copied "
            f"once more on their way to the GPU ({reason})"
        )
    return ok("pinned memory: the GPU reads the memory of readers without another copy")


def start_method(job: Job) -> Finding:
    """Check the start method of readers against the state of CUDA."""
    method = job.config.pipeline_config.start_method
    words = f"start method: {method}"
    if method != "fork":
        return ok(f"{words}, safe with CUDA")
    if _cuda_initialised():
        return bad(
            f"{words}, but looking for GPUs initialises CUDA here",
            "use --start_method=forkserver",
        )
    if job.on_gpu:
        return note(f"{words}, which must come before anything that initialises CUDA")
    return ok(f"{words}, CUDA is not initialised")


def vectors(job: Job) -> Finding:
    """Vector instructions for the decoder of RICE_1."""
    if job.config.pipeline in ("audio", "jpeg", "video") or job.on_gpu:
        return ok("vectors: not used, because no FITS image is decoded on the CPU")
    from dali_pipelines.kernels import vectors

    if vectors.FORM.features:
        return ok(f"vectors: the CPU has {vectors.FORM.name}, and the decoder of RICE_1 uses it")
    return note("vectors: neither AVX2 nor AVX-512, so RICE_1 takes three times as long")


def kernel_cache(job: Job) -> Finding:
    """Whether compiled kernels can be kept, and whether any are."""
    if job.config.pipeline in ("audio", "video"):
        return ok("kernel cache: only resizes and augmentations use one")
    if job.config.pipeline == "jpeg":
        from readers.jpeg.mcu.jit import JIT
    else:
        from dali_pipelines.kernels.jit import JIT
    if (folder := JIT.folder) is None:
        return bad(
            "kernel cache: compiled kernels cannot be kept",
            "set NUMBA_CACHE_DIR to a folder that you can write",
        )
    if any(folder.rglob("*.nbi")):
        return ok(f"kernel cache: {folder}, in use")
    return note(f"kernel cache: {folder} is empty, the first start takes 10 to 20 s longer")


def cores(job: Job) -> Finding:
    """Cores, compared with the readers and DALI's threads."""
    from dali_pipelines.runtime.devices import share_out

    shards, threads = job.config.num_gpus, job.config.pipeline_config.num_threads
    readers = sum(share_out(job.config.num_read_processes, shards))
    wanted = readers + shards * threads
    grant, given = CoreGrant.of(), usable_cores()
    granted = ", ".join(f"the {name} grants {cores:g}" for name, cores in grant.limits.items())
    words = (
        f"cores: {len(grant.allowed)}{granted and f' ({granted})'} for {count(readers, 'reader')} "
        f"and {shards} x "
        f"{count(threads, 'thread')}, {wanted / given:.1f} a core"
    )
    if wanted <= _BUSY * given:
        return ok(words)
    remedy = f"fewer --num_read_processes, --num_threads or --num_gpus, {_BUSY * given:.0f} in all"
    return note(f"{words}; try {remedy}") if wanted <= _TOO_MANY * given else bad(words, remedy)


def folders(job: Job) -> Finding:
    """Folders for the files that a run writes: temporary files, caches, report and audit."""
    from readers.cache.folder import cache_folder, is_writable, user_folder

    wanted = {"TMPDIR": Path(tempfile.gettempdir()), "XDG_CACHE_HOME": cache_folder()}
    for name in ("report", "audit", "rejected", "state"):
        path = getattr(job.config, name)
        if path is not None:
            wanted[f"--{name}"] = Path(path).absolute().parent
    if (cache := job.config.pipeline_config.cache) is not None:
        wanted["--cache"] = Path(cache).absolute()
    found, lacking = [], []
    for name, folder in wanted.items():
        try:
            free = _writable(folder, make=name == "--cache" or not name.startswith("--"))
        except OSError as error:
            return bad(
                f"folders: {folder} cannot be written ({error.strerror})", f"set {name} to another"
            )
        found.append(f"{folder} ({free / 2**30:.1f} GiB free)")
        nbytes = job.config.pipeline_config.cache_bytes or 0
        if name == "--cache" and nbytes > free + _taken(folder):
            wanted_bytes = f"--cache_bytes={nbytes / 1e9:.3g}GB"
            lacking.append(f"but {wanted_bytes} would fill the disk")
    for name, folder in (
        ("XDG_CACHE_HOME", user_folder()),
        ("XDG_CONFIG_HOME", user_config_path("matplotlib")),
    ):
        if not is_writable(folder):
            lacking.append(
                f"{folder} cannot be written, so {cache_folder()} is used instead: set {name} to a "
                "permanent folder"
            )
    if not is_writable(_SHM):
        lacking.append(
            f"{_SHM} cannot be written, but NCCL and workers of PyTorch's DataLoader need it"
        )
    words = "; ".join((f"folders: can be written, {', '.join(found)}", *lacking))
    return note(words) if lacking else ok(words)


def _taken(cache: Path) -> int:
    """Return the bytes of a cache on disk."""
    return sum(file.stat().st_size for file in cache.glob("*/*"))


def _writable(folder: Path, *, make: bool) -> int:
    """Write to a folder, or to the nearest existing one above it; return the free bytes."""
    while make and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"0")
        file.flush()
    return shutil.disk_usage(folder).free


def _gpu_extra(job: Job) -> str:
    """Return the extra for the CUDA of PyTorch or, without one, the newest of the driver."""
    torch_cuda = _torch_cuda()
    if torch_cuda is not None:
        return "gpu" if int(torch_cuda.partition(".")[0]) > 12 else "gpu-cuda12"
    return "gpu" if job.driver is None or job.driver.cuda[0] > 12 else "gpu-cuda12"


def _torch_cuda() -> str | None:
    """Return the CUDA version for which PyTorch was built, or None."""
    import torch

    version: str | None = torch.version.cuda
    return version


def _cuda_initialised() -> bool:
    import torch
    from nvidia.dali import backend

    # DALI asks the driver, and then rejects a fork.
    found: Any = backend.IsDriverInitialized()  # type: ignore[attr-defined]
    return bool(found) or bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
