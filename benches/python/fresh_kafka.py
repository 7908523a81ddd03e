"""What the fixture `kafka` costs a test: a run of tests that use it against a run of as many that do not. The best run of each counts.

Run by run.py; alone: `python benches/python/fresh_kafka.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = 200
ROUNDS = 3
# limit: ms a test
LIMIT_MS = 10.0
FIXTURES = {"fresh": "kafka", "bare": "tmp_path_factory"}


def run(fixture: str) -> float:
    """Seconds of a run of tests that use this fixture."""
    with tempfile.TemporaryDirectory() as folder:
        text = f"import pytest\n@pytest.mark.parametrize('n', range({TESTS}))\ndef test_it({fixture}, n):\n    assert {fixture}\n"
        (Path(folder) / "test_it.py").write_text(text)
        (Path(folder) / "pytest.ini").write_text("[pytest]\n")
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begin


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds that the fixture adds to a test, and the ratio of the runs."""
    best = {name: float("inf") for name in FIXTURES}
    for _ in range(rounds):
        best = {name: min(best[name], run(fixture)) for name, fixture in FIXTURES.items()}
    return {"more_ms": (best["fresh"] - best["bare"]) * 1000 / TESTS, "ratio": best["fresh"] / best["bare"]}


if __name__ == "__main__":
    print(json.dumps({name: round(value, 2) for name, value in measure().items()}))
