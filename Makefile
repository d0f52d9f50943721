# Every target works from a fresh clone, with only make and Python 3.11 or newer. The first target
# that needs .venv creates it, and installs the packages of requirements.lock (pinned, with hashes).
# After a change of requirements.lock or pyproject.toml, the next target installs them again.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$python; break; }; done)
BIN := .venv/bin
READY := .venv/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
FAULTS := bench/results/faults.jsonl
CHECKED := scheduler wheel services bench tests examples .ci/check_moves.py
ARGS ?=
# Runs pip, and prints a line every PROGRESS_S seconds until pip ends. pip installs nothing until it has downloaded
# everything. A download is a temporary file, which grows.
PROGRESS_S ?= 3
DOWNLOADS := .venv/downloads
define with_progress
	rm -rf $(DOWNLOADS); mkdir -p $(DOWNLOADS); \
	{ while sleep $(PROGRESS_S) >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
		n=$$(ls -d .venv/lib/*/site-packages/*.dist-info 2>/dev/null | wc -l); \
		kb=$$(du -sk $(DOWNLOADS) 2>/dev/null | cut -f 1); \
		echo "  $$(date +%T): $$(($${kb:-0} / 1024)).$$(($${kb:-0} % 1024 * 10 / 1024)) MB are downloaded," \
			"$$((n)) packages are installed"; done; } & progress=$$!; \
	trap 'kill $$progress 2>/dev/null' INT TERM; TMPDIR="$(CURDIR)/$(DOWNLOADS)" $(1); status=$$?; \
	kill $$progress 2>/dev/null; rm -rf $(DOWNLOADS); exit $$status
endef
# Most tests wait for servers, so more processes than cores are faster: on two cores, two processes took 1,160 s when
# three took 930 s. A fourth one runs the files that mostly wait (tests/support/file_schedule.py). If it ran others, the
# four would use the cores fully, and then tests of processes that must react in time can fail.
JOBS ?= 4
# The tests start some thousand interpreters. Without bytecode, each of them compiles the product again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint hooks format bench peers faults soak services-up services-down proto lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo '  ARGS="..." passes arguments to the program of the target, as in: make test ARGS="-m unit"'

install: $(READY) ## Install the packages into .venv (the other targets do this if necessary)

demo: $(READY) ## Run a day of real flights through the scheduler, in about 30 seconds
	@$(BIN)/tickwheel demo $(ARGS)
	@printf '%s\n' '' 'Try next:' \
		"  $(BIN)/tickwheel enqueue orders 'order 17' --delay 5s; $(BIN)/tickwheel dequeue orders --wait 10s" \
		'  $(BIN)/python examples/order_timeout.py' \
		'  $(BIN)/tickwheel dev' \
		'The README explains the first steps, and $(BIN)/tickwheel --help lists all commands.' >&2

test: $(READY) ## Run all tests except the soak tests, in JOBS processes (default: 4)
	@$(BIN)/pytest -m 'not soak' --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(READY) ## Run before each commit: lint and the fast tests, in less than 90 seconds
	@$(MAKE) --no-print-directory lint
	@$(BIN)/pytest -m unit --numprocesses $(JOBS) --quiet $(ARGS)

lint: $(READY) ## Run ruff, mypy --strict and buf, and check the layers of the imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict $(CHECKED)
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/buf lint proto
	@$(BIN)/buf format --diff --exit-code proto

hooks: $(READY) ## Make git run `make check` before each commit
	@$(BIN)/pre-commit install

format: $(READY) ## Generate the blocking modules from the asyncio modules, and format the sources with ruff
	@$(BIN)/python tests/support/generate_blocking.py
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## Run the benchmarks: print a table, and write JSON and plots to bench/results/
	@$(BIN)/python -m bench $(ARGS)

peers: $(READY) ## Run the benchmarks of docs/comparison.md with other queues (needs Node and npm)
	@$(BIN)/python -m bench.peers $(ARGS)

faults: $(READY) ## Inject faults under load for ten minutes, then check all events (ARGS="--seeds 3": three times)
	@$(BIN)/python -m tests.fault.harness --results $(FAULTS) $(ARGS)

soak: $(READY) ## Run the long random tests, then inject faults for an hour (TICKWHEEL_SOAK=3: three times as long)
	@TICKWHEEL_SOAK=$${TICKWHEEL_SOAK:-1} $(BIN)/pytest -m 'soak or fault or property or security' --timeout 7200 \
		--numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
	@TICKWHEEL_SOAK=$${TICKWHEEL_SOAK:-1} $(BIN)/python -m tests.fault.harness --results $(FAULTS) $(ARGS)

services-up: $(READY) ## Start ZooKeeper, Kafka and a Redis Cluster on this machine, for trials
	@$(BIN)/python -m services up

services-down: $(READY) ## Stop these servers, and remove their data
	@$(BIN)/python -m services down

proto: $(READY) ## Generate scheduler/tickwheel/v1 and proto/released.binpb from proto/
	@$(BIN)/buf breaking proto --against proto/released.binpb
	@$(BIN)/protoc -Iproto --python_out=scheduler --pyi_out=scheduler proto/tickwheel/v1/*.proto
	@$(BIN)/buf build proto --exclude-source-info --output proto/released.binpb

lock: $(READY) ## Generate requirements.lock and deploy/requirements.lock (with newer versions: ARGS=--upgrade)
	@$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
		--all-extras --group dev --generate-hashes --no-header --no-annotate \
		--output-file requirements.lock $(ARGS)
	@$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
		--all-extras --constraints requirements.lock --generate-hashes --no-header --no-annotate \
		--output-file deploy/requirements.lock

clean: ## Remove .venv and everything built or cached
	rm -rf .venv build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml
	@test -n '$(PYTHON)' || { echo 'No Python found: Tickwheel needs Python 3.11 or newer with its' \
		'venv module (on Debian and Ubuntu the package python3-venv). If your Python has' \
		'another name, run make PYTHON=/path/to/python3' >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || { echo 'Creating the environment .venv ...'; $(PYTHON) -m venv --clear .venv; }
	@echo 'Installing the pinned packages into .venv: about 300 MB, a minute or two ...'
	@$(call with_progress,$(PIP) install --require-hashes --requirement requirements.lock)
	@echo 'Installing Tickwheel into .venv ...'
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
