# Each target sets up .venv by itself, with the versions in .ci/constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
# Containers set it; then each of the hundreds of processes that tests start would compile the same
# modules again.
unexport PYTHONDONTWRITEBYTECODE
# Errors only: what pip warns of (a newer pip, being root) would drown the figures of `make run`.
INSTALL := -m pip install -qq --disable-pip-version-check -c .ci/constraints.txt

# Two workers more than cores, as tests wait for processes; tests/conftest.py sets their order.
WORKERS := $(shell expr $$(nproc) + 2)
PYTEST := -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Not a part of `test`: where pip finds no build of torch for the CPU alone, each takes 7 GB of disk.
PYTHONS ?= 3.11 3.12 3.13
SHORT := tests/readers --deselect tests/readers/test_fuzz_files.py \
	tests/dali_pipelines/runtime tests/dali_pipelines/kernels/fits/test_rice.py \
	$(addprefix tests/dali_pipelines/test_, bad_files.py config.py ends.py loader.py package.py)

# What `make gpu` installs: gpu-cuda12 for drivers that offer CUDA 12 only. STAGES are described in
# tests/on_gpu/main.py; the default is all of them.
GPU_EXTRA ?= gpu
OUT ?= build/gpu

.PHONY: run test test-all test-pythons test-frameworks test-ray test-triton gpu check docs resolve clean

run: .venv/ready
	$(BIN)/python scripts/run.py --num_read_processes=16 --batch_size=16 --num_gpus=4

test: .venv/ready
	$(BIN)/python $(PYTEST) -m "not slow"

test-all: .venv/ready
	$(BIN)/python $(PYTEST)

test-pythons: $(PYTHONS:%=test-python-%)

test-python-%: .venv-%/ready
	.venv-$*/bin/python $(PYTEST) $(SHORT)

# Of what `test` has not: TensorFlow and PaddlePaddle.
test-frameworks: .venv-frameworks/ready
	.venv-frameworks/bin/python -m pytest -q tests/frameworks_page.py

# Not a part of `test`: Ray is large, and has an environment of its own.
test-ray: .venv-ray/ready
	.venv-ray/bin/python docs/examples/ray_train.py

# Not a part of `test`: it needs a Triton server.
test-triton: .venv-triton/ready
	.venv-triton/bin/python -m pytest -q tests/triton_models.py

gpu: .venv-$(GPU_EXTRA)/ready
	PYTHONPATH=tests .venv-$(GPU_EXTRA)/bin/python -m on_gpu.main --out="$(OUT)" \
		$(if $(STAGES),--stages="$(STAGES)")

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/docs-ready
	rm -rf docs/generated
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# Whether the extras for GPUs can be installed from the package index; nothing is installed.
resolve: $(foreach python,$(PYTHONS),$(foreach extra,gpu gpu-cuda12,resolve-$(extra)-$(python)))

resolve-%: .venv/ready
	@$(BIN)/python $(INSTALL) uv
	@found=$$($(BIN)/uv pip compile -q --no-annotate --no-header pyproject.toml \
		--python-platform x86_64-manylinux_2_28 --python-version $(lastword $(subst -, ,$*)) \
		--extra $(patsubst %-$(lastword $(subst -, ,$*)),%,$*)) && echo "$*:" $$(echo "$$found" \
		| grep -E "^(cupy|numba|nvidia-dali|torch)")

.venv/docs-ready: .venv/ready
	$(BIN)/python $(INSTALL) -e '.[dev,docs]'
	touch $@

.venv/ready: pyproject.toml .ci/constraints.txt
	@echo "installing into .venv, which takes some minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) -e '.[dev]'
	touch $@

.venv-ray/ready: pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(INSTALL) -e . 'ray[train]>=2.40'
	touch $@

# Without the versions of CI, whose numba-cuda and PyTorch are for machines without a GPU.
.venv-$(GPU_EXTRA)/ready: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -qq --disable-pip-version-check -e '.[$(GPU_EXTRA),gpu-tests]'
	touch $@

.venv-frameworks/ready: pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(INSTALL) -e '.[frameworks-tests]'
	touch $@

# PyTriton's wheel has the server, and alone it is enough: what it names is for NumPy below 2.
.venv-triton/ready: pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(INSTALL) -e '.[serving-tests]'
	$(@D)/bin/python $(INSTALL) --no-deps nvidia-pytriton
	touch $@

.PRECIOUS: .venv-%/ready
# By pyenv's newest of that version, if it has one; else python3.12 and the like.
.venv-%/ready: pyproject.toml .ci/constraints.txt
	$(lastword python$* $(sort $(wildcard $(HOME)/.pyenv/versions/$*.*/bin/python))) -m venv .venv-$*
	.venv-$*/bin/python $(INSTALL) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-* build docs/_build docs/generated docs/gallery docs/sg_execution_times.rst
