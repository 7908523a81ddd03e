# The parts of `make test`, and the suites beyond it. Included by the Makefile; `make help` prints this list second.

TOOLS_OF_INTEROP := javac mvn go npm cc

.PHONY: jar test-rust test-python test-binding test-interop spark-releases test-browser test-engines oldest-rust macos-check deny memcheck miri \
	coverage coverage-rust coverage-python crash-points bit-flips kills attack call-faults power-loss properties fuzz mutants sim tools-browser

jar: $(JAR) ## Build the jar of the Spark format fletchlog-columnar, and its wheel, into .build/jvm (needs a JDK)

test-rust: tools-rust ## Rust tests only
	cargo test --locked

test-python: tools-java build jar $(ARCHIVE) ## Python tests only (a real Spark session included), without the slow ones
	$(BIN)/python -m pytest -n 3 --dist loadfile --max-worker-restart 0 -m "not slow" --durations=25

# Links libpython, which a distribution may keep in a package of its own (Debian: libpython3-dev): not part of `make test`.
test-binding: build ## Rust tests of the binding (panics become exceptions)
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python PYTHONPATH=$(CURDIR)/python cargo test --locked -p fletchlog-python

# Fetches Kafka and Hadoop into .build/interop with Maven, and servers of object stores with npm and Go.
# SEED=n CASES=n choose and size what is generated; both are printed.
test-interop: tools-java build ## Judge fletchlog by real Kafka releases: tools, brokers, clients (needs a JDK, Maven, Go, Node.js, cc)
	@for tool in $(TOOLS_OF_INTEROP); do command -v $$tool >/dev/null || { \
	  echo "make: $$tool is missing. test-interop needs a JDK 17, Maven 3.8, Go 1.26, Node.js 20 or newer and a C compiler on PATH." >&2; exit 1; }; done
	$(BIN)/python -m pytest judges/interop --timeout=900 -p no:cacheprovider

# The oldest release that is supported; the one in .venv is the newest.
SPARK ?= 4.2.1
spark-releases: tools-java build ## What the package uses of Spark beyond its API, with an older release of it (SPARK=4.2.1)
	[ -d .build/pyspark-$(SPARK) ] || $(BIN)/pip install --no-deps --target .build/pyspark-$(SPARK) pyspark==$(SPARK)
	PYTHONPATH=$(CURDIR)/.build/pyspark-$(SPARK) $(BIN)/python -m pytest tests/spark/test_compat.py

# It needs a browser. Selenium stays outside .venv, which holds exactly constraints.txt.
test-browser: tools-browser build ## The pages in a headless Chromium: clicks, keys, speed
	$(BIN)/python -m pip install $(QUIET) --upgrade --target .build/browser -r constraints-browser.txt
	FLETCHLOG_BROWSER=1 PYTHONPATH=$(CURDIR)/.build/browser $(BIN)/python -m pytest tests/browser

# Ray and Daft are no extras, so they stay outside .venv, which holds exactly constraints.txt.
ENGINES := .build/engines/bin/python
test-engines: build ## Ray and Daft over plans of scans, in an environment of their own (they come over the network)
	[ -x $(ENGINES) ] || $(PYTHON) -m venv .build/engines
	$(ENGINES) -m pip install $(QUIET) -r constraints-engines.txt
	PYTHONPATH=$(CURDIR)/python $(ENGINES) -m pytest tests/scans/test_tasks.py

oldest-rust: ## The sources compile with the oldest Rust that Cargo.toml promises (rustup)
	rustup toolchain install $(OLDEST) --profile minimal
	cargo +$(OLDEST) check --locked --workspace --all-targets

# Those that do not need fletchlog-log, whose files use system calls of Linux (CONTRIBUTING.md). Nothing is linked, so C needs no compiler for macOS.
MACOS := $(addprefix -p fletchlog-,records protocol sasl api arrow tls client net testing)

macos-check: tools-rust ## The crates that compile for macOS still do (rustup fetches its standard library)
	rustup target add aarch64-apple-darwin
	CC_aarch64_apple_darwin=true AR_aarch64_apple_darwin=true cargo check --locked --target aarch64-apple-darwin $(MACOS)

deny: tools-rust ## Licences, sources and known vulnerabilities of the crates (cargo-deny; its database comes over the network)
	@command -v cargo-deny >/dev/null || { echo "make: cargo-deny is missing. Run cargo install --locked cargo-deny, then make again." >&2; exit 1; }
	cargo deny --locked check --hide-inclusion-graph licenses bans sources
	@cargo deny --locked check advisories || { \
	  echo "make: known vulnerabilities: found, or not checked because the database (github.com/RustSec/advisory-db) could not be" \
	       "fetched; the lines above say which. The rest was checked." >&2; exit 1; }

