"""Fuzzes each target of `rust/sim/src/fuzz` with libFuzzer: `make fuzz`.

TIME_LIMIT is seconds per target (default 60), TARGETS a comma-separated choice (default all). New inputs are kept in
`.build/fuzz/corpus`, failing ones in `.build/fuzz/failures`; run one again with

    FUZZ_TARGET=batch .build/fuzz/target/<host>/release/fuzz .build/fuzz/failures/batch/crash-...

Ends with one line per target, `fuzz: TARGET N executions, C crashes`; exit code 1 if any crashed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from settings import seconds

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / ".build" / "fuzz"
# What `cargo fuzz` passes, without its sanitizer: coverage by 8-bit counters and traced comparisons, on stable Rust.
COVERAGE = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
]
# A decoder may use its limit of 1 MiB a few times over; what a whole log in memory takes is far below this, too.
MEMORY_MIB = 1024
# Seconds for one input. The slowest target takes milliseconds.
TIMEOUT = 10


def build() -> Path:
    """Builds the fuzzer; returns its path. A target triple is named so that build scripts get no coverage flags."""
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = next(line.split()[1] for line in version.splitlines() if line.startswith("host:"))
    environment = {**os.environ, "RUSTFLAGS": " ".join(COVERAGE), "CARGO_TARGET_DIR": str(BUILD / "target")}
    command = ["cargo", "build", "--locked", "--release", "--manifest-path", str(ROOT / "fuzz" / "Cargo.toml"), "--target", host]
    subprocess.run(command, check=True, env=environment)
    return BUILD / "target" / host / "release" / "fuzz"


def targets() -> dict[str, int]:
    """Every target and its longest input, as the table in the source names them."""
    source = (ROOT / "rust" / "sim" / "src" / "fuzz" / "mod.rs").read_text()
    found = {name: int(most) for name, most in re.findall(r'^    target\("(\w+)", [\w:]+, (\d+)\)', source, re.MULTILINE)}
    chosen = os.environ.get("TARGETS")
    if not chosen:
        return found
    unknown = set(chosen.split(",")) - set(found)
    if unknown:
        sys.exit(f"fuzz: no target {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    return {name: found[name] for name in chosen.split(",")}


def fuzz(binary: Path, target: str, max_len: int, limit: int) -> tuple[int, int]:
    """Runs one target; returns its executions and crashes (libFuzzer stops at the first)."""
    corpus, failures = BUILD / "corpus" / target, BUILD / "failures" / target
    for directory in (corpus, failures):
        directory.mkdir(parents=True, exist_ok=True)
    options = {
        "max_total_time": limit,
        "max_len": max_len,
        "rss_limit_mb": MEMORY_MIB,
        "timeout": TIMEOUT,
        "artifact_prefix": f"{failures}/",
        "print_final_stats": 1,
        "verbosity": 0,
    }
    command = [str(binary), *(f"-{name}={value}" for name, value in options.items()), str(corpus), str(ROOT / "fuzz" / "corpus" / target)]
    environment = {**os.environ, "FUZZ_TARGET": target}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", run.stderr)
    if run.returncode != 0 or executions is None:
        print(run.stderr[-4000:], file=sys.stderr)
    return int(executions[1]) if executions else 0, int(run.returncode != 0)


def main() -> int:
    """Fuzzes all, then says what came of it."""
    limit = int(seconds("fuzz", 60))
    binary = build()
    results = {name: fuzz(binary, name, max_len, limit) for name, max_len in targets().items()}
    for name, (executions, crashes) in results.items():
        print(f"fuzz: {name} {executions} executions, {crashes} crashes")
    return int(any(crashes for _, crashes in results.values()))


if __name__ == "__main__":
    sys.exit(main())
