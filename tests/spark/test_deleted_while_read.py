"""Records that are deleted while Spark reads them: an error, or with failOnDataLoss=false a warning with the offsets; never fewer rows without a word."""

import re

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import fletchlog as fl
from fletchlog.errors import KafkaError
from fletchlog.spark.errors import DataLossError
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.range_calculator import OffsetRange
from fletchlog.spark.scan import read_ranges
from fletchlog.spark.schema import kafka_schema

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

COUNT, LEFT_OUT, MADE_ANEW = 400, 200, 9
VALUE = b"x" * 20_000


def fill(broker, count=COUNT, value=VALUE):
    broker.create_topic("t", partitions=2, config={"segment.bytes": 1 << 20, "retention.ms": -1})
    with fl.Producer(broker) as producer:
        for partition in (0, 1):
            for _ in range(count):
                producer.send("t", value, partition=partition)


def delete_records(broker):
    for partition in (0, 1):
        broker.delete_records("t", partition, LEFT_OUT)


def run_retention(broker):
    delete_records(broker)
    broker.alter_topic_config("t", {"retention.bytes": str(1 << 20), "retention.ms": "-1"})
    assert broker.run_retention() > 2


def delete_topic(broker):
    broker.delete_topic("t")


def make_it_anew(broker, count=MADE_ANEW):
    broker.delete_topic("t")
    fill(broker, count, b"other")


READERS = pytest.mark.parametrize(
    ("source", "kind"),
    [("fletchlog", "directory"), ("fletchlog", "cluster"), pytest.param("fletchlog-columnar", "directory", marks=pytest.mark.slow)],
)
LOSSES = [delete_records, run_retention, delete_topic, make_it_anew]


@pytest.fixture(params=["directory", "cluster"])
def kind(request):
    return request.param


@pytest.fixture
def place(kind, tmp_path):
    """A broker, and the options by which Spark finds it."""
    with fl.Broker(tmp_path / "log", create=True) as broker, broker.listen() as listener:
        fill(broker)
        timeouts = {"kafkaConsumer.pollTimeoutMs": "2000", "fetchOffset.numRetries": "1"}
        cluster = {"kafka.bootstrap.servers": listener.bootstrap, **timeouts}
        yield broker, {"path": str(tmp_path / "log")} if kind == "directory" else cluster


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_task_of_two_ranges_has_all_rows_or_reports_a_loss(place, lose, fail, caplog):
    broker, options = place
    parsed = SourceOptions.parse({**options, "subscribe": "t", "failOnDataLoss": fail})
    batches = read_ranges((OffsetRange("t", 0, 0, COUNT), OffsetRange("t", 1, 0, COUNT)), parsed, kafka_schema(include_headers=False))
    found = [next(batches)]
    lose(broker)
    if fail == "true":
        with pytest.raises((DataLossError, KafkaError), match=r"t-[01]"):
            found += batches
        return
    try:
        found += batches
    except KafkaError:
        assert lose is delete_topic  # Spark tries the task again, and sees then that the topic is gone
        return
    except DataLossError as error:
        # a cluster that does not show a topic may show it again: never skipped
        assert lose is delete_topic
        assert "does not show it now" in str(error)  # noqa: PT017
        return
    reported = " ".join(record.getMessage() for record in caplog.records if record.name == "fletchlog.spark")
    assert "t-1" in reported
    assert sum(batch.num_rows for batch in found) < 2 * COUNT


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("count", [MADE_ANEW, COUNT])
def test_a_task_reports_a_topic_that_is_made_again_while_it_reads(place, count, fail, caplog):
    broker, options = place
    parsed = SourceOptions.parse({**options, "subscribe": "t", "failOnDataLoss": fail})
    batches = read_ranges((OffsetRange("t", 0, 0, COUNT),), parsed, kafka_schema(include_headers=False))
    found = [next(batches)]
    make_it_anew(broker, count)
    report = r"t-0 was deleted and made again while it was read at offset (\d+); what is left of the range begins at (\d+)"
    if fail == "true":
        with pytest.raises(DataLossError, match=report):
            found += batches
        return
    found += batches
    [(gone, left)] = [map(int, offsets) for offsets in re.findall(report, caplog.text)]
    is_as_long = count == COUNT
    assert left == (gone if is_as_long else COUNT)
    # what was read before, and what the new topic has from there on
    read = [row for batch in found for row in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)]
    assert read == [(offset, VALUE if offset < gone else b"other") for offset in range(COUNT if is_as_long else gone)]


@READERS
@pytest.mark.parametrize("lose", LOSSES)
def test_a_query_has_an_error_when_records_go_between_two_of_its_tasks(spark, place, source, lose):
    broker, options = place
    rows = spark.read.format(source).options(subscribe="t", **options).load().select("partition", "offset").toLocalIterator()
    assert next(rows).partition == 0  # a partition is read when its first row is wanted
    lose(broker)
    with pytest.raises((PySparkException, Py4JJavaError), match="t-1"):
        list(rows)


@READERS
@pytest.mark.parametrize("lose", LOSSES)
def test_a_micro_batch_that_was_planned_has_an_error_when_records_go(spark, place, source, lose, tmp_path):
    broker, options = place
    counted = []

    def count(frame, _batch):
        lose(broker)
        counted.append(frame.count())

    # offsets that are fixed: the first batch has rows
    stream = spark.readStream.format(source).options(subscribe="t", startingOffsets='{"t":{"0":0,"1":0}}', **options).load()
    query = stream.writeStream.foreachBatch(count).option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match=r"t-[01]"):
        query.awaitTermination()
    assert counted == []
