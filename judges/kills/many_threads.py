"""Kills a process with threads at random system calls, reopens its directory, and holds it against what was acknowledged.

The threads are those of `workload`, at level fsync. A process dies at the n-th of its calls that change the directory, some in the
middle of a write; some of the processes that open it afterwards are killed in their recovery, too. Then everything that
was acknowledged is there, once and in order, transactions are whole or absent, and the group's offset is not behind.

`python -m judges.kills.many_threads` prints one line for each violation, then `thread-kills: N, V violations (..)`. THREAD_KILLS (default
1,000), TIME_LIMIT (seconds) and SEED are taken from the environment.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from settings import count, seconds

import fletchlog as fl
from judges.kills import shim
from judges.kills.history import CONFIG, SENT, Check, History, damage
from judges.kills.processes import in_child
from judges.kills.workload import Workload

NAME = "thread-kills"
RUNS_PER_DIRECTORY = 12
# A recovery makes some tens of calls.
RECOVERY_CALLS = 120


def work(preloaded: shim.Shim, directory: Path, run: int, seed: int, notes: Path) -> None:
    """Runs the threads until the process is killed."""
    rng = random.Random(seed)
    preloaded.watch(directory)
    # Few calls as likely as many: the first ones are those of the recovery.
    preloaded.kill_at(int(10 ** rng.uniform(0, 3.6)), half=rng.random() < 0.3)
    journal = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    workload = Workload(directory, run, rng, lambda *note: os.write(journal, json.dumps(note).encode() + b"\n"))
    for thread in workload.threads:
        thread.join()


def check(directory: Path, notes: Path, clean: bool) -> dict[str, list[object]]:
    """What is wrong with the directory, and what is settled now."""
    history = History().take(json.loads(line) for line in notes.read_text().splitlines())
    broker = fl.Broker(directory, create=True, config=CONFIG)
    found = Check(broker, history, gapless=True)
    if clean:
        broker.close()
        found.wrong += damage(directory)
    return {"wrong": found.wrong, "notes": found.notes}


def lose_the_end(directory: Path, topic: str) -> None:
    """Cuts a byte from the newest batch of a topic."""
    segments = [path for path in directory.glob(f"{topic}-*/*.log") if path.stat().st_size]
    if segments:
        newest = max(segments, key=lambda path: path.stat().st_mtime_ns)
        os.truncate(newest, newest.stat().st_size - 1)


def kill_once(preloaded: shim.Shim, root: Path, run: int, rng: random.Random) -> tuple[int, list[str]]:
    """One process and what it left: how many were killed, and complaints."""
    directory, notes, seed = root / "log", root / "notes", rng.randrange(1 << 30)
    ended = in_child(lambda _: work(preloaded, directory, run, seed, notes))
    if not ended.was_killed:
        return 0, [str(ended)]
    killed = 1
    if not notes.exists():
        notes.touch()
    if rng.random() < 0.3:
        calls, half = rng.randrange(RECOVERY_CALLS), rng.random() < 0.3

        def recover(_: int) -> None:
            preloaded.watch(directory)
            preloaded.kill_at(calls, half=half)
            check(directory, notes, clean=True)

        killed += in_child(recover).was_killed
    if shim.is_planted():
        lose_the_end(directory, SENT)
    clean = rng.random() < 0.5
    ended = in_child(lambda out: os.write(out, json.dumps(check(directory, notes, clean)).encode()))
    if not ended.well:
        return killed, [f"the directory cannot be opened and read: {ended}"]
    found = json.loads(ended.output)
    with notes.open("a") as journal:
        journal.writelines(json.dumps(note) + "\n" for note in found["notes"])
    return killed, found["wrong"]


def main() -> int:
    """Kills so often, or for so long."""
    wanted, limit, seed = count(NAME, "THREAD_KILLS", 1000), seconds(NAME, 3600), count(NAME, "SEED", 0)
    preloaded = shim.preloaded("judges.kills.many_threads")
    rng, deadline = random.Random(seed), time.monotonic() + limit
    done = violations = 0
    counts: Counter[str] = Counter()
    while done < wanted and time.monotonic() < deadline:
        with tempfile.TemporaryDirectory(prefix="fletchlog-kills-") as root:
            for run in range(RUNS_PER_DIRECTORY):
                killed, wrong = kill_once(preloaded, Path(root), run, rng)
                done += killed
                violations += bool(wrong)
                for line in wrong[:10]:
                    print(f"{NAME}: kill {done} of seed {seed}: {line}", flush=True)
                if wrong or done >= wanted or time.monotonic() >= deadline:
                    break
            counts.update(json.loads(line)[0] for line in (Path(root) / "notes").read_text().splitlines())
    print(f"{NAME}: {done}, {violations} violations ({counts['sent']} acknowledged records, {counts['transaction']} transactions, seed {seed})")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
