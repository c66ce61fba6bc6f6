"""Compile kernels to PTX and machine code without a driver, with numba-cuda alone.

The PTX is what a launch loads: with nvJitLink, which optimises once more, what that makes of it.
numba-cuda asks for a device in one place while it compiles: for the compute capability of the
functions that kernels call. NVVM, nvJitLink and ptxas never do. `build` runs in a process of its
own, where numba stays patched.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
_QUARTER = 16384
"""Registers of each of the four parts of an SM, on all architectures here; a warp gets them by 256,
from one part."""


class Limits(NamedTuple):
    """What an SM holds at most."""

    warps: int
    blocks: int
    shared: int
    """KiB of shared memory."""
    reserved: int
    """KiB of it that the system takes for each block."""


ARCHS = {
    "sm_75": Limits(32, 16, 64, 0),
    "sm_90": Limits(64, 32, 228, 1),
    "sm_120": Limits(48, 24, 100, 1),
}
"""The oldest that CUDA 13 compiles for, the H100, and the newest; with the CUDA C++ Programming
Guide's table of technical specifications."""


@dataclass(frozen=True)
class Usage:
    """What a kernel takes on an architecture."""

    kernel: str
    arch: str
    threads: int
    registers: int
    stack: int
    """Bytes of local memory a thread."""
    spills: int
    """Bytes of registers that are stored there and loaded again."""
    shared: int
    """Bytes of shared memory a block."""

    @property
    def warps(self) -> int:
        """Warps that an SM runs at a time."""
        limits = ARCHS[self.arch]
        of_block = -(-self.threads // 32)
        blocks = min(limits.blocks, limits.warps // of_block)
        blocks = min(blocks, 4 * (_QUARTER // (-(-self.registers // 8) * 256)) // of_block)
        of_each = self.shared + (limits.reserved << 10)
        return of_block * (min(blocks, (limits.shared << 10) // of_each) if of_each else blocks)


def build(kernels: str, folder: Path, archs: Sequence[str]) -> list[Usage]:
    """Compile kernels into a folder, as NAME.ARCH.ptx, if nobody has done so.

    Parameters
    ----------
    kernels : str
        Module and name of a sequence of `gpu_offline.kernels.Kernel`, e.g. ``"module:KERNELS"``.
    folder : Path
        Made if it does not exist.
    archs : sequence of str
        Of `ARCHS`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    usages = folder / "usages.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not usages.exists():
            command = [sys.executable, "-m", "gpu_offline.compiler", kernels, str(folder), *archs]
            places = (str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", ""))
            path = os.pathsep.join(filter(None, places))
            subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
    return [Usage(**fields) for fields in json.loads(usages.read_text())]


def _compile(kernel: Any, folder: Path, archs: Sequence[str]) -> Iterator[Usage]:
    from numba.cuda.compiler import _compile_pyfunc_with_fixup

    options = kernel.dispatcher.targetoptions
    # What `cuda.compile` calls; that would compile from the start for each architecture.
    library, _ = _compile_pyfunc_with_fixup(
        kernel.dispatcher.py_func,
        kernel.types,
        device=False,
        abi="numba",
        cc=_capability(archs[0]),
        fastmath=options["fastmath"],
        launch_bounds=options.get("launch_bounds"),
    )
    library._lto = options["lto"]  # as a launch has it; what was called leaves it out
    for arch in archs:
        path = folder / f"{kernel.name}.{arch}.ptx"
        path.write_text(_ptx(library, arch))
        yield Usage(kernel.name, arch, kernel.threads, **_assemble(path, arch))


def _ptx(library: Any, arch: str) -> str:
    """Return the PTX that a launch loads: with nvJitLink, what is made when it is linked."""
    capability = (*_capability(arch), _features(arch))
    if library._lto:
        return str(library.get_lto_ptx(cc=capability).rstrip("\0"))
    (ptx,) = library.get_asm_strs(cc=capability)
    return str(ptx)


def _features(arch: str) -> str:
    """Return the suffix with which numba compiles for a device: all that the architecture has."""
    return "a" if _capability(arch) >= (9, 0) else ""


def _capability(arch: str) -> tuple[int, int]:
    major, minor = divmod(int(arch.removeprefix("sm_")), 10)
    return major, minor


def _assemble(path: Path, arch: str) -> dict[str, int]:
    """Return what ptxas says of registers and memory."""
    target = arch + _features(arch)
    command = [_ptxas(), "-v", f"-arch={target}", str(path), "-o", str(path.with_suffix(".cubin"))]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    words = {
        "registers": r"Used (\d+) registers",
        "stack": r"(\d+) bytes stack frame",
        "spills": r"(\d+) bytes spill stores",
        "shared": r"(\d+) bytes smem",
    }
    found = {name: re.search(pattern, log) for name, pattern in words.items()}
    if not all(found[name] for name in ("registers", "stack", "spills")):
        raise ValueError(f"ptxas says nothing of registers, stack or spills: {log}")
    return {name: int(match[1]) if match else 0 for name, match in found.items()}


def _ptxas() -> str:
    import nvidia

    for root in nvidia.__path__:
        for path in Path(root).glob("*/bin/ptxas"):
            return str(path)
    raise FileNotFoundError("no ptxas: pip install nvidia-cuda-nvcc")


def _main(kernels: str, folder: str, *archs: str) -> None:
    import importlib

    import numba.cuda.dispatcher

    gc.disable()  # a fifth of the time, in a process that ends soon

    numba.cuda.dispatcher.get_current_device = lambda: SimpleNamespace(
        compute_capability=_capability(archs[0])
    )
    module, _, name = kernels.partition(":")
    found = getattr(importlib.import_module(module), name)
    usages = [asdict(usage) for kernel in found for usage in _compile(kernel, Path(folder), archs)]
    Path(folder, "usages.json").write_text(json.dumps(usages))


if __name__ == "__main__":
    _main(*sys.argv[1:])
