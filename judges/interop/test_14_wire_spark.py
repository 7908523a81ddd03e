"""Part 14: Spark's own kafka source and sink against our listener, beside a real broker on the same log: the same rows, micro-batches and offsets."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import fletchlog as fl
from pytest_fletchlog.kafka import Kafka

from . import kafka
from .conftest import SEED
from .kraft import Kraft, format_directory
from .test_10_spark import DRAWS, EVERYTHING, ISOLATIONS, JSON, KEYED, STREAMS, Options, Served, draw, rows_of, run, served, spark  # noqa: F401

PART = "14 Spark's kafka source over the wire"


@pytest.fixture(scope="module")
def addresses(served: Served) -> Iterator[tuple[str, str]]:  # noqa: F811
    """Of the real broker, and of a listener over a copy of its directory."""
    with fl.Broker(served.copy, read_only=True) as broker, broker.listen() as listener:
        yield served.broker.address, listener.bootstrap


def frame(spark: SparkSession, address: str, options: Options, *, stream: bool = False) -> DataFrame:  # noqa: F811
    reader = spark.readStream if stream else spark.read
    return reader.format("kafka").options(**{"kafka.bootstrap.servers": address}, **options).load()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_every_row_is_a_real_brokers(isolation: str, spark: SparkSession, addresses: tuple[str, str], count: Callable[..., None]) -> None:  # noqa: F811
    options = {**EVERYTHING, "kafka.isolation.level": isolation}
    theirs, ours = (rows_of(frame(spark, address, options)) for address in addresses)
    assert ours.equals(theirs)
    assert len(theirs) > 1000
    count(PART, **{f"records_{isolation}": len(theirs)})


@pytest.mark.parametrize("number", range(DRAWS))
def test_every_option_means_what_it_means_with_a_real_broker(
    number: int,
    spark: SparkSession,  # noqa: F811
    served: Served,  # noqa: F811
    addresses: tuple[str, str],
    count: Callable[..., None],
) -> None:
    options = draw(random.Random(f"{SEED} spark over the wire {number}"), served)
    theirs, ours = (frame(spark, address, options) for address in addresses)
    assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()
    rows = rows_of(theirs)
    assert rows_of(ours).equals(rows), options
    count(PART, batches_with_options=1, records_with_options=len(rows))


@pytest.mark.parametrize("number", range(STREAMS))
@pytest.mark.parametrize("topic", [JSON, KEYED])
def test_a_stream_has_the_micro_batches_and_offsets_of_a_real_broker(
    topic: str,
    number: int,
    spark: SparkSession,  # noqa: F811
    addresses: tuple[str, str],
    scratch: Path,
    count: Callable[..., None],
) -> None:
    rng = random.Random(f"{SEED} spark stream over the wire {topic} {number}")
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rng.choice([40, 70, 100]))}
    options |= rng.choice([{}, {"minPartitions": "7"}, {"kafka.isolation.level": "read_committed"}])
    batches: list[list[list[tuple[int, int, bytes]]]] = [[], []]
    outcomes = []
    for address, into in zip(addresses, batches, strict=True):

        def keep(rows: DataFrame, _: int, into: list[list[tuple[int, int, bytes]]] = into) -> None:
            into.append(sorted((row["partition"], row["offset"], bytes(row["value"] or b"")) for row in rows.collect()))

        stream = frame(spark, address, options, stream=True)
        writer = stream.writeStream.foreachBatch(keep).trigger(availableNow=True)
        outcomes.append(run(writer.option("checkpointLocation", str(scratch / address)).start()))
    assert outcomes[1] == outcomes[0]
    assert batches[1] == batches[0]
    assert len(batches[0]) > 1
    count(PART, stream_batches=len(batches[0]))


def written(rows: DataFrame) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """Place and content: the timestamps are those of two writes."""
    found = rows.select("partition", "offset", "key", "value", "headers").collect()
    return sorted((row["partition"], row["offset"], row["key"], row["value"], [(h["key"], bytes(h["value"])) for h in row["headers"] or []]) for row in found)


def test_what_spark_writes_is_in_the_log_as_with_a_real_broker(spark: SparkSession, scratch: Path, count: Callable[..., None]) -> None:  # noqa: F811
    """A batch to given partitions, one by keys, and a stream: one task each, so that the order is known."""
    source = spark.range(3000).coalesce(1).selectExpr("cast(id % 41 as string) as key", "concat('value ', id) as value", "cast(id % 3 as int) as partition")
    headers = F.array(F.struct(F.lit("h").alias("key"), F.encode(F.col("value"), "UTF-8").alias("value")))
    seen = []
    real_config = {"auto.create.topics.enable": "true", "num.partitions": "3"}
    with (
        Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch, config=real_config) as real,
        Kafka(config={"num.partitions": "3"}) as ours,
    ):
        for name, address in (("real", real.address), ("ours", ours.bootstrap)):
            sink = {"kafka.bootstrap.servers": address, "includeHeaders": "true"}
            source.withColumn("headers", headers).write.format("kafka").options(**sink).option("topic", "placed").save()
            source.drop("partition").write.format("kafka").options(**sink, **{"kafka.compression.type": "zstd"}).option("topic", "keyed").save()
            stream = frame(spark, address, {"subscribe": "placed", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "900"}, stream=True)
            writer = stream.coalesce(1).select("key", "value", "partition").writeStream.format("kafka").options(**sink).option("topic", "streamed")
            streamed = run(writer.option("checkpointLocation", str(scratch / name)).trigger(availableNow=True).start())
            rows = [written(frame(spark, address, {"subscribe": topic, "includeHeaders": "true"})) for topic in ("placed", "keyed", "streamed")]
            seen.append((streamed, rows))
        assert [len(ours.records(topic)) for topic in ("placed", "keyed", "streamed")] == [3000] * 3
    assert seen[1] == seen[0]
    count(PART, records_written=9000)


# Columns of a frame, and whether the option topic is given. The sink of this release passes over a column `timestamp`.
REFUSED_FRAMES = [
    (["'v' as value"], False),
    (["1 as topic", "'v' as value"], False),
    (["id as key", "'v' as value"], True),
    (["'k' as key"], True),
    (["id as value"], True),
    (["struct(id) as value"], True),
    (["'v' as value", "array(struct('h' as key, 'text' as value)) as headers"], True),
    (["'v' as value", "id as partition"], True),
    (["id as key", "id as value", "id as partition", "id as topic"], False),
    (["'v' as value", "if(id = 3, null, '{topic}') as topic"], False),
]


def message_of(text: str) -> str:
    """What the sink says, without what Spark puts around it."""
    found = re.search(r"(?:OptionError|KafkaIllegalStateException|IllegalStateException): (.+?)(?: SQLSTATE: \w+)?$", text, re.MULTILINE)
    return found[1].strip() if found else text.strip()


def test_what_the_sink_refuses_it_refuses_with_the_words_of_sparks(spark: SparkSession, count: Callable[..., None]) -> None:  # noqa: F811
    with Kafka() as kafka:
        for name in ("kafka", "fletchlog"):
            kafka.topic(name=name)
        for columns, has_topic in REFUSED_FRAMES:
            texts = []
            for name in ("kafka", "fletchlog"):
                options = {"kafka.bootstrap.servers": kafka.bootstrap} | ({"topic": name} if has_topic else {})
                frame = spark.range(10, numPartitions=1).selectExpr(*(column.format(topic=name) for column in columns))
                with pytest.raises((PySparkException, Py4JJavaError)) as caught:
                    frame.write.format(name).options(**options).mode("append").save()
                texts.append(message_of(str(caught.value)))
            assert texts[1] == texts[0], columns
        # Spark's sink has written the rows in front of the one that it refused.
        assert len(kafka.records("fletchlog", isolation_level="read_committed")) == 0
    count(PART, refused_frames=len(REFUSED_FRAMES))


def test_the_sink_writes_the_rows_of_sparks(spark: SparkSession, count: Callable[..., None]) -> None:  # noqa: F811
    """Keys, headers and partitions that are null or not; a topic column of any type beside the option."""
    rows = spark.range(200, numPartitions=1).selectExpr(
        "cast(id as string) as value",
        "if(id % 5 = 0, null, encode(concat('k', id), 'UTF-8')) as key",
        "if(id % 7 = 0, null, cast(id % 2 as int)) as partition",
        "if(id % 4 = 0, array(struct('h' as key, cast(cast(id as string) as binary) as value)), null) as headers",
        "id as topic",
    )
    with Kafka() as kafka:
        seen = []
        for name in ("kafka", "fletchlog"):
            kafka.topic(2, name)
            options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": name, "kafka.partitioner.ignore.keys": "false"}
            rows.where("key is not null or partition is not null").write.format(name).options(**options).mode("append").save()
            found = kafka.records(name, isolation_level="read_committed", include_headers=True)
            seen.append(found.select(["partition", "key", "value", "headers"]))
        assert seen[1].equals(seen[0])
        assert len(seen[0]) > 150
    count(PART, records_written=len(seen[0]))
