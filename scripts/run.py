"""The command ``dali-pipelines run``, from a clone: see ``python scripts/run.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("run"))
