# The few commands a person needs. `make help` prints them.
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
PYTHON_SOURCES := python tests benches tools docs jvm examples

# maturin gets its own target directory: its release build and `cargo test` would otherwise rebuild each other's work
MATURIN := env -u CONDA_PREFIX VIRTUAL_ENV=$(CURDIR)/.venv CARGO_TARGET_DIR=$(CURDIR)/.build/maturin PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/maturin

HOST = $(shell rustc -vV | sed -n 's/host: //p' | tr 'a-z-' 'A-Z_')
OLDEST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

SUITE := PYTHONPATH=$(CURDIR)/tests:$(CURDIR)/tools $(BIN)/python

.PHONY: help demo test test-slow build jar lint lint-rust lint-python test-rust test-python test-binding test-interop test-browser docs bench crash-points bit-flips kills attack call-faults power-loss fuzz mutants sim wheel release deny memcheck miri coverage coverage-rust coverage-python oldest-rust tools-rust tools-java tools-browser clean

help: ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

demo: tools-java build ## Run the whole story on 336,776 real flights; writes demo-out/
	$(BIN)/python examples/demo

test: tools-java build lint test-rust test-python ## Set up everything, run the lints and every test that is not slow by nature

# Three workers on two cores: the tests wait for disks, sockets and processes half of the time.
test-slow: tools-java build jar $(ARCHIVE) ## The tests marked slow: full slices of kills and faults, every recording through Python, the demo
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m slow --durations=25

build: $(CORE) ## Leave .venv with a release build of the package and every extra (PROFILE=dist: as it is shipped)

jar: $(JAR) ## Build the jar of the Spark format fletchlog-columnar, and its wheel, into .build/jvm (needs a JDK)

lint: lint-rust lint-python ## Formats, clippy, the checks of crate edges, citations, properties and callers, ruff, mypy --strict, stubtest

lint-rust: tools-rust $(STAMPS)/venv
	cargo fmt --all --check
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo clippy --locked --workspace --all-targets -- -D warnings
	$(BIN)/python tools/check_edges.py
	$(BIN)/python tools/check_spec.py
	$(BIN)/python tools/check_config.py
	$(BIN)/python tools/check_callers.py

lint-python: build
	$(BIN)/python tools/typed_configs.py --check
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/mypy
	cd python && ../$(BIN)/python -m mypy.stubtest --mypy-config-file ../pyproject.toml fletchlog._core

test-rust: tools-rust ## Rust tests only
	cargo test --locked

# Links libpython, which a distribution may keep in a package of its own (Debian: libpython3-dev): not part of `make test`.
test-binding: build ## Rust tests of the binding (panics become exceptions)
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python PYTHONPATH=$(CURDIR)/python cargo test --locked -p fletchlog-python

test-python: tools-java build jar $(ARCHIVE) ## Python tests only (a real Spark session included), without the slow ones
	$(BIN)/python -m pytest -n 3 --dist loadfile --max-worker-restart 0 -m "not slow" --durations=25

# Fetches Kafka and Hadoop into .build/interop with Maven, and servers of object stores with npm and Go. SEED=n CASES=n choose and size what is generated; both are printed.
test-interop: tools-java build ## Judge fletchlog by real Kafka releases: tools, brokers, clients (needs a JDK, Maven, Go, Node.js, cc)
	@for tool in javac mvn go npm cc; do command -v $$tool >/dev/null || { echo "make: $$tool is missing. test-interop needs a JDK 17, Maven 3.8, Go 1.25, Node.js 20 or newer and a C compiler on PATH." >&2; exit 1; }; done
	$(BIN)/python -m pytest tests/interop --timeout=900 -p no:cacheprovider

# Not part of `make test`: it needs a browser. Selenium stays outside .venv, which holds exactly constraints.txt.
test-browser: tools-browser build ## The pages in a headless Chromium: clicks, keys, speed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target .build/browser -r constraints-browser.txt
	FLETCHLOG_BROWSER=1 PYTHONPATH=$(CURDIR)/.build/browser $(BIN)/python -m pytest tests/browser

