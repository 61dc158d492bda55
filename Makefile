# make up     set-up, then the quickstart scenario
# make test   set-up, then lint and all tests
# make bench  set-up, then every benchmark
# make lint   set-up, then ruff and mypy
# make clean  remove .venv and caches; runs/ stays
# make setup  install what is missing: .venv from PyPI, system packages from Debian (as root). Quick when nothing is

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TESTBED = .venv/bin/testbed

.PHONY: setup up test lint bench clean
.DELETE_ON_ERROR:

setup: .venv/ready
	@scripts/install-system-packages

.venv/ready: pyproject.toml constraints.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt setuptools wheel
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --no-build-isolation \
		--config-settings editable_mode=compat --editable '.[dev]' # found wherever one is, beside this directory too
	touch $@

up: setup
	$(TESTBED) up scenarios/quickstart.yaml

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# What times emulated networks runs alone, in order; all else uses every core.
test: lint
	@scripts/install-system-packages --tests
	.venv/bin/pytest -m 'not netem or beside' --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 10
	.venv/bin/pytest -m 'netem and not beside' --durations 10

bench: setup
	@scripts/install-system-packages --bench
	$(TESTBED) bench network
	$(TESTBED) bench compressors
	$(TESTBED) bench transport
	$(TESTBED) bench report

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
