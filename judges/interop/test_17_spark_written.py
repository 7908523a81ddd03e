"""Part 17: a real broker takes a directory that Spark wrote; its console consumer shows the rows of the frames, once and in order."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import fletchlog as fl
from fletchlog.ledger import TOPIC as LEDGER_TOPIC
from fletchlog.ledger import group_of

from . import kafka
from .kraft import Kraft, cluster_of
from .test_10_spark import spark  # noqa: F401
from .test_12_wire_tools import CLASSES

PART = "17 written by Spark, read by Kafka"
RELEASE = kafka.NEWEST
START = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
START_MS = int(START.timestamp() * 1000)
COLUMNS = ["topic", "partition", "key", "value", "headers", "timestamp"]
# partition -> what the console consumer prints of each record: timestamp, headers, key, value
Shown = dict[int, list[str]]


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:  # noqa: F811
    """Numbered rows for three partitions in the order of their numbers, cut into five tasks."""
    frame = spark.range(first, first + count, numPartitions=5).orderBy("id")
    return frame.selectExpr(
        "'orders' as topic",
        "cast(id % 3 as int) as partition",
        "if(id % 7 = 0, null, concat('key-', id)) as key",
        "concat('value ', id) as value",
        "if(id % 4 = 0, array(struct('h' as key, cast(string(id) as binary) as value)), null) as headers",
        f"timestamp_millis({START_MS} + id) as timestamp",
    )


def shown(numbers: range) -> Shown:
    found: Shown = defaultdict(list)
    for n in numbers:
        headers = f"h:{n}" if n % 4 == 0 else "NO_HEADERS"
        key = "null" if n % 7 == 0 else f"key-{n}"
        found[n % 3].append(f"CreateTime:{START_MS + n}\t{headers}\t{key}\tvalue {n}")
    return found


def save(frame: DataFrame, directory: Path, **options: str) -> None:
    frame.write.format("fletchlog").option("path", str(directory)).options(**options).mode("append").save()


def leave_an_aborted_transaction(directory: Path) -> None:
    """What a commit that died leaves for readers of uncommitted records."""
    with fl.Broker(directory, create=True) as broker, fl.Producer(broker, {"transactional.id": "died"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(3):
            producer.send("orders", value=b"not committed", partition=partition)
        producer.flush()
        producer.abort_transaction()


def stream(spark: SparkSession, directory: Path, source: Path, checkpoint: Path) -> str:  # noqa: F811
    """Copies a topic of another directory through `writeStream`, in several batches and two starts; the query's id."""
    for _ in range(2):
        read = spark.readStream.format("fletchlog").option("path", str(source)).option("subscribe", "orders")
        frame = read.options(startingOffsets="earliest", includeHeaders="true", maxOffsetsPerTrigger="60").load().select(*COLUMNS)
        query = frame.writeStream.format("fletchlog").option("path", str(directory)).option("checkpointLocation", str(checkpoint))
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        with fl.Broker(source) as broker, fl.Producer(broker) as producer:
            producer.send("orders", value=b"later", partition=0, timestamp_ms=START_MS)
    return str(running.id)


def console(address: str, topic: str) -> tuple[Shown, str]:
    """Everything that is committed, by partition in the order shown; and the last line."""
    main = CLASSES["consume"]["3"]
    shows = [f"--formatter-property=print.{what}=true" for what in ("timestamp", "partition", "headers", "key")]
    arguments = ["--bootstrap-server", address, "--topic", topic, "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "8000"]
    command = [*kafka.JVM, "-cp", kafka.classpath("server", kafka.server(RELEASE)), main, *arguments, *shows]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # ends by its time-out
    found: Shown = defaultdict(list)
    for line in done.stdout.splitlines():
        time, partition, rest = line.split("\t", 2)
        found[int(partition.removeprefix("Partition:"))].append(f"{time}\t{rest}")
    return found, done.stderr


def test_a_real_broker_shows_what_spark_wrote(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    scratch: Path,
    count: Callable[..., None],
) -> None:
    source, directory = tmp_path / "source", tmp_path / "data"
    for path in (source, directory):
        with fl.Broker(path, create=True) as broker:
            broker.create_topic("orders", partitions=3)
    save(rows(spark, 0, 1000), directory, **{"kafka.compression.type": "lz4"})
    leave_an_aborted_transaction(directory)
    # version 1 is the first one here, in a topic that has records
    save(rows(spark, 1000, 500), directory, txnAppId="app", txnVersion="1", maxInlineBytes="0", missingLedger="append")
    save(rows(spark, 1000, 500), directory, txnAppId="app", txnVersion="1")  # again: skipped by the ledger
    save(rows(spark, 1500, 200), source)
    query = stream(spark, directory, source, tmp_path / "checkpoint")

    wanted = shown(range(1700))
    wanted[0].append(f"CreateTime:{START_MS}\tNO_HEADERS\tnull\tlater")
    with Kraft(RELEASE, directory, scratch, cluster_of(directory)) as broker:
        found, ended = console(broker.address, "orders")
        groups = kafka.run(
            "server", kafka.server(RELEASE), CLASSES["groups"]["3"], "--bootstrap-server", broker.address, "--describe", "--group", group_of("spark", "", query)
        )
    assert found == wanted
    assert f"Processed a total of {sum(map(len, wanted.values()))} messages" in ended
    ledger = [line.split() for line in groups.splitlines() if LEDGER_TOPIC in line]
    assert [(row[2], int(row[3]) > 1) for row in ledger] == [("0", True)]
    count(PART, records=1701)
