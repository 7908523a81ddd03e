"""Kills the commit of Spark's sink at random system calls, and repeats the batch as Spark does.

A process stages micro-batches and commits them, as tasks and driver do, one after the other; it is killed at the n-th call that changes
the file system. The next one stages the same rows again, for the first batch whose commit was not reported (Spark's commit log),
perhaps cut into other tasks. What must be there: every row once, in order, for readers of committed records; no staged file of
a batch that is committed.

`python -m kills.spark_sink` prints one line for each violation, then `spark-kills: N, V violations`. SPARK_KILLS (default 1,000),
TIME_LIMIT (seconds) and SEED are taken from the environment.
"""

# ruff: noqa: T201

from __future__ import annotations

import itertools
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from settings import count, seconds

from kills import shim
from kills.processes import in_child

NAME = "spark-kills"
BATCHES = 4
ROWS = 60
PARTITIONS = 2
QUERY = "5f0c"
# Enough for an open after a kill, a transaction and a close.
MOST_CALLS = 160
KILLS_PER_DIRECTORY = 15


def sink_options(directory: Path) -> Any:
    from fletchlog.spark.sink_options import SinkOptions

    return SinkOptions.parse({"path": str(directory / "log"), "topic": "t", "maxInlineBytes": "400", "kafka.linger.ms": "0"})


def rows(batch: int) -> list[tuple[int, int]]:
    """(partition, number) of each row of a batch."""
    return [(number % PARTITIONS, number) for number in range(batch * ROWS, (batch + 1) * ROWS)]


def staged(directory: Path, batch: int, rng: random.Random, attempt: int) -> list[Any]:
    """The rows of a batch as tasks hand them over. A task may be run twice; the first attempt is lost then."""
    import pyarrow as pa

    from fletchlog.spark.staging import stage

    all_rows = rows(batch)
    cuts = sorted([0, *rng.sample(range(1, ROWS), rng.randint(0, 3)), ROWS])
    found = []
    for task, (first, end) in enumerate(itertools.pairwise(cuts)):
        part = all_rows[first:end]
        table = pa.table({"value": pa.array([str(n).encode() for _, n in part]), "partition": pa.array([p for p, _ in part], pa.int32())})
        for repeat in range(1 + (rng.random() < 0.2)):
            item = stage(sink_options(directory), table.to_batches(20), task=task, attempt=attempt * 10 + repeat, run=QUERY, batch=batch)
        found.append(item)
    return found


def work(preloaded: shim.Shim, directory: Path, first: int, rng: random.Random, attempt: int, reported: int, calls: int, half: bool) -> None:
    """Stages and commits batch after batch, reports each, and dies somewhere."""
    from fletchlog.spark.staging import clear
    from fletchlog.spark.writer import append

    preloaded.watch(directory)
    preloaded.kill_at(calls, half=half)
    options = sink_options(directory)
    for batch in range(first, first + BATCHES):
        ledger = None if shim.is_planted() else (QUERY, batch)
        append(options, staged(directory, batch, rng, attempt), ledger, QUERY)
        clear(options, QUERY, batch)
        os.write(reported, b".")


def check(directory: Path, batches: int) -> list[str]:
    """Complaints about the committed records: those of so many batches, and perhaps of the one that was being committed."""
    import fletchlog as fl

    wrong = []
    with fl.Broker(directory / "log") as broker:
        for partition in range(PARTITIONS):
            table = broker.scan("t", partition=partition, isolation_level="read_committed").to_pyarrow()
            found = [int(value) for value in table["value"].to_pylist()]
            allowed = [[n for b in range(end) for p, n in rows(b) if p == partition] for end in (batches, batches + 1)]
            if found not in allowed:
                wrong.append(f"t-{partition} has {len(found)} rows ({len(set(found))} different) after {batches} batches")
    staging = Path(f"{directory / 'log'}.staging")
    left = [file.name for file in staging.glob("*")] if staging.is_dir() else []
    wrong += [f"{name} was left behind" for name in left if int(name.split("-")[1]) < batches]
    return wrong


def kill_once(preloaded: shim.Shim, directory: Path, first: int, rng: random.Random, attempt: int) -> tuple[bool, int, list[str]]:
    """One process and what it left: whether it was killed, batches that are reported, complaints."""
    calls, half, seed = rng.randrange(MOST_CALLS), rng.random() < 0.3, rng.random()
    ended = in_child(lambda out: work(preloaded, directory, first, random.Random(seed), attempt, out, calls, half))
    if not ended.was_killed and not ended.well:
        return False, first, [str(ended)]
    batches = first + len(ended.told)
    # In a process of its own, which leaves the directory cleanly closed, or not.
    checked = in_child(lambda out: os.write(out, "\n".join(check(directory, batches)).encode()))
    if not checked.well:
        return ended.was_killed, batches, [f"the directory cannot be opened and read: {checked}"]
    return ended.was_killed, batches, checked.told.decode().splitlines()


def main() -> int:
    """Kills so often, or for so long."""
    wanted, limit, seed = count(NAME, "SPARK_KILLS", 1000), seconds(NAME, 3600), count(NAME, "SEED", 0)
    preloaded = shim.preloaded("kills.spark_sink")
    # Once, before the forks.
    import pyarrow  # noqa: ICN001, F401

    import fletchlog as fl
    import fletchlog.spark

    rng = random.Random(seed)
    deadline = time.monotonic() + limit
    done, batches, violations = 0, 0, 0
    while done < wanted and time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as root:
            directory, first = Path(root), 0
            with fl.Broker(directory / "log", config={"offsets.topic.num.partitions": 1}) as broker:
                broker.create_topic("t", partitions=PARTITIONS)
            for attempt in range(KILLS_PER_DIRECTORY):
                killed, now, wrong = kill_once(preloaded, directory, first, rng, attempt)
                done += killed
                batches += now - first
                first = now
                violations += bool(wrong)
                for line in wrong:
                    print(f"kill {done} of seed {seed}: {line}", flush=True)
                if wrong or done >= wanted or time.monotonic() >= deadline:
                    break
    print(f"{NAME}: {done}, {violations} violations ({batches} batches, seed {seed})")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
