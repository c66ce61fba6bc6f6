"""``python -m dali_pipelines``: the program ``dali-pipelines``."""

from dali_pipelines.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
