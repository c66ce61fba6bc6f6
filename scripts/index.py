"""The command ``dali-pipelines index``, from a clone: see ``python scripts/index.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("index"))
