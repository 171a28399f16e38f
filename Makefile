# One target per thing a person does. `make demo` and `make test` set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TENSORFLOW ?= tensorflow-cpu
WORKERS ?= 2

.PHONY: demo test test-long lint types imports docs audit check clean

demo: $(STAMP) ## the whole loop on this machine, about seven minutes
	$(BIN)/mlgitops demo

# A file stays with one worker, so that models which its tests share are made once.
test: $(STAMP) ## every test that needs no absent service
	$(BIN)/python -m pytest -m "not long" -n $(WORKERS) --dist loadfile

test-long: $(STAMP) ## what exceeds the time of `make test`
	$(BIN)/python -m pytest -m long

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

imports: $(STAMP) ## one direction of imports
	$(BIN)/lint-imports

docs: $(STAMP) ## write the reference anew from schemas and commands
	$(BIN)/python docs/generate.py

audit: $(STAMP) ## known weaknesses of locked packages and workflows; says what could not be asked
	$(BIN)/python .ci/audit.py

check: lint types imports ## all that reads code only

clean: ## what the targets made
	rm -rf $(VENV) demo-run

# Installing is done once for each state of the lock; uv does in seconds what pip does in minutes. Without compiled
# bytecode every import of TensorFlow would take three times as long, on machines that do not write it.
$(STAMP): pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.8,<1"
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --compile-bytecode requirements-dev.txt
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	touch $(STAMP)
