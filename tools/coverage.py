"""Lines that the tests of Rust crates reach: `coverage.py -p fletchlog-records`; without arguments all crates of the default members.

Builds with `-C instrument-coverage` into .build/coverage, runs the tests, and prints the table of llvm-cov. The tools are those of rustc
(`rustup component add llvm-tools`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / ".build/coverage"


def main() -> None:
    """Builds, runs, prints."""
    library = output("rustc", "--print", "target-libdir").strip()
    tools = Path(library).parent / "bin"
    if not (tools / "llvm-cov").exists():
        sys.exit("coverage: llvm-cov is missing: run rustup component add llvm-tools")
    raw = TARGET / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(TARGET),
        "RUSTFLAGS": "-C instrument-coverage",
        "LLVM_PROFILE_FILE": str(raw / "%p-%m.profraw"),
    }
    words = ["cargo", "test", "--locked", *sys.argv[1:]]
    built = output(*words, "--no-run", "--message-format=json", environment=environment)
    programs = [found["executable"] for found in map(json.loads, built.splitlines()) if found.get("executable")]
    subprocess.run(words, cwd=ROOT, env=environment, check=True)
    merged = TARGET / "all.profdata"
    output(str(tools / "llvm-profdata"), "merge", "--sparse", "--output", str(merged), *map(str, raw.glob("*.profraw")))
    objects = [word for program in programs[1:] for word in ("--object", program)]
    # tests and what is not ours are no part of it
    ignored = r"--ignore-filename-regex=(registry|rustc|/tests?[/.]|/tests\.rs)"
    print(output(str(tools / "llvm-cov"), "report", f"--instr-profile={merged}", ignored, "--show-region-summary=false", programs[0], *objects))


def output(*command: str, environment: dict[str, str] | None = None) -> str:
    """What a command prints; it ends this one if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"coverage: {' '.join(command[:3])} failed with code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
