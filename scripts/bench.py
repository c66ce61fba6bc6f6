"""The command ``dali-pipelines bench``, from a clone: see ``python scripts/bench.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("bench"))
