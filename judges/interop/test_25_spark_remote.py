"""Part 25: our Spark source and sink on real brokers, beside Spark's own kafka source: the same rows, micro-batches, offsets, errors and log."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import fletchlog as fl

from .conftest import SEED
from .kraft import Kraft, format_directory
from .test_10_spark import (  # noqa: F401
    DRAWS,
    EVERYTHING,
    ISOLATIONS,
    JSON,
    KEYED,
    STREAMS,
    Options,
    Served,
    Streamed,
    draw,
    rows_of,
    run,
    served,
    spark,
)
from .test_14_wire_spark import written

PART = "25 our Spark source and sink on real brokers"
FORMATS = ["kafka", "fletchlog"]
LOST = "lost data"


def frame(spark: SparkSession, source: str, address: str, options: Options, *, stream: bool = False) -> DataFrame:  # noqa: F811
    """Of either source, with the same options."""
    reader = spark.readStream if stream else spark.read
    return reader.format(source).options(**{"kafka.bootstrap.servers": address}, **options).load()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_every_row_is_that_of_sparks_source(isolation: str, spark: SparkSession, served: Served, count: Callable[..., None]) -> None:  # noqa: F811
    options = {**EVERYTHING, "kafka.isolation.level": isolation}
    theirs, ours = (frame(spark, source, served.broker.address, options) for source in FORMATS)
    assert ours.schema == theirs.schema
    rows = rows_of(theirs)
    assert rows_of(ours).equals(rows)
    assert len(rows) > 1000
    count(PART, **{f"records_{isolation}": len(rows)})


@pytest.mark.parametrize("number", range(DRAWS))
def test_every_option_means_the_same(number: int, spark: SparkSession, served: Served, count: Callable[..., None]) -> None:  # noqa: F811
    options = draw(random.Random(f"{SEED} our source on a real broker {number}"), served)
    theirs, ours = (rows_of(frame(spark, source, served.broker.address, options)) for source in FORMATS)
    assert ours.equals(theirs), options
    count(PART, batches_with_options=1, records_with_options=len(theirs))


def streamed(spark: SparkSession, source: str, address: str, options: Options, checkpoint: Path) -> tuple[Streamed, list[list[tuple[int, int, bytes]]]]:  # noqa: F811
    """What a stream did with what there is, and the rows of each micro-batch."""
    batches: list[list[tuple[int, int, bytes]]] = []

    def keep(rows: DataFrame, _: int) -> None:
        if found := sorted((row["partition"], row["offset"], bytes(row["value"] or b"")) for row in rows.collect()):
            batches.append(found)

    stream = frame(spark, source, address, options, stream=True)
    done = run(stream.writeStream.foreachBatch(keep).trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start())
    return done, batches


@pytest.mark.parametrize("number", range(STREAMS))
@pytest.mark.parametrize("topic", [JSON, KEYED])
def test_a_stream_has_the_same_micro_batches_and_offsets(
    topic: str,
    number: int,
    spark: SparkSession,  # noqa: F811
    served: Served,  # noqa: F811
    scratch: Path,
    count: Callable[..., None],
) -> None:
    rng = random.Random(f"{SEED} our stream on a real broker {topic} {number}")
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rng.choice([40, 70, 100]))}
    options |= rng.choice([{}, {"minPartitions": "7"}, {"kafka.isolation.level": "read_committed"}])
    theirs, ours = (streamed(spark, source, served.broker.address, options, scratch / source) for source in FORMATS)
    assert ours == theirs
    assert len(theirs[1]) > 1
    count(PART, stream_batches=len(theirs[1]))


class Filled:
    """A running broker whose topics change."""

    def __init__(self, broker: Kraft) -> None:
        self.address = broker.address
        self._admin = AdminClient({"bootstrap.servers": broker.address})

    def create(self, topic: str, partitions: int = 2) -> None:
        """A new topic."""
        self._admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(30)

    def delete(self, topic: str) -> None:
        """No topic any more."""
        self._admin.delete_topics([topic])[topic].result(30)

    def send(self, topic: str, first: int, end: int) -> None:
        """Numbers, to two partitions in turn."""
        with fl.Producer(f"kafka://{self.address}") as producer:
            for number in range(first, end):
                producer.send(topic, value=b"%d" % number, partition=number % 2)

    def delete_records(self, topic: str, below: int) -> None:
        """Of partition 0."""
        place = TopicPartition(topic, 0, below)
        self._admin.delete_records([place])[place].result(30)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """One of 3.9.1: `served` is one of the newest release."""
    scratch = tmp_path_factory.mktemp("filled")
    with Kraft("3.9.1", format_directory(scratch / "data"), scratch) as broker:
        yield Filled(broker)


def outcome(query: Callable[[], object]) -> object:
    """What a query did, or why it ended."""
    try:
        return query()
    except StreamingQueryException as error:
        return LOST if "failOnDataLoss" in str(error) else str(error)


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("loss", ["deleted records", "a deleted topic", "a topic made anew"])
def test_lost_data_ends_a_stream_or_not_as_with_sparks_source(
    loss: str,
    fails: str,
    spark: SparkSession,  # noqa: F811
    filled: Filled,
    scratch: Path,
    count: Callable[..., None],
) -> None:
    topic = f"lost-{loss.replace(' ', '-')}-{fails}"
    filled.create(topic)
    filled.send(topic, 0, 100)
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": fails}
    before = [streamed(spark, source, filled.address, options, scratch / source) for source in FORMATS]
    assert before[0] == before[1]
    if loss == "deleted records":
        filled.send(topic, 100, 200)
        filled.delete_records(topic, 80)
    else:
        filled.delete(topic)
        if loss == "a topic made anew":
            filled.create(topic)
            filled.send(topic, 500, 540)
    theirs, ours = (outcome(lambda source=source: streamed(spark, source, filled.address, options, scratch / source)) for source in FORMATS)
    if loss == "a deleted topic":
        # Spark's source ends with an error of its admin client, whatever the option says; ours does what the option says
        assert "UnknownTopicOrPartitionException" in str(theirs)
        theirs = LOST if fails == "true" else (Streamed([], [], 0), [])
    assert ours == theirs
    assert (theirs == LOST) == (fails == "true")
    count(PART, data_losses=1)


def test_what_our_sink_writes_is_what_sparks_own_writes(
    spark: SparkSession,  # noqa: F811
    filled: Filled,
    scratch: Path,
    count: Callable[..., None],
) -> None:
    """A batch to given partitions, one by keys, and a stream: one task each, so that the order is known."""
    source = spark.range(3000).coalesce(1).selectExpr("cast(id % 41 as string) as key", "concat('value ', id) as value", "cast(id % 3 as int) as partition")
    headers = F.array(F.struct(F.lit("h").alias("key"), F.encode(F.col("value"), "UTF-8").alias("value")))
    seen = []
    for name in FORMATS:
        sink = {"kafka.bootstrap.servers": filled.address}
        for topic in ("placed", "keyed", "streamed"):
            filled.create(f"{topic}-{name}", partitions=3)
        source.withColumn("headers", headers).write.format(name).mode("append").options(**sink).option("topic", f"placed-{name}").save()
        source.drop("partition").write.format(name).mode("append").options(**sink).option("topic", f"keyed-{name}").save()
        read = {"subscribe": f"placed-{name}", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "900", "kafka.isolation.level": "read_committed"}
        stream = frame(spark, "kafka", filled.address, read, stream=True).coalesce(1).select("key", "value", "partition")
        writer = stream.writeStream.format(name).options(**sink).option("topic", f"streamed-{name}").option("checkpointLocation", str(scratch / name))
        run(writer.trigger(availableNow=True).start())
        committed = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
        rows = [written(frame(spark, "kafka", filled.address, {**committed, "subscribe": f"{topic}-{name}"})) for topic in ("placed", "keyed", "streamed")]
        # markers of transactions take offsets; the order is what counts
        seen.append([[(partition, *content) for partition, _, *content in of] for of in rows])
    assert [len(rows) for rows in seen[0]] == [3000] * 3
    assert seen[1] == seen[0]
    count(PART, records_written=sum(map(len, seen[1])))


def test_a_checkpoint_of_sparks_source_says_where_to_start(spark: SparkSession, filled: Filled, scratch: Path, count: Callable[..., None]) -> None:  # noqa: F811
    """Its offsets are those of ours: where a query of Spark's source stopped, one of ours goes on."""
    filled.create("handed-over")
    filled.send("handed-over", 0, 100)
    options = {"subscribe": "handed-over", "startingOffsets": "earliest"}
    done, _ = streamed(spark, "kafka", filled.address, options, scratch / "kafka")
    filled.send("handed-over", 100, 160)
    goes_on = {"subscribe": "handed-over", "startingOffsets": json.dumps(done.ends[-1])}
    _, batches = streamed(spark, "fletchlog", filled.address, goes_on, scratch / "fletchlog")
    assert sorted(int(value) for batch in batches for _, _, value in batch) == list(range(100, 160))
    count(PART, queries_handed_over=1)


