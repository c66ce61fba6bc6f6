# Each target sets up .venv by itself, with the versions in .ci/constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test check clean

run: .venv/ready
	$(BIN)/python scripts/run.py --num_read_processes=16 --batch_size=16 --num_gpus=4

test: .venv/ready
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/ready: pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv
