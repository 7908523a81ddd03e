"""Kills the processes of a real Spark stream whose tasks write into a cluster by themselves (`transactionPerTask`): workers, executors, the driver.

The drivers are those of `judges.kills.spark_queries`, with one stream of the partitions of a directory into those of a topic. What the option promises is
looked at after each driver: readers of committed records see every row of a batch that Spark noted as done once, of the next batch the rows of some tasks,
and nothing else; where a partition is one task, in order, and a task's rows as a whole. A batch is cut into the same tasks whichever driver runs it, which
the option asks for. The last driver of a directory ends by itself; then everything is there.

`python -m judges.kills.spark_tasks` has `fletchlog serve` as the cluster, `judges/interop/test_28_spark_task_kills.py` a real Kafka. It prints one line for each
violation, then `task-kills: N, V violations (..)`. TASK_KILLS (default 100), TIME_LIMIT (seconds) and SEED are taken from the environment; PLANTED=yes
gives each attempt of a task a ledger of its own.
"""

# ruff: noqa: T201

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from settings import count, seconds

import fletchlog as fl
from judges.kills.difference import difference
from judges.kills.served import Served
from judges.kills.spark_driver import PARTITIONS, Plan
from judges.kills.spark_queries import Campaign, Judge, fill, planned, rows_a

NAME = "task-kills"
CHECKPOINT = "checkpoint-e"
# So long a cluster may take to end the transactions of the last requests; nothing takes nearly as long.
SEEN_SECONDS = 60


def complaint(found: list[str], done: list[str], begun: list[str], *, whole: bool) -> str | None:
    """What is wrong with the rows of a partition. `done`: of the batches that are noted as done; `begun`: with the next one. `whole`: it is one task."""
    if whole:
        return None if found in (done, begun) else difference([*map(int, found)], [*map(int, begun)])
    again = sum(times - 1 for times in Counter(found).values())
    lost, strange = set(done) - set(found), set(found) - set(begun)
    return f"{again} repeated, {len(lost)} lost, {len(strange)} strange" if again or lost or strange else None


class TaskJudge(Judge):
    """Compares what readers of committed records see in a cluster with what must be there."""

    def __init__(self, root: Path, cluster: fl.Cluster, *, whole: bool, last: bool) -> None:
        self.root, self.last, self.place = root, last, root / "tasks"
        self.whole, self.cluster = whole, cluster
        end = time.monotonic() + SEEN_SECONDS
        while True:
            self.found = {"e": [self.read(partition) for partition in range(PARTITIONS)]}
            self.wrong = self.look()
            if not self.wrong or time.monotonic() > end:
                break
            time.sleep(0.2)

    def read(self, partition: int) -> list[str]:
        """Committed values of a partition."""
        table = self.cluster.scan(self.root.name, partition=partition, isolation_level="read_committed").to_pyarrow()
        return [value.decode() for value in table["value"].to_pylist()]

    def look(self) -> list[str]:
        """Complaints."""
        noted = planned(self.root / CHECKPOINT, last=self.last)
        if not noted:
            return ["the query ended before its end"]
        done, begun = map(rows_a, noted)
        wrong = [complaint(*rows, whole=self.whole) for rows in zip(self.found["e"], done, begun, strict=True)]
        return [f"e-{partition}: {found}" for partition, found in enumerate(wrong) if found]


class TaskCampaign(Campaign):
    """One topic of a cluster after the other."""

    name = NAME
    kinds = ("task", "written task", "worker", "commit")
    planted_kind = "written task"
    # of the source: a stream that is repeated with others is cut into other tasks
    min_partitions = 1

    def __init__(self, bootstrap: str, wanted: int, deadline: float, seed: int, scratch: Path) -> None:
        super().__init__(wanted, deadline, seed, scratch)
        self.bootstrap = bootstrap

    def fill(self, root: Path) -> None:
        """The source's directory, and a topic."""
        fill(root)
        self.min_partitions = self.rng.choice([1, 2 * PARTITIONS])
        with fl.Cluster(f"kafka://{self.bootstrap}") as cluster:
            # the sink's batches have up to 1 MiB, more than the segments of `Served`
            cluster.create_topic(root.name, partitions=PARTITIONS, config={"segment.bytes": str(2 << 20)})

    def plan(self, root: Path, *, last: bool) -> Plan:
        """Another master, and other numbers of cores, each time."""
        return replace(super().plan(root, last=last), topics="e", cluster=self.bootstrap, min_partitions=self.min_partitions)

    def judge(self, root: Path, *, last: bool) -> TaskJudge:
        """What a driver left."""
        with fl.Cluster(f"kafka://{self.bootstrap}") as cluster:
            return TaskJudge(root, cluster, whole=self.min_partitions <= PARTITIONS, last=last)


def main() -> int:
    """Kills so often, or for so long."""
    wanted, limit, seed = count(NAME, "TASK_KILLS", 100), seconds(NAME, 3600), count(NAME, "SEED", 0)
    with tempfile.TemporaryDirectory(prefix="fletchlog-", ignore_cleanup_errors=True) as scratch:
        served = Served(Path(scratch) / "cluster")
        try:
            campaign = TaskCampaign(served.bootstrap, wanted, time.monotonic() + limit, seed, Path(scratch))
            print(campaign.run())
        finally:
            served.end()
    return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
