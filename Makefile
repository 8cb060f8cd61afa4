# Each target makes .venv and installs what it needs, once per pyproject.toml. `make` lists them, by what stands behind ## below.
# PYTHON=python3.12 make test    uses another Python (3.10 or newer), for test-oldest as well
# FUZZ='--case host:7:123'    the options of make fuzz: one file again, or with '--cases 300 --seed 7' other files alone

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
OLDEST := .venv-oldest
OLDEST_PYTHON = $(if $(filter file,$(origin PYTHON)),$(shell sed -n 's/^requires-python = ">=\(.*\)"/python\1/p' pyproject.toml),$(PYTHON))
PIP := -m pip --quiet --disable-pip-version-check

TRACES := tests/data/training
OUT := out/demo
PAGE := $(OUT)/report.html
REPORT = $(BIN)/trace-report $(TRACES) -o $(PAGE)

.PHONY: help demo test test-fast test-thorough test-oldest coverage bench accuracy fuzz docs dist check lint format types clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' $(MAKEFILE_LIST) | while read -r target what; do printf '%-12s %s\n' "$$target" "$$what"; done

demo: $(VENV)/.report ## from the traces of a small job to its graphs, a what-if answer, a picture and a report
	@mkdir -p $(OUT)
	$(BIN)/trace-build $(TRACES) -o $(OUT)/graphs
	$(BIN)/trace-replay $(OUT)/graphs
	$(BIN)/trace-replay $(OUT)/graphs --scale class:computation=0.5 | head -n 2
	$(BIN)/trace-view $(OUT)/graphs/graph.0.et -o $(OUT)/graph.svg --time 950:2300
	@echo 'The picture shows two all-reduces: kernels run next to the first, and wait for the second.'
	@rm -f $(PAGE)
	@if $(BIN)/python -c 'import altair' 2>/dev/null; then echo '$(REPORT)'; $(REPORT); \
		else echo "No report page: the libraries that draw it could not be installed; try $(BIN)/pip install '.[report]'"; fi
	@echo
	@echo "Next: open in a browser        $$(ls -d $(PAGE) $(OUT)/graph.svg 2>/dev/null | xargs)"
	@echo '      what these lines mean    docs/first-steps.md'
	@echo '      record your own job      docs/capture.md'

test: $(VENV)/.test ## the tests
	$(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

test-fast: $(VENV)/.test ## most tests, without files that take long: about a minute on two idle cores
	$(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile -m "not long"

test-thorough: $(VENV)/.test ## the tests with many examples and moments; says which take longest, and how long
	EXECGRAPH_FUZZ_EXAMPLES=1000 EXECGRAPH_FUZZ_CASES=20 EXECGRAPH_ENDINGS=50 $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist worksteal \
		--hypothesis-profile thorough --durations 20

test-oldest: $(OLDEST)/.test ## the tests with the oldest Python, and the oldest version of every library, that pyproject.toml allows
	$(OLDEST)/bin/pytest --numprocesses auto --maxprocesses 8 --dist loadfile

coverage: $(VENV)/.test ## the tests with branches measured; fails below the gate of pyproject.toml
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

bench: $(VENV)/.ready ## speed and memory of every command on generated traces
	$(BIN)/python -m benchmarks.bench

accuracy: $(VENV)/.ready ## what-if errors on simulated jobs, and what each dependency rule is for
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.accuracy.scaling
	$(BIN)/python -m benchmarks.accuracy.recording
	$(BIN)/python -m benchmarks.ablation $(if $(EXECGRAPH_TRACES),--traces $(EXECGRAPH_TRACES))

fuzz: $(VENV)/.test ## 20,000 hostile files through all commands, then builds stopped at fifty moments: a night
	$(BIN)/python tests/fuzz/commands.py $(FUZZ)
	$(if $(FUZZ),,EXECGRAPH_ENDINGS=50 $(BIN)/pytest --quiet tests/tools/test_ending.py)

docs: $(VENV)/.docs ## the pages that are made of tables and docstrings in the code, and the site: out/site/index.html
	$(BIN)/python docs/formats.py
	$(BIN)/python docs/python_api.py
	$(BIN)/python docs/notebook.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# of the commit, whatever else is in the tree
dist: $(VENV)/.test ## source package and wheel in out/dist, the same bytes from the same commit
	@rm -rf out/committed && mkdir -p out/committed
	git archive HEAD | tar -x -C out/committed
	cd out/committed && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(CURDIR)/$(BIN)/python tests/support/packages.py ../dist
	@rm -rf out/committed

check: lint format types ## all of the next three

lint: $(INSTALLED)/.check ## ruff's rules
	$(INSTALLED)/bin/ruff check

format: $(INSTALLED)/.check ## ruff's format
	$(INSTALLED)/bin/ruff format --check

# of the installed package, not the folders that it is built from: that is what users check their code against, and benchmarks are such code
types: $(INSTALLED)/.check ## layers by import-linter; mypy --strict on the installed package, the benchmarks and a script that uses all of the Python API
	@rm -rf build
	$(INSTALLED)/bin/python $(PIP) install --no-deps --force-reinstall .
	@rm -rf build
	cd $(INSTALLED) && bin/lint-imports --config $(CURDIR)/pyproject.toml --no-cache && MYPYPATH=$(CURDIR) bin/mypy --config-file $(CURDIR)/pyproject.toml -p execgraph -p benchmarks -m tests.support.every_call

clean: ## remove what all of these made
	rm -rf $(VENV) $(OLDEST) build out .cache *.egg-info .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.*

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("Python 3.10 or newer is needed: set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(PIP) install --editable .
	@touch $@

# without a network what is installed already will do, and the next demo tries again
# an installation that is there stays as it is, editable or not, and gets what the page needs
$(VENV)/.report: pyproject.toml | $(VENV)/bin/python
	@if [ -x $(BIN)/trace-build ]; then $(BIN)/python $(PIP) install 'execgraph[report]' 2>$(VENV)/report.log && touch $@ || true; \
		else echo "$(BIN)/python -m pip install --editable '.[report]'"; \
		if $(BIN)/python $(PIP) install --editable '.[report]' 2>$(VENV)/report.log; then touch $@ $(VENV)/.ready; \
		else $(MAKE) --no-print-directory $(VENV)/.ready; fi; fi

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(PIP) install --editable '.[test]'
	@touch $@

# pip takes constraints for what it builds with from either variable, by its version
$(OLDEST)/.test: pyproject.toml tests/support/lower_bounds.py
	@$(OLDEST_PYTHON) --version || { echo "$(OLDEST_PYTHON) is needed, or another by PYTHON="; exit 1; }
	$(OLDEST_PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python tests/support/lower_bounds.py > $(OLDEST)/constraints.txt
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
