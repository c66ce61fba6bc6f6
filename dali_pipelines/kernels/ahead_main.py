"""The process that compiles kernels ahead, see `dali_pipelines.kernels.ahead`."""

from __future__ import annotations

import contextlib
import gc
import sys
from importlib import import_module

from dali_pipelines.kernels import entries
from dali_pipelines.kernels.ahead import note
from readers.cache.kept import KernelCache
from readers.worker.parent_watch import die_with


def main() -> None:
    """Compile the kernels that the arguments name after the process to end with, and note it.

    Write the names of those of which not all had been compiled before.
    """
    die_with(int(sys.argv[1]))
    gc.disable()  # a tenth of the time, in a process that ends soon
    for name in sys.argv[2:]:
        path, *arguments = name.split()
        module, _, function = path.rpartition(":")
        before = KernelCache.compiled
        getattr(import_module(module) if module else entries, function)(*arguments)
        if KernelCache.compiled > before:
            sys.stdout.write(f"{name}\n")
        with contextlib.suppress(OSError):  # then a later run starts such a process again
            note(name).parent.mkdir(parents=True, exist_ok=True)
            note(name).touch()
