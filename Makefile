# Two commands matter: `make demo` and `make test`. Both need python3 (3.11 or newer) and make, nothing else.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input
PINS := requirements/base.txt requirements/cuda13.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint clean

help: ## what this file offers
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.run ## sweep the sample pack over a real kernel with the real ptxas 13.3; no GPU needed
	$(VENV)/bin/boosterrun -m 'acf=glob(*)' workload=ptxas pack=sample

test: lint ## lint, types and every test that needs no GPU
	$(VENV)/bin/python -W error -m pytest -W error

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

clean: ## remove the virtual environment
	rm -rf $(VENV)

$(VENV)/.run: $(PINS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "boosterrun needs Python 3.11 or newer; set PYTHON=python3.11")'
	@echo "Making $(VENV) (once; the CUDA 13.3 compilers are the bulk of it)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) $(addprefix -r ,$(PINS))
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@$(PIP) -r requirements/dev.txt
	@touch $@
