"""The command ``dali-pipelines verify``, from a clone: see ``python scripts/verify.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("verify"))
