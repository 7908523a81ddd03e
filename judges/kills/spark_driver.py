"""The program whose processes `judges.kills.spark_queries` and `judges.kills.spark_tasks` kill: one Spark session with two streams and two writers of frames into one
directory, or with a stream whose tasks write into a cluster.

`python -m judges.kills.spark_driver JSON` (a `Plan`) runs until it is killed or, for the last one, until everything is written. What was done is
in files of the plan's directory. A query or write that fails is started again, as an operator does. A session that Spark broke ends at once with `BROKEN`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from judges.kills.spark_watched import DROPPED, SLOWED, LedgerDropped, Slowed, note
from tests.support.spark_session import start

PARTITIONS = 3
VERSION_ROWS = 200
WRITE_ROWS = 150
# Several queries in one session change a collection of Spark at the same time. From then on no task of that session can be serialized.
BREAKS = "Task serialization failed: java.lang.IllegalStateException: Illegal size"
BROKEN = 3
# A machine that is busy.
OF_SPARK = "Python worker failed to connect back"
# Versions of `c` that a driver repeats although they are done.
REPEATED = 2


@dataclass(frozen=True)
class Plan:
    """What one driver does."""

    root: str
    master: str
    config: dict[str, str]
    seed: int
    min_partitions: int
    max_offsets: int
    inline: int
    last: bool
    planted: bool
    topics: str = "abcd"
    cluster: str = ""

    @property
    def place(self) -> Path:
        """What the marks of processes are beside: the log, or where tasks that write into the cluster would stage."""
        return self.file("tasks" if self.cluster else "log")

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    def file(self, name: str) -> Path:
        """A file that outlives the driver."""
        return Path(self.root) / name


def lines(file: Path) -> list[str]:
    """What was noted."""
    return file.read_text().splitlines() if file.exists() else []


def slowly(batches: Any) -> Iterator[Any]:
    """Some tasks last longer than others: time to be killed in, and a reason for speculation."""
    for batch in batches:
        if random.random() < 0.5:
            time.sleep(random.uniform(0, 0.6))
        yield batch


class Driver:
    """Runs the plan in one session."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.spark = start(spark__master=plan.master, **plan.config)
        for kind in (Slowed, LedgerDropped):
            self.spark.dataSource.register(kind)
        self.rng = random.Random(plan.seed)
        self.failed: list[str] = []

    def sink(self, topic: str, **options: Any) -> dict[str, str]:
        """Options of every write."""
        found = {"path": f"{self.plan.root}/log", "topic": topic, "maxInlineBytes": self.plan.inline, **options}
        return {name: str(value) for name, value in found.items()}

    @property
    def format(self) -> str:
        """Ours, with marks and pauses around its commit."""
        return DROPPED if self.plan.planted else SLOWED

    def stream(self) -> Any:
        """Numbers from the other directory: (partition, number), in order in each partition."""
        options = {"path": f"{self.plan.root}/in", "subscribe": "in", "startingOffsets": "earliest"}
        options |= {"minPartitions": str(self.plan.min_partitions), "maxOffsetsPerTrigger": str(self.plan.max_offsets)}
        read = self.spark.readStream.format("fletchlog").options(**options).load()
        return read.select("partition", "value").mapInArrow(slowly, "partition int, value binary")

    def tasks_of(self, stream: Any) -> Any:
        """Into the cluster, with `transactionPerTask`."""
        place = {"kafka.bootstrap.servers": self.plan.cluster, "transactionPerTask": "true", "stagingPath": str(self.plan.place)}
        if self.plan.planted:  # no attempt has an entry in the ledger
            place["missingLedger"] = "append"
        return stream.writeStream.format(self.format).options(**place, topic=Path(self.plan.root).name)

    def save(self, frame: Any, topic: str, **options: Any) -> None:
        """`df.write`."""
        frame.write.format(self.format).options(**self.sink(topic, **options)).mode("append").save()

    def query(self, name: str) -> Any:
        """`a`: the sink; `b`: `foreachBatch`, each batch in the order of its numbers; `e`: the sink, each task by itself."""
        stream = self.stream()
        if name == "b":
            writer = stream.writeStream.foreachBatch(self.ordered)
        else:
            writer = self.tasks_of(stream) if name == "e" else stream.writeStream.format(self.format).options(**self.sink("a"))
        if self.plan.last:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", f"{self.plan.root}/checkpoint-{name}").start()

    def ordered(self, frame: Any, batch: int) -> None:
        """One batch of `b`."""
        rows = frame.selectExpr("cast(cast(value as string) as long) as number").orderBy("number")
        self.save(rows.selectExpr("cast(number as string) as value"), "b", txnAppId="b", txnVersion=batch)

    def run_query(self, name: str) -> None:
        """Until it is through."""
        self.query(name).awaitTermination()

    def write_versions(self, _: str) -> None:
        """`c`: batch writes with the number of a version, from some that are done on."""
        done = max(map(int, lines(self.plan.file("c.done"))), default=-1)
        for version in range(max(0, done - REPEATED + 1), done + 4 if self.plan.last else sys.maxsize):
            rows = self.spark.range(version * VERSION_ROWS, (version + 1) * VERSION_ROWS, numPartitions=self.rng.randint(1, 3))
            frame = rows.selectExpr("cast(id as string) as value", f"cast(id % {PARTITIONS} as int) as partition").mapInArrow(
                slowly, "value string, partition int"
            )
            self.save(frame, "c", txnAppId="c", txnVersion=version)
            note(self.plan.file("c.done"), str(version))

    def write_frames(self, _: str) -> None:
        """`d`: batch writes, each all or nothing."""
        for _ in range(3 if self.plan.last else sys.maxsize):
            name = f"{self.rng.getrandbits(64):x}"
            note(self.plan.file("d.begun"), name)
            rows = self.spark.range(WRITE_ROWS, numPartitions=self.rng.randint(1, 3)).mapInArrow(slowly, "id long").orderBy("id")
            self.save(rows.selectExpr(f"concat('{name} ', id) as value"), "d")
            note(self.plan.file("d.done"), name)

    def again_and_again(self, act: Callable[[str], None], name: str) -> None:
        """Starts what failed again; a driver of which nothing is killed has no excuse."""
        self.spark._jvm.SparkSession.setActiveSession(self.spark._jsparkSession)  # else Spark finds no Python source in this thread
        while True:
            try:
                act(name)
            except Exception as error:  # noqa: BLE001 - whatever a kill may cause
                note(self.plan.file("failures"), f"{name}: {str(error)[:3000]!r}")
                if BREAKS in str(error):
                    os._exit(BROKEN)
                if self.plan.last and OF_SPARK not in str(error):
                    self.failed.append(name)
                    return
                time.sleep(0.1)
            else:
                return

    def run(self) -> int:
        """Both queries and both writers at the same time; then a write that clears what killed drivers left."""
        acts = {"a": self.run_query, "b": self.run_query, "c": self.write_versions, "d": self.write_frames, "e": self.run_query}
        threads = [threading.Thread(target=self.again_and_again, args=(acts[name], name), daemon=True) for name in self.plan.topics]
        note(self.plan.file("started"), str(os.getpid()))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not self.failed and not self.plan.cluster:
            self.save(self.spark.range(1).selectExpr("'end' as value"), "end", stagingRetention="1ms")
        self.spark.stop()
        return 1 if self.failed else 0


def main() -> int:
    """The plan is the only argument."""
    plan = Plan(**json.loads(sys.argv[1]))
    with contextlib.suppress(KeyboardInterrupt):
        return Driver(plan).run()
    return 1


if __name__ == "__main__":
    sys.exit(main())
