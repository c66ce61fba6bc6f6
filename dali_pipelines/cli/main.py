"""The program ``dali-pipelines``: run the command named by its first argument."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from dali_pipelines.cli.errors import command
from dali_pipelines.cli.options import Parser, Print
from dali_pipelines.runtime.version import own_version
from readers.messages import did_you_mean

COMMANDS = {
    "run": "iterate an archive, alone or under torchrun; report the speed and the bottleneck",
    "doctor": "check this machine for a run with the same flags",
    "index": "scan an archive once into an Index file; filter it, group it",
    "verify": "decode files, and compare the pixels with those of astropy, Pillow and others",
    "prep": "write level 1.5 files of AIA level 1 and HMI",
    "stats": "measure pixels, to choose mean, std and a stretch for a network",
    "show": "draw a contact sheet of what a network will see",
    "export": "write the preprocessing of a training as a model for NVIDIA Triton",
    "warm": "compile the kernels for the CPU, e.g. while a container image is built",
    "bench": "compare speed with other tools; from a clone of the repository only",
}
"""Each has a function `main` in `dali_pipelines.cli.NAME.main`."""


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0 for success, 2 for wrong usage, or another.

    `argv` has its name and its flags; by default they are the arguments of the process.
    """
    argv = sys.argv[1:] if argv is None else argv
    width = max(map(len, COMMANDS)) + 2
    parser = Parser(
        prog="dali-pipelines",
        description="DALI pipelines fed by parallel readers of FITS files, photographs, arrays, "
        "recordings and videos.\n\n"
        + "\n".join(f"  {name:{width}}{text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=Print,
        text=lambda parser: f"{parser.prog} {own_version()}\n",
        help="show the version, and exit",
    )
    parser.add_argument(
        "command", metavar="COMMAND", nargs="?", help="one of these; COMMAND --help lists its flags"
    )
    name: str | None = parser.parse_args(argv[:1]).command
    if name is None:
        print(parser.format_help(), end="", flush=True)
        return 0
    if name not in COMMANDS:
        asked = did_you_mean(name, COMMANDS, least=0.6)
        parser.error(f"no command {name!r}: {asked}Available commands: {', '.join(COMMANDS)}")

    @command(name)
    def run(argv: Sequence[str] | None = None) -> int:
        status: int = import_module(f"dali_pipelines.cli.{name}.main").main(argv)
        return status

    return run(argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
