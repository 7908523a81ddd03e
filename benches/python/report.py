"""What benchmarks share: how they run the Rust ones, and how they print what they found."""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def rust_example(name: str, argument: object) -> dict[str, Any]:
    """What an example of fletchlog-arrow (benches/rust/NAME.rs) prints: its last line is JSON."""
    command = ["cargo", "run", "--locked", "--profile", "dist", "--quiet", "-p", "fletchlog-benches", "--example", name, "--", str(argument)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def best_rates(candidates: Mapping[str, tuple[int, Callable[[], object]]], rounds: int, wall: Container[str] = ()) -> dict[str, float]:
    """The best rate of every candidate (records of a call, the call), in million records a second of processor time; of those in `wall` of time that passes.

    They take turns, so that what else the machine does meets all of them.
    """
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, (records, call) in candidates.items():
            clock = time.perf_counter if name in wall else time.process_time
            start = clock()
            call()
            best[name] = max(best.get(name, 0.0), records / (clock() - start) / 1e6)
    return best


def report(rates: dict[str, float], ratios: list[tuple[str, float, float]]) -> None:
    """Rates in million records a second, ratios (name, value, target), and the rates as one line of JSON."""
    for name, value in rates.items():
        print(f"  {name:32} {value:6.2f} million records/s")
    for name, value, target in ratios:
        print(f"  {name:32} {value:6.2f}  (target {target:g}: {'met' if value >= target else 'MISSED'})")
    print(json.dumps(rates))


def run(
    description: str | None,
    measure: Callable[[int, int], dict[str, float]],
    ratios: Callable[[dict[str, float]], list[tuple[str, float, float]]],
    records: int,
    of: str | None = None,
) -> None:
    """A bench as a program: `--records` (default `records`; `of`: what they are counted in) and `--rounds`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--records", type=int, default=records, help=of)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rates = measure(arguments.records, arguments.rounds)
    report(rates, ratios(rates))
