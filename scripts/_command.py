"""Run a command of the installed package from a clone."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def command(name: str) -> int:
    """Run ``dali-pipelines NAME`` with the arguments of this process; return its exit status."""
    if not find_spec("dali_pipelines"):
        print(
            f"{name}.py: dali_pipelines is not installed for {sys.executable}: run "
            "'make .venv/ready' and '. .venv/bin/activate', or pip install '.[cli]'",
            file=sys.stderr,
        )
        return 2
    from dali_pipelines.cli.main import main

    return main([name, *sys.argv[1:]])
