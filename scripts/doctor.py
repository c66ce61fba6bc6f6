"""The command ``dali-pipelines doctor``, from a clone: see ``python scripts/doctor.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("doctor"))
