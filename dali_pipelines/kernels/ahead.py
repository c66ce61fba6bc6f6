"""Compile kernels ahead, in processes of their own: on this machine before a run, or as it starts.

A run imports DALI and PyTorch, and starts readers, for as long as its kernels take to compile. It
does not begin with numba, which takes a second to import: a file notes what has been compiled.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from dali_pipelines.kernels.stamp import STAMP
from readers.cache.folder import cache_folder

KERNELS = {
    "fits": (
        *(f"decode_entry {dtype}" for dtype in ("float32", "uint8", "int16", "int32")),
        "resize_entry float32",
        *(f"nearest_entry {dtype}" for dtype in ("float32", "uint8", "int16", "int32")),
        "readers.fits.tiles.hcompress.stream:compile_all",
    ),
    "jpeg": (
        *("resize_entry uint8", "resize_entry float32"),
        *(f"nearest_entry {dtype}" for dtype in ("uint8", "uint16", "float32")),
        "readers.jpeg.mcu.cut:compile_once",
    ),
    "aia": ("decode_entry float32", "warp_entry"),
    "augment": ("retouch_entry", "noise_entry", "photon_noise_entry", "choose_part_entry"),
}
"""Functions of `dali_pipelines.kernels.entries` and their arguments, by pipeline; what those of
`dali_pipelines.augment` use; and functions of modules that compile what readers use."""

_MAIN = "dali_pipelines.kernels.ahead_main"

_running: dict[str, subprocess.Popen[bytes]] = {}


def start(names: Iterable[str]) -> None:
    """Start to compile kernels that have not been noted as compiled, each in a process."""
    for name in names:
        if name in _running or note(name).exists():
            continue
        # Neither is for the user: what cannot be compiled fails again where it is needed.
        quiet = subprocess.DEVNULL
        _running[name] = subprocess.Popen(
            command_for([name]), stdin=quiet, stdout=quiet, stderr=quiet
        )
        atexit.register(_stop, _running[name])


def command_for(names: Iterable[str]) -> list[str]:
    """Return the command that compiles kernels, if need be, and notes that."""
    # As multiprocessing does, and not with -m, which would also import what lies where it is run.
    code = f"import sys; sys.path[:] = {sys.path!r}; from {_MAIN} import main; main()"
    return [sys.executable, "-c", code, str(os.getpid()), *names]


def wait_for(name: str) -> None:
    """Wait until a kernel is compiled, if that was started."""
    if name in _running:
        _running.pop(name).wait()


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def note(name: str) -> Path:
    """Return the file that says that a kernel was compiled, for such a CPU and such versions."""
    return cache_folder() / "compiled" / f"{name.replace(' ', '_')}_{_versions()}"


@cache
def _versions() -> str:
    """Return a hash of what decides whether numba finds in its cache what it needs."""
    parts = [STAMP, sys.version, version("numba"), __file__]
    parts += sorted(f"{name}={value}" for name, value in os.environ.items() if "NUMBA_" in name)
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts += sorted({line for line in lines if line.startswith(("model name", "flags"))})
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
