"""What `fletchlog serve` costs above a bare Python: time until it says where it listens, resident memory. Both in turn, medians.

Run by run.py; alone: `python benches/python/serve_start.py`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 41
# limits: ms and MiB above a bare Python
SLOWER_MS = 20.0
LARGER_MIB = 15.0
BARE = [sys.executable, "-c", "import sys; sys.stdout.write('\\n'); sys.stdout.flush(); sys.stdin.read()"]
SERVE = [sys.executable, "-m", "fletchlog", "serve", "--memory", "--listen", "127.0.0.1:0", "--print-address"]


def started(command: list[str]) -> tuple[float, float]:
    """Milliseconds until the first line, MiB that are resident then. The process is ended."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        waited = (time.perf_counter() - begin) * 1000
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()
    return waited, next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """Medians of both, what `serve` takes more, and their ratios."""
    bare, serve = zip(*((started(BARE), started(SERVE)) for _ in range(rounds)), strict=True)
    (bare_ms, bare_mib), (serve_ms, serve_mib) = (map(statistics.median, zip(*taken, strict=True)) for taken in (bare, serve))
    return {
        "bare_ms": bare_ms,
        "serve_ms": serve_ms,
        "more_ms": serve_ms - bare_ms,
        "ms_ratio": serve_ms / bare_ms,
        "bare_mib": bare_mib,
        "serve_mib": serve_mib,
        "more_mib": serve_mib - bare_mib,
    }


if __name__ == "__main__":
    print(json.dumps({name: round(value, 2) for name, value in measure().items()}))
