"""What tracing costs: polls with it off against a build without its hooks, and on against off.

    python benches/python/trace_cost.py --rounds 20 --turns 15

Both builds of `benches/rust/trace_cost.rs` take turns, and the best time of each counts: on a quiet machine the noise of that is far below
1 %. The build of the same source under another name tells how far: two builds of one program are laid out differently in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OFF_MAX, ON_MAX = 1.01, 2.0


def built(directory: Path, *features: str) -> Path:
    """The benchmark with these features, under a name of its own."""
    command = ["cargo", "build", "--locked", "--release", "--quiet", "-p", "fletchlog-sim", "--example", "trace_cost", *features]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    name = directory / ("-".join(["trace_cost", *features]).replace("--features", "with"))
    return Path(shutil.copy2(target / "release" / "examples" / "trace_cost", name))


def measure(rounds: int, turns: int) -> dict[str, dict[str, float]]:
    """Nanoseconds per poll of each kind of poll: `{kind: {"without hooks": .., "off": .., "on": ..}}`."""
    directory = ROOT / ".build"
    directory.mkdir(exist_ok=True)
    bare, hooked = built(directory, "--features", "without-trace"), built(directory)
    candidates = {"without hooks": [bare], "off": [hooked], "on": [hooked, "--trace"]}
    best: dict[str, dict[str, float]] = {}
    for _ in range(turns):
        for name, command in candidates.items():
            done = subprocess.run([*command, str(rounds)], capture_output=True, text=True, check=True)
            for kind, took in json.loads(done.stdout).items():
                known = best.setdefault(kind, {})
                known[name] = min(took, known.get(name, took))
    return best


def main() -> None:
    """Prints nanoseconds and ratios, and fails if a ratio is too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    missed = []
    for kind, took in measure(arguments.rounds, arguments.turns).items():
        off, on = took["off"] / took["without hooks"], took["on"] / took["off"]
        print(f"  poll of {kind:24} {took['off']:9.0f} ns   off / without hooks {off:6.3f} (at most {OFF_MAX})   on / off {on:6.2f} (below {ON_MAX:g})")
        missed += [f"off, {kind}"] * (off > OFF_MAX) + [f"on, {kind}"] * (on >= ON_MAX)
    if missed:
        raise SystemExit(f"tracing costs too much: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
