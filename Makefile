# make demo · make test · make bench · make accuracy · make check: each makes .venv and installs what it needs, once per pyproject.toml
# make test-oldest   the tests with the oldest Python, and every library in the oldest version, that pyproject.toml allows
# make mutants    how many small changes of linker/ and converter/ the tests find; MUTANTS='--modules linker/matching/ops.py --sample 50'
# make fuzz       20,000 hostile files through all commands, then builds stopped at fifty moments; FUZZ='--cases 300 --seed 7' for other
#                 files alone, or '--case host:7:123' for one of them again
# make dist       source package and wheel in out/dist, the same bytes from the same commit
# make docs       writes the pages that are made of tables and docstrings in the code, and builds the site: out/site/index.html
# make coverage   the tests with branches measured, in the commands' own processes, too; fails below the gate of pyproject.toml
# PYTHON=python3.12 make test    uses another Python (3.10 or newer), for test-oldest as well

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
OLDEST := .venv-oldest
OLDEST_PYTHON = $(if $(filter file,$(origin PYTHON)),$(shell sed -n 's/^requires-python = ">=\(.*\)"/python\1/p' pyproject.toml),$(PYTHON))
PIP := -m pip --quiet --disable-pip-version-check

SAMPLE := tests/data/training
HOST := $(SAMPLE)/host_rank0.json.gz
DEVICE := $(SAMPLE)/device_rank0.json.gz
OUT := out/demo

.PHONY: demo test test-oldest coverage bench accuracy mutants fuzz docs dist check lint format types clean

demo: $(VENV)/.ready
	@mkdir -p $(OUT)
	$(BIN)/trace-link --host-trace $(HOST) --device-trace $(DEVICE) --output $(OUT)/linked.json.gz
	$(BIN)/trace-convert --input $(OUT)/linked.json.gz --output $(OUT)/graph.0.et
	$(BIN)/trace-replay --input $(OUT)/graph.0.et --timeline $(OUT)/timeline.json
	$(BIN)/trace-jsonize --input $(OUT)/graph.0.et --output $(OUT)/graph.json
	@echo "The first nodes of $(OUT)/graph.json:"
	@$(BIN)/python -c 'import json; [print(json.dumps(node)) for node in json.load(open("$(OUT)/graph.json"))["nodes"][:3]]'

test: $(VENV)/.test
	$(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

test-oldest: $(OLDEST)/.test
	$(OLDEST)/bin/pytest --numprocesses auto --maxprocesses 8 --dist loadfile

coverage: $(VENV)/.test
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

bench: $(VENV)/.ready
	$(BIN)/python -m execgraph.tools.bench

accuracy: $(VENV)/.ready
	$(BIN)/python -m execgraph.tools.accuracy
	$(BIN)/python -m execgraph.tools.accuracy.scaling
	$(BIN)/python -m execgraph.tools.ablation $(if $(EXECGRAPH_TRACES),--traces $(EXECGRAPH_TRACES))

mutants: $(VENV)/.test
	$(BIN)/python tests/mutants.py $(MUTANTS)

fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz/commands.py $(FUZZ)
	$(if $(FUZZ),,EXECGRAPH_ENDINGS=50 $(BIN)/pytest --quiet tests/test_endings.py)

docs: $(VENV)/.docs
	$(BIN)/python docs/formats.py
	$(BIN)/python docs/python_api.py
	$(BIN)/python docs/notebook.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# of the commit, whatever else is in the tree
dist: $(VENV)/.test
	@rm -rf out/committed && mkdir -p out/committed
	git archive HEAD | tar -x -C out/committed
	cd out/committed && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(CURDIR)/$(BIN)/python tests/packages.py ../dist
	@rm -rf out/committed

check: lint format types

lint: $(INSTALLED)/.check
	$(INSTALLED)/bin/ruff check

format: $(INSTALLED)/.check
	$(INSTALLED)/bin/ruff format --check

# of the installed package, out of reach of the source tree: that is what users check their code against
types: $(INSTALLED)/.check
	@rm -rf build
	$(INSTALLED)/bin/python $(PIP) install --no-deps --force-reinstall .
	@rm -rf build
	cd $(INSTALLED) && bin/mypy --config-file $(CURDIR)/pyproject.toml -p execgraph

clean:
	rm -rf $(VENV) $(OLDEST) build out *.egg-info .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.*

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("Python 3.10 or newer is needed: set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(PIP) install --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(PIP) install --editable '.[test]'
	@touch $@

# pip takes constraints for what it builds with from either variable, by its version
$(OLDEST)/.test: pyproject.toml tests/lower_bounds.py
	@$(OLDEST_PYTHON) --version || { echo "$(OLDEST_PYTHON) is needed, or another by PYTHON="; exit 1; }
	$(OLDEST_PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python tests/lower_bounds.py > $(OLDEST)/constraints.txt
	PIP_CONSTRAINT=$(CURDIR)/$(OLDEST)/constraints.txt PIP_BUILD_CONSTRAINT=$(CURDIR)/$(OLDEST)/constraints.txt \
		$(OLDEST)/bin/python $(PIP) install --editable '.[test]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(PIP) install --editable '.[docs]'
	@touch $@

$(INSTALLED)/.check: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m venv --clear $(INSTALLED)
	$(INSTALLED)/bin/python $(PIP) install '.[check]'
	@rm -rf build
	@touch $@