def test_a_query_changes_between_the_sources_and_goes_on_from_its_checkpoint(
    spark: SparkSession,  # noqa: F811
    filled: Filled,
    scratch: Path,
    count: Callable[..., None],
) -> None:
    """Spark keeps the offsets of a source by its place in the query, not by its format, and the text of both sources' is the same."""
    filled.create("changed")
    options = {"subscribe": "changed", "startingOffsets": "earliest"}
    seen = []
    for number, source in enumerate(["kafka", "fletchlog", "kafka", "fletchlog"]):
        filled.send("changed", 40 * number, 40 * (number + 1))
        _, batches = streamed(spark, source, filled.address, options, scratch / "query")
        seen.append(sorted(int(value) for batch in batches for _, _, value in batch))
    assert seen == [list(range(40 * number, 40 * (number + 1))) for number in range(4)]
    count(PART, queries_changed_over=3)


def stopped_within_a_batch(spark: SparkSession, address: str, options: Options, checkpoint: Path) -> None:  # noqa: F811
    """A query of Spark's source that has planned a batch and not finished it."""

    def fail(rows: DataFrame, _: int) -> None:
        raise RuntimeError(rows.count())

    stream = frame(spark, "kafka", address, options, stream=True)
    with pytest.raises(StreamingQueryException):
        run(stream.writeStream.foreachBatch(fail).trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start())


