"""The command ``dali-pipelines show``, from a clone: see ``python scripts/show.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("show"))
