# make help       this list
# make up         set-up, then the quickstart scenario
# make test       set-up, then lint and all tests
# make test-fast  lint and the tests that need no root, network or Docker: the inner loop
# make test-vm    set-up, then a run below systemd on a stock Debian kernel, in qemu
# make stress     set-up, then 18 minutes (20 at most) of kills, damaged input and repetition
# make bench      set-up, then every benchmark
# make bench-host set-up, then the network's benchmark beside Mininet, on a kernel with netem in a guest
# make lint       set-up, then ruff and mypy
# make clean      remove .venv and caches; runs/ stays
# make setup      install what is missing: .venv from PyPI, system packages from Debian (as root). Quick when nothing is

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TESTBED = .venv/bin/testbed

.PHONY: help setup up test test-fast test-vm lint stress bench bench-host clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# //p' Makefile | sed -n '/^make /p'

setup: .venv/ready
	@scripts/install-system-packages

.venv/ready: pyproject.toml constraints.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt 'setuptools>=77' wheel
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
	.venv/bin/pytest -m '(not netem or beside) and not thorough' --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 10
	.venv/bin/pytest -m 'netem and not beside and not thorough' --durations 10

# No network, no containers, little torch: the inner loop. The rest of a package's tests: .venv/bin/pytest tests/PACKAGE
FAST = tests/scenario tests/topology tests/plan tests/link tests/run tests/answer tests/results tests/test_cli.py \
	tests/test_layers.py tests/test_readme.py tests/test_safe_files.py tests/test_verdict.py

test-fast: lint
	.venv/bin/pytest -m 'not netem and not docker and not slow and not thorough' --numprocesses auto --dist loadfile -q $(FAST)

# Without KVM qemu translates all code: it shows that things work, and times nothing.
test-vm: setup
	@scripts/install-system-packages --vm
	.venv/bin/pytest tests/vm/check_stock_kernel.py

stress: setup
	@scripts/install-system-packages --tests
	.venv/bin/pytest -m thorough
	.venv/bin/python -m tests.stress

bench: setup
	@scripts/install-system-packages --bench
	$(TESTBED) bench network
	$(TESTBED) bench compressors
	$(TESTBED) bench transport
	$(TESTBED) bench report

# The links in a kernel of their own that has netem, also where this machine's has none.
bench-host: setup
	@scripts/install-system-packages --guest
	@scripts/install-system-packages --bench
	.venv/bin/python -m tests.hostbox.guest $(TESTBED) bench network --box host

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
