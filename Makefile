# `make` alone prints this help.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
JOBS ?= 2
SAMPLE := samples/cartpole_step
# HLOOPT_XLA_PYTHON, of the environment or of make's arguments, asks XLA itself (tests/oracle, bench).

# The tests start hundreds of processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test check format lint types corpus kernels slow emulate exports layers spmd mutate-kernels prove stablehlo tolerance first-difference campaign-random campaign-mutations campaign-pipelines wrong-stages stage-alarms baseline bench bench-gpu study golden recording reference docs wheel tasks release clean

help:  ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hloopt needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

install: $(VENV)/.installed  ## make .venv and install hloopt into it

demo: $(VENV)/.installed  ## optimise, run and verify a real JAX dump
	$(BIN)/hloopt run $(SAMPLE).hlo --inputs $(SAMPLE).npz --expect $(SAMPLE).npz -O2 --repeat 20

# Each process of the suite has one core, and threads of BLAS spin while they wait.
test: export OPENBLAS_NUM_THREADS ?= 1
test: $(VENV)/.installed-dev  ## the suite: units, samples, a slice of the corpus where there is one
	$(PYTEST) -n $(JOBS) -q

check: format-check lint types  ## format, lint, types

.PHONY: format-check
format-check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .

lint: $(VENV)/.installed-dev  ## ruff
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev  ## mypy --strict
	$(BIN)/mypy

format: $(VENV)/.installed-dev  ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

corpus: $(VENV)/.installed-dev  ## everything in the folder HLOOPT_CORPUS names, resumable; writes tests/scoreboard.json
	$(BIN)/python -m tests.corpus.score --workers $(JOBS)

kernels: $(VENV)/.installed-dev  ## compile every generated kernel with NVRTC, no GPU needed: registers, spills, stack
	$(BIN)/python -m tests.corpus.compile_kernels --workers $(JOBS)

slow: export OPENBLAS_NUM_THREADS ?= 1
slow: $(VENV)/.installed-dev  ## what the suite leaves out: its other cases, property tests with more examples, emulated programs optimised
	HLOOPT_SLOW=1 $(PYTEST) -n $(JOBS) -q -m slow

emulate: $(VENV)/.installed-dev  ## every kernel of the corpus executed on the emulator, resumable; adds to the scoreboard
	$(BIN)/python -m tests.corpus.score --emulated --workers $(JOBS)

stablehlo: $(VENV)/.installed-dev  ## 67 programs of JAX in every form of StableHLO, and back (HLOOPT_XLA_PYTHON with JAX)
	$(BIN)/python -m tests.frameworks.stablehlo_board --back

tolerance: $(VENV)/.installed-dev  ## would the judge notice?  modules changed wrongly, and right ones after passes; 20 minutes
	$(BIN)/python -m tests.prover.tolerance
	$(BIN)/python -m tests.prover.tolerance --alarms

exports: $(VENV)/.installed-dev  ## every fusion of ten programs of the corpus as a file of each form: imports, checks, NVRTC
	$(BIN)/python -m tests.exports.measure

layers: $(VENV)/.installed-dev  ## operations that fill a model's time: kernels, bytes and times of our plan beside the least possible
	$(BIN)/python -m tests.layers.board

spmd: $(VENV)/.installed-dev  ## programs of the corpus for 8 devices on 4 processes: results, and how soon a killed one ends a run
	$(BIN)/python -m tests.corpus.spmd_board

mutate-kernels: $(VENV)/.installed-dev  ## would the checks notice?  generated kernels with one line changed, resumable
	$(BIN)/python -m tests.corpus.mutate_kernels --workers $(JOBS)

reductions: $(VENV)/.installed-dev  ## how small failing programs of the corpus become, and how soon
	$(BIN)/python -m tests.prover.reductions --workers $(JOBS)

prove: $(VENV)/.installed-dev  ## every rule of simplify proved by z3, with more steps than the tests have: minutes
	HLOOPT_SLOW=1 $(PYTEST) -q tests/prover/test_rules_proved.py --timeout 900

first-difference: $(VENV)/.installed-dev  ## how often compare names the value that was made wrong, in the corpus
	$(BIN)/python -m tests.prover.measure_first_difference $(HLOOPT_CORPUS)/jax

campaign-random campaign-mutations campaign-pipelines: $(VENV)/.installed-dev
	$(BIN)/python -m tests.campaigns.campaign $(@:campaign-%=%) --workers $(JOBS)

campaign-random:  ## random modules in random spelling by every executor, resumable; writes tests/campaigns.json
campaign-mutations:  ## changed texts and protocol buffers: refused with a place, or the same results everywhere
campaign-pipelines:  ## random pipelines of passes with random options: valid after each, the same results

wrong-stages: $(VENV)/.installed-dev  ## would bisect notice?  single wrong rewrites in dumps of the corpus, resumable
	$(BIN)/python -m tests.prover.wrong_stages --workers $(JOBS)

stage-alarms: $(VENV)/.installed-dev  ## bisect XLA's own dumps of the corpus (HLOOPT_XLA_PYTHON): no stage may be blamed
	$(BIN)/python -m tests.prover.stage_alarms --workers $(JOBS)

baseline: $(VENV)/.installed-dev  ## what the product gives, recorded, or held against what was; BASELINE="--part samples"
	$(BIN)/python -m tests.baseline.baseline check --workers $(JOBS) $(BASELINE)

bench: $(VENV)/.installed-dev  ## benchmarks: medians and ratios, never asserted
	$(BIN)/python -m tests.benchmarks.bench

bench-gpu: $(VENV)/.installed-dev  ## on a machine with a GPU: beside XLA there, and beside the copy of memory
	$(BIN)/python -m tests.benchmarks.gpu
	$(BIN)/python -m tests.benchmarks.bench_loops

study: $(VENV)/.installed  ## Cartpole: which pass buys what, measured and predicted, each result verified; build/study.html
	$(BIN)/hloopt study --strategies samples/cartpole/study.toml --html build/study.html --out build/study

golden: $(VENV)/.installed-dev  ## rewrite the expected output of the golden cases
	$(PYTEST) -q tests/test_golden.py --update-golden

recording: $(VENV)/.installed  ## draw the terminal of the README again, light and dark
	$(BIN)/python -m tests.documentation.recording

reference: $(VENV)/.installed  ## every command, pass, op, kernel, target, refusal and topic, as Markdown: build/reference
	$(BIN)/python -m tests.documentation.reference build/reference

docs: $(VENV)/.installed-dev  ## build the documentation, links checked, for reading without a network: build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m tests.documentation.site_check build/site

wheel: $(VENV)/.installed-dev  ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

tasks: $(VENV)/.installed-dev  ## forty tasks of a new user, with the wheel in a new environment
	$(BIN)/python -m tests.newcomer.tasks

release: $(VENV)/.installed-dev  ## what a release must pass, on each Python of PYTHONS="python3.11 python3.13"; RELEASE=--tag
	$(BIN)/python -m tests.packaging.release $(PYTHONS:%=--python %) $(RELEASE)

clean:  ## remove everything that was made, .venv included
	rm -rf $(VENV) dist build .corpus .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
