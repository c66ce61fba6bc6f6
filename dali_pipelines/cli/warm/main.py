"""Compile the kernels for the CPU in advance, e.g. while a container image is built.

    dali-pipelines warm
    dali-pipelines warm --pipeline fits aia
    NUMBA_CACHE_DIR=/opt/kernels dali-pipelines warm

Otherwise the first run in each new container compiles its kernels, which takes some seconds.
Compiled kernels are kept in NUMBA_CACHE_DIR, or in the cache folder of the user's home. Runs must
set the same NUMBA_CACHE_DIR. The files may be read-only. On CPUs of another kind or with other
features, a run compiles its own kernels. Kernels for GPUs are compiled by the first run on a GPU.

The exit status is 0; 1 if a kernel was not compiled or not kept, 2 for wrong usage, 130 if
interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from dali_pipelines.cli.errors import command, count
from dali_pipelines.cli.options import option, parse

_ENTRIES = "dali_pipelines.kernels.entries:"
KERNELS = {
    "fits": (
        *(f"{_ENTRIES}decode_entry {dtype}" for dtype in ("float32", "uint8", "int16", "int32")),
        *(f"{_ENTRIES}resize_entry float32 {dtype}" for dtype in ("float32", "uint8")),
        f"{_ENTRIES}stretch_entry",
        *(f"{_ENTRIES}nearest_entry {dtype}" for dtype in ("float32", "uint8", "int16", "int32")),
        "readers.fits.tiles.hcompress:compile_all",
    ),
    "jpeg": (
        f"{_ENTRIES}resize_entry uint8 float32",
        f"{_ENTRIES}resize_entry uint8 uint8",
        f"{_ENTRIES}resize_entry float32 float32",
        *(f"{_ENTRIES}nearest_entry {dtype}" for dtype in ("uint8", "uint16", "float32")),
        "readers.jpeg.mcu.cut:compile_once",
    ),
    "aia": (f"{_ENTRIES}decode_entry float32", f"{_ENTRIES}warp_entry"),
    "augment": tuple(
        f"{_ENTRIES}{name}_entry" for name in ("retouch", "noise", "photon_noise", "choose_part")
    ),
}
"""Functions that compile the kernels of a pipeline, or of augmentations, and their arguments."""


@dataclass(frozen=True, kw_only=True)
class WarmConfig:
    """Flags of `warm`."""

    pipeline: tuple[str, ...] | None = option(
        None,
        "pipelines to compile for, and augment for augmentations (default: all)",
        type=str,
        nargs="+",
        choices=tuple(KERNELS),
    )


@command("warm")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if a kernel was not compiled or not kept, 2 for wrong usage."""
    config = parse(WarmConfig, argv, __doc__, "warm")
    from dali_pipelines.kernels.jit import JIT

    if JIT.folder is None:
        return 1  # the log has the error
    names = {name for pipeline in config.pipeline or KERNELS for name in KERNELS[pipeline]}
    messages = [message for message in map(_compile, sorted(names)) if message]
    print(*messages, sep="\n", end="\n" * bool(messages), file=sys.stderr)
    if not messages:
        print(f"{count(len(names), 'kernel')} compiled, and kept in {JIT.folder.parent}.")
    return 1 if messages else 0


def _compile(name: str) -> str:
    """Compile a kernel, unless it is kept already; return an error message, or ""."""
    path, *arguments = name.split()
    module, _, function = path.rpartition(":")
    try:
        getattr(import_module(module), function)(*arguments)
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"
    return ""
