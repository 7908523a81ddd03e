"""Checks that no function of the product's Rust is too long to be read at a glance.

Run by `make lint`. Exits 1 and names every function with more than `LIMIT` lines, from `fn` to its last brace. Tests and `rust/sim` are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rust_text import product

ROOT = Path(__file__).resolve().parent.parent
# lines of a function
LIMIT = 80


def breaches(root: Path) -> tuple[int, list[str]]:
    """How many functions there are, and those that are too long."""
    found, count = [], 0
    crates = sorted(path.parent.name for path in (root / "rust").glob("*/src"))
    for source in product(root, [crate for crate in crates if crate != "sim"]):
        for function in source.functions:
            count += 1
            lines = source.line(function.end - 1) - source.line(function.start) + 1
            if lines > LIMIT:
                found.append(f"{source.name}:{source.line(function.start)}: `{function.name}` has {lines} lines, at most {LIMIT} are allowed: cut it")
    return count, found


def main() -> int:
    """Prints what was found."""
    count, found = breaches(ROOT)
    for breach in found:
        print(f"check_length: {breach}", file=sys.stderr)
    print(f"check_length: {count} functions, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