def test_a_batch_that_sparks_source_has_planned_is_read_again_by_ours(spark: SparkSession, filled: Filled, scratch: Path) -> None:  # noqa: F811
    filled.create("planned")
    filled.send("planned", 0, 40)
    options = {"subscribe": "planned", "startingOffsets": "earliest"}
    streamed(spark, "kafka", filled.address, options, scratch / "query")
    filled.send("planned", 40, 60)
    stopped_within_a_batch(spark, filled.address, options, scratch / "query")
    filled.send("planned", 60, 90)
    _, batches = streamed(spark, "fletchlog", filled.address, options, scratch / "query")
    assert [sorted(int(value) for _, _, value in batch) for batch in batches] == [list(range(40, 60)), list(range(60, 90))]


def test_where_a_first_batch_began_that_sparks_source_did_not_finish_is_an_option(spark: SparkSession, filled: Filled, scratch: Path) -> None:  # noqa: F811
    """Spark has its end; its start is in a file of that source alone."""
    filled.create("unfinished")
    filled.send("unfinished", 0, 40)
    options = {"subscribe": "unfinished", "startingOffsets": json.dumps({"unfinished": {"0": 5, "1": 6}})}
    stopped_within_a_batch(spark, filled.address, options, scratch / "query")
    filled.send("unfinished", 40, 60)
    with pytest.raises(StreamingQueryException, match="sources/0/0"):
        streamed(spark, "fletchlog", filled.address, {**options, "startingOffsets": "latest"}, scratch / "query")
    began = (scratch / "query" / "sources" / "0" / "0").read_text().splitlines()[-1]
    _, batches = streamed(spark, "fletchlog", filled.address, {**options, "startingOffsets": began}, scratch / "query")
    assert [sorted(int(value) for _, _, value in batch) for batch in batches] == [sorted([*range(10, 40, 2), *range(13, 40, 2)]), list(range(40, 60))]
