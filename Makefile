# Everything a newcomer needs: `make demo` and `make test`. Nothing is installed outside this directory.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SHELL  := /bin/sh
PEER_PYTHON := $(if $(PEERS),--peers .venv-peers/bin/python)

.PHONY: help demo test test-extras check format build bench docs recording clean

help:
	@echo "make demo         set up .venv and see what vade does"
	@echo "make test         set up .venv and run the tests (under three minutes)"
	@echo "make check        the full gate: format, lint, types, layers, tests"
	@echo "make test-extras  the heavy tests: the wheel on each Python, pages in a browser, Ray, Mesa, thousands of real skills"
	@echo "make build        the wheel and the sdist, into dist/"
	@echo "make docs         the documentation as a site, into site/"
	@echo "make bench        benchmark tables; PEERS=1 adds other libraries, SKILLS=N sets the size"
	@echo "make recording    record docs/first-minutes.svg anew, when what vade prints has changed"

$(VENV)/.base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("vademecum needs Python 3.11 or newer, this is %s: run make PYTHON=python3.12" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "adding the test tools ..."
	@$(PIP) -e '.[dev]'
	@touch $@

demo: $(VENV)/.base
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

# Tests wait for processes as long as they compute, so two cores have work for four workers.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 4 --dist worksteal -rs

$(VENV)/.extras: $(VENV)/.dev
	@echo "adding what the heavy tests need ..."
	@$(PIP) -e '.[ray,mesa,frameworks,docs]'
	@touch $@

test-extras: $(VENV)/.extras
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m extras

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

build: $(VENV)/.dev
	@rm -rf dist
	@$(BIN)/python -m hatchling build

$(VENV)/.docs: $(VENV)/.dev
	@echo "adding what builds the documentation ..."
	@$(PIP) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m docs.build_reference
	@mkdir -p $(VENV)/tmp
	TMPDIR=$(CURDIR)/$(VENV)/tmp NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

bench: $(VENV)/.dev $(if $(PEERS),.venv-peers/.ready)
	$(BIN)/python -m bench.index $(if $(SKILLS),--skills $(SKILLS) --largest $(SKILLS)) $(PEER_PYTHON)
	$(BIN)/python -m bench.awkward $(PEER_PYTHON)
	$(BIN)/python -m bench.search $(if $(SKILLS),--large $(SKILLS))
	$(BIN)/python -m bench.load
	$(BIN)/python -m bench.policy $(PEER_PYTHON)
	$(BIN)/python -m bench.script
	$(BIN)/python -m bench.masking
	$(BIN)/python -m bench.packages
	$(BIN)/python -m bench.agent
	$(BIN)/python -m bench.packs $(if $(SKILLS),--skills $(SKILLS))
	$(BIN)/python -m bench.governance $(if $(SKILLS),--agents $(SKILLS)) $(PEER_PYTHON)
	$(BIN)/python -m bench.evals $(if $(SKILLS),--cases $(SKILLS)) $(PEER_PYTHON)
	$(BIN)/python -m bench.integrations $(if $(SKILLS),--skills $(SKILLS))

recording: $(VENV)/.base
	$(BIN)/python -m docs.record

.venv-peers/.ready: bench/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r bench/peers.txt
	@touch $@

clean:
	rm -rf .venv .venv-peers build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
