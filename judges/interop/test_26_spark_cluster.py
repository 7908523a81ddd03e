"""Part 26: our Spark source on a cluster of three real nodes, read by executors in processes of their own: one is killed, and so is a node."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import fletchlog as fl
from tests.support.spark_session import start

from . import kafka
from .cluster import Cluster
from .conftest import CASES

# kafka-python, which asks the cluster, leaves sockets open that no node took
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
PART = "26 Spark on a cluster of three"
RECORDS = 300 * CASES
PARTITIONS = 6
EXECUTOR = b"CoarseGrainedExecutorBackend"


def parents() -> dict[int, int]:
    """Of each process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
    return found


def executors() -> list[int]:
    """Processes of Spark's executors below this one."""
    of = parents()
    found = []
    for process in of:
        above = process
        while above in of and above != os.getpid():
            above = of[above]
        try:
            if above == os.getpid() and EXECUTOR in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(process)
        except OSError:
            continue
    return sorted(found)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start(
        spark__master="local-cluster[2,1,1024]",
        spark__jars=kafka.spark_source(),
        spark__executor__memory="768m",
        spark__task__maxFailures="8",
        spark__sql__execution__arrow__maxRecordsPerBatch="2000",
    )
    yield session
    session.stop()


@pytest.fixture(params=kafka.SERVERS)
def cluster(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Cluster]:
    """With one topic."""
    with Cluster(request.param, scratch) as running:
        running.create("t", PARTITIONS, {"min.insync.replicas": "2"})
        with fl.Producer(running.url, {"enable.idempotence": True, "linger.ms": 5}) as producer:
            for number in range(RECORDS):
                producer.send("t", value=b"%d" % number, partition=number % PARTITIONS)
        yield running


def load(spark: SparkSession, cluster: Cluster, *, stream: bool = False, **options: str) -> DataFrame:
    def slowly(batches: Any) -> Iterator[pa.RecordBatch]:
        """So that a task lasts: somebody is killed meanwhile. Within a function, so that executors need no module of the tests."""
        for batch in batches:
            time.sleep(0.4)
            yield batch

    reader = spark.readStream if stream else spark.read
    places = {"kafka.bootstrap.servers": cluster.address, "subscribe": "t", "startingOffsets": "earliest", **options}
    columns = "partition int, offset long, value binary"
    return reader.format("fletchlog").options(**places).load().select("partition", "offset", "value").mapInArrow(slowly, columns)


class Kill(threading.Thread):
    """Kills an executor, then the node that leads the first partition, while a query runs."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.killed: list[int] = []
        self.start()

    def run(self) -> None:
        time.sleep(2)
        running = executors()
        os.kill(running[0], signal.SIGKILL)
        self.killed.append(running[0])
        node = self.cluster.leader("t")
        self.cluster.kill(node)
        self.killed.append(node)
        self.cluster.start(node)


def numbers(rows: list[tuple[int, int, int]]) -> None:
    """Every record once, at its place."""
    assert rows == sorted((number % PARTITIONS, number // PARTITIONS, number) for number in range(RECORDS))


@pytest.mark.timeout(900)
def test_rows_are_the_same_when_executors_and_nodes_die(spark: SparkSession, cluster: Cluster, scratch: Path, count: Callable[..., None]) -> None:
    end = time.monotonic() + 120
    while len(executors()) < 2:
        assert time.monotonic() < end, "Spark has no two executors"
        time.sleep(0.5)
    killing = Kill(cluster)
    table = load(spark, cluster, minPartitions="18").toArrow().to_pydict()
    killing.join()
    assert len(killing.killed) == 2
    numbers(sorted((p, offset, int(value)) for p, offset, value in zip(*table.values(), strict=True)))

    killing = Kill(cluster)
    found: list[tuple[int, int, int]] = []
    stream = load(spark, cluster, stream=True, maxOffsetsPerTrigger=str(RECORDS // 4))

    def keep(frame: DataFrame, _: int) -> None:
        rows = frame.toArrow().to_pydict()
        found.extend((p, offset, int(value)) for p, offset, value in zip(*rows.values(), strict=True))

    query = stream.writeStream.foreachBatch(keep).trigger(availableNow=True).option("checkpointLocation", str(scratch / "checkpoint")).start()
    query.awaitTermination()
    killing.join()
    assert len(killing.killed) == 2
    numbers(sorted(found))
    count(PART, records=2 * RECORDS, executors_killed=2, nodes_killed=2)
