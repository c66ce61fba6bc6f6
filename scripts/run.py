"""The command ``dali-pipelines run`` from a clone; see ``python scripts/run.py --help``."""

import sys
from importlib.util import find_spec


def main() -> int:
    """Run the command with the arguments of this process; return its exit status."""
    if not find_spec("dali_pipelines"):
        print(
            f"run.py: dali_pipelines is not installed for {sys.executable}: run "
            "'make .venv/ready' and '. .venv/bin/activate', or pip install '.[cli]'",
            file=sys.stderr,
        )
        return 2
    from dali_pipelines.cli import main as program

    return program.main(["run", *sys.argv[1:]])


if __name__ == "__main__":
    raise SystemExit(main())