memcheck: tools-rust ## The tests of records and arrow under valgrind
	@command -v valgrind >/dev/null || { echo "make: valgrind is missing. Install it (Debian: apt-get install valgrind), then run make again." >&2; exit 1; }
	CARGO_TARGET_$(HOST)_RUNNER="valgrind --quiet --error-exitcode=1" PROPTEST_CASES=4 \
	  cargo test --locked -p fletchlog-records -p fletchlog-arrow --lib

# Without the codecs: zstd is C, and Miri objects to how zlib-rs frees its state. `make memcheck` runs them.
WITHOUT_CODECS := $(addprefix --skip ,compression:: legacy:: codec a_rebuilt_batch kept_records_keep what_is_appended_is_read_back)

miri: tools-rust ## The unit tests of records, without the codecs, and of the Arrow decoder in Miri (nightly Rust with miri and rust-src)
	PROPTEST_CASES=1 MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --locked -p fletchlog-records --lib $(TESTS) -- $(WITHOUT_CODECS)
	PROPTEST_CASES=1 MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --locked -p fletchlog-arrow --lib decode::tests

coverage: coverage-rust coverage-python ## Lines that the tests reach, per file: of the crates and of the package

coverage-rust: tools-rust ## Those of the Rust tests (CRATES="-p fletchlog-records ..."; needs the component llvm-tools)
	$(PYTHON) tools/coverage.py $(CRATES)

coverage-python: tools-java build jar $(ARCHIVE) ## Those of the Python tests that are not slow (TESTS="tests/cli ...")
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist loadfile -m "not slow" $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

crash-points: tools-rust ## Power loss at, and failure of, every storage operation of seeded runs (TIME_LIMIT seconds, SEED)
	cargo run --locked --release -p fletchlog-sim --example crash_points

bit-flips: tools-rust ## Every bit of a 64 KiB segment and its side files, one at a time (TIME_LIMIT seconds, SEED)
	cargo run --locked --release -p fletchlog-sim --example bit_flips

# kills, call-faults and power-loss preload a library, which is built with cc. How much of each: KILLS, THREAD_KILLS of processes with
# threads, SPARK_KILLS of the sink's commit, QUERY_KILLS of real Spark queries, TASK_KILLS of tasks that commit by themselves,
# LISTENER_KILLS of a serving process, LAND_KILLS of landers into each format.
kills: build jar ## kill -9 of a Python process at random system calls (KILLS and others: see judges.mk; TIME_LIMIT seconds, SEED)
	$(SUITE) -m judges.kills.one_thread
	$(SUITE) -m judges.kills.many_threads
	$(SUITE) -m judges.kills.spark_sink
	$(SUITE) -m judges.kills.spark_queries
	$(SUITE) -m judges.kills.spark_tasks
	$(SUITE) -m judges.kills.listener
	$(SUITE) -m judges.kills.land
	$(BIN)/python -m pytest -q judges/kills/planted_disks.py

attack: build ## Hostile clients of a serving process while one works (CONNECTIONS, SECONDS an attack, P99_MS)
	$(SUITE) -m judges.attack.listener

call-faults: build ## EIO, ENOSPC, EMFILE, EACCES from the n-th system call of a Python process (RUNS, TIME_LIMIT seconds, SEED)
	$(SUITE) -m judges.kills.call_faults

power-loss: build ## Power loss from the recorded system calls of a process with threads (IMAGES, TIME_LIMIT seconds, SEED)
	$(SUITE) -m judges.kills.power_loss

# Builds with --cfg planted into .build/mutants; the package never contains a planted bug.
mutants: build ## Plant bugs one by one and let the crash and fault suites find each (TIME_LIMIT seconds, MUTANTS)
	$(PYTHON) tools/mutants.py

RUNS ?= 10
properties: tools-rust tools-java build jar $(ARCHIVE) ## The tests with properties, with new cases in each of RUNS runs
	for run in $$(seq $(RUNS)); do \
	  env -u PROPTEST_RNG_SEED cargo test --locked --quiet; \
	  HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest -q -n 3 --dist loadfile --max-worker-restart 0 -m hypothesis tests; \
	done

# Needs a C++ compiler, for libFuzzer. What is found is kept in .build/fuzz.
fuzz: tools-rust ## libFuzzer on every decoder and every file of a directory (TIME_LIMIT seconds per target, TARGETS)
	$(PYTHON) tools/fuzz.py

sim: tools-rust ## Broker and clients under faults, from seeds, histories checked (TIME_LIMIT seconds, SEED, SEEDS, WORLD)
	cargo run --locked --release -p fletchlog-sim --example sim

tools-browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y chromium chromium-driver; } \
	  || { echo "make: chromium and chromedriver are missing. Install them (Debian: apt-get install chromium chromium-driver), then make again." >&2; exit 1; }
