"""Kills the commit of Spark's sink at random system calls, or fills its disk, and repeats the batch as Spark does.

A process stages micro-batches and commits them, as tasks and driver do, one after the other; it is killed at the n-th call that changes
the file system, or the disk is full from there on, while rows are staged or committed; then the batch fails, is given up as Spark does it, and
is repeated when there is room again. The next one stages the same rows again, for the first batch whose commit was not reported (Spark's commit log),
perhaps cut into other tasks. What must be there: every row once, in order, for readers of committed records; no staged file of
a batch that is committed.

`python -m judges.kills.spark_sink` prints one line for each violation, then `spark-kills: N, V violations`. SPARK_KILLS (default 1,000),
TIME_LIMIT (seconds) and SEED are taken from the environment.
"""

# ruff: noqa: T201

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from settings import count, seconds

from judges.kills import shim
from judges.kills.processes import in_child

NAME = "spark-kills"
BATCHES = 4
ROWS = 60
PARTITIONS = 2
QUERY = "5f0cb1a2-0000-4000-8000-000000000000"
# Enough for an open after a kill, a transaction and a close.
MOST_CALLS = 160
KILLS_PER_DIRECTORY = 15
# Share of the faults that are a full disk.
FULL = 0.25


class Fault(NamedTuple):
    """What happens at which call that changes the file system."""

    call: int
    half: bool
    full: bool


def sink_options(directory: Path) -> Any:
    from fletchlog.spark.sink_options import SinkOptions

    times = {"kafka.linger.ms": "0", "kafka.request.timeout.ms": "1000", "kafka.delivery.timeout.ms": "2000", "kafka.max.block.ms": "2000"}
    return SinkOptions.parse({"path": str(directory / "log"), "topic": "t", "maxInlineBytes": "400", "checkpointLocation": str(directory / "c"), **times})


def rows(batch: int) -> list[tuple[int, int]]:
    """(partition, number) of each row of a batch."""
    return [(number % PARTITIONS, number) for number in range(batch * ROWS, (batch + 1) * ROWS)]


def staged(directory: Path, batch: int, rng: random.Random, run: str) -> list[Any]:
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
            item = stage(sink_options(directory), table.to_batches(20), task=task, attempt=repeat, run=run, query=QUERY)
        found.append(item)
    return found


def work(preloaded: shim.Shim, directory: Path, first: int, rng: random.Random, reported: int, fault: Fault) -> None:
    """Stages and commits batch after batch, reports each, and dies somewhere, or goes on when the disk has room again."""
    import fletchlog as fl
    from fletchlog.spark.staging import clear, new_run
    from fletchlog.spark.writer import append

    preloaded.watch(directory)
    if fault.full:
        preloaded.fail_at(fault.call, shim.WRITE | shim.CREATE | shim.MAKE_DIR, errno.ENOSPC, for_good=True)
    else:
        preloaded.kill_at(fault.call, half=fault.half)
    options = sink_options(directory)
    for batch in range(first, first + BATCHES):
        ledger = None if shim.is_planted() else (QUERY, batch)
        run = new_run(options)
        try:
            append(options, staged(directory, batch, rng, run), ledger, QUERY)
        except (OSError, ValueError, fl.KafkaError):
            if not preloaded.stop_failing():
                raise
            os.write(reported, b"f")
            clear(options, {run})
            run = new_run(options)
            append(options, staged(directory, batch, rng, run), ledger, QUERY)
        clear(options, {run})
        os.write(reported, b".")


def check(directory: Path, batches: int, *, cleared: bool) -> list[str]:
    """Complaints about the committed records: those of so many batches, and perhaps of the one that was being committed. After a commit
    (`cleared`) only the batch at which the process died may have staged files."""
    import fletchlog as fl

    wrong = []
    with fl.Broker(directory / "log", create=True) as broker:
        for partition in range(PARTITIONS):
            table = broker.scan("t", partition=partition, isolation_level="read_committed").to_pyarrow()
            found = [int(value) for value in table["value"].to_pylist()]
            allowed = [[n for b in range(end) for p, n in rows(b) if p == partition] for end in (batches, batches + 1)]
            if found not in allowed:
                wrong.append(f"t-{partition} has {len(found)} rows ({len(set(found))} different) after {batches} batches")
    staging = Path(f"{directory / 'log'}.staging")
    left = [file.name for file in staging.glob("*")] if staging.is_dir() else []
    if cleared and len(left) > 1:
        wrong.append(f"{left} were left behind")
    return wrong


def kill_once(preloaded: shim.Shim, directory: Path, first: int, rng: random.Random) -> tuple[bool, bool, int, list[str]]:
    """One process and what it left: whether it was killed, whether its disk was full, batches that are reported, complaints."""
    fault = Fault(rng.randrange(MOST_CALLS), half=rng.random() < 0.3, full=rng.random() < FULL and not shim.is_planted())
    seed = rng.random()
    ended = in_child(lambda out: work(preloaded, directory, first, random.Random(seed), out, fault))
    if not ended.was_killed and not ended.well:
        return False, False, first, [str(ended)]
    batches = first + ended.output.count(b".")
    # In a process of its own, which leaves the directory cleanly closed, or not.
    checked = in_child(lambda out: os.write(out, "\n".join(check(directory, batches, cleared=b"." in ended.output)).encode()))
    if not checked.well:
        return ended.was_killed, b"f" in ended.output, batches, [f"the directory cannot be opened and read: {checked}"]
    return ended.was_killed, b"f" in ended.output, batches, checked.output.decode().splitlines()


def main() -> int:
    """Kills so often, or for so long."""
    wanted, limit, seed = count(NAME, "SPARK_KILLS", 1000), seconds(NAME, 3600), count(NAME, "SEED", 0)
    preloaded = shim.preloaded("judges.kills.spark_sink")
    # Once, before the forks.
    import pyarrow  # noqa: ICN001, F401

    import fletchlog as fl
    import fletchlog.spark

    rng = random.Random(seed)
    deadline = time.monotonic() + limit
    done, full, batches, violations = 0, 0, 0, 0
    while done < wanted and time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as root:
            directory, first = Path(root), 0
            (directory / "c").mkdir()
            (directory / "c" / "metadata").write_text(json.dumps({"id": QUERY}))  # as Spark
            with fl.Broker(directory / "log", create=True, config={"offsets.topic.num.partitions": 1}) as broker:
                broker.create_topic("t", partitions=PARTITIONS)
            for _ in range(KILLS_PER_DIRECTORY):
                killed, filled, now, wrong = kill_once(preloaded, directory, first, rng)
                done += killed
                full += filled
                batches += now - first
                first = now
                violations += bool(wrong)
                for line in wrong:
                    print(f"kill {done} of seed {seed}: {line}", flush=True)
                if wrong or done >= wanted or time.monotonic() >= deadline:
                    break
    print(f"{NAME}: {done}, {violations} violations ({batches} batches, {full} times a full disk, seed {seed})")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
