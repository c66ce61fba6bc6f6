"""The command ``dali-pipelines stats``, from a clone: see ``python scripts/stats.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("stats"))
