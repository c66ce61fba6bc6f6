"""The command ``dali-pipelines warm``, from a clone: see ``python scripts/warm.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("warm"))
