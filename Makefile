# Every target sets up what it needs: a virtual environment in .venv, once. `make PYTHON=python3.12 ...` picks the Python.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.weft-ready

# Modules are compiled once, whatever the environment says: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test fuzz lint types gate bench table clean

help:
	@echo "make demo   compile two kernels from their loops, run, check and time them here"
	@echo "make test   lint, types, the compilation gate and the tests"
	@echo "make fuzz   20,000 random kernels, 5,000 gradients and 20,000 verdicts against the plain Python"
	@echo "make lint   ruff and mypy"
	@echo "make gate   every library kernel through NVRTC: no spills, no performance warnings"
	@echo "make bench  all benchmarks that this machine can run, into bench/results/"
	@echo "make table  the results in bench/results/, written into README.md, docs/measured.md and docs/pointwise.md"

# torch first and pinned: left to the resolver, it is the newest build with gigabytes of CUDA libraries. With everything
# installed, pip needs no network for the last line (no build isolation: setuptools is already there).
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "weft needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -c 'import setuptools' 2>/dev/null || $(BIN)/python -m pip install --quiet 'setuptools>=77'
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[dev,plot]'
	@touch $@

setup: $(STAMP)

demo: $(STAMP)
	$(BIN)/weft demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

gate: $(STAMP)
	$(BIN)/python -m tests.gate

test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint gate
	$(BIN)/pytest -n 2 --dist worksteal

# Random programs: fewer with PROGRAMS=400, other ones with FIRST=100000, on a GPU with DEVICE=cuda.
PROGRAMS ?= 20000
FIRST ?= 0
DEVICE ?= cpu
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --first $(FIRST) --programs $(PROGRAMS) --device $(DEVICE)
	$(BIN)/python -m tests.fuzz --first $(FIRST) --programs $(PROGRAMS) --road schedule
	$(BIN)/python -m tests.fuzz --first $(FIRST) --programs $$(($(PROGRAMS) / 4)) --gradients
	$(BIN)/pytest -n 2 -m "fuzz or long" --programs 200

bench: $(STAMP)
	$(BIN)/python -m bench.all

table: $(STAMP)
	$(BIN)/python -m bench.table

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
