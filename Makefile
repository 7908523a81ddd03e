# The few commands a person needs; judges.mk has the parts of `make test` and the suites beyond it. `make help` prints both.
# Needed beforehand: Rust (stable), CPython >= 3.11, a JDK 17 (for Spark and the jar), make. Everything else lands in .venv and .build.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BIN := .venv/bin
STAMPS := .build/stamps
JAR := .build/jvm/fletchlog-spark.jar
ARCHIVE := .build/jvm/spark.jsa
# release is soon built; dist is what is shipped and measured (Cargo.toml).
PROFILE ?= release
CORE := $(STAMPS)/core-$(PROFILE)
RUST_SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
PYTHON_SOURCES := python tests judges benches tools docs jvm examples
QUIET := --quiet --disable-pip-version-check

# maturin gets its own target directory: its release build and `cargo test` would otherwise rebuild each other's work
MATURIN := env -u CONDA_PREFIX VIRTUAL_ENV=$(CURDIR)/.venv CARGO_TARGET_DIR=$(CURDIR)/.build/maturin \
	PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/maturin

HOST = $(shell rustc -vV | sed -n 's/host: //p' | tr 'a-z-' 'A-Z_')
OLDEST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# The property tests of every target have the same cases in every run; `make properties` searches with new ones.
export PROPTEST_RNG_SEED ?= 4711
export HYPOTHESIS_PROFILE ?= repeatable

SUITE := PYTHONPATH=$(CURDIR):$(CURDIR)/tools $(BIN)/python
LISTED = grep -hE '^[a-z-]+:.*\#\# ' $(1) | sed -E 's/^([a-z-]+):.*\#\# (.*)/  make \1\t\2/' | expand -t 24

.PHONY: help demo test test-slow build lint lint-rust lint-python docs bench wheel release clean tools-rust tools-java

help: ## Print this list
	@$(call LISTED,Makefile)
	@printf '\nParts of `make test`, and the suites beyond it (judges.mk):\n'
	@$(call LISTED,judges.mk)

# Two at once: the crates compile while pip waits for the network.
build: ## Leave .venv with a release build of the package and every extra (PROFILE=dist: as it is shipped)
	@$(MAKE) --no-print-directory --jobs=2 $(CORE) $(STAMPS)/venv

test: tools-java build lint test-rust test-python ## Set up everything, run the lints and every test that is not slow by nature

# Three workers on two cores: the tests wait for disks, sockets and processes half of the time.
test-slow: tools-java build jar $(ARCHIVE) ## The tests marked slow: full slices of kills and faults, every recording through Python, the demo (SLOW=tests: no kills)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m slow --durations=25 $(SLOW)

lint: lint-rust lint-python ## Formats, clippy, the checks of crate edges, citations, properties, callers and words, ruff, mypy --strict, stubtest

lint-rust: tools-rust $(STAMPS)/venv
	cargo fmt --all --check
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo clippy --locked --workspace --all-targets -- -D warnings
	$(BIN)/python tools/check_edges.py
	$(BIN)/python tools/check_spec.py
	$(BIN)/python tools/check_config.py
	$(BIN)/python tools/check_callers.py

lint-python: build
	$(BIN)/python tools/typed_configs.py --check
	$(BIN)/python tools/check_words.py
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/mypy
	cd python && ../$(BIN)/python -m mypy.stubtest --mypy-config-file ../pyproject.toml fletchlog._core

# The site generator stays outside .venv, which holds exactly constraints.txt.
docs: build ## Build the documentation site into .build/site; warnings are errors
	$(BIN)/python -m pip install $(QUIET) --upgrade --target .build/docs -r constraints-docs.txt
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=$(CURDIR)/.build/docs $(BIN)/python -m mkdocs build --strict

bench: ## Ratios against the floor and against another client, in one run, of what is shipped
	$(MAKE) build jar PROFILE=dist
	cargo build --locked --profile dist -p fletchlog-benches --examples
	$(BIN)/python benches/python/run.py

demo: tools-java build ## Run the whole story on 336,776 real flights; writes demo-out/
	$(BIN)/python examples/demo

# Zig links, so that the wheels run on older systems than this one; the tools stay outside .venv.
wheel: tools-rust ## Build the wheels and the sdist into .build/wheels, check them, install and try the wheel on every CPython here
	@[ -x .build/release/bin/python ] || $(PYTHON) -m venv .build/release
	.build/release/bin/python -m pip install $(QUIET) -r constraints-release.txt
	.build/release/bin/python tools/wheels.py

release: ## Check that the version can be released, run everything, tag it with its notes; publishes nothing
	$(PYTHON) tools/release.py check
	$(MAKE) test test-slow docs deny wheel
	$(PYTHON) tools/release.py tag

clean: ## Remove what was built and demo-out/ (keeps .venv)
	rm -rf target .build demo-out
	rm -f python/fletchlog/_core*.so

include judges.mk

tools-rust:
	@command -v cargo >/dev/null || { echo "make: cargo is missing. Install Rust (stable) from https://rustup.rs, then run make again." >&2; exit 1; }

tools-java:
	@command -v java >/dev/null || { echo "make: java is missing. Spark needs Java 17 or newer on PATH; install it, then run make again." >&2; exit 1; }
	@major=$$(java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -1); \
	  [ "$${major:-0}" -ge 17 ] || { echo "make: java $${major:-?} is too old. Spark needs Java 17 or newer on PATH." >&2; exit 1; }

# .venv with what builds the package: maturin calls pip with an option that older ones do not have
$(STAMPS)/maturin: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: CPython 3.11 or newer is needed, $(PYTHON) is not; run make PYTHON=/path/to/python3.11." >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv || { \
	  echo "make: cannot create .venv; install the venv module of $(PYTHON) (Debian: python3-venv)." >&2; exit 1; }
	$(BIN)/python -m pip install $(QUIET) --constraint constraints.txt pip maturin
	@mkdir -p $(STAMPS) && touch $@

# .venv with exactly the versions of constraints.txt
$(STAMPS)/venv: $(STAMPS)/maturin
	$(BIN)/python -m pip install $(QUIET) -r constraints.txt
	@touch $@

# the extension module, release build, editable: Python sources are used where they are
# the binding takes its docstrings from the stub
$(CORE): $(STAMPS)/maturin pyproject.toml python/fletchlog/_core.pyi $(RUST_SOURCES) | tools-rust
	$(MATURIN) develop --profile $(PROFILE) --locked --quiet
	@rm -f $(STAMPS)/core* && touch $@

# with the build directory of the extension: both are release builds of the same crates
$(JAR): $(CORE) $(STAMPS)/venv tools/jar.py $(shell find jvm -type f) | tools-rust
	CARGO_TARGET_DIR=$(CURDIR)/.build/maturin PROFILE=$(PROFILE) $(BIN)/python tools/jar.py

# Spark's classes, for the JVMs of the tests. One of another Spark or JVM is not used: made anew with the venv.
$(ARCHIVE): $(STAMPS)/venv | $(CORE) $(JAR)
	$(SUITE) -m tests.support.spark_archive $@
