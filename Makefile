# What a person types. The first target of a fresh checkout makes the virtual environment.

PYTHON ?= python3
VENV ?= .venv
# Words for pytest or `pipo run`: make test ARGS='-k journal', make run ARGS='--listen 9000'.
ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed.stamp
SOURCES := services runner gateway checker cli docs proto/generate.py
PROTOS := $(wildcard proto/pipo/v1/*.proto)

# protoc finds its plugins, and tests find `pipo`, on the path. Not so for `make run`: what it
# prints to try next must work in a terminal without that path.
test check bench soak proto docs lock: export PATH := $(abspath $(BIN)):$(PATH)

.DELETE_ON_ERROR:
.PHONY: help run test check bench soak proto docs lock clean

help:
	@echo 'make run     start Pipo with the pipelines of examples/; Ctrl-C drains and stops it'
	@echo 'make test    run the tests'
	@echo 'make check   formatter, linter, strict types, stubs, protos, docs, import floors'
	@echo 'make bench   print the rates beside what the disk can do'
	@echo 'make soak    run the long tests'
	@echo 'make proto   build the stubs from proto/'
	@echo 'make docs    make the tables of docs/language.md anew'
	@echo 'make lock    resolve the dependencies anew'
	@echo 'make clean   remove what was built'

run: $(INSTALLED)
	@exec $(BIN)/pipo run $(ARGS) examples

test: $(INSTALLED)
	$(BIN)/python -m tests.suite -m 'not soak' $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(SOURCES) tests
	$(BIN)/python proto/generate.py --check
	$(BIN)/buf lint proto
	$(BIN)/python -m docs.generate --check
	$(BIN)/python -m pytest -q tests/unit/test_floors.py

bench: $(INSTALLED)
	$(BIN)/python -m tests.bench.bench

soak: $(INSTALLED)
	$(BIN)/python -m pytest -m 'soak or hypothesis' --hypothesis-profile=drawn-anew $(ARGS)

proto: $(INSTALLED) $(PROTOS)
	$(BIN)/python proto/generate.py

docs: $(INSTALLED)
	$(BIN)/python -m docs.generate

lock: $(INSTALLED)
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--extra dev --no-emit-index-url --no-annotate pyproject.toml -o requirements.lock
	UV=$(BIN)/uv sh deploy/lock.sh

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf examples/out examples/data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'error: Pipo needs Python 3.11 or newer as $(PYTHON)' >&2; \
		echo "  hint: make PYTHON=python3.12 ..., with a newer one's name" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'error: $(PYTHON) has no venv module' >&2; \
		echo '  hint: on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	@echo 'installing into $(VENV); once, a minute or two ...'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
