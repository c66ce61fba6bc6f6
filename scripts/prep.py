"""The command ``dali-pipelines prep``, from a clone: see ``python scripts/prep.py --help``."""

from _command import command

if __name__ == "__main__":
    raise SystemExit(command("prep"))