# The site generator stays outside .venv, which holds exactly constraints.txt.
docs: build ## Build the documentation site into .build/site; warnings are errors
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target .build/docs -r constraints-docs.txt
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=$(CURDIR)/.build/docs $(BIN)/python -m mkdocs build --strict

# Zig links, so that the wheels run on older systems than this one; the tools stay outside .venv.
wheel: tools-rust ## Build the wheels and the sdist into .build/wheels, check them, install and try the wheel on every CPython here
	@[ -x .build/release/bin/python ] || $(PYTHON) -m venv .build/release
	.build/release/bin/python -m pip install --quiet --disable-pip-version-check -r constraints-release.txt
	.build/release/bin/python tools/wheels.py

release: ## Check that the version can be released, run everything, tag it with its notes; publishes nothing
	$(PYTHON) tools/release.py check
	$(MAKE) test test-slow docs deny wheel
	$(PYTHON) tools/release.py tag

deny: tools-rust ## Licences, sources and known vulnerabilities of the crates (cargo-deny; its database comes over the network)
	@command -v cargo-deny >/dev/null || { echo "make: cargo-deny is missing. Run cargo install --locked cargo-deny, then make again." >&2; exit 1; }
	cargo deny --locked check --hide-inclusion-graph licenses bans sources
	@cargo deny --locked check advisories || { echo "make: known vulnerabilities: found, or not checked because the database (github.com/RustSec/advisory-db) could not be fetched; the lines above say which. The rest was checked." >&2; exit 1; }

memcheck: tools-rust ## The tests of records and arrow under valgrind
	@command -v valgrind >/dev/null || { echo "make: valgrind is missing. Install it (Debian: apt-get install valgrind), then run make again." >&2; exit 1; }
	CARGO_TARGET_$(HOST)_RUNNER="valgrind --quiet --error-exitcode=1" PROPTEST_CASES=4 cargo test --locked -p fletchlog-records -p fletchlog-arrow --lib

# Without the codecs: zstd is C, and Miri objects to how zlib-rs frees its state. `make memcheck` runs them.
WITHOUT_CODECS := $(addprefix --skip ,compression:: legacy:: codec a_rebuilt_batch kept_records_keep what_is_appended_is_read_back)

miri: tools-rust ## The unit tests of records, but for the codecs, and of the Arrow decoder in Miri (nightly Rust with the components miri and rust-src)
	PROPTEST_CASES=1 MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --locked -p fletchlog-records --lib $(TESTS) -- $(WITHOUT_CODECS)
	PROPTEST_CASES=1 MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --locked -p fletchlog-arrow --lib decode::tests

coverage: coverage-rust coverage-python ## Lines that the tests reach, per file: of the crates and of the package

coverage-rust: tools-rust ## Those of the Rust tests (CRATES="-p fletchlog-records ..."; needs the component llvm-tools)
	$(PYTHON) tools/coverage.py $(CRATES)

coverage-python: tools-java build jar ## Those of the Python tests that are not slow (TESTS="tests/cli ...")
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist loadfile -m "not slow" $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

oldest-rust: ## The sources compile with the oldest Rust that Cargo.toml promises (rustup)
	rustup toolchain install $(OLDEST) --profile minimal
	cargo +$(OLDEST) check --locked --workspace --all-targets

bench: ## Ratios against the floor and against another client, in one run, of what is shipped
	$(MAKE) build jar PROFILE=dist
	cargo build --locked --profile dist -p fletchlog-benches --examples
	$(BIN)/python benches/python/run.py

crash-points: tools-rust ## Power loss at, and failure of, every storage operation of seeded runs (TIME_LIMIT seconds, SEED)
	cargo run --locked --release -p fletchlog-sim --example crash_points

bit-flips: tools-rust ## Every bit of a 64 KiB segment and its side files, one at a time (TIME_LIMIT seconds, SEED)
	cargo run --locked --release -p fletchlog-sim --example bit_flips

