# Headrace: `make run` shows the main job working, `make test` passes all tests. Each does its own set-up.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMPS := .make
SCHEMAS := $(wildcard src/headrace/events/schemas/*.proto transit/src/headrace_transit/schemas/*.proto)
STATIC := src/headrace/dashboard/static
NODE := bash scripts/node.sh $(VENV)
NPM := $(NODE) npm --prefix frontend --loglevel=error
PACKAGES := frontend/node_modules/.package-lock.json
LAND := frontend/src/generated/land.json
PAGE := $(shell find frontend -name node_modules -prune -o -name generated -prune -o \
	-type f -not -path 'frontend/dev/*' -not -path 'frontend/test/*' -not -name 'eslint.config.js' -print)
ARGS ?=

export HEADRACE_HOME ?= $(CURDIR)/.headrace

.PHONY: help image manifests run test test-quick test-long test-pythons lint docs types format dist bench peers chaos jars lock clean java mosquitto chromium setup setup-dev \
	frontend frontend-check page screenshots

help: ## Show this list
	@echo "Headrace: live answers from event streams, in Python."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make run ARGS='--vehicles 1000 --fresh' hands flags to 'headrace demo'."

run: setup page ## Show the main job at work: broker, simulated fleet, Spark, live view (Ctrl-C stops all of it)
	@$(BIN)/headrace demo $(ARGS)

test: setup-dev jars lint frontend frontend-check ## Run every check and every test
	@echo "==> all tests"
	@bash scripts/tests.sh $(BIN)/python $(ARGS)

test-quick: setup-dev ## Run the tests that need neither Spark nor Kafka, in parallel (about two minutes on two cores)
	@bash scripts/quick.sh $(BIN)/python $(ARGS)

test-pythons: setup-dev ## Run the quick tests with every promised Python that is on this machine
	@bash scripts/pythons.sh $(VENV) $(ARGS)

test-long: test test-pythons ## Run everything, then the long tests, the quick tests with every Python, and properties with five times the examples
	@echo "==> long tests"
	@$(BIN)/python -m pytest -p no:cacheprovider -m long --timeout 900 tests
	@echo "==> properties with five times as many examples"
	@bash scripts/quick.sh $(BIN)/python --hypothesis-profile long --timeout 3000 $(ARGS)

lint: setup-dev ## Check style, types and the layers
	@echo "==> ruff, mypy, import-linter"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=src:transit/src $(BIN)/lint-imports --no-cache

format: setup-dev ## Bring the code into the common form
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

docs: setup-dev ## Build the site of the documentation with a reference of the public names into build/site; warnings are errors
	@$(BIN)/mkdocs --quiet build --strict
	@echo "==> build/site/index.html"

dist: setup-dev frontend ## Build wheels and sdists of both packages into dist/, from locked build tools
	@rm -rf dist && $(BIN)/python -m hatchling build -d dist
	@cd transit && $(CURDIR)/$(BIN)/python -m hatchling build -d ../dist

frontend: $(STATIC)/index.html ## Build the page of the dashboard (Node.js comes with it if there is none)

frontend-check: $(PACKAGES) $(LAND) ## Check style and types of the page and run its unit tests
	@echo "==> eslint, tsc, vitest"
	@$(NPM) run --silent lint
	@$(NPM) run --silent types
	@$(NPM) run --silent test

screenshots: setup-dev jars frontend ## Draw the pictures of the dashboard in docs/images from a running pipeline, with Chromium
	@$(BIN)/python scripts/screenshots.py $(ARGS)

chaos: setup-dev jars ## Kill things around running jobs and see that every result is there once (ARGS='--kills 20 --seed 7')
	@$(BIN)/python -m chaos $(ARGS)

bench: setup-dev jars ## Run the benchmarks and write benchmarks/results
	@$(BIN)/python -m benchmarks $(ARGS)

peers: setup-dev jars ## Compare with Flink and with Spark's own operators (needs a JDK; about 15 minutes)
	@$(BIN)/python -m benchmarks.peers $(ARGS)

image: ## Build the image headrace:latest, where there is a Docker (IMAGE=name:tag)
	@command -v docker >/dev/null || { echo "There is no docker here; deploy/docker/Dockerfile can be built elsewhere, and make manifests checks it." >&2; exit 4; }
	@docker build --tag $(or $(IMAGE),headrace:latest) --file deploy/docker/Dockerfile .

manifests: ## Check Dockerfile, compose file, chart and alerts with the tools made for them (helm by go install; some minutes the first time)
	@bash scripts/manifests.sh

jars: setup ## Resolve the pinned jars into the cache
	@$(BIN)/headrace setup --spark-connector

lock: setup-dev ## Pin the requirements anew (maintainers)
	@bash requirements/lock.sh "$(BIN)/uv"

clean: ## Remove what make made: environment, caches, the demo's data
	@rm -rf $(VENV) $(STAMPS) $(STATIC) frontend/node_modules frontend/src/generated .headrace .mypy_cache .ruff_cache .pytest_cache build dist
	@find src transit -name '*_pb2.py' -delete -o -name '*_pb2.pyi' -delete

setup: java $(STAMPS)/run

# Without the page the pipeline still runs, and the dashboard says how to build it: worth a warning, not worth stopping for.
page: $(VENV)/bin/python
	@$(MAKE) --no-print-directory frontend || echo "WARNING: the dashboard's page could not be built (see above); all else works without it." >&2

setup-dev: java mosquitto chromium $(STAMPS)/dev

java:
	@bash scripts/java.sh

mosquitto:
	@bash scripts/mosquitto.sh

chromium:
	@bash scripts/chromium.sh

$(VENV)/bin/python:
	@bash scripts/venv.sh "$(PYTHON)" "$(VENV)"

$(STAMPS)/build: requirements/build.txt $(VENV)/bin/python
	@mkdir -p $(STAMPS)
	@echo "==> installing build tools"
	@$(PIP) install --quiet --require-hashes -r $<
	@touch $@

$(STAMPS)/run: requirements/run.txt $(STAMPS)/build pyproject.toml transit/pyproject.toml hatch_build.py $(SCHEMAS)
	@echo "==> installing locked requirements (Spark is 450 MB; a minute or two the first time)"
	@$(PIP) install --progress-bar on --quiet --no-build-isolation --require-hashes -r $<
	@echo "==> building headrace"
	@$(PIP) install --quiet --no-build-isolation --no-deps --editable . --editable transit
	@touch $@

$(STAMPS)/dev: requirements/dev.txt $(STAMPS)/run
	@echo "==> installing test and lint tools"
	@$(PIP) install --quiet --no-build-isolation --require-hashes -r $<
	@touch $@

$(PACKAGES): frontend/package-lock.json frontend/package.json frontend/.npmrc scripts/node.sh | $(VENV)/bin/python
	@echo "==> installing the page's packages (half a minute the first time)"
	@$(NPM) ci --no-audit --no-fund
	@touch $@

$(LAND): frontend/scripts/basemap.mjs $(PACKAGES)
	@$(NPM) run --silent basemap

$(STATIC)/index.html: $(PAGE) $(LAND) $(PACKAGES)
	@echo "==> building the dashboard's page"
	@$(NPM) run --silent build -- --logLevel warn
	@touch $@
