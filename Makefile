# Two commands are enough: `make run` and `make test`.  `make check` is what CI runs, and
# `make help` lists them all.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# What runs: the package and its dependencies.  What tests, in addition: everything that is pinned.
RUNNABLE := $(VENV)/.runnable
INSTALLED := $(VENV)/.installed
# A second, ordinary installation: benchmarks and the import budget measure what users get.
WHEEL_VENV := $(VENV)/wheel
WHEEL_INSTALLED := $(VENV)/.wheel-installed
# What an installation needs, so that tests can install without a network.
PACKAGES := $(VENV)/packages
# What `make dist` needs: a compiler for every processor, and what checks the result.
RELEASE := $(VENV)/release
# Both doors, for tests: the Python client, and the native client with the sanitizers in it.
DOORS := $(VENV)/doors
# An agent that reads what `icctl setup` writes.
CODEX := $(VENV)/codex
CODEX_VERSION := 0.169.0
# The one place that says it is icd/__init__.py.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' icd/__init__.py)
SANITIZE := -DINTERCORE_VERSION='"$(VERSION)"' -std=c11 -g -O1 -Wall -Wextra -Werror -fno-omit-frame-pointer \
    -fsanitize=address,undefined -fno-sanitize-recover=all
CC := $(shell command -v cc || command -v gcc)
CLANG := $(shell command -v clang)
FUZZ_SECONDS ?= 60
# Most tests wait for processes: twice as many workers as processors keep these busy.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
# What is long is busy, too.
LONG_WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
SOURCES := pyproject.toml lib-intercore.sh $(shell find icd icctl systemd lib-intercore -type f -not -path '*/__pycache__/*')

# pytest keeps the assertions that it rewrote, or each worker rewrites those of all files anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test stress torture lint check bench fuzz clean docs screens picture pictures house hooks codex dist
.DEFAULT_GOAL := test

# The native client, beside client.c.
PARTS := icctl/ensure.c icctl/helper.c icctl/hold.c icctl/hook.c icctl/event.c icctl/spawn.c
CLIENT := icctl/build.py icctl/bin/icctl-python icctl/client.c icctl/client.h icctl/event.h \
    $(PARTS)

help:  ## List what can be made.
	@echo 'usage: make TARGET; without one: $(.DEFAULT_GOAL)'
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)$$/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | sort | expand -t 12

# requirements.txt pins what pyproject.toml asks for.  hatchling and editables build the package.
$(RUNNABLE): pyproject.toml requirements.txt icd/__init__.py $(CLIENT)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "intercore needs Python 3.11 or newer; try: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "Installing intercore and the packages that it needs into $(VENV): less than a minute, once ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -c requirements.txt hatchling editables click msgspec
	@$(PIP) install -c requirements.txt --no-build-isolation -e .
	@touch $@

$(INSTALLED): $(RUNNABLE)
	@echo "Installing what the tests need into $(VENV): a minute or two, once ..."
	@$(PIP) install -r requirements.txt
	@touch $@