# These three preload a library, which is built with cc.
kills: build ## kill -9 of a Python process at random system calls (KILLS, THREAD_KILLS of processes with threads, SPARK_KILLS of the sink's commit, QUERY_KILLS of real Spark queries, TASK_KILLS of tasks that commit by themselves, LISTENER_KILLS of a serving process, TIME_LIMIT seconds, SEED)
	$(SUITE) -m kills.one_thread
	$(SUITE) -m kills.many_threads
	$(SUITE) -m kills.spark_sink
	$(SUITE) -m kills.spark_queries
	$(SUITE) -m kills.spark_tasks
	$(SUITE) -m kills.listener

attack: build ## Hostile clients of a serving process while one works (CONNECTIONS, SECONDS an attack, P99_MS)
	$(SUITE) -m attack.listener

call-faults: build ## EIO, ENOSPC, EMFILE, EACCES from the n-th system call of a Python process (RUNS, TIME_LIMIT seconds, SEED)
	$(SUITE) -m kills.call_faults

power-loss: build ## Power loss from the recorded system calls of a process with threads (IMAGES, TIME_LIMIT seconds, SEED)
	$(SUITE) -m kills.power_loss

# Builds with --cfg planted into .build/mutants; the package never contains a planted bug.
mutants: build ## Plant bugs one by one and let the crash and fault suites find each (TIME_LIMIT seconds, MUTANTS)
	$(PYTHON) tools/mutants.py

# Needs a C++ compiler, for libFuzzer. What is found is kept in .build/fuzz.
fuzz: tools-rust ## libFuzzer on every decoder and every file of a directory (TIME_LIMIT seconds per target, TARGETS)
	$(PYTHON) tools/fuzz.py

sim: tools-rust ## Broker and clients under faults, from seeds, histories checked (TIME_LIMIT seconds, SEED, SEEDS, WORLD)
	cargo run --locked --release -p fletchlog-sim --example sim

clean: ## Remove what was built and demo-out/ (keeps .venv)
	rm -rf target .build demo-out
	rm -f python/fletchlog/_core*.so

tools-rust:
	@command -v cargo >/dev/null || { echo "make: cargo is missing. Install Rust (stable) from https://rustup.rs, then run make again." >&2; exit 1; }

tools-java:
	@command -v java >/dev/null || { echo "make: java is missing. Spark needs Java 17 or newer on PATH; install it, then run make again." >&2; exit 1; }
	@major=$$(java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -1); \
	  [ "$${major:-0}" -ge 17 ] || { echo "make: java $${major:-?} is too old. Spark needs Java 17 or newer on PATH." >&2; exit 1; }

tools-browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y chromium chromium-driver; } \
	  || { echo "make: chromium and chromedriver are missing. Install them (Debian: apt-get install chromium chromium-driver), then run make again." >&2; exit 1; }

# .venv with exactly the versions of constraints.txt
$(STAMPS)/venv: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "make: CPython 3.11 or newer is needed, $(PYTHON) is not; run make PYTHON=/path/to/python3.11." >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv || { echo "make: cannot create .venv; install the venv module of $(PYTHON) (Debian: python3-venv)." >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r constraints.txt
	@mkdir -p $(STAMPS) && touch $@

# the extension module, release build, editable: Python sources are used where they are
# the binding takes its docstrings from the stub
$(CORE): $(STAMPS)/venv pyproject.toml python/fletchlog/_core.pyi $(RUST_SOURCES) | tools-rust
	$(MATURIN) develop --profile $(PROFILE) --locked --quiet
	@mkdir -p $(STAMPS) && rm -f $(STAMPS)/core* && touch $@

# with the build directory of the extension: both are release builds of the same crates
$(JAR): $(CORE) tools/jar.py $(shell find jvm -type f) | tools-rust
	CARGO_TARGET_DIR=$(CURDIR)/.build/maturin PROFILE=$(PROFILE) $(BIN)/python tools/jar.py

# Spark's classes, for the JVMs of the tests. One of another Spark or JVM is not used: made anew with the venv.
$(ARCHIVE): $(STAMPS)/venv | $(CORE) $(JAR)
	$(SUITE) -m spark_archive $@
