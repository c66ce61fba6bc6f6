"""The decoder of images compiled for aarch64, and run by an emulator of that CPU.

    NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= PYTHONPATH=tests python -m aarch64 FILE

writes the object file: numba compiles for the CPU that it runs on, so its LLVM of the form without
vectors is compiled once more.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from cpu_forms import WITHOUT_VECTORS
from numpy.typing import NDArray

from readers import Sample

TOOLS = ("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
"""Of Debian's packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static."""
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]

_TRIPLE = "aarch64-unknown-linux-gnu"
_HERE = Path(__file__).parent

# How x86 counts references down. numba's runtime was compiled before.
_SUB = "llvm.x86.atomic.sub.cc.i64"
_SUB_LLVM = """
define internal i8 @sub_is_zero(ptr %at, i64 %by, i32 %condition) {
  %before = atomicrmw sub ptr %at, i64 %by seq_cst
  %is_zero = icmp eq i64 %before, %by
  %result = zext i1 %is_zero to i8
  ret i8 %result
}
"""


def build(folder: Path) -> Path:
    """Compile the decoder and its caller; return the program."""
    decoder, program = folder / "decode.o", folder / "decode"
    environment = {**os.environ, **WITHOUT_VECTORS, "PYTHONPATH": str(_HERE)}
    _checked([sys.executable, "-m", "aarch64", str(decoder)], environment)
    source = str(_HERE / "aarch64.c")
    _checked([TOOLS[0], "-O1", "-static", "-o", str(program), source, str(decoder), "-lm"])
    return program


def decoded(
    program: Path, samples: Sequence[Sample], folder: Path
) -> list[NDArray[np.float32] | None]:
    """Decode samples to float32, shape (height, width) each; None for one that is damaged."""
    shapes = [sample["shape"].shape[:2] for sample in samples]
    jobs, results = folder / "jobs", folder / "results"
    with jobs.open("wb") as file:
        for sample, shape in zip(samples, shapes, strict=True):
            arrays = [sample[name] for name in ("payload", "plan", "scaling")]
            arrays += [np.zeros(2, np.int32), np.array((0, 1), np.float32)]
            file.write(np.array([*shape, *(array.nbytes for array in arrays)], np.int64).tobytes())
            file.writelines(array.tobytes() for array in arrays)
    _checked([TOOLS[1], str(program), str(jobs), str(results)])
    content, at = results.read_bytes(), 0
    found: list[NDArray[np.float32] | None] = []
    for height, width in shapes:
        status = int(np.frombuffer(content, np.int32, 1, at)[0])
        pixels = np.frombuffer(content, np.float32, height * width, at + 4)
        found.append(pixels.reshape(height, width) if status == 0 else None)
        at += 4 + pixels.nbytes
    assert at == len(content)
    return found


def _checked(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def main(out: str) -> None:
    """Write the decoder of float32 images as an object file, its entry called ``run``."""
    import llvmlite.binding as llvm
    from numba import cfunc
    from numba.core.codegen import JITCPUCodegen

    from dali_pipelines.kernels import entries
    from dali_pipelines.kernels.vectors import HAS_VECTORS

    assert not HAS_VECTORS
    modules: list[str] = []
    add = JITCPUCodegen._add_module

    def noted(self: JITCPUCodegen, module: llvm.ModuleRef) -> None:
        modules.append(str(module))
        add(self, module)

    # Compiled code from the cache has no LLVM; that of its parts is linked in.
    entry = entries.decode_entry("float32").run._pyfunc
    with mock.patch.object(JITCPUCodegen, "_add_module", noted):
        name = cfunc(entries._RUN)(entry)._wrapper_name
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(_TRIPLE)
    machine = target.create_target_machine(cpu="generic", opt=3, reloc="pic", codemodel="default")
    text = modules[-1].replace(name, "run")
    text = re.sub('target datalayout = ".*"', f'target datalayout = "{machine.target_data}"', text)
    text = re.sub('target triple = ".*"', f'target triple = "{_TRIPLE}"', text)
    text = re.sub(rf"declare i8 @{re.escape(_SUB)}\(.*\n", _SUB_LLVM, text)
    module = llvm.parse_assembly(text.replace(_SUB, "sub_is_zero"))
    module.verify()
    Path(out).write_bytes(machine.emit_object(module))


if __name__ == "__main__":
    main(*sys.argv[1:])