$(WHEEL_INSTALLED): $(INSTALLED) $(SOURCES)
	test -x $(WHEEL_VENV)/bin/python || $(PYTHON) -m venv $(WHEEL_VENV)
	rm -rf $(VENV)/dist
	$(PIP) wheel --no-build-isolation --no-deps -w $(VENV)/dist .
	wheel=$$(echo $(VENV)/dist/intercore-*.whl) && \
	    $(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.txt "$$wheel[vectors]"
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $(VENV)/dist/intercore-*.whl
	@touch $@

$(PACKAGES)/.fetched: $(INSTALLED) tests/support/pythons.py
	$(PIP) download -d $(PACKAGES) -c requirements.txt \
	    aiosqlite anyio click msgspec numpy hatchling editables pip
	for version in $$($(BIN)/python -m tests.support.pythons); do \
	    $(PIP) download -d $(PACKAGES) -c requirements.txt --only-binary=:all: --python-version $$version \
	        aiosqlite anyio click msgspec || exit; done
	@touch $@

$(RELEASE)/.installed: requirements.txt requirements-release.txt
	test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check \
	    -c requirements.txt -r requirements-release.txt hatchling click msgspec
	@touch $@

dist: $(RELEASE)/.installed  ## Build the distributions of a release in dist: the sources, and a wheel for each platform.
	$(RELEASE)/bin/python -m tests.support.distributions dist

$(DOORS)/.made: $(INSTALLED) $(CLIENT)
	rm -rf $(DOORS)
	mkdir -p $(DOORS)/python $(DOORS)/native
	for door in python native; do ln -s ../../bin/icd ../../bin/icctl-python $(DOORS)/$$door; done
	for name in icctl ic; do ln -s icctl-python $(DOORS)/python/$$name; done
	if [ -n "$(CC)" ]; then \
	    $(CC) $(SANITIZE) icctl/client.c $(PARTS) -o $(DOORS)/native/icctl && \
	    ln $(DOORS)/native/icctl $(DOORS)/native/ic; fi
	@touch $@

codex: $(CODEX)/.installed-$(CODEX_VERSION)  ## Install the Codex that tests show our configuration to.

$(CODEX)/.installed-$(CODEX_VERSION):
	mkdir -p $(CODEX)
	if command -v npm >/dev/null; then \
	    npm install --silent --no-audit --no-fund --prefix $(CODEX) @openai/codex@$(CODEX_VERSION) && touch $@; \
	else echo "npm is not there: the tests with Codex are skipped" >&2; fi

# Reads what a daemon could send; clang is Debian's `clang`.
$(DOORS)/fuzz: tests/fuzz/reply.c $(CLIENT) $(DOORS)/.made
	if [ -n "$(CLANG)" ]; then \
	    $(CLANG) $(SANITIZE) -fsanitize=fuzzer tests/fuzz/reply.c $(PARTS) -o $@ || \
	    echo "clang's fuzzer is not there: install Debian's clang and libclang-rt" >&2; fi

# Reads what an agent could send.
$(DOORS)/fuzz-event: tests/fuzz/event.c icctl/event.c icctl/event.h $(DOORS)/.made
	if [ -n "$(CLANG)" ]; then \
	    $(CLANG) $(SANITIZE) -fsanitize=fuzzer tests/fuzz/event.c icctl/event.c -o $@ || \
	    echo "clang's fuzzer is not there: install Debian's clang and libclang-rt" >&2; fi

fuzz: $(DOORS)/fuzz $(DOORS)/fuzz-event  ## Search for a reply, or an event, that breaks the native client.
	mkdir -p $(VENV)/corpus $(VENV)/corpus-events
	$(DOORS)/fuzz -close_fd_mask=3 -max_total_time=$(FUZZ_SECONDS) -max_len=4096 $(VENV)/corpus tests/data/replies
	$(DOORS)/fuzz-event -max_total_time=$(FUZZ_SECONDS) -max_len=4096 $(VENV)/corpus-events tests/data/events

run: $(RUNNABLE)  ## Start the daemon here, in the foreground.
	@echo 'Starting the daemon; Ctrl-C stops it.  In a second terminal, in a project of yours, type:'
	@echo '    export PATH="$(CURDIR)/$(BIN):$$PATH"'
	@echo '    icctl init && icctl status'
	@exec $(BIN)/icd serve

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
test: $(INSTALLED) $(DOORS)/.made  ## Run the tests, in minutes; what is marked `long` is for make check.
	$(PYTEST) -m "not long" $(COVERAGE)

stress: $(INSTALLED) $(DOORS)/.made  ## Races at full size: 10,000 events of 8 writers, 50 rounds of 100 processes.
	INTERCORE_STRESS=1 $(BIN)/python -m pytest -m long $(shell grep -rl 'sizes import size' tests --include='test_*.py')

SECONDS ?= 600
torture: $(INSTALLED) $(DOORS)/.made  ## Try to break every promise: SECONDS=600, SEED=…, SUITES="crash watch".
	$(BIN)/python -m tests.torture --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(SUITES)

lint: $(INSTALLED)  ## Run the linters and the type checker.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	git ls-files '*.sh' .ci/run | xargs -r $(BIN)/shellcheck

hooks: $(INSTALLED)  ## Have git run the fast linters before each commit.
	$(BIN)/pre-commit install

# The coverage of both parts is judged together, at the end.
check: COVERAGE := --cov --cov-report= --cov-fail-under=0
check: lint $(WHEEL_INSTALLED) $(PACKAGES)/.fetched $(RELEASE)/.installed $(DOORS)/fuzz $(DOORS)/fuzz-event codex test  ## Everything that must hold before a change lands: linters, every test, coverage.
	$(PYTEST) -n $(LONG_WORKERS) -m long $(COVERAGE) --cov-append
	$(BIN)/python -m coverage report

docs: $(INSTALLED)  ## Write the pages and tables of the documentation that are made from the program.
	$(BIN)/python -m tests.support.secrets_page
	$(BIN)/python -m tests.support.reference
	$(BIN)/python -m tests.support.mistakes
	$(BIN)/python -m tests.support.python_client
	$(BIN)/python -m tests.support.comparison
	$(BIN)/python -m tests.support.library
	$(BIN)/python -m tests.support.picture

screens: $(INSTALLED)  ## Write what people see on a terminal to tests/data/screens; look at the difference.
	$(BIN)/python -m tests.support.screens

picture: $(INSTALLED)  ## Play the session of the README in a terminal, and draw it.
	$(BIN)/python -m tests.support.picture

pictures: $(INSTALLED) $(DOORS)/.made  ## Play commands on a terminal, and draw what is seen for docs/images.
	$(BIN)/python -m tests.support.pictures

house: $(INSTALLED)  ## Count what a stranger needs: files per verb, modules, folders, the way of a call.
	@$(BIN)/python -m tests.support.house

BENCH ?=
bench: $(WHEEL_INSTALLED)  ## What calls cost, written to docs/performance.md; BENCH="search day" prints some.
	$(BIN)/python -m tests.bench $(BENCH)

clean:  ## Remove what was installed or built, and caches.
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
