# The commands of CONTRIBUTING.md, which says more about each. `make help` lists them.
#
#   make test ARGS="-n 0 tests/unit/core"    what follows the command
#   make build MODE=debug                    release (default), debug, asan or trace

PYTHON ?= python
MODE ?= release
ARGS ?=
PYRIGHT = pyright@1.1.414

export NO_MKDOCS_2_WARNING = 1

.DEFAULT_GOAL := help
.PHONY: help build asan smoke test lint types docs guard ci

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build: ## compile what has changed, beside its sources (MODE=debug: with checks)
	WIRESPEED_BUILD=$(MODE) $(PYTHON) setup.py -q build_ext --inplace

asan: ## compile with AddressSanitizer and UndefinedBehaviorSanitizer, and run the compiled code's tests
	WIRESPEED_BUILD=asan $(PYTHON) setup.py -q build_ext --inplace
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	PYTHONMALLOC=malloc UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=2:thread_local_quarantine_size_kb=64 \
	$(PYTHON) -m pytest -n 0 -m compiled --no-recorder --hypothesis-profile=few $(ARGS)

smoke: ## a sample of all tests, in less than a minute
	$(PYTHON) -m pytest -q -m smoke $(ARGS)

test: ## all tests
	$(PYTHON) -m pytest $(ARGS)

lint: ## ruff, cython-lint, and the examples of a container and of Kubernetes
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m cython_lint.cython_lint src
	hadolint examples/container/Containerfile
	kubernetes-validate --strict --quiet examples/kubernetes/*.yaml

types: ## mypy, stubtest, and mypy and pyright on the examples of the guide
	$(PYTHON) -m mypy
	$(PYTHON) tests/stubs.py
	$(PYTHON) tests/guide.py build/examples
	$(PYTHON) -m mypy tests/typing build/examples
	npx --yes $(PYRIGHT)

docs: ## the guide, in build/site, with warnings as errors
	$(PYTHON) docs/_griffe/gate.py build/site

guard: ## instructions for each call of the hot paths, compared with the baseline (needs valgrind)
	$(PYTHON) benchmarks/guard $(ARGS)

ci: ## all that CI does, in fresh environments
	.ci/run $(ARGS)
