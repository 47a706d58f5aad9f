# Two commands matter: `make demo` and `make test`. Both need python3 (3.11 or newer) and make, nothing else.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input
PINS := requirements/base.txt requirements/cuda13.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint test-faults test-frameworks test-cluster test-fuzz audit clean

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
	$(VENV)/bin/bandit --quiet --configfile pyproject.toml --recursive boosterrun

# A namespace of one's own, where there are any, so that a small disk may be mounted, and filled.
ALONE = $(shell unshare --map-root-user --mount true 2>/dev/null && echo unshare --map-root-user --mount)
FAULTS_SECONDS ?= 900
FAULTS := $(CURDIR)/outputs/faults
test-faults: $(VENV)/.dev ## every fault in every phase, 40 kills at random moments; renews docs/reliability.md (10 minutes)
	rm -rf $(FAULTS)
	BOOSTERRUN_TEST_KILLS=40 BOOSTERRUN_TEST_FAULTS=$(FAULTS) timeout $(FAULTS_SECONDS) $(ALONE) \
		$(VENV)/bin/python -W error -m pytest -W error -n 2 --timeout 600 tests/test_faults*.py tests/test_measure_orphans.py
	cd tests && $(CURDIR)/$(VENV)/bin/python -m faults.table $(FAULTS)

test-cluster: $(VENV)-cluster/.done ## the launchers on joblib, a real Ray and a real Slurm of this machine (minutes)
	$(VENV)-cluster/bin/python -W error -m pytest -W error -n 0 --timeout 900 tests/test_cluster_*.py

test-frameworks: $(VENV)-frameworks/.done ## the adapters on the real Helion and FlashInfer, without a GPU (minutes, 2.4 GB)
	$(VENV)-frameworks/bin/python -c 'import helion, flashinfer'
	$(VENV)-frameworks/bin/python -W error -m pytest -W error -n 0 --timeout 900 tests/test_frameworks_*.py

test-fuzz: $(VENV)-fuzz/.done ## damaged input of every kind under atheris, a minute each (quarter of an hour)
	BOOSTERRUN_FUZZ_SECONDS=60 $(VENV)-fuzz/bin/python -m pytest -n 0 -rP --timeout 900 tests/test_fuzz_atheris.py

audit: $(VENV)-audit/.done ## known vulnerabilities in what is pinned; asks api.osv.dev
	@$(VENV)-audit/bin/pip-audit --vulnerability-service osv --no-deps --disable-pip \
		$(addprefix -r ,$(PINS) requirements/dev.txt requirements/audit.txt) \
		|| { echo 'audit: see above; if api.osv.dev did not answer, nothing was audited' >&2; exit 1; }

clean: ## remove the virtual environments
	rm -rf $(VENV) $(VENV)-frameworks $(VENV)-cluster $(VENV)-audit $(VENV)-fuzz

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

$(VENV)-cluster/.done: $(PINS) requirements/dev.txt requirements/cluster.txt pyproject.toml
	@test -x $(VENV)-cluster/bin/python || $(PYTHON) -m venv $(VENV)-cluster
	@$(VENV)-cluster/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
		$(addprefix -r ,$(PINS)) -r requirements/dev.txt -r requirements/cluster.txt
	@$(VENV)-cluster/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)-frameworks/.done: $(PINS) requirements/dev.txt requirements/frameworks.txt pyproject.toml
	@test -x $(VENV)-frameworks/bin/python || $(PYTHON) -m venv $(VENV)-frameworks
	@$(VENV)-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
		$(addprefix -r ,$(PINS)) -r requirements/dev.txt -r requirements/frameworks.txt
	@$(VENV)-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)-audit/.done: requirements/audit.txt
	@test -x $(VENV)-audit/bin/python || $(PYTHON) -m venv $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps -r requirements/audit.txt
	@touch $@

$(VENV)-fuzz/.done: $(PINS) requirements/dev.txt requirements/fuzz.txt pyproject.toml
	@test -x $(VENV)-fuzz/bin/python || $(PYTHON) -m venv $(VENV)-fuzz
	@$(VENV)-fuzz/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
		$(addprefix -r ,$(PINS)) -r requirements/dev.txt -r requirements/fuzz.txt
	@$(VENV)-fuzz/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation --editable .
	@touch $@
