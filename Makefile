# rocescope: `make demo` and `make test` do all the set-up they need.
# PYTHON=/path/to/python3 chooses the interpreter, CAPTURE=file.pcap what `make demo` analyses.

# A mirror of all links of a real leaf-spine fabric while a job runs; one host sprays its packets over all spines.
CAPTURE ?= tests/data/mirror/running_job.pcap.xz --ethers tests/data/mirror/ethers --top 8
# Bytecode, as pip makes it of a wheel: some environments keep Python from writing it.
PACKAGES = agent analyzer commands discovery kernels probes replay report tui
# One worker more than cores: tests of screens and processes wait for a fifth of their time.
WORKERS = -n $$(($$(nproc) + 1)) --maxprocesses 4 --dist loadgroup --no-loadscope-reorder
# Tests, too, are compiled once: every worker would take seconds to rewrite all assertions.
PYTEST = PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest
PIP = .venv/bin/python -m pip --disable-pip-version-check --quiet

.PHONY: demo dist sbom deb test thorough fuzz faults views reproductions test-kernel lint format check bench docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: .venv/.installed build/kernels/.analyzer ## set up, analyse a bundled real capture, print the report
	@.ci/system-packages
	@.venv/bin/rocescope analyze $(CAPTURE)

test: .venv/.dev ## run the tests
	@.ci/system-packages tests
	@$(PYTEST) -m 'not thorough' --few-examples $(WORKERS)

thorough: .venv/.dev ## run what is too slow for `make test`, and all examples of every property
	@.ci/system-packages tests
	@$(PYTEST) -m 'thorough or hypothesis' $(WORKERS)

fuzz: .venv/.dev ## damaged captures through the whole analysis: N=10000, FROM=a number (else random)
	@PYTHONPATH=tests/support .venv/bin/python -m tests.fuzz.many $(or $(N),10000) $(FROM)

faults: .venv/.dev ## diagnose faults of real Linux routers and score the diagnosis (root): N=30, FROM=1, KEEP=folder
	@PYTHONPATH=tests/support .venv/bin/python -m tests.lab $(or $(FROM),1) $(or $(N),30) $(if $(KEEP),--keep '$(KEEP)')

views: .venv/.dev ## score the diagnosis in the views that people have: N=30, FROM=0, REAL=5 (root), VIEWS=one_file,uplinks
	@PYTHONPATH=tests/support .venv/bin/python -m tests.lab.view_runs $(or $(FROM),0) $(or $(N),30) --bundled \
		$(if $(REAL),--real $(REAL)) $(if $(VIEWS),--views '$(VIEWS)') $(if $(KEEP),--keep '$(KEEP)')

reproductions: .venv/.dev ## published results on the packet engine; fails when a figure leaves its band
	@.venv/bin/python benchmarks/reproductions/run_all.py

test-kernel: .venv/.dev ## run the probes' tests (or RUN='...') on another kernel: KERNEL=linux-image-....deb
	@.venv/bin/python tests/kernels/run.py '$(KERNEL)' $(if $(RUN),'$(RUN)')

lint: .venv/.dev ## ruff, mypy, import-linter
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy --config-file tests/mypy.ini
	.venv/bin/lint-imports

format: .venv/.dev ## format the code
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

check: lint test ## everything that must pass before a commit

bench: .venv/.dev ## measure speed and memory beside the usual tools and an older commit
	.venv/bin/python benchmarks/before_after.py
	.venv/bin/python benchmarks/run.py
	.venv/bin/python benchmarks/hashing.py
	.venv/bin/python benchmarks/replay.py
	.venv/bin/python benchmarks/aggregate.py
	.venv/bin/python benchmarks/taps.py
	.venv/bin/python benchmarks/cores.py
	.venv/bin/python benchmarks/two_cores.py

docs: .venv/.dev ## write the field tables of docs/formats.md, the man page and the outputs of commands on pages
	.venv/bin/python docs/generate.py
	.venv/bin/python docs/man.py
	.venv/bin/python tests/support/pages.py README.md docs/*.md

dist: .venv/.dev ## build the wheel and the source distribution in dist/, the same bytes for the same files
	@.venv/bin/python .ci/dist.py dist

sbom: .venv/bin/python ## list what rocescope is installed with, as CycloneDX: dist/rocescope.cdx.json
	@.venv/bin/python -m venv build/sbom
	@build/sbom/bin/pip --disable-pip-version-check --quiet install --constraint constraints.txt cyclonedx-bom
	@mkdir -p dist
	@build/sbom/bin/cyclonedx-py requirements requirements-hashes.txt --pyproject pyproject.toml \
		--output-reproducible --output-file dist/rocescope.cdx.json

deb: .venv/.dev ## build a Debian package in dist/ for this machine's python3, packages included
	@.ci/deb dist $(or $(REQUIREMENTS),requirements-hashes.txt)

clean: ## remove the environment and all caches
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/bin/python:
	@python=$$(PYTHON='$(PYTHON)' .ci/python) && echo "creating .venv with $$python ..." >&2 && \
		.ci/venv "$$python"

# An environment whose checkout was moved or whose Python is gone is rebuilt by `make clean`.
.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing rocescope and its dependencies ..." >&2
	@$(PIP) install --constraint constraints.txt setuptools
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[build]'
	@.venv/bin/python -m compileall -q *.py $(PACKAGES)
	@touch $@

# The first call of a changed kernel does the same; here its progress can be seen.
build/kernels/.analyzer: .venv/.installed $(shell grep -rl kernels analyzer kernels --include='*.py' --include=kernels.json)
	@PYTHONDONTWRITEBYTECODE= .venv/bin/python -m rocescope.kernels.build analyzer
	@touch $@

.venv/.dev: .venv/.installed
	@echo "installing the development tools ..." >&2
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@
