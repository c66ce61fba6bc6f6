"""The command ``dali-pipelines export``, from a clone: see ``python scripts/export.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("export"))
