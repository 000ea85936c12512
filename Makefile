# make run   installs amdcheck into .venv and judges this machine
# make test  everything that CI runs
# make lint  the same without the tests
# make acceptance  the long series, on a machine that is quiet for an hour; its result is written to be committed

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := run
.DELETE_ON_ERROR:
.PHONY: run test lint types acceptance system clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := amdcheck checks tests benchmarks
BUILT_FROM := pyproject.toml $(wildcard amdcheck/selftest/kernels/*)

# Tools that the tests let read our composed machines, compilers, an emulator of EPYC and aarch64 processors, and what makes
# a virtual environment.
SYSTEM_PACKAGES := acl binutils clang cmake gcc gcc-aarch64-linux-gnu hwloc-nox libc6-dev libc6-dev-arm64-cross make pciutils \
  python3-venv qemu-user rocm-smi util-linux

# 3 is right on a machine without AMD silicon: whatever the verdict is, it was reached, and that is success here.
run: $(VENV)/installed
	@code=0; $(BIN)/amdcheck all || code=$$?; \
	echo "exit code $$code"; \
	case $$code in 0|1|3) ;; *) exit $$code ;; esac

test: system lint
	$(BIN)/pytest -n auto -m "not live"
	$(BIN)/pytest -m live
	$(BIN)/python -m benchmarks.startup --rounds 9
	$(BIN)/python -m benchmarks.cpu_kernels --quick
	$(BIN)/python -m benchmarks.readings --sample
	$(BIN)/python -m benchmarks.truth --share 0.01

lint: $(VENV)/installed-test types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# All four together: checking the installed package alone would silently leave out checks/. The planted error proves it.
types: $(VENV)/installed-test
	$(BIN)/mypy --strict $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" .ci/planted-type-error

acceptance: $(VENV)/installed-test
	code=0; \
	$(BIN)/python -m benchmarks.truth --save || code=1; \
	$(BIN)/python -m benchmarks.readings || code=1; \
	exit $$code

# On Debian and Ubuntu as root, as in CI. Elsewhere the tests skip what needs a tool that is not there.
system:
	@command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] || exit 0; \
	missing=; \
	for package in $(SYSTEM_PACKAGES); do \
	  dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null | grep -q 'ok installed' || missing+=" $$package"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -q && apt-get install -qy --no-install-recommends $$missing

$(VENV)/bin/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(MAKE) --no-print-directory system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

$(VENV)/installed: $(VENV)/bin/python $(BUILT_FROM)
	$(BIN)/python -m pip install -q --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/bin/python $(BUILT_FROM)
	$(BIN)/python -m pip install -q --editable '.[test]'
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
